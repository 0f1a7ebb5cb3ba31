"""Replies of the API about searches and facets."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from django.urls import reverse
from pydantic import BaseModel, Field, create_model

from explorer.links import explore_url
from explorer.timeline_api import IndexRow, QueryWarning
from search.facets import FACETS
from search.query import SearchQuery
from search.result import Hit
from search.unified.legs import LegAnswer, ResultKind
from search.unified.rows import Linked, UnifiedHit
from search.unified.service import UnifiedResult


class RankBoosts(BaseModel):
    """What of a memory itself speaks for it, each from 0 to 1."""

    quality: float
    recency: float
    source: float


class RankScoreParts(BaseModel):
    """What the score is the sum of."""

    relevance: float | None = Field(description="Null where the score is.")
    quality: float
    recency: float
    source: float


class WhyReason(BaseModel):
    label: str
    text: str


class HitWhy(BaseModel):
    """Why a memory is among the results and where it stands. Ranks begin with 1."""

    keyword_rank: int | None = Field(description="Null where it has none of the words, or they were not ranked by.")
    word_score: float | None
    semantic_rank: int | None
    similarity: float | None = Field(description="To the text; null where the memory is not embedded yet.")
    cross_encoder_rank: int | None = Field(
        description="By the cross-encoder; null where none is set, or it did not read it."
    )
    cross_encoder_score: float | None
    relevance: float | None = Field(
        description="By words and meaning, or words alone where it has no vector, from 0 to 1; or the second reading."
    )
    boosts: RankBoosts | None = Field(description="Null beyond the candidates that are weighed further.")
    score_parts: RankScoreParts | None
    found: dict[str, list[str]] = Field(description="By field (title, tags, summary, text): the words as they stand.")
    reasons: list[WhyReason] = Field(description="All of it in plain words.")


class MemoryHit(BaseModel):
    """One memory of a page of results."""

    id: int
    title: str
    snippet: str = Field(description="The part of the text that the words were found in, or its beginning.")
    project: str
    memory_type: str
    tags: list[str]
    categories: list[str] = Field(description="Slug paths.")
    created_at: datetime
    updated_at: datetime
    state: str
    authors: list[str]
    agent: str
    source: str
    source_uri: str
    external_id: str
    pinned: bool
    importance: float | None
    superseded_by: int | None
    score: float | None = Field(
        description="Comparable within one answer; null unless ranked, for who may see all projects."
    )
    similar_to: int | None = Field(description="The memory before it, of this answer, that says nearly the same.")
    why: HitWhy | None = Field(description="Why it is here; null where no text was looked for.")
    url: str = Field(description="The page of the memory.")


class DateBucketCounts(BaseModel):
    """Cumulative: the last 30 days include the last 7. `older` is before the last 365 days."""

    last_7d: int
    last_30d: int
    last_90d: int
    last_year: int
    older: int


class HistogramBar(BaseModel):
    """`from=first&to=last` gives exactly the memories of the bar."""

    first: str
    last: str
    label: str
    count: int = Field(description="Memories within the dates asked for.")
    all: int = Field(description="Memories whatever the dates: what asking for this bar would give.")
    partial: bool = Field(description="Whether the dates asked for cut through the bar.")


class HistogramReply(BaseModel):
    interval: str
    step: int = Field(description="How many years a bar spans, where the interval is a year.")
    bars: list[HistogramBar]


# Built from FACETS, so that a new facet appears here.
_COUNTS: dict[str, Any] = {
    spec.api_name: (dict[str, int], Field(default_factory=dict, description=f"{spec.label}: value to count."))
    for spec in FACETS
} | {"date_buckets": (DateBucketCounts, Field(None)), "histogram": (HistogramReply, Field(None))}
if TYPE_CHECKING:
    FacetCounts = BaseModel
else:
    FacetCounts = create_model(
        "FacetCounts",
        __base__=BaseModel,
        __doc__="Over the whole match set, largest first. A facet's counts leave its own selection out of account.",
        **_COUNTS,
    )


class FacetNote(BaseModel):
    """A facet of which not every value is listed."""

    shown: int
    distinct: int
    note: str


class RelaxationReply(BaseModel):
    """One filter of a query that found nothing, and how many memories there would be without it."""

    parameter: str
    value: str
    label: str
    count: int


LOWER_BOUNDS = (
    "Which numbers are lower bounds because more is near in meaning than is looked at: `total`, `hidden`, "
    "`date_buckets`, `histogram`, names of facets."
)


class SearchReply(BaseModel):
    """A page of memories. The last four are there only where `include_facets` asks for them."""

    memories: list[MemoryHit] | list[IndexRow] = Field(description="Rows of an index where `view=index` asks for it.")
    page: int
    page_size: int
    total: int
    pages: int
    has_more: bool
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    filters: dict[str, Any] = Field(description="The query as it was understood, by canonical name.")
    matched_by: str = Field(description="In words, what a memory had to have.")
    warnings: list[QueryWarning]
    hidden: int = Field(description="How many more there are in states that are left out where no state is asked for.")
    relaxations: list[RelaxationReply] = Field(
        description="Where nothing was found: what leaving one filter out would give."
    )
    engine: str
    took_ms: float
    facets: FacetCounts = Field(default_factory=FacetCounts)
    no_value: dict[str, int] = Field(default_factory=dict, description="Per facet: memories without a value.")
    facet_notes: dict[str, FacetNote] = Field(default_factory=dict, description="The facets not listed in full.")
    unavailable: dict[str, str] = Field(default_factory=dict, description="The facets not counted, and why.")


class CheckReply(BaseModel):
    """One thing that the query asks for. Of those with `either`, one is enough."""

    name: str = Field(description="A facet, `date`, `required`, `excluded`, `phrase`, `words`, `meaning` or `index`.")
    label: str
    asked: str = Field(description="What the query asks for, in words.")
    has: str = Field(description="What the memory has, in words.")
    passed: bool
    either: bool


class WhyNotReply(BaseModel):
    """Whether one memory matches a query, and what of it the memory has."""

    id: int
    title: str
    matches: bool
    verdict: str = Field(description="In one sentence.")
    place: int | None = Field(description="Where it stands among the results; null where it does not, or very late.")
    page: int | None
    total: int = Field(description="How many memories the query finds.")
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    checks: list[CheckReply]
    notes: list[str] = Field(description="What else to know, such as why meaning was left out.")
    filters: dict[str, Any]
    url: str = Field(description="The page of the memory.")


class FacetValueReply(BaseModel):
    value: str = Field(description="What a query says to choose it.")
    label: str
    count: int = Field(description="What choosing it instead of what is chosen in this facet would give.")
    selected: bool
    excluded: bool
    own_count: int | None = Field(description="Of a category: the memories filed right here, not below.")
    parent: str | None = Field(description="Of a category: the slug path of its parent.")
    has_children: bool
    type: str = Field(description="Of a concept or an entity: its type.")


class FacetReply(BaseModel):
    facet: str = Field(description="The name of the parameter that chooses in it.")
    api_name: str = Field(description="Its name among the facets of a search.")
    label: str
    kind: str
    distinct: int = Field(description="How many values have a memory.")
    no_value: int = Field(description="How many memories have no value.")
    values: list[FacetValueReply]
    unavailable: str = Field(description="Why there are no counts, where there are none.")


class FacetsReply(BaseModel):
    """Every facet of a query, with its largest values."""

    total: int
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    filters: dict[str, Any]
    facets: list[FacetReply]
    warnings: list[QueryWarning]
    took_ms: float


class FacetPageReply(FacetReply):
    """One page of the values of one facet. `distinct` counts the values that the listing's search leaves."""

    filters: dict[str, Any]
    total: int = Field(description="How many memories the query finds.")
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    page: int
    page_size: int
    pages: int
    has_more: bool
    warnings: list[QueryWarning]


