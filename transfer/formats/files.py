"""Forms of an export: JSON lines, which hold everything, and a table of the memories for spreadsheets."""

import csv
import io
import unicodedata
from collections.abc import Iterator
from typing import Any

from transfer.formats.export import PIECE, Lines, json_bytes

_COLUMNS = (
    *("id", "project", "type", "title", "summary", "content", "tags", "categories", "concepts", "entities", "authors"),
    *("state", "created_at", "updated_at", "happened_at", "valid_from", "valid_to", "importance", "confidence"),
    *("pinned", "agent", "session", "source", "source_url", "number"),
)
# A spreadsheet takes a cell that begins so for a formula, also after spaces and what it does not show.
_FORMULA, _BEFORE_FORMULA = ("=", "+", "-", "@"), ("\t", "\r", "\n")


def json_lines(lines: Lines) -> Iterator[bytes]:
    """The lines as JSON, from which an import makes equal memories."""
    for line in lines():
        yield json_bytes(line) + b"\n"


def table(lines: Lines) -> Iterator[bytes]:
    """The memories as CSV in UTF-8 with a byte order mark, which spreadsheets need.

    Several values are separated by semicolons. A text that a spreadsheet would take for a formula begins with an
    apostrophe. All cells are quoted: spreadsheets of some languages divide at semicolons.
    """
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, extrasaction="ignore", lineterminator="\r\n", quoting=csv.QUOTE_ALL)
    out.write("\ufeff")
    writer.writeheader()
    for line in lines():
        if "record" not in line:
            number = line.get("stored", {}).get("number")
            writer.writerow({name: _cell(line.get(name)) for name in _COLUMNS} | {"number": number})
        if out.tell() > PIECE:
            yield _taken(out).encode(errors="replace")
    yield _taken(out).encode(errors="replace")


def _taken(out: io.StringIO) -> str:
    text = out.getvalue()
    out.seek(0)
    out.truncate()
    return text


def _cell(value: Any) -> str:
    if isinstance(value, list):
        value = "; ".join(shown_name(one) for one in value)
    elif isinstance(value, bool):
        value = "yes" if value else ""
    text = "" if value is None else str(value)
    return f"'{text}" if _is_formula(text) else text


def _is_formula(text: str) -> bool:
    """Whether a spreadsheet may take a text for a formula: also one whose sign is as wide as a Chinese letter."""
    first = next((letter for letter in text if unicodedata.category(letter)[0] not in "CZ"), "")
    return text.startswith(_BEFORE_FORMULA) or unicodedata.normalize("NFKC", first).startswith(_FORMULA)


def shown_name(value: Any) -> str:
    """A concept or an entity by its name; an entity has its type before it."""
    if not isinstance(value, dict):
        return str(value)
    return f"{value['type']}:{value['name']}" if "type" in value else str(value["name"])
