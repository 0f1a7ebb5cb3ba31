"""Unified search: results of each leg, visibility, and legs that fail."""

import threading
from dataclasses import replace

import pytest
from django.db import connection
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from access.viewer import Viewer, command_viewer
from categories.models import Category, Concept, Entity, Relationship
from memories.embedding import query as embeddings
from memories.models import Memory
from memories.records import MemoryRecord
from memories.services import memory_create
from search.query import SearchQuery
from search.unified import legs
from search.unified.legs import LEGS, TERM_KINDS, LegState, ResultKind, Way
from search.unified.service import unified
from tests.search.conftest import BOTH_ENGINES
from tests.unified_corpus import AtOnce, embed_all, fill_with_mill
from text.analysis import index_terms, raw_tokens
from text.query_syntax import parse_text, plain_text_of
from web.params import QueryError

SLOWLY = hypothesis_settings(
    max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def ask(text, viewer, **arguments):
    return unified(SearchQuery.from_mapping({"q": text, "mode": "unified", **arguments}), viewer)


def titles(result, kind=None):
    return [hit.title_text for hit in result.hits if kind in (None, hit.kind.value)]


def found(result, name):
    """Titles of the hits of a leg, in order."""
    (leg,) = [leg for leg in result.legs if leg.name == name]
    models = {"memory": Memory, "entity": Entity, "concept": Concept, "category": Category}
    model = models.get(leg.kind.value, Relationship)
    rows = model.objects.in_bulk([known.id for known in leg.found])
    if leg.kind == ResultKind.MEMORY:
        return [rows[known.id].title for known in leg.found]
    if leg.kind in TERM_KINDS:
        return [rows[known.id].name for known in leg.found]
    return [f"{rows[k.id].source.name} {rows[k.id].relationship_type} {rows[k.id].target.name}" for k in leg.found]


def hit(result, title):
    (one,) = [one for one in result.hits if one.title_text == title]
    return one


# --- what is found ------------------------------------------------------------------------------------------------


def test_an_offset_skips_that_many_results(mill, everyone):
    whole = titles(ask("wheel", everyone))
    assert len(whole) > 3
    page = ask("wheel", everyone, offset=1, limit=2)
    assert (titles(page), page.has_more) == (whole[1:3], True)
    assert (
        ask("wheel", everyone, offset=99).warnings[-1].message == f"Offset 99 is past the last of {len(whole)} results."
    )


@BOTH_ENGINES
def test_results_are_of_three_kinds_in_one_order(mill, everyone):
    result = ask("wheel", everyone)
    assert {one.kind.value for one in result.hits} == {"memory", "entity", "relationship"}
    # The first is named by the whole text.
    assert titles(result)[0] == "wheel"
    scores = [one.score for one in result.hits[1:]]
    assert scores == sorted(scores, reverse=True)
    assert [(leg.name, leg.state.value) for leg in result.legs] == [
        ("memory words", "ok"),
        ("memory meaning", "ok"),
        ("entity words", "ok"),
        ("entity meaning", "ok"),
        ("concept words", "ok"),
        ("concept meaning", "ok"),
        ("category words", "ok"),
        ("category meaning", "ok"),
        ("relationship words", "ok"),
        ("relationship meaning", "ok"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("wheel", ["wheel"], id="name"),
        pytest.param("waterwheel", ["wheel"], id="alias"),
        pytest.param("larch spokes", ["wheel"], id="description"),
        pytest.param("osk", ["Osk", "wheel"], id="name before description"),
        pytest.param("person", ["Osk", "Quill"], id="type"),
        pytest.param("brotlade sacks", ["Brotlade"], id="a name said whole among other words"),
        pytest.param("wheel -larch", [], id="left out"),
        pytest.param('"spokes of larch"', ["wheel"], id="phrase"),
        pytest.param('"larch of spokes"', [], id="no such phrase"),
        pytest.param("+larch wheel", ["wheel"], id="required"),
        pytest.param("title:larch", [], id="not in the name"),
        pytest.param("title:whee*", ["wheel"], id="beginning of the name"),
        pytest.param("axle or sluice", ["axle", "sluice"], id="either"),
        pytest.param("spindle", [], id="named by no memory"),
        pytest.param("tailrace", [], id="named by an archived memory"),
        pytest.param("-wheel", [], id="nothing looked for"),
    ],
)
def test_entities_by_words_obey_the_grammar(mill, everyone, text, expected):
    assert found(ask(text, everyone), "entity words") == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("grinding stone", ["wheel turns axle"], id="fact"),
        pytest.param("inspects wheel", ["Osk inspects wheel"], id="type and target"),
        pytest.param("lantern -friday", [], id="left out"),
        pytest.param('"every friday"', ["Osk inspects wheel"], id="phrase"),
        pytest.param("rests on hinge", ["axle rests_on hinge"], id="without evidence"),
    ],
)
def test_relationships_by_words_obey_the_grammar(mill, everyone, text, expected):
    assert found(ask(text, everyone), "relationship words") == expected


