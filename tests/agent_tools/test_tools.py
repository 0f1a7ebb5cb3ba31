"""Every tool as an agent calls it, and the errors that it returns."""

import json
import re

import pytest
import toon_format

from access.models import ApiKey
from access.viewer import command_viewer, viewer_of_key
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from agent_tools.workflow import WORKFLOW
from memories.models import Memory, MemoryLink
from memories.queries import memory_details
from search.query import SearchQuery
from search.run import run
from tests.agent_tools.conftest import key_for
from tests.agent_tools.tokens import tokens

pytestmark = pytest.mark.django_db


def told(name, viewer=None, **arguments):
    return call(TOOL[name], arguments, viewer or command_viewer())


def ask(name, viewer=None, **arguments):
    return json.loads(told(name, viewer, format="json", **arguments))


def refused(name, viewer=None, **arguments):
    with pytest.raises(ToolRefusedError) as error:
        told(name, viewer, **arguments)
    return str(error.value)


def viewer_of(*slugs, scopes=("read", "write")):
    key_for(*slugs, scopes=scopes)
    return viewer_of_key(ApiKey.objects.latest("id"))


def test_workflow_is_told_to_everybody(db):
    assert told("__IMPORTANT", viewer_of(scopes=["write"])) == WORKFLOW


@pytest.mark.parametrize(
    ("arguments", "same"),
    [
        pytest.param(
            {"query": "tea", "limit": 3, "offset": 3, "orderBy": "date_desc"},
            "q=tea&page=2&page_size=3&sort=newest",
            id="three layers",
        ),
        pytest.param(
            {"tags": ["tea", "guests"], "match_all": True, "mode": "tag"},
            "mode=tag&tag=tea&tag=guests&tag.all=1&page_size=20",
            id="all of the tags",
        ),
        pytest.param({"tags": '["tea", "guests"]'}, "tag=tea&tag=guests&page_size=20", id="a list as its text"),
        pytest.param(
            {"mode": "faceted", "memory_type": "note", "start_date": "2024-01-01", "end_date": "2024-12-31"},
            "mode=faceted&type=note&from=2024-01-01&to=2024-12-31&page_size=20",
            id="faceted",
        ),
        pytest.param(
            {"-tag": "tea", "dateStart": "2024-02-01", "category": "yard", "subcategories": False},
            "-tag=tea&from=2024-02-01&category=yard&subcategories=0&page_size=20",
            id="exclusion",
        ),
    ],
)
def test_arguments_mean_what_they_mean_at_every_door(ids, arguments, same):
    result = run(SearchQuery.from_pairs(part.split("=") for part in same.split("&")), command_viewer())
    reply = ask("search", **arguments)
    assert [row["id"] for row in reply["memories"]] == [hit.id for hit in result.hits]
    assert (reply["total"], reply["page"]) == (result.total, result.page)
    assert result.total


def test_retrieve_memory_counts_as_its_specification_says(ids):
    reply = ask("retrieve_memory", query="tea", include_facets=True, page_size=2)
    assert (reply["page"], reply["page_size"], reply["total"], reply["has_more"]) == (1, 2, 6, True)
    assert set(reply["facets"]) == {"tags", "memory_types", "date_buckets"}
    assert reply["facets"]["memory_types"] == {"decision": 2, "note": 2, "howto": 1, "idea": 1}
    assert set(reply["facets"]["date_buckets"]) == {"last_7d", "last_30d", "last_90d", "last_year", "older"}
    assert all(memory["content"] for memory in reply["memories"])
    assert "facets" not in ask("retrieve_memory", query="tea")
    assert ask("retrieve_memory", query="zeppelin")["memories"] == []


def test_pages_are_as_long_as_their_specifications_say(ids):
    for n in range(10):
        told("store_memory", content=f"Spoon {n} is in drawer {n * n}.", project="tea")
    for tool, size in (("retrieve_memory", 10), ("search", 20)):
        reply = ask(tool)
        assert (len(reply["memories"]), reply["page_size"], reply["total"]) == (size, size, 24)


def test_retrieve_memory_counts_the_memories_that_match_unless_asked_otherwise(ids):
    reply = ask("retrieve_memory", tags=["tea"], include_facets=True)
    assert reply["facets"]["tags"] == {"tea": 4, "guests": 2, "boat": 1, "brewing": 1}
    assert ask("retrieve_memory", type="decision", include_facets=True)["facets"]["memory_types"] == {"decision": 3}
    choices = ask("retrieve_memory", type="decision", include_facets=True, facet_scope="choices")
    assert choices["facets"]["memory_types"] == {"note": 6, "decision": 3, "bugfix": 2, "howto": 2, "idea": 1}


def test_matches_in_other_states_are_mentioned(ids):
    reply = ask("search", query="sugar")
    assert (reply["total"], reply["hidden"]) == (
        1,
        '1 more matches in other states: state=["archived", "superseded"] to see',
    )
    seen = ask("search", query="sugar", state=["archived", "superseded"])
    assert [row["id"] for row in seen["memories"]] == [ids["t6"]]
    assert "hidden" not in seen
    assert "hidden" not in ask("retrieve_memory", query="oolong")


