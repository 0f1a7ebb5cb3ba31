"""Processes that analyse texts for an import while it reads and writes: most of its work."""

import atexit
import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait

from memories.terms import MemoryText, memories_terms

_WORTH_A_PROCESS = 500


class Analysers:
    """A process pool that starts with the first large block, so that a small import does not wait for it."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, texts: list[MemoryText]) -> "Future[list[str]]":
        if self._workers and (self._pool or len(texts) >= _WORTH_A_PROCESS):
            return self._started().submit(memories_terms, texts)
        done: Future[list[str]] = Future()
        done.set_result(memories_terms(texts))
        return done

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Never fork: the database connection and the threads belong to this process.
            self._pool = ProcessPoolExecutor(
                self._workers, multiprocessing.get_context("spawn"), initializer=_exit_with_parent
            )
        return self._pool

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _exit_with_parent() -> None:
    """Ignore Ctrl-C, which the parent handles, and exit with the parent even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Analysis creates no reference cycles, and collections would scan the caches of words again and again.
    gc.disable()
    # An orderly exit would free the cached words one by one, for seconds.
    atexit.register(os._exit, 0)
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def analysers() -> Iterator[Analysers]:
    """The pool of an import: a process for each core except the importer's own."""
    cores = os.cpu_count() or 1
    pool = Analysers(min(cores - 1, 8))
    try:
        yield pool
    finally:
        pool.close()
