"""Services for saved views, which store canonical queries. Callers check permissions."""

from urllib.parse import parse_qsl

from django.db import transaction

from access.audit import audit
from access.viewer import Viewer
from search.models import SavedView
from search.query import SearchQuery

_FIELDS = ("name", "slug", "description", "query", "visibility", "pinned", "is_default", "watched")


@transaction.atomic
def saved_view_save(*, view: SavedView, viewer: Viewer) -> SavedView:
    """Create or update a view. Raises QueryError."""
    view.query = SearchQuery.from_pairs(parse_qsl(view.query.lstrip("?"), keep_blank_values=True)).querystring()
    # Distributed Postgres can only lock rows selected by id.
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
    """Delete a view. False if it does not exist."""
    stored = SavedView.objects.select_for_update().filter(pk=view.pk).first()
    if stored is None:
        return False
    audit(viewer, "saved_view_delete", stored, before=_audit_fields(stored))
    stored.delete()
    return True


def _audit_fields(view: SavedView) -> dict[str, object]:
    """The fields of a view for the audit trail."""
    return {"owner": view.owner_id, **{name: getattr(view, name) for name in _FIELDS}}
