"""A database that cannot be reached: the probe, the errors that mean it, what is answered, and the lines of the log."""

import json
import logging
import re
import threading
import time
from asyncio import wait, wrap_future
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

import psycopg
from django.db import DatabaseError, InterfaceError, InternalError, OperationalError, connection
from psycopg_pool import PoolTimeout, TooManyRequests

from web.admission import BusyError
from web.command_line import command
from web.errors import Refusal

# Seconds. A health check needs an answer now; waiting for a free connection may take far longer.
DEADLINE = 1.0

LIVE, READY = "/healthz", "/readyz"

Application = Callable[[Any, Any, Any], Awaitable[None]]

# One thread with a connection of its own: while the database hangs, all who ask wait for the same probe.
_probes = ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")
_lock = Lock()
_running: Future[bool] | None = None
_own: psycopg.Connection[Any] | None = None


def database_answers(within: float = DEADLINE) -> bool:
    """Whether the database answers a statement within the given seconds."""
    try:
        return _probe().result(within)
    except TimeoutError:
        return False


def close_probe() -> None:
    """Close the connection of the probe."""
    if _own is not None:
        _probes.submit(_close).result()


def _probe() -> Future[bool]:
    """The probe under way, or a new one."""
    global _running
    with _lock:
        if _running is None or _running.done():
            _running = _probes.submit(_is_answered)
        return _running


def _is_answered() -> bool:
    # The database may have been restarted since the last probe.
    for _ in range(2):
        try:
            _ask_database()
        except (DatabaseError, InterfaceError, psycopg.Error):
            _close()
        else:
            return True
    return False


def _ask_database() -> None:
    global _own
    if _own is None:
        _own = psycopg.connect(**connection.get_connection_params(), autocommit=True)
    _own.execute("SELECT 1")


def _close() -> None:
    global _own
    if _own is not None:
        _own.close()
    _own = None


class HealthEndpoints:
    """An ASGI application: `/healthz` and `/readyz`, and everything else for another application."""

    def __init__(self, site: Application) -> None:
        self._site = site

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] in (LIVE, READY):
            await _send(*(await _state(scope["path"])), scope["method"] == "HEAD", send)
        else:
            await self._site(scope, receive, send)


async def _state(path: str) -> tuple[int, dict[str, str]]:
    if path == LIVE:
        return 200, {"status": "live"}
    if await _answers_in_time():
        return 200, {"status": "ready"}
    return 503, {"status": "not ready", "detail": "The database does not answer."}


async def _answers_in_time() -> bool:
    probe = wrap_future(_probe())
    # Not `wait_for`, which would cancel the probe that others wait for too.
    done, _ = await wait({probe}, timeout=DEADLINE)
    return bool(done) and probe.result()


async def _send(status: int, body: dict[str, str], is_head: bool, send: Any) -> None:
    content = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    headers += [(b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if is_head else content})


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
