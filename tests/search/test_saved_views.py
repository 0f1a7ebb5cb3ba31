"""Saved views are stored in canonical form, and every change is audited."""

import pytest
from django.contrib.auth.models import User

from access.models import AuditEvent
from access.viewer import command_viewer
from search.models import SavedView
from search.saved_views import saved_view_delete, saved_view_save
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
        "visibility": "private",
        "pinned": False,
        "is_default": False,
        "watched": False,
    }


def test_change_tells_what_stood_before_and_after(view):
    view.query = "tag=tea&type=note"
    save(view)
    event = AuditEvent.objects.get(verb="saved_view_update")
    assert (event.before["query"], event.after["query"]) == ("tag=tea", "type=note&tag=tea")


def test_same_query_in_other_words_is_no_event(view):
    updated = SavedView.objects.get().updated_at
    view.query = "tags=tea"
    save(view)
    assert AuditEvent.objects.count() == 1
    assert SavedView.objects.get().updated_at == updated


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
