"""One-time sign-in tokens: random, stored as a hash, valid for a single use within an hour."""

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from access.models import SignInToken

LIFETIME = timedelta(hours=1)
_RETENTION = timedelta(days=1)


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


def token_hash(token: str) -> str:
    # A plain hash is enough: a token is 256 random bits, not a chosen password.
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
