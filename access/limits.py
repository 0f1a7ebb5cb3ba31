"""How many requests a key may make: a bucket for each, which fills again evenly.

Kept in the memory of the process, so that a request costs no write. Every server process counts for itself.
"""

import threading
import time
from collections import OrderedDict

# A key that has not asked for so long that its bucket is full again need not be kept; these are, the latest of all.
_MAX_KEPT = 10_000


class Buckets:
    """Per key, the moment at which its bucket would be empty of all that was taken out of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: OrderedDict[int, float] = OrderedDict()

    def take(self, key_id: int, per_minute: int, now: float | None = None) -> float:
        """Take one out. The seconds to wait if the bucket is empty, else 0: a minute's worth may be taken at once."""
        at = time.monotonic() if now is None else now
        each = 60 / per_minute
        with self._lock:
            due = max(self._due.pop(key_id, at), at)
            wait = due + each - at - 60
            # What is less than a thousandth of a second is an error of rounding.
            wait = wait if wait > 0.001 else 0.0
            self._due[key_id] = due if wait else due + each
            if len(self._due) > _MAX_KEPT:
                self._due.popitem(last=False)
        return wait

    def forget(self) -> None:
        with self._lock:
            self._due.clear()


buckets = Buckets()
