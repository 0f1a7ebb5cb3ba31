"""Similar memories by vectors of the small model: the same for every engine, and only visible ones."""

import numpy as np
import pytest
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.models import Chunk, Corpus, EmbeddingModel, Memory, Project
from memories.refusals import MemoryNotFoundError
from search.similar import SimilarRequest, similar_memories, similar_to_text
from tests.explorer.memory.test_memory_page import make
from tests.search.conftest import BOTH_ENGINES
from tests.vectors import MODEL, embed_everything
from web.cache import clear_caches

pytestmark = [pytest.mark.django_db, BOTH_ENGINES]


@pytest.fixture
def vectors(corpus):
    """The hand-written memories with their vectors, by external id."""
    kept = embed_everything()
    clear_caches()
    return kept


def like(viewer, external_id, **arguments):
    pairs = [(key.replace("_not_", "-"), str(value)) for key, value in arguments.items()]
    return similar_memories(pk_of(external_id), *SimilarRequest.with_query(pairs), viewer)


def pk_of(external_id):
    return Memory.objects.get(external_id=external_id).pk


def ids(found):
    return [one.hit.id for one in found.memories]


def seen_by(*slugs):
    """A viewer of these projects."""
    projects = frozenset(Project.objects.filter(slug__in=slugs).values_list("pk", flat=True))
    return type(command_viewer())(projects, frozenset({"read"}))


def reembedded():
    embed_everything()
    clear_caches()


def exact(vectors, anchor, passing, least):
    """Memories by the similarity of their nearest chunks, descending."""

    def units(pk):
        return vectors[pk] / np.linalg.norm(vectors[pk], axis=1, keepdims=True)

    found = {pk: float((units(anchor) @ units(pk).T).max()) for pk in passing if pk != anchor}
    return {pk: found[pk] for pk in sorted(found, key=lambda pk: (-found[pk], -pk)) if found[pk] >= least}


def in_default_states():
    return set(Memory.objects.filter(state__in=["active", "proposed"]).values_list("pk", flat=True))


@pytest.mark.parametrize("anchor", ["t1", "t2", "b1"])
def test_the_nearest_come_first_and_never_itself(vectors, everyone, anchor):
    expected = exact(vectors, pk_of(anchor), in_default_states(), 0.05)
    found = like(everyone, anchor, min_similarity=0.05)
    assert ids(found) == list(expected)[:10]
    assert [one.similarity for one in found.memories] == pytest.approx(list(expected.values())[:10], abs=1e-3)
    assert found.has_more == (len(expected) > 10)
    assert found.reason == ""


def test_where_nothing_says_how_near_the_model_does(vectors, everyone):
    found = like(everyone, "t1")
    assert found.min_similarity == 0.2
    assert all(one.similarity >= 0.2 for one in found.memories)
    none = like(everyone, "t1", min_similarity=1)
    assert (none.memories, none.reason) == ((), "no other memory is at least 1.00 similar")
    filtered = like(everyone, "t1", type="idea", min_similarity=0.9)
    assert filtered.reason == "no other memory that matches the filters is at least 0.90 similar"


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        pytest.param({"same_project": 1}, {"project__slug": "tea"}, id="same project"),
        pytest.param({"type": "note"}, {"memory_type": "note"}, id="type"),
        pytest.param({"state": "proposed"}, {"state": "proposed"}, id="state"),
        pytest.param({"from": "2024-02-01", "to": "2024-03-31"}, {"external_id__in": ["t3", "b2", "t4"]}, id="dates"),
    ],
)
def test_filters_leave_the_nearest_of_those_that_pass(vectors, everyone, filters, wanted):
    passing = set(Memory.objects.filter(**wanted).values_list("pk", flat=True))
    if "state" not in filters:
        passing &= in_default_states()
    found = like(everyone, "t1", min_similarity=0, limit=100, **filters)
    assert ids(found) == list(exact(vectors, pk_of("t1"), passing, 0))
    assert found.memories


# --- duplicates ---------------------------------------------------------------------------------------------------


def long_text(*subjects):
    """A text of several chunks, each about another subject."""
    return " ".join(f"{subject} " * 300 for subject in subjects)


