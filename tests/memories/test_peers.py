"""There and back with the programs of other memory systems: what their code writes, and what it makes of ours.

The programs of npm are looked for in the folder that `NPM_CLIENTS` names, by default `var/npm`, and interpreters that
have the others by `MEMORY_SERVICE`, `BASIC_MEMORY` and `LANCEDB`; docs/contributing.md says how they get there. Nothing
is downloaded by the tests.
"""

import asyncio
import io
import json
import os
import shlex
import shutil
import socket
import sqlite3
import subprocess
import time
import zipfile
from contextlib import closing, contextmanager
from pathlib import Path

import httpx2
import pytest
from django.conf import settings
from django.core.management import call_command
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from access.viewer import command_viewer
from memories.models import Memory
from memories.records import MemoryChanges
from memories.services import memory_update
from tests.memories.imports import batch_counts, failing, last_batch, run
from tests.memories.test_export_formats import exported
from tests.memories.test_importers_concept_rag import FORMER, ROWS

pytestmark = [pytest.mark.django_db, pytest.mark.release]

FOLDER = Path(os.environ.get("NPM_CLIENTS") or settings.BASE_DIR / "var" / "npm")
BUN = FOLDER / "bun" / "bin" / "bun"
CLAUDE_MEM = FOLDER / "claude-mem" / "plugin" / "scripts" / "worker-service.cjs"
MEMORY_SERVER = FOLDER / "node_modules" / "@modelcontextprotocol" / "server-memory" / "dist" / "index.js"
MEMORY_SERVICE = Path(
    os.environ.get("MEMORY_SERVICE") or settings.BASE_DIR / "var" / "mcp-memory-service" / "bin" / "python"
)

BASIC_MEMORY = Path(os.environ.get("BASIC_MEMORY") or settings.BASE_DIR / "var" / "basic-memory" / "bin" / "python")
LANCEDB = Path(os.environ.get("LANCEDB") or settings.BASE_DIR / "var" / "lancedb" / "bin" / "python")


def needs(*paths):
    missing = [str(path) for path in paths if not path.exists()]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)}: absent (see docs/contributing.md)")


# --- claude-mem ----------------------------------------------------------------------------------------------


@contextmanager
def claude_mem(folder):
    """Its worker with its data in a folder: a function that posts to it."""
    folder.mkdir(exist_ok=True)
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "CLAUDE_MEM_DATA_DIR": str(folder),
        "CLAUDE_MEM_WORKER_HOST": "127.0.0.1",
        "CLAUDE_MEM_WORKER_PORT": str(port),
        "CLAUDE_MEM_CHROMA_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }
    with (folder / "worker.log").open("wb") as log:
        worker = subprocess.Popen([BUN, CLAUDE_MEM], env=environment, stdout=log, stderr=log, cwd=folder)
    site = f"http://127.0.0.1:{port}/api/"
    try:
        for _ in range(300):
            try:
                if httpx2.get(f"{site}health", timeout=5).json().get("initialized"):
                    break
            except httpx2.HTTPError:
                pass
            assert worker.poll() is None, (folder / "worker.log").read_text()
            time.sleep(0.1)
        yield lambda path, body: httpx2.post(site + path, json=body, timeout=60).raise_for_status().json()
    finally:
        worker.terminate()
        worker.wait(20)


