"""An import as a whole: its batch, transaction and report."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
from django.conf import settings
from django.db import DatabaseError, OperationalError, connection, transaction
from django.utils import timezone
from psycopg.errors import DeadlockDetected

from access.viewer import Viewer, audit
from memories.changes import changes_record_batch
from memories.models import ImportBatch
from memories.records import MAX_PROJECT, slug_name
from memories.storage import corpus_bump, outbox_stamp
from text.formatting import plural
from transfer.formats.base import ImportFailedError, Options, Reading, RefusedRecord
from transfer.formats.choices import with_values
from transfer.formats.importer import Importer
from transfer.renames import earlier_notes
from transfer.state import ImportCounts, ImportObserver, WriteOptions
from transfer.write import records_write
from web.secrets import mask_note

# The number of refused records stored with a batch; all of them are reported to the caller.
MAX_REPORTED = 1_000
# A deadlock is noticed after a second, and the other transaction goes on at once.
_ATTEMPTS = 3
_GIN_INDEXES = (
    "SELECT indexrelid::regclass FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid"
    " WHERE indrelid = 'memories_memory'::regclass AND relam = (SELECT oid FROM pg_am WHERE amname = 'gin')"
)


class _DryRunOver(Exception):  # noqa: N818 - no error at all
    """Rolls back the transaction of a dry run."""


@dataclass(slots=True)
class Outcome:
    """The result of an import. `batch_id` is None after a dry run, and if a followed source brought nothing."""

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
    columns: Mapping[str, str] = field(default_factory=dict)
    is_only_project: bool = False
    values: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    dates: str = ""


def import_path(
    *,
    path: Path,
    importer: Importer,
    viewer: Viewer,
    choices: ImportChoices,
    refused: Callable[[RefusedRecord], None] = lambda refusal: None,
    progress: Callable[[ImportCounts, float | None], None] = lambda tally, fraction: None,
    origin: str = "",
    reading: Reading | None = None,
    observer: ImportObserver | None = None,
    write: Callable[..., ImportCounts] = records_write,
) -> Outcome:
    """Import a path as one batch: completely or, after any error, not at all.

    `origin` is how the batch names its source, if not by the path. `reading` is what is read of the path, if not all;
    with an `observer` it may hold nothing that can be imported. `write` takes the arguments of `records_write`.

    An import that loses a deadlock is done again: new names stay locked until its end, and another transaction with the
    same names in another order waits for it while it waits for that one, until Postgres ends one of them. A given
    `reading` cannot be read again: its caller decides.
    """
    started = time.perf_counter()
    project = slug_name(choices.project)
    if len(project) > MAX_PROJECT:
        raise ImportFailedError(f"The project's name has {len(project)} characters; up to {MAX_PROJECT} are allowed.")
    if mask_note(project) != project:
        raise ImportFailedError("The project's name is a secret, such as a key: choose another one.")
    options = Options(
        project, choices.keep_going, choices.columns, values=choices.values, types=choices.types, dates=choices.dates
    )
    attempts = 1 if reading else _ATTEMPTS
    reading = reading or _read_source(importer, path, options)
    # Committed separately, so that a running or failed import is visible.
    origin = origin or str(path)
    batch = None if choices.dry_run else ImportBatch.objects.create(origin=mask_note(origin), format=importer.name)
    attempt = _Attempt(path, importer, viewer, choices, project, progress, origin, batch, refused, observer, write)
    try:
        for number in range(1, attempts + 1):
            try:
                batch_id = attempt.write(reading)
            except (OperationalError, DeadlockDetected) as error:
                if not any(isinstance(one, DeadlockDetected) for one in (error, error.__cause__)):
                    raise
                if number == attempts:
                    raise ImportFailedError(_DEADLOCKS.format(plural(attempts, "time"))) from error
                reading = _read_source(importer, path, options)
                continue
            break
    except BaseException as error:
        if batch and observer:
            # A followed source says itself why it cannot be read, and is tried again every few seconds.
            with contextlib.suppress(DatabaseError, psycopg.Error):
                batch.delete()
        elif batch:
            _fail(batch, path, error, attempt.refusals)
        raise
    tally = attempt.tally
    if batch_id is not None and (tally.created or tally.updated):
        _settle()
    return Outcome(batch_id, tally, time.perf_counter() - started, attempt.refusals)


def _read_source(importer: Importer, path: Path, options: Options) -> Reading:
    reading = importer.read(path, options)
    return Reading(with_values(reading.records, options.values), reading.fraction) if options.values else reading


_DEADLOCKS = "Others were writing the same names, and it gave way to them {}. Nothing was imported. Try again."


@dataclass(slots=True)
class _Attempt:
    """An import to attempt, with the counts and refusals of the last attempt."""

    path: Path
    importer: Importer
    viewer: Viewer
    choices: ImportChoices
    project: str
    progress: Callable[[ImportCounts, float | None], None]
    origin: str
    batch: ImportBatch | None
    """None for a dry run."""
    refused: Callable[[RefusedRecord], None]
    observer: ImportObserver | None
    writes: Callable[..., ImportCounts]
    reported: int = 0
    """The number of refusals that the caller knows of."""
    tally: ImportCounts = field(default_factory=ImportCounts)
    refusals: list[RefusedRecord] = field(default_factory=list)

    def _gone(self) -> Callable[[], list[int]] | None:
        """Finds the notes of earlier imports of the same folder or archive that are not at their places any more."""
        places = () if self.observer else self.importer.places(self.path)
        return partial(earlier_notes, self.origin, places, self.viewer) if places else None

    def write(self, reading: Reading) -> int | None:
        """Read and write everything in one transaction. Returns the id of the batch, if one remains."""
        self.tally, self.refusals = ImportCounts(), []
        count = 0

        def refuse(location: str, reason: str) -> None:
            nonlocal count
            refusal = RefusedRecord(location, reason)
            if count < MAX_REPORTED:
                self.refusals.append(refusal)
            count += 1
            # Each once, though its record is read again.
            if count > self.reported:
                self.reported = count
                self.refused(refusal)

        try:
            with contextlib.closing(reading.records), transaction.atomic():
                own = self.batch or ImportBatch.objects.create(origin=self.origin, format=self.importer.name)
                self.tally = self.writes(
                    reading=reading,
                    viewer=self.viewer,
                    batch_id=own.pk,
                    options=WriteOptions(
                        self.project, self.choices.overwrite, self.choices.is_only_project, is_own=_is_own(self.path)
                    ),
                    refuse=refuse,
                    progress=self.progress,
                    observer=self.observer,
                    gone=self._gone(),
                )
                if self.observer is None:
                    _refuse_nothing(self.tally, self.path, self.refusals)
                if self.batch is None:
                    raise _DryRunOver
                _killed_close(own)
                if self.observer and not self.observer.finish(own, self.tally):
                    own.delete()
                    return None
                _close(own, self.tally, self.refusals, self.viewer)
                outbox_stamp()
                if self.tally.created or self.tally.updated or self.tally.made or self.tally.gone:
                    corpus_bump()
        except _DryRunOver:
            return None
        return own.pk


def _is_own(path: Path) -> bool:
    """Whether a file is part of this program, as the sample is."""
    return path.resolve().is_relative_to(settings.BASE_DIR / "memories" / "sample")


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
        "refused": [{"location": mask_note(one.location), "reason": one.reason} for one in refusals],
        "notes": [{"location": mask_note(location), "note": note} for location, note in tally.notes],
        "vocabulary_records": tally.vocabulary,
        "vocabulary_made": tally.made,
        **{name: count for name, count in (("gone", tally.gone), ("conflicts", tally.conflicts)) if count},
        **({"copied": tally.copied} if tally.copied else {}),
        **({"gone_notes": tally.gone_notes} if tally.gone_notes else {}),
        **({"files": tally.files} if tally.files else {}),
        "arrived": {
            project_id: [one.count, one.first.isoformat(), one.last.isoformat()]
            for project_id, one in tally.arrived.items()
        },
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


def _fail(batch: ImportBatch, path: Path, error: BaseException, refusals: list[RefusedRecord]) -> None:
    """Mark a batch as failed. If the database is gone, it stays `running` until the next import."""
    if isinstance(error, KeyboardInterrupt):
        reason = "It was interrupted."
    else:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    # An upload is known by its name, not by where it is stored.
    reason = mask_note(reason.replace(str(path), batch.origin))
    with contextlib.suppress(DatabaseError, psycopg.Error):
        ImportBatch.objects.filter(pk=batch.pk).update(
            state=ImportBatch.State.FAILED,
            finished_at=timezone.now(),
            report={
                "error": reason,
                "refused": [{"location": mask_note(one.location), "reason": one.reason} for one in refusals],
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
