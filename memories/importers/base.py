"""The interface of importers: a stream of records with their locations. Does not use the database."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memories.importers.sources import Source


class ImportFailedError(Exception):
    """An import that cannot continue. The message gives the reason and what to do."""


class NotReadableError(ImportFailedError):
    """A path without anything that an importer reads."""


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record and its location in the source.

    `raw` is the record as another system stores it, if `data` was derived from one; it is stored with the memory.
    A change to `volatile` fields of the data, or to `volatile_raw` fields, alone is no change of the record. `notes`
    are reported: what was left out or cut.
    """

    location: str
    data: dict[str, Any]
    volatile: frozenset[str] = frozenset()
    raw: Mapping[str, Any] | None = None
    volatile_raw: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    stored: Mapping[str, Any] | None = None
    """For a line of an export by this program: what a copy of the memory needs besides its record."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """Something in a source that is no record, or cannot be stored, and why."""

    location: str
    reason: str


# The records of a source, in order. Closing it closes all files.
Records = Generator[SourceRecord | RefusedRecord, None, None]


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

    records: Records
    fraction: Callable[[], float | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Importer:
    """A format: its name, a description, a test whether a source has it, and a reader.

    The test raises NotReadableError, naming the file for what it is, if the source has the format in a version that
    cannot be read.
    """

    name: str
    looks_like: str
    knows: Callable[["Source"], bool]
    read: Callable[[Path, Options], Reading]


def damage_text(reason: str, place: str) -> str:
    """The message for a source that is damaged at a place."""
    return (
        f"{reason}, {place}. Nothing was imported. Get an undamaged copy, or import what comes before the damage with "
        "--keep-going."
    )
