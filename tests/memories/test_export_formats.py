"""Exports for other memory systems, and the way there and back."""

import io
import json
import zipfile

import pytest
from django.core.management import call_command

from access.viewer import command_viewer
from memories.models import Memory
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_delete, memory_update
from memories.storage import memory_ids_draw
from tests.memories.foreign import write_database, write_json
from tests.memories.imports import batch_counts, last_batch, run
from tests.memories.test_importers_claude_mem import EVERYTHING, NOON, OBSERVATION, PRESENT, PROMPT, SESSION, VERSIONS
from tests.memories.test_importers_memory_service import ASH, KILN
from tests.memories.test_importers_memory_service import PRESENT as SERVICE
from transfer.export import Selection, export_lines
from transfer.formats.export_registry import FORMATS

pytestmark = pytest.mark.django_db


def exported(form, **options):
    out = io.StringIO()
    call_command("export_memories", format=form, stdout=out, stderr=io.StringIO(), **options)
    return out.getvalue()


def written(form):
    return b"".join(FORMATS[form].write(lambda: export_lines(Selection(command_viewer()))))


def documents(form, **options):
    return json.loads(exported(form, **options))


def changed(known_by, **changes):
    memory = Memory.objects.get(**known_by)
    memory_update(memory_id=memory.pk, changes=MemoryChanges(**changes), viewer=command_viewer())


def plain(**fields):
    values = {"project": "boat", "type": "decision", "title": "Varnish", "content": "Three coats.", **fields}
    return memory_create(record=MemoryRecord(**values), viewer=command_viewer())


OTHERS = [
    # Only a text, as the first versions stored them, and a row of blanks that differ from nothing.
    {"id": 8, "memory_session_id": "m-1", "project": "Tea House", "type": "discovery", "text": "Rinse  the pot. ",
     "created_at_epoch": NOON + 1, "facts": "[]", "concepts": "[]"},
    {"id": 9, "memory_session_id": "m-1", "project": "Tea House", "type": "Custom Kind", "title": "Narrative alone",
     "narrative": "Warm the cups.", "created_at": "2025-10-09T08:53:22.000Z", "created_at_epoch": NOON + 2_000,
     "files_read": '["Cups.md", "cups.md"]', "concepts": '["Warm-Up"]', "discovery_tokens": 40, "agent_id": "a-1"},
    {"id": 10, "memory_session_id": "m-1", "project": "Tea House", "type": "change", "title": "Title alone",
     "created_at_epoch": NOON + 3_000},
]  # fmt: skip
# The columns of an export of claude-mem that its import takes.
OF_OBSERVATIONS = (
    *("memory_session_id", "project", "text", "type", "title", "subtitle", "facts", "narrative", "concepts"),
    *("files_read", "files_modified", "prompt_number", "created_at_epoch", "agent_type", "agent_id"),
)
OF_SESSIONS = (
    *("content_session_id", "memory_session_id", "project", "platform_source", "started_at_epoch"),
    *("completed_at_epoch", "status"),
)


@pytest.fixture
def tea(tmp_path):
    tables = EVERYTHING | {"observations": [OBSERVATION, *OTHERS]}
    path = write_database(tmp_path / "claude.db", VERSIONS + PRESENT, tables)
    run(path)
    return path


def columns(rows, names):
    return [{name: value for name in names if (value := row.get(name)) not in (None, "", "[]")} for row in rows]


def test_claude_mem_gets_back_what_it_gave(tea, tmp_path):
    document = documents("claude-mem")
    assert columns(document["observations"], OF_OBSERVATIONS) == columns([OBSERVATION, *OTHERS], OF_OBSERVATIONS)
    assert columns(document["sessions"], OF_SESSIONS) == columns([SESSION], OF_SESSIONS)
    (summary,), (prompt,) = document["summaries"], document["prompts"]
    assert (summary["request"], summary["learned"], summary["next_steps"], summary["files_edited"]) == (
        "Find out why the oolong is bitter", "It is the water.", "Buy a thermometer.", "not json"
    )  # fmt: skip
    assert (prompt["content_session_id"], prompt["prompt_number"], prompt["prompt_text"]) == (
        "c-1", 1, PROMPT["prompt_text"]
    )  # fmt: skip
    assert [document[f"total{name}"] for name in ("Observations", "Sessions", "Summaries", "Prompts")] == [4, 1, 1, 1]
    # Nothing in the file differs from what is here.
    run(write_json(tmp_path / "back.json", document))
    assert batch_counts(last_batch()) == (6, 0, 0, 6, 0)


