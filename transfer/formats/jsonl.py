"""JSON records, one per line, plain or gzip."""

import contextlib
import gzip
import json
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import AfterValidator, BaseModel, FiniteFloat, ValidationError
from pydantic_core import from_json

from categories.models import MadeBy
from categories.paths import slug_of
from memories.records import unstorable
from transfer.formats.base import ImportFailedError, NotReadableError, Options, Reading, RefusedRecord, SourceRecord
from transfer.formats.importer import Importer
from transfer.formats.sources import DamagedError, Document, Source, unzipped
from transfer.formats.unknown import json_document
from web.validation import kind_of

# The version of exports by this program.
EXPORT_VERSION = 1
MAX_LINE = 20 * 1024 * 1024
# Bytes of lines with nothing but white space: a small gzip can unpack to gigabytes of them.
_MAX_BLANK = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


def knows(source: Source) -> bool:
    """Whether a file starts like a JSON object. A damaged gzip is one all the same, and an empty file."""
    if source.is_archive or source.path.is_dir() or not source.documents:
        return False
    start = source.documents[0].start.lstrip()
    return start.startswith("{") or not start


def read(path: Path, options: Options) -> Reading:
    size = path.stat().st_size
    at = 0

    def records() -> Generator[SourceRecord | RefusedRecord, None, None]:
        nonlocal at
        with path.open("rb") as source:
            is_export = False
            for record in records_of_lines(unzipped(source), options):
                at = source.tell()
                if isinstance(record, SourceRecord) and record.data.get("record") == "export":
                    is_export = True
                    _check_version(path, record.data.get("version"))
                elif is_export and isinstance(record, SourceRecord) and isinstance(record.data.get("stored"), dict):
                    yield _copied(record)
                else:
                    yield record

    return Reading(records(), lambda: at / size if size else None)


def _check_version(path: Path, version: object) -> None:
    if version != EXPORT_VERSION:
        raise ImportFailedError(
            f"{path}: is an export of version {version!r}, and this program reads version {EXPORT_VERSION}. Nothing "
            "was imported. Import it with a newer program."
        )


class _Makers(BaseModel):
    """The makers of the links of a memory of an export, and their weights, by the name of the term."""

    categories: list[tuple[Annotated[str, AfterValidator(slug_of)], MadeBy, FiniteFloat]] = []
    concepts: list[tuple[str, MadeBy, FiniteFloat]] = []
    entities: list[tuple[tuple[str, str], MadeBy, FiniteFloat]] = []


def _copied(record: SourceRecord) -> SourceRecord | RefusedRecord:
    """A memory of an export: its record, and what a copy needs besides."""
    stored = record.data["stored"]
    try:
        _Makers.model_validate(stored.get("made_by") or {})
    except ValidationError:
        return RefusedRecord(record.location, "stored.made_by: is not what an export has there")
    data = {name: value for name, value in record.data.items() if name != "stored"}
    raw = stored.get("raw")
    return replace(record, data=data, raw=raw if isinstance(raw, dict) else None, stored=stored)


def records_of_lines(lines: IO[bytes], options: Options) -> Iterator[SourceRecord | RefusedRecord]:
    """The objects of lines, with the numbers of the lines as locations."""
    number = blank = 0
    while True:
        try:
            if blank > _MAX_BLANK:
                raise DamagedError("More than 16 MB of it are empty lines")
            line = lines.readline(MAX_LINE + 1)
            if len(line) > MAX_LINE:
                yield _too_long(lines, number + 1)
                number += 1
                continue
        except (OSError, EOFError, zlib.error, DamagedError) as error:
            reason = _damage(error)
            if options.keep_going:
                yield RefusedRecord(f"after line {number}", f"{reason}; everything after it is lost")
                return
            raise ImportFailedError(
                f"{reason} after line {number:,}. Nothing was imported. Get an undamaged copy, or import the "
                f"{number:,} lines before the damage with --keep-going."
            ) from error
        if not line:
            return
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        if stripped := line.strip():
            yield _parsed(stripped, f"line {number}")
        else:
            blank += len(line)


def rows_of_documents(
    documents: Iterable[Document], options: Options
) -> Iterator[tuple[str, Mapping[str, Any] | RefusedRecord]]:
    """The objects of the lines of several documents, with their locations, and the lines that are none."""
    for document in documents:
        with document.opened() as lines:
            for line in records_of_lines(lines, options):
                location = document.place(line.location)
                yield location, replace(line, location=location) if isinstance(line, RefusedRecord) else line.data


def _damage(error: Exception) -> str:
    if isinstance(error, DamagedError):
        return str(error)
    if isinstance(error, EOFError):
        return "The gzip file ends in the middle: it is cut off"
    if isinstance(error, zlib.error | gzip.BadGzipFile):
        return "The gzip file is damaged"
    return f"The file cannot be read ({error})"


def _too_long(lines: IO[bytes], number: int) -> RefusedRecord:
    while (rest := lines.readline(MAX_LINE)) and not rest.endswith(b"\n"):
        pass
    return RefusedRecord(
        f"line {number}", f"is longer than {MAX_LINE // 1024 // 1024} MB; a record is one line of at most that"
    )


def _parsed(line: bytes, location: str) -> SourceRecord | RefusedRecord:
    try:
        data: Any = from_json(line, allow_inf_nan=False)
    except ValueError as error:
        return RefusedRecord(location, _why_not_json(line, error))
    if not isinstance(data, dict):
        return RefusedRecord(location, f'is {kind_of(data)}; a record is a JSON object, {{"content": …}}')
    return SourceRecord(location, data)


def _why_not_json(line: bytes, error: ValueError) -> str:
    try:
        line.decode()
    except UnicodeDecodeError as wrong:
        return f"is not UTF-8: byte {wrong.start + 1} is 0x{line[wrong.start]:02x}; save the file as UTF-8"
    # An escaped half of a character is valid JSON for some parsers: give the exact reason.
    with contextlib.suppress(ValueError, RecursionError):
        if reason := unstorable(json.loads(line)):
            return reason
    return f"is not JSON: {str(error).replace(' at line 1 column ', ' at character ')}"


def _knows_source(source: Source) -> bool:
    if not knows(source):
        return False
    if what := json_document(source.documents[0]):
        raise NotReadableError(f"{source.path}: this is {what}.")
    return True


IMPORTER = Importer("jsonl", "a file with one JSON object a line, plain or gzip", _knows_source, read)
