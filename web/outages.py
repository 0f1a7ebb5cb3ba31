"""A database that cannot be reached: which errors mean that, what is answered then, its lines in the log, and how work
goes on when it is back.
"""

import logging
import re
import threading
import time
from collections.abc import Callable

import psycopg
from django.db import InterfaceError, InternalError, OperationalError, connection
from psycopg_pool import PoolTimeout, TooManyRequests

from web.admission import BusyError
from web.command_line import command
from web.errors import Refusal
from web.health import database_answers

logger = logging.getLogger("mnemoscope.request")

_MESSAGE_CHARACTERS = 200
_REFUSED_VALUE = re.compile(': ".*')
# Connection, authorisation, unknown database, out of resources, shutting down, system error. A statement that was
# cancelled or lost a deadlock is an OperationalError too, and no outage.
OUTAGE_STATES = ("08", "28", "3D", "53", "57P", "58")
# In a cluster a coordinator that loses a server in the middle of a transaction calls that an internal error: when it
# speaks to it, prepares or ends the commit, copies rows to it, or sends it the result of a part of a query.
_LOST_SERVER = re.compile(
    "server closed the connection|connection to the remote node|connection marked as essential"
    "|failed to prepare transaction|could not commit transaction for shard"
    "|could not connect to any active placements|to fetch intermediate results|failed to read result"
)


def is_outage(error: BaseException | None) -> bool:
    """Whether this error means that the database cannot be reached, whatever was asked of it."""
    if isinstance(error, (InternalError, psycopg.InternalError)):
        return _LOST_SERVER.search(str(error)) is not None
    if not isinstance(error, (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)):
        return False
    cause = error.__cause__ if isinstance(error.__cause__, psycopg.Error) else error
    state = getattr(cause, "sqlstate", None)
    return state is None or state.startswith(OUTAGE_STATES)


class DatabaseUnavailableError(Refusal):
    """The database cannot be reached."""

    status = 503
    code = "database_unavailable"
    title = "The database does not answer"
    message = "The database does not answer, so nothing can be read or written now."
    suggestion = f"Try again in a few seconds. If it lasts, run: {command('check --database default')}"
    headers = {"Retry-After": "5"}


class DiskFullError(DatabaseUnavailableError):
    title = "The disk is full"
    message = "The disk of the database is full, so nothing can be written now, and perhaps nothing read."
    suggestion = "Make room on the disk of the database. It continues by itself."


def refusal_of_outage(error: BaseException) -> Refusal:
    """The refusal that an outage amounts to: no connection was free in time, or there is none."""
    if any(isinstance(one, (PoolTimeout, TooManyRequests)) for one in (error, error.__cause__)) and database_answers():
        return BusyError()
    return DiskFullError() if is_disk_full(error) else DatabaseUnavailableError()


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says so; one of Postgres also at the end of its log, if it has stopped itself."""
    return "No space left on device" in str(error) or getattr(error.__cause__, "sqlstate", None) == "53100"


def first_line(error: BaseException) -> str:
    """The message of an exception without its details, such as the row or the value that Postgres refuses."""
    line = str(error).partition("\n")[0]
    if hasattr(error, "sqlstate") or hasattr(error.__cause__, "sqlstate"):
        line = _REFUSED_VALUE.sub(": …", line)
    return line[:_MESSAGE_CHARACTERS]


class _OutageLog:
    """A line for an outage every ten seconds, not one for each request that meets it."""

    SECONDS = 10

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0.0
        self._others = 0

    def log(self, refusal: Refusal, error: BaseException) -> None:
        if isinstance(refusal, BusyError):
            # The load of a server is no news of each request.
            logger.info("%s: %s", refusal.code, first_line(error))
            return
        with self._lock:
            if time.monotonic() < self._next:
                self._others += 1
                return
            others, self._others, self._next = self._others, 0, time.monotonic() + self.SECONDS
        since = f" ({others} more requests since the last line)" if others else ""
        logger.warning("%s%s: %s", refusal.code, since, first_line(error))


outages = _OutageLog()


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
            logging.getLogger(__name__).error(
                "%s; trying again in %s s: %s", failed, seconds, error, exc_info=not explained
            )
            # The next step opens a new connection.
            connection.close()
            wait(seconds, stop)
            failures += 1


def wait(seconds: float, stop: Stop) -> None:
    """Wait this long, or until `stop`."""
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(0.25, left))
