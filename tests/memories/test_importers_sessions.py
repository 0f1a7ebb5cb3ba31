"""Sessions of Codex and Gemini CLI: a memory each, found on the machine, and followed once they rest."""

import hashlib
import json
import os
import time

import pytest

from access.viewer import command_viewer
from memories.models import FollowedSource, Memory
from tests.memories.foreign import found, records
from transfer.discover import discoveries
from transfer.follow.services import source_new
from transfer.follow.sync import Choices, source_has_changed, source_sync
from transfer.formats.base import NotReadableError, Options, RefusedRecord
from transfer.formats.registry import importer_for, importer_named

AT = "2026-03-02T08:0{}:00.000Z"


def rollout(kind, at=0, **payload):
    return {"timestamp": AT.format(at), "type": kind, "payload": payload}


def message(role, *texts, at=0, **fields):
    form = "output_text" if role == "assistant" else "input_text"
    content = [{"type": form, "text": text} for text in texts]
    return rollout("response_item", at, type="message", role=role, content=content, **fields)


META = rollout(
    "session_meta",
    id="c-1",
    timestamp=AT.format(0),
    cwd="/srv/Tea House",
    originator="codex_cli_rs",
    cli_version="0.99.0",
    git={"branch": "main", "repository_url": "https://example.org/tea.git"},
)
CODEX = [
    META,
    message("developer", "<permissions instructions>Be careful.</permissions instructions>"),
    message("user", "# AGENTS.md instructions for /srv/Tea House\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>"),
    message("user", "<environment_context>\n  <cwd>/srv/Tea House</cwd>\n</environment_context>"),
    rollout("turn_context", cwd="/srv/Tea House", model="some-model"),
    message("user", "Why is the oolong bitter?", at=1),
    rollout("event_msg", 1, type="user_message", message="Why is the oolong bitter?"),
    rollout("response_item", 2, type="reasoning", summary=[], encrypted_content="x"),
    rollout("response_item", 2, type="function_call", name="shell", arguments="{}", call_id="1"),
    rollout("response_item", 2, type="function_call_output", call_id="1", output="a long file"),
    rollout("response_item", 2, type="custom_tool_call", name="apply_patch", input="x", call_id="2"),
    rollout("response_item", 3, type="web_search_call", action={}),
    message("assistant", "The water is too hot.", at=4),
    rollout("event_msg", 4, type="agent_message", message="The water is too hot."),
    rollout("compacted", 5, message="A summary."),
]


def test_a_session_of_codex_is_a_memory_of_what_was_asked_and_answered(jsonl):
    one = records(jsonl(*CODEX, name="rollout-2026-03-02T08-00-00-c-1.jsonl"), "codex")["session:c-1"]
    assert one.data == {
        "source": "codex",
        "id": "session:c-1",
        "type": "session",
        "project": "Tea House",
        "session": "c-1",
        "agent": "codex",
        "title": "Why is the oolong bitter?",
        "content": "**User:**\n\nWhy is the oolong bitter?\n\n**Assistant:**\n\nThe water is too hot.",
        "created_at": "2026-03-02T08:00:00.000Z",
        "updated_at": "2026-03-02T08:05:00.000Z",
        "entities": [{"type": "branch", "name": "main"}],
    }
    assert one.raw["tools"] == {"shell": 1, "apply_patch": 1, "web_search": 1}
    assert (one.raw["model"], one.raw["cli_version"]) == ("some-model", "0.99.0")


def test_a_session_of_codex_that_goes_on_from_another_has_its_own_id(jsonl):
    other = META | {"payload": META["payload"] | {"id": "c-0", "cwd": "/srv/other"}}
    (one,) = records(jsonl(META, other, *CODEX[5:]), "codex").values()
    assert (one.data["session"], one.data["project"]) == ("c-1", "Tea House")


