"""Following the database: repeating a step until the process stops, with pauses between polls and after failures."""

import logging
import time
from collections.abc import Callable

from django.db import connection

from web.outages import is_disk_full, is_outage

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.25
RETRY_SECONDS = 1
_LONGER = (RETRY_SECONDS, 2, 5, 15, 30)


Stop = Callable[[], bool]
Healthy = Callable[[], None]


def never() -> bool:
    return False


class StoppedError(Exception):
    """Stopped before the work was complete."""


def repeat(step: Callable[[Healthy], None], failed: str, stop: Stop) -> None:
    """Repeat a step until `stop` or StoppedError. Log failures as `failed` and pause, longer after each in a row.

    A step may work for weeks: it calls its argument whenever its work succeeds, so that the next failure is the first.
    """
    failures = 0

    def healthy() -> None:
        nonlocal failures
        failures = 0

    while not stop():
        try:
            step(healthy)
            healthy()
        except StoppedError:
            return
        except Exception as error:  # whatever it is - a full disk, a database that restarts - it is tried again
            seconds = _LONGER[min(failures, len(_LONGER) - 1)]
            # A traceback of an outage or a full disk tells nothing.
            explained = is_outage(error) or is_disk_full(error)
            logger.error("%s; trying again in %s s: %s", failed, seconds, error, exc_info=not explained)
            # The next step opens a new connection.
            connection.close()
            wait(seconds, stop)
            failures += 1


def wait(seconds: float, stop: Stop) -> None:
    """Wait this long, or until `stop`."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(0.25, left))
