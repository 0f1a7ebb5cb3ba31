"""The process that does imports, and undoes them, one after another."""

import contextlib
import logging
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from django.db import connections
from django.db.models import F
from django.utils import timezone

from access.viewer import Viewer, may_write_everything
from transfer.formats.base import ImportFailedError, NotReadableError, Options, Reading, Records
from transfer.formats.importer import Importer
from transfer.jobs import (
    AT_WORK,
    CANCELLED,
    WAITING,
    State,
    at_work,
    check_may_import,
    check_may_import_all,
    check_may_undo,
    importer_of,
    job_forget_file,
    job_project,
    job_text,
    viewer_of_starter,
)
from transfer.models import ImportJob
from transfer.read_again import RowsWriter
from transfer.run import ImportChoices, import_path
from transfer.state import ImportCounts
from transfer.undo import BatchUndoRefusedError, ChangedSinceError, batch_undo
from transfer.uploads import uploads_forget
from transfer.write import records_write
from web.errors import Refusal

logger = logging.getLogger("mnemoscope.imports")

_BEAT_SECONDS = 1.0


class _CancelledError(ImportFailedError):
    """An import that somebody cancelled."""


@dataclass(slots=True)
class _Progress:
    counts: ImportCounts = field(default_factory=ImportCounts)
    share: float | None = None
    is_cancelled: bool = False


def jobs_run(parent: int | None = None) -> int:
    """Do everything that is queued, the oldest first, until nothing is. Returns the number of jobs.

    If the parent process ends, the job is interrupted, and nothing of it is written.
    """
    done = 0
    uploads_forget()
    with at_work():
        while job := _claimed():
            with _beating(job, parent) as progress:
                _do(job, progress)
            done += 1
    return done


def _claimed() -> ImportJob | None:
    """The oldest queued job, marked as this process' own."""
    for job in ImportJob.objects.filter(state__in=WAITING).order_by("pk"):
        state = State.RUNNING if job.state == State.WAITING else State.UNDOING
        if ImportJob.objects.filter(pk=job.pk, state=job.state).update(state=state, beat_at=timezone.now()):
            job.refresh_from_db()
            return job
    return None


def _do(job: ImportJob, progress: _Progress) -> None:
    """Do one job and record its end."""
    is_undo = job.state == State.UNDOING
    values: dict[str, object]
    try:
        viewer = viewer_of_starter(job)
        # They may have fewer rights than when they started it.
        if job.is_upload or is_undo:
            check_may_import(viewer)
        else:
            check_may_import_all(viewer)
        if is_undo or job.reads_again:
            check_may_undo(job.batch_id, viewer)
        if is_undo:
            if job.is_forced:
                check_may_import_all(viewer)
            batch_undo(batch_id=job.batch_id or 0, viewer=viewer, force=job.is_forced)
            values = {"state": State.UNDONE, "error": ""}
        else:
            values = {"state": State.DONE, "batch_id": _import(job, viewer, progress), "error": "", "share": 1.0}
    except (ImportFailedError, BatchUndoRefusedError, Refusal) as error:
        values = {"state": State.DONE if is_undo else State.FAILED, "error": job_text(job, str(error))}
        values["is_changed_since"] = isinstance(error, ChangedSinceError)
    except KeyboardInterrupt:
        text = "It was interrupted; nothing was written. Try again."
        ImportJob.objects.filter(pk=job.pk).update(state=State.DONE if is_undo else State.FAILED, error=text)
        raise
    except Exception as error:  # whatever it is, the next job is done all the same
        logger.exception("The import %s failed.", job.pk)
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        # The database's words may name rows of others.
        reason = (
            job_text(job, first) if may_write_everything(viewer_of_starter(job)) else "the log of the server says why."
        )
        text = f"It failed, and nothing was written: {reason}"
        values = {"state": State.DONE if is_undo else State.FAILED, "error": text}
    ImportJob.objects.filter(pk=job.pk).update(read=progress.counts.read, **values)
    if values["state"] == State.DONE and not is_undo:
        job_forget_file(job)


def _import(job: ImportJob, viewer: Viewer, progress: _Progress) -> int | None:
    def show(counts: ImportCounts, share: float | None) -> None:
        progress.counts, progress.share = counts, share
        if progress.is_cancelled:
            raise _CancelledError(CANCELLED)

    path = Path(job.path)
    try:
        importer = importer_of(job)
    except NotReadableError as error:
        raise ImportFailedError(str(error)) from None
    again = RowsWriter(job) if job.reads_again else None
    outcome = import_path(
        path=path,
        importer=_watched(importer, progress),
        viewer=viewer,
        choices=ImportChoices(
            job_project(job.project, viewer),
            columns=job.columns,
            is_only_project=job.is_only_project,
            **job.read_as,
        ),
        progress=show,
        origin=job.name if job.is_upload else job.path,
        write=again.write if again else records_write,
    )
    progress.counts = outcome.tally
    return outcome.batch_id


def _watched(importer: Importer, progress: _Progress) -> Importer:
    """The importer, which ends at the next record when its import is cancelled: some records take seconds to read."""

    def read(path: Path, options: Options) -> Reading:
        reading = importer.read(path, options)

        def records() -> Records:
            with contextlib.closing(reading.records) as found:
                for record in found:
                    if progress.is_cancelled:
                        raise _CancelledError(CANCELLED)
                    yield record

        return Reading(records(), reading.fraction)

    return replace(importer, read=read)


@contextlib.contextmanager
def _beating(job: ImportJob, parent: int | None) -> Iterator[_Progress]:
    """Record the progress of a job, and that the queued ones are not lost, while the block runs."""
    progress, ended = _Progress(), threading.Event()

    def beat() -> None:
        try:
            while not ended.wait(_BEAT_SECONDS):
                now = timezone.now()
                own = ImportJob.objects.filter(pk=job.pk, state__in=AT_WORK)
                own.update(read=progress.counts.read, share=progress.share or F("share"), beat_at=now)
                ImportJob.objects.filter(state__in=WAITING).update(beat_at=now)
                progress.is_cancelled = ImportJob.objects.filter(pk=job.pk, state=State.CANCELLING).exists()
                if parent is not None and os.getppid() != parent:
                    os.kill(os.getpid(), signal.SIGINT)
                    return
        finally:
            connections.close_all()

    thread = threading.Thread(target=beat, name="import-progress", daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        ended.set()
        thread.join()