@pytest.mark.parametrize(
    ("first", "project"),
    [
        pytest.param(
            {"git": {"repository_url": "git@example.org:ann/tea.git", "branch": "b"}}, "tea", id="a repository"
        ),
        pytest.param({"git": {}}, "kiln", id="the folder in a message"),
    ],
)
def test_older_sessions_of_codex_have_no_payloads(jsonl, first, project):
    lines = [
        {"id": "c-2", "timestamp": AT.format(0), "instructions": None} | first,
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "<environment_context>\nCurrent working directory: /srv/kiln\n"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fire it."}]},
        {"type": "local_shell_call", "status": "completed"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]  # fmt: skip
    (one,) = records(jsonl(*lines), "codex").values()
    assert (one.data["id"], one.data["project"]) == ("session:c-2", project)
    assert one.data["content"] == "**User:**\n\nFire it.\n\n**Assistant:**\n\nDone."
    assert one.raw["tools"] == {"local_shell": 1}


def test_a_broken_line_of_a_session_is_refused_and_the_rest_is_read(jsonl):
    everything = found(jsonl(*CODEX[:6], '{"broken', "[1]", *CODEX[6:]), "codex")
    assert [one.location for one in everything if isinstance(one, RefusedRecord)] == [
        "memories.jsonl line 7",
        "memories.jsonl line 8",
    ]
    assert "too hot" in everything[-1].data["content"]


GEMINI = {
    "sessionId": "g-1",
    "projectHash": hashlib.sha256(b"/srv/tea").hexdigest(),
    "startTime": AT.format(0),
    "lastUpdated": AT.format(6),
    "messages": [
        {"id": "1", "timestamp": AT.format(0), "type": "info", "content": "Update available"},
        {"id": "2", "timestamp": AT.format(1), "type": "user", "content": "<session_context>Now</session_context>"},
        {"id": "3", "timestamp": AT.format(2), "type": "user", "content": [{"text": "Which "}, {"text": "kettle?!"}],
         "displayContent": "Which kettle?"},
        {"id": "4", "timestamp": AT.format(3), "type": "gemini", "content": "", "thoughts": [{"subject": "Hm"}],
         "toolCalls": [{"id": "a", "name": "read_file", "args": {}, "status": "success"}], "model": "some-model"},
        {"id": "5", "timestamp": AT.format(4), "type": "gemini", "content": "The iron one.", "model": "some-model"},
    ],
}  # fmt: skip


def write_json(path, value, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, **options), encoding="utf-8")
    return path


@pytest.mark.parametrize("indent", [None, 2])
def test_a_session_of_gemini_cli_is_a_memory(tmp_path, indent):
    path = write_json(tmp_path / "tmp/tea-house/chats/session-2026-03-02T08-00-abc.json", GEMINI, indent=indent)
    one = records(path, "gemini-cli")["session:g-1"]
    assert one.data == {
        "source": "gemini-cli",
        "id": "session:g-1",
        "type": "session",
        "project": "tea-house",
        "session": "g-1",
        "agent": "gemini-cli",
        "title": "Which kettle?",
        "content": "**User:**\n\nWhich kettle?\n\n**Assistant:**\n\nThe iron one.",
        "created_at": "2026-03-02T08:00:00.000Z",
        "updated_at": "2026-03-02T08:06:00.000Z",
    }
    assert one.raw["tools"] == {"read_file": 1}


def test_lines_of_gemini_cli_replace_messages_and_take_them_back(tmp_path):
    meta = {name: value for name, value in GEMINI.items() if name != "messages"}
    asked, _, answered = GEMINI["messages"][2:]
    lines = [
        meta,
        asked,
        answered | {"content": "The ir"},
        answered,
        {"id": "6", "type": "user", "content": "And the pot?"},
        {"id": "7", "type": "gemini", "content": "Clay."},
        {"$rewindTo": "6"},
        {"$set": {"summary": "Kettles", "lastUpdated": AT.format(9)}},
        {"id": "8", "type": "user", "content": [{"text": "Thanks."}]},
    ]
    path = tmp_path / "session-1.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    one = records(path, "gemini-cli")["session:g-1"]
    assert one.data["title"] == "Kettles"
    assert one.data["content"].split("\n\n")[1::2] == ["Which kettle?", "The iron one.", "Thanks."]
    path.write_text("\n".join(map(json.dumps, [*lines, {"$set": {"messages": [asked]}}])))
    assert records(path, "gemini-cli")["session:g-1"].data["content"] == "**User:**\n\nWhich kettle?"


