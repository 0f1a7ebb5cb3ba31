"""How long who follows the database waits: for the next change, and after a failure."""

import time
from collections.abc import Callable

POLL_SECONDS = 0.25
_RETRY_SECONDS = (1, 2, 5, 15, 30)


def retry_seconds(failures: int) -> int:
    """How long to wait after one failure more than these in a row."""
    return _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]


def wait(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait so long, or until told to stop."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(0.25, left))