def test_one_that_says_nearly_the_same_is_a_possible_duplicate(corpus, everyone):
    again = make(Project.objects.get(slug="boat"), 900, title=Memory.objects.get(external_id="t1").title)
    Memory.objects.filter(pk=again.pk).update(content=Memory.objects.get(external_id="t1").content)
    reembedded()
    first, *others = like(everyone, "t1", min_similarity=0).memories
    assert (first.hit.id, first.is_duplicate, first.similarity) == (900, True, pytest.approx(1, abs=1e-3))
    assert not any(one.is_duplicate for one in others)


def test_one_paragraph_in_common_is_similar_and_no_duplicate(corpus, everyone):
    tea = Project.objects.get(slug="tea")
    for pk, content in {
        900: long_text("kettle spring valve", "crane dock brake"),
        901: long_text("kettle spring valve", "ledger invoice tax"),
        902: long_text("kettle spring valve", "crane dock brake"),
    }.items():
        make(tea, pk, title="Weekly report", content=content, external_id=str(pk))
    reembedded()
    assert Chunk.objects.filter(memory_id=900).count() > 2
    found = {one.hit.id: one for one in like(everyone, "900", min_similarity=0.9).memories}
    assert {pk: one.is_duplicate for pk, one in found.items()} == {901: False, 902: True}
    assert found[901].similarity >= 0.95


def test_a_long_memory_is_compared_from_its_beginning_to_its_end(corpus, everyone):
    tea = Project.objects.get(slug="tea")
    subjects = [f"subject{n}" for n in range(40)]
    make(tea, 900, title="", content=long_text(*subjects), external_id="long")
    for pk, subject in ((901, subjects[0]), (902, subjects[-1])):
        make(tea, pk, title="", content=long_text(subject))
    reembedded()
    assert Chunk.objects.filter(memory_id=900).count() > 40
    assert {901, 902} <= set(ids(like(everyone, "long", min_similarity=0.8)))


# --- who may see what ---------------------------------------------------------------------------------------------


def test_nothing_tells_of_another_project(vectors, everyone):
    boat = Project.objects.get(slug="boat")
    for pk in range(900, 920):
        make(boat, pk, title="Brew green tea at 70 °C", content=Memory.objects.get(external_id="t1").content)
    Memory.objects.filter(pk__gte=900).update(tags=["tea", "secret"])
    reembedded()
    assert set(ids(like(everyone, "t1"))) <= set(range(900, 920))
    found = like(seen_by("tea"), "t1", limit=3, min_similarity=0)
    assert {one.hit.project for one in found.memories} == {"tea"}
    assert len(found.memories) == 3
    every = like(seen_by("tea"), "t1", limit=100, min_similarity=0)
    assert every.has_more is False
    assert like(seen_by("tea"), "t1", project="boat").memories == ()


def test_one_of_another_project_is_not_there(vectors):
    with pytest.raises(MemoryNotFoundError):
        like(seen_by("tea"), "b1")
    with pytest.raises(MemoryNotFoundError):
        similar_memories(10**9, *SimilarRequest.with_query([]), command_viewer())


# --- where there are no vectors -----------------------------------------------------------------------------------


def test_before_anything_is_embedded_there_is_a_reason(corpus, everyone):
    found = like(everyone, "t1")
    assert (found.memories, found.reason) == ((), "no memory has been embedded yet")


def test_vectors_of_another_model_are_not_compared(vectors, everyone):
    EmbeddingModel.objects.create(
        id=2, name="next", source="next", dimensions=MODEL.dimensions, min_similarity=0.3, state="building"
    )
    own = Chunk.objects.get(memory_id=pk_of("t1"))
    Chunk.objects.create(memory_id=pk_of("b1"), model_id=2, ordinal=0, start=0, end=1, embedding=own.embedding)
    Corpus.objects.update(vectors=Corpus.objects.get().vectors + 1)
    before = {one.hit.external_id: one.similarity for one in like(everyone, "t1", min_similarity=0).memories}
    assert before.get("b1", 0) < 0.9


# --- the API ------------------------------------------------------------------------------------------------------


