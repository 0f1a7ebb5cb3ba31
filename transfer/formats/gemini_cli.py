"""Transcripts of Gemini CLI: a file of JSON, or of lines of it, for each session, in a folder for each project."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from transfer.formats.base import Options, RefusedRecord
from transfer.formats.drafts import fields_of, listed, plain_text
from transfer.formats.jsonl import records_of_lines
from transfer.formats.sessions import SessionFormat, SessionText
from transfer.formats.sources import Document

_TURNS = {"user": "User", "gemini": "Assistant"}
_MARKS = {"sessionId", "projectHash"}
_LONGEST = 200_000_000
# Texts that the program itself puts into a prompt.
_OWN = ("<session_context>", "<system-reminder>")
_HASH_LENGTH = 64


def _is_transcript(document: Document) -> bool:
    return document.keys >= _MARKS


def _gather(session: SessionText, document: Document, options: Options) -> Iterator[RefusedRecord]:
    """Fill a session from its file. Lines may replace messages, or take back those after one."""
    meta: dict[str, Any] = {}
    messages: dict[str, dict[str, Any]] = {}
    for row in _session_rows(document, options):
        if isinstance(row, RefusedRecord):
            yield row
        elif back := plain_text(row.get("$rewindTo")):
            _rewind(messages, back)
        else:
            change = fields_of(row.get("$set")) if "$set" in row else row if row.keys() >= _MARKS else {}
            meta |= change
            if isinstance(change.get("messages"), list):
                messages = {}
            for message in listed(change.get("messages")) if change else [row]:
                if isinstance(message, dict) and (key := plain_text(message.get("id"))):
                    messages[key] = message
    session.is_side_task = meta.get("kind") == "subagent"
    if not session.is_side_task:
        _fill(session, meta, list(messages.values()), document.path)


def _session_rows(document: Document, options: Options) -> Iterator[dict[str, Any] | RefusedRecord]:
    if document.path.suffix != ".json" and not document.member.endswith(".json"):
        with document.opened() as lines:
            for line in records_of_lines(lines, options):
                yield line if isinstance(line, RefusedRecord) else line.data
        return
    with document.opened() as file:
        data = file.read(_LONGEST + 1)
    try:
        row = json.loads(data) if len(data) <= _LONGEST else None
    except (ValueError, RecursionError) as error:
        yield RefusedRecord("", f"is not JSON: {error}")
        return
    yield row if isinstance(row, dict) else RefusedRecord("", f"has more than {_LONGEST:,} bytes, or is no object")


def _rewind(messages: dict[str, dict[str, Any]], back: str) -> None:
    """Take back a message and those after it; all if it is not known."""
    keys = list(messages)
    for key in keys[keys.index(back) if back in messages else 0 :]:
        del messages[key]


def _fill(session: SessionText, meta: Mapping[str, Any], messages: list[dict[str, Any]], path: Path) -> None:
    session.id, session.title = plain_text(meta.get("sessionId")), plain_text(meta.get("summary"))
    session.folder = _folder_of(meta, path)
    session.see_moment(plain_text(meta.get("startTime")))
    names = ("sessionId", "projectHash", "startTime", "lastUpdated")
    session.about = {name: text for name in names if (text := plain_text(meta.get(name)))}
    session.about |= {"cwd": session.folder} if session.folder else {}
    for message in messages:
        kind = plain_text(message.get("type"))
        session.lines[kind] += 1
        session.see_moment(plain_text(message.get("timestamp")))
        for call in listed(message.get("toolCalls")):
            session.tools[plain_text(fields_of(call).get("name"))] += 1
        if model := plain_text(message.get("model")):
            session.about["model"] = model
        text = _text_of(message.get("displayContent") or message.get("content"))
        if kind in _TURNS and not session.is_full and not text.startswith(_OWN):
            session.say(_TURNS[kind], text)
    session.see_moment(plain_text(meta.get("lastUpdated")))


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else plain_text(fields_of(part).get("text")) for part in parts]
    return "".join(text for text in texts if text).strip()


def _folder_of(meta: Mapping[str, Any], path: Path) -> str:
    """The folder that a session was about: as its project's folder here says, or the list of all projects."""
    project = path.parent.parent
    with suppress(OSError, UnicodeDecodeError):
        return (project / ".project_root").read_text(encoding="utf-8").strip()
    with suppress(OSError, ValueError, RecursionError):
        registered = json.loads((project.parent.parent / "projects.json").read_text(encoding="utf-8"))
        for folder, name in fields_of(fields_of(registered).get("projects")).items():
            if name == project.name or hashlib.sha256(folder.encode()).hexdigest() == meta.get("projectHash"):
                return str(folder)
    # Its own name, unless that is the hash of the folder's.
    is_named = path.parent.name == "chats" and len(project.name) < _HASH_LENGTH
    return project.name if is_named else ""


FORMAT = SessionFormat(
    "gemini-cli",
    "Gemini CLI",
    "transcripts of Gemini CLI: a file, or its folder tmp",
    ("session-*.json*", "chats/session-*.json*", "*/chats/session-*.json*"),
    _is_transcript,
    _gather,
    lambda path: not path.name.endswith((".json", ".jsonl")),
)
IMPORTER = FORMAT.importer()
