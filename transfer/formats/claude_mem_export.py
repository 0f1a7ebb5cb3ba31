"""The export of claude-mem in JSON, which its own importer takes.

A memory that came from there has its own columns again, except for what was changed here. Every other memory is an
observation.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.utils import timezone

from memories.records import normalise_tag, slug_name
from transfer.formats.claude_mem import SOURCE, hash_of_texts, observation_content, summary_content
from transfer.formats.drafts import fields_of, listed, plain_text
from transfer.formats.export import (
    Line,
    Lines,
    Waiting,
    as_there,
    json_bytes,
    json_list,
    original,
    own_title,
    spelt,
    type_of,
)

_OBSERVATION = (
    *("id", "memory_session_id", "project", "text", "type", "title", "subtitle", "facts", "narrative", "concepts"),
    *("files_read", "files_modified", "prompt_number", "discovery_tokens", "created_at", "created_at_epoch"),
)
_SUMMARY = (
    *("id", "memory_session_id", "project", "request", "investigated", "learned", "completed", "next_steps"),
    *("files_read", "files_edited", "notes", "prompt_number", "discovery_tokens", "created_at", "created_at_epoch"),
)
_PROMPT = (
    *("id", "content_session_id", "prompt_number", "prompt_text", "project", "platform_source"),
    *("created_at", "created_at_epoch"),
)
# Columns that can be the whole content of a memory.
_MAY_LACK = ((), ("narrative",), ("text",), ("narrative", "text"), ("title",))
# Columns about the session, which only some rows have.
_OF_SESSIONS = frozenset({"content_session_id", "platform_source", "memory_session_id"})

Row = dict[str, Any]


def write(lines: Lines) -> Iterator[bytes]:
    """The document. Observations are written as they come, the other lists and what counts them after these."""
    now = timezone.now()
    head = {"exportedAt": _iso(now), "exportedAtEpoch": _epoch(now), "query": ""}
    with Waiting() as sessions, Waiting() as summaries, Waiting() as prompts:
        export = _Export({"sessions": sessions, "summaries": summaries, "prompts": prompts})
        yield json_bytes(head)[:-1] + b', "observations": '
        yield from json_list(export.observations(lines))
        yield b', "sessions": '
        yield from json_list(export.sessions())
        for name in ("summaries", "prompts"):
            yield f', "{name}": '.encode()
            yield from json_list(line.rstrip(b"\n") for line in export.waiting[name].lines())
        yield b", " + json_bytes({f"total{name.title()}": count for name, count in export.totals.items()})[1:] + b"\n"


class _Session:
    """The facts about a session that its memories give."""

    __slots__ = ("content", "project", "since")

    def __init__(self, row: Row) -> None:
        self.content: str = row["content_session_id"]
        self.project: str = row["project"]
        self.since: int = row["created_at_epoch"]


class _Export:
    """The lists of an export."""

    def __init__(self, waiting: Mapping[str, Waiting]) -> None:
        self.waiting = waiting
        self.totals = dict.fromkeys(("observations", "sessions", "summaries", "prompts"), 0)
        self._projects: dict[str, str] = {}
        # By the id that claude-mem knows a session by.
        self._sessions: dict[str, _Session] = {}

    def observations(self, lines: Lines) -> Iterator[bytes]:
        """The observations; what is none waits."""
        for line in lines():
            match line.get("record"):
                case None:
                    kind, row = self._row(line)
                    self.totals[kind] += 1
                    if kind == "observations":
                        yield json_bytes(row)
                    else:
                        self.waiting[kind].add(json_bytes(row) + b"\n")
                case "project":
                    self._projects[line["slug"]] = line.get("name") or line["slug"]
                case "session":
                    self.waiting["sessions"].add(json_bytes(line) + b"\n")

    def _row(self, line: Line) -> tuple[str, Row]:
        raw = original(line, SOURCE)
        kind = line.get("id", "").partition(":")[0] if raw else ""
        row = self._common(line, raw)
        if kind == "prompt":
            return "prompts", _chosen(row | {"prompt_text": spelt(raw.get("prompt_text"), line["content"])}, _PROMPT)
        if kind == "summary":
            return "summaries", _chosen(row | _summary(line, raw), _SUMMARY)
        return "observations", _chosen(row | _observation(line, raw), _OBSERVATION)

    def _common(self, line: Line, raw: Mapping[str, Any]) -> Row:
        """The columns of every kind of row, and of the session that it belongs to."""
        here: str = line["project"]
        names = [plain_text(raw.get(name)) for name in ("merged_into_project", "project")]
        # The project of a row that was merged into another one is still that in which it was made.
        is_there = next((slug_name(name) for name in names if name), "") == here
        project: str = (names[1] if is_there else "") or self._projects.get(here, here)
        session, content = line.get("session", ""), plain_text(raw.get("content_session_id"))
        if not session:
            # The session that claude-mem itself makes for what has none.
            session, content = f"manual-{project}", f"manual-content-{project}"
        moment = datetime.fromisoformat(line["created_at"])
        text = plain_text(raw.get("created_at")) if raw.get("created_at_epoch") == _epoch(moment) else ""
        row: Row = dict(raw) | {
            "id": raw.get("id", line["stored"]["number"]),
            "memory_session_id": session,
            "content_session_id": content or session,
            "project": project,
            "platform_source": line.get("agent") or "claude",
            "created_at_epoch": _epoch(moment),
            "created_at": text or _iso(moment),
        }
        if not is_there:
            row.pop("merged_into_project", None)
        about = self._sessions.setdefault(session, _Session(row))
        about.since = min(about.since, row["created_at_epoch"])
        if content:
            about.content = content
        if is_there:
            about.project = project
        return row

    def sessions(self) -> Iterator[bytes]:
        """The sessions, each once: those of the memories, whether or not the lines have more about them."""
        contents: set[str] = set()
        missing = dict(self._sessions)
        for text in self.waiting["sessions"].lines():
            line = json.loads(text)
            if about := missing.pop(line["id"], None):
                yield self._session(line, about, contents)
        for session, about in missing.items():
            yield self._session({"id": session}, about, contents)

    def _session(self, line: Line, about: _Session, contents: set[str]) -> bytes:
        self.totals["sessions"] += 1
        ended = datetime.fromisoformat(line["ended_at"]) if "ended_at" in line else None
        since = line.get("started_at")
        started = datetime.fromisoformat(since) if since else datetime.fromtimestamp(about.since / 1000, UTC)
        # claude-mem refuses a whole file in which two sessions have one content id.
        content = about.content if about.content not in contents else line["id"]
        contents.add(content)
        return json_bytes(
            {
                "id": self.totals["sessions"],
                "content_session_id": content,
                "memory_session_id": line["id"],
                "project": about.project,
                "platform_source": line.get("agent") or "claude",
                "user_prompt": line.get("title"),
                "started_at": _iso(started),
                "started_at_epoch": _epoch(started),
                "completed_at": ended and _iso(ended),
                "completed_at_epoch": ended and _epoch(ended),
                "status": "completed" if ended else "active",
            }
        )


def _observation(line: Line, raw: Mapping[str, Any]) -> Row:
    tags = listed(fields_of(raw.get("metadata")).get("tags"), by_comma=True)
    known = {normalise_tag(plain_text(tag)) for tag in tags}
    # claude-mem has no tags: its concepts are what it filters by.
    concepts = [one["name"] for one in line.get("concepts", ())] + [
        tag for tag in line.get("tags", ()) if tag not in known
    ]
    row, kind = _restored(line, raw), raw.get("type")
    return {
        "type": kind if kind and type_of(kind) == line["type"] else line["type"],
        "title": spelt(row.get("title"), line.get("title")) if row.get("title") else own_title(line) or None,
        "subtitle": spelt(raw.get("subtitle"), line.get("summary")),
        "concepts": _names(raw.get("concepts"), concepts) or "[]",
        **{name: files or "[]" for name, files in _files(line, raw, "files_read", "files_modified").items()},
        **_texts(line, row),
    }


def _restored(line: Line, raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The original row. A column that was the whole content is not stored with it again; the id tells which one."""
    known_by = line.get("id", "").rpartition(":")[2]
    for lacking in _MAY_LACK:
        row = {**raw, **dict.fromkeys(lacking, line["content"])}
        if hash_of_texts(row) == known_by:
            return row
    return raw


