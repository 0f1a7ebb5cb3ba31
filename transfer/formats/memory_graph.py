"""The knowledge graph of the MCP reference server: entities, their observations, and relations between them."""

import hashlib
import itertools
import json
from array import array
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from text.highlight import plain_title
from transfer.formats.base import NotReadableError, Options, Reading, Records, RefusedRecord, SourceRecord, read_guarded
from transfer.formats.drafts import Draft, listed, plain_text
from transfer.formats.export import Line, Lines, Remembered, Waiting, json_bytes, own_title
from transfer.formats.files import shown_name
from transfer.formats.importer import Importer
from transfer.formats.jsonl import rows_of_documents
from transfer.formats.sources import Document, Source, document_reading

SOURCE = "mcp-memory"
_RELATION_NAMES = ({"from", "to", "relationType"}, {"from_id", "to_id", "relation_type"})

Row = Mapping[str, Any]


def knows(source: Source) -> bool:
    return any(_is_lines(one) or _is_list(one) or _is_graph(one) for one in source.documents)


def _is_lines(document: Document) -> bool:
    return _is_row(document.head)


def _is_list(document: Document) -> bool:
    """Whether somebody made a list of the lines."""
    return isinstance(document.head, list) and bool(document.head) and _is_row(document.head[0])


def _is_row(row: Any) -> bool:
    keys = row.keys() if isinstance(row, dict) else set()
    kind = row.get("type") if isinstance(row, dict) else None
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
    graphs = [document for document in documents if _is_graph(document) or _is_list(document)]
    if not graphs:
        raise NotReadableError(f"{path}: is no knowledge graph of the MCP memory server.")
    types: dict[str, str] = {}
    relations: list[tuple[str, Row]] = []

    def records(document: Document, key: str, location: str, value: Any) -> Iterator[SourceRecord | RefusedRecord]:
        if not key and isinstance(value, Mapping):
            key = {"entity": "entities", "relation": "relations"}.get(plain_text(value.get("type")), "entities")
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
                yield from read_guarded(location, partial(_entity_records, location, row, types))
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

# --- the export --------------------------------------------------------------------------------------------------

_LONGEST_NAME = 200


def write(lines: Lines) -> Iterator[bytes]:
    """The lines of the file: memories as they come, then entities, then relations.

    An observation of a single entity, as the import of such a file makes them, is one again. Every other memory is an
    entity of its own, which mentions the entities that it is about and leads to the memories that it is linked with.
    """
    with Waiting() as observations, Waiting() as relations, Remembered() as taken, Remembered() as targets:
        graph = _Graph(observations, relations, taken, targets)
        for line in lines():
            match line.get("record"):
                case None:
                    yield from graph.memory(line)
                case "entity":
                    graph.entity(line)
                case "relationship":
                    graph.relationship(line)
        yield from graph.entities()
        yield from graph.relations()


class _Graph:
    """The names in the file, which knows entities by their name alone, so that no two may share one."""

    def __init__(self, observations: Waiting, relations: Waiting, taken: Remembered, by_target: Remembered) -> None:
        self._observations = observations
        self._relations = relations
        self._taken = taken
        # Project and target of a link -> the name in the file.
        self._by_target = by_target
        # Name and type -> the name in the file, and the places and lengths of its observations.
        self._entities: dict[tuple[str, str], tuple[str, array[int]]] = {}

    def entity(self, line: Line) -> None:
        key = (line["name"], line["type"])
        self._entities[key] = (self._named(line["name"], line["type"]), array("Q"))

    def memory(self, line: Line) -> Iterator[bytes]:
        entities = [(one["name"], one["type"]) for one in line.get("entities", ())]
        if line["type"] == "observation" and len(entities) == 1 and not own_title(line):
            name, places = self._entities[entities[0]]
            text = json_bytes(line["content"])
            places.extend((self._observations.add(text), len(text)))
        else:
            number = line["stored"]["number"]
            title = plain_title(line.get("title", "")) or f"#{number}"
            name = self._named(title[:_LONGEST_NAME], f"#{number}")
            yield _entity(name, line["type"], [json_bytes(text) for text in _said(line)])
            for key in entities:
                self._relate(name, "mentions", self._entities[key][0])
        for target in (line.get("id"), f"#{line['stored']['number']}"):
            if target:
                self._by_target.set(name, line["project"], target)
        for link in line.get("links", ()):
            if "url" not in link:
                self._relate(name, link["rel"], link["target"], line["project"])

    def relationship(self, line: Line) -> None:
        ends = ((end["name"], end["type"]) for end in (line["source"], line["target"]))
        source, target = (self._entities[end][0] for end in ends)
        self._relate(source, line["type"], target)

    def _relate(self, source: str, relation: str, target: str, project: str = "") -> None:
        self._relations.add(json_bytes([source, relation, target, project]) + b"\n")

    def _named(self, name: str, other: str) -> str:
        """A name that nothing else in the file has: the given one, or that with what tells it from others."""
        names = itertools.chain((name, f"{name} ({other})"), (f"{name} ({other}, {n})" for n in itertools.count(2)))
        chosen = next(one for one in names if self._taken.get(one) is None)
        return self._taken.add(chosen, chosen)

    def entities(self) -> Iterator[bytes]:
        for (_, kind), (name, places) in self._entities.items():
            texts = (self._observations.at(*place) for place in zip(places[::2], places[1::2], strict=True))
            yield _entity(name, kind, texts)

    def relations(self) -> Iterator[bytes]:
        for text in self._relations.lines():
            source, relation, target, project = json.loads(text)
            end = (self._by_target.get(project, target) if project else None) or target
            yield json_bytes({"type": "relation", "from": source, "to": end, "relationType": relation}) + b"\n"


def _entity(name: str, kind: str, observations: Any) -> bytes:
    head = json_bytes({"type": "entity", "name": name, "entityType": kind})
    return head[:-1] + b', "observations": [' + b", ".join(observations) + b"]}\n"


def _said(line: Line) -> Iterator[str]:
    """The observations of a memory: its texts, and a last line with its other fields."""
    if "summary" in line:
        yield line["summary"]
    yield line["content"]
    names = [name for name in ("tags", "categories", "concepts") if name in line]
    about = {"project": line["project"], "created": line["created_at"]} | {
        name: ", ".join(shown_name(one) for one in line[name]) for name in names
    }
    yield "; ".join(f"{name}: {value}" for name, value in about.items())
