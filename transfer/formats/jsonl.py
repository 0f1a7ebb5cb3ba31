"""JSON records, one per line, plain or gzip."""

import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any

from pydantic import AfterValidator, BaseModel, FiniteFloat, ValidationError
from pydantic_core import from_json

from categories.models import MadeBy
from categories.paths import slug_of
from memories.records import unstorable
from transfer.formats.base import ImportFailedError, NotReadableError, Options, Reading, RefusedRecord, SourceRecord
from transfer.formats.importer import Importer
from transfer.formats.sources import DamagedError, Document, Source, document_reading, unzipped
from transfer.formats.unknown import json_document
from web.validation import kind_of

# The version of exports by this program.
EXPORT_VERSION = 1
MAX_LINE = 20 * 1024 * 1024
# Bytes of lines with nothing but white space: a small gzip can unpack to gigabytes of them.
_MAX_BLANK = 16 * 1024 * 1024
# The fields of a record that may be its text.
_TEXTS = frozenset({"content", "text", "body"})
_DECODER = json.JSONDecoder()
_BETWEEN_OBJECTS = re.compile(r"[\s,]*")
_MAX_OBJECTS, _MAX_OBJECT_LINES = 1_000, 100_000
_BOM = b"\xef\xbb\xbf"


def knows(source: Source) -> bool:
    """Whether a file starts like a JSON object. A damaged gzip is one all the same, and an empty file."""
    if source.is_archive or source.path.is_dir() or not source.documents:
        return False
    start = source.documents[0].start.lstrip()
    return start.startswith("{") or not start or list_key(source.documents[0]) is not None


def list_key(document: Document) -> str | None:
    """The key of a list of records in a JSON document, empty if the document is the list; None if there is none."""
    if isinstance(document.head, list):
        keys = [""]
    elif document.keys & {*_TEXTS, "record"} or _is_lines(document):
        return None
    else:
        keys = sorted(document.keys)
    # A list of messages, which have roles, is one conversation.
    return next((key for key in keys if document.fields(key) & _TEXTS and "role" not in document.fields(key)), None)


def _is_lines(document: Document) -> bool:
    """Whether the first of several lines is a value by itself."""
    first, _, rest = document.start.strip().partition("\n")
    if not rest.strip():
        return False
    try:
        from_json(first)
    except ValueError:
        return False
    return True


def read(path: Path, options: Options) -> Reading:
    documents = Source(path).documents
    if documents and (key := list_key(documents[0])) is not None:
        return document_reading(documents[:1], options, partial(_listed_record, key))
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


def _listed_record(
    wanted: str, document: Document, key: str, location: str, value: Any
) -> Iterator[SourceRecord | RefusedRecord]:
    if key == wanted and isinstance(value, dict):
        yield SourceRecord(location, value)
    elif key == wanted:
        yield RefusedRecord(location, f'is {kind_of(value)}; a record is a JSON object, {{"content": …}}')


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


class _SpreadObject:
    """An object that is written over several lines. The lines of one that is too large are let go."""

    def __init__(self, number: int, line: bytes) -> None:
        self._number = number
        self._lines = [line]
        self._size = len(line)

    def add(self, line: bytes) -> None:
        self._size += len(line)
        if self._size > MAX_LINE:
            self._lines.clear()
        else:
            self._lines.append(line)

    def ends_with(self, line: bytes) -> bool:
        return line[:1] == b"}" or len(self._lines) > _MAX_OBJECT_LINES

    def records(self) -> Iterator[SourceRecord | RefusedRecord]:
        if self._size > MAX_LINE:
            yield _refuse_long(self._number)
        else:
            yield from _parsed(b"".join(self._lines).strip(), f"line {self._number}")


def records_of_lines(lines: IO[bytes], options: Options) -> Iterator[SourceRecord | RefusedRecord]:
    """The objects of lines, with the numbers of the lines as locations."""
    number = blank = 0
    begun: _SpreadObject | None = None
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
            if begun:
                yield from begun.records()
            return
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        stripped = line.strip()
        if begun and (line[:1] in b" \t}]" or not stripped):
            blank += 0 if stripped else len(line)
            begun.add(line)
            if begun.ends_with(line):
                yield from begun.records()
                begun = None
            continue
        if begun:
            yield from begun.records()
            begun = None
        if stripped == b"{":
            begun = _SpreadObject(number, line)
        elif stripped in (b"[", b"]", b","):
            continue
        elif stripped:
            yield from _parsed(stripped, f"line {number}")
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
    return _refuse_long(number)


def _refuse_long(number: int) -> RefusedRecord:
    return RefusedRecord(
        f"line {number}", f"is longer than {MAX_LINE // 1024 // 1024} MB; a record is one line of at most that"
    )


def _parsed(line: bytes, location: str) -> Iterator[SourceRecord | RefusedRecord]:
    """The record of a line, or those of several objects in it."""
    try:
        values: list[Any] = [from_json(line, allow_inf_nan=False)]
    except ValueError as error:
        values = _objects_of(line)
        if not values:
            yield RefusedRecord(location, _why_not_json(line, error))
            return
    for place, data in enumerate(values, 1):
        where = location if len(values) == 1 else f"{location}, object {place}"
        if isinstance(data, dict):
            yield SourceRecord(where, data)
        else:
            yield RefusedRecord(where, f'is {kind_of(data)}; a record is a JSON object, {{"content": …}}')


def _objects_of(line: bytes) -> list[Any]:
    """The objects of a line that has several, also with commas between them; none if there is anything else."""
    found: list[Any] = []
    try:
        text = line.decode()
        at = 0
        while (start := _between(text, at)) < len(text):
            if text[start] != "{" or len(found) == _MAX_OBJECTS:
                return []
            _, at = _DECODER.raw_decode(text, start)
            found.append(from_json(text[start:at], allow_inf_nan=False))
    except (ValueError, RecursionError):
        return []
    return found


def _between(text: str, at: int) -> int:
    """The place of the next object after this one."""
    match = _BETWEEN_OBJECTS.match(text, at)
    return match.end() if match else at


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
    document = source.documents[0]
    if list_key(document) is None and not document.keys & _TEXTS and (what := json_document(document)):
        raise NotReadableError(f"{source.path}: this is {what}.")
    return True


IMPORTER = Importer("jsonl", "a file with one JSON object a line, plain or gzip", _knows_source, read)
