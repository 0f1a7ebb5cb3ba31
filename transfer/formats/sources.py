"""A path to import, and its first bytes, by which its format is known. Does not use the database."""

import codecs
import contextlib
import gzip
import json
import re
import sqlite3
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, cast

from pydantic_core import from_json

from transfer.formats import sqlite
from transfer.formats.base import (
    ImportFailedError,
    NotReadableError,
    Options,
    Reading,
    Records,
    RefusedRecord,
    SourceRecord,
    damage_text,
    read_guarded,
)
from transfer.formats.trees import UNREADABLE, archive_opened

_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_SQLITE = b"SQLite format 3\0"
_MARKDOWN = (".md", ".markdown", ".mdc")
_HEAD = 128 * 1024
_CHUNK = 256 * 1024
# As much is read of a JSON document to know it, if its first record is long.
_LONG_HEAD = 32 * 1024 * 1024
# The longest text and the deepest list or object that a JSON document is known by.
_LONG, _DEEP = 1_000, 20
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]|[^"\[\]{}]++', re.DOTALL)
# Archives and folders with more files than this are searched no further for records.
_MAX_DOCUMENTS = 300
# Exports of conversations hold pictures by the thousand besides.
_LIKELY = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
# The largest single value of a JSON document, in characters.
MAX_VALUE = 64 * 1024 * 1024
# A file that unpacks to more than this, and to more than this many times its size, is not read.
_MAX_UNPACKED, _MAX_RATIO = 512 * 1024 * 1024, 200
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def _decoded(start: bytes) -> str:
    """The beginning of a file as text, without a byte order mark."""
    return codecs.getincrementaldecoder(encoding_of(start))("replace").decode(start).removeprefix("\ufeff")


def _outline(text: str) -> str:
    """The beginning of a JSON text, with other texts for long ones, and null for what is nested deeply."""
    parts: list[str] = []
    size = depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in ("]", "}"):
            depth -= 1
        if depth < _DEEP:
            is_long = len(token) > _LONG and token[0] == '"'
            parts.append('"…"' if is_long and token[-1] == '"' else token[:_LONG] if is_long else token)
            size += len(parts[-1])
        elif depth == _DEEP and token in ("[", "{"):
            parts.append("null")
        if token in ("[", "{"):
            depth += 1
        if size > _HEAD:
            break
    return "".join(parts)


class DamagedError(Exception):
    """A source that cannot be read further. The message is the reason."""


def unzipped(file: IO[bytes]) -> IO[bytes]:
    """The content of a file that may be gzip."""
    packed = file.read(2) == _GZIP
    file.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=file, mode="rb")) if packed else file


def encoding_of(start: bytes) -> str:
    """The encoding that a byte order mark announces, else UTF-8."""
    return next((encoding for mark, encoding in _BOMS if start.startswith(mark)), "utf-8")


@dataclass(frozen=True)
class Document:
    """A file of text: a path, or a member of a ZIP archive. `name` is empty for a path that is imported by itself."""

    name: str
    path: Path
    member: str = ""
    known_start: str | None = field(default=None, repr=False, compare=False)
    """The first characters, if they were read before: to open an archive reads the names of all its members."""

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """The bytes, unpacked."""
        with contextlib.ExitStack() as stack:
            if self.member:
                archive = stack.enter_context(zipfile.ZipFile(self.path))
                file: IO[bytes] = stack.enter_context(archive.open(self.member))
            else:
                file = stack.enter_context(self.path.open("rb"))
            yield unzipped(file)

    @cached_property
    def size(self) -> int:
        """The size as stored, if it is not packed; else 0."""
        if self.member:
            with zipfile.ZipFile(self.path) as archive:
                return archive.getinfo(self.member).file_size
        with self.path.open("rb") as file:
            return 0 if file.read(2) == _GZIP else self.path.stat().st_size

    @cached_property
    def packed_size(self) -> int:
        if self.member:
            with zipfile.ZipFile(self.path) as archive:
                return archive.getinfo(self.member).compress_size
        return self.path.stat().st_size

    @cached_property
    def start(self) -> str:
        """The first characters; empty if they cannot be read."""
        if self.known_start is not None:
            return self.known_start
        with contextlib.suppress(*UNREADABLE), self.opened() as file:
            return _decoded(file.read(_HEAD))
        return ""

    def _long_start(self) -> str:
        with contextlib.suppress(*UNREADABLE), self.opened() as file:
            return _decoded(file.read(_LONG_HEAD))
        return ""

    @cached_property
    def head(self) -> Any:
        """The beginning of a JSON document as a value: what is cut off is missing, as are long texts and deep values.

        Only the first line, if every line is a value. None for anything else.
        """
        if self.start.lstrip()[:1] not in ("{", "["):
            return None
        start = _outline(self.start)
        if len(start) < _HEAD // 2 <= len(self.start):
            # The names of fields may come after a text of many megabytes.
            start = _outline(self._long_start())
        for text in (start, start.lstrip().split("\n", 1)[0]):
            with contextlib.suppress(ValueError):
                return from_json(text, allow_partial=True)
        return None

    def fields(self, key: str = "") -> frozenset[str]:
        """The field names of the first object in the list under a key, or of the list that the document is."""
        found = self.head
        if key:
            found = self.head.get(key) if isinstance(self.head, dict) else None
        first = found[0] if isinstance(found, list) and found else None
        return frozenset(first) if isinstance(first, dict) else frozenset()

    @property
    def keys(self) -> frozenset[str]:
        """The field names of the object that the document, or its first line, is."""
        return frozenset(self.head) if isinstance(self.head, dict) else frozenset()

    def place(self, where: str) -> str:
        return f"{self.name} {where}" if self.name else where


