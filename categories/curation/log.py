"""Reads of what curators did: what a viewer may know of it, and whether it can be undone."""

from django.db.models import Q, QuerySet

from access.viewer import Viewer
from categories.models import Curation


def curations_seen(viewer: Viewer) -> QuerySet[Curation]:
    """Curations of the viewer's own, and those that changed memories of theirs alone; all, for who sees everything."""
    curations = Curation.objects.select_related("user", "api_key", "undone_by")
    if viewer.project_ids is None:
        return curations
    seen = ~Q(project_ids=[]) & Q(project_ids__contained_by=list(viewer.project_ids))
    if viewer.user_id is not None:
        seen |= Q(user_id=viewer.user_id)
    if viewer.api_key_id is not None:
        seen |= Q(api_key_id=viewer.api_key_id)
    return curations.filter(seen)


def curation_seen(curation_id: int, viewer: Viewer) -> Curation | None:
    return curations_seen(viewer).filter(pk=curation_id).first() if curation_id < 2**63 else None


def who(curation: Curation) -> str:
    """Who did it, for people."""
    if curation.user is not None:
        return str(curation.user)
    if curation.api_key is not None:
        return f"key {curation.api_key.name}"
    return "a command" if curation.door == "command" else "somebody who is gone"
