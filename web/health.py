"""Whether the server lives and whether its database answers, for supervisors and load balancers.

`/healthz` and `/readyz` are answered in front of Django, without the queue of requests and the pool of connections: a
server that has much to do is healthy.
"""

import json
from asyncio import wait, wrap_future
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

import psycopg
from django.db import DatabaseError, InterfaceError, connection

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
