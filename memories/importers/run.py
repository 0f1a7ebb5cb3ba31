"""The state of a running import: its options, matches and counts."""

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from access.viewer import Viewer
from categories.services import Vocabulary
from memories.bulk_copy import InsertBlock
from memories.models import Project
from memories.resolve import projects_make
from memories.terms import MemoryText
from memories.vocabulary_records import VocabularyRecord

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


# Opens the sink of an import batch. The exit stack is closed once the outcome of the transaction is known.
OpenSink = Callable[[int, ExitStack], IndexSink]


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of an import. `project` is for records without a project."""

    project: str = ""
    overwrite: bool = False


@dataclass(slots=True)
class ImportCounts:
    """Counts of records so far: `read` is the sum of the first four."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    refused: int = 0
    valid: int = 0
    """The records that could be read, including unchanged and refused ones."""
    vocabulary: int = 0
    made: dict[str, int] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)
    """The first `MAX_NOTES` of them: location and note."""

    @property
    def read(self) -> int:
        return self.created + self.updated + self.unchanged + self.refused


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
    record_hashes: dict[int, int] = field(default_factory=dict)
    """Hash of (project, id) -> hash of the record, for records earlier in this import."""
    used: set[int] = field(default_factory=set)
    """The projects with memories of this import."""
    proven: dict[str, set[int]] = field(default_factory=dict)
    """Locked rows that memories of this import refer to, by table."""
    keeps_numbers: bool | None = None
    """Whether copies keep their numbers; None before the first copy."""
    numbers: set[int] = field(default_factory=set)
    """The numbers of copies in this import."""
    analyze_at: int = ANALYZE_FROM
    sink: IndexSink | None = None
    """Writes the search index while the import runs; None for a dry run."""
    met: int = 0
    """The number of items read from the source."""
    deferred: list[tuple[str, VocabularyRecord]] = field(default_factory=list)
    superseding: list[tuple[str, int, int, tuple[str, ...]]] = field(default_factory=list)
    """Location, memory, project, and the names of the memories that it supersedes."""
    tally: ImportCounts = field(default_factory=ImportCounts)

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
