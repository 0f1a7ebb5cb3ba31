"""Every request over HTTP gets an id and a line in the log, whichever application answers it.

The id is the client's `X-Request-ID`, if that is one that may be written into a log, else a random one. It is in every
reply, in every line that is logged while the request is answered, and in the text of an internal error.
"""

import logging
import re
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings

from web.errors import Error

logger = logging.getLogger("mnemoscope.request")
# One line for each request, at the level INFO. Paths and queries may hold names and tokens: it has the route instead.
access_logger = logging.getLogger("mnemoscope.access")

Message = MutableMapping[str, Any]
Scope = Message
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

HEADER = b"x-request-id"
# The session of an agent, if its client names it.
_SESSION_HEADER = b"mcp-session-id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SESSION = re.compile(rb"[\x21-\x7e]{1,200}")
# The status in the log and the metrics of a request whose client has left before the answer, as nginx writes it.
CLIENT_LEFT = 499
UNMATCHED = "unmatched"


@dataclass(slots=True)
class Exchange:
    """A request while it is answered."""

    request_id: str
    route: str = UNMATCHED
    # That of the agent, empty if it is unknown.
    session: str = ""
    client_left: bool = False
    status: int = 0
    # An agent's call that was refused has the status 200.
    tool_refused: bool = False
    seconds: float = 0.0
    started: float = field(default_factory=time.perf_counter)


# The seconds and the status of the last answers of this process, without files and probes.
_recent: deque[tuple[float, int]] = deque(maxlen=1_000)
_NOT_COUNTED = {"static", UNMATCHED, "/healthz", "/readyz"}


def recent_answers() -> list[tuple[float, int]]:
    """The seconds and the status of up to 1,000 answers that this process gave last."""
    return list(_recent)


# Copied into the threads that answer the request.
_current: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def current() -> Exchange | None:
    """The exchange that this code works for; None outside of requests."""
    return _current.get()


def current_id() -> str:
    """The id of the current request, empty outside of requests."""
    exchange = _current.get()
    return exchange.request_id if exchange else ""


def begin(given: bytes = b"", session: bytes = b"") -> Exchange:
    """Make a new exchange the current one, with the id that a client has given, or a random one."""
    accepted = _ACCEPTED.fullmatch(given)
    exchange = Exchange(given.decode() if accepted else secrets.token_hex(8))
    exchange.session = session.decode() if _SESSION.fullmatch(session) else ""
    _current.set(exchange)
    return exchange


def set_route(route: str) -> None:
    """Name the kind of the current request: the pattern of its address, without what is in it."""
    exchange = _current.get()
    if exchange is not None:
        exchange.route = route


def set_tool_refused() -> None:
    """Note that the current request is an agent's call that is refused."""
    exchange = _current.get()
    if exchange is not None:
        exchange.tool_refused = True


# All addresses of the API that lead nowhere.
_ANYTHING = "[\\s\\S]+"


def route_of(pattern: str) -> str:
    """The name of a kind of requests, by Django's pattern of their addresses. There are a few hundred."""
    if _ANYTHING in pattern:
        return UNMATCHED
    pattern = pattern.removeprefix(f"{settings.SITE_PATH[1:]}/")
    # The admin has several hundred of its own.
    return "/admin/" if pattern.startswith("admin/") else f"/{pattern}"


class ExchangeApplication:
    """An ASGI application: another one, whose requests become exchanges.

    `when_done` is called after each with the method and the exchange.
    """

    def __init__(self, application: Application, when_done: Callable[[str, Exchange], None] | None = None) -> None:
        self.application = application
        self._when_done = when_done

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        headers = dict(scope["headers"])
        exchange = begin(headers.get(HEADER, b""), headers.get(_SESSION_HEADER, b""))

        async def receive_and_note() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                exchange.client_left = True
            return message

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                headers = [*message.get("headers", ()), (HEADER, exchange.request_id.encode())]
                message = {**message, "headers": headers}
            await send(message)

        try:
            await self.application(scope, receive_and_note, send_with_id)
        except Exception:
            # Whatever a client causes by leaving is nobody's fault.
            if not exchange.client_left:
                logger.exception("A request failed.")
                if not exchange.status:
                    await _send_internal_error(exchange, send_with_id)
        finally:
            exchange.status = exchange.status or CLIENT_LEFT
            self._end(str(scope["method"]), exchange)

    def _end(self, method: str, exchange: Exchange) -> None:
        exchange.seconds = time.perf_counter() - exchange.started
        if exchange.route not in _NOT_COUNTED:
            _recent.append((exchange.seconds, exchange.status))
        if access_logger.isEnabledFor(logging.INFO):
            fields = {
                "method": method,
                "route": exchange.route,
                "status": exchange.status,
                "ms": round(exchange.seconds * 1000, 1),
            }
            access_logger.info("%s %s %s %.1f ms", *fields.values(), extra={"fields": fields})
        if self._when_done is not None:
            self._when_done(method, exchange)


async def _send_internal_error(exchange: Exchange, send: Send) -> None:
    body = internal_error(exchange.request_id).model_dump_json().encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def internal_error(request_id: str) -> Error:
    """The error for what nobody has foreseen, which is in the log under the id."""
    named = f"with the id of the request, {request_id}" if request_id else "with the time and the request"
    return Error(
        error="internal_error",
        detail="Internal error. It has been logged.",
        suggestion=f"Try again. If it persists, report it {named}.",
        did_you_mean=[],
    )
