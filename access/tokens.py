"""One-time sign-in tokens: drawn at random, stored as a hash, good for one use within an hour."""

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from access.models import SignInToken

LIFETIME = timedelta(hours=1)
KEPT_AFTER_EXPIRY = timedelta(days=1)


def sign_in_token_issue(*, user: User) -> str:
    """A new token for this person. It is returned once; only its hash is kept."""
    token = secrets.token_urlsafe(32)
    now = timezone.now()
    SignInToken.objects.filter(expires_at__lt=now - KEPT_AFTER_EXPIRY).delete()
    SignInToken.objects.create(user=user, token_hash=token_hash(token), expires_at=now + LIFETIME)
    return token


def sign_in_token_redeem(token: str) -> User | None:
    """The person this token signs in, or None when it is unknown, used or expired."""
    now = timezone.now()
    with transaction.atomic():
        # The update is the check: of two requests with one token, one row is changed by one of them.
        fresh = SignInToken.objects.filter(token_hash=token_hash(token), used_at=None, expires_at__gt=now)
        if not fresh.update(used_at=now):
            return None
        redeemed = SignInToken.objects.select_related("user").get(token_hash=token_hash(token))
    return redeemed.user if redeemed.user.is_active else None


def token_hash(token: str) -> str:
    # A plain hash is enough: the token is 256 random bits, not a password that somebody chose.
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
