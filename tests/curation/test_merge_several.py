"""Several terms become one by one change, from the lists of terms, the page that merges them, and the API."""

import re

import pytest
from django.contrib.auth.models import User

from access.keys import make_key
from access.models import Membership
from access.viewer import Viewer
from categories.models import Category, CategoryLink, Concept, Entity, LocalText, TagAlias
from curation.checks import findings
from curation.models import Curation
from curation.schemas import Merge
from curation.services import curation_apply, curation_plan, curation_undo
from curation.working_copy import CurationRefusedError
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.curation.conftest import dump, number, tags
from tests.html import html_of

pytestmark = pytest.mark.django_db

HIDDEN = re.compile(r'<input type="hidden" name="([^"]+)" value="([^"]*)">')


def merge(viewer, **asked):
    """Apply a merge with the token of its preview, as a page does."""
    operation = Merge(**asked)
    plan = curation_plan(operation=operation, viewer=viewer)
    assert plan.refusals == ()
    applied = curation_apply(operation=operation.model_copy(update={"token": plan.token}), viewer=viewer)
    assert applied.plan == plan
    assert findings() == []
    return applied


def with_category(path):
    return set(CategoryLink.objects.filter(category__path=path).values_list("memory_id", flat=True))


def test_categories_go_into_those_above_them_by_one_change_with_one_undo(corpus, curator):
    before = dump()
    paths = ["kitchen/oven", "yard/dock", "yard/wood"]
    under = {path: with_category(path) for path in paths}
    done = merge(curator, kind="category", sources=paths, into_parents=True)
    assert done.plan.title == "Merged the categories kitchen/oven, yard/dock and yard/wood into those above them"
    assert not Category.objects.filter(path__in=paths).exists()
    assert under["kitchen/oven"] <= with_category("kitchen")
    assert under["yard/dock"] | under["yard/wood"] <= with_category("yard")
    assert [line.after for line in done.plan.lines if line.what == "merges into"] == ["kitchen", "yard", "yard"]
    curation_undo(curation_id=done.curation.pk, viewer=curator)
    assert dump() == before


def test_several_tags_become_one_by_one_change_with_one_undo(corpus, curator):
    before = dump()
    done = merge(curator, kind="tag", sources=["guests", "kettle", "hardware"], target="tea")
    assert done.plan.title == "Merged the tags guests, kettle and hardware into tea"
    # t2 has both kettle and hardware, t3 and t7 guests and tea, the superseded t6 guests alone, b1 and b7 hardware.
    assert [(f.source, f.moved, f.collapsed) for f in done.plan.figures] == [
        ("guests", 1, 2),
        ("kettle", 2, 0),
        ("hardware", 2, 1),
    ]
    assert done.plan.memories == 7
    assert {one: tags(one) for one in ("t2", "t3", "t6", "b1")} == {
        "t2": ["tea"],
        "t3": ["tea"],
        "t6": ["tea"],
        "b1": ["crane", "tea"],
    }
    assert set(TagAlias.objects.values_list("alias", "tag")) == {
        (one, "tea") for one in ("guests", "kettle", "hardware")
    }
    curation_undo(curation_id=done.curation.pk, viewer=curator)
    assert dump() == before


def test_categories_below_one_another_become_one(corpus, curator):
    before = dump()
    done = merge(curator, kind="category", sources=["yard", "yard/dock", "kitchen/oven"], target="kitchen")
    paths = set(Category.objects.values_list("path", flat=True))
    assert {path for path in paths if path.startswith(("yard", "kitchen"))} == {
        "kitchen",
        "kitchen/brewing",
        "kitchen/crane",
        "kitchen/wood",
    }
    assert CategoryLink.objects.filter(memory_id=number("b2"), category__path="kitchen").count() == 1
    # Every former path leads to where it is now.
    record = MemoryRecord(project="boat", content="A rope.", categories=("Yard/Dock/Rope", "Kitchen/Oven"))
    made = memory_create(record=record, viewer=curator)
    linked = CategoryLink.objects.filter(memory_id=made.pk).values_list("category__path", flat=True)
    assert set(linked) == {"kitchen/rope", "kitchen"}
    Memory.objects.filter(pk=made.pk).delete()
    Category.objects.filter(path="kitchen/rope").delete()
    curation_undo(curation_id=done.curation.pk, viewer=curator)
    assert dump() == before


