"""Transcripts of Claude Code: lines of JSON, a file for each session, in a folder for each project.

A session becomes one memory with what was asked and answered. Calls of tools and their results are counted, not stored.
"""

import hashlib
import json
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from memories.records import MAX_CONTENT
from transfer.formats.base import (
    ImportFailedError,
    NotReadableError,
    Options,
    Reading,
    Records,
    RefusedRecord,
    SourceRecord,
    read_guarded,
)
from transfer.formats.conversations import asked_title, conversation_text
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
from transfer.formats.importer import Following, Importer
from transfer.formats.jsonl import records_of_lines
from transfer.formats.sources import Document, Source

_TURNS = {"user": "User", "assistant": "Assistant"}
# Texts that the program itself puts into a prompt.
_COMMANDS = ("<command-", "<local-command-", "<system-reminder>", "Caveat: The messages below")
_FILES_SEARCHED = 20
_WORKING_FOLDER = re.compile(r'"cwd":\s*(?P<folder>"(?:[^"\\]|\\.)*")')
# A session that was written to this lately goes on.
_RESTS_AFTER_NS = 300_000_000_000
# Files of side tasks, next to the sessions that started them.
_SIDE_TASK = "agent-"
# Lines that name a session, and the field of the name: a person's, the program's, and that of its older versions.
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle", "summary": "summary"}


def knows(source: Source) -> bool:
    if source.path.is_dir():
        return any(_is_transcript(document) for document in _transcripts(source.path)[:_FILES_SEARCHED])
    return any(_is_transcript(document) for document in source.documents)


def _transcripts(folder: Path) -> list[Document]:
    """The files of sessions in a folder and in the folders of projects in it."""
    files = sorted([*folder.glob("*.jsonl"), *folder.glob("*/*.jsonl")])
    sessions = (file for file in files if not file.is_symlink() and not file.name.startswith(_SIDE_TASK))
    return [Document(file.relative_to(folder).as_posix(), file) for file in sessions]


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


def read(path: Path, options: Options) -> Reading:
    documents = _transcripts(path) if path.is_dir() else list(Source(path).documents)
    documents = [document for document in documents if _is_transcript(document)]
    if not documents:
        raise NotReadableError(f"{path}: holds no transcripts of Claude Code.")
    return _reading(documents, options)


def _reading(documents: Sequence[Document], options: Options) -> Reading:
    done = 0

    def records() -> Records:
        nonlocal done
        for document in documents:
            yield from read_guarded(document.name or document.path.name, partial(_session, document, options))
            done += 1

    return Reading(records(), lambda: done / len(documents) if documents else None)


class _Transcript:
    """The texts and counts of one session, gathered from its lines."""

    def __init__(self) -> None:
        self.about: dict[str, str] = {}
        self.turns: list[tuple[str, str]] = []
        self.size = 0
        self.titles: dict[str, str] = {}
        self.counts: Counter[str] = Counter()
        self.tools: Counter[str] = Counter()

    def add(self, row: Mapping[str, Any]) -> None:
        kind = plain_text(row.get("type"))
        self.counts[kind] += 1
        for name in ("sessionId", "cwd", "gitBranch", "version", "timestamp"):
            if text := plain_text(row.get(name)):
                self.about.setdefault(name, text)
                if name == "timestamp":
                    self.about["last"] = text
        if kind in _TITLES and (title := plain_text(row.get(_TITLES[kind]))):
            self.titles[kind] = title
        if kind not in _TURNS or row.get("isMeta") or row.get("isSidechain"):
            return
        message = fields_of(row.get("message"))
        if model := plain_text(message.get("model")):
            self.about["model"] = model
        if text := self._said(message):
            self.turns.append((_TURNS[kind], text))
            self.size += len(text)

    def _said(self, message: Mapping[str, Any]) -> str:
        content = message.get("content")
        if isinstance(content, str):
            return "" if content.lstrip().startswith(_COMMANDS) else content.strip()
        texts: list[str] = []
        for part in map(fields_of, listed(content)):
            if part.get("type") == "tool_use":
                self.tools[plain_text(part.get("name"))] += 1
            elif part.get("type") == "text" and not plain_text(part.get("text")).startswith(_COMMANDS):
                texts.append(plain_text(part.get("text")))
        return "\n\n".join(text for text in texts if text)


def _session(document: Document, options: Options) -> Iterator[SourceRecord | RefusedRecord]:
    location = document.name or document.path.name
    transcript = _Transcript()
    with document.opened() as lines:
        for line in records_of_lines(lines, options):
            if isinstance(line, RefusedRecord):
                yield RefusedRecord(f"{location} {line.location}", line.reason)
            elif transcript.size <= MAX_CONTENT:
                transcript.add(line.data)
    about = transcript.about
    if not transcript.turns:
        yield RefusedRecord(location, "is a session without messages")
        return
    raw = {
        **{name: value for name, value in about.items() if name != "last"},
        "lines": dict(transcript.counts),
        "tools": dict(transcript.tools),
    }
    draft = Draft(location, raw, "claude-code")
    draft.text("id", f"session:{about.get('sessionId', document.path.stem)}")
    draft.data["type"] = "session"
    draft.text("project", options.project, folder_name(about.get("cwd", "")))
    draft.text("session", about.get("sessionId"))
    draft.text("agent", "claude-code")
    draft.text("title", *(transcript.titles.get(kind) for kind in _TITLES), asked_title(transcript.turns))
    tools = ", ".join(f"{name} {count}" for name, count in transcript.tools.most_common(8) if name)
    draft.text("content", conversation_text(transcript.turns, f"calls of tools: {tools}" if tools else ""))
    draft.moment("created_at", about.get("timestamp"))
    draft.moment("updated_at", about.get("last"))
    if branch := about.get("gitBranch"):
        draft.entities("branch", [branch])
    yield draft.record()


def folder_name(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2][:100]


def working_folder(folder: Path) -> str:
    """The folder that the sessions in one of Claude Code's folders were about; empty if none tells it."""
    for document in _transcripts(folder)[:_FILES_SEARCHED]:
        if match := _WORKING_FOLDER.search(document.start):
            with suppress(ValueError):
                return str(json.loads(match["folder"]))
    return ""


# --- following ---------------------------------------------------------------------------------------------------


def parts(path: Path) -> Iterator[tuple[str, str]]:
    """The sessions, and a text that differs once one has gone on and rested: one that goes on is not read yet."""
    now = time.time_ns()
    for document in _transcripts(path) if path.is_dir() else [Document(path.name, path)]:
        with suppress(FileNotFoundError):
            state = document.path.stat()
            rests = not 0 <= now - state.st_mtime_ns < _RESTS_AFTER_NS
            yield document.name, f"{state.st_ino} {state.st_size} {state.st_mtime_ns}" if rests else ""


def stamp(path: Path) -> str:
    if not path.exists():
        raise ImportFailedError(f"{path}: is not there.")
    return hashlib.blake2b("\n".join(map(" ".join, parts(path))).encode(), digest_size=16).hexdigest()


def read_parts(path: Path, options: Options, locations: Collection[str]) -> Reading:
    documents = _transcripts(path) if path.is_dir() else [Document(path.name, path)]
    return _reading([one for one in documents if one.name in locations and _is_transcript(one)], options)


IMPORTER = Importer(
    "claude-code",
    "transcripts of Claude Code: a file, or its folder of projects",
    knows,
    read,
    follow=Following(stamp, parts, read_parts),
)
