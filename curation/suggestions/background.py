"""Looking for suggestions in a process of its own, which the page of the queue starts: it may take minutes."""

import contextlib
import fcntl
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from access.viewer import Viewer, may_write_everything
from web.errors import Refusal
from web.processes import start_once

# Locked by the process that looks. Its text is empty until that has ended, and then how it ended.
_FILE = "suggest.lock"
_ENDED = "ended"
_INTERRUPTED = "The last search for suggestions was interrupted. Look again."
_STARTING_SECONDS = 60
_WATCH_SECONDS = 2.0


class MayNotSearchError(Refusal):
    """The viewer may not look for suggestions in all projects."""

    status, code = 403, "missing_scope"
    suggestion = "Ask an administrator of this site."


def search_check(viewer: Viewer) -> None:
    """Raise MayNotSearchError unless the viewer may look for suggestions in all projects."""
    if not may_write_everything(viewer):
        raise MayNotSearchError("Looking for suggestions needs the right to change every project.")


def search_start(*, viewer: Viewer) -> None:
    """Start to look for suggestions of every kind in all projects, unless somebody does already."""
    search_check(viewer)
    if not is_searching():
        _path().write_text("")
        start_once(["suggest"])


def is_searching() -> bool:
    """Whether a process of this machine looks for suggestions, or has just been started to."""
    try:
        with _path().open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return not file.read(1) and time.time() - _path().stat().st_mtime < _STARTING_SECONDS
    except FileNotFoundError:
        return False


def search_fault() -> str:
    """Why the last search did not come to its end; empty if it did, or if one is under way."""
    try:
        text = _path().read_text()
    except FileNotFoundError:
        return ""
    if text == _ENDED or is_searching():
        return ""
    return text or _INTERRUPTED


@contextlib.contextmanager
def searching(parent: int | None) -> Iterator[None]:
    """Tell others that this process looks for suggestions, and how it ended. It is interrupted if the parent ends."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_WATCH_SECONDS):
            if os.getppid() != parent:
                os.kill(os.getpid(), signal.SIGINT)
                return

    with _path().open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        if parent is not None:
            threading.Thread(target=watch, name="suggest-parent", daemon=True).start()
        _path().write_text("")
        outcome = _INTERRUPTED
        try:
            yield
            outcome = _ENDED
        except Exception as error:
            outcome = f"The last search for suggestions ended early: {error}"
            raise
        finally:
            ended.set()
            _path().write_text(outcome)


def _path() -> Path:
    return Path(settings.HOME) / _FILE
