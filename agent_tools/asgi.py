"""`/mcp` in the process of the site: authentication, and the lifetime of the MCP server.

The server needs a task that lives as long as the process, for which Django has no place. This ASGI application wraps
Django's, and loads the MCP server on first use.
"""

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import DisallowedHost
from django.core.handlers.asgi import ASGIRequest
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port, validate_host
from django.urls import reverse
from django.utils.http import is_same_domain

from access.keys import KeyRefusedError, key_from, viewer_of_raw
from access.limits import Buckets, sender
from access.models import AuditEvent
from access.viewer import Viewer, viewer_of_user
from agent_tools.claude_mem import worker
from agent_tools.workflow import DEFAULT_PROFILE
from transfer.jobs import check_may_import
from transfer.uploads import MAX_FORM
from web.admission import requests
from web.bodies import BODY, Allowance, BodyTooLargeError, read_again, send_response
from web.errors import ApiError, sentences
from web.exchange import Application, Message, Receive, Scope, Send, set_route
from web.middleware import ends_with_dot, refusal_response, set_policies
from web.params import Params
from web.responses import answer, error_of
from web.serving import speaks_safely

logger = logging.getLogger("mnemoscope.mcp")

PATHS = ("/mcp", "/mcp/")
METADATA = "/.well-known/oauth-protected-resource/mcp"
# As the SDK names them: what `/mcp` is, where tokens come from, and the steps to one.
OAUTH_PATHS = (METADATA, "/.well-known/oauth-authorization-server", "/authorize", "/token", "/register", "/revoke")
# Requests to them that an address may send within a minute.
OAUTH_PER_ADDRESS = 120
oauth_requests = Buckets()
# A tool call contains at most a single memory; the limit is that of the API.
MAX_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
_VIEWER = "mnemoscope.viewer"

# The port for claude-mem's protocol, if `manage.py up` was called with it.
worker_port: int | None = None


def _is_for_worker(scope: Scope) -> bool:
    return worker_port is not None and bool(scope.get("server")) and scope["server"][1] == worker_port


