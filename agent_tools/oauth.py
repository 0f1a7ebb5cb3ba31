"""OAuth 2.1 for `/mcp`, by the SDK: hosted clients register, ask a person, and get tokens for what they are allowed.

Registered clients are not stored: the id of a client is its registration, signed, so that strangers can fill no table.
"""

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

from asgiref.sync import sync_to_async
from django.core import signing
from django.db import close_old_connections
from django.urls import reverse
from django.utils.crypto import salted_hmac
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.metadata import MetadataHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    AuthorizeError,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    RegistrationError,
    TokenError,
)
from mcp.server.auth.routes import (
    AUTHORIZATION_PATH,
    REVOCATION_PATH,
    TOKEN_PATH,
    build_metadata,
    cors_middleware,
    create_auth_routes,
    create_protected_resource_routes,
)
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl, ConfigDict, TypeAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from access.grants import (
    APP_SCOPES,
    ConsentRequest,
    Tokens,
    code_exchange,
    grant_end,
    grant_of_code,
    grant_of_refresh_token,
    grant_of_token,
    tokens_renew,
)
from agent_tools.asgi import METADATA
from web.errors import Refusal
from web.middleware import refusal_response, set_policies
from web.serving import speaks_safely

_SALT = "agent_tools.oauth.client"
_REMEMBERED = ("client_name", "redirect_uris", "token_endpoint_auth_method", "grant_types", "response_types", "scope")
# How a client without a secret identifies itself.
PUBLIC = "none"
_WAYS = (PUBLIC, "client_secret_post", "client_secret_basic")
_MAX_URIS, _MAX_URI, _MAX_NAME, _MAX_ID = 5, 500, 100, 8_000
# The scheme of an app of its own, which begins with a domain that its makers have, backwards (RFC 8252). Others belong
# to the browser, to the system, or to whoever takes them first.
_OWN_SCHEME = re.compile(r"[a-z][a-z0-9-]*(\.[a-z0-9-]+)+", re.ASCII)
# Without a user, and without characters that mean something in the policy of the page that leads there.
_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d+)?", re.ASCII)
_URL: TypeAdapter[AnyHttpUrl] = TypeAdapter(AnyHttpUrl, config=ConfigDict(url_preserve_empty_path=True))
_READ, _SEND = ["GET", "OPTIONS"], ["POST", "OPTIONS"]
_NO_STORE = {"Cache-Control": "no-store", "Pragma": "no-cache"}
Result = TypeVar("Result")


class AppRefusedError(Refusal):
    """A request of an app that a person cannot be asked about."""

    status = 400
    title = "This app cannot be connected"
    suggestion = "Start again in the app. If it happens again, tell those who make the app."


@lru_cache(maxsize=8)
def endpoints_of(site: str) -> Starlette:
    """The endpoints for a site, an ASGI application."""
    issuer, resource = _URL.validate_python(site), _URL.validate_python(f"{site}/mcp")
    scopes = list(APP_SCOPES)
    options = ClientRegistrationOptions(enabled=True, valid_scopes=scopes, default_scopes=scopes)
    revocation, provider = RevocationOptions(enabled=True), Provider(site)
    metadata = build_metadata(issuer, None, options, revocation)
    metadata.token_endpoint_auth_methods_supported = list(_WAYS)
    metadata.revocation_endpoint_auth_methods_supported = list(_WAYS)
    own = _Endpoints(provider, site)
    return Starlette(
        routes=[
            # Before those of the SDK, which has them as well.
            Route("/.well-known/oauth-authorization-server", cors_middleware(MetadataHandler(metadata).handle, _READ)),
            Route(AUTHORIZATION_PATH, own.authorize, methods=["GET", "POST"]),
            Route(TOKEN_PATH, cors_middleware(own.token, _SEND)),
            Route(REVOCATION_PATH, cors_middleware(own.revoke, _SEND)),
            *create_auth_routes(provider, issuer, None, options, revocation),
            # The SDK's is at the address with the path of the site, which has been taken off.
            *(
                Route(METADATA, route.endpoint, methods=_READ)
                for route in create_protected_resource_routes(resource, [issuer], scopes, "Mnemoscope")
            ),
        ]
    )


