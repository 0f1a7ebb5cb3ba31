"""Request plumbing that belongs to no app: static files, response headers, a database that is down, an expired sign-in,
and forms that could not be taken, which are offered to be sent again.

All of it is synchronous, as the views are: under ASGI a request then crosses into a thread once, and stays there.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.signals import got_request_exception
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.middleware.gzip import GZipMiddleware
from django.shortcuts import render, resolve_url
from django.template.loader import render_to_string
from django.utils.http import url_has_allowed_host_and_scheme
from whitenoise.middleware import WhiteNoiseMiddleware

from web.errors import Refusal
from web.exchange import route_of, set_route
from web.outages import is_outage, outages, refusal_of_outage

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
    """Every response has the policies; a view that needs another one sets its own. The route is named for the log."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        return set_policies(get_response(request))

    def name_route(request: HttpRequest, *view: Any) -> None:
        if match := request.resolver_match:
            set_route(route_of(match.route))

    middleware.process_view = name_route  # type: ignore[attr-defined]
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


def refuse_forged_form(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The view of Django's check against forged requests: a page of this site that became old may send again."""
    if urlsplit(request.headers.get("Origin", "")).netloc == request.get_host():
        return offer_to_send_again(request)
    why = "A page of another site sent this form, or the browser has sent neither cookies nor where it comes from."
    return render(request, "403.html", {"exception": why}, status=403)


def keep_what_was_sent(
    get_response: Callable[[HttpRequest], HttpResponseBase],
) -> Callable[[HttpRequest], HttpResponseBase]:
    """Offer to send a form again that needs somebody to sign in first: a redirect would lose what was typed."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if request.method != "POST" or response.status_code != 302 or not request.POST.keys() - {"csrfmiddlewaretoken"}:
            return response
        address = urlsplit(response.headers["Location"])
        asks_to_sign_in = address.path in (resolve_url(settings.LOGIN_URL), resolve_url("admin:login"))
        # A form that signs out leads there too, but not back.
        if not asks_to_sign_in or QueryDict(address.query).get("next") != request.get_full_path():
            return response
        return offer_to_send_again(request)

    return middleware


def offer_to_send_again(request: HttpRequest) -> HttpResponse:
    """A page with all that a form sent, less passwords and files, and a button that sends it."""
    pairs = [(name, value) for name, values in request.POST.lists() for value in values]
    fields = [(name, value) for name, value in pairs if name != "csrfmiddlewaretoken" and "password" not in name]
    context = {
        "fields": fields,
        "files": [file.name for name in request.FILES for file in request.FILES.getlist(name)],
        "has_password": any("password" in name for name, _ in pairs),
        "sign_in": "" if request.user.is_authenticated else resolve_url(settings.LOGIN_URL),
    }
    is_htmx = request.headers.get("HX-Request") == "true"
    # htmx shows nothing of a refusal, and has asked for a part of the page.
    response = render(request, "resend.html", context, status=200 if is_htmx else 403)
    response["Cache-Control"] = "no-store"
    if is_htmx:
        response["HX-Retarget"], response["HX-Reswap"] = "body", "innerHTML"
    return response