NOON = 1_760_000_000_000
ISO = "2025-10-09T08:53:20.000Z"
GIVEN = {
    "sessions": [
        {"content_session_id": "c-1", "memory_session_id": "m-1", "project": "Tea House", "platform_source": "codex",
         "user_prompt": "Why is it bitter?", "started_at": ISO, "started_at_epoch": NOON,
         "completed_at": "2025-10-09T08:54:20.000Z", "completed_at_epoch": NOON + 60_000, "status": "completed"},
        {"content_session_id": "c-2", "memory_session_id": "m-2", "project": "boat", "platform_source": "claude",
         "user_prompt": "Sand the deck", "started_at": ISO, "started_at_epoch": NOON, "completed_at": None,
         "completed_at_epoch": None, "status": "active"},
    ],
    "summaries": [
        {"memory_session_id": "m-1", "project": "Tea House", "request": "Find out why", "investigated": None,
         "learned": "It is the water.", "completed": None, "next_steps": "Buy a thermometer.", "files_read": None,
         "files_edited": '["docs/oolong.md"]', "notes": "None yet", "prompt_number": 1, "discovery_tokens": 12,
         "created_at": ISO, "created_at_epoch": NOON},
    ],
    "observations": [
        {"memory_session_id": "m-1", "project": "Tea House", "text": None, "type": "bugfix", "title": "Too hot",
         "subtitle": "The kettle never cools", "facts": '["The kettle holds 100 °C"]', "narrative": "Ignored.",
         "concepts": '["gotcha", "Problem-Solution"]', "files_read": '["a.py"]', "files_modified": '["b.py"]',
         "prompt_number": 1, "discovery_tokens": 40, "created_at": ISO, "created_at_epoch": NOON,
         "agent_type": "Explore", "agent_id": "a-1"},
        {"memory_session_id": "m-2", "project": "boat", "text": None, "type": "change", "title": "Narrative alone",
         "subtitle": None, "facts": "[]", "narrative": "Sand first.", "concepts": "[]", "files_read": "[]",
         "files_modified": "[]", "prompt_number": None, "discovery_tokens": 0, "created_at": ISO,
         "created_at_epoch": NOON + 1, "agent_type": None, "agent_id": None},
        {"memory_session_id": "m-2", "project": "boat", "text": "Text alone", "type": "discovery", "title": None,
         "subtitle": None, "facts": "[]", "narrative": None, "concepts": "[]", "files_read": "[]",
         "files_modified": "[]", "prompt_number": 2, "discovery_tokens": 0, "created_at": ISO,
         "created_at_epoch": NOON + 2, "agent_type": None, "agent_id": None},
    ],
    "prompts": [
        {"content_session_id": "c-1", "prompt_number": 1, "prompt_text": "Why is it bitter?\n\n  Indented.",
         "created_at": ISO, "created_at_epoch": NOON},
    ],
}  # fmt: skip
# Numbers of rows, and what its import does not take.
_OWN = {"id", "session_db_id", "content_hash", "sync_rev", "synced_at", "origin_local_id", "origin_device_id"}


def rows(folder):
    """The rows of its database that memories are made of."""
    found = {}
    with closing(sqlite3.connect(folder / "claude-mem.db")) as database:
        database.row_factory = sqlite3.Row
        for table in ("sdk_sessions", "observations", "session_summaries", "user_prompts"):
            texts = [
                json.dumps({name: value for name, value in dict(row).items() if name not in _OWN}, sort_keys=True)
                for row in database.execute(f"SELECT * FROM {table}")
            ]
            found[table] = sorted(texts)
    return found


