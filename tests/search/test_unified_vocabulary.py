"""Concepts and categories among the results of unified search, exact names first, and legs without vectors."""

import json
from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from categories.details import ConceptDetails, concept_merge_details
from categories.models import Concept, Relationship
from categories.services import Vocabulary
from memories.embedding import query as embeddings
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create, memory_delete, memory_link
from search.query import SearchQuery
from search.unified.legs import LegState, ResultKind
from search.unified.service import unified
from tests.html import html_of
from tests.search.conftest import BOTH_ENGINES
from tests.unified_corpus import embed_all
from web.cache import clear_caches


def store(project, title, concept, category):
    record = MemoryRecord(content=title, title=title, project=project, concepts=[concept], categories=[category])
    return memory_create(record=record, viewer=command_viewer())


@pytest.fixture
def yard(mill):
    """The mill and the vault, with a concept and a category in each."""
    store("mill", "Every sack at the door", "thundering herd", "Works/Grain store")
    store("mill", "Two carts at the gate", "thundering herd", "Works/Grain store/Gate")
    store("vault", "Nobody at night", "quiet hours", "Works/Strongroom")
    vocabulary = Vocabulary(batch_id=None, viewer=command_viewer())
    concept_merge_details(details=ConceptDetails("thundering herd", aliases=("stampede",)), vocabulary=vocabulary)
    embed_all()
    clear_caches()


def ask(text, viewer, **arguments):
    return unified(SearchQuery.from_mapping({"q": text, "mode": "unified", **arguments}), viewer)


def first(result):
    return (result.hits[0].kind.value, result.hits[0].title_text)


def leg(result, name):
    return next(one for one in result.legs if one.name == name)


@BOTH_ENGINES
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("thundering herd", ("concept", "thundering herd"), id="concept"),
        pytest.param("Stampede", ("concept", "thundering herd"), id="alias of a concept"),
        pytest.param("grain store", ("category", "Grain store"), id="category"),
        pytest.param("OSK", ("entity", "Osk"), id="entity"),
        pytest.param("wheel", ("entity", "wheel"), id="entity that many memories contain"),
    ],
)
def test_exact_name_stands_first_whatever_its_kind(yard, everyone, text, expected):
    assert first(ask(text, everyone)) == expected


@pytest.mark.parametrize(
    ("text", "title", "expected"),
    [
        pytest.param("waterwheel", "wheel", "Also called waterwheel. Twelve spokes of larch", id="alias"),
        pytest.param("WATERWHEEL", "wheel", "Also called waterwheel. Twelve spokes of larch", id="other case"),
        pytest.param("Stampede", "thundering herd", "Also called stampede.", id="alias without a description"),
        pytest.param("wheel", "wheel", "Twelve spokes of larch", id="name"),
        pytest.param("larch spokes", "wheel", "Twelve spokes of larch", id="description"),
    ],
)
def test_alias_that_is_the_whole_text_is_named(yard, everyone, text, title, expected):
    result = next(hit for hit in ask(text, everyone).hits if hit.term)
    assert result.title_text == title
    assert result.content_text.startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("what feeds the wheel", "sluice feeds wheel", id="what"),
        pytest.param("what is the wheel fed by", "sluice feeds wheel", id="passive"),
        pytest.param("what does the wheel turn?", "wheel turns axle", id="what does"),
        pytest.param("rests_on hinge", "axle rests on hinge", id="type with underscore"),
        pytest.param("rests-on hinge", "axle rests on hinge", id="type with hyphen"),
        pytest.param("restsOn hinge", "axle rests on hinge", id="type in camel case"),
        pytest.param("axle hinge", "axle rests on hinge", id="both names"),
        pytest.param("wheel's inspector", "Osk inspects wheel", id="noun"),
    ],
)
def test_fact_that_answers_a_question_stands_first(yard, everyone, text, expected):
    assert first(ask(text, everyone)) == ("relationship", expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("what depends on the axle", "wheel turns axle", id="target"),
        pytest.param("what does the axle need", "axle rests on hinge", id="source"),
        pytest.param("what is needed by the axle", "axle rests on hinge", id="source, passive"),
    ],
)
def test_direction_orders_facts_without_the_relation(yard, everyone, text, expected):
    assert next(hit.title_text for hit in ask(text, everyone).hits if hit.relationship) == expected


