"""Connections of HTTP: how long a client may take for the headers of a request and to take an answer, and their size.

The body of a request is the concern of `web.bodies`.
"""

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from web.bodies import Waiting

HEADER_SECONDS = 10.0
# The address of a request and its headers together, and the number of headers.
MAX_HEADER_BYTES, MAX_HEADERS = 64 * 1024, 100
# A client that takes nothing of an answer for as long is given up.
TAKE_SECONDS = 60.0
# Connections whose next request is waited for. With one more, the one that has been waited for longest is given up.
MOST_AWAITED = 500
_TOO_LARGE = b"The headers of the request are too large."
_REFUSAL = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_TOO_LARGE), _TOO_LARGE)
)
awaited = Waiting(MOST_AWAITED)


class BoundedProtocol(HttpToolsProtocol):
    """The server's protocol, for clients that may be slow or hostile."""

    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _received = _size = _headers = 0
    _is_whole = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        received = len(data) + (self._received if self._timer is not None else 0)
        super().data_received(data)
        if self._timer is not None:
            # The parser says nothing of a header that has begun.
            self._received = received
            self._refuse_too_much()

    # ── What the parser finds ────────────────────────────────────────────────────────────────────────────────────────

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = self._headers = 0
        if self._timer is None:
            self._await_headers()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._headers += 1
        self._grow(len(name) + len(value))

    def on_headers_complete(self) -> None:
        self._stop_waiting()
        self._received, self._is_whole = 0, False
        if not self.transport.is_closing():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._is_whole = True

    def on_response_complete(self) -> None:
        has_rest, has_next = not self._is_whole, bool(self.pipeline)
        super().on_response_complete()
        if has_rest and not has_next:
            # Nobody reads the rest of the request.
            self.transport.close()
        elif not has_next and not self.transport.is_closing():
            awaited.add(self, self.transport.close)

    # ── What the client takes ────────────────────────────────────────────────────────────────────────────────────────

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self.loop.call_later(TAKE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    # ── Limits ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _await_headers(self) -> None:
        self._timer = self.loop.call_later(HEADER_SECONDS, self.transport.close)
        awaited.add(self, self.transport.close)

    def _stop_waiting(self) -> None:
        awaited.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _grow(self, size: int) -> None:
        self._size += size
        self._refuse_too_much()

    def _refuse_too_much(self) -> None:
        is_too_much = max(self._received, self._size) > MAX_HEADER_BYTES or self._headers > MAX_HEADERS
        if is_too_much and not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.close()