@dataclass(frozen=True)
class Source:
    """A path to import. Everything that formats are known by is read once, and only if it is asked for."""

    path: Path

    @cached_property
    def first_bytes(self) -> bytes:
        if not self.path.is_file():
            return b""
        with self.path.open("rb") as file:
            return file.read(16)

    @property
    def is_database(self) -> bool:
        return self.first_bytes.startswith(_SQLITE)

    @property
    def is_archive(self) -> bool:
        return self.first_bytes.startswith(_ZIP)

    @cached_property
    def has_notes(self) -> bool:
        """Whether an archive has files of Markdown."""
        if not self.is_archive:
            return False
        with archive_opened(self.path) as archive:
            return any(name.lower().endswith(_MARKDOWN) for name in archive.namelist())

    @cached_property
    def tables(self) -> dict[str, frozenset[str]]:
        """The tables of an SQLite database, and their columns."""
        if not self.is_database:
            return {}
        with readable_database(self.path) as connection:
            return sqlite.tables(connection)

    @cached_property
    def documents(self) -> Sequence[Document]:
        """The files that may hold records as text: the path itself, or those in an archive or a folder.

        A folder with Markdown files is one of notes, and its other files are none of these.
        """
        if self.is_archive:
            return self._members()
        if self.path.is_dir():
            names = sorted(entry.name for entry in self.path.iterdir() if entry.is_file())
            if any(name.lower().endswith(_MARKDOWN) for name in names):
                return []
            return [Document(name, self.path / name) for name in _likely(names) if not name.startswith(".")]
        return [Document("", self.path)] if self.path.is_file() and not self.is_database else []

    def _members(self) -> list[Document]:
        with archive_opened(self.path) as archive:
            by_name = {member.filename: member for member in archive.infolist()}
            members = [by_name[name] for name in _likely(by_name)]
            self._refuse_bomb(members)
            names = [member.filename for member in members if not member.is_dir()]
            return [Document(name, self.path, name, _start_of(archive, name)) for name in names]

    def _refuse_bomb(self, members: Iterable[zipfile.ZipInfo]) -> None:
        for member in members:
            if member.file_size > _MAX_UNPACKED and member.file_size > _MAX_RATIO * max(member.compress_size, 1):
                raise NotReadableError(
                    f"{self.path}: its file {member.filename[:100]!r} would unpack from {member.compress_size:,} to "
                    f"{member.file_size:,} bytes; an archive that expands that much is not read."
                )


def _start_of(archive: zipfile.ZipFile, name: str) -> str:
    with contextlib.suppress(*UNREADABLE), archive.open(name) as packed:
        return _decoded(unzipped(packed).read(_HEAD))
    return ""


def _likely(names: Iterable[str]) -> list[str]:
    """The files that are searched for records, in their order: first those that are named as such."""
    ordered = sorted(names, key=lambda name: not name.lower().endswith(_LIKELY))
    return ordered[:_MAX_DOCUMENTS]


@contextlib.contextmanager
def readable_database(path: Path) -> Iterator[sqlite3.Connection]:
    """An SQLite database, opened for reading alone. Raises NotReadableError if it cannot be."""
    try:
        with sqlite.opened(path) as connection:
            yield connection
    except sqlite3.Error as error:
        raise NotReadableError(f"{path}: is an SQLite database that cannot be read: {error}.") from None


