"""Transcripts of agents' sessions: a file for each, in folders. Each program's file has a small parser of its own.

A session becomes one memory with what was asked and answered. Calls of tools and their results are counted, not stored.
"""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
from transfer.formats.drafts import Draft
from transfer.formats.importer import Following, Importer
from transfer.formats.jsonl import records_of_lines
from transfer.formats.sources import Document, Source

FILES_SEARCHED = 20
# A session that was written to this lately goes on.
_RESTS_AFTER_NS = 300_000_000_000


@dataclass(slots=True)
class SessionText:
    """The texts and counts of one session, gathered from its file. `about` is stored in its raw record."""

    id: str = ""
    folder: str = ""
    branch: str = ""
    title: str = ""
    title_rank: int = 0
    first: str = ""
    last: str = ""
    is_side_task: bool = False
    """Whether another session started it."""
    about: dict[str, Any] = field(default_factory=dict)
    turns: list[tuple[str, str]] = field(default_factory=list)
    size: int = 0
    lines: Counter[str] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)

    def say(self, speaker: str, text: str) -> None:
        """Add a turn, unless it is empty."""
        if text:
            self.turns.append((speaker, text))
            self.size += len(text)

    def see_moment(self, moment: str) -> None:
        """Widen the time of the session."""
        if moment:
            self.first = self.first or moment
            self.last = moment

    @property
    def is_full(self) -> bool:
        """Whether it has as much text as a memory takes."""
        return self.size > MAX_CONTENT


@dataclass(frozen=True, slots=True)
class SessionFormat:
    """The files of a program's sessions: where they are in its folder, how they are known, and their parser.

    `gather` fills a session from a file, and gives what of it cannot be read.
    """

    name: str
    program: str
    looks_like: str
    patterns: tuple[str, ...]
    is_session: Callable[[Document], bool]
    gather: Callable[[SessionText, Document, Options], Iterator[RefusedRecord]]
    is_left_out: Callable[[Path], bool] = lambda path: False

    def importer(self) -> Importer:
        return Importer(
            self.name, self.looks_like, self.knows, self.read, follow=Following(self.stamp, self.parts, self.read_parts)
        )

    def knows(self, source: Source) -> bool:
        if source.path.is_dir():
            return any(self.is_session(document) for document in self.files(source.path)[:FILES_SEARCHED])
        # An archive that has notes too, as an agent's own memory, is read as one of several files.
        return not source.has_notes and any(self.is_session(document) for document in source.documents)

    def files(self, folder: Path) -> list[Document]:
        """The files of sessions in a folder."""
        found = sorted({path for pattern in self.patterns for path in folder.glob(pattern)})
        sessions = (path for path in found if not path.is_symlink() and not self.is_left_out(path))
        return [Document(path.relative_to(folder).as_posix(), path) for path in sessions]

    def read(self, path: Path, options: Options) -> Reading:
        documents = self.files(path) if path.is_dir() else list(Source(path).documents)
        documents = [document for document in documents if self.is_session(document)]
        if not documents:
            raise NotReadableError(f"{path}: holds no transcripts of {self.program}.")
        return self._reading(documents, options)

    def _reading(self, documents: Sequence[Document], options: Options) -> Reading:
        done = 0

        def records() -> Records:
            nonlocal done
            for document in documents:
                yield from read_guarded(document.name or document.path.name, partial(self._records, document, options))
                done += 1

        return Reading(records(), lambda: done / len(documents) if documents else None)

    def _records(self, document: Document, options: Options) -> Iterator[SourceRecord | RefusedRecord]:
        location, session = document.name or document.path.name, SessionText()
        for refused in self.gather(session, document, options):
            yield RefusedRecord(f"{location} {refused.location}".strip(), refused.reason)
        if session.is_side_task:
            yield RefusedRecord(location, "is a side task of another session, and not read")
            return
        if not session.turns:
            yield RefusedRecord(location, "is a session without messages")
            return
        raw = {**session.about, "lines": dict(session.lines), "tools": dict(session.tools)}
        draft = Draft(location, raw, self.name)
        draft.text("id", f"session:{session.id or document.path.stem}")
        draft.data["type"] = "session"
        draft.text("project", options.project, folder_name(session.folder))
        draft.text("session", session.id)
        draft.text("agent", self.name)
        draft.text("title", session.title, asked_title(session.turns))
        tools = ", ".join(f"{name} {count}" for name, count in session.tools.most_common(8) if name)
        draft.text("content", conversation_text(session.turns, f"calls of tools: {tools}" if tools else ""))
        draft.moment("created_at", session.first)
        draft.moment("updated_at", session.last)
        if session.branch:
            draft.entities("branch", [session.branch])
        yield draft.record()

    # --- following ---------------------------------------------------------------------------------------------------

    def parts(self, path: Path) -> Iterator[tuple[str, str]]:
        """The sessions, and a text that differs once one has gone on and rested: one that goes on is not read yet."""
        now = time.time_ns()
        for document in self.files(path) if path.is_dir() else [Document(path.name, path)]:
            with suppress(FileNotFoundError):
                state = document.path.stat()
                rests = not 0 <= now - state.st_mtime_ns < _RESTS_AFTER_NS
                yield document.name, f"{state.st_ino} {state.st_size} {state.st_mtime_ns}" if rests else ""

    def stamp(self, path: Path) -> str:
        if not path.exists():
            raise ImportFailedError(f"{path}: is not there.")
        return hashlib.blake2b("\n".join(map(" ".join, self.parts(path))).encode(), digest_size=16).hexdigest()

    def read_parts(self, path: Path, options: Options, locations: Collection[str]) -> Reading:
        documents = self.files(path) if path.is_dir() else [Document(path.name, path)]
        return self._reading([one for one in documents if one.name in locations and self.is_session(one)], options)


def folder_name(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2][:100]


def gather_lines(
    add: Callable[[SessionText, dict[str, Any]], None], session: SessionText, document: Document, options: Options
) -> Iterator[RefusedRecord]:
    """Fill a session from a file with an object on each line."""
    with document.opened() as lines:
        for line in records_of_lines(lines, options):
            if isinstance(line, RefusedRecord):
                yield line
            elif not session.is_full:
                add(session, line.data)
