"""Replies of the API about searches and facets."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from django.urls import reverse
from pydantic import BaseModel, Field, create_model

from explorer.explore.timeline_api import IndexRow, QueryWarning
from explorer.links import explore_url
from memories.marks import MARKS
from memories.trust import TRUST
from search.facets import FACETS
from search.query import SearchQuery
from search.result import Hit
from search.unified.legs import LegAnswer, ResultKind
from search.unified.rows import Linked, UnifiedHit
from search.unified.service import UnifiedResult


class RankBoosts(BaseModel):
    """Signals of a memory that do not depend on the query, each from 0 to 1."""

    quality: float
    recency: float
    source: float


class RankScoreParts(BaseModel):
    """The summands of the score."""

    relevance: float | None = Field(description="Null if the score is null.")
    quality: float
    recency: float
    source: float


class WhyReason(BaseModel):
    label: str
    text: str


class HitWhy(BaseModel):
    """The explanation of a hit and its rank. Ranks start at 1."""

    keyword_rank: int | None = Field(description="Null if it has none of the words, or words are not used for ranking.")
    word_score: float | None
    semantic_rank: int | None
    similarity: float | None = Field(description="Similarity to the query; null if the memory is not embedded yet.")
    cross_encoder_rank: int | None = Field(
        description="Rank by the cross-encoder; null if none is set, or it did not score this memory."
    )
    cross_encoder_score: float | None
    moved_below: int | None = Field(
        description="The memory that superseded it, if it was moved down to follow this one."
    )
    relevance: float | None = Field(
        description="From 0 to 1: by words and meaning, or words alone where it has no vector, and by the results "
        "that it resembles; by the cross-encoder where it scored this memory."
    )
    fused_rank: int | None = Field(
        description="Rank by words and meaning, of the first results, which are then compared with each other."
    )
    neighbour_rank: int | None = Field(description="Rank after that, by the results that it resembles.")
    boosts: RankBoosts | None = Field(description="Null beyond the candidates that are scored further.")
    score_parts: RankScoreParts | None
    found: dict[str, list[str]] = Field(description="By field (title, tags, summary, text): the matching words.")
    reasons: list[WhyReason] = Field(description="The whole explanation in plain words.")


class MemoryHit(BaseModel):
    """A memory on a page of results."""

    id: int
    title: str
    snippet: str = Field(description="The part of the text that matches, or its beginning.")
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
    recalls: int = Field(description="How often it was recalled.")
    trust: str = Field(description=TRUST)
    marks: list[str] = Field(description=MARKS)
    score: float | None = Field(
        description="Comparable within one reply; null unless ranked, for who may see all projects."
    )
    similar_to: int | None = Field(description="An earlier memory in this reply with nearly the same text.")
    why: HitWhy | None = Field(description="Why it was found; null without a search text.")
    url: str = Field(description="The page of the memory.")


class DateBucketCounts(BaseModel):
    """Cumulative counts up to now: the last 30 days include the last 7. `older` is before the last 365 days."""

    last_7d: int
    last_30d: int
    last_90d: int
    last_year: int
    older: int
    future: int = Field(0, description="Dated later than now; only if there are any.")


class HistogramBar(BaseModel):
    """A bar of the histogram. `from=first&to=last` selects exactly its memories."""

    first: str
    last: str
    label: str
    count: int = Field(description="Memories within the selected dates.")
    all: int = Field(description="Memories regardless of the selected dates: the count if this bar is selected.")
    partial: bool = Field(description="Whether the selected dates cover the bar only in part.")


class HistogramReply(BaseModel):
    interval: str
    step: int = Field(description="Number of years per bar, if the interval is a year.")
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
        __doc__="Over the whole match set, largest first. A facet's counts ignore its own selection.",
        **_COUNTS,
    )


class FacetNote(BaseModel):
    """A facet with more values than are listed."""

    shown: int
    distinct: int
    note: str


class NamedReply(BaseModel):
    """A term whose name or alias is the whole text."""

    facet: str = Field(description="The query parameter that selects it: tag, concept, category or entity.")
    value: str = Field(description="The value of that parameter.")
    label: str
    count: int = Field(description="Number of matches that carry it.")
    selected: bool = Field(description="Whether the query selects it already.")


class RelaxationReply(BaseModel):
    """A filter of a query without results, and the number of memories without it."""

    parameter: str
    value: str
    label: str
    count: int
    also: list[tuple[str, str]] = Field(description="Parameters and values that have to be left out with it.")


class UnderstoodReply(BaseModel):
    """Words of the text that may mean filters: nothing is applied unless it is asked for."""

    label: str
    words: str = Field(description="The words that the filters stand for.")
    filters: dict[str, str] = Field(description="Parameters and values: a facet's, or `from` and `to`.")
    text: str = Field(description="The words that are left, for `q`.")
    query: str = Field(description="The query string of the search with these filters.")
    count: int = Field(description="How many memories it finds.")


LOWER_BOUNDS = (
    "Which numbers are lower bounds because more memories are close in meaning than are considered: `total`, `hidden`, "
    "`date_buckets`, `histogram`, names of facets."
)


class SearchReply(BaseModel):
    """A page of memories. The last four fields exist only with `include_facets`."""

    memories: list[MemoryHit] | list[IndexRow] = Field(description="Rows of an index where `view=index` asks for it.")
    page: int
    page_size: int
    total: int
    pages: int
    has_more: bool
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null on the last.")
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    filters: dict[str, Any] = Field(description="The parsed query, by canonical name.")
    matched_by: str = Field(description="How memories matched, in words.")
    named: list[NamedReply] = Field(description="The terms that the text names, the largest first.")
    warnings: list[QueryWarning]
    hidden: int = Field(description="Number of further matches in states that are excluded by default.")
    understood: list[UnderstoodReply] = Field(
        description="People and times in the words of the text, as filters to accept: all together first."
    )
    known: "UnifiedHitReply | None" = Field(
        None, description="The fact, entity, concept or category that the text fits best, on the first page of hybrid."
    )
    relaxations: list[RelaxationReply] = Field(
        description="If nothing was found: the number of results without one filter."
    )
    engine: str
    took_ms: float
    facets: FacetCounts = Field(default_factory=FacetCounts)
    no_value: dict[str, int] = Field(default_factory=dict, description="Per facet: memories without a value.")
    facet_notes: dict[str, FacetNote] = Field(default_factory=dict, description="The facets not listed in full.")
    unavailable: dict[str, str] = Field(default_factory=dict, description="The facets that are not counted, and why.")


class CheckReply(BaseModel):
    """A condition of the query. Of those with `either`, meeting one is enough."""

    name: str = Field(
        description="A facet, `date`, `required`, `excluded`, `phrase`, `words`, `name`, `meaning` or `index`."
    )
    label: str
    asked: str = Field(description="The condition of the query, in words.")
    has: str = Field(description="The value of the memory, in words.")
    passed: bool
    either: bool


class WhyNotReply(BaseModel):
    """Whether a memory matches a query, and which conditions it meets."""

    id: int
    title: str
    matches: bool
    verdict: str = Field(description="The verdict in one sentence.")
    place: int | None = Field(
        description="Its position among the results; null if it does not match or is too far down."
    )
    page: int | None
    total: int = Field(description="Number of memories that the query finds.")
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    checks: list[CheckReply]
    notes: list[str] = Field(description="Notes, such as why meaning was not used.")
    filters: dict[str, Any]
    url: str = Field(description="The page of the memory.")


class FacetValueReply(BaseModel):
    value: str = Field(description="The value of the query parameter that selects it.")
    label: str
    count: int = Field(description="The number of memories if it replaces the selection in this facet.")
    selected: bool
    excluded: bool
    own_count: int | None = Field(description="For a category: the memories directly in it, without subcategories.")
    parent: str | None = Field(description="For a category: the slug path of its parent.")
    has_children: bool
    type: str = Field(description="For a concept or an entity: its type.")


class FacetReply(BaseModel):
    facet: str = Field(description="The query parameter of this facet.")
    api_name: str = Field(description="Its name in the facets of a search.")
    label: str
    kind: str
    distinct: int = Field(description="Number of values with a memory.")
    no_value: int = Field(description="Number of memories without a value.")
    values: list[FacetValueReply]
    unavailable: str = Field(description="Why there are no counts, if there are none.")


class FacetsReply(BaseModel):
    """Every facet of a query, with its largest values."""

    total: int
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    filters: dict[str, Any]
    facets: list[FacetReply]
    warnings: list[QueryWarning]
    took_ms: float


class FacetPageReply(FacetReply):
    """A page of the values of a facet. `distinct` counts the values that match the listing's search."""

    filters: dict[str, Any]
    total: int = Field(description="Number of memories that the query finds.")
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    page: int
    page_size: int
    pages: int
    has_more: bool
    warnings: list[QueryWarning]


