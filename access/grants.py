"""Apps that act for a person, as OAuth 2.1 describes it: a consent, its code, and tokens that the app renews.

The app gets a key like others, which it renews every hour. The library that speaks the protocol is above, in
`agent_tools/oauth.py`.
"""

import hashlib
import secrets
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from datetime import timedelta

from django.contrib.auth.models import User
from django.core import signing
from django.core.signing import BadSignature, Signer
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from access.keys import PREFIX_LENGTH, key_hash, make_key, new_raw_key, revoke_key
from access.models import ApiKey, AppGrant, AuditEvent
from access.viewer import viewer_of_key, viewer_of_user
from memories.models import Project

# An app gets no scope to administer.
APP_SCOPES = ("read", "write", "curate")
ACCESS_LIFETIME = timedelta(hours=1)
# Since the last renewal.
REFRESH_LIFETIME = timedelta(days=30)
CODE_LIFETIME = timedelta(minutes=2)
CONSENT_LIFETIME = timedelta(minutes=10)
_SALT = "access.grants.consent"
_refresh_tokens = Signer(salt="access.grants.refresh")


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """The request of an app to a person. It travels through the browser of the person, signed."""

    client_id: str
    name: str
    redirect_uri: str
    is_redirect_given: bool
    scopes: tuple[str, ...]
    challenge: str
    resource: str
    state: str | None

    def sign(self) -> str:
        return signing.dumps(asdict(self), salt=_SALT, compress=True)

    @classmethod
    def read(cls, signed: str) -> "ConsentRequest":
        """Raises BadSignature, also if it is too old."""
        values = signing.loads(signed, salt=_SALT, max_age=CONSENT_LIFETIME)
        return cls(**{**values, "scopes": tuple(values["scopes"])})


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens for an app. Only the hashes of both are stored."""

    access: str
    refresh: str
    scopes: list[str]
    seconds: int


@transaction.atomic
def grant_create(
    *,
    asked: ConsentRequest,
    user: User,
    scopes: Collection[str],
    projects: Iterable[Project] = (),
    every_project: bool = False,
) -> str:
    """Let an app act for a user, within scopes and projects. Returns the code that the app exchanges, once."""
    code = secrets.token_urlsafe(32)
    expires_at = timezone.now() + CODE_LIFETIME
    key = make_key(
        name=asked.name,
        scopes=[scope for scope in APP_SCOPES if scope in scopes],
        viewer=viewer_of_user(user),
        projects=projects,
        every_project=every_project,
        expires_at=expires_at,
        acts_for=user,
    ).key
    AppGrant.objects.create(
        key=key,
        client_id=asked.client_id,
        resource=asked.resource,
        redirect_uri=asked.redirect_uri,
        is_redirect_given=asked.is_redirect_given,
        code_hash=_hash(code),
        code_challenge=asked.challenge,
        code_expires_at=expires_at,
    )
    return code


def grant_of_code(code: str, client_id: str) -> AppGrant | None:
    """The consent of a code that was not used. A second use means that somebody else has it: the consent ends."""
    grant = _grants(client_id).filter(code_hash=_hash(code)).first()
    if grant is not None and grant.code_used_at:
        grant_end(grant)
        return None
    return grant


def grant_of_refresh_token(token: str, client_id: str) -> AppGrant | None:
    """The consent that a token renews. Any earlier one of it means that somebody else has it: the consent ends."""
    live = _grants(client_id)
    grant = live.filter(refresh_hash=_hash(token), key__expires_at__gt=timezone.now()).first()
    if grant is None and (spent := live.filter(pk=_grant_named(token)).first()):
        grant_end(spent)
    return grant


def _grant_named(token: str) -> int:
    """The id of the consent that a refresh token was made for by this site; 0 if it was not."""
    try:
        return int(_refresh_tokens.unsign(token).partition(".")[0])
    except BadSignature:
        return 0


def grant_of_token(token: str) -> AppGrant | None:
    """The consent of an access token."""
    return AppGrant.objects.select_related("key").filter(key__key_hash=key_hash(token)).first()


def code_exchange(grant: AppGrant) -> Tokens | None:
    """The first tokens; None if somebody was faster."""
    # The update is the check: of two concurrent requests only one changes the row.
    with transaction.atomic():
        if not AppGrant.objects.filter(pk=grant.pk, code_used_at=None).update(code_used_at=timezone.now()):
            return None
        return _renew(grant, grant.key.scopes)


def tokens_renew(grant: AppGrant, scopes: Collection[str]) -> Tokens | None:
    """New tokens in place of the old ones, within scopes; None if somebody was faster."""
    return _renew(grant, [scope for scope in grant.key.scopes if scope in scopes])


def grant_end(grant: AppGrant) -> None:
    """Revoke the key of an app: none of its tokens is of any use from then on."""
    revoke_key(key=grant.key, viewer=viewer_of_key(grant.key, door=AuditEvent.Door.MCP))


@transaction.atomic
def _renew(grant: AppGrant, scopes: list[str]) -> Tokens | None:
    raw, now = new_raw_key(), timezone.now()
    # It names its consent, so that it is known for one of it when it is spent.
    refresh = _refresh_tokens.sign(f"{grant.pk}.{secrets.token_urlsafe(32)}")
    renewed = AppGrant.objects.filter(pk=grant.pk, refresh_hash=grant.refresh_hash).update(
        refresh_hash=_hash(refresh), access_expires_at=now + ACCESS_LIFETIME
    )
    if not renewed:
        return None
    ApiKey.objects.filter(pk=grant.key_id).update(
        key_hash=key_hash(raw), prefix=raw[:PREFIX_LENGTH], scopes=scopes, expires_at=now + REFRESH_LIFETIME
    )
    return Tokens(raw, refresh, scopes, int(ACCESS_LIFETIME.total_seconds()))


def _grants(client_id: str) -> QuerySet[AppGrant]:
    live = AppGrant.objects.filter(client_id=client_id, key__revoked_at=None, key__acts_for__is_active=True)
    return live.select_related("key__acts_for")


def _hash(text: str) -> str:
    # A plain hash is enough: codes and tokens are 256 random bits.
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
