"""Other processes that turn texts to terms while this one reads and writes: most of the work of an import."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import wait

from memories.terms import MemoryText, memories_terms


class Analysers:
    """A pool that is started with the second lot, so that a small import does not wait for processes to start."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._lots = 0
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, texts: list[MemoryText]) -> "Future[list[str]]":
        self._lots += 1
        if self._workers and self._lots > 1:
            return self._started().submit(memories_terms, texts)
        done: Future[list[str]] = Future()
        done.set_result(memories_terms(texts))
        return done

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Never a fork: the database connection and its threads are this process's own.
            self._pool = ProcessPoolExecutor(
                self._workers, multiprocessing.get_context("spawn"), initializer=_live_and_die_with_parent
            )
        return self._pool

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _live_and_die_with_parent() -> None:
    """Leave Ctrl-C to the parent, which ends the pool; and do not outlive it when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def analysers() -> Iterator[Analysers]:
    """The pool of one import: as many processes as there are cores, none on a single one."""
    cores = os.cpu_count() or 1
    pool = Analysers(min(cores, 8) if cores > 1 else 0)
    try:
        yield pool
    finally:
        pool.close()
