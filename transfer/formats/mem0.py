"""mem0 and OpenMemory: memories in JSON, as their interfaces and exports give them, and OpenMemory's ZIP archive."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transfer.formats.base import NotReadableError, Options, Reading, Records, RefusedRecord, SourceRecord, read_guarded
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
from transfer.formats.importer import Importer
from transfer.formats.jsonl import rows_of_documents
from transfer.formats.sources import DamagedError, Document, Position, Source, document_reading, values_of

_WRAPPERS = ("", "results", "memories", "items")
_TEXTS = ("memory", "text", "data", "content")
# Fields of which a record of mem0 has at least one, besides an id and a text.
_OWN = {"user_id", "agent_id", "run_id", "app_id", "hash", "expiration_date", "score"}
_OPENMEMORY_LINE = {"id", "content", "state", "app", "categories"}
_STATES = {"active": "active", "paused": "archived", "archived": "archived", "deleted": "deleted"}
_VOLATILE = frozenset({"score", "hash", "user", "app_id"})

Row = Mapping[str, Any]


def knows(source: Source) -> bool:
    return any(_is_openmemory(one) or _is_lines(one) or _list_of(one) is not None for one in source.documents)


def _is_openmemory(document: Document) -> bool:
    return {"user", "apps", "memories"} <= document.keys


def _is_lines(document: Document) -> bool:
    return document.keys >= _OPENMEMORY_LINE


def _list_of(document: Document) -> str | None:
    """The key of the list of memories, empty if the document is the list; None if there is none."""
    for key in _WRAPPERS:
        fields = document.fields(key)
        if "id" in fields and ("memory" in fields or (fields & set(_TEXTS) and fields & _OWN)):
            return key
    return None


def read(path: Path, options: Options) -> Reading:
    documents = Source(path).documents
    if whole := [document for document in documents if _is_openmemory(document)]:
        # The archive has the same memories twice: whole, and as lines with fewer fields.
        return _openmemory_reading(whole, options)
    if lines := [document for document in documents if _is_lines(document)]:
        return _lines_reading(lines, options)
    lists = {document.name: key for document in documents if (key := _list_of(document)) is not None}
    if not lists:
        raise NotReadableError(f"{path}: holds no memories of mem0 or OpenMemory.")

    def records(document: Document, key: str, location: str, value: Any) -> Iterator[SourceRecord | RefusedRecord]:
        if key == "relations":
            yield _relation(location, value)
        elif key == lists[document.name]:
            yield _checked(location, value)

    return document_reading([one for one in documents if one.name in lists], options, records)


def _checked(location: str, value: Any) -> SourceRecord | RefusedRecord:
    if not isinstance(value, Mapping):
        return RefusedRecord(location, "is no object; a memory is one")
    return _record(location, value, "mem0")


def _record(location: str, row: Row, source: str) -> SourceRecord:
    metadata = fields_of(row.get("metadata")) or fields_of(row.get("metadata_"))
    draft = Draft(location, {name: value for name, value in row.items() if value not in (None, "", [], {})}, source)
    draft.text("id", row.get("id"))
    draft.text("content", *(row.get(name) for name in _TEXTS))
    draft.text("project", row.get("app_id"), metadata.get("project"))
    draft.text("type", metadata.get("type"), row.get("memory_type"))
    draft.text("agent", row.get("agent_id"), row.get("app"))
    draft.text("session", row.get("run_id"))
    draft.names("authors", [row.get("user_id")])
    draft.names("tags", listed(metadata.get("tags"), by_comma=True))
    draft.names("categories", [name for name in listed(row.get("categories")) if plain_text(name)])
    draft.moment("created_at", row.get("created_at"))
    draft.moment("updated_at", row.get("updated_at"), draft.data.get("created_at"))
    draft.moment("valid_to", row.get("expiration_date"))
    if state := _STATES.get(plain_text(row.get("state"))):
        draft.data["state"] = state
    return draft.record(_VOLATILE)


def _relation(location: str, row: Any) -> SourceRecord | RefusedRecord:
    row = fields_of(row)
    source, target = plain_text(row.get("source")), plain_text(row.get("target")) or plain_text(row.get("destination"))
    if not source or not target:
        return RefusedRecord(location, "is a relation without both of its ends")
    kind = plain_text(row.get("relationship")) or plain_text(row.get("relation")) or "related"
    return SourceRecord(
        location, {"record": "relationship", "source": {"name": source}, "type": kind[:100], "target": {"name": target}}
    )


def _lines_reading(documents: list[Document], options: Options) -> Reading:
    def records() -> Records:
        for location, row in rows_of_documents(documents, options):
            if isinstance(row, RefusedRecord):
                yield row
            else:
                yield from read_guarded(location, partial(_of_lines, location, row))

    return Reading(records())


def _of_lines(location: str, row: Row) -> Iterator[SourceRecord]:
    yield _record(location, row, "openmemory")


def _openmemory_reading(documents: list[Document], options: Options) -> Reading:
    """Memories with the names of their apps and categories, which are separate lists of the document."""
    apps: dict[str, str] = {}
    categories: dict[str, str] = {}
    joined: dict[str, list[str]] = {}
    users: list[str] = []

    def records(document: Document, key: str, location: str, value: Any) -> Iterator[SourceRecord | RefusedRecord]:
        row = fields_of(value)
        if key == "user":
            users[:] = [plain_text(row.get("user_id")) or plain_text(row.get("name")) or plain_text(row.get("id"))]
            _gather(document, apps, categories, joined)
        elif key == "memories":
            ids = listed(row.get("category_ids")) or joined.get(plain_text(row.get("id")), [])
            named = {
                "app": apps.get(plain_text(row.get("app_id")), ""),
                "categories": [categories[one] for one in map(plain_text, ids) if one in categories],
                "user_id": users[0] if users else row.get("user_id"),
            }
            yield _record(location, {**row, "app_id": None, **named}, "openmemory")

    return document_reading(documents, options, records)


def _gather(document: Document, apps: dict[str, str], categories: dict[str, str], joined: dict[str, list[str]]) -> None:
    try:
        for key, _, value in values_of(document, Position()):
            row = fields_of(value)
            if key in ("apps", "categories") and (name := plain_text(row.get("name"))):
                (apps if key == "apps" else categories)[plain_text(row.get("id"))] = name
            elif key == "memory_categories":
                joined.setdefault(plain_text(row.get("memory_id")), []).append(plain_text(row.get("category_id")))
    except DamagedError:
        # Reported by the reading itself.
        return


IMPORTER = Importer("mem0", "memories of mem0 in JSON, or an export of OpenMemory", knows, read)
