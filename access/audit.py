"""The audit trail: one event for each change, written in the transaction of the change."""

from datetime import datetime
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
