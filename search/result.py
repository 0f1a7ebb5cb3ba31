"""Results of searches: frozen and independent of the engine, for pages, API and tools to render."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from enum import Enum
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from memories.models import Memory
from search.engines.base import LARGE, Place
from search.facets import FACET, DateBuckets, Facet, FacetValue
from search.histogram import Histogram
from search.query import ExtraParams, SearchQuery
from search.ranking import Ranked
from text.formatting import local_time
from text.highlight import MarkedText
from web.params import MAX_PAGE, Text
from web.timing import took_ms

if TYPE_CHECKING:
    from search.plan import ResolvedQuery

# The most values of a facet in one answer.
FACET_LIMIT = 1_000
# How `SearchResult.matched_by` begins if no memory has the words.
NONE_CONTAINS = "no memory contains"


class HitDetail(Enum):
    """How much is read of each hit: nothing, the row of an index, a card with snippet and highlights, or also the words
    that explain it.
    """

    NONE = "none"
    INDEX = "index"
    CARD = "card"
    FULL = "full"

    @property
    def has_text(self) -> bool:
        return self in {HitDetail.CARD, HitDetail.FULL}


# The parameter of warnings about the counts of all memories, which no parameter of a request changes.
COUNTS = "counts"
# The parameter of the warning that something of a search cannot be read or resolved, so that nothing matches.
REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class SearchWarning:
    """A message about a valid result."""

    message: str
    parameter: str = ""
    did_you_mean: tuple[str, ...] = ()


def older_warnings(as_of: datetime | None, zone: tzinfo) -> tuple[SearchWarning, ...]:
    """A warning about counts of an earlier time; none about current ones."""
    if as_of is None:
        return ()
    text = (
        f"Counts of all memories are of {local_time(as_of, zone):%H:%M:%S}: above {LARGE:,} memories they are made "
        "again in the background, not after every change."
    )
    return (SearchWarning(text, COUNTS),)


@dataclass(frozen=True, slots=True)
class CorpusCounts:
    """Counts of all visible memories in the default states: the total, and per facet value."""

    total: int = 0
    counts: Mapping[tuple[str, int | str], int] = field(default_factory=dict)
    """(facet, engine value) to number of memories."""
    known: bool = True
    """False if counting timed out; `counts` is then empty."""
    as_of: datetime | None = None
    """The time of the counts, if the corpus has changed since."""

    def count(self, key: str, value: FacetValue) -> int | None:
        """The number of memories with a value; None if unknown."""
        if not self.known:
            return None
        return 0 if value.ref is None else self.counts.get((key, value.ref), 0)


@dataclass(frozen=True, slots=True)
class CategoryRef:
    """A category of a hit: its slug path, and the names along it."""

    path: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldMatch:
    """The words of the query found in a field, as written there."""

    field: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """A hit. `title` and `snippet` are segments, which the renderer escapes and highlights."""

    id: int
    project: str
    memory_type: str
    title: tuple[MarkedText, ...]
    snippet: tuple[MarkedText, ...]
    created_at: datetime
    updated_at: datetime
    state: str
    tags: tuple[str, ...]
    categories: tuple[CategoryRef, ...]
    authors: tuple[str, ...]
    agent: str
    source: str
    source_uri: str
    external_id: str
    pinned: bool
    importance: float | None
    superseded_by: int | None
    score: float | None
    why: Ranked
    found: tuple[FieldMatch, ...] = ()
    named: tuple[str, ...] = ()
    """The terms of the query's name that it carries, such as `the concept “caching”`."""
    project_name: str = ""
    """The name of the project, as facets show it."""
    recalls: int = 0
    """How often it was recalled."""
    trust: Memory.Trust = Memory.Trust.PERSON
    """The origin of the text: a person, an agent or outside."""
    marks: tuple[str, ...] = ()
    """Why the text may steer a model that reads it, as `text/steering.py` says."""

    @property
    def title_text(self) -> str:
        return "".join(segment.text for segment in self.title)

    @property
    def snippet_text(self) -> str:
        return "".join(segment.text for segment in self.snippet)


@dataclass(frozen=True, slots=True)
class NamedTerm:
    """A term whose name or alias is the whole query, and the number of matches that carry it."""

    facet: str
    value: str
    """The value in URLs."""
    label: str
    count: int
    ref: int | str
    """The value of engines."""
    selected: bool = False
    """Whether the query selects it already."""

    @property
    def text(self) -> str:
        return term_text(self.facet, self.label)


def term_text(key: str, label: str) -> str:
    """A term in words, such as `the concept “caching”`."""
    return f"the {FACET[key].label.lower()} “{label}”"


@dataclass(frozen=True, slots=True)
class FilterRelaxation:
    """A filter of a query without results, and the number of results without it; `also` are filters that go with it."""

    key: str
    value: str
    label: str
    count: int
    query: SearchQuery
    at_least: bool = False
    also: tuple[tuple[str, str], ...] = ()
    """(key, value) of each."""


