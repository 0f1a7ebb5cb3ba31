"""Imports that run in the background: uploads in parts, jobs, and the process that does them one after another.

Those who may write and curate everything import from this machine, and make projects. Others import uploads into the
projects that they may write to, by the rules of their other writes, and see their own imports.
"""

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import connections, transaction
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from access.keys import live_keys
from access.models import AuditEvent
from access.viewer import Viewer, command_viewer, may_write_everything, viewer_of_key, viewer_of_user
from curation.import_undo import BatchUndoRefusedError, ChangedSinceError, batch_undo
from home.models import ImportJob
from memories.importers.base import Importer, ImportFailedError, NotReadableError, Options, Reading, Records
from memories.importers.batches import ImportChoices, import_path
from memories.importers.csv_table import columns_check
from memories.importers.discovery import places
from memories.importers.registry import BUNDLE, importer_for
from memories.importers.run import ImportCounts
from memories.models import FollowedSource, ImportBatch, Memory, Project
from memories.records import MAX_PROJECT, slug_name
from search.engines.index.import_sink import ImportSink
from text.formatting import legible
from web.errors import Refusal
from web.handler import MAX_FILE
from web.processes import start_once

logger = logging.getLogger("mnemoscope.imports")

State = ImportJob.State

# The sample memories of an invented team.
SAMPLE = settings.BASE_DIR / "memories" / "sample" / "team.jsonl"
MAX_UPLOAD = MAX_FILE
# A part of an upload is a request, whose body is held in memory.
MAX_PART = 8 * 1024**2
# Space that an upload must leave on the disk.
_SPARE = 1024**3
_KEPT = timedelta(days=2)
_BEAT_SECONDS = 1.0
# A job that was not renewed for this long was interrupted.
_LOST = timedelta(seconds=60)
_LOCK = "imports.lock"
# In bytes; file systems allow 255.
_NAME_LENGTH = 240
_WAITING = (State.WAITING, State.UNDO_WAITING)
_AT_WORK = (State.RUNNING, State.CANCELLING, State.UNDOING)
MAX_FILES = 5_000
_LISTED = 20
# The uploads of somebody who may not write everything, together.
_HOARD = 4 * 1024**3
_DEPTH = 20
CANCELLED = "It was cancelled; nothing was written."


class ImportForbiddenError(Refusal):
    """A viewer who may not import this."""

    status = 403
    code = "forbidden"
    message = "Importing needs the rights to read and write a project."
    suggestion = "Ask an administrator of this site or of a project."


class FullRightsError(ImportForbiddenError):
    """A viewer who may not import from this machine."""

    message = "Importing from this machine needs the rights to read, write and curate every project."
    suggestion = "Upload a file instead, or ask an administrator of this site."


class JobNotFoundError(Refusal):
    """An import that does not exist."""

    status = 404
    code = "not_found"
    suggestion = "GET /api/imports lists them."


class JobStateError(Refusal):
    """An import in another state than the request needs."""

    status = 409
    code = "conflict"


class UploadInvalidError(Refusal):
    """An upload, or a way to read one, that is not possible."""


class _CancelledError(ImportFailedError):
    """An import that somebody cancelled."""


@dataclass(frozen=True, slots=True)
class FileToSend:
    """A file of an upload that is announced: its path in the upload, its size and when it was changed."""

    name: str
    size: int
    modified: datetime | None = None


class UploadRefusedError(Refusal):
    """An upload that is too large, or for which there is no space."""

    status = 413
    code = "too_large"


def import_projects(viewer: Viewer) -> frozenset[int] | None:
    """The projects that a viewer may import into: those that they see and write; None for every one, and new ones."""
    if "write" not in viewer.scopes:
        return frozenset()
    if viewer.writable_project_ids is None or viewer.project_ids is None:
        return viewer.project_ids if viewer.writable_project_ids is None else viewer.writable_project_ids
    return viewer.project_ids & viewer.writable_project_ids


def may_import(viewer: Viewer) -> bool:
    return import_projects(viewer) != frozenset()