@needs(BUN, CLAUDE_MEM)
def test_claude_mem_takes_back_what_it_wrote(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with claude_mem(first) as post:
        post("import", GIVEN)
        post("memory/save", {"text": "Kept by hand.", "title": "By hand", "project": "boat"})
    run(first / "claude-mem.db")
    assert (last_batch().read, last_batch().created, last_batch().refused) == (6, 6, 0)
    document = json.loads(exported("claude-mem"))
    with claude_mem(second) as post:
        stats = post("import", document)["stats"]
        assert [stats[f"{name}Imported"] for name in ("sessions", "summaries", "observations", "prompts")] == [
            3,
            1,
            4,
            1,
        ]
    given, taken = rows(first), rows(second)
    # It starts a session of its own for what is kept by hand, and takes no `metadata`.
    for table, texts in given.items():
        assert [_without(text) for text in taken[table]] == [_without(text) for text in texts], table
    # Where it comes from, all of it is known but for an observation without a title, which it never knows again.
    with claude_mem(first) as post:
        stats = post("import", document)["stats"]
    assert [stats[f"{name}Imported"] for name in ("sessions", "summaries", "observations")] == [0, 0, 1]
    run(second / "claude-mem.db")
    assert last_batch().created == 0


def _without(text):
    row = json.loads(text)
    return {name: value for name, value in row.items() if name not in ("metadata", "worker_port", "prompt_counter")}


# --- mcp-memory-service --------------------------------------------------------------------------------------


def memory_service(*args):
    """Its own code, in its own interpreter; without the network it embeds by hashes."""
    script = Path(__file__).with_name("peer_memory_service.py")
    folder = str(Path(args[1]).parent)
    environment = {"PATH": os.environ["PATH"], "HOME": folder, "MCP_MEMORY_ALLOW_HASH_EMBEDDINGS": "1"}
    done = subprocess.run(
        [MEMORY_SERVICE, script, *args], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    written = json.loads(Path(args[-1]).read_text("utf-8"))
    for memory in written["memories"]:
        memory["metadata"].pop("import_info", None)
    return written["memories"]


@needs(MEMORY_SERVICE)
def test_mcp_memory_service_takes_back_what_it_wrote(tmp_path):
    given = memory_service("fill", tmp_path / "first.db", tmp_path / "given.json")
    assert len(given) == 3
    run(tmp_path / "first.db")
    # The one that it has deleted is here too, as deleted.
    assert (last_batch().created, last_batch().refused) == (4, 0)
    assert Memory.objects.get(content="Forgotten.").state == "deleted"
    (tmp_path / "ours.json").write_text(exported("mcp-memory-service"), "utf-8")
    taken = memory_service("take", tmp_path / "second.db", tmp_path / "ours.json", tmp_path / "taken.json")
    assert _by_hash(taken) == _by_hash(given)
    again = memory_service("take", tmp_path / "first.db", tmp_path / "ours.json", tmp_path / "again.json")
    assert _by_hash(again) == _by_hash(given)
    run(tmp_path / "taken.json")
    assert last_batch().created == 0


def _by_hash(memories):
    return {memory["content_hash"]: memory for memory in memories}


# --- the MCP reference server --------------------------------------------------------------------------------


async def memory_server(path, *calls):
    """The graph that it has in its file after some calls of its tools."""
    environment = {"PATH": os.environ["PATH"], "MEMORY_FILE_PATH": str(path)}
    server = StdioServerParameters(command="node", args=[str(MEMORY_SERVER)], env=environment, cwd=path.parent)
    async with Client(server) as client:
        for name, arguments in calls:
            reply = await client.call_tool(name, arguments)
            assert not reply.is_error, reply.content
        return json.loads((await client.call_tool("read_graph", {})).content[0].text)


@pytest.mark.skipif(not shutil.which("node"), reason="node is absent")
@needs(MEMORY_SERVER)
def test_the_mcp_memory_server_reads_what_it_wrote(tmp_path):
    ann = {"name": "Ann", "entityType": "person", "observations": ["Builds boats", "Likes tea"]}
    yard = {"name": "Yard", "entityType": "place", "observations": []}
    owns = {"from": "Ann", "to": "Yard", "relationType": "works_at"}
    path = tmp_path / "first.jsonl"
    given = asyncio.run(
        memory_server(
            path,
            ("create_entities", {"entities": [ann, yard]}),
            ("create_relations", {"relations": [owns]}),
            ("add_observations", {"observations": [{"entityName": "Yard", "contents": ["By the river"]}]}),
        )
    )
    run(path)
    assert batch_counts(last_batch()) == (3, 3, 0, 0, 0)
    second = tmp_path / "second.jsonl"
    second.write_text(exported("mcp-memory"), "utf-8")
    assert asyncio.run(memory_server(second)) == given
    likes = Memory.objects.get(content="Likes tea")
    memory_update(memory_id=likes.pk, changes=MemoryChanges(content="Likes oolong"), viewer=command_viewer())
    second.write_text(exported("mcp-memory"), "utf-8")
    assert asyncio.run(memory_server(second))["entities"][0]["observations"] == ["Builds boats", "Likes oolong"]


# --- basic-memory --------------------------------------------------------------------------------------------

POUR_OVER = """---
title: Pour Over
type: guide
tags: [coffee, slow]
permalink: coffee/pour-over
---
# Pour Over

## Observations
- [method] A slow pour tastes brighter #brewing (three tries)
- [tip] Rinse the paper

## Relations
- contrasts_with [[French Press]]
- requires [[Grinder]]
"""
PRESS = """---
title: French Press
type: note
tags: [coffee]
permalink: coffee/french-press
---
# French Press

- part_of [[Pour Over]]
"""


def basic_memory(folder):
    """The notes of a folder as its own code reads them."""
    file = folder.with_suffix(".json")
    script = Path(__file__).with_name("peer_basic_memory.py")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder.parent)}
    subprocess.run([BASIC_MEMORY, script, folder, file], env=environment, check=True, capture_output=True, timeout=120)
    return json.loads(file.read_text("utf-8"))


