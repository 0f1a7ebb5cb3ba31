"""Similar memories by vectors of the small model: the same for every engine, and only visible ones."""

import numpy as np
import pytest
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.models import Chunk, Memory, Project
from memories.refusals import MemoryNotFoundError
from search.similar import SimilarRequest, similar_memories, similar_to_text
from tests.explorer.memory.test_memory_page import make
from tests.search.conftest import BOTH_ENGINES
from tests.vectors import embed_everything
from web.cache import clear_caches
from web.params import QueryError

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


def about(viewer, text, **arguments):
    pairs = [(key, str(value)) for key, value in arguments.items()]
    return similar_to_text(text, *SimilarRequest.with_query(pairs), viewer)


def test_a_text_finds_only_what_the_viewer_sees_and_the_filters_pass(vectors, query_model, everyone):
    valve = Memory.objects.get(external_id="t2")
    assert valve.pk not in ids(about(seen_by("boat"), valve.content, min_similarity=0))
    assert valve.pk not in ids(about(everyone, valve.content, type="note", min_similarity=0))


def test_everything_that_is_wrong_is_named_at_once(db):
    with pytest.raises(QueryError, match=r"q: does nothing.*taggs: is not.*limit: 'x'"):
        SimilarRequest.with_query([("q", "tea"), ("taggs", "tea"), ("limit", "x")])
