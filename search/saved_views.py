"""Writes to saved views: each keeps its query in the one canonical form. Who may write them is for the door to say."""

from urllib.parse import parse_qsl

from django.db import transaction

from access.audit import audit
from access.viewer import Viewer
from search.models import SavedView
from search.query import SearchQuery

_FIELDS = ("name", "slug", "description", "query", "visibility", "pinned", "is_default", "watched")


@transaction.atomic
def saved_view_save(*, view: SavedView, viewer: Viewer) -> SavedView:
    """Store a view, a new one or one changed. A query that cannot be read is a QueryError."""
    # Canonical, so that two views can be compared.
    view.query = SearchQuery.from_pairs(parse_qsl(view.query.lstrip("?"), keep_blank_values=True)).querystring()
    # By its id alone, which is the only way a distributed Postgres locks a row.
    stored = SavedView.objects.select_for_update().filter(pk=view.pk).first() if view.pk else None
    before = _audit_fields(stored) if stored else None
    if before != _audit_fields(view):
        view.save()
        audit(
            viewer,
            "saved_view_update" if stored else "saved_view_create",
            view,
            before=before,
            after=_audit_fields(view),
        )
    return view


@transaction.atomic
def saved_view_delete(*, view: SavedView, viewer: Viewer) -> bool:
    """Delete a view. False where it was gone before."""
    stored = SavedView.objects.select_for_update().filter(pk=view.pk).first()
    if stored is None:
        return False
    audit(viewer, "saved_view_delete", stored, before=_audit_fields(stored))
    stored.delete()
    return True


def _audit_fields(view: SavedView) -> dict[str, object]:
    """What the audit trail keeps of a view."""
    return {"owner": view.owner_id, **{name: getattr(view, name) for name in _FIELDS}}
