"""A stream of records with their locations, as importers give it. Does not use the database."""

import logging
import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from transfer.formats.note_files import NoteFile

logger = logging.getLogger("mnemoscope.imports")


class ImportFailedError(Exception):
    """An import that cannot continue. The message gives the reason and what to do."""


class NotReadableError(ImportFailedError):
    """A path without anything that an importer reads."""


class ColumnsError(ImportFailedError):
    """Columns of a table that cannot be read as somebody wants."""


class UnreadableFileError(Exception):
    """A file that gives no record. The message is the reason; of a note, `file` is what an export gives back."""

    def __init__(self, reason: str, file: NoteFile | None = None) -> None:
        super().__init__(reason)
        self.file = file


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
    is_lenient: bool = False
    """Whether fields that are not valid are left out, with a note; the record is refused otherwise."""
    rule: str = ""
    """The rule that gives the record its type, if it names none."""
    file: NoteFile | None = None
    """The file of a note, so that an export gives it back."""
    properties: Mapping[str, Any] | None = None
    """The properties of the record that are no fields of a memory: their texts by name. A note has them in its data."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """Something in a source that is no record, or cannot be stored, and why."""

    location: str
    reason: str
    file: NoteFile | None = None


# The records of a source, in order. Closing it closes all files.
Records = Generator[SourceRecord | RefusedRecord, None, None]


@dataclass(frozen=True, slots=True)
class Options:
    """How to read a source. `project` is for records without a project.

    `columns` says which fields the columns of a table are, by their names; an empty field stores a column as it is.
    `values` are fields of records that give none. `types` are the types of notes by the rules of `type_rules`, and
    `dates` is what is first in dates that do not show it: the day, or the month.
    `is_preview` asks for the first records alone, soon: what takes long is read in part.
    """

    project: str = ""
    keep_going: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    is_preview: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    dates: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A source and its records in order; `fraction` is the share read so far (0 to 1), or None if unknown.

    Nothing is opened before the first record is requested. Closing the generator closes all files.
    """

    records: Records
    fraction: Callable[[], float | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the field that it is read as, or an empty text, and some of its cells.

    Of dates whose numbers may be read in two ways, `dates` is what comes first: the day, or the month. `question` is
    one that needs somebody to choose that.
    """

    name: str
    field: str
    examples: tuple[str, ...]
    dates: str = ""
    question: str = ""


def read_guarded(location: str, records: Callable[[], Iterable[SourceRecord | RefusedRecord]]) -> Records:
    """The records at a location. An error that nobody foresaw refuses what is there, and nothing else."""
    try:
        yield from records()
    except (ImportFailedError, MemoryError, sqlite3.Error):
        raise
    except UnreadableFileError as error:
        yield RefusedRecord(location, str(error), error.file)
    except OSError as error:
        yield RefusedRecord(location, f"cannot be read: {error.strerror or error}")
    except Exception as error:  # of any kind: it is of this record alone
        logger.exception("%s cannot be read.", location)
        yield RefusedRecord(location, fault_text(error))


def fault_text(error: Exception) -> str:
    """The reason for a record that cannot be read by a mistake of this program."""
    first = (str(error).strip().splitlines() or [""])[0][:200]
    return f"cannot be read, by a mistake of this program ({type(error).__name__}: {first}); please report it"


def damage_text(reason: str, place: str) -> str:
    """The message for a source that is damaged at a place."""
    return (
        f"{reason}, {place}. Nothing was imported. Get an undamaged copy, or import what comes before the damage with "
        "--keep-going."
    )
