"""Saved views on pages and in the API: save, open, modify, share, and read by the same rules everywhere."""

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import Membership
from access.viewer import Viewer, command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from memories.models import Project
from search.models import SavedView, ViewMark
from tests.html import html_of

# The engines count alike, as tests of search prove: one is enough for pages.
pytestmark = [pytest.mark.django_db, pytest.mark.parametrize("engine", ["tantivy"], indirect=True)]


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def reader(corpus):
    return signed_in(User.objects.create_superuser("ada"))


@pytest.fixture
def view(reader):
    reader.post("/views/new/", {"query": "tag=tea&type=note&page=2", "name": "Tea notes", "visibility": "team"})
    return SavedView.objects.get()


@pytest.fixture
def other(view):
    """Somebody who may see the project `boat` alone."""
    user = User.objects.create_user("ben")
    Membership.objects.create(user=user, project=Project.objects.get(slug="boat"), role="reader")
    return signed_in(user)


def bar(response):
    return html_of(response).partition('<div class="view-bar"')[2].partition('<h1 id="total"')[0]


def test_address_of_a_view_leads_to_its_slice_and_names_it(reader, view):
    opened = reader.get(f"/views/{view.pk}/")
    assert opened["Location"] == f"/explore/?type=note&tag=tea&v={view.pk}"
    page = reader.get(opened["Location"])
    assert page.status_code == 200
    assert "Tea notes" in bar(page)
    assert "Modified" not in bar(page)
    assert ViewMark.objects.get().opened_at is not None


def test_every_link_stays_in_the_view_and_a_difference_is_named(reader, view):
    page = reader.get(f"/explore/?project=tea&tag=tea&v={view.pk}")
    assert "Modified" in bar(page)
    assert "<span>project tea</span>" in bar(page)
    assert "<span>type note</span>" in bar(page)
    assert f'href="/explore/?type=note&amp;tag=tea&amp;v={view.pk}">Discard' in bar(page)
    assert 'href="/explore/?project=tea&amp;tag=tea" aria-label="Leave the view Tea notes"' in bar(page)
    assert f'href="/explore/?tag=tea&amp;v={view.pk}" aria-label="Remove filter: project tea"' in html_of(page)
    assert f'name="v" value="{view.pk}"' in html_of(page)
    # The calls for elsewhere have no view.
    assert "/api/search?project=tea&amp;tag=tea&quot;" in html_of(page)


def test_saving_over_a_view_stores_the_query(reader, view):
    done = reader.post(f"/views/{view.pk}/edit/", {"query": f"tag=guests&v={view.pk}"}, follow=True)
    assert done.redirect_chain[-1][0] == f"/explore/?tag=guests&v={view.pk}"
    assert SavedView.objects.get().query == "tag=guests"


def test_name_that_is_taken_is_refused_with_what_was_typed(reader, view):
    page = reader.post("/views/new/", {"query": "tag=guests", "name": "tea notes"})
    assert page.status_code == 422
    assert "You already have a view named “tea notes”." in html_of(page)
    assert 'name="query" value="tag=guests"' in html_of(page)
    assert SavedView.objects.count() == 1


def test_pin_and_beginning_belong_to_each_person(reader, view, other):
    other.post(f"/views/{view.pk}/mark/", {"pinned": "1", "default": "1"})
    assert f'href="/views/{view.pk}/"' in html_of(other.get("/status/"))
    assert "Pinned by ben" in html_of(reader.get(f"/views/{view.pk}/edit/"))
    assert f'<a href="/views/{view.pk}/"' not in html_of(reader.get("/status/")).partition("<main")[0]


def test_view_of_the_team_finds_only_what_its_reader_may_see(reader, view, other):
    found = html_of(other.get(f"/explore/?type=note&tag=tea&v={view.pk}"))
    assert "Tea notes" in found
    assert '<h1 id="total" tabindex="-1">0 memories' in found
    assert other.get(f"/views/{view.pk}/edit/").status_code == 403
    assert other.post(f"/views/{view.pk}/delete/").status_code == 403
    SavedView.objects.update(query="project=tea")
    assert other.get(f"/views/{view.pk}/").status_code == 404
    assert "There is no saved view" in html_of(other.get(f"/explore/?v={view.pk}"))
    assert "Tea notes" not in html_of(other.get("/views/"))


# --- the API and agents ---------------------------------------------------------------------------------------------


def caller(*projects):
    key = make_key(
        name="agent",
        scopes=["read"],
        every_project=not projects,
        projects=list(Project.objects.filter(slug__in=projects)),
        viewer=command_viewer(),
    )
    return Client(headers={"Authorization": f"Bearer {key.raw}"})


def test_view_in_the_api_has_the_total_of_the_search_that_it_names(reader, view):
    client = caller()
    (found,) = client.get("/api/views").json()["views"]
    assert (found["name"], found["owner"], found["query"]) == ("Tea notes", "ada", "type=note&tag=tea")
    assert found["filters"] == {"type": ["note"], "tag": ["tea"]}
    assert (found["total"], found["new"], found["lower_bound"]) == (1, None, False)
    assert client.get(f"/api/search?{found['query']}").json()["total"] == 1
    assert client.get(f"/api/views/{view.pk}").json() == found
    assert client.get("/api/views/99").json()["error"] == "not_found"
    assert not ViewMark.objects.exists()


def test_key_for_another_project_reads_neither_name_nor_number(reader, view):
    SavedView.objects.update(query="project=tea&q=oolong")
    reader.post("/views/new/", {"query": "tag=tea", "name": "My own"})
    assert caller("boat").get("/api/views").json()["views"] == []
    assert caller("boat").get(f"/api/views/{view.pk}").status_code == 404
    assert [one["name"] for one in caller("tea").get("/api/views").json()["views"]] == ["Tea notes"]


def test_agent_gets_the_arguments_of_the_same_search(reader, view):
    key = Viewer(None, frozenset(["read"]))
    (row,) = json.loads(call(TOOL["views"], {"format": "json"}, key))["views"]
    assert (row["name"], row["memories"]) == ("Tea notes", "1")
    arguments = json.loads(row["search"])
    assert arguments == {"type": ["note"], "tag": ["tea"]}
    assert json.loads(call(TOOL["search"], arguments | {"format": "json"}, key))["total"] == 1


def test_slice_without_a_filter_that_is_not_understood_is_not_saved_over_a_view(reader, view):
    modified = bar(reader.get(f"/explore/?tag=tea&v={view.pk}"))
    assert ">Save</button>" in modified
    ignored = bar(reader.get(f"/explore/?tag=tea&v={view.pk}&since=whenever"))
    assert ">Save</button>" not in ignored
    assert "Save as" not in ignored
    assert "Discard" in ignored


@pytest.mark.parametrize("address", ["explore", "nowhere", "admin:index", "//other.example/", ""])
def test_after_a_pin_the_reader_is_back_on_a_page_of_this_site(reader, view, address):
    reply = reader.post(f"/views/{view.pk}/mark/", {"pinned": "1", "next": address})
    assert (reply.status_code, reply["Location"]) == (302, address if address in {"explore", "nowhere"} else "/views/")


def test_form_names_the_parameters_that_it_cannot_save(reader):
    page = html_of(reader.get("/views/new/?type=note&colour_of=red"))
    assert "“colour_of” is not a parameter of this page." in page
    assert '<input type="hidden" name="query" value="type=note&amp;colour_of=red">' in page
