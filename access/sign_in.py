"""Signing in: the owner of a new installation, one-time tokens and the links with them."""

import hashlib
import secrets
from datetime import timedelta
from urllib.parse import urlencode, urljoin

from django.conf import settings
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone

from access.models import SignInToken

LIFETIME = timedelta(hours=1)
_RETENTION = timedelta(days=1)
OWNER = "owner"
_BROWSER, _BROWSER_KNOWN = "access.sign_in.browser", timedelta(days=365)


def owner_ensure() -> None:
    """Create the superuser `owner` if there are no users. It has no usable password: links sign it in."""
    if not User.objects.exists():
        User.objects.create_superuser(OWNER)


def owner_to_sign_in(username: str | None = None) -> User | None:
    """The user of a printed link: the named one, else `owner`, else the first superuser."""
    active = User.objects.filter(is_active=True)
    if username is not None:
        return active.filter(username=username).first()
    superusers = active.filter(is_superuser=True)
    return superusers.filter(username=OWNER).first() or superusers.order_by("pk").first()


def superuser_with_password_exists() -> bool:
    superusers = User.objects.filter(is_active=True, is_superuser=True)
    return any(user.has_usable_password() for user in superusers)


def sign_in_link(*, user: User, site: str) -> str:
    """A new link for a user; `site` is the server's address."""
    return f"{urljoin(site, reverse('access:sign_in'))}?{urlencode({'token': sign_in_token_issue(user=user)})}"


def sign_in_token_issue(*, user: User) -> str:
    """Create a token for a user. Only its hash is stored."""
    token = secrets.token_urlsafe(32)
    now = timezone.now()
    SignInToken.objects.filter(expires_at__lt=now - _RETENTION).delete()
    SignInToken.objects.create(user=user, token_hash=token_hash(token), expires_at=now + LIFETIME)
    return token


def sign_in_token_redeem(token: str) -> User | None:
    """The user of a token, which is used up; None if it is unknown, used or expired."""
    now = timezone.now()
    with transaction.atomic():
        # The update is the check: of two concurrent requests with a token only one changes the row.
        fresh = SignInToken.objects.filter(token_hash=token_hash(token), used_at=None, expires_at__gt=now)
        if not fresh.update(used_at=now):
            return None
        redeemed = SignInToken.objects.select_related("user").get(token_hash=token_hash(token))
    return redeemed.user if redeemed.user.is_active else None


# --- browsers that have signed in -------------------------------------------------------------------------------


def remember_browser(response: HttpResponse, user: AbstractBaseUser) -> None:
    """Let a browser keep that somebody has signed in with it: guesses of others do not lock them out there."""
    value = signing.dumps([user.get_username().casefold(), secrets.token_hex(8)], salt=_BROWSER)
    response.set_cookie(
        browser_cookie(),
        value,
        max_age=_BROWSER_KNOWN,
        secure=settings.SESSION_COOKIE_SECURE,
        httponly=True,
        samesite="Lax",
    )


def known_browser(request: HttpRequest, name: str) -> str:
    """The name of a browser with which this account has signed in; empty for any other."""
    try:
        owner, browser = signing.loads(request.COOKIES.get(browser_cookie(), ""), salt=_BROWSER, max_age=_BROWSER_KNOWN)
    except signing.BadSignature:
        return ""
    return str(browser) if owner == name.casefold() else ""


def browser_cookie() -> str:
    """The name of the cookie, which differs between the sites of a host as that of the session does."""
    return settings.SESSION_COOKIE_NAME.replace("sessionid", "browser")


def token_hash(token: str) -> str:
    # A plain hash is enough: a token is 256 random bits, not a chosen password.
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