class McpApplication:
    """An ASGI application: `/mcp` for agents, every other path for the site."""

    def __init__(self, site: Application) -> None:
        self._site = site
        self._server: _McpServer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http" and _is_for_worker(scope):
            set_route("claude-mem")
            await worker.worker(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in OAUTH_PATHS:
            await self._oauth(scope, receive, send)
        elif scope["type"] == "http" and scope["path"] in PATHS:
            set_route(PATHS[0])
            headers = _headers_of(scope)
            if allowed := _headers_for_page(headers):
                send = _add_headers(allowed, send)
            if allowed and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
                # A browser asks whether the page may call, without the key.
                await send_response(HttpResponse(status=204), send)
            else:
                await _answer_in_turn(self._call, scope, receive, send, _refusal)
        else:
            await self._site(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Handle the lifespan of the server."""
        await receive()
        self._server = _McpServer()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._server.end()
        self._server = None
        await send({"type": "lifespan.shutdown.complete"})

    async def _oauth(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let apps ask for access. Any page may: cookies count for nothing here."""
        try:
            site = _site_of(scope)
            if wait := oauth_requests.take(sender(_address_of(scope)), OAUTH_PER_ADDRESS).wait:
                after = {"Retry-After": str(math.ceil(wait))}
                raise ApiError(429, "too_many_requests", "Too many requests.", "Wait some seconds.", headers=after)
            if not speaks_safely(site):
                raise ApiError(404, "not_found", "OAuth needs HTTPS.", "Use an address with https, or a key.")
            endpoints = await asyncio.to_thread(_load_oauth, site)
        except Exception as error:
            await send_response(await sync_to_async(_error)(error, scope), send)
        else:
            await _answer_in_turn(endpoints, scope, receive, send, _error)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call of a tool, in its turn."""
        viewer = await sync_to_async(authenticate, thread_sensitive=False)(scope)
        _asked_of(scope)
        if scope["method"] != "POST":
            # A stream would only wait: there are no sessions, and the server has nothing to say unasked.
            raise ApiError(
                405,
                "method_not_allowed",
                f"{scope['method']} is not allowed at this address.",
                "It allows POST.",
                headers={"Allow": "POST"},
            )
        if self._server is None:
            raise ApiError(
                503,
                "not_started",
                "The web server has not started the ASGI lifespan of this application.",
                "Run it with the lifespan on (uvicorn: --lifespan on), or use manage.py mcp.",
            )
        manager = await self._server.manager()
        # The MCP server expects a single spelling of its path.
        scope = {**scope, _VIEWER: viewer, "path": PATHS[0]}
        body = scope[BODY].read()
        messages = messages_in(body, _headers_of(scope))
        if isinstance(messages, dict):
            await manager.handle_request(scope, _receive_of(body, receive), send)
        else:
            await self._answer_batch(manager, messages, scope, receive, send)

    async def _answer_batch(
        self, manager: Any, messages: list[Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer the messages of a batch one after another, and send the replies together."""
        replies = []
        for number, message in enumerate(messages):
            try:
                if number:
                    # Each counts for the limit of its key, as if it had been sent alone.
                    scope = {**scope, _VIEWER: await sync_to_async(authenticate, thread_sensitive=False)(scope)}
                body = json.dumps(check_in_batch(message)).encode()
            except Exception as error:
                response = await sync_to_async(_refusal)(error, scope)
                identity = message.get("id") if isinstance(message, dict) else None
                replies.append(json.loads(response.content) | {"id": identity})
                continue
            sent = bytearray()

            async def keep(part: Message, sent: bytearray = sent) -> None:
                sent.extend(part.get("body", b""))

            await manager.handle_request(scope, _receive_of(body, receive), keep)
            # A notification has no reply.
            if sent:
                replies.append(json.loads(sent))
        response = HttpResponse(json.dumps(replies), "application/json") if replies else HttpResponse(status=202)
        await send_response(response, send)


async def _answer_in_turn(
    application: Application,
    scope: Scope,
    receive: Receive,
    send: Send,
    refusal: Callable[[Exception, Scope], HttpResponse],
) -> None:
    """The answer of an application, or a refusal. It is sent after the turn, which a slow client must not hold."""
    messages: list[Message] = []

    async def keep(message: Message) -> None:
        messages.append(message)

    try:
        async with requests.turn():
            await application(scope, read_again(scope, receive), keep)
    except Exception as error:
        await send_response(await sync_to_async(refusal)(error, scope), send)
        return
    for message in messages:
        await send(message)


def _receive_of(body: bytes, receive: Receive) -> Receive:
    """A `receive` that returns a body, then waits."""
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return parts.pop() if parts else await receive()

    return replay


class _McpServer:
    """Runs the MCP server from its first use."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._started: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()

    async def manager(self) -> Any:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await asyncio.shield(self._started)

    async def end(self) -> None:
        self._over.set()
        if self._task is not None:
            with contextlib.suppress(Exception):
                await self._task

    async def _run(self) -> None:
        try:
            manager = await asyncio.to_thread(_load)
            async with manager.run():
                self._started.set_result(manager)
                await self._over.wait()
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)


def _load() -> Any:
    """Load the server, which takes a second, only when it is needed."""
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from agent_tools.server import Caller, build_server

    # Stateless: every request has its key, and any process may answer it. `authenticate` has checked Host and Origin by
    # the site's settings, which allow more patterns than the SDK.
    def viewer_of(context: Any) -> Viewer:
        viewer: Viewer = context.request.scope[_VIEWER]
        return viewer

    def caller_of(context: Any) -> Caller:
        scope = context.request.scope
        asked = _asked_of(scope)
        return Caller(asked.tools, asked.structured, f"{scope['scheme']}://{context.request.headers['host']}")

    return StreamableHTTPSessionManager(
        build_server(viewer_of, caller_of),
        json_response=True,
        stateless=True,
        max_request_body_size=MAX_BYTES,
    )


def _asked_of(scope: Scope) -> "McpRequest":
    """The parameters in the query string of a request. Raises QueryError."""
    return McpRequest.from_pairs(parse_qsl(scope["query_string"].decode("latin-1")))


class McpRequest(Params):
    """The query string of the address that a client connects to."""

    tools: Literal["core", "all", "chatgpt"] = DEFAULT_PROFILE
    structured: bool = True


# --- bodies ------------------------------------------------------------------------------------------------------


def sender_of(scope: Scope) -> str:
    return sender(_address_of(scope))


def allowance_of(scope: Scope) -> Allowance:
    """The sender of a large body, and how large it may be. Raises why nobody may."""
    if _is_for_worker(scope):
        return Allowance("claude-mem", worker.MAX_BYTES)
    if scope["path"] in OAUTH_PATHS:
        raise BodyTooLargeError
    try:
        if raw := _key_in(_headers_of(scope)):
            return Allowance(f"key {key_from(raw, _address_of(scope)).pk}", MAX_BYTES)
        request = ASGIRequest(dict(scope), BytesIO())
        request.session = SessionStore(request.COOKIES.get(settings.SESSION_COOKIE_NAME))
        person = get_user(request)
        if not person.is_authenticated:
            raise KeyRefusedError if _is_of_program(scope) else BodyTooLargeError
        if settings.SITE_PATH + scope["path"] != reverse("imports:upload"):
            return Allowance(f"person {person.pk}", MAX_BYTES)
        check_may_import(viewer_of_user(person))
        return Allowance(f"files of person {person.pk}", MAX_FORM)
    finally:
        # Django's end-of-request signals do not reach this thread.
        close_old_connections()


def refusal_of(error: Exception, scope: Scope) -> HttpResponse:
    """The response for a request whose body is not read."""
    if scope["path"] in PATHS:
        return _refusal(error, scope)
    if _is_of_program(scope):
        return _error(error, scope)
    return set_policies(refusal_response(scope["path"], error_of(error)))


def _is_of_program(scope: Scope) -> bool:
    path = scope["path"]
    return path.startswith("/api/") or path in PATHS or path in OAUTH_PATHS


# --- authentication ----------------------------------------------------------------------------------------------


def authenticate(scope: Scope) -> Viewer:
    """The viewer of a request. Raises DisallowedHost, ApiError, KeyRefusedError or TooManyRequestsError."""
    try:
        return _viewer_of(scope)
    finally:
        # Django's end-of-request signals do not reach this thread.
        close_old_connections()


def _viewer_of(scope: Scope) -> Viewer:
    headers = _headers_of(scope)
    host = headers.get("host", "")
    if ends_with_dot(host) or not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
        raise DisallowedHost(f"This site has no name {host[:100]!r}. If it should, add the name to ALLOWED_HOSTS.")
    _check_origin(headers.get("origin", ""), host)
    raw = _key_in(headers)
    if not raw:
        raise KeyRefusedError
    return viewer_of_raw(raw, AuditEvent.Door.MCP, _address_of(scope))


def _headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def _key_in(headers: Mapping[str, str]) -> str:
    """The key in the headers of a request, empty if there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "").strip()


def _address_of(scope: Scope) -> str:
    """The address of the client, empty if there is none."""
    address: str = (scope.get("client") or ("",))[0]
    return address


def _site_of(scope: Scope) -> str:
    """The address of the site, as the client reaches it. Raises DisallowedHost."""
    request = ASGIRequest(dict(scope), BytesIO())
    if ends_with_dot(request.get_host()):
        raise DisallowedHost(f"This site has no name {request.get_host()[:100]!r}.")
    return f"{request.scheme}://{request.get_host()}{settings.SITE_PATH}"


def _load_oauth(site: str) -> Any:
    """Load the endpoints, which takes a second, only when they are needed."""
    from agent_tools.oauth import endpoints_of

    return endpoints_of(site)


def _check_origin(origin: str, host: str) -> None:
    """Reject pages of other sites, which could misuse a browser."""
    if not origin or _is_trusted(origin) or urlsplit(origin).netloc.lower() == host.lower():
        return
    raise ApiError(
        403,
        "forbidden",
        f"A page of {origin[:100]} cannot call this.",
        "Call it without an Origin header, or add the address to CSRF_TRUSTED_ORIGINS.",
    )


def _is_trusted(origin: str) -> bool:
    """Whether CSRF_TRUSTED_ORIGINS has an origin, or a pattern for it, such as https://*.example.com."""
    scheme, _, host = origin.partition("://")
    known = (one.partition("://*") for one in settings.CSRF_TRUSTED_ORIGINS if "://*" in one)
    return origin in settings.CSRF_TRUSTED_ORIGINS or any(
        scheme == its_scheme and is_same_domain(host, domain) for its_scheme, _, domain in known
    )


def _headers_for_page(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers by which a browser lets a trusted page of another site call and read; empty for any other client."""
    origin = headers.get("origin", "")
    if not _is_trusted(origin):
        return {}
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": headers.get("access-control-request-headers", "Authorization, Content-Type"),
        "Access-Control-Expose-Headers": "WWW-Authenticate, X-Request-ID, Retry-After",
        "Access-Control-Max-Age": "600",
        "Vary": "Origin",
    }


def _add_headers(headers: Mapping[str, str], send: Send) -> Send:
    added = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return send_with_headers


# JSON-RPC reserves a range for the errors of servers, and gives the numbers no meaning.
_SERVER_ERROR = -32_000


def _error(error: Exception, scope: Scope) -> HttpResponse:
    """The error as the API describes it."""
    request = HttpRequest()
    # Errors take the shape of the API, which is chosen by the path.
    request.path = request.path_info = "/api/mcp"
    request.method = scope["method"]
    return answer(request, error)


def _refusal(error: Exception, scope: Scope) -> HttpResponse:
    """The error of the API as an error of JSON-RPC, whose message clients show to the model."""
    response = _error(error, scope)
    if response.status_code == 401 and speaks_safely(site := _site_of(scope)):
        # Clients that know OAuth find out there how to get a token.
        response["WWW-Authenticate"] = f'Bearer resource_metadata="{site}{METADATA}"'
    known = json.loads(response.content)
    message = sentences(known["detail"], known["suggestion"])
    # The request has not been read, so its id is unknown.
    code = error.number if isinstance(error, JsonRpcError) else _SERVER_ERROR
    reply = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message, "data": known}}
    response.content = json.dumps(reply).encode()
    return response


# The last revision of the protocol with batches, which a client without a header speaks.
_BATCHES = "2025-03-26"
# A batch holds its turn until all its messages are answered.
_MOST_IN_BATCH = 20


class JsonRpcError(ApiError):
    """A body that is no message of JSON-RPC. `number` is the code that JSON-RPC has for that."""

    def __init__(self, number: int, detail: str, suggestion: str) -> None:
        self.number = number
        super().__init__(400, "malformed_request", detail, suggestion)


def messages_in(body: bytes, headers: Mapping[str, str]) -> dict[str, Any] | list[Any]:
    """The message in a body, or those of a batch. Raises JsonRpcError."""
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        raise JsonRpcError(-32700, "The body is not JSON.", "Send one JSON-RPC message.") from None
    if not isinstance(read, list):
        return check_message(read)
    version = headers.get("mcp-protocol-version", _BATCHES)
    if version > _BATCHES:
        wrong = f"The protocol of {version} has no batches."
        raise JsonRpcError(-32600, wrong, "Send each message in a request of its own.")
    if not 0 < len(read) <= _MOST_IN_BATCH:
        wrong = f"A batch has 1 to {_MOST_IN_BATCH} messages, and this one {len(read):,}."
        raise JsonRpcError(-32600, wrong, "Send fewer at a time." if read else "Send a message.")
    return read


def check_in_batch(message: Any) -> dict[str, Any]:
    """A message of a batch. Raises JsonRpcError."""
    if check_message(message).get("method") == "initialize":
        raise JsonRpcError(-32600, "A batch cannot initialize.", "Send it in a request of its own.")
    return check_message(message)


def check_message(message: Any) -> dict[str, Any]:
    """A message of JSON-RPC. Raises JsonRpcError."""
    if not isinstance(message, dict):
        raise JsonRpcError(-32600, "A message must be a JSON object.", "Send one with jsonrpc, id, method and params.")
    is_reply = "method" not in message and ("result" in message or "error" in message)
    identity = message.get("id", 0)
    wrong = ""
    if message.get("jsonrpc") != "2.0":
        wrong = 'jsonrpc must be "2.0".'
    elif not is_reply and not isinstance(message.get("method"), str):
        wrong = "method must be a text, such as tools/call."
    elif isinstance(identity, bool) or not isinstance(identity, str | int):
        wrong = "id must be a text or a whole number."
    elif not isinstance(message.get("params"), dict | None):
        wrong = "params must be an object."
    if wrong:
        raise JsonRpcError(-32600, wrong, "Send a message of JSON-RPC 2.0, with jsonrpc, id, method and params.")
    return message
