"""Rate limits: token buckets, refilled evenly, for the requests of each key and for guesses of passwords and keys.

Buckets are in the memory of each server process, so that a request costs no write.
"""

import ipaddress
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from web.cache import RevisionCache

# The number of buckets and of keys seen, those used last. A bucket that is full again need not be stored.
_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Allowance:
    """The requests that are allowed: in all, and still now. `wait` is 0, or the seconds until the next one."""

    limit: int
    remaining: int
    reset: int
    """Seconds until the bucket is full again."""
    wait: float = 0.0

    def headers(self) -> dict[str, str]:
        values = {"Limit": self.limit, "Remaining": self.remaining, "Reset": self.reset}
        return {f"X-RateLimit-{name}": str(value) for name, value in values.items()}


class Buckets:
    """Per owner of a bucket, the time at which it will be full again. A full bucket has the tokens of `seconds`."""

    def __init__(self, seconds: float = 60) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._due: OrderedDict[Hashable, float] = OrderedDict()

    def take(self, key_id: Hashable, tokens: int, now: float | None = None) -> Allowance:
        """Take a token unless the bucket is empty."""
        at = time.monotonic() if now is None else now
        each = self._seconds / tokens
        with self._lock:
            due = max(self._due.pop(key_id, at), at)
            wait = due + each - at - self._seconds
            # Less than a millisecond is a rounding error.
            wait = wait if wait > 0.001 else 0.0
            due = due if wait else due + each
            self._due[key_id] = due
            if len(self._due) > _LIMIT:
                self._due.popitem(last=False)
        spent = due - at
        # A thousandth of a token or of a second is a rounding error: clocks are floats.
        remaining = max(0, math.floor((self._seconds - spent) / each + 0.001))
        return Allowance(tokens, remaining, math.ceil(spent - 0.001), wait)

    def wait(self, key_id: Hashable, tokens: int, now: float | None = None) -> float:
        """The seconds until the next token, 0 if there is one. Takes none."""
        at = time.monotonic() if now is None else now
        with self._lock:
            return max(0.0, self._due.get(key_id, at) + self._seconds / tokens - at - self._seconds - 0.001)

    def fill(self, key_id: Hashable) -> None:
        """Give all tokens back."""
        with self._lock:
            self._due.pop(key_id, None)

    def forget(self) -> None:
        with self._lock:
            self._due.clear()


def sender(address: str) -> str:
    """The name under which attempts are counted: an address, or the network of one of IPv6, which is one customer."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


buckets = Buckets()
# Passwords tried, per account and per address.
attempts = Buckets(seconds=15 * 60)
# Different wrong keys, per address.
wrong_keys = Buckets()
# Whether a text, by its hash, was a key of this site a short while ago.
seen_keys = RevisionCache[Hashable, bool](_LIMIT, seconds=60)
