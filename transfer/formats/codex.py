"""Transcripts of Codex: lines of JSON, a file `rollout-….jsonl` for each session, in folders by date.

Read in the forms of 2025 and 2026: with a `payload` on each line, and of older versions without one.
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from transfer.formats.drafts import fields_of, listed, plain_text
from transfer.formats.sessions import SessionFormat, SessionText, gather_lines
from transfer.formats.sources import Document

_TURNS = {"user": "User", "assistant": "Assistant"}
_TEXTS = ("input_text", "output_text", "text")
_META = "session_meta"
# Texts that the program itself puts into a prompt.
_OWN = ("<environment_context>", "<user_instructions>", "<INSTRUCTIONS>", "<turn_aborted>", "<permissions", "<skill>")
_OWN_HEADINGS = ("# AGENTS.md instructions",)
_WORKING_FOLDER = re.compile(
    r"<cwd>(?P<folder>[^<\n]{1,1000})</cwd>|Current working directory: (?P<older>[^\n]{1,1000})"
)
_REPOSITORY = re.compile(r"(?P<name>[^/:]+?)(?:\.git)?/?")


def _is_transcript(document: Document) -> bool:
    """Whether the first line describes a session of Codex."""
    first = document.start.split("\n", 1)[0]
    try:
        row = json.loads(first)
    except (ValueError, RecursionError):
        # Instructions make it longer than what was read.
        return f'"type":"{_META}"' in first.replace('": "', '":"') and '"payload"' in first
    if not isinstance(row, dict):
        return False
    if row.get("type") == _META:
        return isinstance(row.get("payload"), dict)
    is_older = {"id", "timestamp"} <= row.keys() and "type" not in row and ("instructions" in row or "git" in row)
    return is_older and '"role"' in document.start


def _add_line(session: SessionText, row: Mapping[str, Any]) -> None:
    kind = plain_text(row.get("type"))
    payload = fields_of(row.get("payload"))
    session.see_moment(plain_text(row.get("timestamp")))
    if kind == _META or not (kind or row.get("record_type") or session.id):
        _add_meta(session, payload or row)
    elif kind == "turn_context":
        session.folder = session.folder or plain_text(payload.get("cwd"))
        session.about |= {name: text for name in ("model",) if (text := plain_text(payload.get(name)))}
    item = payload if kind == "response_item" else row if "payload" not in row else {}
    session.lines[plain_text(item.get("type")) or kind] += 1
    if item.get("type") == "message":
        _add_message(session, item)
    elif "call" in plain_text(item.get("type")) and not plain_text(item.get("type")).endswith("output"):
        session.tools[plain_text(item.get("name")) or plain_text(item.get("type")).removesuffix("_call")] += 1


def _add_meta(session: SessionText, meta: Mapping[str, Any]) -> None:
    """Take the description of the session. One that goes on from another has that one's after its own."""
    if session.id:
        return
    git = fields_of(meta.get("git"))
    session.id = plain_text(meta.get("id"))
    session.folder = plain_text(meta.get("cwd"))
    session.is_side_task = meta.get("thread_source") == "subagent" or "subagent" in fields_of(meta.get("source"))
    session.branch = plain_text(git.get("branch"))
    if not session.folder and (
        match := _REPOSITORY.fullmatch(plain_text(git.get("repository_url")).rpartition("/")[2])
    ):
        session.folder = match["name"]
    known = {"sessionId": session.id, "cwd": session.folder, "gitBranch": session.branch}
    known |= {name: plain_text(meta.get(name)) for name in ("cli_version", "originator", "timestamp")}
    session.about |= {name: text for name, text in known.items() if text}


def _add_message(session: SessionText, item: Mapping[str, Any]) -> None:
    parts = [fields_of(part) for part in listed(item.get("content")) if not isinstance(part, str)]
    texts = [plain_text(part.get("text")) for part in parts if part.get("type") in _TEXTS]
    if isinstance(item.get("content"), str):
        texts = [plain_text(item["content"])]
    for text in texts:
        if not session.folder and (match := _WORKING_FOLDER.search(text)):
            session.folder = (match["folder"] or match["older"]).strip()
    if speaker := _TURNS.get(plain_text(item.get("role"))):
        session.say(
            speaker, "\n\n".join(text for text in texts if text and not text.startswith((*_OWN, *_OWN_HEADINGS)))
        )


FORMAT = SessionFormat(
    "codex",
    "Codex",
    "transcripts of Codex: a file, or its folder of sessions",
    ("rollout-*.jsonl", "*/rollout-*.jsonl", "*/*/rollout-*.jsonl", "[0-9]*/[0-9]*/[0-9]*/rollout-*.jsonl"),
    _is_transcript,
    partial(gather_lines, _add_line),
)
IMPORTER = FORMAT.importer()
