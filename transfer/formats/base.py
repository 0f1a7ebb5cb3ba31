"""A stream of records with their locations, as importers give it. Does not use the database."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any


class ImportFailedError(Exception):
    """An import that cannot continue. The message gives the reason and what to do."""


class NotReadableError(ImportFailedError):
    """A path without anything that an importer reads."""


class ColumnsError(ImportFailedError):
    """Columns of a table that cannot be read as somebody wants."""


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
    """How to read a source. `project` is for records without a project.

    `columns` says which fields the columns of a table are, by their names; an empty field stores a column as it is.
    `is_preview` asks for the first records alone, soon: what takes long is read in part.
    """

    project: str = ""
    keep_going: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    is_preview: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A source and its records in order; `fraction` is the share read so far (0 to 1), or None if unknown.

    Nothing is opened before the first record is requested. Closing the generator closes all files.
    """

    records: Records
    fraction: Callable[[], float | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the field that it is read as, or an empty text, and some of its cells."""

    name: str
    field: str
    examples: tuple[str, ...]


def damage_text(reason: str, place: str) -> str:
    """The message for a source that is damaged at a place."""
    return (
        f"{reason}, {place}. Nothing was imported. Get an undamaged copy, or import what comes before the damage with "
        "--keep-going."
    )