class _Endpoints:
    """Endpoints that the SDK has, where it is not strict enough or too strict."""

    def __init__(self, provider: "Provider", site: str) -> None:
        self._provider, self._site = provider, site
        self._clients = ClientAuthenticator(provider)

    async def authorize(self, request: Request) -> Response:
        """Lead to the page that asks the person, and nowhere else: anybody could register the address of an app, and
        make a link of this site that leads there.
        """
        response = await AuthorizationHandler(self._provider).handle(request)
        address = response.headers.get("location", "")
        if address.startswith(f"{urljoin(self._site, reverse('access:connect'))}?"):
            return response
        told = dict(parse_qsl(urlsplit(address).query)) if address else json.loads(bytes(response.body))
        refusal = AppRefusedError(f"The app asked wrongly: {told.get('error_description') or told.get('error')}")
        page = set_policies(refusal_response(AUTHORIZATION_PATH, refusal))
        return Response(page.content, page.status_code, headers=dict(page.items()))

    async def token(self, request: Request) -> Response:
        resources = (await request.form()).getlist("resource")
        if any(not self._provider.is_resource(str(resource)) for resource in resources):
            return _refusal_of(400, "invalid_target", f"This is the server of {self._site}/mcp.")
        response: Response = await TokenHandler(self._provider, self._clients).handle(request)
        return response

    async def revoke(self, request: Request) -> Response:
        """Revoke a token as RFC 7009 has it. The SDK asks for a secret that public clients do not have."""
        try:
            client = await self._clients.authenticate_request(request)
        except AuthenticationError as error:
            return _refusal_of(401, "invalid_client", error.message)
        text = (await request.form()).get("token")
        if not isinstance(text, str):
            return _refusal_of(400, "invalid_request", "token: is missing.")
        found = await self._provider.load_access_token(text)
        token = found or await self._provider.load_refresh_token(client, text)
        if token is not None and token.client_id == client.client_id:
            await self._provider.revoke_token(token)
        return Response(headers=_NO_STORE)


