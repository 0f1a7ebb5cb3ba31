"""The knowledge graph of Graphiti or Zep in JSON: episodes, entities, and facts with the time in which they held."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memories.records import MAX_LIST
from transfer.formats.base import NotReadableError, Options, Reading, RefusedRecord, SourceRecord
from transfer.formats.drafts import Draft, fields_of, listed, plain_text
from transfer.formats.importer import Importer
from transfer.formats.sources import DamagedError, Document, Position, Source, document_reading, values_of

SOURCE = "graphiti"
_EPISODES = ("episodes", "episodic_nodes")
_NODES = ("entities", "nodes", "entity_nodes")
_FACTS = ("facts", "edges", "entity_edges")
_GROUPS = ("communities", "community_nodes", "sagas", "saga_nodes")
_MENTIONS = ("episodic_edges", "mentions")
_ENDS = ("source_node_uuid", "target_node_uuid")

Row = Mapping[str, Any]
Found = Iterator[SourceRecord | RefusedRecord]


def knows(source: Source) -> bool:
    return any(_is_graph(document) for document in source.documents)


def _is_graph(document: Document) -> bool:
    return (
        any(set(_ENDS) <= document.fields(key) for key in (*_FACTS, *_MENTIONS))
        or any(
            {"uuid"} < (fields := document.fields(key))
            and fields & {"content", "episode_body"}
            and fields & {"source_description", "group_id", "valid_at", "entity_edges"}
            for key in _EPISODES
        )
        or any({"uuid", "name"} <= document.fields(key) and "summary" in document.fields(key) for key in _NODES)
    )


@dataclass(slots=True)
class _Graph:
    """Names that records refer to by id: entities with their types, and the entities of each episode."""

    entities: dict[str, tuple[str, str]] = field(default_factory=dict)
    of_episode: dict[str, list[str]] = field(default_factory=dict)

    def mention(self, episode: str, entity: str) -> None:
        entities = self.of_episode.setdefault(episode, [])
        if entity not in entities and len(entities) < MAX_LIST:
            entities.append(entity)

    def add_entities(self, draft: Draft, ids: list[str]) -> None:
        for name, kind in (self.entities[one] for one in ids if one in self.entities):
            draft.entities(kind, [name])


def read(path: Path, options: Options) -> Reading:
    documents = [document for document in Source(path).documents if _is_graph(document)]
    if not documents:
        raise NotReadableError(f"{path}: is no graph of Graphiti or Zep in JSON.")
    graph = _Graph()
    gathered: list[bool] = []

    def records(document: Document, key: str, location: str, value: Any) -> Found:
        if not gathered:
            gathered.append(True)
            for one in documents:
                _gather(one, graph)
        if key not in (*_EPISODES, *_NODES, *_FACTS, *_GROUPS):
            return
        if not isinstance(value, Mapping):
            yield RefusedRecord(location, "is no object")
        elif key in _NODES:
            yield _entity(location, value)
        elif key in _FACTS:
            yield from _fact(location, value, graph)
        else:
            yield _node(location, value, key, graph)

    return document_reading(documents, options, records)


def _gather(document: Document, graph: _Graph) -> None:
    """Entities by id. Facts name them so, and may come before them."""
    try:
        for key, _, value in values_of(document, Position()):
            row = fields_of(value)
            if key in _NODES and (name := plain_text(row.get("name"))):
                graph.entities[_id_of(row)] = (name[:500], _type_of(row))
            elif key in _FACTS:
                for episode in listed(row.get("episodes")):
                    for entity in _ends(row):
                        graph.mention(plain_text(episode), entity)
            elif key in _MENTIONS:
                graph.mention(*_ends(row))
    except DamagedError:
        # Reported by the reading itself.
        return


def _id_of(row: Row) -> str:
    return plain_text(row.get("uuid")) or plain_text(row.get("id"))


def _group_of(row: Row) -> str:
    """The partition of the graph, which becomes a project."""
    return plain_text(row.get("group_id"))[:100]


def _ends(row: Row) -> tuple[str, str]:
    source, target = (plain_text(row.get(name)) for name in _ENDS)
    return source or plain_text(row.get("source")), target or plain_text(row.get("target"))


def _type_of(row: Row) -> str:
    """The first label that is not the one of all entities."""
    labels = [plain_text(label) for label in [*listed(row.get("labels")), *listed(row.get("label"))]]
    return next((label for label in labels if label and label != "Entity"), "thing")[:100]


def _draft(location: str, row: Row) -> Draft:
    raw = {name: value for name, value in row.items() if value not in (None, "", [], {}) and "embedding" not in name}
    draft = Draft(location, raw, SOURCE)
    draft.text("id", _id_of(row))
    draft.text("project", _group_of(row))
    draft.moment("created_at", row.get("created_at"))
    draft.data["updated_at"] = draft.data.get("created_at")
    return draft


def _node(location: str, row: Row, key: str, graph: _Graph) -> SourceRecord:
    """An episode, which is a text as it came in; or the summary of a community or saga."""
    draft = _draft(location, row)
    draft.text("title", row.get("name"))
    if key in _EPISODES:
        draft.data["type"] = "episode"
        draft.text("content", row.get("content"), row.get("episode_body"))
        draft.text("session", row.get("session_id"))
        draft.names("authors", [row.get("user_id")])
        draft.moment("happened_at", row.get("valid_at"))
        graph.add_entities(draft, graph.of_episode.get(_id_of(row), []))
    else:
        draft.data["type"] = "community" if key.startswith("communit") else "saga"
        draft.text("content", row.get("summary"), row.get("name"))
    return draft.record()


def _entity(location: str, row: Row) -> SourceRecord | RefusedRecord:
    """An entity. Its summary was made from the memories of its group, and is no text for other projects."""
    if not (name := plain_text(row.get("name"))):
        return RefusedRecord(location, "is an entity without a name")
    data: dict[str, Any] = {"record": "entity", "name": name[:500], "type": _type_of(row)}
    summary, group = (
        plain_text(row.get("summary")) or plain_text(row.get("description")),
        plain_text(row.get("group_id")),
    )
    if summary:
        data |= {"description": summary} | ({"projects": [group[:100]]} if group else {})
    return SourceRecord(location, data)


def _fact(location: str, row: Row, graph: _Graph) -> Found:
    """A fact: a memory that mentions both of its entities, and a relationship between them that it is evidence of."""
    ends = _ends(row)
    missing = [one or "an end without an id" for one in ends if one not in graph.entities]
    if missing:
        yield RefusedRecord(location, f"is a fact about {' and '.join(missing)[:200]}, which is no entity of the file")
        return
    (source, source_type), (target, target_type) = (graph.entities[one] for one in ends)
    kind = plain_text(row.get("name")) or plain_text(row.get("relation")) or "related"
    draft = _draft(location, row)
    draft.data["type"] = "fact"
    draft.text("content", row.get("fact"), f"{source} {kind.replace('_', ' ').lower()} {target}")
    draft.moment("valid_from", row.get("valid_at"))
    draft.moment("valid_to", row.get("invalid_at"))
    if row.get("expired_at"):
        draft.data["state"] = "superseded"
    graph.add_entities(draft, list(ends))
    for episode in listed(row.get("episodes")):
        draft.link("from", plain_text(episode))
    yield draft.record()
    data: dict[str, Any] = {
        "record": "relationship",
        "source": {"name": source, "type": source_type},
        "type": kind[:100],
        "target": {"name": target, "type": target_type},
        "fact": draft.data["content"],
        "evidence": [draft.data["id"]] if "id" in draft.data else [],
    }
    for name in ("project", "valid_from", "valid_to"):
        if name in draft.data:
            data[name] = draft.data[name]
    yield SourceRecord(f"{location}, its relationship", data)


IMPORTER = Importer(SOURCE, "the graph of Graphiti or Zep in JSON: episodes, entities, facts", knows, read)
