"""The replies of the graph API."""

from datetime import date, datetime

from pydantic import BaseModel, Field

from explorer.explore.schemas import HistogramReply
from explorer.explore.timeline_api import QueryWarning
from explorer.memory.api import CategoryPathReply, MemoryName

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