def test_what_was_changed_here_is_changed_there(tea):
    changed(
        {"title": "Oolong steeped too hot"}, content="The kettle is old.", tags=["tools"], concepts=["Gotcha", "new"]
    )
    changed({"title": "Narrative alone"}, title="Cups", entities=[{"type": "file", "name": "saucers.md"}])
    first, second = (documents("claude-mem")["observations"][at] for at in (0, 2))
    assert (first["narrative"], first["text"], first["facts"]) == ("The kettle is old.", None, "[]")
    assert first["concepts"] == '["gotcha", "new", "tools"]'
    assert (second["title"], second["narrative"], second["type"]) == ("Cups", "Warm the cups.", "Custom Kind")
    assert (second["files_read"], second["concepts"]) == ('["saucers.md"]', '["Warm-Up"]')


def test_any_memory_is_an_observation_of_a_session_in_claude_mem(tea):
    plain(summary="Of the deck", tags=["paint"], concepts=["care"], created_at="2025-01-02T03:04:05.678Z")
    plain(title="", content="Sand first.", session="afternoon", agent="codex", created_at="2025-01-03")
    document = documents("claude-mem", query="project=boat")
    first, second = document["observations"]
    assert (first["title"], first["subtitle"], first["narrative"], first["type"], first["project"]) == (
        "Varnish", "Of the deck", "Three coats.", "decision", "boat"
    )  # fmt: skip
    assert (first["concepts"], first["created_at"], first["created_at_epoch"]) == (
        '["care", "paint"]', "2025-01-02T03:04:05.678Z", 1735787045678
    )  # fmt: skip
    assert first["memory_session_id"] == "manual-boat"
    assert (second["memory_session_id"], second["narrative"], second["title"]) == ("afternoon", "Sand first.", None)
    sessions = {row["memory_session_id"]: row for row in document["sessions"]}
    assert sessions.keys() == {"manual-boat", "afternoon"}
    assert sessions["manual-boat"]["content_session_id"] == "manual-content-boat"
    # An export needs a start, which is then that of the first memory.
    assert sessions["afternoon"]["started_at"] == "2025-01-03T00:00:00.000Z"


def test_mcp_memory_service_gets_back_what_it_gave(tmp_path):
    kinds = [
        {"content": "Clay dries.", "content_hash": "old-hash", "tags": "", "memory_type": None, "metadata": "{}",
         "created_at": 1_760_000_000.1234567, "updated_at": 1_760_000_000.1234567},
    ]  # fmt: skip
    path = write_database(tmp_path / "db", SERVICE, {"memories": [KILN, ASH, *kinds]})
    run(path)
    document = documents("mcp-memory-service")
    kiln, ash, clay = document["memories"]
    assert kiln == {
        "content_hash": "aa11",
        "content": "Fire the kiln at dawn.",
        "tags": ["kiln", "proj:pots", "Kiln"],
        "created_at": 1_760_000_000.25,
        "updated_at": 1_760_000_100.5,
        "memory_type": "decision/architecture",
        "metadata": {"hostname": "desk", "quality": 0.4},
        "export_source": "mnemoscope",
    }
    assert (ash["content_hash"], ash["tags"], ash["memory_type"], ash["metadata"]) == ("bb22", [], None, {})
    assert (clay["content_hash"], clay["created_at"]) == ("old-hash", 1_760_000_000.1234567)
    assert document["export_metadata"]["total_memories"] == 3
    run(write_json(tmp_path / "back.json", document))
    # Its database has columns that its exports lack, so that the records differ, and no memory is new.
    assert batch_counts(last_batch()) == (3, 0, 3, 0, 0)
    again = documents("mcp-memory-service")
    assert again["memories"] == document["memories"]
    changed({"external_id": "aa11"}, content="Fire the kiln at noon.", tags=["kiln"], title="Kiln")
    kiln = documents("mcp-memory-service")["memories"][0]
    # The SHA-256 of the text in lower case.
    assert kiln["content_hash"] == "7ba7da65bd662f49ea548b52fc73554e628bec5ff22a70f07275c17abd549822"
    assert (kiln["tags"], kiln["metadata"]["title"]) == (["kiln", "Kiln"], "Kiln")


