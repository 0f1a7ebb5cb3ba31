"""Viewers: the projects that a user or key may see, and what they may change; and the audit trail of their changes."""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db.models import Model

from access.models import ApiKey, AuditEvent, Membership
from web.secrets import mask_json, mask_note

SCOPES = ("read", "write", "curate", "admin")
# Each role has the scope at its own place, and those before.
_ROLE_SCOPES = {role: frozenset(SCOPES[: place + 1]) for place, role in enumerate(Membership.Role)}


@dataclass(frozen=True, slots=True)
class Viewer:
    """The permissions of a user or key. `project_ids` None means every project, as do the other sets of projects.

    `scopes` are those that the viewer has in some project.
    """

    project_ids: frozenset[int] | None = frozenset()
    scopes: frozenset[str] = frozenset()
    writable_project_ids: frozenset[int] | None = frozenset()
    # Writable projects whose vocabulary the viewer may not change.
    uncurated_project_ids: frozenset[int] = frozenset()
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

    @property
    def curated_project_ids(self) -> frozenset[int] | None:
        """The projects whose vocabulary the viewer may change; None means every project."""
        if "curate" not in self.scopes:
            return frozenset()
        return None if self.writable_project_ids is None else self.writable_project_ids - self.uncurated_project_ids

    def may_curate(self, project_id: int) -> bool:
        return self.curated_project_ids is None or project_id in self.curated_project_ids


def may_write_everything(viewer: Viewer) -> bool:
    """Whether a viewer may see, write and curate every project, including new ones."""
    return viewer.project_ids is None and viewer.may_write(None) and viewer.curated_project_ids is None


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
    stored = Membership.objects.filter(user=user).values_list("project_id", "role")
    scopes = {project: _ROLE_SCOPES[Membership.Role(role)] for project, role in stored}
    writable = frozenset(project for project, held in scopes.items() if "write" in held)
    return Viewer(
        frozenset(scopes),
        frozenset[str]().union(*scopes.values()),
        writable,
        frozenset(project for project in writable if "curate" not in scopes[project]),
        user_id=user.pk,
        door=door,
        timezone=timezone,
    )


def viewer_of_key(key: ApiKey, door: AuditEvent.Door = AuditEvent.Door.API) -> Viewer:
    """The viewer of an API key: its projects, or every project. With the key of an app, no more than its person."""
    projects = None if key.every_project else frozenset(key.projects.values_list("pk", flat=True))
    scopes = frozenset(key.scopes)
    # A key without the scope read sees nothing, whatever its projects.
    visible = projects if "read" in scopes or "admin" in scopes else frozenset[int]()
    if key.acts_for is None:
        return Viewer(visible, scopes, projects, api_key_id=key.pk, door=door)
    person = viewer_of_user(key.acts_for)
    return Viewer(
        _in_both(visible, person.project_ids),
        scopes & person.scopes,
        _in_both(projects, person.writable_project_ids),
        person.uncurated_project_ids,
        api_key_id=key.pk,
        door=door,
    )


def _in_both(projects: frozenset[int] | None, others: frozenset[int] | None) -> frozenset[int] | None:
    if projects is None or others is None:
        return others if projects is None else projects
    return projects & others


def audit(
    viewer: Viewer,
    verb: str,
    subject: Model,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    batch_id: int | None = None,
    note: str = "",
) -> AuditEvent:
    """Record a change: who made it and through which interface. No record of it holds a secret."""
    return AuditEvent.objects.create(
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        door=viewer.door,
        verb=verb,
        subject_type=subject._meta.model_name or "",
        subject_id=subject.pk,
        before=mask_json(before),
        after=mask_json(after),
        batch_id=batch_id,
        note=mask_note(note),
    )


def last_event_of(viewer: Viewer) -> datetime | None:
    """When a viewer last changed anything; None for who has changed nothing, or is nobody in particular."""
    if viewer.api_key_id is not None:
        events = AuditEvent.objects.filter(api_key=viewer.api_key_id)
    elif viewer.user_id is not None:
        events = AuditEvent.objects.filter(user=viewer.user_id)
    else:
        return None
    # Uses auditevent_key_idx or auditevent_user_idx.
    return events.order_by("-at").values_list("at", flat=True).first()
