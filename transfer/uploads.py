"""Uploads in parts: of one file or of several that are imported as one."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Sum
from django.utils import timezone

from access.viewer import Viewer, may_write_everything
from text.formatting import legible
from transfer.jobs import (
    AT_WORK,
    WAITING,
    JobStateError,
    State,
    UploadInvalidError,
    check_may_import,
    job_new,
    job_remove,
    jobs_of,
)
from transfer.models import ImportJob
from transfer.previews import previews_start
from web.errors import Refusal
from web.secrets import mask_note

MAX_UPLOAD = 2 * 1024**3
# The body of the form with the file, and what is around it.
MAX_FORM = MAX_UPLOAD + 1024**2
# A part of an upload is a request, whose body is held in memory.
MAX_PART = 8 * 1024**2
# Space that an upload must leave on the disk.
_SPARE = 1024**3
_KEPT = timedelta(days=2)
# In bytes; file systems allow 255.
_NAME_LENGTH = 240
MAX_FILES = 5_000
# The uploads of somebody who may not write everything, together.
_HOARD = 4 * 1024**3
_DEPTH = 20


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


def upload_begin(*, files: Sequence[FileToSend], viewer: Viewer, fingerprint: str = "", name: str = "") -> ImportJob:
    """Begin the upload of a file, or of several as one, or go on with the one that has begun.

    It is the same if names, sizes and fingerprint are. Raises UploadRefusedError or UploadInvalidError.
    """
    check_may_import(viewer)
    uploads_forget()
    sent = _cleaned(files)
    size = sum(file.size for file in sent)
    if not 0 < size <= MAX_UPLOAD:
        raise UploadRefusedError(f"size: is {size:,} bytes; from 1 to {MAX_UPLOAD:,} are allowed.")
    listed = [[file.name, file.size, _seconds(file.modified)] for file in sent]
    same = [file[:2] for file in listed]
    owner: dict[str, Any] = {"user_id": viewer.user_id, "api_key_id": viewer.api_key_id}
    unfinished = ImportJob.objects.filter(state=State.UPLOADING)
    for job in unfinished.filter(**owner, size=size, fingerprint=mask_note(fingerprint)):
        if [file[:2] for file in job.files] != same:
            continue
        if Path(job.path).exists():
            return job
        job_remove(job=job)
    if not may_write_everything(viewer):
        _refuse_hoard(size, viewer)
    # The rest of unfinished uploads is reserved.
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
    job = job_new(viewer, name=_upload_name(sent, name), path=str(path), state=State.UPLOADING)
    job.is_upload, job.size, job.files, job.fingerprint = True, size, listed, mask_note(fingerprint)
    job.save()
    return job


def _seconds(moment: datetime | None) -> float | None:
    """A moment as seconds since 1970, in UTC if it names no zone."""
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _refuse_hoard(size: int, viewer: Viewer) -> None:
    """Raise UploadRefusedError if the uploads of somebody with some rights take too much of the disk."""
    stored = [State.UPLOADING, State.READY, State.FAILED, *WAITING, *AT_WORK]
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
    """The name of a file or a folder, without secrets and what cannot be stored; empty for `.` and `..`."""
    name = mask_note("".join(c for c in text if c.isprintable()).strip())
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
        transaction.on_commit(previews_start)
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


def uploads_forget() -> None:
    """Remove uploads that nobody imported for days."""
    old = ImportJob.objects.filter(created_at__lt=timezone.now() - _KEPT, is_upload=True)
    for job in old.filter(state__in=[State.UPLOADING, State.READY, State.FAILED]):
        with contextlib.suppress(JobStateError):
            job_remove(job=job)
