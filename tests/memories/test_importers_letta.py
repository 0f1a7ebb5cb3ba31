import pytest

from tests.memories.foreign import found, records, write_json
from transfer.formats.base import NotReadableError, Options, RefusedRecord
from transfer.formats.registry import importer_named

SYSTEM = "You keep the tea house's notes."
SENT = {"id": "call-1", "type": "function", "function": {"name": "send_message", "arguments": '{"message": "Oolong."}'}}
MESSAGES = [
    {"id": "message-0", "role": "system", "content": [{"type": "text", "text": SYSTEM}]},
    {"id": "message-1", "role": "user", "content": [{"type": "text", "text": '{"type": "login", "time": "now"}'}]},
    {
        "id": "message-2",
        "role": "user",
        "content": [{"type": "text", "text": '{"type": "user_message", "message": "Which tea?", "time": "now"}'}],
        "created_at": "2025-08-28T00:57:44+00:00",
    },
    {
        "id": "message-3",
        "role": "assistant",
        "content": [{"type": "text", "text": "They like tea."}],
        "tool_calls": [SENT],
        "created_at": "2025-08-28T00:58:01+00:00",
    },
    {"id": "message-4", "role": "tool", "content": [{"type": "text", "text": "None"}], "tool_call_id": "call-1"},
    {"id": "message-5", "role": "assistant", "content": "Anything else?", "created_at": "2025-08-28T00:59:00+00:00"},
]
AGENT = {
    "name": "barista",
    "memory_blocks": [],
    "tool_ids": ["tool-0"],
    "block_ids": ["block-0", "block-1"],
    "tags": ["tea"],
    "system": SYSTEM,
    "agent_type": "memgpt_v2_agent",
    "llm_config": {"model": "large", "model_endpoint": "https://models.example"},
    "tool_exec_environment_variables": {"TILL_KEY": "secret-1"},
    "description": "Serves tea.",
    "id": "agent-0",
    "messages": MESSAGES,
    "files_agents": [{"id": "file_agent-0", "file_id": "file-0"}],
}
BLOCK = {"id": "block-0", "label": "human", "value": "Ann likes oolong.", "limit": 20000, "description": "About her."}
SECOND_VERSION = {
    "agents": [AGENT],
    "groups": [],
    "blocks": [BLOCK, {"id": "block-1", "label": "persona", "value": " ", "limit": 20000}],
    "files": [
        {"id": "file-0", "file_name": "menu.txt", "content": "Oolong 4.50", "file_creation_date": "2025-08-01"},
        {"id": "file-1", "file_name": "scan.pdf", "content": None},
    ],
    "sources": [],
    "tools": [{"id": "tool-0", "name": "send_message", "source_code": "…"}],
    "mcp_servers": [],
    "metadata": {"revision_id": "d510"},
    "created_at": "2025-08-28T00:58:01+00:00",
}
FIRST_VERSION = {
    "agent_type": "memgpt_agent",
    "core_memory": [
        {"created_at": "2025-04-01T10:00:00Z", "label": "human", "limit": 5000, "value": "Ann likes oolong."}
    ],
    "created_at": "2025-04-01T10:00:00Z",
    "description": "Serves tea.",
    "messages": MESSAGES,
    "name": "barista",
    "system": SYSTEM,
    "tags": [{"tag": "tea"}],
    "tool_exec_environment_variables": [{"key": "TILL_KEY", "value": "secret-1"}],
    "version": "0.6.47",
}
CONVERSATION = "**User:**\n\nWhich tea?\n\n**Assistant:**\n\nOolong.\n\n**Assistant:**\n\nAnything else?"


def test_an_agent_file_gives_the_agent_its_blocks_its_files_and_what_was_said(tmp_path):
    everything = found(write_json(tmp_path / "agent", SECOND_VERSION), "letta")
    without_text = [one for one in everything if isinstance(one, RefusedRecord)]
    assert without_text == [RefusedRecord("files[1]", "is the file 'scan.pdf' without its text")]
    by_id = {one.data["id"]: one for one in everything if one not in without_text}
    assert list(by_id) == [
        "letta:barista",
        "letta:barista:messages",
        "letta:barista:block:human",
        "letta:barista:file:menu.txt",
    ]
    agent = by_id["letta:barista"]
    assert agent.data["content"] == f"Serves tea.\n\n## Instructions\n\n{SYSTEM}"
    assert agent.raw == {"id": "agent-0", "name": "barista", "agent_type": "memgpt_v2_agent", "tags": ["tea"]}
    assert by_id["letta:barista:messages"].data == {
        "source": "letta",
        "id": "letta:barista:messages",
        "type": "conversation",
        "title": "Conversation with barista",
        "agent": "barista",
        "content": CONVERSATION,
        "created_at": "2025-08-28T00:57:44+00:00",
        "updated_at": "2025-08-28T00:59:00+00:00",
    }
    assert by_id["letta:barista:block:human"].data == {
        "source": "letta",
        "id": "letta:barista:block:human",
        "type": "memory-block",
        "title": "human",
        "content": "Ann likes oolong.",
        "summary": "About her.",
        "agent": "barista",
        "entities": [{"type": "agent", "name": "barista"}],
    }
    assert by_id["letta:barista:file:menu.txt"].data["created_at"] == "2025-08-01"


def test_the_first_version_of_agent_files_gives_the_same(tmp_path):
    first = records(write_json(tmp_path / "agent", FIRST_VERSION), "letta")
    assert list(first) == ["letta:barista", "letta:barista:block:human", "letta:barista:messages"]
    assert first["letta:barista"].data["tags"] == ["tea"]
    assert first["letta:barista:messages"].data["content"] == CONVERSATION
    assert first["letta:barista:block:human"].data["created_at"] == "2025-04-01T10:00:00Z"


def test_no_secret_of_an_agent_is_stored(tmp_path):
    for number, version in enumerate((FIRST_VERSION, SECOND_VERSION)):
        stored = str(found(write_json(tmp_path / f"agent-{number}", version), "letta"))
        assert "secret-1" not in stored
        assert "models.example" not in stored


def test_passages_of_an_archive_are_memories_without_their_vectors(tmp_path):
    passage = {
        "id": "passage-1",
        "archive_id": "archive-1",
        "text": "The kettle is new.",
        "embedding": [0.1, 0.2],
        "embedding_config": {"embedding_model": "small"},
        "tags": ["kettle"],
        "created_at": "2025-09-01T08:00:00Z",
    }
    one, broken = found(write_json(tmp_path / "passages", [passage, {"id": "passage-2"}]), "letta")
    assert one.data == {
        "source": "letta",
        "id": "passage-1",
        "type": "passage",
        "content": "The kettle is new.",
        "tags": ["kettle"],
        "created_at": "2025-09-01T08:00:00Z",
        "updated_at": "2025-09-01T08:00:00Z",
    }
    assert one.raw.keys() == {"id", "archive_id", "tags", "created_at"}
    assert broken == RefusedRecord("[1]", "is a passage without a text")


def test_another_file_is_no_agent_file(tmp_path):
    path = write_json(tmp_path / "other", {"agents": ["barista"]})
    with pytest.raises(NotReadableError, match="is no agent file of Letta"):
        importer_named("letta").read(path, Options())
