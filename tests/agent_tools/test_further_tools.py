"""The tools beyond the core, the profiles, resources and prompts, as agents call them and within their permissions."""

import asyncio
import json

import httpx2
import pytest
import toon_format
from mcp import MCPError

from access.models import ApiKey
from access.viewer import command_viewer, viewer_of_key
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import PROFILES, TOOL
from categories.models import Concept, Relationship
from curation.suggestions.models import Suggestion
from memories.models import Memory
from tests.agent_tools.conftest import key_for
from tests.agent_tools.test_clients import INITIALIZE, over_http

pytestmark = pytest.mark.django_db


def told(tool, viewer=None, **arguments):
    return call(TOOL[tool], arguments, viewer or command_viewer())


def ask(tool, viewer=None, **arguments):
    return json.loads(told(tool, viewer, format="json", **arguments))


def refused(tool, viewer=None, **arguments):
    with pytest.raises(ToolRefusedError) as error:
        told(tool, viewer, **arguments)
    return str(error.value)


def viewer_of(*slugs, scopes=("read", "write")):
    key_for(*slugs, scopes=scopes)
    return viewer_of_key(ApiKey.objects.latest("id"))


def test_values_of_a_facet_are_paged_with_their_counts(ids):
    first = ask("list_values", facet="tag", limit=3)
    assert (first["distinct"], first["has_more"]) == (10, True)
    assert first["values"][0] == {"value": "tea", "label": "tea", "count": 4}
    pages = [ask("list_values", facet="tags", limit=3, page=page)["values"] for page in range(1, 5)]
    assert len({row["value"] for page in pages for row in page}) == 10
    of_boat = ask("list_values", facet="concept", project="boat", sort="name")
    assert [(row["value"], row["count"]) for row in of_boat["values"]] == [("maintenance", 1), ("safety", 3)]
    assert [row["value"] for row in ask("list_values", facet="concept", search="temp")["values"]] == ["temperature"]
    assert "facet: 'tagg' is not a facet. write one of project, type" in refused("list_values", facet="tagg")


def test_values_show_nothing_of_other_projects(ids):
    values = ask("list_values", viewer_of("boat"), facet="concept")["values"]
    assert {row["value"] for row in values} == {"safety", "maintenance"}


def test_concept_is_described_with_its_links_and_memories(ids):
    reply = ask("about", concept="Safety")
    assert (reply["name"], reply["memories"]) == ("safety", 3)
    assert [row["id"] for row in reply["memories_newest"]] == [ids["b5"], ids["b3"], ids["b1"]]
    assert {row["name"] for row in reply["neighbours"]} == {"maintenance"}
    assert "list_values(facet=concept" in refused("about", concept="zeppelin")
    assert "neither is given" in refused("about")
    assert "There is no concept" in refused("about", viewer_of("boat"), concept="hospitality")


def test_links_of_two_concepts_are_shared_memories_and_concepts_between(ids):
    reply = ask("about", concept="safety", to="temperature")
    assert (reply["from"], reply["to"], reply["memories_about_both"]) == ("safety", "temperature", 0)
    assert [row["name"] for row in reply["linked_to_both"]] == ["maintenance"]
    direct = ask("about", concept="safety", to="maintenance")
    assert (direct["shared_memories"], [row["id"] for row in direct["memories_newest"]]) == (1, [ids["b1"]])


def test_links_of_two_entities_are_stated_or_shared(ids):
    told(
        "curate",
        operation="relate",
        kind="entity",
        term="person:Mio",
        how="owns",
        other="tool:kettle",
        fact="Mio owns it.",
    )
    reply = ask("about", entity="person:Mio", to="tool:kettle")
    assert [(row["from"], row["how"], row["to"], row["fact"]) for row in reply["steps"]] == [
        ("person:Mio", ["owns"], "tool:kettle", "Mio owns it.")
    ]


def test_similar_lists_the_proposed_duplicates(ids):
    pair = {"kind": "memory_duplicate", "subject_id": ids["b1"], "target_id": ids["b5"], "confidence": 0.9}
    project = Memory.objects.get(pk=ids["b1"]).project
    Suggestion.objects.create(**pair, project=project)
    (row,) = ask("similar")["memories"]
    assert (row["id"], row["duplicate_of"], row["title"]) == (ids["b1"], ids["b5"], "Crane brake slips")
    assert ask("similar", viewer_of("tea"))["memories"] == []
    assert "is given together with id" in refused("similar", id=1, text="x")
    assert len(ask("similar", project="boat")["memories"]) == 1
    assert "tag: does not apply to proposed pairs" in refused("similar", tag=["crane"])
    assert "project: does not apply to proposed pairs" in refused("similar", project=["boat", "tea"])
    assert ask("similar", id=ids["b1"])["reason"]


