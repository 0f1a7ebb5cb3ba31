"""The lines of the log, as text or as JSON (LOG_FORMAT).

Both have the id of the request, and leave out what does not belong into a log: the traceback of an error that is not
a mistake of this program, the values in the messages of others, which may be the text of a memory, and secrets.
"""

import asyncio
import json
import logging
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from web.exchange import UNMATCHED, access_logger, current, route_of
from web.outages import first_line, is_outage
from web.secrets import mask_note

_DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
_BECAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
# A name with a newline would look like a line of its own.
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127)} | {10: "\\n", 13: "\\r", 9: "\\t"}


def is_mistake(error: BaseException) -> bool:
    """Whether an exception may be a mistake of this program.

    It is not if the client left or is refused, if the database is away, or if it has cancelled a statement.
    """
    from django.core.exceptions import RequestAborted, SuspiciousOperation
    from django.db import InterfaceError, OperationalError
    from psycopg import InterfaceError as DriverInterfaceError
    from psycopg import OperationalError as DriverOperationalError

    from web.errors import Refusal

    outside = (InterfaceError, OperationalError, DriverInterfaceError, DriverOperationalError)
    clients = (Refusal, SuspiciousOperation, RequestAborted, ConnectionError, asyncio.CancelledError)
    return not (isinstance(error, outside + clients) or is_outage(error))


class OurFault(logging.Filter):
    """Keeps the failed requests that are worth a line: neither a client's mistake nor a server that cannot answer now,
    which has a line of its own. Addresses, which may contain names, become routes.
    """

    def __init__(self, *, all_requests: bool = False) -> None:
        super().__init__()
        self._all = all_requests

    def filter(self, record: logging.LogRecord) -> bool:
        request = getattr(record, "request", None)
        if request is not None and isinstance(record.args, tuple) and len(record.args) == 2:
            match = getattr(request, "resolver_match", None)
            record.args = (record.args[0], route_of(match.route) if match else UNMATCHED)
        return self._all or getattr(record, "status_code", 500) not in {*range(400, 500), 503}


class _Line(logging.Formatter):
    """The common part of both formats. `tracebacks=True` shows all tracebacks, for debugging."""

    def __init__(self, *, tracebacks: bool = False) -> None:
        super().__init__()
        self._tracebacks = tracebacks

    def parts(self, record: logging.LogRecord) -> tuple[str, str]:
        """The message of a record, and its traceback or nothing, without secrets."""
        message, trace = self._unmasked_parts(record)
        # The line of a request has nothing that a client has sent.
        return (message, trace) if record.name == access_logger.name else (mask_note(message), mask_note(trace))

    def _unmasked_parts(self, record: logging.LogRecord) -> tuple[str, str]:
        message = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return message, ""
        exchange = current()
        client_left = exchange is not None and exchange.client_left
        if self._tracebacks or (is_mistake(error) and not client_left):
            return message, "".join(_traceback(error, set()))
        reason = first_line(error)
        return (message if not reason or reason in message else f"{message}: {reason}"), ""


class TextLine(_Line):
    """`time LEVEL logger: message [id of the request]`, and the lines of a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        message, trace = self.parts(record)
        exchange = current()
        line = f"{self.formatTime(record)} {record.levelname} {record.name}: {message.translate(_CONTROLS)}"
        line = f"{line} [{exchange.request_id}]" if exchange else line
        return f"{line}\n{trace.rstrip()}" if trace else line


class JsonLine(_Line):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        message, trace = self.parts(record)
        exchange = current()
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": message,
        }
        if exchange:
            entry["request_id"] = exchange.request_id
        # Only what a caller names for this purpose: others add whole requests.
        entry |= getattr(record, "fields", {})
        if trace:
            entry["traceback"] = trace
        return json.dumps(entry, default=str)


def _traceback(error: BaseException, seen: set[int]) -> Iterator[str]:
    """A traceback as Python writes it, with the messages of exceptions shortened."""
    seen.add(id(error))
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and id(cause) not in seen:
        yield from _traceback(cause, seen)
        yield _BECAUSE if error.__cause__ else _DURING
    if error.__traceback__ is not None:
        yield "Traceback (most recent call last):\n"
        yield from traceback.format_tb(error.__traceback__)
    kind = type(error)
    yield f"{kind.__module__}.{kind.__qualname__}: {first_line(error)}\n".removeprefix("builtins.")
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _traceback(inner, seen)