def test_a_term_between_others_keeps_them_from_becoming_one(corpus, curator):
    asked = Merge(kind="concept", sources=["safety", "heat"], target="boiling")
    plan = curation_plan(operation=asked, viewer=curator)
    assert plan.refusals == ()
    with pytest.raises(CurationRefusedError, match="also among those that end"):
        curation_apply(operation=Merge(kind="tag", sources=["tea", "guests"], target="tea"), viewer=curator)
    with pytest.raises(ValueError, match="name the term that ends as source, or several as sources"):
        Merge(kind="tag", source="tea", sources=["guests"], target="kettle")


def test_a_curator_of_one_project_merges_tags_there_alone(corpus, curator):
    for project in ("tea", "boat"):
        memory_create(record=MemoryRecord(project=project, content="x", tags=("teas", "tee")), viewer=curator)
    tea = frozenset([Project.objects.get(slug="tea").pk])
    done = merge(
        Viewer(tea, frozenset(["read", "write", "curate"]), tea), kind="tag", sources=["teas", "tee"], target="tea"
    )
    assert done.plan.memories == 1
    assert [(f.source, f.moved) for f in done.plan.figures] == [("teas", 1), ("tee", 0)]
    assert Memory.objects.filter(project__slug="boat", tags__contains=["teas"]).count() == 1
    assert set(LocalText.objects.values_list("text", "tag")) == {("teas", "tea"), ("tee", "tea")}
    assert {tuple(ids) for ids in LocalText.objects.values_list("project_ids", flat=True)} == {tuple(tea)}


# --- the pages and the API --------------------------------------------------------------------------------------------


@pytest.fixture
def page(client, corpus):
    client.force_login(User.objects.create_superuser("curator"))
    return client


def test_ticked_tags_are_removed_from_their_memories_in_every_state_and_come_back(page):
    before, listing = dump(), "/facets/tag/?sort=name"
    assert "Remove 2 tags…" in html_of(page.get(f"{listing}&tag=guests&tag=kettle"))
    asked = {"tag": ["guests", "kettle"], "type": "note", "next": listing}
    preview = html_of(page.get("/curate/remove-tags/", asked, follow=True))
    # t6 is superseded.
    assert "Remove the tags guests and kettle from 5 memories" in preview
    assert "5 memories change, 1 of them archived, superseded or deleted" in preview
    assert dump() == before
    token = dict(HIDDEN.findall(preview))["token"]
    sent = {"tag": asked["tag"], "remove_tags": asked["tag"], "state": [*Memory.State.values], "next": listing}
    done = page.post("/curate/retag/", {**sent, "token": token})
    assert done.headers["Location"] == listing
    assert {one: tags(one) for one in ("t2", "t3", "t6")} == {"t2": ["hardware"], "t3": ["tea"], "t6": []}
    page.post(f"/curate/undo/{Curation.objects.get().pk}/")
    assert dump() == before


def test_a_tag_is_removed_from_its_page_and_only_changes_of_memories_say_how_many(page):
    listing = "/facets/tag/?sort=name"
    link = re.search(r'href="(/curate/remove-tags/[^"]+)"', html_of(page.get("/curate/tag/kettle/", {"next": listing})))
    preview = html_of(page.get(link[1].replace("&amp;", "&"), follow=True))
    assert "Remove the tag kettle from 2 memories" in preview
    assert f'href="{listing}">← Back' in preview
    merge = html_of(page.get("/curate/merge/tag/", {"term": ["guests", "tea"], "target": "tea"}))
    assert re.search(r'<button class="button primary" type="submit">Merge</button>', merge)
    assert "remove-tags" not in html_of(page.get("/curate/category/yard/", follow=True))


def test_a_curator_of_one_project_sees_no_name_and_no_number_of_another(client, corpus):
    person = User.objects.create_user("person")
    Membership.objects.create(user=person, project=Project.objects.get(slug="tea"), role="curator")
    client.force_login(person)
    text = html_of(client.get("/curate/merge/tag/", {"term": ["hardware", "crane", "kettle"]}))
    # One of two memories with hardware is of the other project, as is the only one with crane.
    assert "There is no tag “crane” that you can see." in text
    assert re.findall(r"<td>(\d+)</td>", text) == ["2", "1"]


