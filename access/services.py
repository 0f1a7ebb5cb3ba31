"""Writes to memberships and invitations. Callers check who may write them."""

import secrets
from collections.abc import Iterable
from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from access.audit import audit
from access.key_rights import key_rights
from access.models import Invitation, Membership
from access.sign_in import token_hash
from access.viewer import Viewer, viewer_of_user
from memories.models import Project
from web.errors import Refusal

Role = Membership.Role
_RANKS = {role: rank for rank, role in enumerate(Role)}


class LastAdminError(Refusal):
    """A project would be left without an admin."""

    status = 409
    code = "last_admin"
    suggestion = "Make somebody else an admin first."

    def __init__(self, membership: Membership) -> None:
        super().__init__(f"{membership.user} is the only admin of {membership.project}.")


class InvitationRefusedError(Refusal):
    """A link that invites nobody, or no longer."""

    status = 403
    code = "invitation_refused"
    message = "This invitation no longer works: it was used, it has expired, or it was withdrawn."
    suggestion = "Ask whoever sent it for another one."


# --- memberships -------------------------------------------------------------------------------------------------


@transaction.atomic
def membership_set(
    *, user: User, project: Project, role: Membership.Role, viewer: Viewer, note: str = ""
) -> Membership:
    """Give a user a role in a project, replacing an earlier one. Without a change there is no event.

    Raises LastAdminError.
    """
    _take_turns(project)
    membership, made = Membership.objects.get_or_create(user=user, project=project, defaults={"role": role})
    if made:
        audit(viewer, "membership_create", membership, after=_audit_fields(membership), note=note)
        return membership
    before = _audit_fields(membership)
    if role != Role.ADMIN:
        _refuse_without_admin(membership, viewer)
    membership.role = role
    if _audit_fields(membership) != before:
        membership.save(update_fields=["role"])
        audit(viewer, "membership_change", membership, before=before, after=_audit_fields(membership), note=note)
    return membership


@transaction.atomic
def membership_remove(*, membership: Membership, viewer: Viewer) -> bool:
    """Delete a membership. Returns False if it was deleted already. Raises LastAdminError."""
    _take_turns(membership.project)
    stored = Membership.objects.filter(pk=membership.pk).first()
    if stored is None:
        return False
    _refuse_without_admin(stored, viewer)
    audit(viewer, "membership_delete", stored, before=_audit_fields(stored))
    stored.delete()
    return True


def _take_turns(project: Project) -> None:
    """Serialise changes of a project's members: if two admins remove each other at once, the second one is refused.

    Writers of memories do not wait for it. The lock is by id: the only form that works on a distributed table.
    """
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)


def _refuse_without_admin(membership: Membership, viewer: Viewer) -> None:
    """Keep the last admin of a project. Whoever administers every project is still there, and may remove them."""
    administers_all = "admin" in viewer.scopes and viewer.writable_project_ids is None
    if membership.role != Role.ADMIN or administers_all:
        return
    admins = Membership.objects.filter(project_id=membership.project_id, role=Role.ADMIN, user__is_active=True)
    if not admins.exclude(pk=membership.pk).exists():
        raise LastAdminError(membership)


def _audit_fields(membership: Membership) -> dict[str, object]:
    """The fields of a membership in the audit trail."""
    return {"user": membership.user_id, "project": membership.project_id, "role": str(membership.role)}


# --- invitations -------------------------------------------------------------------------------------------------


@transaction.atomic
def invitation_create(
    *, projects: Iterable[Project], role: Membership.Role, expires_at: datetime, created_by: User, note: str = ""
) -> tuple[Invitation, str]:
    """Invite whoever opens a link, once, until it expires. Returns the only copy of its token, too."""
    token = secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        token_hash=token_hash(token), note=note, role=role, expires_at=expires_at, created_by=created_by
    )
    invitation.projects.set(projects)
    after = {
        "role": str(role),
        "projects": sorted(project.slug for project in invitation.projects.all()),
        "expires_at": expires_at.isoformat(),
    }
    audit(viewer_of_user(created_by), "invitation_create", invitation, after=after, note=note)
    return invitation, token


@transaction.atomic
def invitation_revoke(*, invitation: Invitation, viewer: Viewer) -> bool:
    """Make a link useless. Returns False if it was used or withdrawn already."""
    open_ones = Invitation.objects.filter(pk=invitation.pk, used_at=None, revoked_at=None)
    # The update is the check: of two concurrent requests only one changes the row.
    if not open_ones.update(revoked_at=timezone.now()):
        return False
    audit(viewer, "invitation_revoke", invitation)
    return True


def invitation_find(token: str) -> tuple[Invitation, list[Project]]:
    """An open invitation, and its projects that whoever made it still administers. Raises InvitationRefusedError."""
    invitation = (
        Invitation.objects.filter(
            token_hash=token_hash(token), used_at=None, revoked_at=None, expires_at__gt=timezone.now()
        )
        .select_related("created_by")
        .first()
    )
    if invitation is None:
        raise InvitationRefusedError
    administered = {project.pk for project in key_rights(invitation.created_by).projects}
    projects = [project for project in invitation.projects.order_by("slug") if project.pk in administered]
    if not projects:
        raise InvitationRefusedError
    return invitation, projects


@transaction.atomic
def invitation_accept(*, token: str, user: User) -> list[Project]:
    """Give a user the role of an invitation, which is used up, and takes no higher role away.

    Raises InvitationRefusedError.
    """
    invitation, projects = invitation_find(token)
    if not Invitation.objects.filter(pk=invitation.pk, used_at=None).update(used_at=timezone.now(), used_by=user):
        raise InvitationRefusedError
    viewer = viewer_of_user(user)
    held = dict(Membership.objects.filter(user=user).values_list("project_id", "role"))
    offered = Role(invitation.role)
    for project in projects:
        if project.pk not in held or _RANKS[Role(held[project.pk])] < _RANKS[offered]:
            note = f"invited by {invitation.created_by}"
            membership_set(user=user, project=project, role=offered, viewer=viewer, note=note)
    audit(viewer, "invitation_accept", invitation)
    return projects


@transaction.atomic
def account_create(*, token: str, username: str, password: str) -> User:
    """Create the account of somebody who was invited, with the role. Raises InvitationRefusedError."""
    user = User.objects.create_user(username, password=password)
    audit(viewer_of_user(user), "user_create", user, after={"username": username})
    invitation_accept(token=token, user=user)
    return user
