"""Entities, concepts and relationships as JSON, from the same reads as the pages."""

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from functools import partial
from typing import Any

from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from categories.queries import Term
from explorer.explore.schemas import HistogramBar, HistogramReply
from explorer.explore.timeline_api import QueryWarning, query_warning
from explorer.graph.labels import AroundRequest, PathRequest, TableRequest
from explorer.graph.neighbourhood import (
    Neighbourhood,
    NodeDetail,
    NodeNeighbour,
    node_detail,
    node_neighbourhood,
    relationship_detail,
)
from explorer.graph.path_page import PathStep, find_path
from explorer.graph.queries import CONCEPT, ENTITY, NodeKind, StatedEdge
from explorer.graph.table_page import NodeTable, node_table
from explorer.links import memory_url, node_url, relationship_url
from explorer.memory.api import CategoryPathReply, MemoryName
from explorer.operations import read_operation
from search.result import Hit
from search.unified.rows import StoredRelationship
from web.errors import ApiError
from web.params import Params, pairs_of
from web.timing import Timings, timed, took_ms

_VALUE = "The value of filters for it."


class NodeRef(BaseModel):
    """A reference to an entity or a concept."""

    id: int
    name: str
    type: str
    value: str = Field(description=_VALUE)


class NodeRow(NodeRef):
    """A row of the table."""

    links: int = Field(description="Number of others it is linked with, by stated relationships or shared memories.")
    memories: int
    first_seen: datetime | None
    last_seen: datetime | None
    url: str = Field(description="Its page.")


class TypeCount(BaseModel):
    type: str
    count: int


class TableReply(BaseModel):
    """A page of nodes that memories in the default states name, or relationships link."""

    total: int
    page: int
    page_size: int
    pages: int
    has_more: bool
    types: list[TypeCount] = Field(description="Counts for the search, regardless of the selected types.")
    warnings: list[QueryWarning]
    took_ms: float


class EntitiesReply(TableReply):
    entities: list[NodeRow]


class ConceptsReply(TableReply):
    concepts: list[NodeRow]


class CategoryCount(CategoryPathReply):
    count: int


class TagCount(BaseModel):
    tag: str
    count: int


class NodeCount(NodeRef):
    count: int


class RelCount(BaseModel):
    rel: str = Field(description="A type of relationship; `same-memory`: a memory mentions both.")
    neighbours: int


class NodeReply(NodeRef):
    """An entity or a concept. Numbers cover visible memories in the default states."""

    aliases: list[str]
    description: str
    memories: int
    first_seen: date | None = Field(description="A day of the time zone.")
    last_seen: date | None
    months: HistogramReply | None = Field(description="Null if no memory mentions it.")
    categories: list[CategoryCount] = Field(description="The largest.")
    tags: list[TagCount] = Field(description="The largest.")
    concepts: list[NodeCount] = Field(description="For an entity: the most frequent concepts of its memories.")
    entities: list[NodeCount] = Field(description="For a concept: the entities mentioned most in its memories.")
    neighbours: int = Field(description="Number of others it is linked with.")
    rels: list[RelCount]
    samples: list[MemoryName] = Field(description="The newest memories that mention it.")
    unavailable: str = Field(description="Why there are no counts, if there are none.")
    url: str = Field(description="Its page.")
    took_ms: float


class TieReply(BaseModel):
    """A stated link from `source` to `target`."""

    relationship: int | None = Field(description="The id of the relationship; null between concepts.")
    source: int
    type: str
    target: int
    evidence: int = Field(description="Number of supporting memories.")
    fact: str
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None


class NeighbourReply(NodeRef):
    level: int = Field(description="Steps from the middle: 1 or 2.")
    parent: int = Field(description="The node it is linked to.")
    memories: int = Field(description="Number of memories that mention both it and that node.")
    ties: list[TieReply]


class EdgeReply(BaseModel):
    """An edge of the drawing."""

    source: int
    target: int
    memories: int = Field(description="Number of memories that mention both.")
    types: list[str] = Field(description="The stated relationships; empty if the two only share memories.")


class NeighbourhoodReply(BaseModel):
    """The neighbourhood of a node: at most 60 nodes including the center, and 120 edges, strongest first."""

    center: NodeRef
    total: int = Field(description="Number of neighbours that match `rel` and `min`.")
    nodes: list[NeighbourReply]
    edges: list[EdgeReply]
    more: list[NeighbourReply] = Field(description="Neighbours that are not in the diagram: at most 200.")
    rels: list[RelCount] = Field(description="The possible values of `rel`.")
    warnings: list[QueryWarning]
    took_ms: float


class StepReply(BaseModel):
    """Two consecutive entities of a path, and their links."""

    source: NodeRef
    target: NodeRef
    memories: int = Field(description="Number of memories that mention both.")
    ties: list[TieReply]
    evidence: list[MemoryName] = Field(description="Supporting memories: at most three.")


class PathReply(BaseModel):
    """The shortest path. Without any, `steps` is empty and `reason` explains it."""

    source: NodeRef
    target: NodeRef
    found: bool
    steps: list[StepReply]
    reason: str
    took_ms: float


