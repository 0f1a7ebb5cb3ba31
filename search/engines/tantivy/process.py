"""The process beside a server that keeps the derived index up to date, and is started again should it end."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from search.engines.tantivy import store
from search.engines.tantivy.parts import DamagedError
from search.engines.tantivy.store import NoIndexError

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 10
_RESTART_SECONDS = (1, 5, 30)
_STEADY_SECONDS = 60


class Follower:
    """`manage.py index --follow` as a child of this process."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="index-follower", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the child in order: what it has begun it finishes."""
        with self._starting:
            self._stopping.set()
        if (child := self._child) is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                # Nothing is lost: the next one goes on from what is on the disk.
                child.kill()
                child.wait()

    def _keep(self) -> None:
        failures = 0
        manage = str(settings.BASE_DIR / "manage.py")
        command = [sys.executable, manage, "index", "--follow", "--with-parent", str(os.getpid())]
        while True:
            with self._starting:
                if self._stopping.is_set():
                    return
                started = time.monotonic()
                # In a group of its own: Ctrl-C in the terminal is for this process, which ends the child in order.
                try:
                    self._child = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)
                except OSError as error:
                    logger.warning("The search index is not kept: %s. Trying again.", error)
                    self._child = None
            if self._child is not None:
                self._child.wait()
            failures = 0 if time.monotonic() - started > _STEADY_SECONDS else failures + 1
            self._stopping.wait(_RESTART_SECONDS[min(failures, len(_RESTART_SECONDS)) - 1])


@contextmanager
def following(*, wait_seconds: float = 0) -> Iterator[None]:
    """Keep the index up to date while the block runs. Waits at first until it can be read, but no longer than said."""
    follower = Follower()
    follower.start()
    try:
        until = time.monotonic() + wait_seconds
        while time.monotonic() < until and not _is_readable():
            time.sleep(0.05)
        yield
    finally:
        follower.stop()


def _is_readable() -> bool:
    try:
        view = store.read_view()
    except (NoIndexError, DamagedError):
        return False
    return store.is_of_this_database(view.generation, view.manifest)
