"""`search(mode=unified)`: memories, entities and relationships as rows that lead an agent on."""

import json

import pytest
import toon_format

from access.models import ApiKey
from access.viewer import command_viewer, viewer_of_key
from agent_tools.catalogue import TOOL
from agent_tools.tools import call
from memories.embedding import query
from memories.models import Memory
from search.query import SearchQuery
from search.unified import legs
from search.unified.service import unified
from tests.agent_tools.conftest import key_for
from tests.unified_corpus import AtOnce, bring_in_mill, embed_all
from tests.vectors import MODEL
from web.cache import clear_caches

pytestmark = pytest.mark.django_db


@pytest.fixture
def mill(db, tmp_path, monkeypatch):
    monkeypatch.setattr(legs, "_threads", AtOnce())
    query.use_embedder(MODEL)
    bring_in_mill(tmp_path)
    embed_all()
    clear_caches()
    yield dict(Memory.objects.values_list("external_id", "pk"))
    query.forget()


def ask(viewer=None, **arguments):
    told = call(TOOL["search"], {"mode": "unified", "format": "json", **arguments}, viewer or command_viewer())
    return json.loads(told)


def test_three_kinds_come_in_one_order_with_what_leads_on(mill):
    reply = ask(query="wheel")
    found = unified(SearchQuery.from_mapping({"q": "wheel", "mode": "unified", "page_size": 20}), command_viewer())
    assert [(row["kind"], row["title"]) for row in reply["results"]] == [(h.kind, h.title_text) for h in found.hits]
    assert {row["kind"] for row in reply["results"]} == {"memory", "entity", "relationship"}
    assert reply["total"] == found.found
    wheel = next(row for row in reply["results"] if row["kind"] == "entity" and row["title"] == "wheel")
    assert wheel["id"].startswith("entity:")
    assert wheel["see"] == "search(entity=part:wheel): 5 memories"
    fact = next(row for row in reply["results"] if row["title"] == "Osk inspects wheel")
    assert (fact["text"], fact["see"]) == (
        "Osk looks for cracks every Friday with a lantern.",
        f"#{mill['m4']}",
    )
    memories = [row for row in reply["results"] if row["kind"] == "memory"]
    assert {row["id"] for row in memories} <= set(mill.values())


def test_rows_are_flat_so_that_toon_is_a_table(mill):
    told = call(TOOL["search"], {"mode": "unified", "query": "wheel"}, command_viewer())
    rows = toon_format.decode(told)["results"]
    assert len({tuple(row) for row in rows}) == 1
    assert f"results[{len(rows)}]{{kind,id,title" in told


def test_without_a_text_it_is_the_index_of_memories(mill):
    assert [row["id"] for row in ask(type="note", limit=3)["memories"]]


def test_nothing_of_another_project_is_told(mill):
    key_for("mill")
    reply = ask(viewer_of_key(ApiKey.objects.latest("id")), query="hinge vault Quill wheel")
    told = json.dumps(reply["results"])
    assert "wheel" in told
    assert "Quill" not in told
    assert "combination" not in told
    assert f"#{mill['v1']}" not in told
