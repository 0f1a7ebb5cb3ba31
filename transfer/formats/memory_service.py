"""mcp-memory-service: its SQLite database with the edges of its graph, and its exports and backups in JSON."""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from django.utils import timezone

from memories.timestamps import parse_moment
from transfer.formats.base import NotReadableError, Options, Reading, RefusedRecord, SourceRecord
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
from transfer.formats.export import Line, Lines, as_there, json_bytes, json_list, original, own_title, spelt, type_of
from transfer.formats.files import shown_name
from transfer.formats.importer import Following, Importer
from transfer.formats.sources import Document, Source, document_reading
from transfer.formats.sqlite import database_reading, stamp

SOURCE = "mcp-memory-service"
_COLUMNS = {"content_hash", "content", "tags", "memory_type", "metadata"}
_VOLATILE = frozenset({"id", "last_accessed", "created_at_iso", "updated_at_iso", "export_source", "content_hash"})

Row = Mapping[str, Any]
# The edges from a memory, given its hash: relation and hash of the target.
Edges = Callable[[str], Iterator[tuple[str, str]]]


def knows(source: Source) -> bool:
    if source.is_database:
        return source.tables.get("memories", frozenset()) >= _COLUMNS
    return any(_is_export(document) for document in source.documents)


def _is_export(document: Document) -> bool:
    fields = document.fields("memories")
    return fields >= {"content", "content_hash"} or fields >= {"id", "document", "metadata"}


def read(path: Path, options: Options) -> Reading:
    source = Source(path)
    if source.is_database:
        return database_reading(path, options, [("memories", sorted(source.tables["memories"]))], _row_records(source))
    documents = [document for document in source.documents if _is_export(document)]
    if not documents:
        raise NotReadableError(f"{path}: is neither a database nor an export of mcp-memory-service.")

    def records(document: Document, key: str, location: str, value: Any) -> Iterator[SourceRecord | RefusedRecord]:
        if key != "memories":
            return
        if isinstance(value, Mapping):
            yield _record(location, _present(value), lambda content_hash: iter(()))
        else:
            yield RefusedRecord(location, "is no object; a memory is one")

    return document_reading(documents, options, records)


def _row_records(source: Source) -> Callable[[sqlite3.Connection, str, str, Row], Iterator[SourceRecord]]:
    columns = source.tables.get("memory_graph", frozenset())
    typed = "relationship_type" if "relationship_type" in columns else "'related'"
    # Constants and a table of that name; the hash is a parameter.
    statement = f"SELECT {typed}, target_hash FROM memory_graph WHERE source_hash = ? ORDER BY target_hash LIMIT 1000"

    def records(connection: sqlite3.Connection, table: str, location: str, row: Row) -> Iterator[SourceRecord]:
        def edges(content_hash: str) -> Iterator[tuple[str, str]]:
            if columns:
                yield from connection.execute(statement, [content_hash])

        yield _record(location, row, edges)

    return records


def _present(row: Row) -> dict[str, Any]:
    """A row of an export, and of a backup in the form of older versions, with the present names. Without vectors."""
    present = {name: value for name, value in row.items() if name != "embedding"}
    if "document" in present:
        metadata = fields_of(present.get("metadata"))
        content = plain_text(present.pop("document"))
        present = {
            "content": content,
            "content_hash": metadata.get("content_hash") or present.get("id"),
            "tags": metadata.get("tags") or metadata.get("tags_str"),
            "memory_type": metadata.get("memory_type") or metadata.get("type"),
            "created_at": metadata.get("created_at") or metadata.get("timestamp_float") or metadata.get("timestamp"),
            "updated_at": metadata.get("updated_at"),
        } | present
    return present


def _record(location: str, row: Row, edges: Edges) -> SourceRecord:
    metadata = fields_of(row.get("metadata"))
    raw = {name: value for name, value in row.items() if value not in (None, "", "{}", {})}
    if metadata:
        raw["metadata"] = metadata
    draft = Draft(location, raw, SOURCE)
    content = plain_text(row.get("content"))
    content_hash = plain_text(row.get("content_hash")) or hash_of(content)
    draft.text("id", content_hash)
    draft.text("type", row.get("memory_type"))
    draft.text("content", content)
    draft.text("title", metadata.get("title"))
    draft.text("summary", metadata.get("summary"))
    draft.names("tags", listed(row.get("tags"), by_comma=True))
    draft.moment("created_at", row.get("created_at"), row.get("created_at_iso"))
    draft.moment("updated_at", row.get("updated_at"), row.get("updated_at_iso"), draft.data.get("created_at"))
    if row.get("confidence") is not None:
        draft.fraction("confidence", row["confidence"])
    if successor := plain_text(row.get("superseded_by")):
        draft.data["superseded_by"] = successor
    if row.get("deleted_at"):
        draft.data["state"] = "deleted"
    if parent := plain_text(row.get("parent_id")):
        draft.link("parent", parent)
    for relation, target in edges(content_hash):
        draft.link(plain_text(relation) or "related", plain_text(target))
    return draft.record(_VOLATILE)


