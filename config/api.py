"""The API: the NinjaAPI, its authentication and parser, and the handling of every response."""

import hashlib
import json
import re
import time
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.middleware.gzip import GZipMiddleware
from django.urls import URLPattern, URLResolver, re_path
from django.utils.cache import get_conditional_response, patch_vary_headers
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError, ValidationErrorContext
from ninja.openapi.docs import Swagger
from ninja.parser import Parser
from ninja.renderers import JSONRenderer

from access.idempotency import idempotent
from access.keys import AUTHENTICATORS, allowance_of
from memories.storage import one_revision
from web.errors import ApiError, close_to
from web.responses import answer, error_of_input
from web.timing import server_timing, timings_of
from web.version import API_VERSION, VERSION

DESCRIPTION = """\
Search, facet counts and memories, as the pages show them: the same query gives the same ids, totals and counts.

Send a key as `Authorization: Bearer mnk_…` or `X-API-Key: mnk_…`; make one under [Keys](/settings/keys/), or with
`.venv/bin/python manage.py create_api_key NAME --scopes read,write`. Whoever is signed in to the site may also use the
session, with the CSRF token in `X-CSRFToken` for changes.

    curl -H "Authorization: Bearer $KEY" "$SITE/api/search?q=retries&type=decision&include_facets=1"

Every error has one shape: `error` (a word for programs), `detail` (what was wrong, naming every parameter at fault),
`suggestion` (what to do) and `did_you_mean` (names that may have been meant). An unknown parameter is an error.
"""

View = Callable[..., HttpResponse]

# Milliseconds in a reply, which differ each time. Within a text the quotes would be escaped.
_TIMINGS = re.compile(rb'"(?:took_ms|ms|recalls)": [0-9.]+')
# The end of a sentence.
_SENTENCE = re.compile(r"(?<=[.])\s")
_GZIP = GZipMiddleware(lambda request: HttpResponse())


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

    def get_openapi_schema(self, **kwargs: Any) -> Any:
        """The document. The first sentence of each description is the summary, which lists of operations show."""
        schema = _tidy(super().get_openapi_schema(**kwargs))
        for operation in (one for methods in schema["paths"].values() for one in methods.values()):
            text = " ".join(operation["description"].partition("\n\n")[0].split())
            operation["summary"] = _SENTENCE.split(text, maxsplit=1)[0].rstrip(".")
            # Without a statement, it would be unsaid whether anybody may call it.
            operation.setdefault("security", [])
        return schema

    def _get_urls(self) -> list[URLPattern | URLResolver]:
        patterns = super()._get_urls()
        for pattern in patterns:
            if isinstance(pattern, URLPattern):
                pattern.callback = framed(pattern.callback)
        return [*patterns, re_path(r"^[\s\S]+$", framed(_unknown_address))]


