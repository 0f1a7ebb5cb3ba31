"""Writes to membership: who belongs to a project, and as what. Who may write them is for the door to say."""

from django.contrib.auth.models import User
from django.db import transaction

from access.audit import audit
from access.models import Membership
from access.viewer import Viewer
from memories.models import Project


@transaction.atomic
def membership_set(*, user: User, project: Project, role: Membership.Role, viewer: Viewer) -> Membership:
    """Give somebody a role in a project, in place of the one they had there. What changes nothing is no event."""
    membership, made = Membership.objects.get_or_create(user=user, project=project, defaults={"role": role})
    if made:
        audit(viewer, "membership_create", membership, after=_audit_fields(membership))
        return membership
    # By its id alone, which is the only way a distributed Postgres locks a row.
    membership = Membership.objects.select_for_update().get(pk=membership.pk)
    before = _audit_fields(membership)
    membership.role = role
    if _audit_fields(membership) != before:
        membership.save(update_fields=["role"])
        audit(viewer, "membership_change", membership, before=before, after=_audit_fields(membership))
    return membership


@transaction.atomic
def membership_remove(*, membership: Membership, viewer: Viewer) -> bool:
    """End a membership. False where it had ended before."""
    stored = Membership.objects.select_for_update().filter(pk=membership.pk).first()
    if stored is None:
        return False
    audit(viewer, "membership_delete", stored, before=_audit_fields(stored))
    stored.delete()
    return True


def _audit_fields(membership: Membership) -> dict[str, object]:
    """What the audit trail keeps of a membership."""
    return {"user": membership.user_id, "project": membership.project_id, "role": str(membership.role)}
