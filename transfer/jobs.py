"""Imports that run in the background: who may start, see, cancel and undo them. A process does them one by one.

Those who may write and curate everything import from this machine, and make projects. Others import uploads into the
projects that they may write to, by the rules of their other writes, and see their own imports.
"""

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AnonymousUser
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from access.keys import live_keys
from access.models import AuditEvent
from access.viewer import Viewer, command_viewer, may_write_everything, viewer_of_key, viewer_of_user
from memories.invented_team import SAMPLE, is_sample
from memories.models import FollowedSource, ImportBatch, Memory, Project
from memories.records import MAX_PROJECT, slug_name
from text.formatting import legible
from transfer.discover import places
from transfer.formats.importer import Importer
from transfer.formats.registry import BUNDLE, importer_for
from transfer.models import ImportJob
from web.errors import Refusal
from web.processes import start_once
from web.secrets import mask_note

State = ImportJob.State

# A job that was not renewed for this long was interrupted.
_LOST = timedelta(seconds=60)
_LOCK = "imports.lock"
# Advice that only helps in a terminal.
_COMMAND_ADVICE = re.compile(
    r",? or (?:import [^.]* )?with --[a-z-]+(?: [a-z-]+ or --[a-z-]+ [a-z-]+)?(?: [A-Z]+=\w+)?"
)
WAITING = (State.WAITING, State.UNDO_WAITING)
AT_WORK = (State.RUNNING, State.CANCELLING, State.UNDOING)
_LISTED = 20
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
        job_new(viewer, name="The sample" if path == SAMPLE else str(path), path=str(path), state=State.WAITING)
        for path in paths
    ]
    for job in jobs:
        job.project = job_project(project, viewer)
        job.save()
    _start()
    return jobs


def job_import(*, job: ImportJob, project: str, viewer: Viewer, is_only_project: bool = False) -> ImportJob:
    """Queue the import of an upload that is complete, or of a job that failed, with the rights of its owner.

    Raises JobStateError or UploadInvalidError.
    """
    if job.state not in (State.READY, State.FAILED) or (job.is_upload and not Path(job.path).exists()):
        raise JobStateError(f"{job.name} is {job.get_state_display()}: it cannot be imported now.")
    project = job_project(project, viewer)
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
    job = next((one for one in ImportJob.objects.filter(batch=batch).order_by("pk") if not one.reads_again), None)
    name = job.name if job else "The sample" if is_sample(batch.origin) else batch.origin
    if batch.state != ImportBatch.State.DONE:
        raise JobStateError(f"The import of {name} is {batch.state}: there is nothing to undo.")
    if job and job.state in (*WAITING, *AT_WORK):
        raise JobStateError(f"{name} is {job.get_state_display()}: wait until it is finished.")
    with transaction.atomic():
        if job is None:
            job = job_new(viewer, name=name, state=State.DONE)
            job.batch = batch
            job.save()
        return job_undo(job=job, viewer=viewer)


def job_remove(*, job: ImportJob) -> None:
    """Remove an upload that is not imported, with its file. Raises JobStateError."""
    if job.state in (*WAITING, *AT_WORK):
        raise JobStateError(f"{job.name} is {job.get_state_display()}: wait until it is finished.")
    # Only in the state that was looked at: it may have been started since.
    if not ImportJob.objects.filter(pk=job.pk, state=job.state).delete()[0]:
        raise JobStateError(f"{job.name} has just been started, or removed.")
    job_forget_file(job)


def job_new(viewer: Viewer, *, name: str, state: ImportJob.State, path: str = "") -> ImportJob:
    return ImportJob(user_id=viewer.user_id, api_key_id=viewer.api_key_id, name=mask_note(name), path=path, state=state)


def _queued(job: ImportJob, state: ImportJob.State, **values: Any) -> ImportJob:
    changed = {"state": state, "error": "", "is_changed_since": False, "read": 0, "share": None, **values}
    changed["beat_at"] = timezone.now()
    # Only from the state that was looked at: two requests start it once.
    if not ImportJob.objects.filter(pk=job.pk, state=job.state).update(**changed):
        raise JobStateError(f"{job.name} has just been started.")
    job.refresh_from_db()
    _start()
    return job


def job_project(text: str, viewer: Viewer) -> str:
    """The project for memories that name none. Raises UploadInvalidError if the viewer may not import into it."""
    slug = slug_name(text)
    if len(slug) > MAX_PROJECT:
        raise UploadInvalidError(f"project: has {len(slug)} characters; up to {MAX_PROJECT} are allowed.")
    if mask_note(slug) != slug:
        raise UploadInvalidError("project: is a secret, such as a key: choose another name.")
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


def job_text(job: ImportJob, text: str) -> str:
    """A text with the name of an upload in place of the path at which it is stored, and without options of commands."""
    text = _COMMAND_ADVICE.sub("", text)
    return text.replace(job.path, job.name) if job.path else text


def viewer_of_starter(started: ImportJob | FollowedSource) -> Viewer:
    """The viewer who started a job, or follows a source, with the rights of now."""
    if isinstance(started, FollowedSource) and started.by_command:
        return command_viewer()
    if started.api_key_id is not None:
        key = live_keys().filter(pk=started.api_key_id).first()
        return viewer_of_key(key) if key else Viewer()
    return viewer_of_user(started.user or AnonymousUser(), door=AuditEvent.Door.PAGE)


def job_forget_file(job: ImportJob) -> None:
    if job.is_upload and job.path:
        shutil.rmtree(Path(job.path).parent, ignore_errors=True)
        shutil.rmtree(job_previews(job), ignore_errors=True)


def job_previews(job: ImportJob) -> Path:
    """The folder of the previews of an upload."""
    return Path(settings.HOME) / "previews" / str(job.pk)
