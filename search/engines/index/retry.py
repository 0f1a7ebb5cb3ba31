"""Waiting for the next change, and after a failure."""

import logging
import time
from collections.abc import Callable

from django.db import connection

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.25
_RETRY_SECONDS = (1, 2, 5, 15, 30)


def retry_seconds(failures: int) -> int:
    """The pause after this many earlier failures in a row."""
    return _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]


def wait_to_retry(failed: str, failures: int, stop: Callable[[], bool]) -> None:
    """Log the current exception, close the connection, and wait, longer after each failure."""
    seconds = retry_seconds(failures)
    logger.exception("%s; trying again in %s s.", failed, seconds)
    connection.close()
    wait(seconds, stop)


def wait(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait this long, or until `stop`."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(0.25, left))
