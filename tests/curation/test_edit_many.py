"""Editing many memories at once: chosen by number or by a query, previewed with a sample, undone as a whole."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.models import Membership
from access.viewer import Viewer
from categories.models import Category
from curation import memory_operations
from curation.models import Curation
from curation.queries import TermNotFoundError
from curation.schemas import Retag
from curation.services import CurationForbiddenError, curation_apply, curation_plan, curation_undo
from curation.working_copy import CurationRefusedError
from memories.history import memory_history
from memories.models import Memory, Project
from memories.storage import corpus_bump
from tests.curation.conftest import dump, number, tags
from tests.curation.test_interfaces import HIDDEN
from tests.html import html_of

pytestmark = pytest.mark.django_db


def state(external_id):
    return Memory.objects.get(external_id=external_id).state


@pytest.fixture
def tea_writer(corpus):
    """Somebody who reads both projects, and writes that of the tea house."""
    tea, boat = (Project.objects.get(slug=slug).pk for slug in ("tea", "boat"))
    return Viewer(frozenset([tea, boat]), frozenset(["read", "write"]), frozenset([tea]))


def signed_in(**roles):
    user = User.objects.create_user("mio")
    for slug, role in roles.items():
        Membership.objects.create(user=user, project=Project.objects.get(slug=slug), role=role)
    client = Client()
    client.force_login(user)
    return client


def test_only_memories_that_one_may_write_change_and_the_others_are_counted(corpus, tea_writer):
    asked = Retag(query="tag=hardware", add_tags=["metal"])
    plan = curation_plan(operation=asked, viewer=tea_writer)
    assert (plan.memories, plan.unchanged, plan.not_writable) == (1, 0, 2)
    assert [(one.title, one.lines[0].before, one.lines[0].after) for one in plan.examples] == [
        ("Kettle valve stuck", "kettle, hardware", "kettle, hardware, metal")
    ]
    curation_apply(operation=asked.model_copy(update={"token": plan.token}), viewer=tea_writer)
    assert tags("t2") == ["kettle", "hardware", "metal"]
    assert tags("b1") == ["crane", "hardware"]


def test_categories_that_do_not_exist_are_made_with_those_above_them_and_undone(corpus, curator):
    before = dump()
    names = ["Harbour/Cranes", "harbour", "Harbour/Cranes/Old", "harbour/cranes"]
    asked = Retag(query="tag=crane", add_categories=names, remove_tags=["crane"])
    plan = curation_plan(operation=asked, viewer=curator)
    assert plan.title == f"Retagged {plan.memories} memories: {', '.join(f'+{name}' for name in names)}, −crane"
    made = [line.after for line in plan.lines if line.what == "new category"]
    assert made == ["harbour", "harbour/cranes", "harbour/cranes/old"]
    applied = curation_apply(operation=asked.model_copy(update={"token": plan.token}), viewer=curator)
    assert sorted(row.kind for row in applied.made) == ["category"] * 3
    paths = Category.objects.filter(pk__in=Memory.objects.get(external_id="b1").category_ids)
    assert {"harbour", "harbour/cranes", "harbour/cranes/old"} <= set(paths.values_list("path", flat=True))
    curation_undo(curation_id=applied.curation.pk, viewer=curator)
    assert dump() == before


def test_categories_are_not_made_by_those_who_may_not_see_whether_they_exist(corpus, tea_writer):
    asked = Retag(query="tag=kettle", add_categories=["harbour"])
    with pytest.raises(TermNotFoundError, match="no category “harbour” that you can see"):
        curation_plan(operation=asked, viewer=tea_writer)


def test_memories_that_one_may_not_see_are_as_if_they_did_not_exist(corpus, tea_curator):
    asked = Retag(memories=[number("b1")], add_tags=["x"])
    plan = curation_plan(operation=asked, viewer=tea_curator)
    assert plan.refusals == ("There are no such memories that you can see.",)
    missing = curation_plan(operation=Retag(memories=[987654], add_tags=["x"]), viewer=tea_curator)
    assert missing.refusals == plan.refusals
    both = curation_plan(operation=Retag(memories=[number("t1"), number("b1")], add_tags=["x"]), viewer=tea_curator)
    assert (both.memories, both.unchanged, both.not_writable) == (1, 0, 0)


def test_whoever_only_reads_changes_nothing(corpus, tea_curator):
    reader = Viewer(tea_curator.project_ids, frozenset(["read"]), frozenset())
    with pytest.raises(CurationForbiddenError):
        curation_plan(operation=Retag(memories=[number("t1")], add_tags=["x"]), viewer=reader)


@pytest.mark.parametrize(
    ("chosen", "asked", "after", "unchanged"),
    [
        pytest.param(
            ["t1", "t8", "t6"], {"set_state": "archived"}, ["archived", "archived", "superseded"], 1, id="archive"
        ),
        pytest.param(
            ["t1", "t3"], {"set_state": "archived", "add_tags": ["old"]}, ["archived", "archived"], 0, id="both"
        ),
    ],
)
def test_states_change_together_and_come_back_by_one_undo(corpus, curator, chosen, asked, after, unchanged):
    before = dump()
    operation = Retag(memories=[number(one) for one in chosen], **asked)
    applied = curation_apply(operation=operation, viewer=curator)
    assert [state(one) for one in chosen] == after
    assert applied.plan.unchanged == unchanged
    event = memory_history(curator, number("t1")).events[0]
    assert (event.kind, event.curation_id) == ("archived", applied.curation.pk)
    curation_undo(curation_id=applied.curation.pk, viewer=curator)
    assert memory_history(curator, number("t1")).events[0].kind == "restored"
    assert without_times(dump()) == without_times(before)


def without_times(rows):
    return {table: [re.sub(r'"updated_at": "[^"]+"', "", row) for row in found] for table, found in rows.items()}


def test_duplicates_are_merged_into_one_that_gets_what_they_have(corpus, curator):
    before = dump()
    ids = [number(one) for one in ("t1", "t2")]
    applied = curation_apply(operation=Retag(memories=ids, merge_into=number("t2"), reason="twice"), viewer=curator)
    old, kept = Memory.objects.get(external_id="t1"), Memory.objects.get(external_id="t2")
    assert (old.state, old.superseded_by_id, old.state_reason) == ("superseded", kept.pk, "twice")
    assert (kept.state, kept.tags) == ("active", ["kettle", "hardware", "tea", "brewing"])
    assert kept.concept_links.count() == 1
    assert {str(link.entity) for link in kept.entity_links.all()} == {"tool:kettle", "person:Mio"}
    assert applied.curation.title == f"Merged #{old.pk} into #{kept.pk}"
    curation_undo(curation_id=applied.curation.pk, viewer=curator)
    assert without_times(dump()) == without_times(before)


@pytest.mark.parametrize(
    ("chosen", "kept", "reason"),
    [
        pytest.param(["t1", "b1"], "t1", "Only memories of the same project can be merged.", id="two projects"),
        pytest.param(["t6", "t7"], "t6", "is superseded: keep another one, or restore it.", id="kept is superseded"),
        pytest.param(
            ["t6", "t7"], "t7", "Choose at least two memories that are active or proposed.", id="nothing left"
        ),
        pytest.param(["t1", "t2"], "t3", "is not one of the chosen memories that you can change.", id="another one"),
    ],
)
def test_what_cannot_be_merged_is_refused(corpus, curator, chosen, kept, reason):
    asked = Retag(memories=[number(one) for one in chosen], merge_into=number(kept))
    assert curation_plan(operation=asked, viewer=curator).refusals[0].endswith(reason)


def test_whoever_did_it_undoes_it_unless_a_memory_changed_since(corpus, tea_writer):
    applied = curation_apply(operation=Retag(memories=[number("t1")], set_state="archived"), viewer=tea_writer)
    curation_undo(curation_id=applied.curation.pk, viewer=tea_writer)
    assert state("t1") == "active"


# --- the pages --------------------------------------------------------------------------------------------------------


def test_ticked_memories_are_edited_previewed_with_a_sample_and_undone_from_the_message(corpus):
    client = signed_in(tea="curator")
    chosen = {"q": "tea", "take": "chosen", "memory": [number("t1"), number("t3")], "do": "tag"}
    form = html_of(client.get("/curate/retag/", chosen))
    assert "Edit 2 memories" in form
    assert "<span>tea</span> <small>2</small>" in form
    preview = html_of(client.get("/curate/retag/", {**chosen, "add_tags": "hot\nloose leaf", "remove_tags": ["tea"]}))
    assert "2 memories change" in preview
    assert "<del>tea</del><span>guests</span><ins>hot</ins><ins>loose-leaf</ins>" in preview
    sent = {}
    for name, value in HIDDEN.findall(preview):
        sent.setdefault(name, []).append(value)
    done = client.post("/curate/retag/", sent | {"add_tags": "hot\nloose leaf"})
    assert done.headers["Location"] == "/explore/?q=tea"
    assert tags("t3") == ["guests", "hot", "loose-leaf"]
    undo = f"/curate/undo/{Curation.objects.get().pk}/"
    assert f'action="{undo}"' in html_of(client.get("/explore/?q=tea"))
    assert client.post(undo, {"next": "/explore/?q=tea"}).headers["Location"] == "/explore/?q=tea#chosen"
    assert tags("t3") == ["tea", "guests"]


def test_page_does_not_show_chosen_memories_of_other_projects(corpus):
    client = signed_in(tea="curator")
    shown = html_of(client.get("/curate/retag/", {"memory": [number("t1"), number("b1")]}))
    assert "Edit 1 memory" in shown
    assert "Crane" not in shown
    assert "crane" not in shown


@pytest.mark.parametrize("asked", [{"of": "tag:rigging"}, {"of": "category:yard/dock"}])
def test_terms_of_other_projects_cannot_be_split(corpus, asked):
    chosen = {"memory": number("t2"), "name": "x"}
    assert signed_in(tea="curator").get("/curate/split/", {**chosen, **asked}).status_code == 404


def test_splits_are_for_curators(corpus):
    client = signed_in(tea="writer")
    assert 'id="part-split"' not in html_of(client.get("/curate/retag/", {"tag": "tea"}))
    assert 'value="split"' not in html_of(client.get("/explore/"))
    assert client.get("/curate/split/", {"tag": "tea", "of": "tag:tea", "name": "x"}).status_code == 403


def test_api_edits_memories_by_number(corpus, tea_curator):
    from tests.explorer.memory.test_memory_api import Caller, key

    caller = Caller(key(["read", "write"], Project.objects.get(slug="tea")).raw)
    body = {"memories": [number("t1"), number("t6")], "set_state": "archived"}
    plan = caller.send("post", "/api/curation/retag", {**body, "dry_run": True}).json()["plan"]
    assert (plan["memories"], plan["unchanged"], plan["not_writable"]) == (1, 1, 0)
    assert plan["examples"][0]["lines"] == [{"what": "state", "before": "active", "after": "archived"}]
    assert caller.send("post", "/api/curation/retag", {**body, "token": plan["token"]}).status_code == 200
    assert state("t1") == "archived"
    refused = caller.send("post", "/api/curation/retag", {"add_tags": ["x"], "dry_run": True})
    assert "choose the memories either by a query or by their ids" in refused.json()["detail"]


def test_undo_returns_to_pages_of_this_site_only(corpus):
    client = signed_in(tea="curator")
    response = client.post("/curate/undo/1/", {"next": "https://example.org/"})
    assert response.status_code in (302, 404)
    assert "example.org" not in response.headers.get("Location", "")


def test_boxes_to_tick_are_for_those_who_may_write(corpus):
    assert 'id="act"' not in html_of(signed_in(tea="reader").get("/explore/"))
    User.objects.all().delete()
    assert 'form="act"' in html_of(signed_in(tea="curator").get("/explore/"))


def test_more_than_can_be_changed_at_once_is_refused_with_the_limit(corpus, curator, monkeypatch):
    monkeypatch.setattr(memory_operations, "MOST_MEMORIES", 5)
    with pytest.raises(CurationRefusedError, match="14 memories match, and at most 5 can be changed at once: narrow"):
        curation_apply(operation=Retag(query="", add_tags=["x"]), viewer=curator)


@pytest.mark.parametrize(
    ("filled", "opened"),
    [
        ("add_tags=new&set_date=2024-02-30", {"tag", "date"}),
        ("set_category=Kitchen&shift_date=soon", {"category", "date"}),
        ("remove_authors=Mio&set_state=archived&set_valid_to=never", {"author", "state", "validity"}),
        ("set_type=rule&set_project=nowhere", {"type"}),
    ],
)
def test_parts_of_the_form_that_are_filled_stay_open_after_an_error(corpus, filled, opened):
    page = signed_in(tea="curator").get(f"/curate/retag/?tag=kettle&{filled}")
    assert page.status_code == 422
    assert set(re.findall(r'id="part-(\w+)" open', html_of(page))) == opened


def authors():
    return {memory.external_id: memory.authors for memory in Memory.objects.filter(external_id__in=("t1", "t2", "t3"))}


@pytest.fixture
def three_authors(corpus):
    for external_id, names in (("t1", ["Ann"]), ("t2", ["ann s.", "Cid"]), ("t3", ["A. Smith, Jr.", "Ann"])):
        Memory.objects.filter(external_id=external_id).update(authors=names)
    Memory.objects.filter(external_id="t3").update(state="archived")
    corpus_bump()


@pytest.mark.parametrize(
    ("ticked", "name", "expected"),
    [
        (["Ann", "ann s.", "A. Smith, Jr."], "Ann Smith", (["Ann Smith"], ["Ann Smith", "Cid"], ["Ann Smith"])),
        (["ann s.", "Ann"], "Ann", (["Ann"], ["Ann", "Cid"], ["A. Smith, Jr.", "Ann"])),
        (["Ann"], "ANN", (["ANN"], ["ann s.", "Cid"], ["A. Smith, Jr.", "ANN"])),
        (["Cid"], "Ann", (["Ann"], ["ann s.", "Ann"], ["A. Smith, Jr.", "Ann"])),
    ],
)
def test_authors_that_are_ticked_get_one_name_after_a_preview_and_one_undo(three_authors, ticked, name, expected):
    client, before = signed_in(tea="curator"), authors()
    listed = html_of(client.get("/facets/author/"))
    assert 'formaction="/curate/authors/">Rename or merge…<' in listed
    form = html_of(client.get("/curate/authors/", {"author": ticked, "next": "/facets/author/"}))
    assert all(f'name="author" value="{one}"' in form for one in ticked)
    preview = client.get("/curate/authors/", {"author": ticked, "name": name, "next": "/facets/author/"}, follow=True)
    page = html_of(preview)
    token = re.search(r'name="token" value="([^"]+)"', page)
    fields = re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', page)
    sent = {}
    for key, value in fields:
        sent.setdefault(key, []).append(value.replace("&#x27;", "'"))
    done = client.post("/curate/retag/", sent)
    assert token
    assert done["Location"] == "/facets/author/"
    assert tuple(authors()[one] for one in ("t1", "t2", "t3")) == expected
    client.post(f"/curate/undo/{Curation.objects.latest('pk').pk}/")
    assert authors() == before


def test_name_for_authors_is_asked_for_and_readers_change_none(three_authors):
    client = signed_in(tea="writer")
    assert client.get("/curate/authors/", {"author": "Ann", "name": " "}).status_code == 422
    assert client.get("/curate/authors/")["Location"].startswith("/facets/author/")
    Membership.objects.update(role="reader")
    assert client.get("/curate/authors/", {"author": "Ann"}).status_code == 403
