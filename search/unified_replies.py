"""Unified search as JSON: results of three kinds, each in common fields beside the record of its kind."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Literal

from django.urls import reverse
from pydantic import BaseModel, Field

from search.legs import LegAnswer, ResultKind
from search.links import explore_url
from search.query import SearchQuery
from search.replies import MemoryHit, SearchReply
from search.result import Hit
from search.unified import UnifiedResult
from search.unified_rows import EntityRecord, EntityRef, Linked, RelationshipRecord, UnifiedHit

Kind = Literal["memory", "entity", "relationship"]


class LegReply(BaseModel):
    """One of the six legs: what was looked through, and what came of it."""

    name: str = Field(description="Kind and way, such as `entity meaning`.")
    ms: float
    found: int
    state: Literal["ok", "late", "failed"] = Field(description="`late` and `failed`: the leg was left out.")
    reason: str = Field(description="Why it was left out; empty where it was not.")


class LinkedReply(BaseModel):
    """Another record that a result is shown with."""

    kind: Kind
    id: int
    title: str
    reason: str
    url: str


class EntityReply(BaseModel):
    """An entity as it is stored."""

    id: int
    name: str
    type: str
    value: str = Field(description="What `entity=` takes for it.")
    aliases: list[str]
    description: str
    memories: int = Field(description="How many memories that pass the filters name it.")


class EntityRefReply(BaseModel):
    """One end of a relationship."""

    id: int
    name: str
    type: str
    value: str = Field(description="What `entity=` takes for it.")


class RelationshipReply(BaseModel):
    """A relationship as it is stored."""

    id: int
    source: EntityRefReply
    type: str
    target: EntityRefReply
    fact: str
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None
    evidence: list[int] = Field(description="Ids of the memories that bear it out and pass the filters.")


class UnifiedHitReply(BaseModel):
    """One result. The record of its kind is there in full, unless `view=index`; the other two are left out."""

    kind: Kind
    id: int = Field(description="Of its kind: a memory and an entity may share one.")
    title: str
    content: str = Field(description="A stretch of the text of a memory, a description, or a fact.")
    score: float = Field(description="Comparable within one answer only.")
    legs: dict[str, int] = Field(description="Its place by `words` and by `meaning`, from 1, where that found it.")
    why: str = Field(description="The same in words.")
    source: str = Field(description="The system of a memory; how many memories tell of an entity or a relationship.")
    url: str = Field(description="The page of a memory; else the memories that tell of it.")
    related: list[LinkedReply] = Field(description="At most two, each with the reason.")
    folded: list[LinkedReply] = Field(description="Results that say the same or come from the same memory, and why.")
    memory: MemoryHit | None = None
    entity: EntityReply | None = None
    relationship: RelationshipReply | None = None


class KindTotals(BaseModel):
    """How many there are of each kind, before anything is folded."""

    memories: int = Field(description="As `total`.")
    entities: int
    relationships: int


class UnifiedReply(SearchReply):
    """A page of results of three kinds. `memories` are those on it; `total` and facets are of memories, `pages` go
    through `found` results. `lower_bounds` names the totals that may be larger.
    """

    results: list[UnifiedHitReply]
    found: int = Field(description="How many results there are; what is folded counts once.")
    totals: KindTotals
    legs: list[LegReply]


def unified_parts(
    result: UnifiedResult, site: str, memory_hit: Callable[[Hit], MemoryHit], *, in_full: bool
) -> dict[str, Any]:
    """The fields that unified search adds to those of every search."""
    query = result.query
    lower_bounds = [f"totals.{_PLURAL[kind]}" for kind, total in result.totals.items() if total.at_least]
    return {
        "results": [_hit(hit, query, site, memory_hit, in_full) for hit in result.hits],
        "found": result.found,
        "totals": KindTotals(**{_PLURAL[kind]: total.count for kind, total in result.totals.items()}),
        "legs": [_leg(leg) for leg in result.legs],
        "page": query.page,
        "page_size": query.page_size,
        "pages": result.pages,
        "has_more": result.has_more,
        "lower_bounds": [*result.memories.lower_bounds, *lower_bounds],
        "took_ms": result.took_ms,
    }


_PLURAL = {ResultKind.MEMORY: "memories", ResultKind.ENTITY: "entities", ResultKind.RELATIONSHIP: "relationships"}


def _hit(
    hit: UnifiedHit, query: SearchQuery, site: str, memory_hit: Callable[[Hit], MemoryHit], in_full: bool
) -> UnifiedHitReply:
    record: dict[str, Any] = {}
    if in_full and hit.memory:
        record["memory"] = memory_hit(hit.memory)
    if in_full and hit.entity:
        record["entity"] = _entity(hit.entity)
    if in_full and hit.relationship:
        record["relationship"] = _relationship(hit.relationship)
    return UnifiedHitReply(
        kind=hit.kind.value,
        id=hit.id,
        title=hit.title_text,
        content=hit.content_text,
        score=hit.score,
        legs={way.value: place for way, place in hit.places.items()},
        why=hit.why,
        source=hit.source,
        url=site + _address(hit.linked, query),
        related=list(_linked(hit.related, query, site)),
        folded=list(_linked(hit.folded, query, site)),
        **record,
    )


def _linked(items: Iterable[Linked], query: SearchQuery, site: str) -> Iterable[LinkedReply]:
    for item in items:
        address = site + _address(item, query)
        yield LinkedReply(kind=item.kind.value, id=item.id, title=item.title, reason=item.reason, url=address)


def _address(item: Linked, query: SearchQuery) -> str:
    """The page of a memory; of the others, the memories that name what they are about."""
    if item.kind == ResultKind.MEMORY:
        return reverse("memories:detail", args=[item.id])
    return explore_url(SearchQuery(entity=item.values, entity_all=len(item.values) > 1))


def _entity(row: EntityRecord) -> EntityReply:
    return EntityReply(
        id=row.id,
        name=row.name,
        type=row.type,
        value=row.value,
        aliases=list(row.aliases),
        description=row.description,
        memories=row.memories,
    )


def _relationship(row: RelationshipRecord) -> RelationshipReply:
    return RelationshipReply(
        id=row.id,
        source=_end(row.source),
        type=row.type,
        target=_end(row.target),
        fact=row.fact,
        confidence=row.confidence,
        valid_from=row.valid_from,
        valid_to=row.valid_to,
        evidence=list(row.evidence),
    )


def _end(ref: EntityRef) -> EntityRefReply:
    return EntityRefReply(id=ref.id, name=ref.name, type=ref.type, value=ref.value)


def _leg(leg: LegAnswer) -> LegReply:
    return LegReply(name=leg.name, ms=leg.ms, found=len(leg.found), state=leg.state.value, reason=leg.reason)
