"""API keys, random, shown once and stored as a hash, and the authentication of API requests.

Every authenticator sets a Viewer as `request.viewer`.
"""

import hashlib
import logging
import math
import re
import secrets
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from ninja.security import APIKeyCookie, APIKeyHeader, HttpBearer
from ninja.utils import check_csrf

from access.limits import Allowance, buckets, seen_keys, sender, wrong_keys
from access.models import ApiKey, AuditEvent
from access.viewer import SCOPES, Viewer, audit, viewer_of_key, viewer_of_user
from memories.models import Project
from web.errors import Refusal, UnauthorizedError
from web.secrets import mask_note

logger = logging.getLogger("mnemoscope.keys")

MARK = "mnk_"
PREFIX_LENGTH = 12
_FORM = re.compile(r"mnk_[\w-]{40}", re.ASCII)
# `last_used_at` is updated at most this often, so that a busy agent does not write a row with every read.
STAMP_EVERY = timedelta(minutes=1)
# A rotated key remains valid for this long, so that clients can be updated.
GRACE = timedelta(days=1)
# The highest limit of a single key.
MAX_PER_MINUTE = 1_000_000
# Different wrong keys that an address may send within a minute.
WRONG_PER_ADDRESS = 20


class KeyRefusedError(UnauthorizedError):
    """No key, or one that is unknown, revoked or expired."""


class UnknownKeyError(KeyRefusedError):
    """A text that is no key of this site."""

    message = "This is not a key of this site."


class TooManyWrongKeysError(Refusal):
    """An address has sent many wrong keys. `seconds` is how long to wait."""

    status = 429
    code = "too_many_wrong_keys"
    message = "Too many wrong keys have come from this address."

    def __init__(self, seconds: int) -> None:
        self.suggestion = f"Wait {seconds} seconds, and send a key of this site."
        self.headers = {"Retry-After": str(seconds)}
        super().__init__()


class TooManyRequestsError(Refusal):
    """A key has spent its requests of this minute. `seconds` is how long to wait."""

    status = 429
    code = "too_many_requests"

    def __init__(self, key: ApiKey, allowance: Allowance) -> None:
        self.seconds = math.ceil(allowance.wait)
        self.suggestion = f"Wait {self.seconds} seconds, or request more per call."
        self.headers = {"Retry-After": str(self.seconds), **allowance.headers()}
        super().__init__(
            f"The key {key.prefix}… has made the {allowance.limit:,} requests per minute that it may make."
        )


class ScopeMissingError(Refusal):
    """A valid key, or a signed-in person, without the scope that this needs."""

    status = 403
    code = "forbidden"
    suggestion = "Use another key: list_api_keys shows the scopes of each."


class CrossSiteError(Refusal):
    """A change that comes with the cookie of a session and without the token of a page."""

    status = 403
    code = "csrf_failed"
    message = "A change made with a session cookie needs the CSRF token of a page."
    suggestion = "Send the token in the header X-CSRFToken, or use a key."


@dataclass(frozen=True, slots=True)
class NewKey:
    """A new key. `raw` is the only copy of the key itself."""

    key: ApiKey
    raw: str


# --- keys --------------------------------------------------------------------------------------------------------


@transaction.atomic
def make_key(
    *,
    name: str,
    scopes: Collection[str],
    viewer: Viewer,
    projects: Iterable[Project] = (),
    every_project: bool = False,
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
    acts_for: User | None = None,
) -> NewKey:
    """Generate a key and store its hash. It sees the given projects or every project, including future ones.

    Raises ValueError unless exactly one of `projects` and `every_project` is given.
    """
    named = list(projects)
    if bool(named) == every_project:
        # An empty list may be a mistake, so it does not mean every project.
        wrong = "both are given" if named else "neither is given"
        raise ValueError(f"A key needs either projects or every_project: {wrong}.")
    raw = new_raw_key()
    key = ApiKey.objects.create(
        name=mask_note(name),
        prefix=raw[:PREFIX_LENGTH],
        key_hash=key_hash(raw),
        scopes=_with_implied(scopes),
        created_by_id=viewer.user_id,
        expires_at=expires_at,
        every_project=every_project,
        requests_per_minute=requests_per_minute,
        acts_for=acts_for,
    )
    key.projects.set(named)
    audit(viewer, "api_key_create", key, after=_audit_fields(key))
    return NewKey(key, raw)


def new_raw_key() -> str:
    # 30 random bytes are 40 URL-safe characters.
    return MARK + secrets.token_urlsafe(30)


