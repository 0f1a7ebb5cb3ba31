"""mcp-memory-service: its SQLite database with the edges of its graph, and its exports and backups in JSON."""

import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from transfer.formats.base import NotReadableError, Options, Reading, RefusedRecord, SourceRecord
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
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
