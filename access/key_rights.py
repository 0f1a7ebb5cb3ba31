"""Whose keys somebody manages: a superuser all of them, an owner of projects those that see nothing but these.

A key belongs to the projects that it sees and not to who drew it: when an owner leaves, the other owners still see it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from access.keys import key_state
from access.models import ApiKey, Membership
from memories.models import Project


@dataclass(frozen=True, slots=True)
class KeyRights:
    """The projects that somebody may make keys for, and whether keys for every one."""

    projects: tuple[Project, ...]
    every_project: bool = False

    def __bool__(self) -> bool:
        return self.every_project or bool(self.projects)

    def keys(self) -> QuerySet[ApiKey]:
        """The keys managed, by name. One that sees a foreign project as well is not shown at all."""
        keys = ApiKey.objects.prefetch_related("projects").select_related("created_by").order_by("name", "-pk")
        if self.every_project:
            return keys
        seen = ApiKey.projects.through.objects.filter(apikey_id=OuterRef("pk"))
        owned = [project.pk for project in self.projects]
        return keys.filter(Exists(seen), ~Exists(seen.exclude(project_id__in=owned)), every_project=False)


def key_rights(user: AbstractBaseUser | AnonymousUser) -> KeyRights:
    """What somebody signed in may do about keys."""
    if not isinstance(user, User) or not user.is_active:
        return KeyRights(())
    if user.is_superuser:
        return KeyRights(tuple(Project.objects.order_by("slug")), every_project=True)
    owned = Membership.objects.filter(user=user, role=Membership.Role.OWNER).values("project_id")
    return KeyRights(tuple(Project.objects.filter(pk__in=owned).order_by("slug")))


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key as a list shows it."""

    id: int
    name: str
    prefix: str
    scopes: str
    projects: str
    per_minute: int | None
    made_by: str
    last_used_at: datetime | None
    state: str
    is_live: bool


def shown_keys(keys: Iterable[ApiKey]) -> list[ShownKey]:
    """The keys of a list, those that still open something first."""
    now = timezone.now()
    shown = [
        ShownKey(
            id=key.pk,
            name=key.name,
            prefix=key.prefix,
            scopes=", ".join(key.scopes),
            projects=key.shown_projects(),
            per_minute=key.requests_per_minute,
            made_by=key.created_by.get_username() if key.created_by else "",
            last_used_at=key.last_used_at,
            state=key_state(key, now),
            is_live=key.revoked_at is None and (key.expires_at is None or key.expires_at > now),
        )
        for key in keys
    ]
    return sorted(shown, key=lambda key: not key.is_live)