def test_questions_reveal_no_fact_of_other_projects(yard, everyone, miller):
    assert first(ask("who guards the hinge", everyone)) == ("relationship", "Quill guards hinge")
    assert "Quill" not in str([hit.title_text for hit in ask("who guards the hinge", miller).hits])


def test_words_of_a_name_find_concepts_and_categories_too(yard, everyone):
    result = ask("herd", everyone)
    assert ("concept", "thundering herd") in [(hit.kind.value, hit.title_text) for hit in result.hits]
    assert [one.memories for one in leg(result, "concept words").found] == [2]
    assert [one.memories for one in leg(ask("store", everyone), "category words").found] == [2]


def test_filters_and_projects_of_the_viewer_decide_which_are_found(yard, everyone, miller):
    for text in ("quiet hours", "strongroom"):
        assert first(ask(text, everyone))[0] in {"concept", "category"}
        assert {hit.kind.value for hit in ask(text, miller).hits} <= {"memory", "entity", "relationship"}
    assert [one.memories for one in leg(ask("works", everyone), "category words").found] == [3]
    assert [one.memories for one in leg(ask("works", miller), "category words").found] == [2]
    within = ask("works or gate", everyone, category="works/grain-store/gate")
    assert sorted(one.memories for one in leg(within, "category words").found) == [1, 1]


def test_memories_linked_to_a_result_are_related_to_it(yard, everyone):
    sacks, carts = (Memory.objects.get(title=title) for title in ("Every sack at the door", "Two carts at the gate"))
    memory_link(memory_id=carts.pk, target_id=sacks.pk, rel="follows", viewer=command_viewer())
    related = {hit.id: [one.reason for one in hit.related] for hit in ask("door gate", everyone).hits if hit.memory}
    assert "links to it: follows" in related[sacks.pk]
    assert "linked from it: follows" in related[carts.pk]


def test_memories_that_the_search_leaves_out_are_not_related_to_a_result(yard, everyone):
    sacks, carts = (Memory.objects.get(title=title) for title in ("Every sack at the door", "Two carts at the gate"))
    memory_link(memory_id=carts.pk, target_id=sacks.pk, rel="follows", viewer=command_viewer())

    def linked(**filters):
        (hit,) = [hit for hit in ask("door", everyone, **filters).hits if hit.memory and hit.id == sacks.pk]
        return carts.pk in [one.id for one in hit.related]

    assert linked()
    memory_delete(memory_id=carts.pk, viewer=command_viewer(), reason="x")
    assert not linked()


def test_relationship_that_nothing_states_is_not_of_what_was_changed_lately(yard, everyone):
    def found(**filters):
        return [hit.title_text for hit in ask("known from", everyone, **filters).hits if hit.relationship]

    assert found() == ["axle rests on hinge"]
    assert found(updated_since="7d") == []


def about(relationship):
    """Queries for a relationship, by its ends, its type and its fact."""
    source, target = relationship.source.name, relationship.target.name
    kind = relationship.relationship_type.replace("_", " ")
    yield from (source, target, kind, relationship.fact)
    yield from (f"{source} {target}", f"{source} {kind} {target}", f"{kind} {target}", f"which {source} {kind}")


def test_95_percent_of_the_queries_for_relationships_find_some_and_mostly_the_one(yard, everyone):
    queries = [(one.pk, text) for one in Relationship.objects.all() for text in about(one)]
    found = []
    for pk, text in queries:
        result = ask(text, everyone, page_size=50)
        ids = {hit.id for leg in result.legs if leg.kind == ResultKind.RELATIONSHIP for hit in leg.found}
        found.append((bool(ids), pk in ids))
    some, the_one = (sum(column) / len(queries) for column in zip(*found, strict=True))
    assert (len(queries), some >= 0.95, the_one >= 0.95) == (40, True, True), (some, the_one)


# --- vectors that are missing -------------------------------------------------------------------------------------


def forget_vectors(kind, condition="true"):
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM categories_{kind}vector WHERE {condition}")
    clear_caches()


def notices(result):
    return [warning.message for warning in result.warnings if warning.parameter == "mode"]


def test_leg_without_vectors_is_not_ok(yard, everyone):
    assert notices(ask("herd", everyone)) == []
    forget_vectors("concept")
    result = ask("herd", everyone)
    assert (leg(result, "concept meaning").state, leg(result, "concept words").state) == (
        LegState.NO_VECTORS,
        LegState.OK,
    )
    assert notices(result) == ["Search by meaning covers none of the concepts so far; more may appear."]
    assert result.totals[leg(result, "concept words").kind].at_least