def test_vocabulary_is_edited_by_curators_only(ids):
    assert "needs the scope curate" in refused("curate", viewer_of(), operation="create", kind="concept", name="x")
    plan = told("curate", operation="create", kind="concept", name="ballast", weight=0.85, dry_run=True)
    assert plan.startswith('done: "nothing yet: dry_run"')
    made = told("curate", operation="create", kind="concept", name="ballast", weight=0.85, memories=[ids["b1"]])
    concept = Concept.objects.get(name="ballast")
    assert f"concept #{concept.pk}" in made
    assert concept.weight == 0.85
    told("curate", operation="edit", kind="concept", term="ballast", weight=0.5, description="Weight low in the hull.")
    assert ask("about", concept="ballast")["description"] == "Weight low in the hull."
    stated = {"term": "person:Mio", "how": "owns", "other": "tool:kettle", "evidence": [ids["t1"]]}
    told("curate", operation="relate", kind="entity", **stated)
    assert Relationship.objects.get(relationship_type="owns").evidence_ids == [ids["t1"]]
    assert "write one of create, edit, relate" in refused("curate", operation="destroy")
    assert "wieght: is not a parameter. Did you mean weight" in refused("curate", operation="edit", wieght=1)


def test_memory_is_moved_to_a_project_that_the_viewer_may_write(ids):
    assert "project: boat → tea" in told("update_memory", id=ids["b1"], project="tea")
    told("update_memory", id=ids["b1"], project="boat")
    assert "no project 'boat'" in refused("update_memory", viewer_of("tea"), id=ids["t1"], project="boat")


def test_changes_and_history_show_values_before_and_after_and_lead_back(ids):
    cursor = ask("changes", limit=500)["cursor"]
    changed = told("update_memory", id=ids["b1"], title="Crane brake slips when wet", reason="clearer")
    assert 'changed: "title: Crane brake slips → Crane brake slips when wet"' in changed
    assert "changed: nothing" in told("update_memory", id=ids["b1"], title="Crane brake slips when wet")
    (row,) = ask("changes", after=cursor)["changes"]
    assert (row["kind"], row["id"], row["reason"]) == ("edited", ids["b1"], "clearer")
    assert ask("changes", viewer_of("tea"), after=cursor)["changes"] == []
    events = ask("history", id=ids["b1"])["events"]
    assert events[0]["changes"] == "title: Crane brake slips → Crane brake slips when wet"
    told("restore", id=ids["b1"], event=events[1]["event"])
    assert Memory.objects.get(pk=ids["b1"]).title == "Crane brake slips"
    told("update_memory", id=ids["b1"], state="deleted")
    assert "state: active" in told("restore", id=ids["b1"])
    assert "There is no memory" in refused("history", viewer_of("tea"), id=ids["b1"])
    assert "The events are in history(id=" in refused("restore", id=ids["b1"], event="999999")


def test_memories_are_forgotten_after_a_preview_and_come_back_together(ids):
    preview = toon_format.decode(told("forget", tag="crane", project="boat"))
    assert (preview["done"], preview["would_delete"]) == ("nothing yet", 3)
    assert f"#{ids['b1']} Crane brake slips" in preview["examples"]
    assert preview["filters"] == ["project=boat", "tag=crane"]
    assert ask("search", tag="crane")["total"] == 3
    token = preview["next"].rpartition("token=")[2]
    done = toon_format.decode(told("forget", tag="crane", project="boat", token=token))
    assert done["memories"] == 3
    assert ask("search", tag="crane")["total"] == 0
    told("restore", forgotten=int(done["undo"].partition("=")[2].rstrip(")")))
    assert ask("search", tag="crane")["total"] == 3
    assert "would delete all memories" in refused("forget")
    assert "would delete all memories" in told("forget", limit=5)
    assert "forgotten: is given together with a memory" in refused("restore", id=ids["b1"], forgotten=1)
    assert "nothing" in told("forget", viewer_of("tea"), tag="crane", project="boat")


def test_token_of_another_preview_is_refused_with_what_forget_takes(ids):
    message = refused("forget", tag="crane", project="boat", token="0" * 64)
    assert message == (
        "The filters now find other memories than in the preview of this token; nothing was deleted."
        " Call forget again with the same filters and without token, and show the user the new preview."
    )
    assert ask("search", tag="crane")["total"] == 3


