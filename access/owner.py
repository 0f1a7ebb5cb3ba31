"""The owner of a new installation, and links that sign in without a password."""

from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.urls import reverse

from access.tokens import sign_in_token_issue

OWNER = "owner"


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
    """A new link for a user; `site` is the server's address without a trailing slash."""
    return f"{site}{reverse('access:sign_in')}?{urlencode({'token': sign_in_token_issue(user=user)})}"