@dataclass(frozen=True, slots=True)
class HistogramSplit:
    """The largest values of a facet, each with its count per bar within the dates. The rest of a bar has others."""

    key: str
    values: tuple[FacetValue, ...]
    counts: tuple[tuple[int, ...], ...]
    rest: tuple[int, ...]

    @property
    def parts(self) -> list[tuple[str, tuple[int, ...]]]:
        """The label and the counts of each part of the bars; `other` only if there are any."""
        named = [(value.label, counts) for value, counts in zip(self.values, self.counts, strict=True)]
        return [*named, ("other", self.rest)] if any(self.rest) else named


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a query. `facets`, `histogram` and `date_buckets` are None unless facets were requested.

    `date_buckets` count the match set, `quick_ranges` the same periods without the date filter. `hidden` counts matches
    outside of the default states. `named` are the terms that the text names, the largest first. `timings` are
    milliseconds by stage. With `at_least`, the semantic search was truncated, and the total and the date buckets are
    lower bounds; `hidden_at_least` is the same for `hidden`. `min_similarity` is the threshold of semantic matches;
    None without semantic search.
    """

    query: SearchQuery
    total: int
    hits: tuple[Hit, ...]
    matched_by: str
    named: tuple[NamedTerm, ...] = ()
    at_least: bool = False
    hidden: int = 0
    hidden_at_least: bool = False
    facets: tuple[Facet, ...] | None = None
    histogram: Histogram | None = None
    date_buckets: DateBuckets | None = None
    quick_ranges: DateBuckets | None = None
    split: HistogramSplit | None = None
    """The bars of the histogram by the values of a facet, if one was requested."""
    warnings: tuple[SearchWarning, ...] = ()
    relaxations: tuple[FilterRelaxation, ...] = ()
    labels: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Labels of selected values by (facet, value), if they differ from the value."""
    min_similarity: float | None = None
    corpus: CorpusCounts = CorpusCounts()
    last: Place | None = None
    """The place of the last hit in an order by date or title."""
    goes_on: bool | None = None
    """Whether more results follow a page that a place begins, where the total does not tell."""
    engine: str = "postgres"
    timings: dict[str, float] = field(default_factory=dict)
    resolved: "ResolvedQuery | None" = field(default=None, repr=False, compare=False)

    @property
    def page(self) -> int:
        return self.query.page

    @property
    def page_size(self) -> int:
        return self.query.page_size

    @property
    def pages(self) -> int:
        return pages_of(self.query, self.total)

    @property
    def has_more(self) -> bool:
        return self.query.begin + self.query.page_size < self.total if self.goes_on is None else self.goes_on

    @property
    def took_ms(self) -> float:
        return took_ms(self.timings)

    @property
    def lower_bounds(self) -> tuple[str, ...]:
        """API names of the numbers that are lower bounds."""
        named = [("total", self.at_least), ("hidden", self.hidden_at_least)]
        named += [(facet.spec.api_name, facet.at_least) for facet in self.facets or ()]
        if self.histogram is not None:
            named += [("histogram", self.histogram.at_least), ("date_buckets", self.at_least)]
        return tuple(name for name, is_bound in named if is_bound)


def pages_of(query: SearchQuery, found: int) -> int:
    """The number of pages of a query, counted from its offset."""
    return max(1, -(-(found - query.offset) // query.page_size))


def page_warnings(query: SearchQuery, found: int) -> list[SearchWarning]:
    """A warning if the page begins after the last result."""
    if query.is_by_offset and query.begin and query.begin >= found:
        return [SearchWarning(f"Offset {query.begin:,} is past the last of {found:,} results.", "offset")]
    pages = pages_of(query, found)
    if query.page > pages:
        return [SearchWarning(f"Page {query.page:,} is past the last page, {pages:,}.", "page")]
    return []


class FacetListing(ExtraParams):
    """How a page lists the values of one facet. Its order and its pages replace those of the search."""

    aliases = {"limit": "page_size", "orderBy": "sort", "order_by": "sort"}

    search: Text = Field("", max_length=200, description="Part of a name.")
    sort: Literal["count", "name", "typical"] = Field(
        "count",
        description="Largest first, by name, or first those that are more frequent here than in all other memories.",
    )
    page: int = Field(1, ge=1, le=MAX_PAGE, description="Page number.")
    page_size: int = Field(100, ge=1, le=FACET_LIMIT, description="Values per page.")
    parent: Text = Field("", description="For categories: only the children of this one.")
    without_sample: bool = Field(False, description="Without what only the memories of the sample have.")


@dataclass(frozen=True, slots=True)
class Initial:
    """The first of the values, by name, that begin with a letter; "#" stands for all that begin with none."""

    letter: str
    place: int
    value: str


@dataclass(frozen=True, slots=True)
class FacetPage:
    """A page of the values of a facet. `facet.distinct` counts the values that match the listing's search."""

    facet: Facet
    listing: FacetListing
    total: int
    # Whether the total is a lower bound.
    at_least: bool = False
    warnings: tuple[SearchWarning, ...] = ()
    # As in a SearchResult.
    labels: Mapping[tuple[str, str], str] = field(default_factory=dict)
    corpus: CorpusCounts = CorpusCounts()
    timings: dict[str, float] = field(default_factory=dict)
    # For listings with several pages.
    initials: tuple[Initial, ...] = ()

    @property
    def lower_bounds(self) -> tuple[str, ...]:
        """As in a SearchResult."""
        named = (("total", self.at_least), (self.facet.spec.api_name, self.facet.at_least))
        return tuple(name for name, is_bound in named if is_bound)

    @property
    def pages(self) -> int:
        return max(1, -(-self.facet.distinct // self.listing.page_size))

    @property
    def has_more(self) -> bool:
        return self.listing.page < self.pages

    @property
    def is_part(self) -> bool:
        """Whether there are other memories, which the values can be compared with."""
        return self.corpus.total > self.total