def find_key(raw: str) -> ApiKey:
    """Look up a key. Raises KeyRefusedError with the reason.

    Every text of the right form is hashed and looked up, so that timing reveals nothing about stored keys.
    """
    key = ApiKey.objects.filter(key_hash=key_hash(raw)).first() if _FORM.fullmatch(raw) else None
    now = timezone.now()
    if key is None:
        raise UnknownKeyError
    if key.revoked_at:
        raise KeyRefusedError(f"The key {key.prefix}… was revoked on {key.revoked_at:%Y-%m-%d}.")
    if key.expires_at and key.expires_at <= now:
        raise KeyRefusedError(f"The key {key.prefix}… expired on {key.expires_at:%Y-%m-%d}.")
    if key.acts_for_id and (key.grant.access_expires_at is None or key.grant.access_expires_at <= now):
        raise KeyRefusedError(f"The access token {key.prefix}… has expired: renew it.")
    _stamp(key, now)
    return key


def viewer_of_raw(raw: str, door: AuditEvent.Door = AuditEvent.Door.API, address: str = "") -> Viewer:
    """The viewer of a request with this key, from an address if others sent it.

    Raises KeyRefusedError, TooManyWrongKeysError or TooManyRequestsError.
    """
    return _admitted(raw, door, address)[0]


def key_from(raw: str, address: str) -> ApiKey:
    """The key that came from an address, unless many wrong ones did.

    A text that was no key a moment ago costs no query, and repeating it is no guess. A key that was good a moment ago
    is let in although others guess from its address.
    """
    hashed, network = key_hash(raw), sender(address)
    was_key = seen_keys.get(hashed)
    if was_key is False:
        raise UnknownKeyError
    if was_key is None and (wait := wrong_keys.wait(network, WRONG_PER_ADDRESS)):
        raise TooManyWrongKeysError(math.ceil(wait))
    try:
        key = find_key(raw)
    except UnknownKeyError:
        seen_keys.put(hashed, False)
        if not wrong_keys.take(network, WRONG_PER_ADDRESS).remaining:
            logger.warning("Too many wrong keys from %s.", address)
        raise
    seen_keys.put(hashed, True)
    return key


def _admitted(raw: str, door: AuditEvent.Door, address: str) -> tuple[Viewer, Allowance]:
    key = key_from(raw, address) if address else find_key(raw)
    if key.acts_for_id and door != AuditEvent.Door.MCP:
        raise KeyRefusedError(f"The access token {key.prefix}… is for /mcp only: make a key for programs.")
    allowance = buckets.take(key.pk, key.requests_per_minute or settings.API_REQUESTS_PER_MINUTE)
    if allowance.wait:
        raise TooManyRequestsError(key, allowance)
    return viewer_of_key(key, door), allowance


@transaction.atomic
def rotate_key(*, key: ApiKey, viewer: Viewer, grace: timedelta) -> NewKey:
    """Generate a key with the same permissions; the old one expires after `grace`. Raises KeyRefusedError."""
    # A lock by id: the only form that works on a distributed table.
    stored = ApiKey.objects.select_for_update().get(pk=key.pk)
    now = timezone.now()
    if not stored.is_live:
        raise KeyRefusedError(f"The key {stored.prefix}… is no longer active ({stored.state}): create a new one.")
    if stored.acts_for_id:
        raise KeyRefusedError(f"{stored.name} renews its key itself.")
    new = make_key(
        name=stored.name,
        scopes=stored.scopes,
        viewer=viewer,
        projects=stored.projects.all(),
        every_project=stored.every_project,
        # The same lifetime, from today.
        expires_at=stored.expires_at and now + (stored.expires_at - stored.created_at),
        requests_per_minute=stored.requests_per_minute,
    )
    before = _audit_fields(stored)
    ends = now + grace
    if stored.expires_at is None or ends < stored.expires_at:
        stored.expires_at = ends
        stored.save(update_fields=["expires_at"])
    audit(viewer, "api_key_rotate", stored, before=before, after=_audit_fields(stored), note=f"by {new.key.prefix}…")
    return new


@transaction.atomic
def revoke_key(*, key: ApiKey, viewer: Viewer) -> bool:
    """Revoke a key. Returns False if it was revoked already."""
    # The update is the check: of two concurrent requests only one changes the row.
    if not ApiKey.objects.filter(pk=key.pk, revoked_at=None).update(revoked_at=timezone.now()):
        return False
    before = _audit_fields(key)
    key.refresh_from_db(fields=["revoked_at"])
    audit(viewer, "api_key_revoke", key, before=before, after=_audit_fields(key))
    return True


