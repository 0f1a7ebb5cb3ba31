import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from categories.models import Entity
from memories.models import Memory, Session
from tests.memories.foreign import found, records, write_database, write_json
from tests.memories.imports import batch_counts, counts, last_batch, run
from transfer.formats.base import ImportFailedError, NotReadableError, Options, RefusedRecord
from transfer.formats.registry import importer_for

VERSIONS = "CREATE TABLE schema_versions (id INTEGER PRIMARY KEY, version INTEGER UNIQUE NOT NULL, applied_at TEXT);"
OLD = """
CREATE TABLE sdk_sessions (id INTEGER PRIMARY KEY, claude_session_id TEXT, sdk_session_id TEXT, project TEXT,
    user_prompt TEXT, started_at TEXT, started_at_epoch INTEGER, completed_at TEXT, completed_at_epoch INTEGER,
    status TEXT);
CREATE TABLE observations (id INTEGER PRIMARY KEY, sdk_session_id TEXT, project TEXT, text TEXT NOT NULL, type TEXT,
    created_at TEXT, created_at_epoch INTEGER);
CREATE TABLE session_summaries (id INTEGER PRIMARY KEY, sdk_session_id TEXT, project TEXT, request TEXT,
    investigated TEXT, learned TEXT, completed TEXT, next_steps TEXT, files_read TEXT, files_edited TEXT, notes TEXT,
    created_at TEXT, created_at_epoch INTEGER);
"""
PRESENT = """
CREATE TABLE sdk_sessions (id INTEGER PRIMARY KEY, content_session_id TEXT, memory_session_id TEXT, project TEXT,
    platform_source TEXT DEFAULT 'claude', user_prompt TEXT, started_at TEXT, started_at_epoch INTEGER,
    completed_at TEXT, completed_at_epoch INTEGER, status TEXT, worker_port INTEGER, prompt_counter INTEGER,
    custom_title TEXT);
CREATE TABLE observations (id INTEGER PRIMARY KEY, memory_session_id TEXT, project TEXT, text TEXT, type TEXT,
    title TEXT, subtitle TEXT, facts TEXT, narrative TEXT, concepts TEXT, files_read TEXT, files_modified TEXT,
    prompt_number INTEGER, discovery_tokens INTEGER DEFAULT 0, created_at TEXT, created_at_epoch INTEGER,
    content_hash TEXT, generated_by_model TEXT, relevance_count INTEGER DEFAULT 0, merged_into_project TEXT,
    agent_type TEXT, agent_id TEXT, metadata TEXT, synced_at INTEGER, sync_rev TEXT DEFAULT '1');
CREATE TABLE session_summaries (id INTEGER PRIMARY KEY, memory_session_id TEXT, project TEXT, request TEXT,
    investigated TEXT, learned TEXT, completed TEXT, next_steps TEXT, files_read TEXT, files_edited TEXT, notes TEXT,
    prompt_number INTEGER, discovery_tokens INTEGER, created_at TEXT, created_at_epoch INTEGER,
    merged_into_project TEXT);
CREATE TABLE user_prompts (id INTEGER PRIMARY KEY, session_db_id INTEGER, content_session_id TEXT,
    prompt_number INTEGER, prompt_text TEXT, created_at TEXT, created_at_epoch INTEGER);
CREATE VIRTUAL TABLE observations_fts USING fts5(title, content='observations', content_rowid='id');
CREATE TABLE pending_messages (id INTEGER PRIMARY KEY, payload TEXT);
"""
NOON = 1_760_000_000_000  # 2025-10-09 08:53:20 UTC
SESSION = {
    "id": 1,
    "content_session_id": "c-1",
    "memory_session_id": "m-1",
    "project": "Tea House",
    "platform_source": "codex",
    "user_prompt": "Why is the oolong bitter?",
    "started_at_epoch": NOON,
    "completed_at_epoch": NOON + 60_000,
    "status": "completed",
    "custom_title": "Bitter oolong",
}
OBSERVATION = {
    "id": 7,
    "memory_session_id": "m-1",
    "project": "Tea House",
    "type": "bugfix",
    "title": "Oolong steeped too hot",
    "subtitle": "The kettle never cools",
    "facts": '["The kettle holds 100 °C", "Oolong wants 85 °C"]',
    "narrative": "The thermostat was ignored.",
    "concepts": '["problem-solution", "gotcha"]',
    "files_read": '["kettle/thermostat.py"]',
    "files_modified": '["kettle/thermostat.py", "docs/oolong.md"]',
    "created_at": "2025-10-09T08:53:20.000Z",
    "created_at_epoch": NOON,
    "content_hash": "0011223344556677",
    "generated_by_model": "some-model",
    "merged_into_project": "tea",
    "agent_type": "Explore",
    "metadata": '{"branch": "main"}',
}
SUMMARY = {
    "id": 3,
    "memory_session_id": "m-1",
    "project": "Tea House",
    "request": "Find out why the oolong is bitter",
    "learned": "It is the water.",
    "next_steps": "Buy a thermometer.",
    "files_edited": "not json",
    "created_at_epoch": NOON + 60_000,
}
PROMPT = {
    "id": 9,
    "session_db_id": 1,
    "content_session_id": "c-1",
    "prompt_number": 1,
    "prompt_text": "Why is the oolong bitter?",
    "created_at_epoch": NOON,
}
EVERYTHING = {
    "sdk_sessions": [SESSION],
    "observations": [OBSERVATION],
    "session_summaries": [SUMMARY],
    "user_prompts": [PROMPT],
}


