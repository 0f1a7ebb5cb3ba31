"""The bodies of requests: each is read to its end before anything is done about its request.

A client that sends slowly, or nothing more, holds its connection, and neither a thread nor the turn of a request. What
is read of it is limited: in time, in bytes, and in the bytes of all requests of one sender and of all senders.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Self, TypeVar

from django.conf import settings
from django.http import HttpResponse

from web.admission import BusyError
from web.errors import Refusal
from web.exchange import Application, Message, Receive, Scope, Send

# Read from anybody, within as many seconds; more only from senders who may send it, and in time at this rate at least.
FREE_BYTES, FREE_SECONDS = 64 * 1024, 10.0
LEAST_RATE = 16 * 1024
# Strangers whose bodies are waited for. With one more, the one that has been waited for longest is given up.
MOST_AWAITED = 250
# As much is read of a body that is refused: a client that still sends does not read the answer.
_REFUSED_BYTES = 16 * 1024**2
_PIECE = 1024**2
# The key of the scope of a request under which its body is, as a file.
BODY = "mnemoscope.body"

Result = TypeVar("Result")


class BodyTooLargeError(Refusal):
    """A body that is larger than any that the address takes."""

    status = 413
    code = "too_large"
    title = "Too much at once"
    message = "The body is too large."
    suggestion = "Send less at a time."


class SlowBodyError(Refusal):
    """A body that did not come in time."""

    status = 408
    code = "too_slow"
    title = "The request did not come in time"
    message = "The body of the request did not come in time."
    suggestion = "Send it again, over a faster connection or in smaller parts."


class TooMuchInFlightError(Refusal):
    """A sender whose requests have too many bytes together."""

    status = 429
    code = "too_much_at_once"
    title = "Too much at once"
    message = "Your requests that are not answered yet have too many bytes together."
    suggestion = "Wait until they are answered, and send fewer at a time."
    headers: Mapping[str, str] = {"Retry-After": "5"}


class _ClientLeftError(Exception):
    """A client that has hung up."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The sender of a body, and how many bytes it may have."""

    sender: str
    most: int


