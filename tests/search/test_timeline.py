"""The timeline: filtered memories before and after an anchor, the same for every engine."""

from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.models import Memory, Project
from memories.refusals import MemoryNotFoundError
from search.timeline import TimelineRequest, timeline
from tests.search.conftest import BOTH_ENGINES
from web.params import QueryError

pytestmark = [pytest.mark.django_db, BOTH_ENGINES]

FIELDS = {"id", "title", "created_at", "memory_type", "project"}


def around(viewer, **arguments):
    return timeline(*TimelineRequest.with_query((key, str(value)) for key, value in arguments.items()), viewer)


def external_ids(hits):
    return [hit.external_id for hit in hits]


def pk_of(external_id):
    return Memory.objects.get(external_id=external_id).pk


def seen_by(*slugs):
    """A viewer of these projects."""
    ids = frozenset(Project.objects.filter(slug__in=slugs).values_list("pk", flat=True))
    return type(command_viewer())(ids, frozenset({"read"}))


def test_neighbours_stand_around_the_anchor_the_oldest_first(corpus, everyone):
    found = around(everyone, anchor=pk_of("b1"))
    assert found.anchor.external_id == "b1"
    assert external_ids(found.before) == ["t1", "t2", ""]
    assert external_ids(found.after) == ["t3", "b2", "t4"]
    assert (found.earlier, found.later) == (0, 7)


def test_words_find_the_anchor_and_narrow_nothing(corpus, everyone):
    found = around(everyone, query="crane brake", depth_before=1, depth_after=1)
    assert found.anchor.external_id == "b1"
    assert (external_ids(found.before), external_ids(found.after)) == ([""], ["t3"])


@pytest.mark.parametrize(
    ("moment", "filters", "expected", "warnings"),
    [
        pytest.param("2024-02-28", {}, "b2", [], id="day, to its last second"),
        pytest.param("2024-02-27", {}, "b1", [], id="day without a memory"),
        pytest.param("2024-02-28", {"project": "tea"}, "t3", [], id="filters choose it"),
        pytest.param("2030-01-01T12:00Z", {"tag": "brewing"}, "t1", [], id="time after all"),
        pytest.param(
            "1990-01-01", {}, "t1", ["No memory is as old as 1990-01-01: this is the first one after it."], id="before"
        ),
        pytest.param(
            "2024-02-29",
            {"tag": "no-such-tag"},
            None,
            ["No memory was found for the anchor."],
            id="nothing passes the filters",
        ),
    ],
)
def test_time_stands_for_the_last_memory_until_then(corpus, everyone, moment, filters, expected, warnings):
    found = around(everyone, anchor=moment, **filters)
    assert (found.anchor and found.anchor.external_id) == expected
    assert [warning.message for warning in found.warnings] == warnings


def test_time_reveals_no_memory_of_another_project(corpus):
    assert around(seen_by("tea"), anchor="2024-02-28").anchor.external_id == "t3"


@pytest.mark.parametrize(
    ("query", "mode", "expected"),
    [
        pytest.param(
            "qqqzzzxx", "hybrid", "No memory contains “qqqzzzxx”; this is the nearest in meaning", id="nonsense"
        ),
        pytest.param("qqqzzzxx", "semantic", "No memory contains “qqqzzzxx”; this is the nearest in", id="by meaning"),
        pytest.param("green tea", "hybrid", "", id="words"),
        pytest.param("green tea", "semantic", "", id="by meaning, with words that there are"),
        pytest.param("hospitality", "semantic", "No memory contains “hospitality”; this is", id="a name, by meaning"),
    ],
)
def test_anchor_that_has_none_of_the_words_is_named_as_such(embedded, everyone, query, mode, expected):
    found = around(everyone, query=query, mode=mode, min_similarity=0)
    assert found.anchor
    assert [warning.message[: len(expected)] for warning in found.warnings] == [expected] * bool(expected)


@pytest.mark.parametrize("place", [0, 1, 7, 14, 15])
def test_memories_of_one_instant_are_in_order_of_their_ids(corpus, everyone, place):
    same = list(Memory.objects.order_by("pk"))
    ids = [memory.pk for memory in same]
    Memory.objects.update(created_at=datetime(2024, 5, 5, tzinfo=UTC), state="active")
    found = around(everyone, anchor=ids[place], depth_before=100, depth_after=100)
    assert [hit.id for hit in found.before] == ids[:place]
    assert [hit.id for hit in found.after] == ids[place + 1 :]


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param(datetime.max.replace(tzinfo=UTC), id="the last instant there is"),
        pytest.param(datetime.min.replace(tzinfo=UTC) + timedelta(days=1), id="almost the first"),
    ],
)
def test_ends_of_the_calendar_have_neighbours(corpus, everyone, moment):
    Memory.objects.filter(external_id="t1").update(created_at=moment)
    found = around(everyone, anchor=pk_of("t1"), depth_before=100, depth_after=100)
    assert found.anchor.external_id == "t1"
    assert len(found.before) + len(found.after) == 13


def test_anchor_of_another_project_is_not_found(corpus, everyone):
    with pytest.raises(MemoryNotFoundError):
        around(seen_by("boat"), anchor=pk_of("t1"))
    found = around(seen_by("boat"), anchor=pk_of("b1"), depth_before=100, depth_after=100)
    assert {hit.project for hit in (*found.before, *found.after)} == {"boat"}
    assert (found.earlier, found.later) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({}, "neither is given", id="nowhere to stand"),
        pytest.param({"anchor": 1, "query": "tea"}, "both are given", id="two places to stand"),
        pytest.param({"anchor": "first"}, "is not the id of a memory, such as 123, nor a time", id="no id"),
        pytest.param({"anchor": 1, "depth_before": 101}, "depth_before: 101 is too large", id="too deep"),
        pytest.param({"anchor": 1, "depth_after": "-1"}, "depth_after: -1 is too small", id="negative"),
        pytest.param({"anchor": 1, "limit": 5}, "does nothing in a timeline", id="of a search"),
        pytest.param({"anchor": 1, "anker": 5}, "anker: is not a parameter", id="unknown"),
    ],
)
def test_what_cannot_be_read_is_named(arguments, said):
    with pytest.raises(QueryError, match=said):
        TimelineRequest.with_query((key, str(value)) for key, value in arguments.items())


@pytest.fixture
def caller(db):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


def test_api_names_what_it_cannot_read(corpus, caller):
    unknown = caller.get("/api/timeline?anchor=999999")
    assert (unknown.status_code, unknown.json()["error"]) == (404, "not_found")
    wrong = caller.get("/api/timeline?anker=1&depth_before=x")
    assert wrong.status_code == 422
    assert "anker" in wrong.json()["detail"]
    assert "depth_before" in wrong.json()["detail"]


def test_search_shows_an_index_where_it_is_asked_for(corpus, caller):
    reply = caller.get("/api/search?query=tea&orderBy=date_desc&limit=2&view=index&include_facets=1").json()
    assert [set(row) for row in reply["memories"]] == [FIELDS, FIELDS]
    assert reply["memories"][0]["title"] == "Serve tea on the boat"
    assert (reply["total"], reply["has_more"], reply["facets"]["projects"]) == (6, True, {"boat": 1, "tea": 5})
    wrong = caller.get("/api/search?view=tiny&q=tea")
    assert wrong.status_code == 422
    assert "view: 'tiny' is not one of the choices" in wrong.json()["detail"]