@needs(BASIC_MEMORY)
def test_basic_memory_finds_the_same_in_notes_that_come_back(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    for name, text in (("pour-over", POUR_OVER), ("french-press", PRESS)):
        (first / f"{name}.md").write_text(text)
    run(first)
    call_command("export_memories", str(tmp_path / "vault.zip"), format="markdown", stderr=io.StringIO())
    with zipfile.ZipFile(tmp_path / "vault.zip") as archive:
        archive.extractall(second)
    given, taken = basic_memory(first), basic_memory(second)
    assert given.keys() == taken.keys() == {"Pour Over", "French Press"}
    for title, note in given.items():
        assert taken[title]["observations"] == note["observations"]
        assert taken[title]["type"] == note["type"]
        assert set(note["tags"]) <= set(taken[title]["tags"])
        assert [one for one in note["relations"] if one not in taken[title]["relations"]] == []
    memory = Memory.objects.get(title="Pour Over")
    assert [one["content"] for one in memory.raw["observations"]] == [
        one["content"] for one in given["Pour Over"]["observations"]
    ]
    assert set(memory.links.values_list("rel", "target")) == {
        ("contrasts_with", "coffee/french-press"),
        ("requires", "Grinder"),
    }


# --- concept-rag ---------------------------------------------------------------------------------------------


@needs(LANCEDB)
@pytest.mark.parametrize(
    "tables",
    [
        pytest.param(
            {"categories": ROWS[:2], "concepts": ROWS[2:3], "catalog": ROWS[3:4], "chunks": ROWS[4:]}, id="present"
        ),
        pytest.param({"concepts": FORMER[:1], "catalog": FORMER[1:2], "chunks": FORMER[2:]}, id="before"),
    ],
)
def test_a_database_of_lancedb_is_imported_by_the_command_that_its_refusal_names(tmp_path, tables):
    rows = {name: [_without_blanks(row) for row in found] for name, found in tables.items()}
    (tmp_path / "rows.json").write_text(json.dumps(rows), "utf-8")
    script, database = Path(__file__).with_name("peer_lancedb.py"), tmp_path / "the database"
    subprocess.run([LANCEDB, script, database, tmp_path / "rows.json"], check=True, capture_output=True, timeout=120)
    _, _, command = failing(database).partition("and import the file: ")
    _, _, code, _, file = shlex.split(command)
    dumped = subprocess.run([LANCEDB, "-c", code], check=True, capture_output=True, timeout=120).stdout
    (tmp_path / file).write_bytes(dumped)
    run(tmp_path / file)
    assert batch_counts(last_batch()) == (2, 2, 0, 0, 0)
    chunk = Memory.objects.get(memory_type="passage")
    assert (chunk.title, chunk.content) == ("Tea manual, p. 12", "Rinse the leaves.")
    assert chunk.links.get().target_memory.memory_type == "document"


def _without_blanks(row):
    """A row without the lists that are empty, whose type LanceDB could not know."""
    return {name: value for name, value in row.items() if value not in ([], None) and name != "vector"}
