"""Other processes that turn texts to terms while this one reads and writes: most of the work of an import."""

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
    """A pool that is started with the first large lot, so that a small import does not wait for processes to start."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, ids: list[int], texts: list[MemoryText]) -> "Future[list[str]]":
        if self._workers and (self._pool or len(texts) >= _WORTH_A_PROCESS):
            return self._started().submit(memories_terms, texts)
        done: Future[list[str]] = Future()
        done.set_result(memories_terms(texts))
        return done

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Never a fork: the database connection and its threads are this process's own.
            self._pool = ProcessPoolExecutor(
                self._workers, multiprocessing.get_context("spawn"), initializer=exit_with_parent
            )
        return self._pool

    def close(self) -> None:
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)


def exit_with_parent() -> None:
    """Leave Ctrl-C to the parent, which ends the pool; and do not outlive it when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Terms make no cycles, and what is remembered of each word would be looked through again and again.
    gc.disable()
    # An interpreter that ends in order frees every word it remembers, one by one, for seconds.
    atexit.register(os._exit, 0)
    if parent := multiprocessing.parent_process():
        threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


@contextmanager
def analysers() -> Iterator[Analysers]:
    """The pool of one import: a process for each core but the one that reads and writes."""
    cores = os.cpu_count() or 1
    pool = Analysers(min(cores - 1, 8))
    try:
        yield pool
    finally:
        pool.close()
