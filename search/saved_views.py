"""Saved views: who may open them, what they count, and the services that store them.

A view stores a canonical query and nothing of its answer. Pins, the default and the last opening are each person's own.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, tzinfo
from typing import TypeVar
from urllib.parse import parse_qsl

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from django.utils.text import slugify

from access.sign_in import owner_to_sign_in, token_hash
from access.viewer import Viewer, audit, viewer_of_user
from memories.models import Project
from search.engines.base import EngineTimeoutError
from search.listings import totals
from search.models import SavedView, ViewFeed, ViewMark
from search.query import SearchQuery
from text.formatting import check_start, start_of
from web.errors import Refusal
from web.secrets import mask_note, mask_query, texts_to_store

_FIELDS = ("name", "slug", "description", "query", "presentation", "visibility")
# The most views that a person may have, and the most that are read at once.
MOST_OF_ONE, _MOST = 200, 1_000
# The views that are counted together, and the most that are counted for one page.
_COUNTED_AT_ONCE, MOST_COUNTED = 10, 100

Query = TypeVar("Query", bound=SearchQuery)


class ViewNotFoundError(Refusal):
    """There is no such view, or the viewer may not open it."""

    status = 404
    code = "not_found"
    suggestion = "The views that you can open are listed at /api/views and on the page of views."

    def __init__(self, view_id: int) -> None:
        super().__init__(f"There is no saved view {view_id} that you can see.")


class ViewRefusedError(Refusal):
    """A view cannot be stored. `field` is the field at fault."""

    code = "invalid_view"
    suggestion = "Choose another name, or change the view of this name."

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(message)


# --- reads -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenableView:
    """A view as one viewer has it, who is in a time zone. `opened_at` is when they last opened it."""

    view: SavedView
    query: SearchQuery
    is_own: bool
    zone: tzinfo
    pinned: bool = False
    is_default: bool = False
    opened_at: datetime | None = None

    @property
    def id(self) -> int:
        return self.view.pk

    @property
    def newer(self) -> SearchQuery | None:
        """The query of what was stored or changed since the view was opened; None for one that was never opened."""
        if self.opened_at is None:
            return None
        own = start_of(self.query.updated_since, self.query.zone(self.zone), timezone.now())
        if own is not None and own >= self.opened_at:
            return self.query
        return self.query.with_(updated_since=check_start(self.opened_at.isoformat()))


@dataclass(frozen=True, slots=True)
class ViewCount:
    """The memories that a view finds, and how many of them were stored or changed since it was last opened.

    `new` is None for a view that was never opened. Both are lower bounds with `at_least`.
    """

    total: int
    new: int | None
    at_least: bool = False


def openable_views(viewer: Viewer, *, only: int | None = None) -> list[OpenableView]:
    """The views that a viewer may open, or `only` one; pinned ones first, then by name: their own, and the team's.

    A view of the team is left out if it selects a project that the viewer may not see, so that no slug is revealed. A
    key that is not bound to projects opens the views of the site's owner as its own.
    """
    owner_id = _owner_id(viewer)
    stored = SavedView.objects.filter(Q(owner_id=owner_id) | Q(visibility=SavedView.Visibility.TEAM))
    if only is not None:
        stored = stored.filter(pk=only)
    marks = {mark.view_id: mark for mark in ViewMark.objects.filter(user_id=viewer.user_id)} if viewer.user_id else {}
    slugs = _visible_slugs(viewer)
    found = []
    for view in stored.select_related("owner").order_by("name", "pk")[:_MOST]:
        one = OpenableView(view, query_of(view), view.owner_id == owner_id, viewer.timezone)
        named = (*one.query.project, *one.query.not_project)
        if not (one.is_own or slugs is None or slugs.issuperset(named)):
            continue
        if mark := marks.get(view.pk):
            one = replace(one, pinned=mark.pinned, is_default=mark.is_default, opened_at=mark.opened_at)
        found.append(one)
    return sorted(found, key=lambda one: (not one.pinned, one.view.name.lower(), one.id))


def openable_view(viewer: Viewer, view_id: int) -> OpenableView:
    """One view. Raises ViewNotFoundError."""
    found = openable_views(viewer, only=view_id) if 0 < view_id < 2**63 else []
    if not found:
        raise ViewNotFoundError(view_id)
    return found[0]


# A feed that is read often writes a row no more often than this.
_STAMP_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class OpenedFeed:
    """A feed: its view as its person has it, and that person as a viewer."""

    id: int
    one: OpenableView
    viewer: Viewer


def view_feed_of(view: SavedView, viewer: Viewer) -> ViewFeed | None:
    """A person's feed of a view."""
    return ViewFeed.objects.filter(user_id=viewer.user_id, view=view).first() if viewer.user_id else None


