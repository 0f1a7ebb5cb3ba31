"""The state of a running import: its options, matches and counts."""

from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from django.conf import settings

from access.viewer import Viewer
from categories.services import Vocabulary
from memories.bulk_copy import InsertBlock
from memories.models import ImportBatch, Project
from memories.resolve import projects_make
from memories.services import DEFAULT_PROJECT
from memories.terms import MemoryText
from memories.vocabulary_records import VocabularyRecord
from transfer.formats.base import SourceRecord
from transfer.record_hashes import RecordHashes

# The tables are analysed after this many new rows, and each time there are sixteen times as many.
ANALYZE_FROM = 5_000
# The number of notes stored with a batch.
MAX_NOTES = 1_000


class IndexSink(Protocol):
    """Writes new memories into a search index while the transaction of their import runs."""

    def is_open(self, expected: float) -> bool:
        """Whether the sink takes memories, for an import that expects this many more new ones."""

    def submit(self, ids: list[int], texts: list[MemoryText]) -> Future[list[str]]:
        """Analyse and index memories that are about to be stored. Returns their `tsvector` texts."""

    def confirm(self, block: InsertBlock) -> None:
        """Report that a block of submitted memories is stored."""

    def end(self) -> None:
        """Report that no more memories come."""

    def finish(self) -> None:
        """Wait until everything is on disk."""

    def close(self) -> None:
        """Release what the sink holds, finished or not."""


class ImportObserver(Protocol):
    """Follows what becomes of each record of an import, within its transaction."""

    def memory_at(self, location: str) -> int | None:
        """The memory of the record that was at this location before, for a record whose id is not known."""

    def settled(self, location: str, memory_id: int) -> None:
        """Report the memory of a record: new, changed, or as it was."""

    def conflicting(self, found: SourceRecord, memory_id: int, edit: str) -> None:
        """Report a changed record whose memory was edited here since, and by whom. The memory stays as it is."""

    def finish(self, batch: ImportBatch, tally: "ImportCounts") -> bool:
        """Report that all records are written; the transaction is about to be committed.

        Returns whether anything came of it. If not, no batch remains.
        """


# Opens the sink of an import batch. The exit stack is closed once the outcome of the transaction is known.
OpenSink = Callable[[int, ExitStack], IndexSink]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of an import. `project` is for records without a project, or for all if it is the only one."""

    project: str = ""
    overwrite: bool = False
    is_only_project: bool = False

    def project_of(self, named: str) -> str:
        """The project of a record that names one, or none."""
        if self.is_only_project and self.project:
            return self.project
        return named or self.project or DEFAULT_PROJECT


@dataclass(slots=True)
class ImportCounts:
    """Counts of records so far: `read` is the sum of the first four."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: int = 0
    valid: int = 0
    """The records that could be read, including unchanged and refused ones."""
    gone: int = 0
    """Memories of a source that is followed, and no longer has them."""
    conflicts: int = 0
    """Changed records whose memories were edited here, in a source that is followed."""
    vocabulary: int = 0
    made: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """The first `MAX_NOTES` of them: location and note."""
    copied: dict[str, int] = field(default_factory=dict)
    """Table -> the highest number of its rows, if this import makes an empty instance equal to another."""

    @property
    def read(self) -> int:
        return self.created + self.updated + self.unchanged + self.refused + self.conflicts


@dataclass(frozen=True, slots=True)
class KnownProject:
    id: int
    language: str


@dataclass(slots=True)
class ImportRun:
    """A running import: its options, matches and counts."""

    viewer: Viewer
    batch_id: int
    options: WriteOptions
    refuse: Callable[[str, str], None]
    now: datetime
    vocabulary: Vocabulary
    projects: dict[str, KnownProject] = field(default_factory=dict)
    sessions: dict[tuple[int, str], int] = field(default_factory=dict)
    session_dates: dict[tuple[int, str], datetime] = field(default_factory=dict)
    """The earliest date of a memory in each session so far."""
    changed_sessions: set[int | None] = field(default_factory=set)
    """The sessions of changed memories, dated again when all are stored."""
    record_hashes: RecordHashes = field(default_factory=RecordHashes)
    """Hash of (project, id) -> hash of the record, for records earlier in this import."""
    renamed: set[int] = field(default_factory=set)
    """Memories whose records have another id than before."""
    used: set[int] = field(default_factory=set)
    """The projects with memories of this import."""
    proven: dict[str, set[int]] = field(default_factory=dict)
    """Locked rows that memories of this import refer to, by table."""
    keeps_numbers: bool | None = None
    """Whether copies keep their numbers; None before the first copy."""
    last_number: int = 0
    """The highest number of copies in this import."""
    copies: "array[int]" = field(default_factory=lambda: array("q"))
    """The numbers of copies in their export, each followed by its memory here: 16 bytes for each copy."""
    is_copy: bool | None = None
    """Whether rows of an export are stored as they are, with their numbers; None before the first row."""
    renumbered: dict[str, int] = field(default_factory=dict)
    """Table -> what is added to the numbers of its rows."""
    analyze_at: int = ANALYZE_FROM
    observer: ImportObserver | None = None
    sink: IndexSink | None = None
    """Writes the search index while the import runs; None for a dry run."""
    met: int = 0
    """The number of items read from the source."""
    deferred: list[tuple[str, VocabularyRecord]] = field(default_factory=list)
    superseding: list[tuple[str, int, int, tuple[str, ...]]] = field(default_factory=list)
    """Location, memory, project, and the names of the memories that it supersedes."""
    tally: ImportCounts = field(default_factory=ImportCounts)

    @property
    def most_new(self) -> int | None:
        """The number of names that may be new in one memory; None for any number.

        Those who may not change the whole vocabulary may add no more to it than by other writes.
        """
        return None if self.viewer.curated_project_ids is None else settings.MAX_NEW_NAMES

    def note(self, location: str, text: str) -> None:
        """Report something about a record that is stored all the same."""
        if len(self.tally.notes) < MAX_NOTES:
            self.tally.notes.append((location, text))

    def refused(self, location: str, reason: str) -> None:
        self.tally.refused += 1
        self.refuse(location, reason)


def projects_ensure(run: ImportRun, slugs: Iterable[str]) -> None:
    missing = sorted(slug for slug in slugs if slug not in run.projects)
    if not missing:
        return
    if run.viewer.may_write(None):
        projects_make(missing, run.vocabulary)
    for slug, project_id, language in Project.objects.filter(slug__in=missing).values_list("slug", "id", "language"):
        run.projects[slug] = KnownProject(project_id, language)