KindName = Literal["memory", "entity", "relationship"]


class LegReply(BaseModel):
    """One of the six legs: what was looked through, and what came of it."""

    name: str = Field(description="Kind and way, such as `entity meaning`.")
    ms: float
    found: int
    state: Literal["ok", "late", "failed"] = Field(description="`late` and `failed`: the leg was left out.")
    reason: str = Field(description="Why it was left out; empty where it was not.")


class LinkedReply(BaseModel):
    """Another record that a result is shown with."""

    kind: KindName
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

    kind: KindName
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
    """The fields that unified search adds to those of a plain search."""
    query = result.query
    lower_bounds = [f"totals.{kind.plural}" for kind, total in result.totals.items() if total.at_least]
    return {
        "results": [_hit(hit, query, site, memory_hit, in_full) for hit in result.hits],
        "found": result.found,
        "totals": KindTotals(**{kind.plural: total.count for kind, total in result.totals.items()}),
        "legs": [_leg(leg) for leg in result.legs],
        "page": query.page,
        "page_size": query.page_size,
        "pages": result.pages,
        "has_more": result.has_more,
        "lower_bounds": [*result.memories.lower_bounds, *lower_bounds],
        "took_ms": result.took_ms,
    }


def _hit(
    hit: UnifiedHit, query: SearchQuery, site: str, memory_hit: Callable[[Hit], MemoryHit], in_full: bool
) -> UnifiedHitReply:
    record: dict[str, Any] = {}
    if in_full and hit.memory:
        record["memory"] = memory_hit(hit.memory)
    if in_full and hit.entity:
        record["entity"] = EntityReply.model_validate(hit.entity, from_attributes=True)
    if in_full and hit.relationship:
        record["relationship"] = RelationshipReply.model_validate(hit.relationship, from_attributes=True)
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
    """The page of a memory; for other records the memories of their entities."""
    if item.kind == ResultKind.MEMORY:
        return reverse("explorer:memory", args=[item.id])
    return explore_url(SearchQuery(entity=item.values, entity_all=len(item.values) > 1))


def _leg(leg: LegAnswer) -> LegReply:
    return LegReply(name=leg.name, ms=leg.ms, found=len(leg.found), state=leg.state.value, reason=leg.reason)
