"""claude-mem: its SQLite database, which may be in use, and its export in JSON.

Observations, summaries of sessions and prompts become memories; sessions become sessions.
"""

import contextlib
import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from transfer.formats.base import NotReadableError, Options, Reading, Records, RefusedRecord, SourceRecord
from transfer.formats.drafts import Draft, fields_of, listed, plain_text, sections
from transfer.formats.importer import Following, Importer
from transfer.formats.sources import (
    DamagedError,
    Document,
    Position,
    Source,
    document_reading,
    readable_database,
    values_of,
)
from transfer.formats.sqlite import database_reading, stamp

SOURCE = "claude-mem"
# The columns that a table needs, under their present names.
_NEEDED = {
    "sdk_sessions": {"content_session_id", "project"},
    "observations": {"memory_session_id", "project", "created_at_epoch"},
    "session_summaries": {"memory_session_id", "project", "created_at_epoch"},
    "user_prompts": {"content_session_id", "prompt_number", "prompt_text"},
}
# Present names -> those before version 17.
_FORMER = {"content_session_id": "claude_session_id", "memory_session_id": "sdk_session_id"}
# The schemas that are read. A newer one is read too as long as it has the columns.
_OLDEST, _NEWEST = 4, 52
# The tables of versions before 4, which had no observations.
_OLD_TABLES = {"memories", "overviews", "sessions"}
# Row numbers and bookkeeping differ between the database, its exports and other machines' copies.
_VOLATILE = frozenset(
    {
        *("id", "session_db_id", "memory_session_id", "project", "platform_source", "created_at", "content_hash"),
        *("relevance_count", "discovery_tokens", "synced_at", "origin_device_id", "origin_local_id", "sync_rev"),
    }
)
# Claude's id of the session is stored with its memories too, since a session has one id only.
_VOLATILE_OF_SESSIONS = _VOLATILE | {"content_session_id"}
_SUMMARY_SECTIONS = {
    "request": "Request",
    "investigated": "Investigated",
    "learned": "Learned",
    "completed": "Completed",
    "next_steps": "Next steps",
    "notes": "Notes",
}
# The lists of an export -> the tables of their rows.
_LISTS = {
    "sessions": "sdk_sessions",
    "observations": "observations",
    "summaries": "session_summaries",
    "prompts": "user_prompts",
}

Row = Mapping[str, Any]


def knows(source: Source) -> bool:
    """Whether a source is claude-mem's database or export. Raises NotReadableError for an older database."""
    if source.is_database:
        return _knows_database(source)
    return any(_is_export(document) for document in source.documents)


def _is_export(document: Document) -> bool:
    # The counts are at the end of an export that is written here.
    return {"exportedAt", "exportedAtEpoch", "observations"} <= document.keys


def _knows_database(source: Source) -> bool:
    tables = source.tables
    if "schema_versions" not in tables:
        return False
    missing = _NEEDED["observations"] - {_present(name) for name in tables.get("observations", ())}
    if not missing:
        return True
    if "observations" not in tables and "sdk_sessions" not in tables and not tables.keys() >= _OLD_TABLES:
        return False
    with readable_database(source.path) as connection:
        version = connection.execute("SELECT max(version) FROM schema_versions").fetchone()[0]
    if isinstance(version, int) and version > _NEWEST:
        reason, advice = "newer than any that is read", "Export it as JSON there, or import it with a newer program."
    elif isinstance(version, int) and version >= _OLDEST:
        reason, advice = f"without {', '.join(sorted(missing))} of its observations", "Get an undamaged copy."
    else:
        reason = "older than any that is read"
        advice = "Start a newer claude-mem once, which brings it up to date."
    raise NotReadableError(
        f"{source.path}: this is a claude-mem database of schema {version}, which is {reason} "
        f"({_OLDEST} to {_NEWEST}). {advice}"
    )


