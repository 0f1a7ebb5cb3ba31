"""Saved views are stored in canonical form, shown to those who may see them, and counted as the explore page counts."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from access.models import AuditEvent, Membership
from access.viewer import Viewer, command_viewer, viewer_of_user
from memories.models import Memory, Project
from search.models import SavedView, ViewMark
from search.query import SearchQuery
from search.saved_views import (
    ViewNotFoundError,
    ViewRefusedError,
    count_views,
    default_view_id,
    openable_view,
    openable_views,
    saved_view_change,
    saved_view_create,
    saved_view_delete,
    saved_view_save,
    view_mark,
)
from web.params import QueryError

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner():
    return User.objects.create_user("ada")


@pytest.fixture
def view(owner):
    return save(SavedView(owner=owner, slug="tea", name="Tea", query="?tags=tea&page=1"))


def save(view):
    return saved_view_save(view=view, viewer=command_viewer())


def test_view_is_made_in_its_canonical_form_with_its_event(view, owner):
    assert SavedView.objects.get().query == "tag=tea"
    event = AuditEvent.objects.get()
    assert (event.verb, event.subject_type, event.subject_id) == ("saved_view_create", "savedview", view.pk)
    assert event.before is None
    assert event.after == {
        "owner": owner.pk,
        "name": "Tea",
        "slug": "tea",
        "description": "",
        "query": "tag=tea",
        "presentation": "",
        "visibility": "private",
    }


def test_query_that_cannot_be_read_is_refused_and_changes_nothing(view):
    view.query = "taggs=tea"
    with pytest.raises(QueryError, match="taggs"):
        save(view)
    assert SavedView.objects.get().query == "tag=tea"
    assert AuditEvent.objects.count() == 1


def test_view_is_deleted_once(view):
    assert saved_view_delete(view=view, viewer=command_viewer())
    assert not saved_view_delete(view=view, viewer=command_viewer())
    assert not SavedView.objects.exists()
    event = AuditEvent.objects.get(verb="saved_view_delete")
    assert (event.before["slug"], event.after) == ("tea", None)


def test_view_stores_the_slice_and_not_the_page_of_it(owner):
    query = SearchQuery(tag=("tea",), sort="oldest", page=3, page_size=50, include_facets=True)
    assert (
        saved_view_create(name=" Old  tea ", query=query, viewer=viewer_of_user(owner)).query == "tag=tea&sort=oldest"
    )
    assert SavedView.objects.get().name == "Old tea"


def test_view_of_somebody_else_is_not_changed(view):
    other = viewer_of_user(User.objects.create_superuser("root"))
    with pytest.raises(ViewRefusedError, match="somebody else"):
        saved_view_change(view=view, viewer=other, name="Mine")
    assert SavedView.objects.get().name == "Tea"


# --- who sees what, and what is counted ------------------------------------------------------------------------------


def names(viewer):
    return [one.view.name for one in openable_views(viewer)]


@pytest.fixture
def shared(corpus, owner):
    """Views of one person, and another person who may see the project `tea` alone."""
    stored = {
        "All": ("", "team"),
        "Boats": ("project=boat", "team"),
        "Not boats": ("-project=boat", "team"),
        "Tea": ("project=tea", "team"),
        "Mine": ("type=note", "private"),
    }
    for name, (query, visibility) in stored.items():
        save(SavedView(owner=owner, slug=name.lower(), name=name, query=query, visibility=visibility))
    other = User.objects.create_user("ben")
    Membership.objects.create(user=other, project=Project.objects.get(slug="tea"), role="reader")
    return viewer_of_user(other)


def test_nobody_begins_with_a_view_that_is_not_shared_any_more(owner, view):
    other = viewer_of_user(User.objects.create_user("bob"))
    owners = viewer_of_user(owner)
    saved_view_change(view=view, viewer=owners, visibility="team")
    for viewer in (owners, other):
        view_mark(view=view, viewer=viewer, is_default=True)
    assert (default_view_id(owner.pk), default_view_id(other.user_id)) == (view.pk, view.pk)
    saved_view_change(view=view, viewer=owners, visibility="private")
    assert (default_view_id(owner.pk), default_view_id(other.user_id)) == (view.pk, None)


def test_view_of_the_team_is_not_shown_to_those_who_may_not_see_its_projects(shared, owner):
    assert names(shared) == ["All", "Tea"]
    for name in ("Boats", "Mine"):
        with pytest.raises(ViewNotFoundError):
            openable_view(shared, SavedView.objects.get(name=name).pk)
    assert names(viewer_of_user(owner)) == ["All", "Boats", "Mine", "Not boats", "Tea"]
    key = Viewer(shared.project_ids, frozenset(["read"]), api_key_id=1)
    assert names(key) == ["All", "Tea"]


def test_key_for_every_project_reads_the_views_of_the_owner_of_the_site(shared, owner):
    User.objects.filter(pk=owner.pk).update(is_superuser=True)
    assert names(Viewer(None, frozenset(["read"]), api_key_id=1)) == ["All", "Boats", "Mine", "Not boats", "Tea"]


def test_views_count_what_their_viewer_may_see_and_what_is_new_since_they_opened_it(shared):
    everyone = viewer_of_user(User.objects.create_superuser("root"))
    tea = next(one for one in openable_views(everyone) if one.view.name == "Tea")
    view_mark(view=tea.view, viewer=everyone, opened=True)
    changed = Memory.objects.filter(project__slug="tea", state="active").values("pk")[:3]
    Memory.objects.filter(pk__in=changed).update(updated_at=timezone.now() + timedelta(seconds=1))

    def counted(viewer):
        views = openable_views(viewer)
        counts = count_views(views, viewer)
        return {one.view.name: (counts[one.id].total, counts[one.id].new) for one in views}

    assert counted(shared) == {"All": (8, None), "Tea": (8, None)}
    boats = {"Boats": (6, None), "Not boats": (8, None)}
    assert counted(everyone) == {"All": (14, None), "Tea": (8, 3)} | boats


def test_what_is_new_is_a_part_of_what_a_view_of_changes_finds(shared):
    everyone = viewer_of_user(User.objects.create_superuser("root"))
    view = saved_view_create(name="Lately", query=SearchQuery(updated_since="7d"), viewer=everyone)
    view_mark(view=view, viewer=everyone, opened=True)
    ViewMark.objects.update(opened_at=timezone.now() - timedelta(days=30))
    Memory.objects.update(updated_at=timezone.now() - timedelta(days=20))
    Memory.objects.filter(pk__in=Memory.objects.filter(state="active").values("pk")[:3]).update(
        updated_at=timezone.now() - timedelta(days=1)
    )
    one = openable_view(everyone, view.pk)
    (count,) = count_views([one], everyone).values()
    assert (count.total, count.new) == (3, 3)