KindName = Literal["memory", "entity", "concept", "category", "relationship"]


class LegReply(BaseModel):
    """One of the ten legs of unified search."""

    name: str = Field(description="Kind and way, such as `entity meaning`.")
    ms: float
    found: int
    state: Literal["ok", "partly", "no_vectors", "late", "failed"] = Field(
        description="`partly`: not everything that it searches has a vector so far. `no_vectors`, `late` and `failed`:"
        " the leg is not included."
    )
    reason: str = Field(description="Why it is not included, or not completely; empty for `ok`.")
    embedded_percent: float | None = Field(description="For a leg by meaning: the share with a vector, if known.")


class LinkedReply(BaseModel):
    """A record related to a result."""

    kind: KindName
    id: int
    title: str
    reason: str
    url: str


class TermReply(BaseModel):
    """A stored entity, concept or category."""

    id: int
    name: str
    type: str = Field(description="Empty for a category.")
    value: str = Field(description="The value of the filter for it, such as `entity=`.")
    aliases: list[str]
    description: str
    memories: int = Field(description="Number of memories that match the filters and mention it.")


class EntityRefReply(BaseModel):
    """An end of a relationship."""

    id: int
    name: str
    type: str
    value: str = Field(description="The value of `entity=` for it.")


class RelationshipReply(BaseModel):
    """A stored relationship."""

    id: int
    source: EntityRefReply
    type: str
    target: EntityRefReply
    fact: str
    confidence: float | None
    valid_from: datetime | None
    valid_to: datetime | None
    evidence: list[int] = Field(description="Ids of the supporting memories that match the filters.")