def read(path: Path, options: Options) -> Reading:
    source = Source(path)
    if source.is_database:
        return _database_reading(source, options)
    documents = [document for document in source.documents if _is_export(document)]
    if not documents:
        raise NotReadableError(f"{path}: is neither claude-mem's database nor its export.")
    sessions = _Sessions()

    def of_value(document: Document, key: str, location: str, value: Any) -> Iterator[SourceRecord | RefusedRecord]:
        if table := _LISTS.get(key):
            if isinstance(value, Mapping):
                yield _record(table, location, value, sessions)
            else:
                yield RefusedRecord(location, "is no object; a row of claude-mem is one")

    reading = document_reading(documents, options, of_value, at_end=sessions.merged)

    def records() -> Records:
        # An export has its sessions after the observations that belong to them.
        for document in documents:
            with contextlib.suppress(DamagedError):
                for key, _, value in values_of(document, Position()):
                    if key == "sessions" and isinstance(value, Mapping):
                        sessions.add(value, SourceRecord("", _session(value)))
        yield from reading.records

    return Reading(records(), reading.fraction)


def _database_reading(source: Source, options: Options) -> Reading:
    sessions = _Sessions()
    # Sessions first: prompts have the project of theirs.
    tables = {name: source.tables[name] for name in _NEEDED if name in source.tables}
    lacking = {
        name: missing
        for name, columns in tables.items()
        if (missing := _NEEDED[name] - {_present(column) for column in columns})
    }

    def records(connection: sqlite3.Connection, table: str, location: str, row: Row) -> Iterator[SourceRecord]:
        yield _record(table, location, {_present(name): value for name, value in row.items()}, sessions)

    def at_end() -> Iterator[SourceRecord | RefusedRecord]:
        for name, missing in lacking.items():
            yield RefusedRecord(name, f"has no column {', '.join(sorted(missing))}; none of it is read")
        yield from sessions.merged()

    chosen = [(name, sorted(columns)) for name, columns in tables.items() if name not in lacking]
    return database_reading(source.path, options, chosen, records, at_end=at_end)


def _present(name: str) -> str:
    return next((present for present, former in _FORMER.items() if former == name), name)


class _Sessions:
    """The sessions read so far, for rows of other tables: prompts have no project of their own."""

    def __init__(self) -> None:
        self._by_content: dict[str, tuple[str, str, str]] = {}
        self._records: dict[str, SourceRecord] = {}
        self._agents: dict[str, str] = {}
        self._contents: dict[str, str] = {}
        self._elsewhere: set[tuple[str, str]] = set()

    def add(self, row: Row, record: SourceRecord) -> None:
        content, memory = plain_text(row.get("content_session_id")), plain_text(row.get("memory_session_id"))
        agent = plain_text(row.get("platform_source")) or "claude"
        self._by_content[content] = (memory or content, plain_text(row.get("project")), agent)
        if agent != "claude":
            self._agents[memory] = agent
        if content:
            self._contents[memory] = content
        self._records[memory] = record

    def merge(self, session: str, project: str) -> None:
        """Record that rows of a session were merged into another project, which then has the session too."""
        self._elsewhere.add((session, project))

    def merged(self) -> Iterator[SourceRecord]:
        for session, project in sorted(self._elsewhere):
            if record := self._records.get(session):
                yield replace(record, data=record.data | {"project": project})

    def of_prompt(self, row: Row) -> tuple[str, str, str]:
        """The session, project and agent of a prompt."""
        content = plain_text(row.get("content_session_id"))
        return self._by_content.get(content, (content, plain_text(row.get("project")), "claude"))

    def agent(self, memory_session_id: str) -> str:
        return self._agents.get(memory_session_id, "claude")

    def content(self, memory_session_id: str) -> str | None:
        """The id that the agent itself gave the session."""
        return self._contents.get(memory_session_id)


def _record(table: str, location: str, row: Row, sessions: _Sessions) -> SourceRecord:
    if table == "sdk_sessions":
        record = SourceRecord(location, _session(row))
        sessions.add(row, record)
        return record
    draft = Draft(location, _raw(row), SOURCE)
    if table == "user_prompts":
        _draft_prompt(draft, row, sessions)
    else:
        session = plain_text(row.get("memory_session_id"))
        if content := sessions.content(session):
            draft.raw = {**draft.raw, "content_session_id": content}
        draft.text("project", row.get("merged_into_project"), row.get("project"))
        draft.text("session", session)
        draft.text("agent", row.get("platform_source"), sessions.agent(session))
        if plain_text(row.get("merged_into_project")):
            sessions.merge(session, draft.data["project"])
        if table == "observations":
            _draft_observation(draft, row, session)
        else:
            _draft_summary(draft, row, session)
    draft.moment("created_at", row.get("created_at_epoch"), row.get("created_at"))
    draft.data["updated_at"] = draft.data.get("created_at")
    return draft.record(_VOLATILE if table == "user_prompts" else _VOLATILE_OF_SESSIONS)


