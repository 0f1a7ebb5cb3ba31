"""The audit trail: one event for each change, written in the transaction of the change."""

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
    batch_id: int | None = None,
    note: str = "",
) -> AuditEvent:
    """Record a change: who made it and through which interface."""
    return AuditEvent.objects.create(
        user_id=viewer.user_id,
        api_key_id=viewer.api_key_id,
        door=viewer.door,
        verb=verb,
        subject_type=subject._meta.model_name or "",
        subject_id=subject.pk,
        before=before,
        after=after,
        batch_id=batch_id,
        note=note,
    )