def test_context_of_a_session_is_a_tool_a_prompt_and_a_resource(shared_ids, site):
    async def everything(client):
        prompts = [prompt.name for prompt in (await client.list_prompts()).prompts]
        resources = [one.uri for one in (await client.list_resources()).resources]
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
        prompt = await client.get_prompt("session_context", {"project": "boat", "budget": "500"})
        tool = await client.call_tool("session_context", {"project": "boat", "budget": 500})
        memory = await client.read_resource(f"memory://{shared_ids['b1']}")
        category = await client.read_resource("mnemoscope://categories/yard/dock")
        with pytest.raises(MCPError) as hidden:
            await client.read_resource(f"memory://{shared_ids['t1']}")
        with pytest.raises(MCPError) as unknown:
            await client.read_resource("mnemoscope://nothing")
        contents = (*tool.content, *memory.contents, *category.contents)
        texts = [prompt.messages[0].content.text, *(one.text for one in contents)]
        return prompts, resources, templates, texts, str(hidden.value), str(unknown.value)

    prompts, resources, templates, texts, hidden, unknown = asyncio.run(over_http(site, key_for("boat"), everything))
    assert prompts == ["session_context", "three_layer_workflow"]
    assert "mnemoscope://categories" in resources
    assert "memory://{id}" in templates
    assert texts[0] == texts[1]
    assert texts[0].startswith("# boat: 6 memories")
    assert "title: Crane brake slips" in texts[2]
    assert "total_documents" in texts[3]
    assert hidden == f"There is no memory at memory://{shared_ids['t1']} that you can see."
    assert "There are: mnemoscope://categories" in unknown


def test_profile_is_chosen_by_the_address(shared_ids, site):
    async def listed(client):
        return [tool.name for tool in (await client.list_tools()).tools]

    for profile in ("core", "all"):
        names = asyncio.run(over_http(site, key_for(), listed, path=f"/mcp?tools={profile}"))
        assert names == [tool.name for tool in PROFILES[profile]]
    with httpx2.Client(base_url=site, headers={"X-API-Key": key_for()}) as http:
        wrong = http.post("/mcp?tools=some", json=INITIALIZE)
        assert wrong.status_code == 422
        message = "tools: 'some' is not one of the choices. write one of core, all, chatgpt"
        assert wrong.json()["error"]["message"] == message


def test_pair_of_chatgpt_answers_as_it_expects(shared_ids, site):
    async def talk(client):
        names = [tool.name for tool in (await client.list_tools()).tools]
        found = json.loads((await client.call_tool("search", {"query": "crane brake"})).content[0].text)
        fetched = json.loads((await client.call_tool("fetch", {"id": found["results"][0]["id"]})).content[0].text)
        missing = await client.call_tool("fetch", {"id": "999999"})
        return names, found, fetched, missing

    names, found, fetched, missing = asyncio.run(over_http(site, key_for(), talk, path="/mcp?tools=chatgpt"))
    b1 = shared_ids["b1"]
    assert names == ["search", "fetch"]
    assert found["results"][0] == {"id": str(b1), "title": "Crane brake slips", "url": f"{site}/m/{b1}/"}
    assert (fetched["id"], fetched["url"], fetched["title"]) == (str(b1), f"{site}/m/{b1}/", "Crane brake slips")
    assert fetched["text"].startswith("The crane brake slips when wet")
    assert fetched["metadata"]["project"] == "boat"
    assert missing.is_error


def test_change_of_another_version_than_that_read_is_refused(ids):
    (read,) = ask("get_observations", ids=[ids["b1"]])["memories"]
    mine = toon_format.decode(told("update_memory", id=ids["b1"], add_tags=["mine"], if_match=read["version"]))
    said = refused("update_memory", id=ids["b1"], content="Other.", if_match=read["version"])
    assert said == (
        f"#{ids['b1']} was changed since you read it; nothing was written. Read it again with"
        f" get_observations(ids=[{ids['b1']}]), put your change to what is there now, and send if_match="
        f"{mine['version']}."
    )
    theirs = toon_format.decode(told("update_memory", id=ids["b1"], remove_tags=["crane"], add_tags="theirs"))
    (now,) = ask("get_observations", ids=[ids["b1"]])["memories"]
    assert {"mine", "theirs"} <= set(now["tags"])
    assert "crane" not in now["tags"]
    assert now["version"] == theirs["version"] != mine["version"]
    assert "was changed since" in refused("restore", id=ids["b1"], if_match=read["version"])
    assert told("update_memory", id=ids["b1"], add_tags=["mine"], if_match="")