def _texts(line: Line, row: Mapping[str, Any]) -> Row:
    """The columns of the text: those of the original row if they still make this text."""
    content: str = line["content"]
    made = observation_content({**row, "subtitle": line.get("summary"), "title": line.get("title")})
    if row and next((text for text in made if text), "") == content:
        return {"narrative": row.get("narrative"), "text": row.get("text"), "facts": row.get("facts") or "[]"}
    return {"narrative": content, "text": None, "facts": "[]"}


def _summary(line: Line, raw: Mapping[str, Any]) -> Row:
    files = _files(line, raw, "files_read", "files_edited")
    if summary_content(raw) == line["content"]:
        return files
    texts = dict.fromkeys(("investigated", "completed", "next_steps", "notes"))
    return files | texts | {"request": line.get("title"), "learned": line["content"]}


def _files(line: Line, raw: Mapping[str, Any], read: str, changed: str) -> Row:
    """The files of a row, which a memory has as entities without the difference between the two columns."""
    here = [one["name"] for one in line.get("entities", ()) if one["type"] == "file"]
    there = {name: [plain_text(one) for one in listed(raw.get(name))] for name in (read, changed)}
    known = {normalise_tag(name) for names in there.values() for name in names}
    kept = {name: [one for one in as_there(names, here) if one in names] for name, names in there.items()}
    kept[read] += [name for name in here if normalise_tag(name) not in known]
    return {
        name: raw.get(name) if names == there[name] else json.dumps(names, ensure_ascii=False)
        for name, names in kept.items()
    }


def _names(there: Any, here: Sequence[str]) -> str | None:
    stored = listed(there)
    names = as_there(stored, here)
    return there if isinstance(there, str) and names == stored else json.dumps(names, ensure_ascii=False)


def _chosen(row: Row, columns: Sequence[str]) -> Row:
    """The row with all of its columns, and what else the original record has."""
    kept = {name: value for name, value in row.items() if name in columns or name not in _OF_SESSIONS}
    return dict.fromkeys(columns) | kept


def _epoch(moment: datetime) -> int:
    """Milliseconds since 1970."""
    return round(moment.timestamp() * 1000)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