def _refusal_of(status: int, error: str, description: str) -> Response:
    return JSONResponse({"error": error, "error_description": description}, status, headers=_NO_STORE)


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The authorization server that the SDK's endpoints ask."""

    def __init__(self, site: str) -> None:
        self._site = site

    def is_resource(self, resource: str) -> bool:
        """Whether tokens of this server are for it."""
        return resource.rstrip("/") == f"{self._site}/mcp"

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        if len(client_id) > _MAX_ID:
            return None
        try:
            known = signing.loads(client_id, salt=_SALT)
        except signing.BadSignature:
            return None
        client = OAuthClientInformationFull.model_validate({**known, "client_id": client_id})
        if client.token_endpoint_auth_method != PUBLIC:
            client.client_secret = _secret_of(client_id)
        return client

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        """Replace the id and the secret that the SDK has drawn by ones that need not be stored."""
        uris = [str(uri) for uri in client_info.redirect_uris or ()]
        if len(uris) > _MAX_URIS or any(len(uri) > _MAX_URI or not _leads_to_app(uri) for uri in uris):
            raise RegistrationError(
                "invalid_redirect_uri",
                f"Up to {_MAX_URIS} addresses of {_MAX_URI} characters: https, http on this machine, or a scheme "
                "like com.example.app; without #",
            )
        client_info.client_name = (client_info.client_name or "An app without a name")[:_MAX_NAME]
        known = client_info.model_dump(mode="json", include=set(_REMEMBERED))
        client_info.client_id = signing.dumps(known, salt=_SALT, compress=True)
        if len(client_info.client_id) > _MAX_ID:
            raise RegistrationError("invalid_client_metadata", "This is too long.")
        if client_info.client_secret is not None:
            client_info.client_secret = _secret_of(client_info.client_id)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        if params.resource and not self.is_resource(params.resource):
            raise AuthorizeError("invalid_target", f"This is the server of {self._site}/mcp.")
        asked = ConsentRequest(
            client_id=client.client_id,
            name=client.client_name or "",
            redirect_uri=str(params.redirect_uri),
            is_redirect_given=params.redirect_uri_provided_explicitly,
            scopes=tuple(params.scopes or APP_SCOPES),
            challenge=params.code_challenge,
            resource=params.resource or "",
            state=params.state,
        )
        return f"{urljoin(self._site, reverse('access:connect'))}?{urlencode({'request': asked.sign()})}"

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        grant = await _in_thread(lambda: grant_of_code(authorization_code, client.client_id))
        if grant is None:
            return None
        return AuthorizationCode(
            code=authorization_code,
            scopes=grant.key.scopes,
            expires_at=grant.code_expires_at.timestamp(),
            client_id=client.client_id,
            code_challenge=grant.code_challenge,
            redirect_uri=AnyUrl(grant.redirect_uri),
            redirect_uri_provided_explicitly=grant.is_redirect_given,
            resource=grant.resource or None,
        )

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        def exchange() -> Tokens | None:
            grant = grant_of_code(authorization_code.code, client.client_id)
            return None if grant is None else code_exchange(grant)

        return _token(await _in_thread(exchange))

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        grant = await _in_thread(lambda: grant_of_refresh_token(refresh_token, client.client_id))
        if grant is None:
            return None
        return RefreshToken(token=refresh_token, client_id=client.client_id, scopes=grant.key.scopes)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        def renew() -> Tokens | None:
            grant = grant_of_refresh_token(refresh_token.token, client.client_id)
            return None if grant is None else tokens_renew(grant, scopes)

        return _token(await _in_thread(renew))

    async def load_access_token(self, token: str) -> AccessToken | None:
        """For the revocation of a token alone: `/mcp` looks tokens up as it does keys."""
        grant = await _in_thread(lambda: grant_of_token(token))
        if grant is None:
            return None
        return AccessToken(token=token, client_id=grant.client_id, scopes=grant.key.scopes)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        """End the consent: whichever token is revoked, both are of no use any more."""

        def revoke() -> None:
            is_refresh = isinstance(token, RefreshToken)
            grant = grant_of_refresh_token(token.token, token.client_id) if is_refresh else grant_of_token(token.token)
            if grant is not None:
                grant_end(grant)

        await _in_thread(revoke)


async def _in_thread(function: Callable[[], Result]) -> Result:
    """Run what asks the database: Django forbids that in the event loop."""

    def run() -> Result:
        try:
            return function()
        finally:
            # Django's end-of-request signals do not reach this thread.
            close_old_connections()

    return await sync_to_async(run, thread_sensitive=False)()


def _token(tokens: Tokens | None) -> OAuthToken:
    if tokens is None:
        raise TokenError("invalid_grant", "This was used already.")
    return OAuthToken(
        access_token=tokens.access,
        expires_in=tokens.seconds,
        refresh_token=tokens.refresh,
        scope=" ".join(tokens.scopes),
    )


def _secret_of(client_id: str) -> str:
    return salted_hmac(_SALT, client_id, algorithm="sha256").hexdigest()


def _leads_to_app(uri: str) -> bool:
    """Whether an answer may be sent to an address: by HTTPS, on this machine, or to the scheme of an app."""
    parts = urlsplit(uri)
    if "#" in uri:
        return False
    if parts.scheme in ("http", "https"):
        return _HOST.fullmatch(parts.netloc) is not None and speaks_safely(uri)
    return _OWN_SCHEME.fullmatch(parts.scheme) is not None