def check_may_import(viewer: Viewer) -> None:
    if not may_import(viewer):
        raise ImportForbiddenError


def check_may_import_all(viewer: Viewer) -> None:
    if not may_write_everything(viewer):
        raise FullRightsError


def jobs_of(viewer: Viewer) -> QuerySet[ImportJob]:
    """The imports that a viewer may see: all of them, or their own. Raises ImportForbiddenError."""
    check_may_import(viewer)
    if may_write_everything(viewer):
        return ImportJob.objects.all()
    owner: dict[str, Any] = {"user_id": viewer.user_id, "api_key_id": viewer.api_key_id}
    return ImportJob.objects.filter(**owner) if any(owner.values()) else ImportJob.objects.none()


# --- jobs --------------------------------------------------------------------------------------------------------


def job_named(viewer: Viewer, job_id: int) -> ImportJob:
    """A job that the viewer may see. Raises ImportForbiddenError or JobNotFoundError."""
    jobs = jobs_of(viewer)
    jobs_recover()
    job = jobs.select_related("batch").filter(pk=min(job_id, 2**63 - 1)).first()
    if job is None:
        raise JobNotFoundError(f"There is no import {job_id}.")
    return job


def jobs_recover() -> None:
    """Mark interrupted jobs as failed: their transaction was rolled back."""
    lost = ImportJob.objects.filter(beat_at__lt=timezone.now() - _LOST)
    waits, runs = [State.WAITING, State.RUNNING], [State.UNDO_WAITING, State.UNDOING]
    # A machine that wakes up has old beats and live processes.
    if not lost.filter(state__in=[*waits, *runs, State.CANCELLING]).exists() or _is_at_work():
        return
    lost.filter(state=State.CANCELLING).update(state=State.FAILED, error=CANCELLED)
    text = "It was interrupted; nothing was written. Try again."
    lost.filter(state__in=waits).update(state=State.FAILED, error=text)
    undo = "The undo was interrupted; nothing was undone. Try again."
    lost.filter(state__in=runs).update(state=State.DONE, error=undo)


