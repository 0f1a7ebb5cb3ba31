"""Django as an ASGI application whose requests run in a limited number of threads.

Django's own handler starts a thread for each request. All views and middleware of this project are synchronous, so a
request is one call in a thread here.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import IO, Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core import signals
from django.core.checks import CheckMessage, Error
from django.core.handlers.asgi import ASGIHandler, get_script_prefix
from django.db import connections
from django.http import HttpResponseBase, StreamingHttpResponse
from django.urls import get_resolver, set_script_prefix
from django.urls.resolvers import URLResolver

from web.admission import Admission, BusyError, light_requests, requests
from web.bodies import BODY
from web.middleware import refusal_response, set_policies

HEALTH = "/api/health"


class SiteHandler(ASGIHandler):
    """Django's handler, with the middleware in the thread of the view."""

    def __init__(self) -> None:
        self.load_middleware(is_async=False)
        self._threads: dict[Admission, Executor] = {
            lane: ThreadPoolExecutor(lane.running, thread_name_prefix=name)
            for lane, name in ((requests, "request"), (light_requests, "light-request"))
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise ValueError(f"This application serves HTTP, not {scope['type']}.")
        response = await self._answer(scope, scope[BODY], receive)
        if response is None:
            return
        try:
            await self.send_response(response, send)
        finally:
            if response.streaming:
                # Again for a client that has hung up before the first piece.
                await asyncio.to_thread(response.close)

    async def _answer(self, scope: Any, body: IO[bytes], receive: Any) -> HttpResponseBase | None:
        """The response; None if the client has hung up while it waited."""
        lane = light_requests if is_light(scope["path"]) else requests
        gone = asyncio.ensure_future(receive())
        try:
            async with lane.turn():
                if gone.done():
                    return None
                # With the variables of the request, such as its id.
                respond = partial(copy_context().run, self._respond, scope, body)
                response = await asyncio.get_running_loop().run_in_executor(self._threads[lane], respond)
                if isinstance(response, StreamingHttpResponse):
                    response.streaming_content = _pieces(response, iter(response), asyncio.ensure_future(receive()))
                return response
        except BusyError as busy:
            return set_policies(refusal_response(scope["path"], busy))
        finally:
            gone.cancel()

    def _respond(self, scope: Any, body: IO[bytes]) -> HttpResponseBase:
        # The URLconf has it.
        scope = {**scope, "path": settings.SITE_PATH + scope["path"]}
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        with body:
            request, refusal = self.create_request(scope, body)
            response: Any = refusal if request is None else self.get_response(request)
            if not response.streaming:
                # Returns the connection to the pool, before a slow client has read everything.
                response.close()
        found: HttpResponseBase = response
        return found


async def _pieces(
    response: HttpResponseBase, iterator: Iterator[bytes], gone: asyncio.Future[Any]
) -> AsyncIterator[bytes]:
    """The pieces of a streaming response, each made when the client has taken the one before, until it has hung up.

    All in one thread of its own, since what makes them may hold a transaction, which belongs to its thread.
    """
    loop = asyncio.get_running_loop()
    thread = ThreadPoolExecutor(1, thread_name_prefix="stream")
    try:
        while not gone.done() and (piece := await loop.run_in_executor(thread, next, iterator, None)) is not None:
            yield piece
    finally:
        gone.cancel()
        thread.submit(_end_stream, response)
        thread.shutdown(wait=False)


def _end_stream(response: HttpResponseBase) -> None:
    """Close the generators of a response, which ends their transaction, and the connection of this thread."""
    response.close()
    connections.close_all()


def is_light(path: str) -> bool:
    """Whether the answer is a file, or the health of the site."""
    return path == HEALTH or path.startswith(settings.STATIC_URL.removeprefix(settings.SITE_PATH))


class MountedApplication:
    """An ASGI application that takes the path of the site off the addresses of requests, unless the proxy has."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and settings.SITE_PATH:
            scope = {**scope, "path": path_below(settings.SITE_PATH, scope["path"])}
        await self._inner(scope, receive, send)


def path_below(mount: str, path: str) -> str:
    """A path below that of the site. Metadata of OAuth has it at the end (RFC 8414, RFC 9728)."""
    if known := re.fullmatch(rf"(/\.well-known/[^/]+){re.escape(mount)}(/.*)?", path):
        return "".join(known.groups(""))
    return path.removeprefix(mount) or "/" if f"{path}/".startswith(f"{mount}/") else path


def mount_is_free(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that no address of the site begins like its path: it could not be seen whether the proxy took that off."""
    if not settings.SITE_PATH:
        return []
    first, patterns = settings.SITE_PATH.split("/")[1], get_resolver().url_patterns
    if len(patterns) == 1 and isinstance(site := patterns[0], URLResolver):  # the path itself
        patterns = site.url_patterns
    if first not in {*_first_parts(patterns), "mcp", "static", "healthz", "readyz", "metrics"}:
        return []
    return [
        Error(
            f"The path of PUBLIC_URL begins with /{first}, and so do addresses of the site itself.",
            hint=f"Choose another path, such as {urlsplit(settings.PUBLIC_URL).netloc}/memories.",
            id="web.E001",
        )
    ]


def _first_parts(patterns: Sequence[Any]) -> Iterator[str]:
    for one in patterns:
        if isinstance(one, URLResolver) and not str(one.pattern):
            yield from _first_parts(one.url_patterns)
        else:
            yield str(one.pattern).lstrip("^").split("/", maxsplit=1)[0]
