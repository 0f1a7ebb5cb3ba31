"""The search API: shapes of replies, and the same numbers as in pages."""

from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access.keys import make_key
from access.viewer import command_viewer
from config.api import api
from memories.models import Memory, Project
from search.engines.base import EngineTimeoutError
from search.facets import FACETS
from search.query import SearchQuery
from search.run import run

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller(db):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


def found(caller, query="", path="/api/search"):
    response = caller.get(f"{path}?{query}")
    assert response.status_code == 200, response.content
    return response.json()


def test_page_of_memories_has_the_shape_of_the_specification(corpus, engine, caller):
    reply = found(caller, "q=green+tea&page_size=10")
    assert {"memories", "page", "page_size", "total", "has_more"} <= set(reply)
    assert (reply["page"], reply["page_size"], reply["pages"], reply["has_more"]) == (1, 10, 1, False)
    assert reply["total"] == 1
    hit = reply["memories"][0]
    assert hit["title"] == "Brew green tea at 70 °C"
    assert "green tea" in hit["snippet"]
    assert (hit["project"], hit["memory_type"], hit["state"]) == ("tea", "decision", "active")
    assert hit["tags"] == ["tea", "brewing"]
    assert hit["categories"] == ["kitchen/brewing"]
    assert hit["authors"] == ["Mio"]
    assert hit["created_at"] == "2024-01-05T10:00:00Z"
    assert (hit["source"], hit["external_id"]) == ("wiki", "t1")
    assert hit["score"] > 0
    memory = Memory.objects.get(external_id="t1")
    assert hit["id"] == memory.pk
    assert hit["url"] == f"http://testserver/m/{memory.pk}/"
    assert reply["filters"] == {"q": "green tea"}
    assert reply["matched_by"]
    assert reply["engine"] == engine.removesuffix("-large")
    assert reply["took_ms"] > 0


def test_facets_are_absent_unless_asked_for(corpus, caller):
    counted = {"facets", "no_value", "facet_notes", "unavailable"}
    assert counted.isdisjoint(found(caller))
    assert counted.isdisjoint(found(caller, "include_facets=false"))
    assert counted <= set(found(caller, "include_facets=true"))


def test_facets_are_objects_of_counts(corpus, caller):
    reply = found(caller, "include_facets=1")
    facets = reply["facets"]
    assert set(facets) == {spec.api_name for spec in FACETS} | {"date_buckets", "histogram"}
    assert facets["memory_types"] == {"note": 6, "bugfix": 2, "decision": 3, "howto": 2, "idea": 1}
    assert facets["projects"] == {"boat": 6, "tea": 8}
    assert facets["tags"]["tea"] == 4
    assert facets["categories"]["yard"] == 6
    assert facets["states"] == {"active": 13, "proposed": 1, "archived": 1, "superseded": 1}
    assert reply["no_value"]["categories"] == 3
    assert reply["facet_notes"] == {}
    assert reply["unavailable"] == {}


def test_date_buckets_are_the_five_of_the_specification(corpus, caller):
    buckets = found(caller, "include_facets=1")["facets"]["date_buckets"]
    assert list(buckets) == ["last_7d", "last_30d", "last_90d", "last_year", "older"]
    assert buckets["last_7d"] <= buckets["last_30d"] <= buckets["last_90d"] <= buckets["last_year"]
    assert buckets["last_year"] + buckets["older"] == 14


def test_the_values_of_a_facet_are_counted_over_the_choices_or_the_results(corpus, caller):
    choices = caller.get("/api/facets/type?type=decision").json()
    assert {v["value"]: v["count"] for v in choices["values"]} == {
        "note": 6,
        "decision": 3,
        "bugfix": 2,
        "howto": 2,
        "idea": 1,
    }
    results = caller.get("/api/facets/type?type=decision&facet_scope=results").json()
    assert {v["value"]: v["count"] for v in results["values"]} == {"decision": 3}
    assert results["filters"] == {"type": ["decision"], "facet_scope": "results"}
    assert caller.get("/api/facets/type?facet_scope=all").status_code == 422