def test_a_tag_that_nothing_has_is_named_beside_one_that_exists(ids):
    assert ask("search", tags=["tea", "kettel"])["warnings"] == ["No tag is named “kettel”. Did you mean tag=kettle?"]
    assert ask("search", type=["note", "nosuchtype"])["warnings"][0].startswith("No type is named “nosuchtype”.")
    assert ask("search", **{"-tag": "nosuchtag"})["warnings"] == ["No tag is named “nosuchtag”."]
    assert "warnings" not in ask("search", tags=["tea", "kettle"])
    # Boats have cranes; the tea house has none.
    assert ask("search", viewer_of("tea"), tags=["tea", "crane"])["warnings"] == ["No tag is named “crane”."]


def test_timeline_shows_what_is_around(ids):
    reply = ask("timeline", anchor=ids["b1"], depth_before=1, depth_after=2, project=["boat"])
    assert [(row["at"], row["id"]) for row in reply["memories"]] == [(0, ids["b1"]), (1, ids["b2"]), (2, ids["b3"])]
    assert (reply["earlier"], reply["later"]) == (0, 3)
    by_words = ask("timeline", query="crane brake", depth_before=0, depth_after=0)
    assert [row["id"] for row in by_words["memories"]] == [ids["b1"]]


def test_observations_come_whole_with_every_field(ids):
    reply = ask("get_observations", ids=[ids["b5"], ids["t6"], 999_999])
    assert reply["missing"] == "999999: no such memory that you can see"
    boat, sugar = reply["memories"]
    assert boat["content"].startswith("Check the crane.")
    assert (boat["tags"], boat["categories"]) == (["crane", "boat"], ["yard/dock", "yard/dock/crane"])
    assert boat["entities"] == ["tool:crane", "tool:slings"]
    assert (sugar["state"], sugar["superseded_by"]) == ("superseded", ids["t7"])
    assert list(boat) == list(sugar)
    assert ask("get_observations", ids=f"[{ids['b5']}]")["total"] == 1


def test_budget_says_how_to_go_on(ids):
    reply = ask("search", max_tokens=300)
    kept = len(reply["memories"])
    assert reply["left_out"] == (
        f"{14 - kept} of 14 memories, for max_tokens=300: raise it, or continue with offset={kept}"
    )
    further = ask("search", limit=kept, page=2)
    assert [row["id"] for row in further["memories"]] == [row["id"] for row in ask("search")["memories"]][
        kept : 2 * kept
    ]


def test_stored_memory_is_found_changed_and_connected(ids):
    stored = toon_format.decode(told("store_memory", content="Relined the brake.", project="boat", tags=["crane"]))
    assert list(stored) == ["id", "done", "title", "project", "state", "version", "near_duplicates_note"]
    assert list(stored.values())[1:5] == ["stored", "Relined the brake.", "boat", "active"]
    changed = told("update_memory", id=stored["id"], type="fix", tags=["brake"], reason="clearer")
    assert "done: updated" in changed
    memory = Memory.objects.get(pk=stored["id"])
    assert (memory.memory_type, memory.tags) == ("fix", ["brake"])
    told("relate", id=stored["id"], target=ids["b1"], rel="fixes")
    told("relate", id=stored["id"], target=ids["b1"], rel="fixes")
    assert [(x.rel, x.target_memory_id) for x in MemoryLink.objects.filter(memory=memory)] == [("fixes", ids["b1"])]
    told("relate", id=stored["id"], target=ids["b7"], rel="supersedes")
    assert memory_details(command_viewer(), [ids["b7"]])[ids["b7"]].superseded_by.id == stored["id"]
    told("update_memory", id=stored["id"], state="deleted")
    assert ask("search", query="relined")["total"] == 0


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        pytest.param("search", {"taggs": "tea"}, "taggs: is not a parameter. Did you mean tags", id="unknown filter"),
        pytest.param("search", {"from": "yesterday"}, "write YYYY-MM-DD", id="no date"),
        pytest.param("search", {"mode": "magic"}, "write one of", id="no mode"),
        pytest.param("search", {"tag": {"a": 1}}, "tag: is not a text, a number, a boolean or a list", id="an object"),
        pytest.param("search", {"format": "xml"}, "format: ", id="no form"),
        pytest.param("search", {"max_tokens": 5}, "max_tokens: ", id="no budget"),
        pytest.param("timeline", {}, "write anchor=ID of a memory, or query=words", id="nowhere"),
        pytest.param("timeline", {"anchor": 999_999}, "Take ids from search", id="unknown anchor"),
        pytest.param("get_observations", {}, "ids: is missing", id="no ids"),
        pytest.param(
            "get_observations",
            {"ids": [1], "project_id": 3},
            "project_id: is not a parameter. Did you mean project",
            id="unknown argument",
        ),
        pytest.param("get_observations", {"ids": ["x"]}, "get_observations takes: ids, orderBy", id="not an id"),
        pytest.param("store_memory", {}, "content: is missing", id="nothing to store"),
        pytest.param("store_memory", {"content": "x", "taggs": []}, "Did you mean tags", id="unknown field"),
        pytest.param(
            "store_memory", {"content": "tea tea tea tea", "project": "tea"}, "update_memory(id=", id="there already"
        ),
        pytest.param("update_memory", {"id": 1}, "nothing to change is given", id="no change"),
        pytest.param("update_memory", {"tags": []}, "id: ", id="no memory"),
        pytest.param(
            "relate",
            {"id": 1, "target": 999_998, "kind": "x"},
            "relate takes: id, target, rel.",
            id="unknown of a link",
        ),
        pytest.param("__IMPORTANT", {"a": 1}, "__IMPORTANT takes no arguments.", id="of nothing"),
    ],
)
def test_mistake_is_named_with_what_to_do(ids, name, arguments, said):
    assert said in refused(name, **arguments)