def test_the_api_merges_several(client, corpus, curator):
    raw = make_key(name="agent", scopes=["read", "write", "curate"], every_project=True, viewer=curator).raw
    headers = {"Authorization": f"Bearer {raw}"}

    def call(**body):
        return client.post("/api/curation/merge", body, content_type="application/json", headers=headers)

    asked = {"kind": "tag", "sources": ["guests", "kettle"], "target": "tea"}
    plan = call(**asked, dry_run=True).json()["plan"]
    assert (plan["title"], plan["memories"]) == ("Merged the tags guests and kettle into tea", 5)
    assert call(**asked, token=plan["token"]).json()["curation"]["memories"] == 5
    refused = call(kind="tag", target="tea")
    assert refused.status_code == 422
    assert "name the term that ends as source, or several as sources" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        pytest.param({"term": ["tea"], "target": "tea"}, "Choose two or more, of which one is kept.", id="one"),
        pytest.param({"term": ["tea", "zxq"]}, "There is no tag “zxq” that you can see.", id="unknown"),
        pytest.param({"term": ["tea", "kettle"], "other": "zxq"}, "There is no tag “zxq”", id="unknown to keep"),
        pytest.param({}, "Nothing is chosen yet", id="nothing"),
        pytest.param({"tag": [f"t{n}" for n in range(101)]}, "Give at most 100.", id="over 100 ticked"),
        pytest.param({"tag": ["tea", "kettle"], "flavour": "red"}, "is not a parameter", id="unknown parameter"),
    ],
)
def test_a_merge_of_too_few_or_unknown_names_is_refused_at_the_form(page, asked, told):
    assert told in html_of(page.get("/curate/merge/tag/", asked))


def test_concepts_and_entities_become_one_and_come_back(corpus, curator):
    before = dump()
    concepts = merge(curator, kind="concept", sources=["safety", "maintenance", "boiling"], target="hospitality")
    assert Concept.objects.get(name="hospitality").aliases == ["safety", "maintenance", "boiling"]
    entities = merge(curator, kind="entity", sources=["person:Ada", "tool:kettle"], target="person:Mio")
    assert Entity.objects.get(name="Mio", entity_type="person").aliases == ["Ada", "kettle", "tool:kettle"]
    assert [entities.plan.memories, entities.curation.merged != {}] == [4, True]
    for done in (entities, concepts):
        curation_undo(curation_id=done.curation.pk, viewer=curator)
    assert dump() == before


def test_merge_upwards_that_cannot_be_done_says_why(corpus, curator):
    asked = Merge(kind="category", sources=["kitchen", "yard/dock"], into_parents=True)
    with pytest.raises(CurationRefusedError, match="kitchen: at the top level, with no category above"):
        curation_apply(operation=asked, viewer=curator)
    with pytest.raises(ValueError, match="only categories have one above them"):
        Merge(kind="tag", sources=["tea"], into_parents=True)
    for target in ({}, {"target": "yard", "into_parents": True}):
        with pytest.raises(ValueError, match="name the term that stays as target, or take the category above each"):
            Merge(kind="category", sources=["yard/dock"], **target)


def test_more_names_than_a_merge_takes_are_refused_and_few_are_looked_for(page, monkeypatch):
    looked_for = []
    monkeypatch.setattr(
        "curation.merge_page.not_found_message",
        lambda missing, viewer: looked_for.append(missing.name) or f"{missing} Did you mean tea?",
    )
    asked = {"term": ["tea", "kettle"], "more": "\n".join(f"zxq{n}" for n in range(5_000)), "do": "add"}
    reply = page.post("/curate/merge/tag/", asked)
    assert reply.status_code == 422
    text = reply.content.decode()
    assert "5,002 names are more than can be merged at once: at most 100 into one that is kept." in text
    assert re.findall(r'name="term" value="([^"]+)"', text) == ["tea", "kettle"]
    assert (looked_for, text.count("There is no tag")) == (["zxq0", "zxq1", "zxq2"], 99)