def open_feed(token: str) -> OpenedFeed | None:
    """The feed of a secret; None if there is none, or its person may no longer open the view."""
    feed = ViewFeed.objects.select_related("user").filter(token_hash=token_hash(token)).first()
    if feed is None:
        return None
    viewer = viewer_of_user(feed.user)
    found = openable_views(viewer, only=feed.view_id)
    if not found or "read" not in viewer.scopes:
        return None
    now = timezone.now()
    if feed.read_at is None or now - feed.read_at > _STAMP_EVERY:
        ViewFeed.objects.filter(pk=feed.pk).update(read_at=now)
    return OpenedFeed(feed.pk, found[0], viewer)


def query_of(view: SavedView) -> SearchQuery:
    """The query of a view. With what a later version can no longer read of it, it finds nothing."""
    return SearchQuery.read(parse_qsl(view.query))[0]


def default_view_id(user_id: int) -> int | None:
    """The view that a person begins with; None also if it is somebody else's, and the team's no longer."""
    marks = ViewMark.objects.filter(user=user_id, is_default=True)
    shown = Q(view__owner=user_id) | Q(view__visibility=SavedView.Visibility.TEAM)
    return marks.filter(shown).values_list("view_id", flat=True).first()


def count_views(views: Sequence[OpenableView], viewer: Viewer) -> dict[int, ViewCount]:
    """The counts of views by id, as the explore page would count each.

    Views that take too long are left out, and so are those after the first `MOST_COUNTED`.
    """
    views = views[:MOST_COUNTED]
    counts: dict[int, ViewCount] = {}
    for start in range(0, len(views), _COUNTED_AT_ONCE):
        some = views[start : start + _COUNTED_AT_ONCE]
        opened = [(one, one.newer) for one in some if one.newer]
        try:
            found = totals([*(one.query for one in some), *(newer for _, newer in opened)], viewer)
        except EngineTimeoutError:
            continue
        counts |= {one.id: ViewCount(all_.total, None, all_.truncated) for one, all_ in zip(some, found, strict=False)}
        for (one, _), new in zip(opened, found[len(some) :], strict=True):
            counts[one.id] = replace(counts[one.id], new=new.total)
    return counts


def _owner_id(viewer: Viewer) -> int | None:
    """The person whose private views the viewer may open."""
    if viewer.user_id or viewer.project_ids is not None:
        # The private views of others may be of projects that a key for some projects may not see.
        return viewer.user_id
    owner = owner_to_sign_in()
    return owner.pk if owner else None


def _visible_slugs(viewer: Viewer) -> frozenset[str] | None:
    """The slugs of the projects that a viewer may see; None for every project."""
    if viewer.project_ids is None:
        return None
    return frozenset(Project.objects.filter(pk__in=viewer.project_ids).values_list("slug", flat=True))


# --- writes ------------------------------------------------------------------------------------------------------


@transaction.atomic
def saved_view_create(
    *,
    name: str,
    query: SearchQuery,
    viewer: Viewer,
    presentation: str = "",
    description: str = "",
    visibility: str = "private",
) -> SavedView:
    """Save a query under a name that is new among the person's own. Raises ViewRefusedError."""
    if viewer.user_id is None:
        raise ViewRefusedError("name", "Only people save views, not keys.")
    view = SavedView(owner_id=viewer.user_id, description=description, visibility=visibility)
    view.slug = _free_slug(viewer, mask_note(name))
    return saved_view_change(view=view, viewer=viewer, name=name, query=query, presentation=presentation)