class EvidenceReply(MemoryName):
    snippet: str
    url: str = Field(description="The page of the memory.")


class FactReply(BaseModel):
    """A relationship with its visible supporting memories."""

    id: int
    source: NodeRef
    type: str
    target: NodeRef
    fact: str
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None
    evidence_count: int
    evidence: list[EvidenceReply] = Field(description="At most 100.")
    url: str = Field(description="Its page.")
    took_ms: float


router = Router()

_TABLE = TableRequest.openapi_parameters()
_AROUND = AroundRequest.openapi_parameters()
_PATH = PathRequest.openapi_parameters()

_get = partial(read_operation, router)


# --- operations --------------------------------------------------------------------------------------------------


@_get("/entities", "entities", EntitiesReply, parameters=_TABLE)
@timed
def entities(request: ApiRequest) -> tuple[Timings, EntitiesReply]:
    """Entities as a table, with numbers of neighbours and memories, and their dates."""
    table = _read_table(request, ENTITY)
    return table.timings, EntitiesReply(entities=_rows(table, request), **_table_fields(table))


@_get("/concepts", "concepts", ConceptsReply, parameters=_TABLE)
@timed
def concepts(request: ApiRequest) -> tuple[Timings, ConceptsReply]:
    """Concepts as a table, with numbers of neighbours and memories, and their dates."""
    table = _read_table(request, CONCEPT)
    return table.timings, ConceptsReply(concepts=_rows(table, request), **_table_fields(table))


@_get("/entities/path", "entity_path", PathReply, 404, parameters=_PATH)
@timed
def path(request: ApiRequest) -> tuple[Timings, PathReply]:
    """The shortest path of relationships between two entities, with evidence for each step."""
    viewer = allowed(request, "read")
    found = find_path(PathRequest.from_pairs(pairs_of(request.GET)), viewer)
    return found.timings, PathReply(
        source=_ref(found.source),
        target=_ref(found.target),
        found=bool(found.steps) or found.source.id == found.target.id,
        steps=[_step(step) for step in found.steps],
        reason=found.reason,
        took_ms=took_ms(found.timings),
    )


@_get("/entities/{path:ref}/neighbourhood", "entity_neighbourhood", NeighbourhoodReply, 404, parameters=_AROUND)
@timed
def entity_neighbourhood(request: ApiRequest, ref: str) -> tuple[Timings, NeighbourhoodReply]:
    """The neighbours of an entity, strongest links first, and the edges between them."""
    return _read_around(ENTITY, ref, request)


@_get("/concepts/{path:ref}/neighbourhood", "concept_neighbourhood", NeighbourhoodReply, 404, parameters=_AROUND)
@timed
def concept_neighbourhood(request: ApiRequest, ref: str) -> tuple[Timings, NeighbourhoodReply]:
    """The neighbours of a concept, strongest links first, and the edges between them."""
    return _read_around(CONCEPT, ref, request)


@_get("/entities/{path:ref}", "entity", NodeReply, 404)
@timed
def entity(request: ApiRequest, ref: str) -> tuple[Timings, NodeReply]:
    """An entity by id, `type:name`, name or alias, with facets of its memories."""
    return _read_node(ENTITY, ref, request)


@_get("/concepts/{path:ref}", "concept", NodeReply, 404)
@timed
def concept(request: ApiRequest, ref: str) -> tuple[Timings, NodeReply]:
    """A concept by id, name or alias, with facets of its memories."""
    return _read_node(CONCEPT, ref, request)


@_get("/relationships/{int:relationship_id}", "relationship", FactReply, 404)
@timed
def relationship(request: ApiRequest, relationship_id: int) -> tuple[Timings, FactReply]:
    """A relationship with the memories that support it."""
    viewer = allowed(request, "read")
    Params.from_pairs(pairs_of(request.GET))
    found = relationship_detail(relationship_id, viewer)
    if found is None:
        raise ApiError(404, "not_found", f"There is no relationship {relationship_id} that you can see.")
    record = found.record
    return found.timings, FactReply(
        id=record.id,
        source=NodeRef.model_validate(record.source, from_attributes=True),
        type=record.type,
        target=NodeRef.model_validate(record.target, from_attributes=True),
        **_stated(record),
        evidence_count=len(record.evidence),
        evidence=[_evidence(hit, request) for hit in found.evidence],
        url=request.build_absolute_uri(relationship_url(record.id)),
        took_ms=took_ms(found.timings),
    )


# --- from request to reply ---------------------------------------------------------------------------------------


def _read_table(request: ApiRequest, kind: NodeKind) -> NodeTable:
    viewer = allowed(request, "read")
    return node_table(kind, TableRequest.from_pairs(pairs_of(request.GET)), viewer)


