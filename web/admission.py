"""Admission of requests: a limited number runs at a time, a limited number waits, and the others are refused at once.

A running request has a thread, and for most of its time a connection to the database. One that waits has neither.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.conf import settings

from web.errors import Refusal

# The longest time that a request waits for its turn: most clients give up soon after.
PATIENCE_SECONDS = 15.0


class BusyError(Refusal):
    """More requests than the server can answer in time."""

    status = 503
    code = "busy"
    title = "The server is busy"
    message = "The server has more requests than it can answer at the moment."
    suggestion = "Try again in a few seconds."
    headers = {"Retry-After": "5"}


class Admission:
    """Gives turns to requests in the order of their arrival. For the tasks of one event loop."""

    def __init__(self, running: int, waiting: int, seconds: float = PATIENCE_SECONDS) -> None:
        self.running = running
        self._free, self._longest, self._seconds = running, waiting, seconds
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def free(self) -> int:
        return self._free

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until fewer than `running` others run. Raise BusyError if too many wait, or after `seconds`."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    async def _enter(self) -> None:
        if self._free:
            self._free -= 1
            return
        if len(self._queue) >= self._longest:
            raise BusyError
        place = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            async with asyncio.timeout(self._seconds):
                await place
        except BaseException as error:
            if place in self._queue:
                self._queue.remove(place)
            elif not place.cancelled():
                # Its turn came at the same moment.
                self._leave()
            if isinstance(error, TimeoutError):
                raise BusyError from None
            raise

    def _leave(self) -> None:
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._free += 1


# Everything that searches, reads or writes.
requests = Admission(settings.REQUESTS_AT_ONCE, settings.REQUESTS_WAITING)
# Static files and the health of the site, which answer while the others wait.
light_requests = Admission(settings.LIGHT_REQUESTS_AT_ONCE, settings.REQUESTS_WAITING)
