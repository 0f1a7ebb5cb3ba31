import json

import pytest

from tests.memories.foreign import found, records
from transfer.formats.base import NotReadableError, Options, RefusedRecord
from transfer.formats.registry import importer_named

ABOUT = {"sessionId": "s-1", "cwd": "/home/ann/Tea House", "gitBranch": "main", "version": "2.0.1"}


def line(kind, content, at, **fields):
    message = {"role": kind, "content": content} | ({"model": "some-model"} if kind == "assistant" else {})
    return ABOUT | {"type": kind, "uuid": f"{at}", "parentUuid": None, "timestamp": at, "message": message} | fields


LINES = [
    {"type": "file-history-snapshot", "messageId": "x", "snapshot": {}},
    {"type": "summary", "summary": "Bitter oolong mended", "leafUuid": "x"},
    line("user", "<command-name>/clear</command-name>", "2025-10-09T08:00:00Z"),
    line("user", "Why is the oolong bitter?", "2025-10-09T08:01:00Z"),
    line(
        "assistant",
        [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "name": "Read"},
        ],
        "2025-10-09T08:02:00Z",
    ),
    line("user", [{"type": "tool_result", "content": "a long file"}], "2025-10-09T08:03:00Z"),
    line("assistant", [{"type": "text", "text": "In a side task."}], "2025-10-09T08:04:00Z", isSidechain=True),
    line("assistant", [{"type": "text", "text": "Too hot."}], "2025-10-09T08:05:00Z"),
]


def test_a_session_is_a_memory_of_what_was_asked_and_answered(jsonl):
    one = records(jsonl(*LINES), "claude-code")["session:s-1"]
    assert one.data == {
        "source": "claude-code",
        "id": "session:s-1",
        "type": "session",
        "project": "Tea House",
        "session": "s-1",
        "agent": "claude-code",
        "title": "Bitter oolong mended",
        "content": "**User:**\n\nWhy is the oolong bitter?\n\n**Assistant:**\n\nI look.\n\n**Assistant:**\n\nToo hot.",
        "created_at": "2025-10-09T08:00:00Z",
        "updated_at": "2025-10-09T08:05:00Z",
        "entities": [{"type": "branch", "name": "main"}],
    }
    assert one.raw["tools"] == {"Read": 1}
    assert one.raw["lines"] == {"file-history-snapshot": 1, "summary": 1, "user": 3, "assistant": 3}


def test_a_folder_of_projects_gives_a_memory_for_each_session(tmp_path):
    for project, session in (("-tea", "s-1"), ("-tea", "s-2"), ("-kiln", "s-3")):
        (tmp_path / "projects" / project).mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(one | {"sessionId": session}) for one in LINES[3:4]] + ['{"broken']
        (tmp_path / "projects" / project / f"{session}.jsonl").write_text("\n".join(lines))
    everything = found(tmp_path / "projects", "claude-code")
    assert [one.location for one in everything if isinstance(one, RefusedRecord)] == [
        "-kiln/s-3.jsonl line 2",
        "-tea/s-1.jsonl line 2",
        "-tea/s-2.jsonl line 2",
    ]
    assert [one.data["id"] for one in everything if not isinstance(one, RefusedRecord)] == [
        "session:s-3",
        "session:s-1",
        "session:s-2",
    ]


def test_newer_versions_name_sessions_and_have_files_of_side_tasks(tmp_path):
    newer = [
        {"type": "mode", "mode": "default", "sessionId": "s-1"},
        {"type": "ai-title", "aiTitle": "Why oolong is bitter", "sessionId": "s-1"},
        {"type": "queue-operation", "operation": "enqueue", "content": "Why?", "sessionId": "s-1"},
        *LINES[3:],
        {"type": "system", "subtype": "turn_duration", "durationMs": 12, "sessionId": "s-1"},
        {"type": "last-prompt", "lastPrompt": "Why?", "sessionId": "s-1"},
    ]
    named = [*newer, {"type": "custom-title", "customTitle": "Bitter", "sessionId": "s-1"}, newer[1]]
    aside = [row | {"isSidechain": True, "agentId": "a1"} for row in LINES[3:4]]
    for name, rows in (("s-1", newer), ("s-2", named), ("agent-a1", aside)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    first, second = found(tmp_path, "claude-code")
    assert (first.data["title"], second.data["title"]) == ("Why oolong is bitter", "Bitter")
    assert first.data["content"].endswith("**Assistant:**\n\nToo hot.")
    assert first.raw["lines"]["queue-operation"] == 1


def test_a_line_of_a_strange_type_is_no_message(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps({"sessionId": "s", "type": ["user"], "message": {"content": "Tea?"}}))
    with pytest.raises(NotReadableError, match="holds no transcripts"):
        importer_named("claude-code").read(path, Options())