@pytest.mark.parametrize("name", ["fromat", "output_format"])
def test_misspelt_argument_of_the_output_is_answered_with_the_arguments_of_this_tool(ids, name):
    message = refused("search", query="tea", **{name: "json"})
    assert message.startswith(f"{name}: is not a parameter. Did you mean format")
    listed = set(message.partition("search takes: ")[2].rstrip(".").split(", "))
    assert {"query", "limit", "format", "max_tokens", "concept", "since"} <= listed


def test_key_is_held_to_its_scope_and_projects(ids):
    reader = viewer_of("boat", scopes=["read"])
    assert "needs the scope write; yours: read" in refused("store_memory", reader, content="x")
    writer = viewer_of(scopes=["write"])
    assert "needs the scope read" in refused("search", writer, query="tea")
    member = viewer_of("boat")
    assert ask("search", member)["total"] == 6
    assert ask("get_observations", member, ids=[ids["t1"]])["memories"] == []
    assert "There is no memory" in refused("relate", member, id=ids["b1"], target=ids["t1"])
    assert "There is no memory" in refused("update_memory", member, id=ids["t1"], tags=[])
    assert "You can write to: boat" in refused("store_memory", member, content="x", project="tea")


def test_page_of_fifty_is_much_smaller_as_toon_and_the_same(ids):
    for n in range(50):
        told(
            "store_memory",
            content=f"Note {n}: the crane, its brake and its drum were looked at.",
            project="boat",
            type="note",
        )
    toon, compact = (told("search", limit=50, max_tokens=50_000, format=form) for form in ("toon", "json"))
    assert toon_format.decode(toon) == json.loads(compact)
    assert len(json.loads(compact)["memories"]) == 50
    assert len(toon) <= 0.75 * len(compact)


def test_hit_of_an_index_costs_less_than_a_hundred_tokens(ids):
    assert tokens(told("search")) / 14 <= 100


def test_mistake_of_ours_tells_nothing_of_itself(ids, monkeypatch, caplog):
    monkeypatch.setattr("agent_tools.tools.run", lambda *a, **k: 1 / 0)
    assert refused("search").startswith("Internal error")
    assert "division" not in refused("search")
    assert "An unforeseen error" in caplog.text


# A call of each tool that reads, with what it must have.
READS = {
    "search": {},
    "timeline": {"anchor": "b1"},
    "get_observations": {"ids": ["b1"]},
    "retrieve_memory": {},
    "list_categories": {},
    "category_search": {"category": "Yard"},
    "list_concepts_in_category": {"category": "Yard"},
    "list_values": {"facet": "tag"},
    "about": {"concept": "safety"},
    "similar": {"id": "b1"},
    "changes": {},
    "history": {"id": "b1"},
    "views": {},
    "session_context": {},
}


def with_numbers(ids, arguments, number=int):
    """Arguments with the numbers of memories in place of their names here."""

    def numbered(value):
        if isinstance(value, list):
            return [numbered(item) for item in value]
        return number(ids[value]) if value in ids else value

    return {key: numbered(value) for key, value in arguments.items()}


def unnamed(reply):
    """A reply without what differs from call to call."""
    return re.sub(r'"?cursor"?: ?\S+', "", reply)


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("empty", ["", None, []], ids=repr)
def test_empty_argument_is_as_if_it_were_not_given(ids, name, empty):
    arguments = with_numbers(ids, READS[name])
    left_out = {key: empty for key in (*TOOL[name].properties, "format", "max_tokens") if key not in arguments}
    if name == "session_context":
        left_out = {"project": empty, "budget": empty}
    assert unnamed(told(name, **arguments, **left_out)) == unnamed(told(name, **arguments))


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        pytest.param("search", {"limit": 2.5}, id="a fraction"),
        pytest.param("search", {"max_tokens": "many"}, id="words"),
        pytest.param("get_observations", {"ids": ["b1"], "limit": -1.0}, id="too few"),
        pytest.param("get_observations", {"ids": [1.5]}, id="an id with a fraction"),
        pytest.param("views", {"format": "xml"}, id="another format"),
    ],
)
def test_argument_that_is_neither_empty_nor_right_is_refused(ids, name, arguments):
    assert re.match(r"(limit|max_tokens|format|ids|page_size)", refused(name, **with_numbers(ids, arguments)))