def test_meaning_finds_entities_and_relationships_and_obeys_signs(mill, everyone):
    result = ask("spokes larch built someday", everyone)
    assert found(result, "entity meaning")[0] == "wheel"
    assert found(ask("spokes larch built someday -osk", everyone), "entity meaning") == []
    assert "Osk inspects wheel" in found(ask("cracks friday lantern evening", everyone), "relationship meaning")


def test_least_similarity_holds_for_every_kind(mill, everyone):
    result = ask("larch spokes", everyone, min_similarity=0.99)
    assert [len(leg.found) for leg in result.legs if leg.way == Way.MEANING] == [0] * 5


@BOTH_ENGINES
@pytest.mark.parametrize(
    ("filters", "entities", "relationships"),
    [
        pytest.param({"tag": "water"}, ["sluice"], ["sluice feeds wheel"], id="a tag"),
        pytest.param({"tag": "paint"}, ["wheel"], [], id="another tag"),
        pytest.param({"project": "vault"}, ["wheel"], ["sluice feeds wheel"], id="a project"),
        pytest.param({"from": "2999-01-01"}, [], [], id="dates"),
        pytest.param({"state": "archived"}, [], [], id="a state"),
        pytest.param({}, ["axle", "sluice", "wheel"], ["axle rests_on hinge", "sluice feeds wheel", "wheel turns axle"],
                     id="none"),
    ],
)  # fmt: skip
def test_filters_keep_what_memories_that_pass_tell_of(mill, everyone, filters, entities, relationships):
    result = ask("(wheel or sluice or axle) -cracks", everyone, **filters)
    assert sorted(set(found(result, "entity words")) & {"wheel", "sluice", "axle"}) == entities
    assert sorted(found(result, "relationship words")) == relationships


@BOTH_ENGINES
def test_pages_go_through_every_result_once(mill, everyone):
    whole = titles(ask("wheel", everyone, page_size=100))
    result = ask("wheel", everyone, page_size=2)
    pages = [titles(ask("wheel", everyone, page_size=2, page=n)) for n in range(1, result.pages + 1)]
    assert [title for page in pages for title in page] == whole
    assert result.found == len(whole)
    past = ask("wheel", everyone, page_size=2, page=99)
    assert past.hits == ()
    assert f"Page 99 is past the last page, {result.pages}." in [w.message for w in past.warnings]


# --- records, relations, folding ----------------------------------------------------------------------------------


def test_a_result_has_common_fields_and_its_own_record(mill, everyone):
    result = ask("larch spokes", everyone)
    wheel = hit(result, "wheel")
    assert (wheel.kind.value, wheel.content_text) == ("entity", "Twelve spokes of larch, built by Osk in 1904.")
    assert (wheel.source, wheel.why) == ("mentioned in 5 memories", "1st by words and 1st by meaning")
    assert (wheel.term.type, wheel.term.aliases, wheel.term.memories) == ("part", ("waterwheel",), 5)
    assert (wheel.memory, wheel.relationship) == (None, None)
    osk = hit(ask("lantern friday", everyone), "Osk inspects wheel")
    assert [(one.title, one.reason) for one in osk.evidence] == [("Wheel inspected", "supports it")]
    assert (osk.relationship.source.value, osk.relationship.target.value) == ("person:Osk", "part:wheel")
    assert hit(ask("flour bakery", everyone), "Flour for the bakery").memory.project == "mill"


def test_at_most_two_related_items_each_with_its_reason(mill, everyone):
    result = ask("wheel", everyone)
    assert all(len(one.related) <= 2 for one in result.hits)
    assert all(item.reason for one in result.hits for item in one.related)
    wheel = hit(result, "wheel")
    assert [(item.kind.value, item.reason) for item in wheel.related] == [
        ("memory", "mentions it, best match"),
        ("relationship", "starts at it"),
    ]


def test_an_entity_that_only_one_memory_tells_of_is_folded_into_it(mill, everyone):
    result = ask("sluice dawn", everyone)
    assert "sluice" not in titles(result, "entity")
    assert ("entity", "sluice", "supported by it only") in [
        (one.kind.value, one.title, one.reason) for one in hit(result, "Sluice opened").folded
    ]