class UnifiedHitReply(BaseModel):
    """A result with the record of its kind, unless `view=index`; the others are missing."""

    kind: KindName
    id: int = Field(description="Unique within its kind: a memory and an entity can share an id.")
    title: str
    content: str = Field(description="An excerpt of the text of a memory, a description, or a fact.")
    score: float = Field(description="Comparable within one reply only.")
    legs: dict[str, int] = Field(description="Its place by `words` and by `meaning`, from 1, where that found it.")
    why: str = Field(description="The explanation in words.")
    source: str = Field(
        description="The source of a memory; the number of memories that carry a term or support a relationship."
    )
    url: str = Field(description="The page of a memory; otherwise the memories that mention or support it.")
    related: list[LinkedReply] = Field(description="At most two, each with the reason.")
    folded: list[LinkedReply] = Field(description="Results with the same content or from the same memory, and why.")
    memory: MemoryHit | None = None
    entity: TermReply | None = None
    concept: TermReply | None = None
    category: TermReply | None = None
    relationship: RelationshipReply | None = None


class KindTotals(BaseModel):
    """The number of results of each kind, before grouping."""

    memories: int = Field(description="As `total`.")
    entities: int
    concepts: int
    categories: int
    relationships: int


class UnifiedReply(SearchReply):
    """A page of results of five kinds. `memories` are those on the page; `total` and facets are of memories, `pages`
    of `found` results. `lower_bounds` names the totals that may be larger.
    """

    results: list[UnifiedHitReply]
    found: int = Field(description="Number of results; a group counts once.")
    totals: KindTotals
    legs: list[LegReply]


SearchReply.model_rebuild()
UnifiedReply.model_rebuild()


def known_reply(hit: UnifiedHit, query: SearchQuery, site: str) -> UnifiedHitReply:
    """A result without its record."""
    return _hit(hit, query, site, None)


def unified_parts(
    result: UnifiedResult, site: str, memory_hit: Callable[[Hit], MemoryHit], *, in_full: bool
) -> dict[str, Any]:
    """The fields that unified search adds to those of a plain search."""
    query = result.query
    lower_bounds = [f"totals.{kind.plural}" for kind, total in result.totals.items() if total.at_least]
    return {
        "results": [_hit(hit, query, site, memory_hit if in_full else None) for hit in result.hits],
        "found": result.found,
        "totals": KindTotals(**{kind.plural: total.count for kind, total in result.totals.items()}),
        "legs": [_leg(leg) for leg in result.legs],
        "page": query.page,
        "page_size": query.page_size,
        "pages": result.pages,
        "has_more": result.has_more,
        # The order of all kinds depends on every record: its pages have no cursors.
        "next_cursor": None,
        "lower_bounds": [*result.memories.lower_bounds, *lower_bounds],
        "took_ms": result.took_ms,
    }


def _hit(
    hit: UnifiedHit, query: SearchQuery, site: str, memory_hit: Callable[[Hit], MemoryHit] | None
) -> UnifiedHitReply:
    """A result, with its record if `memory_hit` makes those of memories."""
    record: dict[str, Any] = {}
    if memory_hit and hit.memory:
        record["memory"] = memory_hit(hit.memory)
    if memory_hit and hit.term:
        record[hit.kind.value] = TermReply.model_validate(hit.term, from_attributes=True)
    if memory_hit and hit.relationship:
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
    """The page of a memory; for other records the memories that carry them."""
    if item.kind == ResultKind.MEMORY:
        return reverse("explorer:memory", args=[item.id])
    chosen: dict[str, Any] = {item.facet: item.values}
    return explore_url(SearchQuery(**chosen, entity_all=len(item.values) > 1))


def _leg(leg: LegAnswer) -> LegReply:
    return LegReply(
        name=leg.name,
        ms=leg.ms,
        found=len(leg.found),
        state=leg.state.value,
        reason=leg.reason,
        embedded_percent=leg.share.percent if leg.share else None,
    )
