"""Saved views in the admin: queries are stored in canonical form, and changes are audited."""

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from access.models import AuditEvent
from search.models import SavedView

pytestmark = pytest.mark.django_db
ADD = "/admin/search/savedview/add/"


@pytest.fixture
def form(client):
    owner = User.objects.create_superuser("curator")
    client.force_login(owner)
    return {"name": "Tea", "slug": "tea", "owner": owner.pk, "visibility": "private"}


def test_query_is_kept_in_its_canonical_form(client, form):
    client.post(ADD, {**form, "query": "?page=1&tags=tea&memory_type=note&tags=black&q=oolong"})
    assert SavedView.objects.get().query == "q=oolong&type=note&tag=black&tag=tea"


def test_query_that_cannot_be_read_is_an_error_of_the_form(client, form):
    response = client.post(ADD, {**form, "query": "taggs=tea&from=yesterday"})
    errors = response.context["adminform"].form.errors["query"]
    assert "taggs: is not a parameter" in errors[0]
    assert "from: 'yesterday' is not a date" in errors[1]
    assert not SavedView.objects.exists()


def test_view_is_audited_when_it_is_made_changed_and_deleted(client, form):
    client.post(ADD, {**form, "query": "tag=tea"})
    view = SavedView.objects.get()
    page = reverse("admin:search_savedview_change", args=[view.pk])
    client.post(page, {**form, "query": "tag=tea", "name": "Tea house"})
    client.post(page, {**form, "query": "tags=tea", "name": "Tea house"})
    client.post(reverse("admin:search_savedview_delete", args=[view.pk]), {"post": "yes"})
    assert not SavedView.objects.exists()
    events = AuditEvent.objects.order_by("pk").values_list("verb", "door", "before__name", "after__name")
    assert list(events) == [
        ("saved_view_create", "admin", None, "Tea"),
        ("saved_view_update", "admin", "Tea", "Tea house"),
        ("saved_view_delete", "admin", "Tea house", None),
    ]


def test_second_view_of_a_slug_is_an_error_of_the_form(client, form):
    client.post(ADD, form)
    response = client.post(ADD, form)
    assert "already exists" in str(response.context["adminform"].form.errors)
    assert SavedView.objects.count() == 1


def test_views_chosen_in_the_list_are_deleted_with_their_events(client, form):
    client.post(ADD, form)
    chosen = {"action": "delete_selected", "_selected_action": [SavedView.objects.get().pk], "post": "yes"}
    client.post(reverse("admin:search_savedview_changelist"), chosen)
    assert not SavedView.objects.exists()
    assert AuditEvent.objects.filter(verb="saved_view_delete").count() == 1