def test_a_relationship_is_folded_into_its_evidence_but_for_what_it_adds(mill, everyone):
    result = ask("wheel", everyone)
    assert [(one.title, one.reason) for one in hit(result, "The wheel turns the stone").folded] == [
        ("wheel turns axle", "taken from it")
    ]
    assert "Osk inspects wheel" in titles(result, "relationship")


def test_near_duplicates_are_folded_from_the_share_of_the_setting_on(mill, everyone, settings):
    first = Memory.objects.get(external_id="m2")
    remember_again(first)
    together = hit(ask("axle grease", everyone), "Grease for the axle")
    assert ("memory", "nearly the same text") in [(one.kind.value, one.reason) for one in together.folded]
    assert titles(ask("axle grease", everyone), "memory").count("Grease for the axle") == 1
    settings.UNIFIED_DEDUP_SIMILARITY = 1.0
    assert titles(ask("axle grease", everyone), "memory").count("Grease for the axle") == 2


def remember_again(memory):
    """A slightly longer near-duplicate."""
    record = MemoryRecord(
        content=memory.content + " Twice.",
        title=memory.title,
        project="mill",
        entities=["part:wheel", "part:axle"],
    )
    memory_create(record=record, viewer=command_viewer())
    embed_all()


# --- who may see what ---------------------------------------------------------------------------------------------


def everything_said(result, text):
    """A response without the query text that it repeats."""
    suggested = [name for warning in result.warnings for name in warning.did_you_mean]
    said = " ".join([repr(one) for one in result.hits] + suggested + [repr(leg.found) for leg in result.legs])
    return said if text in said.lower() else said + " ".join(w.message.replace(text, "") for w in result.warnings)


@BOTH_ENGINES
@pytest.mark.parametrize("text", ["quill", "person", "hinge", "vault", "combination", "guards", "rests on", "wheel"])
def test_what_other_projects_tell_of_is_nowhere_in_an_answer(miller, text):
    said = everything_said(ask(text, miller), text)
    for secret in ("Quill", "hinge", "combination", "guards", "No supporting memories are given"):
        assert secret not in said


def test_numbers_are_of_the_memories_that_the_viewer_may_see(miller, everyone):
    assert hit(ask("larch spokes", everyone), "wheel").term.memories == 5
    assert hit(ask("larch spokes", miller), "wheel").term.memories == 4
    sluice = ask("sluice feeds", miller)
    known = [k for leg in sluice.legs if leg.kind == ResultKind.RELATIONSHIP for k in leg.found]
    assert {len(k.evidence) for k in known} == {1}


@BOTH_ENGINES
def test_places_do_not_tell_of_what_is_hidden(miller, everyone):
    assert found(ask("person", everyone), "entity words") == ["Osk", "Quill"]
    assert found(ask("person", miller), "entity words") == ["Osk"]
    assert hit(ask("person or osk", miller), "Osk").places[Way.WORDS] == 1


def test_who_may_see_nothing_finds_nothing(mill):
    result = ask("wheel", Viewer())
    assert (result.hits, result.found, [len(leg.found) for leg in result.legs]) == ((), 0, [0] * 10)


WORDS = ["wheel", "axle", "osk", "person", "hinge", "quill", "larch", "sluice", "stone", "-osk", '"the vault"', "or"]


def naive(text, project_ids, tag):
    """Entities and relationships that contain the words, by a loop over all rows."""
    words, said = parse_text(text), {t for raw in raw_tokens(plain_text_of(text)) for t, _ in raw.terms}
    memories = [
        m for m in Memory.objects.filter(state="active")
        if (project_ids is None or m.project_id in project_ids) and (tag is None or tag in m.tags)
    ]  # fmt: skip
    named, seen = {pk for m in memories for pk in m.entity_ids}, {m.pk for m in memories}
    entities, relationships = set(), set()
    if not words.positive:
        return entities, relationships
    for row in Entity.objects.filter(pk__in=named):
        fields = [(row.name, "A"), (" | ".join(row.aliases), "B"), (row.entity_type, "C"), (row.description, "D")]
        index = index_terms(fields)
        whole = set(index_terms([(row.name, "A")])) <= said and (words.always.is_empty or words.always.matches(index))
        if whole or words.matches(index):
            entities.add(row.pk)
    for row in Relationship.objects.select_related("source", "target"):
        title = f"{row.source.name} {row.relationship_type.replace('_', ' ')} {row.target.name}"
        open_to = set(row.evidence_ids) & seen or (not row.evidence_ids and project_ids is None and tag is None)
        if open_to and words.matches(index_terms([(title, "A"), (row.fact, "D")])):
            relationships.add(row.pk)
    return entities, relationships