def test_mcp_memory_service_gets_in_metadata_what_it_has_no_field_for():
    plain(tags=["paint"], categories=["Boat/Hull"], entities=["tool:brush"], concepts=["care"], importance=0.5)
    (memory,) = documents("mcp-memory-service")["memories"]
    assert (memory["tags"], memory["memory_type"]) == (["paint", "proj:boat"], "decision")
    assert memory["metadata"] == {
        "title": "Varnish", "project": "boat", "categories": ["boat/hull"], "concepts": ["care"],
        "entities": ["tool:brush"], "state": "active", "importance": 0.5,
    }  # fmt: skip


GRAPH = [
    {"type": "entity", "name": "Ann", "entityType": "person", "observations": ["Builds boats", "Likes tea"]},
    {"type": "entity", "name": "Yard", "entityType": "place", "observations": []},
    {"type": "relation", "from": "Ann", "to": "Yard", "relationType": "works_at"},
]


def test_the_mcp_memory_server_gets_back_what_it_gave(tmp_path):
    path = tmp_path / "memory.jsonl"
    path.write_text("\n".join(map(json.dumps, GRAPH)))
    run(path)
    assert [json.loads(line) for line in exported("mcp-memory").splitlines()] == GRAPH


def test_a_memory_is_an_entity_of_the_mcp_memory_server_that_leads_to_others():
    first = plain(entities=["tool:Varnish", "Ann"], tags=["paint"], created_at="2025-01-02", links=[])
    plain(title="Varnish", content="Sand first.", created_at="2025-01-03", links=[f"#{first.pk}"], type="note")
    lines = [json.loads(line) for line in exported("mcp-memory").splitlines()]
    names = {line["name"]: line for line in lines if line["type"] == "entity"}
    older, newer = f"Varnish (#{first.pk})", f"Varnish (#{first.pk + 1})"
    assert set(names) == {"Varnish", "Ann", older, newer}
    assert names[older] == {
        "type": "entity", "name": older, "entityType": "decision",
        "observations": ["Three coats.", "project: boat; created: 2025-01-02T00:00:00+00:00; tags: paint"],
    }  # fmt: skip
    relations = {(line["from"], line["relationType"], line["to"]) for line in lines if line["type"] == "relation"}
    assert relations == {
        (older, "mentions", "Varnish"), (older, "mentions", "Ann"), (newer, "links-to", older)
    }  # fmt: skip


@pytest.mark.parametrize("form", ["claude-mem", "mcp-memory-service", "mcp-memory"])
def test_systems_without_states_get_what_a_search_finds(form):
    plain(content="Alive.")
    plain(content="Put away.", state="archived")
    gone = plain(content="A mistake.")
    memory_delete(memory_id=gone.pk, viewer=command_viewer(), reason="Wrong.")
    assert [text in exported(form) for text in ("Alive.", "Put away.", "A mistake.")] == [True, False, False]
    assert [text in exported(form, project=["boat"]) for text in ("Alive.", "Put away.")] == [True, False]
    assert [text in exported(form, query="state=archived") for text in ("Alive.", "Put away.")] == [False, True]
    assert json.loads(exported(form, query="q=nothing").strip() or "{}").get("observations", []) == []


def test_notes_of_a_vault_have_names_of_their_own_that_a_disk_takes(jsonl):
    (last,) = memory_ids_draw(1)
    titles = [f"Tea ({last + 3})", "Tea", "tea", "🍵" * 80]
    run(jsonl(*({"content": f"Cup {n}.", "title": title, "project": "p"} for n, title in enumerate(titles))))
    names = zipfile.ZipFile(io.BytesIO(written("markdown"))).namelist()
    assert names == [f"p/Tea ({last + 3}).md", "p/Tea.md", f"p/tea ({last + 3}, 2).md", "p/" + "🍵" * 50 + ".md"]
