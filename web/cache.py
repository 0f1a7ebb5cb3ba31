"""The caches of this process. Imports no app."""

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock, Thread
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from django.db import connections

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RevisionCache(Generic[Key, Value]):
    """The values used last, each of one revision of what it was made from. Threads may share it.

    The cache holds at most `limit` values, together at most `weight` heavy, but always the newest one. A value is
    forgotten after `seconds`, whatever its revision.
    """

    def __init__(
        self,
        limit: int,
        *,
        seconds: float = math.inf,
        weight: float = math.inf,
        weigh: Callable[[Value], int] = lambda value: 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit, self._seconds, self._most, self._weigh = limit, seconds, weight, weigh
        self._clock = clock
        self._lock = Lock()
        self._values: OrderedDict[Key, tuple[object, float, Value]] = OrderedDict()
        self._weight = 0
        _caches.add(self)

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key, revision: object = None) -> Value | None:
        """The value of a key, if it is of this revision."""
        with self._lock:
            if (found := self._values.get(key)) is None:
                return None
            known, made_at, value = found
            if known != revision or self._clock() - made_at > self._seconds:
                return None
            self._values.move_to_end(key)
            return value

    def put(self, key: Key, value: Value, revision: object = None) -> Value:
        """Store a value in place of the key's value of any other revision."""
        with self._lock:
            self._remove(key)
            self._values[key] = (revision, self._clock(), value)
            self._weight += self._weigh(value)
            while len(self._values) > 1 and (len(self._values) > self.limit or self._weight > self._most):
                self._remove(next(iter(self._values)))
        return value

    def get_or_make(self, key: Key, make: Callable[[], Value], revision: object = None) -> Value:
        """The value of a key, made if it is not there. Threads that ask at once may each make it."""
        found = self.get(key, revision)
        return self.put(key, make(), revision) if found is None else found

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._weight = 0

    def _remove(self, key: Key) -> None:
        if (found := self._values.pop(key, None)) is not None:
            self._weight -= self._weigh(found[2])


class RepeatedReads(Generic[Key, Value]):
    """The latest results of reads that take long and change with every revision. Threads may share it.

    A result of an older revision is served for at most twenty times the time that its read took, so that reading takes
    a twentieth of a core however often the revision changes. A slow read is then repeated in a thread of its own, so
    that only the first request of a process waits for one. Requests that come during a read wait for its result.

    At most `limit` results are held, those used last. None is served that was read more than `seconds` ago, and only
    those of an older revision that `may_be_older`; by default all.
    """

    _SHARE = 20
    _SLOW_SECONDS = 0.05

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        after_repeat: Callable[[], None] = lambda: None,
        *,
        limit: float = math.inf,
        seconds: float = math.inf,
        may_be_older: Callable[[Value], bool] = lambda value: True,
    ) -> None:
        self._clock = clock
        self._after_repeat = after_repeat
        self._may_be_older = may_be_older
        self._limit, self._seconds = limit, seconds
        self._lock = Lock()
        self._results: OrderedDict[Key, tuple[object, float, float, Value]] = OrderedDict()
        self._running: set[Key] = set()
        self._reading: dict[Key, Lock] = {}
        _caches.add(self)

    def get(self, key: Key, revision: object, read: Callable[[], Value]) -> Value:
        if (held := self._held(key, revision, read)) is not None:
            return held[0]
        with self._lock:
            turn = self._reading.setdefault(key, Lock())
        with turn:
            # Whoever had the turn before has read it.
            if (held := self._held(key, revision, read)) is not None:
                return held[0]
            try:
                return self._read(key, revision, read)
            finally:
                with self._lock:
                    self._reading.pop(key, None)

    def _held(self, key: Key, revision: object, read: Callable[[], Value]) -> tuple[Value] | None:
        """The result to serve, in a tuple; None if it must be read first."""
        with self._lock:
            if (found := self._results.get(key)) is None:
                return None
            known, read_at, took, value = found
            age = self._clock() - read_at
            if age > self._seconds:
                return None
            self._results.move_to_end(key)
            if known == revision:
                return (value,)
            if not self._may_be_older(value):
                return None
            if age <= self._SHARE * took or key in self._running:
                return (value,)
            if took <= self._SLOW_SECONDS:
                return None
            self._running.add(key)
        Thread(target=self._repeat, args=(key, revision, read), name="counting", daemon=True).start()
        return (value,)

    def clear(self) -> None:
        with self._lock:
            self._results.clear()

    def _read(self, key: Key, revision: object, read: Callable[[], Value]) -> Value:
        started = self._clock()
        value = read()
        now = self._clock()
        with self._lock:
            self._results[key] = (revision, now, now - started, value)
            self._results.move_to_end(key)
            while len(self._results) > self._limit:
                self._results.popitem(last=False)
        return value

    def _repeat(self, key: Key, revision: object, read: Callable[[], Value]) -> None:
        try:
            self._read(key, revision, read)
        except Exception:  # the next request tries again
            logger.exception("A count could not be repeated.")
        finally:
            connections.close_all()
            with self._lock:
                self._running.discard(key)
            self._after_repeat()


_caches: WeakSet[RevisionCache[Any, Any] | RepeatedReads[Any, Any]] = WeakSet()


def clear_caches() -> None:
    """Clear every cache of this process. For tests, whose transactions take revisions back, and for measurements."""
    for cache in list(_caches):
        cache.clear()
