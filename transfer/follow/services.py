"""Writes that concern followed sources: follow, stop, and decide conflicts. Who may do so is decided by the callers."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.db import OperationalError, connection, transaction
from django.db.models import F
from django.utils import timezone
from psycopg.errors import LockNotAvailable

from access.models import AuditEvent
from access.viewer import Viewer
from categories.services import VocabularyBusyError
from memories.models import FollowedSource, ImportBatch, Memory, SourceConflict
from memories.records import MAX_PROJECT, slug_name
from memories.services import memory_delete
from memories.supersession import lock_writable, store_change
from transfer.follow.seen import seen_forget
from transfer.follow.sync import DELETE, GONE, KEEP, memories_return, record_from_stored
from transfer.formats import documents
from transfer.formats.base import ImportFailedError, Reading, RefusedRecord, SourceRecord
from transfer.formats.importer import Importer
from transfer.formats.registry import IMPORTERS, importer_named
from transfer.run import ImportChoices, import_path
from transfer.state import ImportCounts
from transfer.write import IMPORT_LOCK
from web.errors import Refusal
from web.secrets import mask_note

# How long somebody who decides a conflict waits for an import.
_LONGEST_WAIT = "5s"


class NotFollowableError(ImportFailedError):
    """A source that cannot be followed, and why."""


class ConflictNotFoundError(Refusal):
    """There is no such conflict: somebody has decided it, or the record is as it was again."""

    status = 404
    code = "not_found"
    suggestion = "GET /api/follows lists those that are open."


def source_new(
    *,
    path: Path,
    importer: Importer,
    project: str,
    viewer: Viewer,
    read_as: Mapping[str, Any] | None = None,
    write_back: bool = False,
) -> FollowedSource:
    """A source to follow, not stored yet. `read_as` is what `check_choices` gives. Raises NotFollowableError."""
    if importer.follow is None:
        names = ", ".join(one.name for one in IMPORTERS if one.follow)
        how = (
            " Its Markdown files alone are with --format markdown." if importer.name == documents.IMPORTER.name else ""
        )
        raise NotFollowableError(f"{path}: {importer.name} is not followed, which these formats are: {names}.{how}")
    slug = slug_name(project)
    if len(slug) > MAX_PROJECT:
        raise NotFollowableError(f"The project's name has {len(slug)} characters; up to {MAX_PROJECT} are allowed.")
    path = path.resolve()
    if (shown := mask_note(str(path))) != str(path):
        raise NotFollowableError(f"{shown}: its name holds a secret, which is not stored here: rename it first.")
    if FollowedSource.objects.filter(path=str(path)).exists():
        raise NotFollowableError(f"{path}: is followed already.")
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('memories_followedsource', 'id'))")
        (source_id,) = cursor.fetchone()
    return FollowedSource(
        id=source_id,
        path=str(path),
        format=importer.name,
        project=slug,
        read_as=dict(read_as or {}),
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        by_command=viewer.door == AuditEvent.Door.COMMAND,
        written_revision=0 if write_back else None,
    )


@transaction.atomic
def source_stop(source: FollowedSource) -> None:
    """Follow a source no longer. Its memories stay as they are, and open conflicts are dropped."""
    # A reading that is under way finds that the source is gone, and writes nothing.
    source.conflicts.all().delete()
    ImportBatch.objects.filter(followed=source).update(followed=None)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM memories_followedsource WHERE id = %s", [source.pk])
    seen_forget(source.pk)


def source_gone_settle(source: FollowedSource, *, delete: bool) -> None:
    """Decide about many memories that are gone at once: delete them here too, or keep them, no longer followed."""
    answer = DELETE if delete else KEEP
    FollowedSource.objects.filter(pk=source.pk).update(gone_answer=answer, stamp="", version=F("version") + 1)


def conflict_settle(*, source_id: int, memory_id: int, take: bool, viewer: Viewer) -> None:
    """Decide a conflict: take the record of the source, or keep the memory as it is here. Both stay in its history.

    Raises ConflictNotFoundError, what an import raises, and VocabularyBusyError while another import goes on.
    """
    conflict = SourceConflict.objects.filter(source=source_id, memory_id=memory_id).select_related("source").first()
    if conflict is None:
        raise ConflictNotFoundError(f"#{memory_id} has no conflict with its source that is open.")
    if take and conflict.record is not None:
        _take(conflict, conflict.record, viewer)
    elif not take and conflict.record is not None and conflict.source.writes_back:
        _keep_here(conflict, conflict.record, viewer)
    elif take and Memory.objects.filter(pk=memory_id).exclude(state=Memory.State.DELETED).exists():
        memory_delete(memory_id=memory_id, viewer=viewer, reason=GONE)
    # If the source has changed again meanwhile, that is not decided yet.
    SourceConflict.objects.filter(pk=conflict.pk, noticed_at=conflict.noticed_at).delete()


@transaction.atomic
def _keep_here(conflict: SourceConflict, record: Mapping[str, Any], viewer: Viewer) -> None:
    """Have a memory written into its note as it is. The note's side, which that replaces, is in the history then."""
    before = lock_writable(conflict.memory_id, viewer)
    _take(conflict, record, viewer)
    taken = lock_writable(conflict.memory_id, viewer)
    after = replace(before, raw=taken.raw, record_hash=taken.record_hash, updated_at=timezone.now())
    store_change(taken, after, "update", viewer, "Kept as it is here.")


@dataclass(frozen=True, slots=True)
class _Taking:
    """Sees to it that a record replaces the memory of its conflict. Implements ImportObserver."""

    of: SourceConflict
    viewer: Viewer

    def gone_memories(self) -> list[int]:
        return []

    def memory_at(self, location: str) -> int | None:
        return self.of.memory_id

    def settled(self, location: str, memory_id: int) -> None:
        pass

    def conflicting(self, found: SourceRecord, memory_id: int, edit: str) -> None:
        pass

    def finish(self, batch: ImportBatch, tally: ImportCounts) -> bool:
        batch.followed_id = self.of.source_id
        if not tally.refused:
            tally.updated += memories_return([self.of.memory_id], self.viewer, batch.pk)
        return bool(tally.updated or tally.created)


@transaction.atomic
def _take(conflict: SourceConflict, record: Mapping[str, Any], viewer: Viewer) -> None:
    """Replace a memory by the record of its source. Raises ImportFailedError, also if the record is refused."""

    def records() -> Generator[SourceRecord | RefusedRecord, None, None]:
        yield record_from_stored(record)

    _imports_wait()
    source = conflict.source
    outcome = import_path(
        path=Path(source.path),
        importer=importer_named(source.format),
        viewer=viewer,
        choices=ImportChoices(source.project, overwrite=True),
        reading=Reading(records()),
        observer=_Taking(conflict, viewer),
    )
    if outcome.refusals:
        raise ImportFailedError(f"The record of the source cannot be taken: {outcome.refusals[0].reason}.")


def _imports_wait() -> None:
    """Exclude imports until the transaction ends. Raises VocabularyBusyError if one takes long: somebody waits here."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [_LONGEST_WAIT])
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [IMPORT_LOCK])
            cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise VocabularyBusyError from None
        raise
