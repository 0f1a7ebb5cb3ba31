"""An import as a whole: its batch, transaction and report."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from access.audit import audit
from access.viewer import Viewer
from memories.changes import changes_record_batch
from memories.importers.base import Importer, ImportFailedError, Options, RefusedRecord
from memories.importers.run import ImportCounts, OpenSink, WriteOptions
from memories.importers.write import records_write
from memories.models import ImportBatch
from memories.records import MAX_PROJECT, slug_name
from memories.storage import corpus_bump, outbox_stamp

# The number of refused records stored with a batch; all of them are reported to the caller.
MAX_REPORTED = 1_000
_GIN_INDEXES = (
    "SELECT indexrelid::regclass FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
    " WHERE indrelid = 'memories_memory'::regclass AND relam = (SELECT oid FROM pg_am WHERE amname = 'gin')"
)


class _DryRunOver(Exception):  # noqa: N818 - no error at all
    """Rolls back the transaction of a dry run."""


@dataclass(slots=True)
class Outcome:
    """The result of an import. `batch_id` is None after a dry run."""

    batch_id: int | None
    tally: ImportCounts
    seconds: float
    refusals: list[RefusedRecord] = field(default_factory=list)
    """The first `MAX_REPORTED` of them."""

    @property
    def rate(self) -> float:
        return self.tally.read / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class ImportChoices:
    """The options of an import."""

    project: str = ""
    dry_run: bool = False
    overwrite: bool = False
    keep_going: bool = False


def import_path(
    *,
    path: Path,
    importer: Importer,
    viewer: Viewer,
    choices: ImportChoices,
    refused: Callable[[RefusedRecord], None] = lambda refusal: None,
    progress: Callable[[ImportCounts, float | None], None] = lambda tally, fraction: None,
    open_sink: OpenSink | None = None,
) -> Outcome:
    """Import a path as one batch: completely or, after any error, not at all.

    `open_sink` opens the search index for writing during the import; without it the index follows after the commit.
    """
    started = time.perf_counter()
    refusals: list[RefusedRecord] = []

    def refuse(location: str, reason: str) -> None:
        refusal = RefusedRecord(location, reason)
        if len(refusals) < MAX_REPORTED:
            refusals.append(refusal)
        refused(refusal)

    project = slug_name(choices.project)
    if len(project) > MAX_PROJECT:
        raise ImportFailedError(f"The project's name has {len(project)} characters; up to {MAX_PROJECT} are allowed.")
    reading = importer.read(path, Options(project, choices.keep_going))
    # Committed separately, so that a running or failed import is visible.
    batch = None if choices.dry_run else ImportBatch.objects.create(origin=str(path), format=importer.name)
    tally = ImportCounts()
    try:
        # The sink outlasts the transaction, until its outcome is known.
        with contextlib.closing(reading.records), contextlib.ExitStack() as stack, transaction.atomic():
            own = batch or ImportBatch.objects.create(origin=str(path), format=importer.name)
            tally = records_write(
                reading=reading,
                viewer=viewer,
                batch_id=own.pk,
                options=WriteOptions(project, choices.overwrite),
                refuse=refuse,
                progress=progress,
                sink=open_sink(own.pk, stack) if open_sink and not choices.dry_run else None,
            )
            _refuse_nothing(tally, path, refusals)
            if choices.dry_run:
                raise _DryRunOver
            _killed_close(own)
            _close(own, tally, refusals, viewer)
            outbox_stamp()
            if tally.created or tally.updated or tally.made:
                corpus_bump()
    except _DryRunOver:
        return Outcome(None, tally, time.perf_counter() - started, refusals)
    except BaseException as error:
        if batch:
            _fail(batch, error, refusals)
        raise
    if tally.created or tally.updated:
        _settle()
    return Outcome(own.pk, tally, time.perf_counter() - started, refusals)


def _refuse_nothing(tally: ImportCounts, path: Path, refusals: list[RefusedRecord]) -> None:
    if not tally.valid and not tally.vocabulary:
        if not tally.read:
            raise ImportFailedError(f"{path}: holds no records.")
        first = refusals[0]
        raise ImportFailedError(
            f"{path}: none of its {tally.read:,} records could be read; the first, {first.location}: {first.reason}."
        )


def _killed_close(own: ImportBatch) -> None:
    """Mark killed batches as failed. A running batch was killed, or waits for the lock and will update itself."""
    ImportBatch.objects.filter(state=ImportBatch.State.RUNNING, pk__lt=own.pk).update(
        state=ImportBatch.State.FAILED,
        finished_at=timezone.now(),
        report={"error": "It was killed before it finished; nothing was written."},
    )


def _close(batch: ImportBatch, tally: ImportCounts, refusals: list[RefusedRecord], viewer: Viewer) -> None:
    batch.state = ImportBatch.State.DONE
    batch.finished_at = timezone.now()
    batch.read = tally.read
    batch.created = tally.created
    batch.updated = tally.updated
    batch.unchanged = tally.unchanged
    batch.refused = tally.refused
    batch.report = {
        "refused": [{"location": one.location, "reason": one.reason} for one in refusals],
        "notes": [{"location": location, "note": note} for location, note in tally.notes],
        "vocabulary_records": tally.vocabulary,
        "vocabulary_made": tally.made,
    }
    batch.save()
    event = audit(
        viewer,
        "import",
        batch,
        after={
            "origin": batch.origin,
            "format": batch.format,
            "created": tally.created,
            "updated": tally.updated,
            "refused": tally.refused,
            "vocabulary": tally.made,
        },
        batch_id=batch.pk,
    )
    if tally.created:
        changes_record_batch(event, batch.pk)


def _fail(batch: ImportBatch, error: BaseException, refusals: list[RefusedRecord]) -> None:
    """Mark a batch as failed. If the database is gone, it stays `running` until the next import."""
    if isinstance(error, KeyboardInterrupt):
        reason = "It was interrupted."
    else:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    with contextlib.suppress(DatabaseError, psycopg.Error):
        ImportBatch.objects.filter(pk=batch.pk).update(
            state=ImportBatch.State.FAILED,
            finished_at=timezone.now(),
            report={
                "error": reason,
                "refused": [{"location": one.location, "reason": one.reason} for one in refusals],
            },
        )


def _settle() -> None:
    """Merge the pending entries of the GIN indexes."""
    # Only the owner of the tables may do this; for others Postgres does it in its own time.
    with contextlib.suppress(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL maintenance_work_mem = '128MB'")
        cursor.execute(_GIN_INDEXES)
        for (index,) in cursor.fetchall():
            cursor.execute("SELECT gin_clean_pending_list(%s::regclass)", [index])