@pytest.mark.parametrize(
    ("folder", "marker", "registered", "project"),
    [
        pytest.param("tea-1", "/srv/Tea House", {}, "Tea House", id="the folder says"),
        pytest.param("tea-1", "", {"/srv/tea": "tea-1"}, "tea", id="the list of projects says, by name"),
        pytest.param(GEMINI["projectHash"], "", {"/srv/tea": "x"}, "tea", id="the list of projects says, by hash"),
        pytest.param("tea-1", "", {}, "tea-1", id="its own name"),
        pytest.param(GEMINI["projectHash"], "", {}, None, id="nothing says"),
    ],
)
def test_a_session_of_gemini_cli_is_in_the_project_of_its_repository(tmp_path, folder, marker, registered, project):
    write_json(tmp_path / ".gemini/projects.json", {"projects": registered})
    path = write_json(tmp_path / f".gemini/tmp/{folder}/chats/session-1.json", GEMINI)
    if marker:
        (path.parent.parent / ".project_root").write_text(f"{marker}\n")
    (one,) = records(tmp_path / ".gemini/tmp", "gemini-cli").values()
    assert one.data.get("project") == project


def test_what_is_no_session_is_none(tmp_path, jsonl):
    empty = write_json(tmp_path / "session-9.json", GEMINI | {"messages": []})
    (refused,) = found(empty, "gemini-cli")
    assert refused.reason == "is a session without messages"
    subagent = write_json(tmp_path / "session-8.json", GEMINI | {"kind": "subagent"})
    own = META | {"payload": META["payload"] | {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "c-0"}}}}}
    for path, name in ((subagent, "gemini-cli"), (jsonl(own, *CODEX[5:]), "codex")):
        (refused,) = found(path, name)
        assert refused.reason == "is a side task of another session, and not read"
    for name in ("codex", "gemini-cli"):
        with pytest.raises(NotReadableError, match="holds no transcripts of"):
            importer_named(name).read(jsonl({"content": "A note."}), Options())
    assert importer_for(jsonl({"id": "1", "timestamp": "2026-01-01", "content": "A note."})).name == "jsonl"


@pytest.fixture
def home(tmp_path):
    """A home with sessions of both, and folders of programs without any."""
    path = tmp_path / ".codex/sessions/2026/03/02/rollout-2026-03-02T08-00-00-c-1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(map(json.dumps, CODEX)))
    write_json(tmp_path / ".gemini/tmp/tea/chats/session-1.json", GEMINI)
    return tmp_path


def test_sessions_are_found_on_the_machine(home):
    found = {one.importer.name: (one.path, one.memories) for one in discoveries(home, {})}
    assert found == {
        "codex": (home / ".codex/sessions", 1),
        "gemini-cli": (home / ".gemini/tmp", 1),
    }
    (home / ".codex").rename(home / "elsewhere")
    moved = [one.path for one in discoveries(home, {"CODEX_HOME": str(home / "elsewhere")})]
    assert moved == [home / "elsewhere/sessions", home / ".gemini/tmp"]
    (home / ".gemini/tmp/tea/chats/session-1.json").unlink()
    assert not list(discoveries(home, {}))


@pytest.mark.django_db
@pytest.mark.parametrize("place", [".codex/sessions", ".gemini/tmp"])
def test_sessions_are_followed_once_they_rest(home, place):
    viewer, path = command_viewer(), home / place
    (session,) = path.rglob("*-1.json*")
    os.utime(session, (1_700_000_000, 1_700_000_000))
    source = source_new(path=path, importer=importer_for(path), project="", viewer=viewer)
    source_sync(source, Choices(viewer))
    assert Memory.objects.get().project.slug in ("tea-house", "tea")
    if session.suffix == ".jsonl":
        session.write_text(session.read_text() + "\n" + json.dumps(message("assistant", "Cool it.", at=7)))
    else:
        later = {"id": "9", "timestamp": AT.format(7), "type": "gemini", "content": "Cool it."}
        write_json(session, GEMINI | {"messages": [*GEMINI["messages"], later]})
    source = FollowedSource.objects.get()
    if source_has_changed(source):
        source_sync(source, Choices(viewer))
    # It may go on: it is read once it rests.
    assert "Cool it." not in Memory.objects.get().content
    old = time.time() - 301
    os.utime(session, (old, old))
    source = FollowedSource.objects.get()
    assert source_has_changed(source)
    source_sync(source, Choices(viewer))
    assert "Cool it." in Memory.objects.get().content
