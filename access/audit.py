"""The audit trail: one line for one change, written in the transaction of the change."""

from typing import Any

from django.db.models import Model

from access.models import AuditEvent
from access.viewer import Viewer


def audit(
    viewer: Viewer,
    verb: str,
    subject: Model,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    note: str = "",
) -> AuditEvent:
    """Record who changed what through which door."""
    return AuditEvent.objects.create(
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        door=viewer.door,
        verb=verb,
        subject_type=subject._meta.model_name or "",
        subject_id=subject.pk,
        before=before,
        after=after,
        note=note,
    )