class Waiting:
    """Clients that are waited for, oldest first: with more than `most`, the oldest is given up. For one event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._given_up: OrderedDict[object, Callable[[], object]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._given_up)

    def add(self, client: object, give_up: Callable[[], object]) -> None:
        self.remove(client)
        self._given_up[client] = give_up
        if len(self) > self.most:
            self._given_up.popitem(last=False)[1]()

    def remove(self, client: object) -> None:
        self._given_up.pop(client, None)


class BytesInFlight:
    """The bytes of bodies that are read or answered, by sender and of all, with the most of each."""

    def __init__(self, most_of_one: int, most_of_all: int) -> None:
        self.most_of_one, self.most_of_all = most_of_one, most_of_all
        self._of = Counter[str]()

    @property
    def total(self) -> int:
        return self._of.total()

    def add(self, sender: str, size: int, most: int = 0) -> None:
        """Raises TooMuchInFlightError or BusyError."""
        if self._of[sender] + size > max(most, self.most_of_one):
            raise TooMuchInFlightError
        if self.total + size > self.most_of_all:
            raise BusyError
        self._of[sender] += size

    def remove(self, sender: str, size: int) -> None:
        self._of[sender] -= size
        if self._of[sender] <= 0:
            del self._of[sender]


strangers_bytes = BytesInFlight(4 * 1024**2, 64 * 1024**2)
known_bytes = BytesInFlight(64 * 1024**2, 8 * 1024**3)
awaited = Waiting(MOST_AWAITED)
_threads = ThreadPoolExecutor(2, thread_name_prefix="body")


class BodyReader:
    """An ASGI application: another one, whose requests have their bodies under `BODY` in their scopes.

    `sender_of` names the address that a request comes from. `allowance_of` says who sends a body of more than
    `FREE_BYTES`, and how large it may be, or raises why it is not read; `refusal_of` makes the response for that.
    """

    def __init__(
        self,
        application: Application,
        sender_of: Callable[[Scope], str],
        allowance_of: Callable[[Scope], Allowance],
        refusal_of: Callable[[Exception, Scope], HttpResponse],
    ) -> None:
        self._application = application
        self._sender_of, self._allowance_of, self._refusal_of = sender_of, allowance_of, refusal_of

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        with (
            SpooledTemporaryFile(settings.FILE_UPLOAD_MAX_MEMORY_SIZE, "w+b") as file,
            _Body(file, receive, self._sender_of(scope)) as body,
        ):
            try:
                await self._read(body, scope)
            except _ClientLeftError:
                return
            except Exception as error:
                if not isinstance(error, SlowBodyError):
                    await body.discard()
                response = await _in_thread(self._refusal_of, error, scope)
                response["Connection"] = "close"
                await send_response(response, send)
                return
            file.seek(0)
            await self._application({**scope, BODY: file}, receive, send)

    async def _read(self, body: "_Body", scope: Scope) -> None:
        """Read a body to its end. Raises SlowBodyError, another refusal, or _ClientLeftError."""
        announced = int(next((value for name, value in scope["headers"] if name == b"content-length"), b"0"))
        try:
            if announced <= FREE_BYTES and await body.read_free():
                return
            allowance = await _in_thread(self._allowance_of, scope)
            if announced > allowance.most or not await body.read_allowed(allowance):
                raise BodyTooLargeError
        except TimeoutError:
            raise SlowBodyError from None


class _Body:
    """A body that is read into a file. Its bytes are in flight until the end of the block."""

    def __init__(self, file: IO[bytes], receive: Receive, sender: str) -> None:
        self._file, self._receive = file, receive
        self._sender, self._in_flight = sender, strangers_bytes
        # The most of one body, if it is more than its sender may have in flight.
        self._most = 0
        self._size, self._is_whole = 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._in_flight.remove(self._sender, self._size)

    async def read_free(self) -> bool:
        """Read what anybody may send. Returns whether that is all."""
        async with self._limit_wait():
            while not self._is_whole and self._size <= FREE_BYTES:
                await self._read_piece()
        return self._is_whole and self._size <= FREE_BYTES

    async def read_allowed(self, allowance: Allowance) -> bool:
        """Read what a known sender may send. Returns whether that is all."""
        self._in_flight.remove(self._sender, self._size)
        self._sender, self._in_flight, self._most = allowance.sender, known_bytes, allowance.most
        size, self._size = self._size, 0
        self._count(size)
        async with asyncio.timeout(FREE_SECONDS) as deadline:
            latest = deadline.when() or 0.0
            while not self._is_whole and self._size <= allowance.most:
                await self._read_piece()
                deadline.reschedule(latest + self._size / LEAST_RATE)
        return self._size <= allowance.most

    async def discard(self) -> None:
        """Read on a little without keeping it: a client that still sends does not read the answer."""
        read = 0
        with suppress(TimeoutError, _ClientLeftError):
            async with self._limit_wait():
                while not self._is_whole and read < _REFUSED_BYTES:
                    read += len(await self._next_piece())

    @asynccontextmanager
    async def _limit_wait(self) -> AsyncIterator[None]:
        """Wait for a stranger, among all others. Raises TimeoutError."""
        async with asyncio.timeout(FREE_SECONDS) as deadline:

            def give_up() -> None:
                # The time of one that is being ended already cannot be changed.
                if not deadline.expired():
                    deadline.reschedule(0)

            awaited.add(self, give_up)
            try:
                yield
            finally:
                awaited.remove(self)

    async def _read_piece(self) -> None:
        piece = await self._next_piece()
        self._count(len(piece))
        self._file.write(piece)

    def _count(self, size: int) -> None:
        self._in_flight.add(self._sender, size, self._most)
        self._size += size

    async def _next_piece(self) -> bytes:
        message = await self._receive()
        if message["type"] != "http.request":
            raise _ClientLeftError
        self._is_whole = not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece


def read_again(scope: Scope, receive: Receive) -> Receive:
    """A `receive` for an application that reads bodies itself: it returns the one that was read, then waits."""
    file, more = scope[BODY], True

    async def replay() -> Message:
        nonlocal more
        if not more:
            return await receive()
        piece = file.read(_PIECE)
        more = len(piece) == _PIECE
        return {"type": "http.request", "body": piece, "more_body": more}

    return replay


async def send_response(response: HttpResponse, send: Send) -> None:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.items()]
    length = (b"content-length", str(len(response.content)).encode())
    await send({"type": "http.response.start", "status": response.status_code, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": response.content})


async def _in_thread(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call what asks the database, with the variables of the request, such as its id."""
    call = partial(copy_context().run, function, *arguments)
    return await asyncio.get_running_loop().run_in_executor(_threads, call)
