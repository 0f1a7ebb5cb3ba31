"""The state of a running import: its options, matches and counts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

from django.conf import settings

from access.viewer import Viewer
from categories.services import Vocabulary
from memories.models import ImportBatch, Memory, Project
from memories.records import slug_name
from memories.resolve import projects_make
from memories.services import DEFAULT_PROJECT
from memories.vocabulary_records import VocabularyRecord
from transfer.copies import CopyNumbers
from transfer.formats.base import SourceRecord
from transfer.formats.note_files import NoteFile
from transfer.renames import Renames, gone_reason

# The number of notes stored with a batch.
MAX_NOTES = 1_000
# The characters of the files stored with a batch.
MAX_FILES = 1_000_000


class ImportObserver(Protocol):
    """Follows what becomes of each record of an import, within its transaction."""

    def gone_memories(self) -> list[int]:
        """The memories of records that are not in the source any more, as far as is known before it is read."""

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


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of an import. `project` is for records without a project, or for all if it is the only one."""

    project: str = ""
    overwrite: bool = False
    is_only_project: bool = False
    is_own: bool = False
    """Whether the records are part of this program."""

    def project_of(self, named: str) -> str:
        """The project of a record that names one, or none."""
        if self.is_only_project and self.project:
            return self.project
        return named or self.project or DEFAULT_PROJECT


@dataclass(slots=True)
class Arrival:
    """The memories that an import brought into a project, and their first and last date."""

    count: int
    first: datetime
    last: datetime


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
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Files of notes that became no memories, by vault and path, as far as there is room."""
    gone_notes: list[dict[str, object]] = field(default_factory=list)
    """Notes of earlier imports of the same source that it has no longer."""
    copied: dict[str, int] = field(default_factory=dict)
    """Table -> the highest number of its rows, if this import makes an empty instance equal to another."""
    arrived: dict[int, Arrival] = field(default_factory=dict)
    """The new memories by project, whatever their own dates are."""

    @property
    def read(self) -> int:
        return self.created + self.updated + self.unchanged + self.refused + self.conflicts

    def count_new(self, dates: Iterable[tuple[int, datetime]]) -> None:
        """Count new memories by their projects and dates."""
        for project_id, at in dates:
            self.created += 1
            if (known := self.arrived.get(project_id)) is None:
                self.arrived[project_id] = Arrival(1, at, at)
            else:
                known.count += 1
                known.first, known.last = min(known.first, at), max(known.last, at)


@dataclass(frozen=True, slots=True)
class KnownProject:
    id: int
    language: str


@dataclass
class ImportRun:
    """A running import: its options, what it knows of names, and its counts."""

    viewer: Viewer
    batch_id: int
    options: WriteOptions
    refuse: Callable[[str, str], None]
    now: datetime
    vocabulary: Vocabulary
    observer: ImportObserver | None = None
    gone: Callable[[], Iterable[int]] | None = None
    """Gives the memories of notes that the source had before and does not have any more."""
    renames: Renames = field(init=False)
    projects: dict[str, KnownProject] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    """Memories that were archived because their notes were gone, which are there again."""
    is_elsewhere: dict[int, int] = field(default_factory=dict)
    """Memories of records that were moved to another project, and that."""
    stays_there: set[int] = field(default_factory=set)
    """Those of them that this import leaves there: their folder has another name now."""
    used: set[int] = field(default_factory=set)
    """The projects with memories of this import."""
    numbers: CopyNumbers = field(default_factory=CopyNumbers)
    is_copy: bool | None = None
    """Whether rows of an export are stored as they are, with their numbers; None before the first row."""
    renumbered: dict[str, int] = field(default_factory=dict)
    """Table -> what is added to the numbers of its rows."""
    deferred: list[tuple[str, VocabularyRecord]] = field(default_factory=list)
    tally: ImportCounts = field(default_factory=ImportCounts)
    room: int = MAX_FILES
    """The characters of files that can still be stored with the batch."""

    def __post_init__(self) -> None:
        self.renames = Renames(self.observer.gone_memories if self.observer else self.gone or list)

    @property
    def most_new(self) -> int | None:
        """The number of names that may be new in one memory; None for any number.

        Those who may not change the whole vocabulary may add no more to it than by other writes.
        """
        return None if self.viewer.curated_project_ids is None else settings.MAX_NEW_NAMES

    @cached_property
    def origin(self) -> str:
        """The name of its source."""
        return ImportBatch.objects.values_list("origin", flat=True).get(pk=self.batch_id)

    @cached_property
    def earlier_batches(self) -> list[int]:
        """The earlier imports of the same source."""
        done = ImportBatch.objects.filter(origin=self.origin, state=ImportBatch.State.DONE).exclude(pk=self.batch_id)
        return list(done.values_list("pk", flat=True))

    @cached_property
    def archived_as_gone(self) -> frozenset[int]:
        """The memories of the source that were archived because their notes were gone."""
        archived = Memory.objects.filter(state=Memory.State.ARCHIVED, state_reason=gone_reason(self.origin))
        return frozenset(archived.filter(batch_id__in=self.earlier_batches).values_list("pk", flat=True))

    def note(self, location: str, text: str) -> None:
        """Report something about a record that is stored all the same."""
        if len(self.tally.notes) < MAX_NOTES:
            self.tally.notes.append((location, text))

    def keep_file(self, file: NoteFile | None, project: str = "") -> None:
        """Remember the file of a note that becomes no memory, so that an export has it."""
        self.room -= len(file.whole) if file else 0
        if file and self.room > 0 and len(self.tally.files) < MAX_NOTES:
            self.tally.files[f"{file.vault}/{file.path}"] = file.as_json() | {
                "project": self.options.project_of(slug_name(project or file.project))
            }

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
