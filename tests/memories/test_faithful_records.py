"""JSON that is nearly right, conversations without titles and with edited turns: read as they are meant."""

import json

import pytest

from tests.memories.foreign import write_json
from transfer.formats import jsonl
from transfer.formats.base import NotReadableError, Options
from transfer.formats.registry import importer_for


def records_of(path):
    importer = importer_for(path)
    return importer.name, [getattr(one, "data", one) for one in importer.read(path, Options()).records]


A, B = {"content": "a"}, {"content": "b"}
ENTITY = {"type": "entity", "name": "Tea", "entityType": "drink", "observations": ["It cools."]}
RELATION = {"type": "relation", "from": "Tea", "to": "Cup", "relationType": "is in"}


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        pytest.param(json.dumps([A, B]), ["a", "b"], id="a list"),
        pytest.param(json.dumps([A, B], indent=2), ["a", "b"], id="a list over several lines"),
        pytest.param(json.dumps(A, indent=4), ["a"], id="an object over several lines"),
        pytest.param(f"{json.dumps(A, indent=2)}\n{json.dumps(B, indent=2)}\n", ["a", "b"], id="two of them"),
        pytest.param(f"{json.dumps(A)}{json.dumps(B)}", ["a", "b"], id="two objects on a line"),
        pytest.param(f"{json.dumps(A)}, {json.dumps(B)},\n{json.dumps(A)},\n", ["a", "b", "a"], id="commas"),
        pytest.param(json.dumps({"notes": [A, B]}), ["a", "b"], id="a list in an object"),
        pytest.param(json.dumps({"total": 2, "data": [{"text": "a"}, {"body": "b"}]}), ["a", "b"], id="other names"),
        pytest.param(f"[\n{json.dumps(A)},\n{json.dumps(B)}\n]\n", ["a", "b"], id="a list of lines"),
        pytest.param(f"{json.dumps({**A, 'facts': [B]})}\n{json.dumps(B)}\n", ["a", "b"], id="a list in a record"),
        pytest.param(json.dumps(A) + "\n{\n oops\n}\n" + json.dumps(B), ["a", None, "b"], id="an error in one"),
        pytest.param('{"content": "a"\n' + json.dumps(B), [None, "b"], id="a line that is cut off"),
    ],
)
def test_json_that_is_nearly_right_is_read(tmp_path, text, contents):
    path = tmp_path / "a.json"
    path.write_text(text)
    name, found = records_of(path)
    assert name == "jsonl"
    read = [
        next((one[key] for key in ("content", "text", "body") if key in one), None) if isinstance(one, dict) else None
        for one in found
    ]
    assert read == contents


def test_an_object_over_lines_without_end_is_refused_and_what_follows_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_LINE", 1_000)
    path = tmp_path / "a.jsonl"
    path.write_text("{\n" + '  "content":\n' * 200 + "}\n" + json.dumps(B) + "\n")
    first, second = importer_for(path).read(path, Options()).records
    assert (first.location, second.data) == ("line 1", B)
    assert "a record is one line of at most that" in first.reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"results": []}, r"whose lists \(results\) are empty"),
        ([], "an empty list in JSON"),
        (["a"], 'Records with a field content are read: \\[{"content"'),
        ([{"colour": "red"}], "a list in JSON with the fields colour, .* Records with a field content are read"),
    ],
)
def test_json_that_is_not_read_says_what_would_be(tmp_path, value, reason):
    with pytest.raises(NotReadableError, match=reason):
        importer_for(write_json(tmp_path / "a.json", value))


@pytest.mark.parametrize("indent", [None, 2])
def test_the_graph_of_the_reference_server_is_read_as_a_list_too(tmp_path, indent):
    name, found = records_of(write_json(tmp_path / "a.json", [ENTITY, RELATION], indent=indent))
    assert name == "mcp-memory"
    assert [one.get("record", one.get("content")) for one in found] == ["entity", "It cools.", "relationship"]