def hash_of(content: str) -> str:
    """The hash that mcp-memory-service knows a text by."""
    return hashlib.sha256(content.strip().lower().encode(errors="replace")).hexdigest()


IMPORTER = Importer(
    SOURCE,
    "a database of mcp-memory-service (SQLite), or its export or backup in JSON",
    knows,
    read,
    follow=Following(stamp),
)

# --- the export --------------------------------------------------------------------------------------------------

# Fields of a record that are metadata there, in their order.
_METADATA = (
    *("title", "summary", "project", "categories", "concepts", "entities", "links", "state", "happened_at"),
    *("valid_from", "valid_to", "importance", "confidence", "pinned", "authors", "agent", "session", "source"),
    *("source_url",),
)
_MACHINE = "mnemoscope"


def write(lines: Lines) -> Iterator[bytes]:
    """The document, with what counts its memories at its end.

    What it has no field for is in `metadata`, where it keeps whatever it is given. A memory that came from there has
    its own metadata, tags and hash again.
    """
    total = 0

    def memories() -> Iterator[bytes]:
        nonlocal total
        for line in lines():
            if "record" not in line:
                total += 1
                yield json_bytes(_memory(line))

    yield b'{"memories": '
    yield from json_list(memories())
    about = {
        "source_machine": _MACHINE,
        "export_timestamp": timezone.now().isoformat(),
        "total_memories": total,
        "include_embeddings": False,
        "filter_tags": None,
    }
    yield b', "export_metadata": ' + json_bytes(about) + b"}\n"


def _memory(line: Line) -> dict[str, Any]:
    raw = original(line, SOURCE)
    kind, tags = line["type"], line.get("tags", [])
    return {
        "content_hash": _hash(line, raw),
        "content": spelt(raw.get("content"), line["content"]),
        "tags": as_there(listed(raw.get("tags"), by_comma=True), tags) if raw else [*tags, f"proj:{line['project']}"],
        "created_at": _seconds(line["created_at"], raw.get("created_at")),
        "updated_at": _seconds(line["updated_at"], raw.get("updated_at")),
        # A memory without a type is a note here.
        "memory_type": raw.get("memory_type") if raw and type_of(raw.get("memory_type")) == kind else kind,
        "metadata": _own_metadata(line, raw) if raw else _metadata(line),
        "export_source": _MACHINE,
    }


def _hash(line: Line, raw: Mapping[str, Any]) -> str:
    """The hash that the memory is known by there, unless its text has changed here since."""
    computed = hash_of(line["content"])
    # Older versions hashed more than the text, so that a text that is unchanged can have another hash.
    draft = Draft("", {}, SOURCE)
    draft.moment("updated_at", raw.get("updated_at"), raw.get("updated_at_iso"), raw.get("created_at"))
    there = draft.data.get("updated_at")
    unchanged = there is not None and parse_moment(there) == datetime.fromisoformat(line["updated_at"])
    return (unchanged and line.get("id")) or computed


def _seconds(here: str, there: Any) -> float:
    """A moment as seconds, with all the digits that it has there."""
    moment = datetime.fromisoformat(here)
    with suppress(ValueError):
        if isinstance(there, int | float) and parse_moment(there) == moment:
            return float(there)
    return moment.timestamp()


def _own_metadata(line: Line, raw: Mapping[str, Any]) -> dict[str, Any]:
    metadata = fields_of(raw.get("metadata"))
    for name, own in (("title", own_title(line)), ("summary", line.get("summary", ""))):
        if plain_text(metadata.get(name)) not in (own, line.get(name, "")):
            metadata[name] = own
    return metadata


def _metadata(line: Line) -> dict[str, Any]:
    metadata = {name: line[name] for name in _METADATA if name in line}
    if not own_title(line):
        metadata.pop("title", None)
    for name in ("concepts", "entities"):
        if name in metadata:
            metadata[name] = [shown_name(one) for one in metadata[name]]
    return metadata