def fetched(path, status=200, projects=(), **parameters):
    named = {"projects": Project.objects.filter(slug__in=projects)} if projects else {"every_project": True}
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), **named).raw
    response = Client(headers={"Authorization": f"Bearer {raw}"}).get(path, parameters)
    assert response.status_code == status, response.content
    return response.json()


def test_api_gives_what_the_page_shows(vectors, everyone):
    path = f"/api/memories/{pk_of('t1')}/similar"
    reply = fetched(path, limit=3, min_similarity="0.05", same_project="true")
    found = like(everyone, "t1", limit=3, min_similarity=0.05, same_project=1)
    assert [row["id"] for row in reply["memories"]] == ids(found)
    assert reply["filters"] == {"project": ["tea"], "min_similarity": 0.05}
    assert (reply["reason"], reply["has_more"], reply["min_similarity"]) == ("", True, 0.05)
    row = next(row for row in reply["memories"] if row["shared"]["entities"])
    assert row["shared"]["entities"][0] == {"value": "tool:kettle", "name": "kettle", "type": "tool"}
    assert row["url"] == f"http://testserver/m/{row['id']}/"
    assert row["possible_duplicate"] is False
    assert 0.05 <= row["similarity"] <= 1


def test_api_knows_no_memory_of_another_project(vectors):
    assert fetched(f"/api/memories/{pk_of('b1')}/similar", 404, projects=["tea"])["error"] == "not_found"
    assert fetched(f"/api/memories/{10**30}/similar", 404)["error"] == "not_found"


@pytest.mark.parametrize(
    ("parameters", "detail"),
    [
        pytest.param({"limit": "0"}, "limit: 0 is too small", id="limit too small"),
        pytest.param({"limit": "101"}, "limit: 101 is too large", id="limit too large"),
        pytest.param({"limit": "ten"}, "limit: 'ten' is not a whole number", id="limit in words"),
        pytest.param({"limit": ["5", "6"]}, "limit: is given twice with different values", id="two limits"),
        pytest.param({"min_similarity": "2"}, "min_similarity: 2 is too large", id="similarity too large"),
        pytest.param({"min_similarity": "near"}, "min_similarity: 'near' is not a number", id="similarity in words"),
        pytest.param({"same_project": "maybe"}, "same_project: 'maybe' is not a boolean (1 or 0)", id="no switch"),
        pytest.param(
            {"same_project": "1", "project": "tea"}, "same_project: is given together with project", id="two projects"
        ),
        pytest.param({"q": "tea"}, "q: does nothing here: the nearest come first", id="words"),
        pytest.param({"sort": "newest"}, "sort: does nothing here: the nearest come first", id="order"),
        pytest.param({"page_size": "5"}, "page_size: does nothing here: the nearest come first", id="page size"),
        pytest.param({"taggs": "tea"}, "taggs: is not a parameter", id="unknown"),
    ],
)
def test_parameters_that_are_wrong_are_named(db, parameters, detail):
    reply = fetched("/api/memories/1/similar", 422, **parameters)
    assert reply["error"] == "invalid_query"
    assert detail in reply["detail"]


def about(viewer, text, **arguments):
    pairs = [(key, str(value)) for key, value in arguments.items()]
    return similar_to_text(text, *SimilarRequest.with_query(pairs), viewer)


def test_a_text_is_compared_as_it_is_and_not_read_as_a_query(vectors, query_model, everyone):
    valve = Memory.objects.get(external_id="t2")
    whole = about(everyone, f"{valve.title}\n{valve.content}")
    assert (ids(whole)[0], whole.memories[0].is_duplicate) == (valve.pk, True)
    signed = about(everyone, f'"{valve.title}" {valve.content} -kettle -valve +retry or')
    assert (ids(signed)[0], signed.memories[0].similarity > 0.85) == (valve.pk, True)
    long = about(everyone, "Nothing of the kind. " * 100 + valve.content)
    assert ids(long)[0] == valve.pk


def test_a_text_finds_only_what_the_viewer_sees_and_the_filters_pass(vectors, query_model, everyone):
    valve = Memory.objects.get(external_id="t2")
    assert valve.pk not in ids(about(seen_by("boat"), valve.content, min_similarity=0))
    assert valve.pk not in ids(about(everyone, valve.content, type="note", min_similarity=0))
