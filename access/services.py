"""Memberships and invitations, and the rights of those who administer: a superuser everything, an admin of projects
their people and keys.

Keys belong to their projects, not to their creator: when an admin leaves, the other admins still manage them.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, User
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from access.models import ApiKey, Invitation, Membership
from access.sign_in import token_hash
from access.viewer import SCOPES, Viewer, audit, viewer_of_user
from memories.models import Project
from web.errors import Refusal
from web.secrets import mask_note


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
        token_hash=token_hash(token), note=mask_note(note), role=role, expires_at=expires_at, created_by=created_by
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


def merge_claims(userinfo: dict[str, Any], identity: dict[str, Any]) -> dict[str, Any]:
    """The claims of a signed identity, and further ones that the provider answers.

    An address is verified if a source says so of this very address: the other one may have another address.
    """
    merged = {**userinfo, **identity}
    address = merged.get("email")
    sources = (source for source in (userinfo, identity) if source.get("email") == address)
    return {**merged, "email_verified": any(_is_true(source.get("email_verified")) for source in sources)}


def _is_true(value: object) -> bool:
    # Some providers write it as text.
    return value is True or value == "true"


@transaction.atomic
def roles_from_claims(user: User, claims: dict[str, Any]) -> None:
    """Give the highest role that a claim stands for in each project that the rules name, and end others there."""
    rules = settings.OIDC_ROLES
    if not rules:
        return
    named = {project for *_, project in rules}
    projects = Project.objects.all() if "*" in named else Project.objects.filter(slug__in=named)
    held = {membership.project_id: membership for membership in Membership.objects.filter(user=user)}
    # It decides for every project, like whoever wrote the rules.
    viewer = Viewer(None, frozenset(SCOPES), None, user_id=user.pk)
    for project in projects:
        roles = [
            Role(role)
            for claim, value, role, slug in rules
            if slug in ("*", project.slug) and value in _values(claims, claim)
        ]
        if roles:
            role = max(roles, key=_RANKS.__getitem__)
            membership_set(user=user, project=project, role=role, viewer=viewer, note="by claims")
        elif project.pk in held:
            membership_remove(membership=held[project.pk], viewer=viewer)


def _values(claims: dict[str, Any], claim: str) -> list[str]:
    """The values of a claim by which rules give roles. Anybody may claim an address that is not verified."""
    if claim not in claims or (claim == "email" and claims.get("email_verified") is not True):
        return []
    value = claims[claim]
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]
