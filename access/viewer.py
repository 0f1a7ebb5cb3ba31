"""Viewers: the projects that a user or key may see, and what they may change."""

from dataclasses import dataclass
from datetime import UTC, tzinfo

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User

from access.models import ApiKey, AuditEvent, Membership

SCOPES = ("read", "write", "curate", "admin")
_ROLE_SCOPES = {
    Membership.Role.VIEWER: frozenset({"read"}),
    Membership.Role.CURATOR: frozenset({"read", "write", "curate"}),
    Membership.Role.OWNER: frozenset({"read", "write", "curate", "admin"}),
}


@dataclass(frozen=True, slots=True)
class Viewer:
    """The permissions of a user or key. `project_ids` None means every project."""

    project_ids: frozenset[int] | None = frozenset()
    scopes: frozenset[str] = frozenset()
    writable_project_ids: frozenset[int] | None = frozenset()
    user_id: int | None = None
    api_key_id: int | None = None
    door: AuditEvent.Door = AuditEvent.Door.PAGE
    timezone: tzinfo = UTC

    def may_see(self, project_id: int) -> bool:
        return self.project_ids is None or project_id in self.project_ids

    def may_write(self, project_id: int | None) -> bool:
        """Whether the viewer may write to a project; None stands for a new project."""
        if "write" not in self.scopes:
            return False
        return self.writable_project_ids is None or (project_id is not None and project_id in self.writable_project_ids)


def command_viewer() -> Viewer:
    """The viewer of management commands, which have full access to the database anyway."""
    return Viewer(None, frozenset(SCOPES), None, door=AuditEvent.Door.COMMAND)


def viewer_of_user(
    user: AbstractBaseUser | AnonymousUser, door: AuditEvent.Door = AuditEvent.Door.PAGE, timezone: tzinfo = UTC
) -> Viewer:
    """The viewer of a user: a superuser sees everything, others the projects of which they are members."""
    if not isinstance(user, User) or not user.is_active:
        return Viewer(door=door, timezone=timezone)
    if user.is_superuser:
        return Viewer(None, frozenset(SCOPES), None, user_id=user.pk, door=door, timezone=timezone)
    roles = dict(Membership.objects.filter(user=user).values_list("project_id", "role"))
    writable = frozenset(p for p, role in roles.items() if "write" in _ROLE_SCOPES[Membership.Role(role)])
    scopes = frozenset[str]().union(*(_ROLE_SCOPES[Membership.Role(role)] for role in roles.values()))
    return Viewer(frozenset(roles), scopes, writable, user_id=user.pk, door=door, timezone=timezone)


def viewer_of_key(key: ApiKey, door: AuditEvent.Door = AuditEvent.Door.API) -> Viewer:
    """The viewer of an API key: its projects, or every project."""
    projects = None if key.every_project else frozenset(key.projects.values_list("pk", flat=True))
    scopes = frozenset(key.scopes)
    # A key without the scope read sees nothing, whatever its projects.
    visible = projects if "read" in scopes or "admin" in scopes else frozenset[int]()
    return Viewer(visible, scopes, projects, api_key_id=key.pk, door=door)