@contextlib.contextmanager
def at_work() -> Iterator[None]:
    """Hold the lock by which others see that a process of this machine does jobs."""
    with (Path(settings.HOME) / _LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def _is_at_work() -> bool:
    """Whether a process of this machine does jobs. One that was killed holds no lock."""
    with (Path(settings.HOME) / _LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def check_places(paths: Collection[Path], known: Collection[Path]) -> None:
    """Raise JobStateError if a path is not among the known places of this machine."""
    if strange := [path for path in paths if path not in known]:
        raise JobStateError(f"{legible(str(strange[0]), 200)} is not among the known places of this machine.")


def jobs_import(*, paths: Collection[Path], project: str, viewer: Viewer) -> list[ImportJob]:
    """Queue imports of stores of other systems on this machine, or of the sample; no other path is read.

    Raises JobStateError for another path.
    """
    check_may_import_all(viewer)
    check_places(paths, [*places(Path.home(), os.environ), SAMPLE])
    jobs = [
        _job(viewer, name="The sample" if path == SAMPLE else str(path), path=str(path), state=State.WAITING)
        for path in paths
    ]
    for job in jobs:
        job.project = _project(project, viewer)
        job.save()
    _start()
    return jobs


def job_import(*, job: ImportJob, project: str, viewer: Viewer, is_only_project: bool = False) -> ImportJob:
    """Queue the import of an upload that is complete, or of a job that failed, with the rights of its owner.

    Raises JobStateError or UploadInvalidError.
    """
    if job.state not in (State.READY, State.FAILED) or (job.is_upload and not Path(job.path).exists()):
        raise JobStateError(f"{job.name} is {job.get_state_display()}: it cannot be imported now.")
    project = _project(project, viewer)
    if is_only_project and not project:
        raise UploadInvalidError("project: name the one that everything goes into.")
    return _queued(job, State.WAITING, project=project, is_only_project=is_only_project)


def job_cancel(*, job: ImportJob) -> ImportJob:
    """Cancel an import or an undo that waits, or an import that runs: it writes nothing. Raises JobStateError."""
    state = State(job.state)
    ends: dict[State, dict[str, str]] = {
        State.WAITING: {"state": State.FAILED, "error": CANCELLED},
        State.RUNNING: {"state": State.CANCELLING},
        State.UNDO_WAITING: {"state": State.DONE},
    }
    if state not in ends:
        raise JobStateError(f"{job.name} is {state.label.lower()}: there is nothing to cancel.")
    # Only in the state that was looked at: it may have begun, or ended, since.
    if not ImportJob.objects.filter(pk=job.pk, state=state).update(**ends[state]):
        raise JobStateError(f"{job.name} has just gone on. Look again.")
    job.refresh_from_db()
    return job


def job_read_as(*, job: ImportJob, columns: Mapping[str, str]) -> ImportJob:
    """Choose the fields of the columns of an upload, by their names. Raises JobStateError or UploadInvalidError."""
    if job.state not in (State.READY, State.FAILED) or not job.is_upload:
        raise JobStateError(
            f"{job.name} is {job.get_state_display()}: only an upload that is ready has columns to choose."
        )
    try:
        known = importer_of(job).columns(Path(job.path), Options(columns=columns))
        columns_check(known, columns)
    except ImportFailedError as error:
        raise UploadInvalidError(job_text(job, str(error))) from None
    job.columns = dict(columns)
    job.save(update_fields=["columns"])
    return job


def importer_of(job: ImportJob) -> Importer:
    """The importer of the source of a job. Raises NotReadableError."""
    path = Path(job.path)
    return BUNDLE if job.is_upload and path.is_dir() else importer_for(path)


def job_undo(*, job: ImportJob, viewer: Viewer, force: bool = False) -> ImportJob:
    """Queue the undo of a finished import, which becomes the viewer's. With `force`, later changes are lost.

    Raises JobStateError, ImportForbiddenError, and with `force` FullRightsError: the changes may be those of others.
    """
    if job.state != State.DONE or job.batch_id is None:
        raise JobStateError(f"{job.name} is {job.get_state_display()}: there is nothing to undo.")
    if not ImportBatch.objects.filter(pk=job.batch_id).exists():
        raise JobStateError(f"{job.name} is an old reading: undo what it changed in the history of each memory.")
    check_may_undo(job.batch_id, viewer)
    if force:
        check_may_import_all(viewer)
    # With the rights of now: the person who imported it may have gone.
    starter = {"user_id": viewer.user_id, "api_key_id": viewer.api_key_id}
    return _queued(job, State.UNDO_WAITING, is_forced=force, **starter)


def check_may_undo(batch_id: int | None, viewer: Viewer) -> None:
    """Raise ImportForbiddenError if an import brought or changed memories of projects that the viewer cannot write."""
    projects = import_projects(viewer)
    if projects is None:
        return
    events = AuditEvent.objects.filter(batch_id=batch_id, subject_type="memory", before__isnull=False)
    touched = Memory.objects.filter(Q(batch_id=batch_id) | Q(pk__in=events.values("subject_id")))
    if touched.exclude(project_id__in=projects).exists():
        raise ImportForbiddenError("The import has memories in projects that you cannot write to.")


def batch_undo_queue(*, batch_id: int, viewer: Viewer) -> ImportJob:
    """Queue the undo of any import, also of one by the command. Raises JobNotFoundError or JobStateError."""
    batch = ImportBatch.objects.filter(pk=batch_id).first()
    if not may_write_everything(viewer) and not jobs_of(viewer).filter(batch_id=batch_id).exists():
        batch = None
    if batch is None:
        raise JobNotFoundError(f"There is no batch {batch_id}.")
    job = ImportJob.objects.filter(batch=batch).first()
    name = job.name if job else batch.origin
    if batch.state != ImportBatch.State.DONE:
        raise JobStateError(f"The import of {name} is {batch.state}: there is nothing to undo.")
    if job and job.state in (*_WAITING, *_AT_WORK):
        raise JobStateError(f"{name} is {job.get_state_display()}: wait until it is finished.")
    with transaction.atomic():
        if job is None:
            job = _job(viewer, name=name, state=State.DONE)
            job.batch = batch
            job.save()
        return job_undo(job=job, viewer=viewer)


def job_remove(*, job: ImportJob) -> None:
    """Remove an upload that is not imported, with its file. Raises JobStateError."""
    if job.state in (*_WAITING, *_AT_WORK):
        raise JobStateError(f"{job.name} is {job.get_state_display()}: wait until it is finished.")
    # Only in the state that was looked at: it may have been started since.
    if not ImportJob.objects.filter(pk=job.pk, state=job.state).delete()[0]:
        raise JobStateError(f"{job.name} has just been started, or removed.")
    _forget_file(job)


def _job(viewer: Viewer, *, name: str, state: ImportJob.State, path: str = "") -> ImportJob:
    return ImportJob(user_id=viewer.user_id, api_key_id=viewer.api_key_id, name=name, path=path, state=state)


def _queued(job: ImportJob, state: ImportJob.State, **values: Any) -> ImportJob:
    changed = {"state": state, "error": "", "is_changed_since": False, "read": 0, "share": None, **values}
    changed["beat_at"] = timezone.now()
    # Only from the state that was looked at: two requests start it once.
    if not ImportJob.objects.filter(pk=job.pk, state=job.state).update(**changed):
        raise JobStateError(f"{job.name} has just been started.")
    job.refresh_from_db()
    _start()
    return job


def _project(text: str, viewer: Viewer) -> str:
    """The project for memories that name none. Raises UploadInvalidError if the viewer may not import into it."""
    slug = slug_name(text)
    if len(slug) > MAX_PROJECT:
        raise UploadInvalidError(f"project: has {len(slug)} characters; up to {MAX_PROJECT} are allowed.")
    if viewer.may_write(None) and viewer.project_ids is None:
        return slug
    known = importable(viewer)
    if slug in known:
        return slug
    if not slug and len(known) == 1:
        return known[0]
    # The same text for a project that is not there: it must not reveal which there are.
    named = f"you cannot import into {slug!r}" if slug else "name the one for memories that name none"
    raise UploadInvalidError(f"project: {named}. You can import into: {', '.join(known[:_LISTED])}.")


def importable(viewer: Viewer) -> list[str]:
    """The projects that a viewer may import into, by name."""
    projects = Project.objects.order_by("slug")
    if (ids := import_projects(viewer)) is not None:
        projects = projects.filter(pk__in=ids)
    return list(projects.values_list("slug", flat=True))


def _start() -> None:
    """Start a process that does what is queued, after the commit."""
    transaction.on_commit(lambda: start_once(["run_imports"]))


# --- uploads -----------------------------------------------------------------------------------------------------


def upload_begin(*, files: Sequence[FileToSend], viewer: Viewer, fingerprint: str = "", name: str = "") -> ImportJob:
    """Begin the upload of a file, or of several as one, or go on with the one that has begun.

    It is the same if names, sizes and fingerprint are. Raises UploadRefusedError or UploadInvalidError.
    """
    check_may_import(viewer)
    _uploads_forget()
    sent = _cleaned(files)
    size = sum(file.size for file in sent)
    if not 0 < size <= MAX_UPLOAD:
        raise UploadRefusedError(f"size: is {size:,} bytes; from 1 to {MAX_UPLOAD:,} are allowed.")
    listed = [[file.name, file.size, _seconds(file.modified)] for file in sent]
    same = [file[:2] for file in listed]
    owner: dict[str, Any] = {"user_id": viewer.user_id, "api_key_id": viewer.api_key_id}
    unfinished = ImportJob.objects.filter(state=State.UPLOADING)
    for job in unfinished.filter(**owner, size=size, fingerprint=fingerprint):
        if [file[:2] for file in job.files] != same:
            continue
        if Path(job.path).exists():
            return job
        job_remove(job=job)
    if not may_write_everything(viewer):
        _refuse_hoard(size, viewer)
    # The rest of other uploads is as good as taken.
    promised = unfinished.aggregate(n=Sum(F("size") - F("received")))["n"] or 0
    if size > shutil.disk_usage(settings.HOME).free - promised - _SPARE:
        raise UploadRefusedError(
            "There is not enough space on the disk of this server. Remove uploads that nobody finishes or imports."
        )
    uploads = Path(settings.HOME) / "uploads"
    uploads.mkdir(mode=0o700, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=uploads))
    # The name decides for formats that are known by nothing else, such as Markdown.
    path = folder / (sent[0].name if len(sent) == 1 else "files")
    for file in sent:
        one = path if len(sent) == 1 else path / file.name
        try:
            one.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not a folder of the same name, nor a file whose name differs only for some disks.
            one.touch(mode=0o600, exist_ok=False)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise UploadInvalidError(f"files: {file.name}: {error.strerror}.") from None
    job = _job(viewer, name=_upload_name(sent, name), path=str(path), state=State.UPLOADING)
    job.is_upload, job.size, job.files, job.fingerprint = True, size, listed, fingerprint
    job.save()
    return job


def _seconds(moment: datetime | None) -> float | None:
    """A moment as seconds since 1970, in UTC if it names no zone."""
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _refuse_hoard(size: int, viewer: Viewer) -> None:
    """Raise UploadRefusedError if the uploads of somebody with some rights take too much of the disk."""
    stored = [State.UPLOADING, State.READY, State.FAILED, *_WAITING, *_AT_WORK]
    own = jobs_of(viewer).filter(is_upload=True, state__in=stored)
    if (own.aggregate(n=Sum("size"))["n"] or 0) + size > _HOARD:
        raise UploadRefusedError(
            f"Your uploads would have more than {_HOARD // 1024**3} GB together. Import or remove some of them first."
        )


def _cleaned(files: Sequence[FileToSend]) -> list[FileToSend]:
    """The files with names that can be stored. Raises UploadInvalidError for too many, or two of one name."""
    if not 0 < len(files) <= MAX_FILES:
        raise UploadInvalidError(
            f"files: there are {len(files):,}; from 1 to {MAX_FILES:,} are allowed. Pack more of them into a ZIP."
        )
    if len(files) == 1:
        return [replace(files[0], name=_clean_name(files[0].name.replace("\\", "/").rsplit("/", 1)[-1]) or "upload")]
    cleaned: dict[str, FileToSend] = {}
    for file in files:
        steps = [step for step in map(_clean_name, file.name.replace("\\", "/").split("/")) if step]
        name = "/".join(steps[-_DEPTH:]) or "upload"
        if name in cleaned:
            raise UploadInvalidError(f"files: {legible(name, 200)} is there twice.")
        cleaned[name] = replace(file, name=name)
    return list(cleaned.values())


def _clean_name(text: str) -> str:
    """The name of a file or a folder, without what cannot be stored; empty for `.` and `..`."""
    name = "".join(c for c in text if c.isprintable()).strip()
    name = name.encode(errors="ignore")[-_NAME_LENGTH:].decode(errors="ignore").strip().rstrip(".")
    return name if name.strip(".") else ""


def _upload_name(files: Sequence[FileToSend], name: str) -> str:
    """How an upload is called: by its file, by the folder that its files share, or by the first file."""
    if len(files) == 1:
        return files[0].name
    if given := _clean_name(name):
        return given
    tops = {file.name.split("/")[0] if "/" in file.name else "" for file in files}
    top = tops.pop() if len(tops) == 1 else ""
    return f"{top} ({len(files):,} files)" if top else f"{files[0].name} and {len(files) - 1:,} more"


@transaction.atomic
def upload_append(*, job: ImportJob, offset: int, part: bytes) -> ImportJob:
    """Append a part of an upload. Raises JobStateError, naming the place to go on from, if it is another one."""
    locked = ImportJob.objects.select_for_update().filter(pk=job.pk).first()
    if locked is None or not Path(locked.path).exists():
        raise JobStateError(f"{job.name} was removed: begin the upload again.")
    job = locked
    if job.state != State.UPLOADING or offset != job.received or offset + len(part) > job.size or not part:
        raise JobStateError(f"{job.name} has {job.received:,} of {job.size:,} bytes: go on from offset {job.received}.")
    _write_part(job, offset, part)
    job.received = offset + len(part)
    if job.received == job.size:
        job.state = State.READY
        # A note without a date has that of its file.
        for path, _, modified in _stored_files(job):
            if modified is not None:
                with contextlib.suppress(OSError, OverflowError, ValueError):
                    os.utime(path, (modified, modified))
    job.save(update_fields=["received", "state"])
    return job


def _stored_files(job: ImportJob) -> list[tuple[Path, int, float | None]]:
    """Where the files of an upload are stored, their sizes and when they were changed."""
    path = Path(job.path)
    files = job.files or [[job.name, job.size, None]]
    return [(path if len(files) == 1 else path / name, size, modified) for name, size, modified in files]


def _write_part(job: ImportJob, offset: int, part: bytes) -> None:
    """Write a part into the files that it belongs to: they follow each other."""
    start = 0
    for path, size, _ in _stored_files(job):
        begin, end = max(offset, start), min(offset + len(part), start + size)
        if begin < end:
            with path.open("r+b") as file:
                file.seek(begin - start)
                file.write(part[begin - offset : end - offset])
                file.flush()
                os.fsync(file.fileno())
        start += size


def _uploads_forget() -> None:
    """Remove uploads that nobody imported for days."""
    old = ImportJob.objects.filter(created_at__lt=timezone.now() - _KEPT, is_upload=True)
    for job in old.filter(state__in=[State.UPLOADING, State.READY, State.FAILED]):
        with contextlib.suppress(JobStateError):
            job_remove(job=job)


def _forget_file(job: ImportJob) -> None:
    if job.is_upload and job.path:
        shutil.rmtree(Path(job.path).parent, ignore_errors=True)


# --- the process -------------------------------------------------------------------------------------------------


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
    with at_work():
        while job := _claimed():
            with _beating(job, parent) as progress:
                _do(job, progress)
            done += 1
    return done


def _claimed() -> ImportJob | None:
    """The oldest queued job, marked as this process' own."""
    for job in ImportJob.objects.filter(state__in=_WAITING).order_by("pk"):
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
        if is_undo:
            check_may_undo(job.batch_id, viewer)
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
        _forget_file(job)


def job_text(job: ImportJob, text: str) -> str:
    """A text in which an upload has its name: where it is stored is nobody's business."""
    return text.replace(job.path, job.name) if job.path else text


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
    outcome = import_path(
        path=path,
        importer=_watched(importer, progress),
        viewer=viewer,
        choices=ImportChoices(_project(job.project, viewer), columns=job.columns, is_only_project=job.is_only_project),
        progress=show,
        open_sink=ImportSink,
        origin=job.name if job.is_upload else job.path,
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


def viewer_of_starter(started: ImportJob | FollowedSource) -> Viewer:
    """The viewer who started a job, or follows a source, with the rights of now."""
    if isinstance(started, FollowedSource) and started.by_command:
        return command_viewer()
    if started.api_key_id is not None:
        key = live_keys().filter(pk=started.api_key_id).first()
        return viewer_of_key(key) if key else Viewer()
    return viewer_of_user(started.user or AnonymousUser(), door=AuditEvent.Door.PAGE)


@contextlib.contextmanager
def _beating(job: ImportJob, parent: int | None) -> Iterator[_Progress]:
    """Record the progress of a job, and that the queued ones are not lost, while the block runs."""
    progress, ended = _Progress(), threading.Event()

    def beat() -> None:
        try:
            while not ended.wait(_BEAT_SECONDS):
                now = timezone.now()
                own = ImportJob.objects.filter(pk=job.pk, state__in=_AT_WORK)
                own.update(read=progress.counts.read, share=progress.share or F("share"), beat_at=now)
                ImportJob.objects.filter(state__in=_WAITING).update(beat_at=now)
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
