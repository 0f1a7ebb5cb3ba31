"""Exports of Notion: the numbers in the names of its files, and its databases, whose rows are pages as well."""

import contextlib
import posixpath
import re
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from pathlib import Path

from transfer.formats import csv_table
from transfer.formats.base import ColumnsError, Options, Reading, Records, RefusedRecord
from transfer.formats.importer import Part

NUMBER = re.compile(r" [0-9a-f]{32}$")
_DATABASE = re.compile(r"(?P<name>.+ [0-9a-f]{32})(?P<whole>_all)?\.csv", re.DOTALL)
_BLOCK = re.compile(r"Export(?:Block)?-[0-9a-f-]{8,}.*\.zip", re.IGNORECASE | re.DOTALL)
_NOT_IN_NAMES = re.compile(r"[\W_]+")
# Names of files are cut: longer titles than this may be only their beginnings.
_CUT = 30


def folder_path(folder: str) -> str:
    """The path of a folder without the numbers that Notion adds to names."""
    return "/".join(NUMBER.sub("", step) for step in folder.split("/"))


def is_block(name: str) -> bool:
    """Whether an archive in an archive is a part of an export."""
    return _BLOCK.fullmatch(name) is not None


def is_database(name: str, names: Collection[str]) -> bool:
    """Whether a file is a table whose rows are pages of the same export."""
    return _pages(name, names) is not None


def database_part(name: str, path: Path, names: Collection[str]) -> Part:
    """The table of a database. Only its rows without a page become memories: the others are pages."""
    match = _DATABASE.fullmatch(name)
    if match and not match["whole"] and f"{match['name']}_all.csv" in names:
        return Part(name, path, reason=f"is a view of {posixpath.basename(match['name'])}_all.csv, which is read")
    pages = _pages(name, names) or frozenset()
    return Part(name, path, replace(csv_table.IMPORTER, read=partial(_read_rows_without_page, pages)))


def _pages(name: str, names: Collection[str]) -> frozenset[str] | None:
    """The titles of the pages of a database, as far as names of files have them; None for any other file."""
    match = _DATABASE.fullmatch(name)
    if match is None:
        return None
    folders = (match["name"], NUMBER.sub("", match["name"]))
    inside = [one for one in names if posixpath.dirname(one) in folders and one.endswith((".md", ".html"))]
    titles = (NUMBER.sub("", posixpath.splitext(posixpath.basename(one))[0]) for one in inside)
    return frozenset(map(_title_key, titles)) if inside else None


def _title_key(title: str) -> str:
    return _NOT_IN_NAMES.sub("", title).casefold()


def _read_rows_without_page(pages: frozenset[str], path: Path, options: Options) -> Reading:
    title = csv_table.columns(path, options)[0].name
    try:
        reading = csv_table.read(path, options)
    except ColumnsError:
        reading = csv_table.read(path, replace(options, columns={**options.columns, title: "content"}))

    def records() -> Records:
        with contextlib.closing(reading.records) as rows:
            for row in rows:
                if isinstance(row, RefusedRecord) or not _has_page(str(row.data.get("content", "")), pages):
                    yield row

    return Reading(records(), reading.fraction)


def _has_page(title: str, pages: frozenset[str]) -> bool:
    key = _title_key(title)
    return key in pages or any(len(page) >= _CUT and key.startswith(page) for page in pages)
