"""The rights of those who administer: a superuser everything, an admin of projects their people and keys.

Keys belong to their projects, not to their creator: when an admin leaves, the other admins still manage them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from access.keys import key_state
from access.models import ApiKey, Invitation, Membership
from memories.models import Project


@dataclass(frozen=True, slots=True)
class KeyRights:
    """The projects that a user administers, and whether these are all, including new ones."""

    projects: tuple[Project, ...]
    every_project: bool = False
    user_id: int | None = None

    def __bool__(self) -> bool:
        return self.every_project or bool(self.projects)

    def people(self) -> QuerySet[User]:
        """The active accounts that the user may give roles: all, or the members of these projects."""
        active = User.objects.filter(is_active=True).order_by("username")
        if self.every_project:
            return active
        return active.filter(Exists(Membership.objects.filter(user=OuterRef("pk"), project__in=self.projects)))

    def memberships(self) -> QuerySet[Membership]:
        """The roles in these projects, by person."""
        of_these = Membership.objects.filter(project__in=self.projects).select_related("user", "project")
        return of_these.order_by("user__username", "project__slug")

    def invitations(self) -> QuerySet[Invitation]:
        """The open invitations to these projects alone."""
        others = Invitation.projects.through.objects.filter(invitation_id=OuterRef("pk"))
        return (
            Invitation.objects.filter(
                ~Exists(others.exclude(project__in=self.projects)),
                used_at=None,
                revoked_at=None,
                expires_at__gt=timezone.now(),
            )
            .select_related("created_by")
            .prefetch_related("projects")
        )

    def keys(self) -> QuerySet[ApiKey]:
        """The managed keys by name, none that also sees another project; and those of apps that act for the user."""
        keys = ApiKey.objects.prefetch_related("projects").select_related("created_by", "acts_for")
        keys = keys.order_by("name", "-pk")
        if self.every_project:
            return keys
        visible = ApiKey.projects.through.objects.filter(apikey_id=OuterRef("pk"))
        own = [project.pk for project in self.projects]
        only_own = Exists(visible) & ~Exists(visible.exclude(project_id__in=own)) & Q(every_project=False)
        return keys.filter(only_own | Q(acts_for=self.user_id, acts_for__isnull=False))


def key_rights(user: AbstractBaseUser | AnonymousUser) -> KeyRights:
    """The rights of a signed-in user."""
    if not isinstance(user, User) or not user.is_active:
        return KeyRights(())
    if user.is_superuser:
        return KeyRights(tuple(Project.objects.order_by("slug")), every_project=True, user_id=user.pk)
    own = Membership.objects.filter(user=user, role=Membership.Role.ADMIN).values("project_id")
    return KeyRights(tuple(Project.objects.filter(pk__in=own).order_by("slug")), user_id=user.pk)


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key for lists."""

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
    is_app: bool


def shown_keys(keys: Iterable[ApiKey]) -> list[ShownKey]:
    """Keys for a list, active ones first."""
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
            is_app=key.acts_for_id is not None,
            is_live=key.revoked_at is None and (key.expires_at is None or key.expires_at > now),
        )
        for key in keys
    ]
    return sorted(shown, key=lambda key: not key.is_live)