@BOTH_ENGINES
@SLOWLY
@given(
    text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join),
    restricted=st.booleans(),
    tag=st.sampled_from([None, "water", "paint"]),
)
def test_any_words_find_what_the_naive_counter_finds(mill, miller, everyone, text, restricted, tag):
    viewer = miller if restricted else everyone
    result = ask(text, viewer, **({"tag": tag} if tag else {}))
    by_words = {leg.kind: {k.id for k in leg.found} for leg in result.legs if leg.way == Way.WORDS}
    assert (by_words[ResultKind.ENTITY], by_words[ResultKind.RELATIONSHIP]) == naive(text, viewer.project_ids, tag)


# --- legs that are left out ---------------------------------------------------------------------------------------


def with_leg(monkeypatch, name, ask_instead):
    monkeypatch.setattr(legs, "LEGS", tuple(replace(leg, ask=ask_instead) if leg.name == name else leg for leg in LEGS))


def state_of(result, name):
    return next((leg.state, leg.reason) for leg in result.legs if leg.name == name)


@pytest.mark.parametrize("name", [leg.name for leg in LEGS])
def test_a_leg_that_fails_is_named_and_left_out(mill, everyone, monkeypatch, name):
    def fail(engine, resolved, limit):
        raise ValueError("broken")

    with_leg(monkeypatch, name, fail)
    result = ask("wheel", everyone, min_similarity=0.05)
    assert state_of(result, name) == (LegState.FAILED, "an error, which is in the log")
    assert [leg.state for leg in result.legs if leg.name != name] == [LegState.OK] * 9
    assert {one.kind.value for one in result.hits} == {"memory", "entity", "relationship"}
    kind, way = name.split()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    message = f"Not included: {plural} by {way} (an error, which is in the log)."
    assert message in [warning.message for warning in result.warnings]


def test_a_leg_that_is_late_is_named_and_left_out(mill, everyone, monkeypatch, settings):
    settings.UNIFIED_LEG_TIMEOUT_MS = 20
    monkeypatch.setattr(legs, "_threads", AtOnce("entity words", "entity meaning"))
    result = ask("wheel", everyone)
    assert state_of(result, "entity words") == (LegState.LATE, "it took longer than 20 ms")
    assert {one.kind.value for one in result.hits} == {"memory", "relationship"}
    assert "Not included: entities by words, entities by meaning (it took longer than 20 ms)." in [
        warning.message for warning in result.warnings
    ]
    assert result.totals[ResultKind.ENTITY].at_least


def test_without_a_model_the_legs_by_meaning_say_why(mill, everyone):
    embeddings.forget()
    embeddings._queries._failed = ("hashed-words", "no model today", float("inf"))
    result = ask("wheel", everyone)
    reasons = {leg.reason for leg in result.legs if leg.way == Way.MEANING and leg.state == LegState.FAILED}
    assert len(reasons) == 1
    assert [leg.state for leg in result.legs if leg.way == Way.WORDS] == [LegState.OK] * 5
    assert {one.kind.value for one in result.hits} == {"memory", "entity", "relationship"}


@pytest.fixture
def in_threads(transactional_db, query_model, tmp_path, settings):
    """The corpus, committed so that the threads of the legs can read it."""
    settings.SEARCH_ENGINE = "postgres"
    fill_with_mill(tmp_path)


def test_legs_have_threads_and_connections_of_their_own(in_threads, everyone, monkeypatch):
    seen = set()

    def watched(ask_leg):
        def asked(engine, resolved, limit):
            seen.add(threading.current_thread().name.split("_")[0])
            return ask_leg(engine, resolved, limit)

        return asked

    monkeypatch.setattr(legs, "LEGS", tuple(replace(leg, ask=watched(leg.ask)) for leg in LEGS))
    result = ask("wheel", everyone)
    assert [leg.state for leg in result.legs] == [LegState.OK] * 10
    assert seen == {"leg"}


def test_a_statement_that_takes_too_long_is_cut_off_and_its_leg_late(in_threads, everyone, monkeypatch, settings):
    def slowly(engine, resolved, limit):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(600)")
        return []

    settings.UNIFIED_LEG_TIMEOUT_MS = 1_500
    with_leg(monkeypatch, "relationship words", slowly)
    result = ask("wheel", everyone)
    assert state_of(result, "relationship words") == (LegState.LATE, "it took longer than 1,500 ms")
    assert {leg.name for leg in result.legs if leg.state == LegState.OK} == {
        leg.name for leg in LEGS if leg.name != "relationship words"
    }


# --- the mode itself ----------------------------------------------------------------------------------------------


def test_another_order_is_refused_with_what_to_do(db):
    with pytest.raises(QueryError, match="mode unified puts what fits best first"):
        SearchQuery.from_mapping({"q": "wheel", "mode": "unified", "sort": "newest"})
