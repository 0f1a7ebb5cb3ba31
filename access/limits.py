"""Rate limits: a token bucket for each key, refilled evenly.

Buckets are in the memory of each server process, so that a request costs no write.
"""

import math
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass

# The number of buckets, those used last. A bucket that is full again need not be stored.
_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Allowance:
    """The requests that a key may make: per minute, and still now. `wait` is 0, or the seconds until the next one."""

    limit: int
    remaining: int
    reset: int
    """Seconds until the bucket is full again."""
    wait: float = 0.0

    def headers(self) -> dict[str, str]:
        values = {"Limit": self.limit, "Remaining": self.remaining, "Reset": self.reset}
        return {f"X-RateLimit-{name}": str(value) for name, value in values.items()}


class Buckets:
    """Per key, the time at which its bucket will be full again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due: OrderedDict[int, float] = OrderedDict()

    def take(self, key_id: int, per_minute: int, now: float | None = None) -> Allowance:
        """Take a token unless the bucket is empty. A full bucket has the tokens of a minute."""
        at = time.monotonic() if now is None else now
        each = 60 / per_minute
        with self._lock:
            due = max(self._due.pop(key_id, at), at)
            wait = due + each - at - 60
            # Less than a millisecond is a rounding error.
            wait = wait if wait > 0.001 else 0.0
            due = due if wait else due + each
            self._due[key_id] = due
            if len(self._due) > _LIMIT:
                self._due.popitem(last=False)
        spent = due - at
        # Half a token is a rounding error, not a token.
        remaining = max(0, math.floor((60 - spent) / each + 0.001))
        return Allowance(per_minute, remaining, math.ceil(spent), wait)

    def forget(self) -> None:
        with self._lock:
            self._due.clear()


buckets = Buckets()
