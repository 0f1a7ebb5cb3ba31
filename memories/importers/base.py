"""What an importer is: a stream of records with their places, from one path. Knows nothing of the database."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class ImportFailedError(Exception):
    """An import that cannot go on. The message says why, and what can be done."""


class NotReadableError(ImportFailedError):
    """A path that holds nothing that an importer reads."""


@dataclass(frozen=True, slots=True)
class Found:
    """A record and where it stands in its source. A change of `volatile` fields alone is no change of the record."""

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
    """How a source is to be read. `project` is for records that name none."""

    project: str = ""
    keep_going: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A source being read: its records in order, and how far it has come (0 to 1), where that can be known.

    Nothing is opened before the first record is asked for, and closing the records closes all.
    """

    records: Generator[Found | RefusedRecord, None, None]
    fraction: Callable[[], float | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Importer:
    """A format: what it is called, what it looks like, how to know it and how to read it."""

    name: str
    looks_like: str
    knows: Callable[[Path], bool]
    read: Callable[[Path, Options], Reading]