def _raw(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value not in (None, "", "[]", [])}


def _session(row: Row) -> dict[str, Any]:
    draft = Draft("", row, SOURCE)
    draft.text("id", row.get("memory_session_id"), row.get("content_session_id"))
    draft.text("project", row.get("project"))
    draft.text("agent", row.get("platform_source"), "claude")
    draft.text("title", row.get("custom_title"), row.get("user_prompt"))
    draft.moment("started_at", row.get("started_at_epoch"), row.get("started_at"))
    draft.moment("ended_at", row.get("completed_at_epoch"), row.get("completed_at"))
    title = " ".join(draft.data.pop("title", "").split())
    return draft.data | {"record": "session", "title": title if len(title) <= 500 else title[:499] + "…"}


def _draft_observation(draft: Draft, row: Row, session: str) -> None:
    draft.text("id", f"observation:{session}:{row.get('created_at_epoch')}:{hash_of_texts(row)}")
    draft.text("type", row.get("type"), "observation")
    draft.text("title", row.get("title"))
    draft.text("summary", row.get("subtitle"))
    draft.text("content", *observation_content(row))
    draft.names("concepts", listed(row.get("concepts")))
    _draft_files(draft, row, "files_read", "files_modified")
    if agent_type := plain_text(row.get("agent_type")):
        draft.entities("agent", [agent_type])
    draft.names("tags", listed(fields_of(row.get("metadata")).get("tags"), by_comma=True))


def hash_of_texts(row: Row) -> str:
    """A hash that distinguishes observations of a moment: `content_hash` is random for rows older than that column."""
    texts = (plain_text(row.get(name)) for name in ("title", "narrative", "text"))
    return hashlib.sha256("\0".join(texts).encode(errors="replace")).hexdigest()[:16]


def observation_content(row: Row) -> tuple[str, str, str]:
    """The text of an observation, and what stands for it if it has none."""
    narrative, text = plain_text(row.get("narrative")), plain_text(row.get("text"))
    facts = [plain_text(fact) for fact in listed(row.get("facts")) if plain_text(fact)]
    body = "\n\n".join(part for part in dict.fromkeys((narrative, text)) if part)
    text = sections((("", body), ("Facts" if body else "", facts)))
    return text, plain_text(row.get("subtitle")), plain_text(row.get("title"))


def summary_content(row: Row) -> str:
    """The text of the summary of a session."""
    return sections((heading, plain_text(row.get(name))) for name, heading in _SUMMARY_SECTIONS.items())


def _draft_summary(draft: Draft, row: Row, session: str) -> None:
    draft.text("id", f"summary:{session}:{row.get('created_at_epoch')}")
    draft.data["type"] = "session-summary"
    request = " ".join(plain_text(row.get("request")).split())
    draft.text("title", request if len(request) <= 200 else request[:199] + "…")
    draft.text("content", summary_content(row))
    _draft_files(draft, row, "files_read", "files_edited")


def _draft_prompt(draft: Draft, row: Row, sessions: _Sessions) -> None:
    session, project, agent = sessions.of_prompt(row)
    draft.text("id", f"prompt:{plain_text(row.get('content_session_id'))}:{row.get('prompt_number')}")
    draft.data["type"] = "prompt"
    draft.text("project", project)
    draft.text("session", session)
    draft.text("agent", agent)
    draft.text("content", row.get("prompt_text"))
    if len(plain_text(row.get("prompt_text"))) > len(draft.data.get("content", "")):
        # The raw record repeats no text, and this one is stored as far as it fits.
        draft.raw = {name: value for name, value in draft.raw.items() if name != "prompt_text"}


def _draft_files(draft: Draft, row: Row, *columns: str) -> None:
    for column in columns:
        with contextlib.suppress(TypeError):
            draft.entities("file", listed(row.get(column), by_comma=False))


IMPORTER = Importer(
    "claude-mem", "claude-mem's database (claude-mem.db) or its export in JSON", knows, read, follow=Following(stamp)
)