def test_facets_are_equal_on_every_page(corpus, caller):
    pages = [found(caller, f"include_facets=1&page_size=5&page={page}") for page in (1, 2, 3)]
    assert [len(page["memories"]) for page in pages] == [5, 5, 4]
    assert [page["has_more"] for page in pages] == [True, True, False]
    assert len({hit["id"] for page in pages for hit in page["memories"]}) == 14
    for part in ("facets", "no_value", "facet_notes", "total"):
        assert pages[0][part] == pages[1][part] == pages[2][part]


def test_values_with_a_comma_between_them_are_answered_with_how_to_give_several(corpus, engine, caller):
    reply = found(caller, "tag=tea,crain")
    assert reply["total"] == 0
    assert reply["warnings"][0] == {
        "parameter": "tag",
        "message": "No tag is named “tea,crain”. For several, give each one on its own, not with a comma.",
        "did_you_mean": ["tea", "crane"],
    }


@pytest.mark.parametrize(
    ("spelt", "canonical"),
    [
        pytest.param("tags=tea&tags=crane", "tag=tea&tag=crane", id="tags"),
        pytest.param("tags=tea&tags=guests&match_all=true", "tag=tea&tag=guests&tag.all=1", id="match_all"),
        pytest.param("memory_type=note", "type=note", id="memory_type"),
        pytest.param("start_date=2024-02-01&end_date=2024-02-29", "from=2024-02-01&to=2024-02-29", id="dates"),
        pytest.param("query=tea", "q=tea", id="query"),
        pytest.param("query=tea&mode=faceted&orderBy=date_asc&limit=2", "q=tea&sort=oldest&page_size=2", id="order"),
        pytest.param("categories=yard&includeChildren=false", "category=yard&subcategories=0", id="children"),
        pytest.param("limit=2&offset=4", "page_size=2&page=3", id="offset"),
    ],
)
def test_names_of_the_specifications_mean_the_same(corpus, caller, spelt, canonical):
    one, other = found(caller, spelt), found(caller, canonical)
    assert [hit["id"] for hit in one["memories"]] == [hit["id"] for hit in other["memories"]]
    assert one["total"] == other["total"] > 0
    assert {k: v for k, v in one["filters"].items() if k != "mode"} == other["filters"]


def test_dates_that_end_before_they_start_give_nothing_and_a_warning(corpus, caller):
    reply = found(caller, "mode=faceted&start_date=2025-01-01&end_date=2024-01-01&include_facets=1")
    assert (reply["total"], reply["memories"]) == (0, [])
    assert "ends before it starts" in reply["warnings"][0]["message"]
    assert reply["facets"]["date_buckets"] == {"last_7d": 0, "last_30d": 0, "last_90d": 0, "last_year": 0, "older": 0}


def test_facet_with_more_values_than_fit_says_so(corpus, caller, monkeypatch):
    monkeypatch.setattr("explorer.explore.api.FACET_LIMIT", 2)
    reply = found(caller, "include_facets=1")
    assert len(reply["facets"]["tags"]) == 2
    note = reply["facet_notes"]["tags"]
    assert (note["shown"], note["distinct"]) == (2, 10)
    assert "/api/facets/tag" in note["note"]
    assert "projects" not in reply["facet_notes"]