def chatgpt(*messages, **about):
    mapping = {"root": {"message": None, "parent": None}}
    for name, parent, role, text, at in messages:
        message = {"author": {"role": role}, "content": {"parts": [text]}, "create_time": at}
        mapping[name] = {"message": message, "parent": parent}
    return {"mapping": mapping, "conversation_id": "c", "create_time": 1_700_000_000, **about}


ASKED = ("q", "root", "user", "Why is the tea bitter? It was fine before.", 1)
ANSWERED = ("a", "q", "assistant", "Too hot.", 2)


@pytest.mark.parametrize(
    ("about", "title"),
    [
        ({"title": None, "current_node": "a"}, "Why is the tea bitter?"),
        ({"title": "", "current_node": "a"}, "Why is the tea bitter?"),
        ({"title": "Bitter tea"}, "Bitter tea"),
        ({"current_node": "gone"}, "Why is the tea bitter?"),
    ],
)
def test_a_conversation_without_a_title_has_the_first_words_of_the_user(tmp_path, about, title):
    _, (one,) = records_of(write_json(tmp_path / "a.json", [chatgpt(ASKED, ANSWERED, **about)]))
    assert one["title"] == title
    assert one["content"].endswith("**Assistant:**\n\nToo hot.")


def claude_message(name, parent, sender, text, minute):
    return {
        "uuid": name,
        "parent_message_uuid": parent,
        "sender": sender,
        "text": text,
        "created_at": f"2026-01-02T10:{minute:02}:00Z",
    }


ROOT = "00000000-0000-4000-8000-000000000000"
EDITED = [
    claude_message("1", ROOT, "human", "Why bitter?", 1),
    claude_message("2", "1", "assistant", "Too hot.", 2),
    claude_message("3", ROOT, "human", "Why sour?", 3),
    claude_message("4", "3", "assistant", "Lemon.", 4),
]


AGAIN = claude_message("5", "2", "human", "How hot?", 9)


@pytest.mark.parametrize(
    ("messages", "about", "said"),
    [
        pytest.param(EDITED, {}, ["Why sour?", "Lemon."], id="the last branch"),
        pytest.param(EDITED, {"current_leaf_message_uuid": "2"}, ["Why bitter?", "Too hot."], id="the branch shown"),
        pytest.param(EDITED[:2], {}, ["Why bitter?", "Too hot."], id="no other branch"),
        pytest.param(
            [{k: v for k, v in one.items() if k != "parent_message_uuid"} for one in EDITED],
            {},
            ["Why bitter?", "Too hot.", "Why sour?", "Lemon."],
            id="no parents",
        ),
        pytest.param([*EDITED, AGAIN], {}, ["Why bitter?", "Too hot.", "How hot?"], id="an older branch again"),
    ],
)
def test_the_branch_that_was_last_active_is_read(tmp_path, messages, about, said):
    export = [{"uuid": "u", "name": "", "chat_messages": messages, **about}]
    _, (one,) = records_of(write_json(tmp_path / "a.json", export))
    assert [part for part in one["content"].split("\n\n") if not part.startswith("**")] == said
    assert one["title"] == said[0]


def test_a_long_session_begins_with_what_was_asked_and_done(tmp_path):
    def line(kind, content, second):
        return {
            "type": kind,
            "message": {"role": kind, "content": content},
            "sessionId": "s",
            "cwd": "/home/ada/tea",
            "timestamp": f"2026-01-02T10:00:{second:02}Z",
        }

    tool = [{"type": "tool_use", "name": "Bash"}, {"type": "text", "text": "I look. " * 400}]
    lines = [line("user", "Mend the kettle.", 1), line("assistant", tool, 2), line("assistant", "It boils again.", 3)]
    path = tmp_path / "s.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    name, (one,) = records_of(path)
    assert (name, one["title"]) == ("claude-code", "Mend the kettle.")
    opening = "Asked: Mend the kettle.\n\nAnswered last: It boils again.\n\nDone: calls of tools: Bash 1\n\n**User:**"
    assert one["content"].startswith(opening)
