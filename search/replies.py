"""What the API answers about searches and facets: the models of its replies, and what each field of them means."""

from datetime import datetime
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field, create_model

from search.facets import FACETS
from search.layers import IndexRow, QueryWarning


class RankTraits(BaseModel):
    """What of a memory itself speaks for it, each from 0 to 1."""

    quality: float
    recency: float
    source: float


class RankParts(BaseModel):
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

    word_rank: int | None = Field(description="Null where it has none of the words, or they were not ranked by.")
    word_score: float | None
    meaning_rank: int | None
    similarity: float | None = Field(description="To the text; null where the memory is not embedded yet.")
    reread_rank: int | None = Field(description="By the cross-encoder; null where none is set, or it did not read it.")
    reread_score: float | None
    relevance: float | None = Field(
        description="By words and meaning, or words alone where it has no vector, from 0 to 1; or the second reading."
    )
    traits: RankTraits | None = Field(description="Null beyond the candidates that are weighed further.")
    parts: RankParts | None
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


# From the one list of facets, so that a facet added there is counted and documented here.
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


class Without(BaseModel):
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
    without: list[Without] = Field(description="Where nothing was found: what leaving one filter out would give.")
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
