import pytest

from tests.memories.foreign import found, records, write_json, write_zip
from transfer.formats.base import RefusedRecord


def node(name, parent, role, *parts, **message):
    content = {"content_type": "text", "parts": list(parts)}
    return {
        name: {
            "id": name,
            "parent": parent,
            "message": {"author": {"role": role}, "create_time": 1_700_000_000.5, "content": content, **message},
        }
    }


CHATGPT = {
    "title": "Bitter oolong",
    "create_time": 1_700_000_000.25,
    "update_time": 1_700_000_900.0,
    "mapping": {
        "root": {"id": "root", "parent": None, "message": None},
        **node("system", "root", "system", "You are helpful.", metadata={"is_visually_hidden_from_conversation": True}),
        **node("ask", "system", "user", "Why bitter?", {"content_type": "image_asset_pointer", "asset_pointer": "x"}),
        **node("wrong", "ask", "assistant", "Because of the moon."),
        **node("right", "ask", "assistant", "Too hot."),
    },
    "current_node": "right",
    "conversation_id": "c-1",
    "default_model_slug": "gpt-4o",
}
CLAUDE = {
    "uuid": "u-1",
    "name": "Ash glaze",
    "created_at": "2025-03-01T10:00:00.123456Z",
    "updated_at": "2025-03-01T11:00:00Z",
    "account": {"uuid": "a-1"},
    "chat_messages": [
        {
            "sender": "human",
            "text": "Why does it run?",
            "content": [{"type": "text", "text": "Why does it run?"}],
            "attachments": [{"file_name": "recipe.txt", "extracted_content": "Ash 50"}],
        },
        {"sender": "assistant", "text": "Too much ash.", "content": [], "files": [{"file_name": "pot.png"}]},
    ],
}


def test_a_conversation_of_chatgpt_is_the_branch_that_it_shows(tmp_path):
    one = records(write_json(tmp_path / "conversations.json", [CHATGPT]), "conversations")["chatgpt:c-1"]
    assert one.data == {
        "source": "chatgpt",
        "id": "chatgpt:c-1",
        "type": "conversation",
        "title": "Bitter oolong",
        "content": "**User:**\n\nWhy bitter?\n\n[image asset pointer]\n\n**Assistant:**\n\nToo hot.",
        "agent": "gpt-4o",
        "source_url": "https://chatgpt.com/c/c-1",
        "created_at": 1_700_000_000.25,
        "updated_at": 1_700_000_900.0,
    }
    assert "Because of the moon." in str(one.raw["mapping"])


def test_older_exports_of_chatgpt_and_divided_ones_are_read(tmp_path):
    """Without the model and the present name of the id; with conversations in several files among pictures."""
    older = {name: value for name, value in CHATGPT.items() if name not in ("conversation_id", "default_model_slug")}
    older |= {"id": "c-0", "moderation_results": [], "plugin_ids": None}
    (one,) = records(write_json(tmp_path / "conversations.json", [older]), "conversations").values()
    assert (one.data["id"], one.data["agent"]) == ("chatgpt:c-0", "chatgpt")
    assert one.data["source_url"] == "https://chatgpt.com/c/c-0"

    pictures = {f"file-{number:04}.png": "x" for number in range(400)}
    parts = {"conversations-000.json": [CHATGPT], "conversations-001.json": [older], "user.json": {"id": "u"}}
    archive = write_zip(tmp_path / "export.zip", pictures | parts)
    assert list(records(archive, "conversations")) == ["chatgpt:c-1", "chatgpt:c-0"]


def test_a_conversation_of_claude_has_its_attachments(tmp_path):
    one = records(write_json(tmp_path / "conversations.json", [CLAUDE]), "conversations")["claude:u-1"]
    assert one.data["content"] == (
        "**User:**\n\nWhy does it run?\n\n[recipe.txt]\n\nAsh 50\n\n**Assistant:**\n\nToo much ash.\n\n[pot.png]"
    )
    assert (one.data["title"], one.data["created_at"]) == ("Ash glaze", "2025-03-01T10:00:00.123456Z")


def test_an_archive_of_claude_has_projects_and_what_it_remembers(tmp_path):
    project = {
        "uuid": "p-1",
        "name": "Kiln",
        "prompt_template": "Be brief.",
        "docs": [{"uuid": "d-1", "content": "Log."}],
    }
    memory = {"conversations_memory": "Ann fires.", "project_memories": {"p-1": "Cone 10."}, "account_uuid": "a-1"}
    members = {"users.json": [{"uuid": "a-1"}], "conversations.json": [CLAUDE], "projects.json": [project]}
    by_id = records(write_zip(tmp_path / "export.zip", members | {"memories.json": [memory]}), "conversations")
    assert {name: one.data["content"] for name, one in by_id.items() if "claude:" not in name} == {
        "claude-document:p-1:prompt": "Be brief.",
        "claude-document:d-1": "Log.",
        "claude-memory:a-1:conversations": "Ann fires.",
        "claude-memory:a-1:p-1": "Cone 10.",
    }
    assert by_id["claude-document:d-1"].data["project"] == "Kiln"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"mapping": {}, "current_node": None}, id="no messages"),
        pytest.param({"mapping": {**node("a", "b", "x"), **node("b", "a", "x")}, "current_node": "a"}, id="a cycle"),
        pytest.param({"mapping": "text"}, id="no mapping"),
    ],
)
def test_a_conversation_without_messages_is_refused_and_the_next_one_read(tmp_path, change):
    refused, fine = found(write_json(tmp_path / "c.json", [CHATGPT | change, CHATGPT]), "conversations")
    assert refused == RefusedRecord("[0]", "is a conversation without messages")
    assert fine.data["id"] == "chatgpt:c-1"
