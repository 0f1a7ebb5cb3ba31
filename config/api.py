"""The API: the NinjaAPI, its authentication and parser, and the handling of every response."""

import json
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, URLResolver, re_path
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError, ValidationErrorContext
from ninja.parser import Parser
from ninja.renderers import JSONRenderer

from access.keys import AUTHENTICATORS
from web.errors import ApiError, close_to
from web.responses import answer, error_of_input
from web.timing import server_timing, timings_of
from web.version import VERSION

DESCRIPTION = """\
Search, facet counts and memories, as the pages show them: the same query gives the same ids, totals and counts.

Send a key as `Authorization: Bearer mnk_…` or `X-API-Key: mnk_…`; make one with
`python manage.py create_api_key NAME --scopes read,write`. Whoever is signed in to the site may also use the session,
with the CSRF token in `X-CSRFToken` for changes.

Every error has one shape: `error` (a word for programs), `detail` (what was wrong, naming every parameter at fault),
`suggestion` (what to do) and `did_you_mean` (names that may have been meant). An unknown parameter is an error.
"""

View = Callable[..., HttpResponse]


class JsonBody(Parser):
    """Parses JSON bodies."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        kind = request.content_type or "application/json"
        if kind != "application/json" and not kind.endswith("+json"):
            raise ApiError(
                415, "unsupported_media_type", f"The body is {kind}.", "Send JSON, with Content-Type: application/json"
            )
        try:
            body: dict[str, Any] = json.loads(request.body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, "malformed_body", f"The body is not JSON: {error}", "Send one JSON object.") from error
        return body


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


class Utf8(JSONRenderer):
    """JSON without escapes for text: half the size in most scripts."""

    json_dumps_params = {"ensure_ascii": False}


class Api(NinjaAPI):
    """NinjaAPI with uniform errors, including those for unknown paths and methods."""

    def validation_error_from_error_contexts(
        self, error_contexts: list[ValidationErrorContext[Any]]
    ) -> ValidationError:
        error = super().validation_error_from_error_contexts(error_contexts)
        for context in error_contexts:
            # A body is nested in our function's argument, whose name the client does not know.
            in_body = context.model.__ninja_param_source__ == "body"
            model = next(iter(context.model.model_fields.values())).annotation if in_body else context.model
            error.__cause__ = error_of_input(context.pydantic_validation_error, model, below=int(in_body))
        return error

    def _get_urls(self) -> list[URLPattern | URLResolver]:
        patterns = super()._get_urls()
        for pattern in patterns:
            if isinstance(pattern, URLPattern):
                pattern.callback = framed(pattern.callback)
        return [*patterns, re_path(r"^[\s\S]+$", framed(_unknown_address))]


def framed(view: View) -> View:
    """A view with uniform errors, the Server-Timing header and Cache-Control."""

    @wraps(view)
    def framed_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        started = time.perf_counter()
        if request.method == "HEAD":
            # The server drops the body; ninja handles only GET.
            request.method = "GET"
        try:
            _check_length(request)
            response = view(request, *args, **kwargs)
        except Exception as error:
            response = answer(request, error)
        if isinstance(response, HttpResponseNotAllowed):
            response = _not_allowed(request, response["Allow"]).response()
        total = (time.perf_counter() - started) * 1000
        response["Server-Timing"] = server_timing({**timings_of(request), "total": total})
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response

    framed_view.csrf_exempt = True  # type: ignore[attr-defined]  # the session door checks the token itself
    return framed_view


def _check_length(request: HttpRequest) -> None:
    """Django limits bodies by their announced length only, so one without a length is refused."""
    if request.headers.get("Transfer-Encoding") and not request.headers.get("Content-Length"):
        raise ApiError(411, "length_required", "The body has no length.", "Send Content-Length, not chunks.")


def _not_allowed(request: HttpRequest, methods: str) -> ApiError:
    return ApiError(
        405,
        "method_not_allowed",
        f"{request.method} is not allowed at this address.",
        f"It allows {methods}.",
        headers={"Allow": methods},
    )


def _unknown_address(request: HttpRequest) -> HttpResponse:
    raise ApiError(
        404,
        "not_found",
        f"Page not found: {request.path[:200]}",
        "The addresses are listed at /api/docs.",
        close_to(request.path.rstrip("/"), _addresses()),
    )


@lru_cache(maxsize=1)
def _addresses() -> tuple[str, ...]:
    return tuple(api.get_openapi_schema()["paths"])


api = Api(
    title="Mnemoscope",
    version=VERSION,
    description=DESCRIPTION,
    auth=AUTHENTICATORS,
    parser=JsonBody(),
    renderer=Utf8(),
    urls_namespace="api",
)
# These replace ninja's own handlers; the list contains every exception.
for _kind in (Exception, Http404, HttpError, ValidationError):
    api.add_exception_handler(_kind, answer)

api.add_router("", "explorer.memory_api.health_router", tags=["health"])
api.add_router("", "explorer.api.router", tags=["search"])
api.add_router("", "explorer.timeline_api.router", tags=["search"])
api.add_router("", "explorer.session_context.router", tags=["search"])
api.add_router("", "explorer.category_api.router", tags=["categories"])
api.add_router("", "explorer.batch_api.router", tags=["memories"])
api.add_router("", "explorer.similar_api.router", tags=["memories"])
api.add_router("", "explorer.memory_api.router", tags=["memories"])
api.add_router("", "curation.api.router", tags=["curation"])
api.add_router("", "explorer.graph.api.router", tags=["entities"])
api.add_router("", "curation.suggestions.api.router", tags=["suggestions"])
