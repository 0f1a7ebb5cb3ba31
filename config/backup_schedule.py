"""Backups at regular times: `manage.py up` makes them in a thread, and removes the oldest."""

import contextlib
import fcntl
import logging
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection

from config.backup import BackupError, Manifest, Stop, backup_create

logger = logging.getLogger("mnemoscope.backup")

_NAME = "mnemoscope-%Y%m%d-%H%M%S.backup"
_LOOK_SECONDS = 60
_RETRY_SECONDS = 600


@contextlib.contextmanager
def scheduled_backups() -> Iterator[None]:
    """Make backups at the times of the settings while the block runs."""
    if not settings.BACKUP_EVERY_HOURS:
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(over,), name="backups", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def _follow(over: threading.Event) -> None:
    seconds = 0.0
    while not over.wait(seconds):
        seconds = _LOOK_SECONDS
        try:
            backup_if_due(over.is_set)
        except (BackupError, DatabaseError, OSError) as error:
            if not over.is_set():
                logger.error("The scheduled backup failed, and is tried again in ten minutes. %s", error)
            seconds = _RETRY_SECONDS
        finally:
            connection.close()


def backup_if_due(stop: Stop = lambda: False) -> Path | None:
    """Make a backup if the last one is old enough. Return its path, or None."""
    with _folder_locked() as folder:
        if folder is None:
            return None  # another server of this folder makes one
        made = backups_in(folder)
        if made and datetime.now(UTC) - _made_at(made[-1]) < timedelta(hours=settings.BACKUP_EVERY_HOURS):
            return None
        return _make(folder, stop)[0]


def backup_now(stop: Stop = lambda: False) -> tuple[Path, Manifest]:
    """Make a backup in the folder of the settings, and remove the oldest ones there."""
    with _folder_locked() as folder:
        if folder is None:
            raise BackupError(f"Another process is making a backup in {settings.BACKUP_FOLDER}: wait until it is done.")
        return _make(folder, stop)


def backups_in(folder: Path) -> list[Path]:
    """The backups with a name of the schedule, the oldest first."""
    found = [path for path in folder.glob("mnemoscope-*.backup") if _is_ours(path)]
    return sorted(found, key=_made_at)


def _make(folder: Path, stop: Stop) -> tuple[Path, Manifest]:
    # The one that was to be started is this one.
    (folder / settings.BACKUP_LOCK).write_text("")
    for draft in folder.glob(".mnemoscope-*.new-*"):
        draft.unlink()  # left behind by a killed process: this one holds the lock
    path = folder / datetime.now(UTC).strftime(_NAME)
    try:
        manifest = backup_create(path, stop)
    except (BackupError, DatabaseError) as error:
        _note(f"The last one failed: {str(error).strip()}")
        raise
    with contextlib.suppress(OSError):
        settings.BACKUP_FAILURE.unlink(missing_ok=True)
    for old in backups_in(folder)[: -settings.BACKUP_KEEP]:
        try:
            old.unlink(missing_ok=True)
        except OSError as error:
            _note(f"The last one is complete, but {old.name} cannot be removed: {error.strerror}.")
    return path, manifest


def _note(text: str) -> None:
    """Leave word for the status page, until the next backup is made."""
    with contextlib.suppress(OSError):  # a full disk has no room for its own complaint
        settings.BACKUP_FAILURE.write_text(text)


@contextlib.contextmanager
def _folder_locked() -> Iterator[Path | None]:
    folder = Path(settings.BACKUP_FOLDER)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / settings.BACKUP_LOCK).open("ab")
    except OSError as error:
        failure = BackupError(f"Backups cannot be written to {folder}: {error.strerror}. Set BACKUP_FOLDER.")
        _note(f"The last one failed: {failure}")
        raise failure from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield folder


def _made_at(path: Path) -> datetime:
    return datetime.strptime(path.name, _NAME).replace(tzinfo=UTC)


def _is_ours(path: Path) -> bool:
    try:
        _made_at(path)
    except ValueError:
        return False
    return True
