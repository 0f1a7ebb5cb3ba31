"""Rate limits: a token bucket for each key, refilled evenly.

Buckets are in the memory of each server process, so that a request costs no write.
"""

import threading
import time
from collections import OrderedDict

# The number of buckets, those used last. A bucket that is full again need not be stored.
_LIMIT = 10_000


class Buckets:
    """Per key, the time at which its bucket will be full again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: OrderedDict[int, float] = OrderedDict()

    def take(self, key_id: int, per_minute: int, now: float | None = None) -> float:
        """Take a token. Returns 0, or the seconds to wait if the bucket is empty. A full bucket has the tokens of a
        minute.
        """
        at = time.monotonic() if now is None else now
        each = 60 / per_minute
        with self._lock:
            due = max(self._due.pop(key_id, at), at)
            wait = due + each - at - 60
            # Less than a millisecond is a rounding error.
            wait = wait if wait > 0.001 else 0.0
            self._due[key_id] = due if wait else due + each
            if len(self._due) > _LIMIT:
                self._due.popitem(last=False)
        return wait

    def forget(self) -> None:
        with self._lock:
            self._due.clear()


buckets = Buckets()
