"""Child processes of a server: `manage.py` commands that start, restart and end with it."""

import ctypes
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from django.conf import settings

logger = logging.getLogger(__name__)

_GRACE_SECONDS = 10
# The pauses before a child starts again that failed not at all, once, twice and so on without living long between.
_RESTART_SECONDS = (0, 1, 2, 5, 10)
# Threads of Python run one at a time, so that they hardly ever wait for each other's heap.
_ARENAS = "2"
_M_ARENA_MAX = -8
# A child that lived this long has not failed.
_STEADY_SECONDS = 30


ended: list[Callable[[str], None]] = []
"""Functions to call with the command of a child that ended by itself."""


class SupervisedProcess:
    """A `manage.py` command as a child process. It gets the parent's id, and exits if the parent is gone.

    It inherits the given sockets under the numbers that they have here.
    """

    def __init__(self, arguments: Sequence[str], trouble: str, *, inherits: Sequence[socket.socket] = ()) -> None:
        self._arguments = arguments
        self._trouble = trouble
        self._inherits = [one.fileno() for one in inherits]
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._supervise, name=f"supervise-{arguments[0]}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def ask_to_stop(self) -> None:
        with self._starting:
            self._stopping.set()
        if (child := self._child) is not None and child.poll() is None:
            child.terminate()

    def wait(self) -> None:
        """Wait for an orderly end: the child completes work in progress."""
        if (child := self._child) is not None and child.poll() is None:
            try:
                child.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                # Nothing is lost: its successor continues from the data on disk.
                child.kill()
                child.wait()

    def _supervise(self) -> None:
        failures = 0
        manage = str(settings.BASE_DIR / "manage.py")
        command = [sys.executable, manage, *self._arguments, "--with-parent", str(os.getpid())]
        while True:
            with self._starting:
                if self._stopping.is_set():
                    return
                started = time.monotonic()
                # A separate process group: Ctrl-C in the terminal reaches this process only, which stops the child.
                try:
                    self._child = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, process_group=0, pass_fds=self._inherits, env=_environment()
                    )
                except OSError as error:
                    logger.warning("%s: %s. Trying again.", self._trouble, error)
                    self._child = None
            if self._child is not None:
                self._note_end(self._child.wait(), time.monotonic() - started)
            failures = 0 if time.monotonic() - started > _STEADY_SECONDS else failures + 1
            self._stopping.wait(_RESTART_SECONDS[min(failures, len(_RESTART_SECONDS) - 1)])

    def _note_end(self, code: int, seconds: float) -> None:
        if self._stopping.is_set():
            return
        name = self._arguments[0]
        logger.warning(
            "The process `%s` ended after %.0f s %s. %s until it is back.", name, seconds, cause_of(code), self._trouble
        )
        for function in ended:
            function(name)


def cause_of(code: int) -> str:
    """The cause of the end of a process in words, by its exit code, which is negative for a signal."""
    if code == -signal.SIGKILL:
        return "by SIGKILL: somebody killed it, or the system, short of memory"
    if code < 0:
        return f"by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"by the signal {-code}"
    return f"with the exit code {code}"


def start_once(arguments: Sequence[str]) -> None:
    """Start a `manage.py` command in the background, to run to its end. It gets the id of this process."""
    manage = str(settings.BASE_DIR / "manage.py")
    child = subprocess.Popen(
        [sys.executable, manage, *arguments, "--with-parent", str(os.getpid())],
        stdin=subprocess.DEVNULL,
        process_group=0,
        env=_environment(),
    )
    threading.Thread(target=child.wait, name=f"wait-{arguments[0]}", daemon=True).start()


def _environment() -> dict[str, str]:
    """The environment of a child. By default its C library would keep a heap for each of many threads."""
    return {"MALLOC_ARENA_MAX": _ARENAS, **os.environ}


def limit_heaps() -> None:
    """The same for this process, whose environment was read before it could be changed."""
    with suppress(AttributeError, OSError, TypeError):  # another C library than glibc
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, int(os.environ.get("MALLOC_ARENA_MAX", _ARENAS)))


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage after more new objects: a collection scans all objects, and thousands of rows have no cycles."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def release_memory() -> None:
    """Return memory that was freed to the system. The C library would keep what a long batch took, for hours."""
    with suppress(AttributeError, OSError, TypeError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)


@contextmanager
def supervise() -> Iterator[Callable[[SupervisedProcess], None]]:
    """Yields a function that starts processes, and stops them all at the end of the block."""
    processes: list[SupervisedProcess] = []

    def start(process: SupervisedProcess) -> None:
        process.start()
        processes.append(process)

    try:
        yield start
    finally:
        for process in processes:
            process.ask_to_stop()
        for process in processes:
            process.wait()
