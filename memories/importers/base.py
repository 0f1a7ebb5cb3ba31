"""The interface of importers: a stream of records with their locations. Does not use the database."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ImportFailedError(Exception):
    """An import that cannot continue. The message gives the reason and what to do."""


class NotReadableError(ImportFailedError):
    """A path without anything that an importer reads."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record and its location in the source. A change to `volatile` fields alone is no change of the record."""

    location: str
    data: dict[str, Any]
    volatile: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """Something in a source that is no record, or cannot be stored, and why."""

    location: str
    reason: str


@dataclass(frozen=True, slots=True)
class Options:
    """How to read a source. `project` is for records without a project."""

    project: str = ""
    keep_going: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A source and its records in order; `fraction` is the share read so far (0 to 1), or None if unknown.

    Nothing is opened before the first record is requested. Closing the generator closes all files.
    """

    records: Generator[SourceRecord | RefusedRecord, None, None]
    fraction: Callable[[], float | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Importer:
    """A format: its name, a description, a test whether a path has it, and a reader."""

    name: str
    looks_like: str
    knows: Callable[[Path], bool]
    read: Callable[[Path, Options], Reading]