@transaction.atomic
def saved_view_change(
    *,
    view: SavedView,
    viewer: Viewer,
    name: str | None = None,
    query: SearchQuery | None = None,
    presentation: str | None = None,
    description: str | None = None,
    visibility: str | None = None,
) -> SavedView:
    """Change what is given of a view of one's own. Raises ViewRefusedError."""
    if view.owner_id != viewer.user_id:
        raise ViewRefusedError("name", "This is a view of somebody else; save a copy to change it.")
    if name is not None:
        view.name = " ".join(name.split())
        if not view.name:
            raise ViewRefusedError("name", "A view needs a name.")
        if SavedView.objects.filter(owner_id=view.owner_id, name__iexact=view.name).exclude(pk=view.pk).exists():
            raise ViewRefusedError("name", f"You already have a view named “{view.name}”.")
    if query is not None:
        view.query = stored_form(query).querystring()
    if presentation is not None:
        view.presentation = presentation
    if description is not None:
        view.description = description
    if visibility is not None:
        view.visibility = visibility
    return saved_view_save(view=view, viewer=viewer)


def stored_form(query: Query) -> Query:
    """The part of a query that a view stores: not the page that the reader is on."""
    return query.with_(page_size=SearchQuery.model_fields["page_size"].default, include_facets=False)


def _free_slug(viewer: Viewer, name: str) -> str:
    """A slug that the person has not used, from the name where it has Latin letters."""
    used = set(SavedView.objects.filter(owner_id=viewer.user_id).values_list("slug", flat=True))
    if len(used) >= MOST_OF_ONE:
        raise ViewRefusedError("name", f"You have {MOST_OF_ONE} views already: delete one that you no longer need.")
    stem = slugify(name)[:90] or "view"
    return next(slug for n in range(len(used) + 1) if (slug := f"{stem}-{n + 1}" if n else stem) not in used)


@transaction.atomic
def view_mark(
    *, view: SavedView, viewer: Viewer, pinned: bool | None = None, is_default: bool | None = None, opened: bool = False
) -> None:
    """Change what a person does with a view: what is given. Only one view is the default of a person."""
    if viewer.user_id is None:
        return
    if is_default:
        ViewMark.objects.filter(user_id=viewer.user_id, is_default=True).exclude(view=view).update(is_default=False)
    given = {"pinned": pinned, "is_default": is_default, "opened_at": timezone.now() if opened else None}
    values = {name: value for name, value in given.items() if value is not None}
    ViewMark.objects.update_or_create(user_id=viewer.user_id, view=view, defaults=values)


@transaction.atomic
def view_feed_create(*, view: SavedView, viewer: Viewer) -> str:
    """Make the address of a person's feed of a view, in place of the one before. Returns its secret, the only copy."""
    if viewer.user_id is None:
        raise ViewRefusedError("feed", "Only people have feeds, not keys.")
    token = secrets.token_urlsafe(32)
    # If two are made at once, the later one replaces the earlier.
    made = {"token_hash": token_hash(token), "created_at": timezone.now(), "read_at": None}
    ViewFeed.objects.update_or_create(user_id=viewer.user_id, view=view, defaults=made)
    audit(viewer, "view_feed_create", view)
    return token


@transaction.atomic
def view_feed_revoke(*, view: SavedView, viewer: Viewer) -> bool:
    """End a person's feed of a view. False if there was none."""
    feed = view_feed_of(view, viewer)
    if feed is None:
        return False
    feed.delete()
    audit(viewer, "view_feed_revoke", view)
    return True


@transaction.atomic
def saved_view_save(*, view: SavedView, viewer: Viewer) -> SavedView:
    """Create or update a view. The caller checks permissions. Raises QueryError or ViewRefusedError."""
    texts = texts_to_store({"name": view.name, "description": view.description}, ViewRefusedError)
    view.name, view.description = texts["name"], texts["description"]
    for name in ("query", "presentation"):
        setattr(view, name, _query_to_store(getattr(view, name)))
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


def _query_to_store(text: str) -> str:
    """A query string. Raises ViewRefusedError for a secret in it: with a mark in its place it would find others."""
    if mask_query(text) != text:
        raise ViewRefusedError("query", "It searches for a secret, which is not stored here. Take it out of the query.")
    return text


@transaction.atomic
def saved_view_delete(*, view: SavedView, viewer: Viewer) -> bool:
    """Delete a view. The caller checks permissions. False if it does not exist."""
    stored = SavedView.objects.select_for_update().filter(pk=view.pk).first()
    if stored is None:
        return False
    audit(viewer, "saved_view_delete", stored, before=_audit_fields(stored))
    stored.delete()
    return True


def _audit_fields(view: SavedView) -> dict[str, object]:
    return {"owner": view.owner_id, **{name: getattr(view, name) for name in _FIELDS}}
