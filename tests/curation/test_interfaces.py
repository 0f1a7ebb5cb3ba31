"""The same operations through the pages, the API and the admin."""

import re

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from access.keys import make_key
from access.models import Membership
from categories.models import Category
from curation.models import Curation
from memories.models import Project
from tests.curation.conftest import dump, tags
from tests.html import html_of

pytestmark = pytest.mark.django_db

HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


@pytest.fixture
def page(client, corpus):
    client.force_login(User.objects.create_superuser("curator"))
    return client


@pytest.fixture
def api(client, corpus, curator):
    raw = make_key(name="agent", scopes=["read", "write", "curate"], every_project=True, viewer=curator).raw

    def call(path, body=None, method="post"):
        return getattr(client, method)(
            f"/api/curation{path}",
            body or {},
            content_type="application/json",
            headers={"Authorization": f"Bearer {raw}"},
        )

    return call


def oven():
    return Category.objects.get(path="kitchen/oven").pk


def test_a_form_shows_what_it_would_do_and_the_preview_does_it(page):
    address = reverse("curation:verb", args=["merge", "category", oven()])
    before = dump()
    preview = page.get(address, {"target": "kitchen/brewing"})
    text = html_of(preview)
    assert "Merge the category kitchen/oven into kitchen/brewing" in text
    assert "0 memories in “kitchen/oven” move to “kitchen/brewing”; 1 had both and keep one" in text
    assert dump() == before
    sent = dict(HIDDEN.findall(text))
    assert page.post(address, sent).headers["Location"] == "/curate/"
    log = html_of(page.get("/curate/"))
    assert "Merged the category kitchen/oven into kitchen/brewing." in log
    page.post(reverse("curation:undo", args=[Curation.objects.get().pk]))
    assert dump() == before
    assert "undone by curator" in html_of(page.get("/curate/"))


@pytest.mark.parametrize(
    ("verb", "data", "reason"),
    [
        pytest.param("merge", {"target": "nowhere"}, "There is no category “nowhere”", id="unknown target"),
        pytest.param("merge", {"target": "brewin"}, "Did you mean kitchen/brewing?", id="target nearly right"),
        pytest.param("rename", {"name": "Brewing"}, "merge the two instead", id="taken"),
        pytest.param("rename", {}, "This field is required", id="empty"),
        pytest.param("split", {"name": "x"}, ">Tick the memories that get the new name", id="nothing chosen"),
        pytest.param(
            "split",
            {"name": "x", "query": "tag=tea", "memories": "1"},
            ">Choose the memories either by a query or by their ids",
            id="chosen twice",
        ),
        pytest.param("split", {"name": "x", "q": "tea"}, "Unknown parameter: q.", id="unknown field"),
        pytest.param("split", {"name": "x", "memories": "one"}, "is not the number of a memory", id="no number"),
    ],
)
def test_what_is_refused_is_told_at_the_form(page, verb, data, reason):
    response = page.get(reverse("curation:verb", args=[verb, "category", oven()]), data)
    assert response.status_code == 422
    assert reason in html_of(response)
    # Where it is seen at once.
    assert re.search(r'<h2 id="(\w+)-heading">', html_of(response))[1] == verb


@pytest.mark.parametrize(
    ("kind", "name", "shown"),
    [
        pytest.param("category", "stove", "Kitchen / Oven", id="category by alias"),
        pytest.param("concept", "heat", "temperature", id="concept with its relations"),
        pytest.param("entity", "person:Mio", "owns tool:kettle", id="entity with its relationships"),
        pytest.param("tag", "Tea", "Merge into another", id="tag"),
    ],
)
def test_a_term_is_found_by_name_and_has_a_page(page, kind, name, shown):
    response = page.get("/curate/", {"kind": kind, "name": name}, follow=True)
    assert response.status_code == 200
    assert shown in html_of(response)


def test_more_than_was_meant_is_not_offered_to_be_retagged(page):
    assert "Edit all 2…<" in html_of(page.get("/explore/?tag=kettle&from=2001-02-28"))
    shown = html_of(page.get("/explore/?tag=kettle&from=2026-02-30"))
    assert "2026-02-30" in shown
    assert "Edit all" not in shown


