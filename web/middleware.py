"""Request plumbing that belongs to no app: static files, response headers, a database that is down, an expired sign-in.

All of it is synchronous, as the views are: under ASGI a request then crosses into a thread once, and stays there.
"""

import logging
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import psycopg
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.signals import got_request_exception
from django.db import InterfaceError, InternalError, OperationalError
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import resolve_url
from django.template.loader import render_to_string
from django.utils.http import url_has_allowed_host_and_scheme
from psycopg_pool import PoolTimeout, TooManyRequests
from whitenoise.middleware import WhiteNoiseMiddleware

from web.admission import BusyError
from web.command_line import command
from web.errors import Refusal
from web.exchange import route_of, set_route
from web.health import database_answers
from web.logs import first_line

logger = logging.getLogger("mnemoscope.request")

GetResponse = Callable[[HttpRequest], HttpResponseBase]
Response = TypeVar("Response", bound=HttpResponseBase)


class Middleware(Protocol):
    def __call__(self, request: HttpRequest) -> HttpResponseBase: ...


# No inline script or style, no other host: memory text is untrusted, and this is the wall behind the sanitiser.
CONTENT_SECURITY_POLICY = "; ".join(
    [
        "default-src 'self'",
        "img-src 'self' data:",
        "style-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # whitenoise carries no types
    """WhiteNoise, answering with bytes.

    A file object would be a synchronous stream, which Django under ASGI reads to its end first, and warns about.
    """

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        set_route("static")
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file as file:
                content = file.read()
        response = HttpResponse(content, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response


# Nothing of this is used: a page that somebody manages to put in a frame or a script cannot ask for it either.
PERMISSIONS_POLICY = ", ".join(f"{feature}=()" for feature in ("camera", "geolocation", "microphone", "payment", "usb"))


def policy_headers(get_response: GetResponse) -> Middleware:
    """Every response has the policies; a view that needs another one sets its own."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if match := request.resolver_match:
            set_route(route_of(match.route))
        return set_policies(response)

    return middleware


def set_policies(response: Response) -> Response:
    response.headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
    response.headers.setdefault("Permissions-Policy", PERMISSIONS_POLICY)
    return response


def compress_pages(get_response: GetResponse) -> Middleware:
    """Compress pages, unless a page of another site has made the browser ask for them.

    Such a page could put text of its own into an address, and guess secret text from the lengths of the answers
    (BREACH). Browsers tell by a header that no script can set who has made them ask.
    """
    gzip = GZipMiddleware(lambda request: HttpResponse())

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        is_page = response.get("Content-Type", "").startswith("text/html")
        if not is_page or request.headers.get("Sec-Fetch-Site") not in ("same-origin", "none"):
            return response
        compressed: HttpResponseBase = gzip.process_response(request, response)
        return compressed

    return middleware


def ends_with_dot(host: str) -> bool:
    """Whether a Host header has the absolute form of a name, such as `localhost.`, with or without a port."""
    return host.partition(":")[0].endswith(".")


def refuse_absolute_names(get_response: GetResponse) -> Middleware:
    """Refuse `localhost.`: to Django it is `localhost`, to browsers another site with cookies of its own."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        host = request.META.get("HTTP_HOST", "")
        if ends_with_dot(host):
            raise DisallowedHost(f"The name of this site has no dot at its end: {host[:100]!r}.")
        return get_response(request)

    return middleware


# ── A database that is down ───────────────────────────────────────────────────────────────────────────────────────────

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


def refusal_response(path: str, refusal: Refusal) -> HttpResponse:
    """A refusal, made without the database: the API's error shape below /api/, a small page elsewhere."""
    if path.startswith("/api/"):
        response = refusal.response()
    else:
        # Without the request, so that no context processor asks for the user.
        context = {"title": refusal.title, "detail": refusal.detail, "suggestion": refusal.suggestion}
        page = render_to_string("outage.html", context)
        response = HttpResponse(page, status=refusal.status, headers=dict(refusal.headers))
    response["Cache-Control"] = "no-store"
    return response


def _path_of(request: HttpRequest) -> str:
    return request.path_info.removeprefix(settings.SITE_PATH)


def is_disk_full(error: BaseException) -> bool:
    """Whether an error says so; one of Postgres also at the end of its log, if it has stopped itself."""
    return "No space left on device" in str(error) or getattr(error.__cause__, "sqlstate", None) == "53100"


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


class _DatabaseOutage:
    """Answers for views (process_exception) and for the middleware between here and them (the signal)."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        # Django has already turned what a middleware raised into a response; the signal left a note on the request.
        outage = getattr(request, "met_outage", None)
        return refusal_response(_path_of(request), refusal_of_outage(outage)) if outage else response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, Refusal):
            return refusal_response(request.path_info, exception)
        if not is_outage(exception):
            return None
        refusal = refusal_of_outage(exception)
        outages.log(refusal, exception)
        return refusal_response(_path_of(request), refusal)


def database_outage(get_response: GetResponse) -> Middleware:
    return _DatabaseOutage(get_response)


def _note_outage(*, request: HttpRequest | None = None, **_: object) -> None:
    error = sys.exc_info()[1]
    if request is not None and is_outage(error):
        request.met_outage = error  # type: ignore[attr-defined]


got_request_exception.connect(_note_outage, dispatch_uid="web.middleware.note_outage")


# ── An expired sign-in ────────────────────────────────────────────────────────────────────────────────────────────────


def sign_in_redirect_for_htmx(get_response: GetResponse) -> Middleware:
    """A fragment asked for after the session ended would put the sign-in page inside the page: go there instead."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if response.status_code != 302 or request.headers.get("HX-Request") != "true":
            return response
        address = urlsplit(response.headers["Location"])
        if address.path != resolve_url(settings.LOGIN_URL):
            return response
        answer = HttpResponse(status=204)
        answer.cookies = response.cookies
        answer["HX-Redirect"] = f"{address.path}?{_back_to_page(request, QueryDict(address.query))}"
        return answer

    return middleware


def _back_to_page(request: HttpRequest, query: QueryDict) -> str:
    """After signing in the visitor wants the page that he was on, not the fragment that it asked for."""
    page = request.headers.get("HX-Current-URL", "")
    if page and url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure()):
        parts = urlsplit(page)
        query = query.copy()
        query["next"] = f"{parts.path}?{parts.query}" if parts.query else parts.path
    return query.urlencode(safe="/")