class _Text:
    """The text of a JSON document, a window at a time."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._limit = limit
        self._decoder: codecs.IncrementalDecoder | None = None
        self._decode_json = json.JSONDecoder().raw_decode
        self.window = ""
        self.at = 0
        self.ended = False
        self.bytes_read = 0

    def more(self) -> None:
        """Read on, at least as much as is waiting to be understood."""
        rest = len(self.window) - self.at
        found = self._file.read(max(_CHUNK, rest))
        self.bytes_read += len(found)
        if self.bytes_read > self._limit:
            raise DamagedError(f"The file unpacks to more than {_MAX_RATIO} times its size, and is not read")
        self._decoder = self._decoder or codecs.getincrementaldecoder(encoding_of(found))("strict")
        self.ended = not found
        try:
            text = self._decoder.decode(found, self.ended)
        except UnicodeDecodeError as error:
            wrong = error.object[error.start]
            raise DamagedError(f"The file is not UTF-8: it holds the byte 0x{wrong:02x}; save it as UTF-8") from None
        self.window = self.window[self.at :] + text
        self.at = 0

    def peek(self) -> str:
        """The next character that is no white space, or an empty string at the end."""
        while True:
            while self.at < len(self.window):
                if (character := self.window[self.at]) not in " \t\r\n":
                    return character
                self.at += 1
            if self.ended:
                return ""
            self.more()

    def take(self, expected: str) -> str:
        """The next character, which must be one of the expected ones."""
        if not (character := self.peek()):
            raise DamagedError("The file ends in the middle: it is cut off")
        if character not in expected:
            raise DamagedError(f"The file is not JSON: {character!r} stands where one of {expected} is needed")
        self.at += 1
        return character

    def value(self) -> Any:
        """The next value, whole."""
        self.peek()
        while True:
            try:
                value, end = self._decode_json(self.window, self.at)
            except json.JSONDecodeError as error:
                # A value that is cut off by the end of the window fails near it, or as a string without an end.
                if not self.ended and (error.msg.startswith("Unterminated") or error.pos > len(self.window) - 16):
                    self._more_of_value()
                    continue
                if (self.ended and error.pos >= len(self.window) - 16) or error.msg.startswith("Unterminated"):
                    raise DamagedError("The file ends in the middle: it is cut off") from None
                raise DamagedError(f"The file is not JSON: {error.msg}") from None
            except (ValueError, RecursionError):
                raise DamagedError("The file holds a value that is nested too deeply, or a number too long") from None
            # A number may go on in the next window.
            if end == len(self.window) and not self.ended:
                self._more_of_value()
                continue
            self.at = end
            return value

    def _more_of_value(self) -> None:
        if len(self.window) - self.at > MAX_VALUE:
            raise DamagedError(f"The file holds a value of more than {MAX_VALUE // 1024 // 1024} MB")
        self.more()


@dataclass(slots=True)
class Position:
    """How far a reader has come: bytes read of all bytes."""

    total: int = 0
    before: int = 0
    text: _Text | None = None

    def fraction(self) -> float | None:
        read = self.before + (self.text.bytes_read if self.text else 0)
        return min(1.0, read / self.total) if self.total else None


# The records of one value of a document: the document, the key, the location, the value.
DocumentRecords = Callable[[Document, str, str, Any], Iterable[SourceRecord | RefusedRecord]]
Ending = Callable[[], Iterable[SourceRecord | RefusedRecord]]
# A value of a document: the key that it is under, its place in the list there (-1 for none), and the value.
Value = tuple[str, int, Any]


def values_of(document: Document, position: Position) -> Iterator[Value]:
    """The values of a JSON document in order, with bounded memory: lists under the first level are read item by item.

    Raises DamagedError where it cannot be read further.
    """
    try:
        yield from _values_of(document, position)
    except EOFError:
        raise DamagedError("The packed file ends in the middle: it is cut off") from None
    except UNREADABLE as error:
        raise DamagedError(f"The file is damaged or cannot be unpacked ({error})") from None


def _values_of(document: Document, position: Position) -> Iterator[Value]:
    limit = max(_MAX_UNPACKED, _MAX_RATIO * document.packed_size)
    with document.opened() as file:
        text = position.text = _Text(file, limit)
        if text.take("{[") == "[":
            for number, value in _items(text):
                yield "", number, value
            return
        if text.peek() == "}":
            return
        while True:
            key = text.value()
            if not isinstance(key, str):
                raise DamagedError("The file is not JSON: the name of a field must be text")
            text.take(":")
            if text.peek() == "[":
                text.take("[")
                for number, value in _items(text):
                    yield key, number, value
            else:
                yield key, -1, text.value()
            if text.take(",}") == "}":
                return


def _items(text: _Text) -> Iterator[tuple[int, Any]]:
    if text.peek() == "]":
        text.take("]")
        return
    number = 0
    while True:
        yield number, text.value()
        if text.take(",]") == "]":
            return
        number += 1


def document_reading(
    documents: Sequence[Document], options: Options, records: DocumentRecords, *, at_end: Ending | None = None
) -> Reading:
    """The reading of JSON documents: `records` gives the records of one value, `at_end` those after the last one."""
    position = Position()

    def found() -> Records:
        position.total = sum(document.size for document in documents)
        for document in documents:
            last = ""
            try:
                for key, number, value in values_of(document, position):
                    last = document.place(f"{key}[{number}]" if number >= 0 else key)
                    yield from read_guarded(last, partial(records, document, key, last, value))
            except DamagedError as error:
                place = f"after {last}" if last else document.place("at its beginning")
                if not options.keep_going:
                    raise ImportFailedError(damage_text(str(error), place)) from None
                yield RefusedRecord(place, f"{error}; everything after it is lost")
            position.before += document.size
            position.text = None
        if at_end:
            yield from read_guarded("the end", at_end)

    return Reading(found(), position.fraction)