def test_all_results_of_the_explorer_are_retagged_from_its_toolbar(page):
    explore = html_of(page.get("/explore/?tag=kettle"))
    address = re.search(r'href="(/curate/retag/[^"]+)">Edit all 2…<', explore)[1].replace("&amp;", "&")
    assert "Edit all 2 memories" in html_of(page.get(address))
    assert address == "/curate/retag/?tag=kettle"
    asked = {"tag": "kettle", "add_tags": "boiler\nwater", "set_category": ""}
    preview = html_of(page.get("/curate/retag/", asked))
    assert "2 memories will be tagged “boiler”" in preview
    response = page.post("/curate/retag/", dict(HIDDEN.findall(preview)) | {"add_tags": "boiler\nwater"})
    assert response.status_code == 302
    assert tags("t5") == ["kettle", "boiler", "water"]


def test_terms_to_edit_are_counted_among_the_memories_that_change(page):
    # Other filters would find memories with other tags; these two have none.
    text = html_of(page.get("/curate/retag/", {"tag": "kettle"}))
    assert re.findall(r'name="remove_tags" value="([^"]+)"', text) == ["kettle", "hardware"]


def test_readers_find_no_way_in(client, corpus):
    reader = User.objects.create_user("reader")
    Membership.objects.create(user=reader, project=Project.objects.get(slug="tea"), role="reader")
    client.force_login(reader)
    assert client.get("/curate/").status_code == 403
    assert "Retag" not in html_of(client.get("/explore/"))
    assert '"/curate/"' not in html_of(client.get("/status/"))
    assert client.post(reverse("curation:undo", args=[1])).status_code == 403


def test_others_terms_are_not_found(client, corpus):
    curator = User.objects.create_user("tea")
    Membership.objects.create(user=curator, project=Project.objects.get(slug="tea"), role="curator")
    client.force_login(curator)
    crane = Category.objects.get(path="yard/dock/crane").pk
    assert client.get(reverse("curation:term", args=["category", crane])).status_code == 404
    assert client.get(reverse("curation:term", args=["category", oven()])).status_code == 200


def test_the_api_plans_applies_lists_and_undoes(api):
    before = dump()
    asked = {"kind": "tag", "source": "tea", "target": "guests"}
    plan = api("/merge", {**asked, "dry_run": True}).json()
    assert plan["curation"] is None
    assert plan["plan"]["figures"] == [{"kind": "tag", "source": "tea", "target": "guests", "moved": 2, "collapsed": 2}]
    assert dump() == before
    done = api("/merge", {**asked, "token": plan["plan"]["token"]}).json()["curation"]
    assert (done["title"], done["memories"], done["by"]) == ("Merged the tag tea into guests", 4, "key agent")
    assert api("", method="get").json()["curations"] == [done]
    assert api(f"/{done['id']}/undo").json()["undone_at"]
    assert dump() == before
    again = api(f"/{done['id']}/undo")
    assert (again.status_code, again.json()["error"]) == (409, "undo_refused")


@pytest.mark.parametrize(
    ("path", "body", "status", "error"),
    [
        pytest.param("/merge", {"kind": "tag", "source": "tea", "target": "t"}, 404, "not_found", id="unknown"),
        pytest.param("/merge", {"kind": "tag", "source": "tea"}, 422, "invalid_request", id="incomplete"),
        pytest.param(
            "/merge", {"kind": "tag", "source": "tea", "target": "tea"}, 409, "curation_refused", id="refused"
        ),
        pytest.param("/retag", {"query": "tag=tea", "add_tags": ["x"]}, 422, "invalid_request", id="without a token"),
        pytest.param("/move", {"category": "yard", "token": "old"}, 409, "curation_refused", id="where it is"),
        pytest.param(
            "/rename",
            {"kind": "tag", "term": "tea", "name": "chai", "token": "old"},
            409,
            "plan_changed",
            id="outdated",
        ),
        pytest.param("/99/undo", {}, 404, "not_found", id="unknown curation"),
    ],
)
def test_the_api_refuses_in_the_one_shape(api, path, body, status, error):
    response = api(path, body)
    assert (response.status_code, response.json()["error"]) == (status, error)
    assert set(response.json()) == {"error", "detail", "suggestion", "did_you_mean"}


def test_a_category_is_made_on_its_page_with_a_preview_and_an_undo(page):
    assert 'href="/curate/new-category/"' in html_of(page.get("/categories/"))
    assert "<h1>New category</h1>" in html_of(page.get("/curate/new-category/"))
    assert page.get("/curate/new-category/?name=kitchen").status_code == 422
    preview = html_of(page.get("/curate/new-category/?name=Harbour/Cranes&next=/categories/"))
    assert "harbour/cranes" in preview
    sent = dict(HIDDEN.findall(preview))
    done = page.post("/curate/new-category/", sent)
    assert done["Location"] == "/categories/"
    assert Category.objects.filter(path="harbour/cranes").exists()
    assert "Created the category harbour/cranes" in html_of(page.get("/categories/"))