def _rows(table: NodeTable, request: ApiRequest) -> list[NodeRow]:
    return [
        NodeRow(
            **_ref(row.term).model_dump(),
            links=row.links,
            memories=row.memories,
            first_seen=row.first,
            last_seen=row.last,
            url=request.build_absolute_uri(node_url(table.kind.key, row.term.id, row.term.value)),
        )
        for row in table.rows
    ]


def _table_fields(table: NodeTable) -> dict[str, Any]:
    params = table.params
    return {
        "total": table.total,
        "page": params.page,
        "page_size": params.page_size,
        "pages": table.pages,
        "has_more": params.page < table.pages,
        "types": [TypeCount(type=name, count=count) for name, count in table.types],
        "warnings": [query_warning(warning) for warning in table.warnings],
        "took_ms": took_ms(table.timings),
    }


def _read_node(kind: NodeKind, ref: str, request: ApiRequest) -> tuple[Timings, NodeReply]:
    viewer = allowed(request, "read")
    Params.from_pairs(pairs_of(request.GET))
    node = node_detail(kind, ref, AroundRequest(), viewer)
    return node.timings, _node_reply(node, request)


def _node_reply(node: NodeDetail, request: ApiRequest) -> NodeReply:
    profile = node.profile
    others = [NodeCount(**_ref(term).model_dump(), count=count) for term, count in profile.others]
    bars = [HistogramBar.model_validate(bar, from_attributes=True) for bar in profile.histogram.bars]
    months = HistogramReply(interval=profile.histogram.interval.value, step=profile.histogram.step, bars=bars)
    return NodeReply(
        **_ref(node.term).model_dump(),
        aliases=list(node.aliases),
        description=node.description,
        memories=profile.memories,
        first_seen=profile.first,
        last_seen=profile.last,
        months=months if bars else None,
        categories=[
            CategoryCount(path=category.path, names=list(category.names), count=count)
            for category, count in profile.categories
        ],
        tags=[TagCount(tag=tag, count=count) for tag, count in profile.tags],
        concepts=others if node.kind is ENTITY else [],
        entities=others if node.kind is CONCEPT else [],
        neighbours=node.around.total,
        rels=_rels(node.around),
        samples=[_name(hit) for hit in node.samples],
        unavailable=profile.unavailable,
        url=request.build_absolute_uri(node_url(node.kind.key, node.term.id, node.term.value)),
        took_ms=took_ms(node.timings),
    )


def _read_around(kind: NodeKind, ref: str, request: ApiRequest) -> tuple[Timings, NeighbourhoodReply]:
    viewer = allowed(request, "read")
    around, timings = node_neighbourhood(kind, ref, AroundRequest.from_pairs(pairs_of(request.GET)), viewer)
    return timings, NeighbourhoodReply(
        center=_ref(around.center),
        total=around.total,
        nodes=[_neighbour(one, around) for one in around.drawn],
        edges=[
            EdgeReply(
                source=line.source,
                target=line.target,
                memories=line.edge.memories,
                types=sorted({tie.type for tie in line.edge.ties}),
            )
            for line in around.lines
        ],
        more=[_neighbour(one, around) for one in around.more],
        rels=_rels(around),
        warnings=[query_warning(warning) for warning in around.warnings],
        took_ms=took_ms(timings),
    )


def _neighbour(one: NodeNeighbour, around: Neighbourhood) -> NeighbourReply:
    return NeighbourReply(
        **_ref(one.term).model_dump(),
        level=one.level,
        parent=one.parent,
        memories=one.edge.memories,
        ties=_ties(one.edge.ties, around.relationships),
    )


def _step(step: PathStep) -> StepReply:
    return StepReply(
        source=_ref(step.source),
        target=_ref(step.target),
        memories=step.edge.memories,
        ties=_ties(step.edge.ties, {record.id: record for record in step.relationships}),
        evidence=[MemoryName.model_validate(memory, from_attributes=True) for memory in step.memories],
    )


def _ties(ties: Iterable[StatedEdge], records: Mapping[int, StoredRelationship]) -> list[TieReply]:
    return [TieReply(relationship=tie.id, **tie._asdict(), **_stated(records.get(tie.id or 0))) for tie in ties]


def _stated(record: StoredRelationship | None) -> dict[str, Any]:
    if record is None:
        return {"fact": "", "confidence": None, "valid_from": None, "valid_to": None}
    return {name: getattr(record, name) for name in ("fact", "confidence", "valid_from", "valid_to")}


def _rels(around: Neighbourhood) -> list[RelCount]:
    return [RelCount(rel=name, neighbours=count) for name, count in around.rels]


def _ref(term: Term) -> NodeRef:
    return NodeRef(id=term.id, name=term.label, type=term.type, value=term.value)


def _name(hit: Hit) -> MemoryName:
    return MemoryName(
        id=hit.id, title=hit.title_text, memory_type=hit.memory_type, state=hit.state, created_at=hit.created_at
    )


def _evidence(hit: Hit, request: ApiRequest) -> EvidenceReply:
    url = request.build_absolute_uri(memory_url(hit.id))
    return EvidenceReply(**_name(hit).model_dump(), snippet=hit.snippet_text, url=url)