def live_keys() -> QuerySet[ApiKey]:
    """Keys that are neither revoked nor expired."""
    return ApiKey.objects.filter(Q(expires_at=None) | Q(expires_at__gt=timezone.now()), revoked_at=None)


def key_hash(raw: str) -> str:
    # A plain hash is enough: a key is 240 random bits, not a chosen password.
    return hashlib.sha256(raw.encode(errors="replace")).hexdigest()


def _with_implied(scopes: Collection[str]) -> list[str]:
    """Scopes are independent (a key may write without reading), except that admin includes all."""
    return [scope for scope in SCOPES if scope in scopes or "admin" in scopes]


def _stamp(key: ApiKey, now: datetime) -> None:
    if key.last_used_at is None or now - key.last_used_at > STAMP_EVERY:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)


def _audit_fields(key: ApiKey) -> dict[str, object]:
    """The fields of a key in the audit trail, without its hash."""
    return {
        "name": key.name,
        "prefix": key.prefix,
        "scopes": key.scopes,
        "projects": key.shown_projects(),
        "requests_per_minute": key.requests_per_minute,
        "expires_at": key.expires_at and key.expires_at.isoformat(),
        "revoked_at": key.revoked_at and key.revoked_at.isoformat(),
    }


# --- authentication -----------------------------------------------------------------------------------------------


class ApiRequest(HttpRequest):
    """A request that an authenticator has accepted."""

    viewer: Viewer


class _Scoped:
    """An authenticator, which also refuses callers without the scope that it was made with."""

    def __init__(self, scope: str = "") -> None:
        super().__init__()
        self.scope = scope

    def accept(self, request: HttpRequest, viewer: Viewer) -> Viewer:
        request.viewer = viewer  # type: ignore[attr-defined]
        return require(viewer, self.scope) if self.scope else viewer

    def accept_key(self, request: HttpRequest, raw: str) -> Viewer:
        address = request.META.get("REMOTE_ADDR", "")
        viewer, request.allowance = _admitted(raw.strip(), AuditEvent.Door.API, address)  # type: ignore[attr-defined]
        return self.accept(request, viewer)


class BearerKey(_Scoped, HttpBearer):
    """`Authorization: Bearer mnk_…`"""

    def authenticate(self, request: HttpRequest, token: str) -> Viewer:
        return self.accept_key(request, token)


class HeaderKey(_Scoped, APIKeyHeader):
    """`X-API-Key: mnk_…`, for clients that can set no Authorization header."""

    param_name = "X-API-Key"

    def authenticate(self, request: HttpRequest, key: str | None) -> Viewer | None:
        return self.accept_key(request, key) if key else None


class SignedIn(_Scoped, APIKeyCookie):
    """The session of a signed-in user. Changes need the CSRF token of a page."""

    param_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> Viewer | None:
        # Ninja would check the token before the session, and report a missing key as forgery.
        if not (request.COOKIES.get(self.param_name) and request.user.is_authenticated):
            return None
        if check_csrf(request):
            raise CrossSiteError
        return self.accept(request, viewer_of_user(request.user, door=AuditEvent.Door.API))

    def authenticate(self, request: HttpRequest, key: str | None) -> Viewer | None:
        return self(request)


def callers(scope: str = "") -> tuple[BearerKey, HeaderKey, SignedIn]:
    """The authenticators of an operation. With a scope, callers without it are refused before the body is read."""
    # In this order: with a key in the request, cookies are ignored.
    return BearerKey(scope), HeaderKey(scope), SignedIn(scope)


AUTHENTICATORS = callers()


def known_viewer(request: HttpRequest) -> Viewer | None:
    """The viewer of a request to a public address; None for an anonymous one. An invalid key is refused."""
    return next((viewer for authenticate in AUTHENTICATORS if (viewer := authenticate(request))), None)


def allowed(request: ApiRequest, scope: str) -> Viewer:
    """The viewer, if they have this scope. Raises ScopeMissingError."""
    return require(request.viewer, scope)


def require(viewer: Viewer, scope: str) -> Viewer:
    """The viewer, if they have this scope. Raises ScopeMissingError."""
    if scope not in viewer.scopes:
        raise ScopeMissingError(f"This needs the scope {scope}; yours: {', '.join(sorted(viewer.scopes)) or 'none'}.")
    return viewer


def allowance_of(request: HttpRequest) -> Allowance | None:
    """The allowance of the key that came with a request; None without a valid key."""
    return getattr(request, "allowance", None)
