"""The knowledge graph of the MCP reference server: entities, their observations, and relations between them."""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transfer.formats.base import NotReadableError, Options, Reading, Records, RefusedRecord, SourceRecord
from transfer.formats.drafts import Draft, listed, plain_text
from transfer.formats.importer import Importer
from transfer.formats.jsonl import rows_of_documents
from transfer.formats.sources import Document, Source, document_reading

SOURCE = "mcp-memory"
_RELATION_NAMES = ({"from", "to", "relationType"}, {"from_id", "to_id", "relation_type"})

Row = Mapping[str, Any]


def knows(source: Source) -> bool:
    return any(_is_lines(document) or _is_graph(document) for document in source.documents)


def _is_lines(document: Document) -> bool:
    keys = document.keys
    kind = document.head.get("type") if isinstance(document.head, dict) else None
    if kind == "entity":
        return bool(keys & {"entityType", "entity_type"}) and "observations" in keys
    return kind == "relation" and any(keys >= names for names in _RELATION_NAMES)


def _is_graph(document: Document) -> bool:
    """Whether a document is the answer of the tool `read_graph`."""
    return {"entities", "relations"} <= document.keys and bool(
        document.fields("entities") & {"entityType", "entity_type"}
    )


def read(path: Path, options: Options) -> Reading:
    documents = Source(path).documents
    if lines := [document for document in documents if _is_lines(document)]:
        return _lines_reading(lines, options)
    graphs = [document for document in documents if _is_graph(document)]
    if not graphs:
        raise NotReadableError(f"{path}: is no knowledge graph of the MCP memory server.")
    types: dict[str, str] = {}
    relations: list[tuple[str, Row]] = []

    def records(document: Document, key: str, location: str, value: Any) -> Iterator[SourceRecord | RefusedRecord]:
        if key == "entities" and isinstance(value, Mapping):
            yield from _entity_records(location, value, types)
        elif key == "relations" and isinstance(value, Mapping):
            relations.append((location, value))
        elif key in ("entities", "relations"):
            yield RefusedRecord(location, "is no object")

    def at_end() -> Iterator[SourceRecord | RefusedRecord]:
        for location, value in relations:
            yield _relation_record(location, value, types)

    return document_reading(graphs, options, records, at_end=at_end)


def _lines_reading(documents: list[Document], options: Options) -> Reading:
    def records() -> Records:
        types: dict[str, str] = {}
        relations: list[tuple[str, Row]] = []
        for location, row in rows_of_documents(documents, options):
            if isinstance(row, RefusedRecord):
                yield row
            elif row.get("type") == "entity":
                yield from _entity_records(location, row, types)
            elif row.get("type") == "relation":
                relations.append((location, row))
            else:
                yield RefusedRecord(location, "is neither an entity nor a relation: its type is unknown")
        # Relations name entities without their types, and may come before them.
        for location, data in relations:
            yield _relation_record(location, data, types)

    return Reading(records())


def _entity_records(location: str, row: Row, types: dict[str, str]) -> Iterator[SourceRecord | RefusedRecord]:
    name = plain_text(row.get("name")) or plain_text(row.get("entityName")) or plain_text(row.get("id"))
    kind = plain_text(row.get("entityType")) or plain_text(row.get("entity_type")) or "thing"
    if not name:
        yield RefusedRecord(location, "is an entity without a name")
        return
    types.setdefault(name, kind)
    yield SourceRecord(location, {"record": "entity", "name": name[:500], "type": kind[:100]})
    observations = row.get("observations")
    for number, observation in enumerate(observations if isinstance(observations, list) else [observations]):
        text = plain_text(observation.get("content") if isinstance(observation, Mapping) else observation)
        if not text:
            continue
        known_by = hashlib.sha256("\0".join((name, kind, text)).encode(errors="replace")).hexdigest()[:24]
        draft = Draft(f"{location}, observation {number + 1}", {"name": name, "entityType": kind}, SOURCE)
        if isinstance(observation, Mapping):
            draft.raw = {**draft.raw, "observation": dict(observation)}
            draft.moment("created_at", observation.get("createdAt"), observation.get("timestamp"))
        draft.data |= {"id": f"observation:{known_by}", "type": "observation"}
        draft.text("content", text)
        draft.entities(kind[:100], [name])
        draft.names("tags", listed(row.get("tags"), by_comma=True))
        yield draft.record()


def _relation_record(location: str, row: Row, types: dict[str, str]) -> SourceRecord | RefusedRecord:
    source = plain_text(row.get("from")) or plain_text(row.get("from_id"))
    target = plain_text(row.get("to")) or plain_text(row.get("to_id"))
    if not source or not target:
        return RefusedRecord(location, "is a relation without both of its ends")
    return SourceRecord(
        location,
        {
            "record": "relationship",
            "source": {"name": source[:500], "type": types.get(source, "thing")[:100]},
            "type": (plain_text(row.get("relationType")) or plain_text(row.get("relation_type")) or "related")[:100],
            "target": {"name": target[:500], "type": types.get(target, "thing")[:100]},
        },
    )


IMPORTER = Importer(SOURCE, "the memory file of the MCP reference server (memory.jsonl), or its graph", knows, read)