def test_results_come_where_counting_fails(corpus, caller, monkeypatch):
    def too_slow(*args, **kwargs):
        raise EngineTimeoutError

    monkeypatch.setattr("search.engines.postgres.PostgresEngine.counts", too_slow)
    monkeypatch.setattr("search.engines.index.engine.IndexEngine.counts", too_slow)
    reply = found(caller, "include_facets=1")
    assert reply["total"] == 14
    assert reply["facets"] == {}
    assert {"tags", "memory_types", "date_buckets", "histogram"} <= set(reply["unavailable"])


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("", id="everything"),
        pytest.param("q=tea", id="words"),
        pytest.param("q=%2Btea+-boat&type=note&-tag=guests&no=agent", id="words and filters"),
        pytest.param("category=yard&from=2024-01-01&to=2024-12-31&tz=Asia/Tokyo", id="category and dates"),
        pytest.param("state=archived&state=superseded&state=active&sort=title", id="states"),
    ],
)
def test_api_and_direct_call_give_the_same(corpus, caller, query):
    reply = found(caller, query)
    result = run(_query(query), command_viewer())
    assert reply["total"] == result.total
    assert [hit["id"] for hit in reply["memories"]] == [hit.id for hit in result.hits]


def _query(querystring):
    return SearchQuery.from_pairs(parse_qsl(querystring))


def test_key_of_a_project_sees_numbers_of_that_project_alone(corpus):
    boat = Project.objects.get(slug="boat")
    raw = make_key(name="boat", scopes=["read"], projects=[boat], viewer=command_viewer()).raw
    caller = Client(headers={"X-API-Key": raw})
    reply = found(caller, "include_facets=1")
    assert reply["total"] == 6
    assert reply["facets"]["projects"] == {"boat": 6}
    assert "brewing" not in reply["facets"]["tags"]
    assert found(caller, "project=tea&include_facets=1")["total"] == 0
    assert "tea" not in {v["value"] for v in found(caller, "", "/api/facets/project")["values"]}


def test_statements_grow_with_neither_hits_nor_values(corpus, caller):
    # The counts of the corpus are cached.
    found(caller, "include_facets=1")
    spent = []
    for size in (1, 100):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            found(caller, f"include_facets=1&page_size={size}")
        spent.append(len(queries))
    assert spent[0] == spent[1]


# --- facets ------------------------------------------------------------------------------------------------------


def test_facets_lists_every_facet_with_its_largest_values(corpus, caller):
    reply = found(caller, "type=note", "/api/facets")
    assert reply["total"] == 6
    assert reply["filters"] == {"type": ["note"]}
    assert [facet["facet"] for facet in reply["facets"]] == [spec.key for spec in FACETS]
    types = next(facet for facet in reply["facets"] if facet["facet"] == "type")
    assert (types["api_name"], types["label"], types["distinct"], types["no_value"]) == ("memory_types", "Type", 5, 0)
    note = next(value for value in types["values"] if value["value"] == "note")
    assert (note["count"], note["selected"], note["excluded"]) == (6, True, False)


def test_facet_is_found_by_either_name_and_paged_by_name_or_count(corpus, caller):
    by_count = found(caller, "page_size=3", "/api/facets/tag")
    assert by_count["values"][0]["value"] == "tea"
    assert (by_count["distinct"], by_count["pages"], by_count["has_more"]) == (10, 4, True)
    by_name = [
        value["value"]
        for page in (1, 2, 3, 4)
        for value in found(caller, f"sort=name&page_size=3&page={page}", "/api/facets/tags")["values"]
    ]
    assert by_name == sorted(by_name)
    assert len(by_name) == 10


# --- the document ------------------------------------------------------------------------------------------------


def test_document_names_every_parameter_and_facet():
    document = api.get_openapi_schema()
    search = document["paths"]["/api/search"]["get"]
    named = [*(p["name"] for p in SearchQuery.openapi_parameters()), "view", "cursor"]
    assert [p["name"] for p in search["parameters"]] == named
    counts = document["components"]["schemas"]["FacetCounts"]["properties"]
    assert set(counts) == {spec.api_name for spec in FACETS} | {"date_buckets", "histogram"}
    listing = {p["name"]: p for p in document["paths"]["/api/facets/{facet}"]["get"]["parameters"]}
    assert listing["sort"]["schema"]["enum"] == ["count", "name", "typical"]
    assert listing["page_size"]["schema"]["maximum"] == 1_000
    assert listing["facet"]["in"] == "path"