def test_leg_with_some_of_the_vectors_answers_partly_with_the_share(yard, everyone):
    forget_vectors("concept", f"concept_id = {Concept.objects.get(name='quiet hours').pk}")
    found = leg(ask("herd", everyone), "concept meaning")
    assert (found.state, found.share.percent) == (LegState.PARTLY, 50.0)


def test_share_reveals_nothing_of_other_projects(yard, miller):
    forget_vectors("concept", f"concept_id = {Concept.objects.get(name='quiet hours').pk}")
    hidden = leg(ask("herd", miller), "concept meaning")
    assert (hidden.state, hidden.share.percent) == (LegState.OK, 100.0)
    forget_vectors("concept")
    own = ask("herd", miller)
    assert (leg(own, "concept meaning").state, leg(own, "concept meaning").share.percent) == (LegState.NO_VECTORS, 0.0)
    assert notices(own) == ["Search by meaning covers none of the concepts so far; more may appear."]


def test_a_viewer_of_some_projects_reads_the_share_of_what_they_see(yard, miller):
    store("mill", "Alone at noon", "solitude", "Works")
    embed_all()
    forget_vectors("concept", f"concept_id <> {Concept.objects.get(name='solitude').pk}")
    found = leg(ask("herd", miller), "concept meaning")
    assert (found.state, found.share.percent) == (LegState.PARTLY, 50.0)


def test_more_rows_without_vectors_than_are_listed_are_not_taken_for_none(yard, miller, monkeypatch):
    monkeypatch.setattr("memories.embedding.vectors._PENDING_IDS", 1)
    vault = replace(miller, project_ids=frozenset(Project.objects.filter(slug="vault").values_list("pk", flat=True)))
    store("mill", "Alone at noon", "solitude", "Works")
    embed_all()
    forget_vectors("concept", f"concept_id <> {Concept.objects.get(name='solitude').pk}")
    for viewer in (miller, vault):
        found = leg(ask("herd", viewer), "concept meaning")
        assert (found.state, found.share) == (LegState.PARTLY, None)


def test_without_a_model_the_reason_is_given_once(yard, everyone):
    embeddings.forget()
    assert notices(ask("herd", everyone)) == [
        "Search by meaning is not ready: the model is still loading. Found by words alone."
    ]


# --- every interface ----------------------------------------------------------------------------------------------


def test_api_page_and_tool_show_the_record_and_the_way_on(yard, everyone):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    client = Client(headers={"Authorization": f"Bearer {raw}"})
    reply = client.get("/api/search", {"q": "thundering herd", "mode": "unified"}).json()
    one = reply["results"][0]
    assert (one["kind"], one["concept"]["value"], one["concept"]["memories"]) == ("concept", "thundering herd", 2)
    assert one["url"] == "http://testserver/explore/?concept=thundering+herd"
    assert (reply["totals"]["concepts"], reply["totals"]["categories"]) == (1, 0)
    rows = json.loads(call(TOOL["search"], {"query": "grain store", "mode": "unified", "format": "json"}, everyone))
    row = rows["results"][0]
    assert (row["kind"], row["id"]) == ("category", f"category:{ask('grain store', everyone).hits[0].id}")
    assert row["see"] == 'category_search(category="works/grain-store"): 2 memories'
    assert row["score"] > 0
    assert rows["totals"]["categories"] == 1
    browser = Client()
    browser.force_login(User.objects.create_superuser("reader"))
    page = html_of(browser.get("/explore/?q=grain+store&mode=unified"))
    assert 'class="kind kind-category"' in page
    assert 'href="/categories/works/grain-store/"' in page


def test_terms_of_one_name_are_in_the_order_of_their_types_whoever_used_them_first(mill):
    for project, kinds in (("vault", ["tool"]), ("mill", ["person", "tool"])):
        entities = [{"name": "Lamp", "type": kind} for kind in kinds]
        memory_create(
            record=MemoryRecord.model_validate({"content": "At night.", "project": project, "entities": entities}),
            viewer=command_viewer(),
        )
    clear_caches()
    miller = replace(command_viewer(), project_ids=frozenset({Project.objects.get(slug="mill").pk}))
    entities = [hit for hit in ask("lamp", miller).hits if hit.kind is ResultKind.ENTITY]
    assert [hit.term.type for hit in entities] == ["person", "tool"]
    assert entities[0].id > entities[1].id