def _tidy(node: Any) -> Any:
    """A part of the document without unions of one, and without blanks as defaults of texts that may not be blank."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.keys() == {"allOf"} and len(node["allOf"]) == 1:
        return _tidy(node["allOf"][0])
    unsendable = node.get("default") == "" and node.get("minLength")
    return {key: _tidy(value) for key, value in node.items() if not (unsendable and key == "default")}


def framed(view: View) -> View:
    """A view with uniform errors, and with the headers that all answers of the API have."""

    @wraps(view)
    def framed_view(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        started = time.perf_counter()
        if request.method == "HEAD":
            # The server drops the body; ninja handles only GET.
            request.method = "GET"
        try:
            _check_length(request)
            response = idempotent(request, lambda: view(request, *args, **kwargs), one_revision)
        except Exception as error:
            response = answer(request, error)
        if isinstance(response, HttpResponseNotAllowed):
            response = _other_method(request, response["Allow"])
        if allowance := allowance_of(request):
            # A browser would keep what a session reads on its disk, so only programs with keys are asked to compare.
            response = _compressed(request, _compared(request, response))
            for name, value in allowance.headers().items():
                response[name] = value
        total = (time.perf_counter() - started) * 1000
        response["Server-Timing"] = server_timing({**timings_of(request), "total": total})
        response["API-Version"] = API_VERSION
        response.headers.setdefault("Cache-Control", "private, no-store")
        return response

    framed_view.csrf_exempt = True  # type: ignore[attr-defined]  # the session door checks the token itself
    return framed_view


def _check_length(request: HttpRequest) -> None:
    """Django limits bodies by their announced length only, so one without a length is refused."""
    if request.headers.get("Transfer-Encoding") and not request.headers.get("Content-Length"):
        raise ApiError(411, "length_required", "The body has no length.", "Send Content-Length, not chunks.")


def _other_method(request: HttpRequest, methods: str) -> HttpResponse:
    """The answer to a method that no operation at the address has: to OPTIONS, what the methods are."""
    if request.method == "OPTIONS":
        also = ["HEAD", "OPTIONS"] if "GET" in methods else ["OPTIONS"]
        return HttpResponse(status=204, headers={"Allow": ", ".join([methods, *also])})
    raised = ApiError(
        405,
        "method_not_allowed",
        f"{request.method} is not allowed at this address.",
        f"It allows {methods}.",
        headers={"Allow": methods},
    )
    return raised.response()


def _compared(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """A reply with a weak ETag over all but its timings, or 304 if the client has the same one already.

    An ETag that an operation has set itself stays: it belongs to the memory, for `If-Match`.
    """
    if request.method != "GET" or response.status_code != 200 or response.streaming or response.has_header("ETag"):
        return response
    response["ETag"] = f'W/"{hashlib.sha256(_TIMINGS.sub(b"", response.content)).hexdigest()[:32]}"'
    response["Cache-Control"] = "private, no-cache"
    patch_vary_headers(response, ("Authorization", "X-API-Key", "Cookie"))
    found: HttpResponse | None = get_conditional_response(request, response["ETag"], response=response)
    return found or response


def _compressed(request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """The response compressed, if the client accepts that and it is worth it.

    Only replies to keys are: no page of another site can have a browser send one, so nothing can be guessed from the
    lengths of the replies (BREACH). Pages and replies to sessions stay as they are.
    """
    compressed: HttpResponse = _GZIP.process_response(request, response)  # type: ignore[assignment]
    return compressed


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


# The groups of operations, in the order of the reference.
_GROUPS = {
    "search": "Search, count, compare and draw memories; sessions, saved views and lists of values.",
    "memories": "Store, read, change, delete and export memories, one or many; their history.",
    "categories": "The tree of categories with exact counts.",
    "entities": "Entities, concepts and how they are related.",
    "curation": "Change the vocabulary with a preview and undo.",
    "suggestions": "What the system proposes, to accept or reject.",
    "imports": "Import from other systems, and follow them.",
    "health": "Whether the site works.",
}

api = Api(
    title="Mnemoscope API",
    version=VERSION,
    description=DESCRIPTION,
    openapi_extra={
        "tags": [{"name": name, "description": text} for name, text in _GROUPS.items()],
        "info": {"license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
    },
    # The host that the document came from.
    servers=[{"url": "/"}],
    # Groups are opened one by one: all operations at once are four thousand elements.
    docs=Swagger(settings={"docExpansion": "none"}),
    auth=AUTHENTICATORS,
    parser=JsonBody(),
    renderer=Utf8(),
    urls_namespace="api",
)
# These replace ninja's own handlers; the list contains every exception.
for _kind in (Exception, Http404, HttpError, ValidationError):
    api.add_exception_handler(_kind, answer)

api.add_router("", "explorer.memory.api.health_router", tags=["health"])
api.add_router("", "explorer.explore.api.router", tags=["search"])
api.add_router("", "explorer.compare.api.router", tags=["search"])
api.add_router("", "explorer.explore.timeline_api.router", tags=["search"])
api.add_router("", "explorer.map.api.router", tags=["search"])
api.add_router("", "explorer.sessions.context.router", tags=["search"])
api.add_router("", "explorer.listings_api.router", tags=["search"])
api.add_router("", "explorer.projects.api.router", tags=["search"])
api.add_router("", "explorer.views.api.router", tags=["search"])
api.add_router("", "explorer.categories.api.router", tags=["categories"])
api.add_router("", "explorer.memory.bulk_api.router", tags=["memories"])
api.add_router("", "explorer.memory.similar_api.router", tags=["memories"])
api.add_router("", "explorer.memory.api.router", tags=["memories"])
api.add_router("", "explorer.history.api.router", tags=["memories"])
api.add_router("", "explorer.reads.api.router", tags=["memories"])
api.add_router("", "transfer.export_api.router", tags=["memories"])
api.add_router("", "curation.api.router", tags=["curation"])
api.add_router("", "home.api.router", tags=["search"])
api.add_router("", "transfer.api.router", tags=["imports"])
api.add_router("", "transfer.follow.api.router", tags=["imports"])
api.add_router("", "explorer.graph.api.router", tags=["entities"])
api.add_router("", "curation.suggestions.api.router", tags=["suggestions"])