@pytest.fixture
def database(tmp_path):
    def write(tables=EVERYTHING, script=PRESENT, version=49, wal=False):
        versions = {"schema_versions": [{"version": version, "applied_at": "2026-01-01"}]}
        return write_database(tmp_path / "anything.db", VERSIONS + script, versions | tables, wal=wal)

    return write


def by_kind(path):
    return {name.split(":")[0]: one for name, one in records(path, "claude-mem").items()}


def test_every_field_of_an_observation_has_its_place(database):
    one = by_kind(database())["observation"]
    assert one.data == {
        "source": "claude-mem",
        "project": "tea",
        "session": "m-1",
        "agent": "codex",
        "type": "bugfix",
        "title": "Oolong steeped too hot",
        "summary": "The kettle never cools",
        "content": "The thermostat was ignored.\n\n## Facts\n\n- The kettle holds 100 °C\n- Oolong wants 85 °C",
        "concepts": ["problem-solution", "gotcha"],
        "entities": [
            {"type": "file", "name": "kettle/thermostat.py"},
            {"type": "file", "name": "docs/oolong.md"},
            {"type": "agent", "name": "Explore"},
        ],
        "created_at": NOON,
        "updated_at": NOON,
        "id": f"observation:m-1:{NOON}:a739f82bd49f6a04",
    }
    assert one.raw == {name: value for name, value in OBSERVATION.items() if value is not None} | {
        "discovery_tokens": 0,
        "relevance_count": 0,
        "sync_rev": "1",
        # From its session.
        "content_session_id": "c-1",
    }


def test_sessions_summaries_and_prompts_belong_together(database):
    kinds = by_kind(database())
    assert kinds["m-1"].data == {
        "record": "session",
        "source": "claude-mem",
        "id": "m-1",
        "project": "tea",
        "agent": "codex",
        "title": "Bitter oolong",
        "started_at": NOON,
        "ended_at": NOON + 60_000,
    }
    summary, prompt = kinds["summary"].data, kinds["prompt"].data
    assert summary["content"] == (
        "## Request\n\nFind out why the oolong is bitter\n\n## Learned\n\nIt is the water.\n\n"
        "## Next steps\n\nBuy a thermometer."
    )
    assert (summary["type"], summary["title"]) == ("session-summary", "Find out why the oolong is bitter")
    assert summary["entities"] == [{"type": "file", "name": "not json"}]
    assert (prompt["type"], prompt["project"], prompt["session"], prompt["agent"]) == (
        "prompt",
        "Tea House",
        "m-1",
        "codex",
    )
    assert "prompt_text" not in kinds["prompt"].raw


def test_the_first_schema_with_observations_is_read(database):
    old = {"id": 1, "sdk_session_id": "m-0", "project": "tea", "text": "Rinse the pot.", "type": "discovery"}
    session = {"claude_session_id": "c-0", "sdk_session_id": "m-0", "project": "tea", "started_at_epoch": NOON}
    tables = {"sdk_sessions": [session], "observations": [old | {"created_at_epoch": NOON}]}
    kinds = by_kind(database(tables, OLD, version=4))
    assert kinds["observation"].data["content"] == "Rinse the pot."
    assert kinds["observation"].data["session"] == kinds["m-0"].data["id"] == "m-0"


