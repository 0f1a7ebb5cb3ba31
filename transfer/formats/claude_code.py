"""Transcripts of Claude Code: lines of JSON, a file for each session, in a folder for each project."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from transfer.formats.drafts import fields_of, listed, plain_text
from transfer.formats.sessions import FILES_SEARCHED, SessionFormat, SessionText, gather_lines
from transfer.formats.sources import Document

_TURNS = {"user": "User", "assistant": "Assistant"}
# Texts that the program itself puts into a prompt.
_COMMANDS = ("<command-", "<local-command-", "<system-reminder>", "Caveat: The messages below")
_WORKING_FOLDER = re.compile(r'"cwd":\s*(?P<folder>"(?:[^"\\]|\\.)*")')
# Files of side tasks, next to the sessions that started them.
_SIDE_TASK = "agent-"
# Lines that name a session, and the field of the name: that of older versions, the program's, and a person's.
_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}


def _is_transcript(document: Document) -> bool:
    for line in document.start.split("\n", 50)[:50]:
        if '"sessionId"' not in line:
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            # The last line that was read may be cut.
            return '"parentUuid"' in line and '"message"' in line
        if isinstance(row, dict) and plain_text(row.get("type")) in _TURNS and isinstance(row.get("message"), dict):
            return True
    return False


def _add_line(session: SessionText, row: Mapping[str, Any]) -> None:
    kind = plain_text(row.get("type"))
    session.lines[kind] += 1
    for name in ("sessionId", "cwd", "gitBranch", "version", "timestamp"):
        if text := plain_text(row.get(name)):
            session.about.setdefault(name, text)
    about = session.about
    session.id, session.folder = about.get("sessionId", ""), about.get("cwd", "")
    session.branch = about.get("gitBranch", "")
    session.see_moment(plain_text(row.get("timestamp")))
    _add_title(session, kind, row)
    if kind not in _TURNS or row.get("isMeta") or row.get("isSidechain"):
        return
    message = fields_of(row.get("message"))
    if model := plain_text(message.get("model")):
        about["model"] = model
    session.say(_TURNS[kind], _text_of(session, message))


def _add_title(session: SessionText, kind: str, row: Mapping[str, Any]) -> None:
    """Take a title, unless one of a better kind is known."""
    if kind in _TITLES and (title := plain_text(row.get(_TITLES[kind]))):
        kinds = list(_TITLES)
        if kinds.index(kind) >= session.title_rank:
            session.title, session.title_rank = title, kinds.index(kind)


def _text_of(session: SessionText, message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return "" if content.lstrip().startswith(_COMMANDS) else content.strip()
    texts: list[str] = []
    for part in map(fields_of, listed(content)):
        if part.get("type") == "tool_use":
            session.tools[plain_text(part.get("name"))] += 1
        elif part.get("type") == "text" and not plain_text(part.get("text")).startswith(_COMMANDS):
            texts.append(plain_text(part.get("text")))
    return "\n\n".join(text for text in texts if text)


FORMAT = SessionFormat(
    "claude-code",
    "Claude Code",
    "transcripts of Claude Code: a file, or its folder of projects",
    ("*.jsonl", "*/*.jsonl"),
    _is_transcript,
    partial(gather_lines, _add_line),
    lambda path: path.name.startswith(_SIDE_TASK),
)
IMPORTER = FORMAT.importer()


def working_folder(folder: Path) -> str:
    """The folder that the sessions in one of Claude Code's folders were about; empty if none tells it."""
    for document in FORMAT.files(folder)[:FILES_SEARCHED]:
        if match := _WORKING_FOLDER.search(document.start):
            with suppress(ValueError):
                return str(json.loads(match["folder"]))
    return ""
