"""The replies of the graph API."""

from datetime import date, datetime

from pydantic import BaseModel, Field

from explorer.memory_api import CategoryPathReply, MemoryName
from explorer.schemas import HistogramReply
from explorer.timeline_api import QueryWarning

_VALUE = "What filters take for it."


class NodeRef(BaseModel):
    """An entity or a concept as others name it."""

    id: int
    name: str
    type: str
    value: str = Field(description=_VALUE)


class NodeRow(NodeRef):
    """A row of the table."""

    links: int = Field(description="How many others it is linked with, by what is stated or by memories in common.")
    memories: int
    first_seen: datetime | None
    last_seen: datetime | None
    url: str = Field(description="Its page.")


class TypeCount(BaseModel):
    type: str
    count: int


class TableReply(BaseModel):
    """A page of those that memories in the default states name, or relationships link."""

    total: int
    page: int
    page_size: int
    pages: int
    has_more: bool
    types: list[TypeCount] = Field(description="Of what the search leaves, whatever types are asked for.")
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
    rel: str = Field(description="A type of relationship; `same-memory`: a memory names both.")
    neighbours: int


class NodeReply(NodeRef):
    """An entity or a concept. Numbers are of the memories that the key may see, in the default states."""

    aliases: list[str]
    description: str
    memories: int
    first_seen: date | None = Field(description="A day of the time zone.")
    last_seen: date | None
    months: HistogramReply | None = Field(description="Null where no memory names it.")
    categories: list[CategoryCount] = Field(description="The largest.")
    tags: list[TagCount] = Field(description="The largest.")
    concepts: list[NodeCount] = Field(description="Of an entity: the concepts that most of its memories are about.")
    entities: list[NodeCount] = Field(description="Of a concept: the entities that most of its memories name.")
    neighbours: int = Field(description="How many others it is linked with.")
    rels: list[RelCount]
    samples: list[MemoryName] = Field(description="The newest memories that name it.")
    unavailable: str = Field(description="Why there are no numbers, where there are none.")
    url: str = Field(description="Its page.")
    took_ms: float


class TieReply(BaseModel):
    """What is stated of two: that `source` is linked with `target`, in this direction."""

    relationship: int | None = Field(description="The id of the relationship; null between concepts.")
    source: int
    type: str
    target: int
    evidence: int = Field(description="How many memories bear it out.")
    fact: str
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None


class NeighbourReply(NodeRef):
    level: int = Field(description="Steps from the middle: 1 or 2.")
    parent: int = Field(description="The node it hangs on.")
    memories: int = Field(description="How many memories name both it and that node.")
    ties: list[TieReply]


class EdgeReply(BaseModel):
    """Two nodes of the drawing that are linked."""

    source: int
    target: int
    memories: int = Field(description="How many memories name both.")
    types: list[str] = Field(description="What is stated of the two; empty where they only stand together.")


class NeighbourhoodReply(BaseModel):
    """Around a node: at most 60 nodes with the middle one, and 120 edges, the strongest first."""

    center: NodeRef
    total: int = Field(description="How many neighbours pass `rel` and `min`.")
    nodes: list[NeighbourReply]
    edges: list[EdgeReply]
    more: list[NeighbourReply] = Field(description="Neighbours that are no part of the drawing: at most 200.")
    rels: list[RelCount] = Field(description="What `rel` may be here.")
    warnings: list[QueryWarning]
    took_ms: float


class StepReply(BaseModel):
    """Two entities in a row, and what links them."""

    source: NodeRef
    target: NodeRef
    memories: int = Field(description="How many memories name both; 0 where `together` was not asked for.")
    ties: list[TieReply]
    evidence: list[MemoryName] = Field(description="Some memories that bear it out: at most three.")


class PathReply(BaseModel):
    """The shortest chain. Where there is none, `steps` is empty and `reason` says what was looked for."""

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
    """A relationship with the memories that bear it out, as far as the key may see them."""

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
