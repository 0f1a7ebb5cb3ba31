"""`search(mode=unified)`: memories, entities and relationships as rows that lead an agent on."""

import json
import re

import pytest
import toon_format
from django.contrib.auth.models import User
from django.test import Client as Browser

from access.models import ApiKey
from access.viewer import command_viewer, viewer_of_key
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from memories.embedding import query
from memories.models import Memory
from search.query import SearchQuery
from search.run import run
from search.unified import legs
from search.unified.service import best_known, unified
from tests.agent_tools.conftest import key_for
from tests.html import html_of
from tests.unified_corpus import AtOnce, fill_with_mill
from tests.vectors import MODEL

pytestmark = pytest.mark.django_db


@pytest.fixture
def mill(db, tmp_path, monkeypatch):
    monkeypatch.setattr(legs, "_threads", AtOnce())
    query.use_embedder(MODEL)
    fill_with_mill(tmp_path)
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
    assert wheel["see"] == 'about(entity="part:wheel"): 5 memories'
    fact = next(row for row in reply["results"] if row["title"] == "Osk inspects wheel")
    assert (fact["text"], fact["see"]) == (
        "Osk looks for cracks every Friday with a lantern.",
        f"get_observations(ids=[{mill['m4']}])",
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


@pytest.fixture
def callers(mill):
    """A browser and a client of the API, both of somebody who sees everything."""
    browser, client = Browser(), Browser(headers={"Authorization": f"Bearer {key_for()}"})
    browser.force_login(User.objects.create_user("reader", is_superuser=True))
    return browser, client


@pytest.mark.parametrize("mode", ["hybrid", "faceted"])
@pytest.mark.parametrize(
    ("question", "kind", "title"),
    [
        pytest.param("who inspects the wheel", "relationship", "Osk inspects wheel", id="who"),
        pytest.param("What does Quill guard?", "relationship", "Quill guards hinge", id="what"),
        pytest.param("does the axle rest on the hinge", "relationship", "axle rests on hinge", id="yes or no"),
        pytest.param("who looks for cracks with a lantern", "relationship", "Osk inspects wheel", id="by its fact"),
        pytest.param("spokes of larch", "entity", "wheel", id="a description"),
        pytest.param("wheel", None, None, id="one word"),
        pytest.param("wheel zeppelin", None, None, id="half of the words"),
        pytest.param("the combination -vault", None, None, id="nothing"),
    ],
)
def test_default_search_says_which_fact_or_term_fits_best(callers, mode, question, kind, title):
    browser, client = callers
    told = json.loads(call(TOOL["search"], {"query": question, "mode": mode, "format": "json"}, command_viewer()))
    reply = client.get("/api/search", {"q": question, "mode": mode}).json()
    page = html_of(browser.get("/explore/", {"q": question, "mode": mode}, follow=True))
    if kind is None:
        assert (reply["known"], "known" in told, 'id="known"' in page) == (None, False, False)
        return
    assert (reply["known"]["kind"], reply["known"]["title"]) == (kind, title)
    assert told["known"].startswith(f"{kind}:{reply['known']['id']} {title}")
    assert '"unified"' in told["known"]
    assert f">{title}</a>" in page.partition('id="known"')[2]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"mode": "keyword"}, id="words alone"),
        pytest.param({"page": 2}, id="second page"),
        pytest.param({"tag": ["paint"]}, id="evidence that a filter leaves out"),
    ],
)
def test_fact_is_not_said_where_it_does_not_answer(mill, arguments):
    told = json.loads(
        call(TOOL["search"], {"query": "who inspects the wheel", "format": "json", **arguments}, command_viewer())
    )
    assert "known" not in told


@pytest.mark.parametrize(
    ("question", "title"),
    [
        pytest.param("who is the wheel inspected by", "Osk inspects wheel", id="passive"),
        pytest.param("which person inspects the wheel", "Osk inspects wheel", id="type of the source"),
        pytest.param("rests_on hinge", "axle rests on hinge", id="type with underscore"),
        pytest.param("does the sluice really feed our wheel", "sluice feeds wheel", id="both names"),
        pytest.param("what does the hinge guard", None, id="contrary direction"),
        pytest.param("who inspects the axle", None, id="another end"),
    ],
)
def test_fact_that_answers_a_question_is_known(mill, question, title):
    query.forget()
    result = run(SearchQuery.from_mapping({"q": question}), command_viewer())
    found = best_known(result, command_viewer())
    assert (found and found.title_text) == title


def test_every_tool_takes_the_ids_of_results(mill):
    results = {row["title"]: row for row in ask(query="wheel")["results"]}
    wheel, fact = results["wheel"]["id"], results["Osk inspects wheel"]["id"]

    def reply(name, **arguments):
        return json.loads(call(TOOL[name], {**arguments, "format": "json"}, command_viewer()))

    assert reply("search", entity=wheel)["total"] == reply("search", entity="part:wheel")["total"] == 5
    assert reply("search", **{"-entity": [wheel]})["total"] == reply("search", **{"-entity": "part:wheel"})["total"]
    assert reply("list_values", facet="tag", entities=[wheel])["distinct"] == 1
    assert reply("about", entity=wheel)["name"] == "wheel"
    assert reply("about", entity="Osk", to=wheel)["to"] == "part:wheel"
    assert [row["id"] for row in reply("get_observations", ids=[fact])["memories"]] == [mill["m4"]]
    several = reply("get_observations", ids=[f"memory:{mill['m1']}", fact, mill["m2"]])
    assert [row["id"] for row in several["memories"]] == [mill["m1"], mill["m4"], mill["m2"]]
    assert len(reply("get_observations", ids=wheel)["memories"]) == 5
    (around,) = (row for row in reply("timeline", anchor=fact)["memories"] if row["at"] == 0)
    assert around["id"] == mill["m4"]
    assert reply("similar", id=fact)["memories"]
    assert reply("history", id=fact)["id"] == mill["m4"]
    for row in results.values():
        if row["see"]:
            name, argument = re.match(r"(\w+)\((.*?)\)", row["see"]).groups()
            key, _, value = argument.partition("=")
            assert reply(name, **{key: json.loads(value)})
    with pytest.raises(ToolRefusedError, match="stands behind relationship:999"):
        reply("get_observations", ids=["relationship:999"])
    with pytest.raises(ToolRefusedError, match="id: "):
        call(TOOL["update_memory"], {"id": wheel, "tags": []}, command_viewer())