@pytest.mark.parametrize(
    ("script", "version", "reason"),
    [
        ("CREATE TABLE memories (id); CREATE TABLE overviews (id); CREATE TABLE sessions (id);", 3, "older than any"),
        ("CREATE TABLE observations (id INTEGER PRIMARY KEY, body TEXT);", 2, "older than any that is read (4 to 52)"),
        ("CREATE TABLE observations (id INTEGER PRIMARY KEY, body TEXT);", 99, "newer than any that is read (4 to 52)"),
        ("CREATE TABLE sdk_sessions (id);", 99, "newer than any"),
        (
            "CREATE TABLE observations (project TEXT, memory_session_id TEXT);",
            49,
            "without created_at_epoch of its observations",
        ),
    ],
)
def test_a_database_of_a_version_that_is_not_read_is_named_for_what_it_is(database, script, version, reason):
    path = database({}, script, version)
    expected = re.escape(f"this is a claude-mem database of schema {version}, which is {reason}")
    with pytest.raises(NotReadableError, match=expected):
        importer_for(path)


def test_a_database_in_use_is_neither_locked_nor_changed(database):
    path = database(wal=True)
    assert not path.with_name("anything.db-wal").exists()
    records(path, "claude-mem")
    assert not path.with_name("anything.db-wal").exists()
    with closing(sqlite3.connect(path, timeout=0)) as writer:
        writer.execute(
            "INSERT INTO user_prompts (content_session_id, prompt_number, prompt_text) VALUES ('c-1', 2, 'x')"
        )
        writer.commit()
        reading = importer_for(path).read(path, Options())
        next(reading.records)
        writer.execute(
            "INSERT INTO user_prompts (content_session_id, prompt_number, prompt_text) VALUES ('c-1', 3, 'y')"
        )
        writer.commit()
        # The snapshot that the reading began with: the prompt added since is not in it.
        assert sum(one.location.startswith("user_prompts") for one in reading.records) == 2
    reading.records.close()


def test_the_export_gives_the_same_memories_as_the_database(database, tmp_path):
    export = {
        "exportedAt": "2025-11-01T00:00:00Z",
        "exportedAtEpoch": NOON,
        "query": "tea",
        "totalObservations": 1,
        "totalSessions": 1,
        "totalSummaries": 1,
        "totalPrompts": 1,
        "observations": [OBSERVATION],
        "sessions": [SESSION],
        "summaries": [SUMMARY],
        "prompts": [PROMPT],
    }
    path = write_json(tmp_path / "export.txt", export, indent=2)
    exported, stored = records(path, "claude-mem"), records(database(), "claude-mem")
    assert exported.keys() == stored.keys()
    assert exported["m-1"].data == stored["m-1"].data
    contents = [{one.data.get("content") for one in several.values()} for several in (exported, stored)]
    assert contents[0] == contents[1]


@pytest.mark.django_db
def test_it_is_imported_searched_imported_again_and_undone(database):
    path = database()
    before = counts()
    run(path)
    assert batch_counts(last_batch()) == (3, 3, 0, 0, 0)
    memory = Memory.objects.get(memory_type="bugfix")
    assert (memory.project.slug, memory.agent, memory.session.title) == ("tea", "codex", "Bitter oolong")
    assert memory.created_at == datetime(2025, 10, 9, 8, 53, 20, tzinfo=UTC)
    assert memory.raw["metadata"] == '{"branch": "main"}'
    assert Entity.objects.filter(entity_type="file").count() == 3
    assert Session.objects.get(project__slug="tea-house").ended_at == datetime(2025, 10, 9, 8, 54, 20, tzinfo=UTC)
    with closing(sqlite3.connect(path)) as changed, changed:
        changed.execute("UPDATE observations SET relevance_count = 5, synced_at = 1")
        changed.execute("UPDATE session_summaries SET learned = 'It is the kettle.'")
    run(path)
    assert batch_counts(last_batch()) == (3, 0, 1, 2, 0)
    for batch in (last_batch().pk, last_batch().pk - 1):
        run(undo=batch)
    assert counts() == before


def test_a_damaged_database_writes_nothing(database):
    rows = [OBSERVATION | {"id": n, "narrative": "Tea. " * 400} for n in range(1, 300)]
    path = database({"observations": rows})
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 40_000] = b"\xff" * 40_000
    path.write_bytes(bytes(data))
    with pytest.raises(ImportFailedError, match=r"cannot be read further .* after observations \d+\. Nothing was imp"):
        found(path, "claude-mem")
    last = found(path, "claude-mem", keep_going=True)[-1]
    assert isinstance(last, RefusedRecord)
    assert "everything after it is lost" in last.reason
