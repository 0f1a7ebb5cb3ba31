"""The replies of the reading tools over the sample: what they count, what they cost, and what leads on from them."""

import json
import re

import pytest

from access.viewer import command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from memories.embedding import query
from memories.models import Memory
from search.unified import legs
from tests.agent_tools.conftest import fill_with_sample
from tests.agent_tools.tokens import tokens
from tests.unified_corpus import AtOnce
from tests.vectors import MODEL

pytestmark = pytest.mark.django_db


@pytest.fixture
def sample(db, monkeypatch):
    monkeypatch.setattr(legs, "_threads", AtOnce())
    fill_with_sample()
    query.use_embedder(MODEL)
    yield
    query.forget()


def told(name, **arguments):
    return call(TOOL[name], arguments, command_viewer())


def ask(name, **arguments):
    return json.loads(told(name, **arguments, format="json", max_tokens=100_000))


def made_again(text):
    """The reply to a call as a reply writes it."""
    name, arguments = re.fullmatch(r"(\w+)\((.*)\)", text).groups()
    pairs = re.findall(r'([\w.-]+)=(\[.*?\]|"(?:[^"\\]|\\.)*"|[\w.]+)', arguments)
    return ask(name, **{key: json.loads(value) for key, value in pairs})


def test_counts_are_of_the_results_in_every_tool_and_name_the_other_way(sample):
    chosen = {"tag": ["postgres"], "type": ["decision"]}
    total = ask("search", **chosen)["total"]
    counted = {name: ask(name, **chosen, include_facets=True) for name in ("search", "retrieve_memory")}
    listed = ask("list_values", facet="type", **chosen)
    assert {row["value"]: row["count"] for row in listed["values"]} == {"decision": total}
    for reply in (*counted.values(), listed):
        assert reply["facet_scope"].startswith("results (choices: ")
    for reply in counted.values():
        assert reply["facets"]["memory_types"] == {"decision": total}
        assert reply["facets"]["tags"]["postgres"] == total
        assert "facet_scope" not in reply["filters"]
    for name in counted:
        other = ask(name, **chosen, include_facets=True, facet_scope="choices")
        assert other["facet_scope"].startswith("choices (results: ")
        assert len(other["facets"]["memory_types"]) > 1
    # Without a selection both count the same.
    assert "facet_scope" not in ask("list_values", facet="tag", query="index")


@pytest.mark.parametrize(
    ("wanted", "counted"),
    [
        pytest.param(["tag"], ["tags"], id="one"),
        pytest.param(["type", "tags", "date"], ["memory_types", "tags", "date_buckets"], id="several"),
        pytest.param("concept", ["concepts"], id="as a text"),
        pytest.param('["state"]', ["states"], id="a list as its text"),
        pytest.param([], None, id="none"),
        pytest.param(False, None, id="off"),
        pytest.param("true", "all", id="a switch as a text"),
    ],
)
@pytest.mark.parametrize("name", ["search", "retrieve_memory"])
def test_facets_are_those_that_are_asked_for(ids, name, wanted, counted):
    reply = ask(name, limit=1, include_facets=wanted)
    if counted is None:
        assert "facets" not in reply
    elif counted == "all":
        assert {"tags", "memory_types", "date_buckets"} <= reply["facets"].keys()
    else:
        assert list(reply["facets"]) == counted


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({}, id="everything"),
        pytest.param({"type": ["decision", "incident"]}, id="types"),
        pytest.param({"state": ["active", "superseded"], "has": "tag"}, id="states"),
        pytest.param({"-tag": ["postgres"], "match_all": True, "from": "2025-01-01"}, id="exclusion and dates"),
    ],
)
def test_rest_of_a_facet_is_one_call_away(sample, arguments):
    reply = ask("search", include_facets=True, limit=1, **arguments)
    (note,) = reply["facet_notes"]
    rest = made_again(note.partition("the rest: ")[2])
    shown, name = re.match(r"(\d+) largest of [\d,]+ (\w+)", note).groups()
    assert len(reply["facets"][name]) == int(shown)
    assert rest["distinct"] > len(reply["facets"][name])
    values = {row["value"]: row["count"] for row in rest["values"]}
    assert reply["facets"][name].items() <= values.items()


CALLS = [
    ("search", {"query": "timeout", "include_facets": True}),
    ("search", {"include_facets": ["tag", "entity"], "limit": 3}),
    ("search", {"query": "zzqqxx", "mode": "keyword", "type": "decision", "include_facets": True}),
    ("search", {"query": "postgres", "mode": "unified", "include_facets": True}),
    ("retrieve_memory", {"query": "pool", "limit": 2, "include_facets": True}),
    ("retrieve_memory", {"query": "pool", "limit": 1}),
    ("list_values", {"facet": "entity"}),
    ("list_values", {"facet": "tag", "tag": ["postgres"]}),
    ("about", {"concept": "thundering herd"}),
    ("about", {"concept": "thundering herd", "to": "backpressure"}),
    ("list_categories", {"limit": 5}),
    ("list_categories", {"include_hierarchy": True, "filter": "postgres"}),
    ("category_search", {"category": "postgres", "include_children": True, "include_chunks": True}),
    ("list_concepts_in_category", {"category": "postgres", "include_children": True}),
    ("similar", {"text": "connection pool exhausted"}),
    ("changes", {"since": "1h", "limit": 5}),
    ("views", {}),
]


def test_no_reply_has_more_tokens_than_it_has_as_json(sample):
    anchor = Memory.objects.order_by("id")[0].pk
    whole = [("timeline", {"anchor": anchor}), ("get_observations", {"ids": [anchor]}), ("history", {"id": anchor})]
    for name, arguments in [*CALLS, *whole]:
        toon, compact = (tokens(told(name, **arguments, format=form)) for form in ("toon", "json"))
        assert toon <= compact, (name, arguments, told(name, **arguments))


def test_json_has_every_field_with_lists_as_the_api_has_them(sample):
    whole = ask("get_observations", ids=list(Memory.objects.order_by("id").values_list("pk", flat=True)[:50]))
    lists = {"tags", "categories", "concepts", "entities", "authors", "links"}
    assert len({tuple(row) for row in whole["memories"]}) == 1
    for row in whole["memories"]:
        assert all(isinstance(row[key], list) for key in lists)
        assert row["state"] in {"active", "proposed", "archived", "superseded"}
        assert {"agent", "source", "summary", "superseded_by"} <= row.keys()
    about = ask("about", concept="thundering herd")
    assert isinstance(about["aliases"], list)
    assert all(isinstance(one, int) for one in about["tags"].values())
    assert ask("search", tag=["postgres", "redis"])["filters"] == {"tag": ["postgres", "redis"]}
    listed = ask("list_categories", include_hierarchy=True)["categories"]
    assert all(isinstance(row["children"], list) and isinstance(row["aliases"], list) for row in listed)