def test_memory_of_an_external_id_is_stored_once_and_then_replaced(ids):
    named = {"project": "boat", "external_id": "log-1"}
    first = toon_format.decode(told("store_memory", content="Fuel: 40 l.", tags=["fuel"], **named))
    again = toon_format.decode(told("store_memory", content="Fuel: 35 l.", tags=["fuel"], **named))
    assert (first["done"], again["done"]) == ("stored", "replaced the memory with this external_id")
    assert (again["id"], Memory.objects.get(pk=first["id"]).content) == (first["id"], "Fuel: 35 l.")
    assert "was changed since" in refused("store_memory", content="x", if_match=first["version"], **named)
    assert told("store_memory", content="Fuel: 30 l.", if_match=again["version"], **named)
    other = {"project": "boat", "external_id": "log-2"}
    assert "Leave out if_match" in refused("store_memory", content="x", if_match="0" * 20, **other)
    assert "if_match: goes with external_id" in refused("store_memory", content="x", if_match="0" * 20)


def test_reply_names_the_memories_that_are_superseded_and_what_replaced_them_before(ids):
    old, content = f"#{ids['b1']}", "The crane brake holds since it was relined."
    first = toon_format.decode(told("store_memory", content=content, project="boat", supersedes=[old]))
    assert first["supersedes"] == [f"{old} Crane brake slips"]
    second = toon_format.decode(told("store_memory", content="No crane any more.", project="boat", supersedes=[old]))
    assert second["supersedes"] == [f"{old} Crane brake slips (until now superseded by #{first['id']})"]
    third = toon_format.decode(told("update_memory", id=first["id"], supersedes=[old]))
    assert third["supersedes"] == [f"{old} Crane brake slips (until now superseded by #{second['id']})"]
    fourth = toon_format.decode(told("relate", id=second["id"], target=ids["b1"], rel="supersedes"))
    assert fourth["supersedes"] == [f"{old} Crane brake slips (until now superseded by #{first['id']})"]


def test_reply_names_what_superseded_the_same_memory_before_and_is_still_active(ids):
    def store(content, *names):
        told_of = told("store_memory", content=content, project="boat", supersedes=list(names))
        return toon_format.decode(told_of)

    old = f"#{ids['b1']}"
    first = store("The brake holds.", old)
    assert "also_active" not in first
    second = store("The brake was replaced.", old)
    call_of_second = f'relate(id={second["id"]}, target={first["id"]}, rel="supersedes")'
    assert second["also_active"] == [
        f"#{first['id']} The brake holds. superseded the same memory and is still active; if this replaces it too:"
        f" {call_of_second}"
    ]
    third = store("The crane was sold.", old)
    assert [line.split()[0] for line in third["also_active"]] == [f"#{first['id']}", f"#{second['id']}"]
    related = toon_format.decode(told("relate", id=third["id"], target=second["id"], rel="supersedes"))
    assert [line.split()[0] for line in related["also_active"]] == [f"#{first['id']}"]
    fourth = store("There is a new crane.", f"#{first['id']}", f"#{third['id']}")
    assert "also_active" not in fourth


def test_superseded_memory_is_restored_only_when_it_is_asked_for(ids):
    new = toon_format.decode(told("store_memory", content="It holds.", project="boat", supersedes=[f"#{ids['b1']}"]))
    said = refused("restore", id=ids["b1"])
    assert said == (
        f"#{ids['b1']} was superseded by #{new['id']}, 'It holds.', and stays so. Work with #{new['id']}. If the user"
        f" wants #{ids['b1']} back all the same, call restore again with despite_successor=true."
    )
    event = ask("history", id=ids["b1"])["events"][-1]["event"]
    assert "was superseded by" in refused("restore", id=ids["b1"], event=event)
    assert toon_format.decode(told("restore", id=ids["b1"], despite_successor=True))["state"] == "active"


def test_many_memories_are_edited_after_a_preview_and_only_those_that_may_be_written(ids):
    asked = {"operation": "retag", "query": "tag=crane", "set_type": "part", "add_authors": ["Ann"]}
    assert "call it with dry_run first" in refused("curate", **asked)
    preview = toon_format.decode(told("curate", **asked, dry_run=True))
    assert preview["done"] == "nothing yet: dry_run"
    assert any(line.endswith("→ part") for line in preview["counts"])
    assert not Memory.objects.filter(memory_type="part").exists()
    done = toon_format.decode(told("curate", **asked, token=preview["token"]))
    assert (done["memories"], Memory.objects.filter(memory_type="part").count()) == (preview["memories"],) * 2
    told("restore", forgotten=int(done["undo"].removeprefix("restore(forgotten=").rstrip(")")))
    assert not Memory.objects.filter(memory_type="part").exists()
    assert "plan" in refused("curate", **asked, token="0" * 32) or "changed" in refused("curate", **asked, token="0")
    tea = viewer_of("tea", scopes=("read", "write", "curate"))
    assert "refused" in told("curate", tea, **asked, dry_run=True)
    assert "no project 'boat'" in told(
        "curate", tea, operation="retag", memories=[ids["t1"]], set_project="boat", dry_run=True
    )
