"""Writes to memberships. Callers check who may write them."""

from django.contrib.auth.models import User
from django.db import transaction

from access.audit import audit
from access.models import Membership
from access.viewer import Viewer
from memories.models import Project


@transaction.atomic
def membership_set(*, user: User, project: Project, role: Membership.Role, viewer: Viewer) -> Membership:
    """Give a user a role in a project, replacing an earlier one. Without a change there is no event."""
    membership, made = Membership.objects.get_or_create(user=user, project=project, defaults={"role": role})
    if made:
        audit(viewer, "membership_create", membership, after=_audit_fields(membership))
        return membership
    # A lock by id: the only form that works on a distributed table.
    membership = Membership.objects.select_for_update().get(pk=membership.pk)
    before = _audit_fields(membership)
    membership.role = role
    if _audit_fields(membership) != before:
        membership.save(update_fields=["role"])
        audit(viewer, "membership_change", membership, before=before, after=_audit_fields(membership))
    return membership


@transaction.atomic
def membership_remove(*, membership: Membership, viewer: Viewer) -> bool:
    """Delete a membership. Returns False if it was deleted already."""
    stored = Membership.objects.select_for_update().filter(pk=membership.pk).first()
    if stored is None:
        return False
    audit(viewer, "membership_delete", stored, before=_audit_fields(stored))
    stored.delete()
    return True


def _audit_fields(membership: Membership) -> dict[str, object]:
    """The fields of a membership in the audit trail."""
    return {"user": membership.user_id, "project": membership.project_id, "role": str(membership.role)}
