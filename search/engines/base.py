"""The protocol of search engines, with its queries and results: ids and numbers, never labels. A filter may only
narrow.

An EngineQuery has every name resolved: engines see values and ids, terms and instants, and nothing a user typed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from search.area import Area, Tile
from search.histogram import DayCounts, Numbers
from search.query import Sort
from text.query_syntax import TextQuery

# The size from which SQL does not read all memories again after every change.
LARGE = 1_000_000


def is_large(memories: int) -> bool:
    """Whether numbers of this many memories may be older than the latest change."""
    return memories > LARGE


Value = int | str
Ids = npt.NDArray[np.int64]
Similarities = npt.NDArray[np.float32]

# In days. The buckets are cumulative and end now; two more hold everything older than the last, and everything later.
BUCKET_DAYS = (7, 30, 90, 365)


class EngineTimeoutError(Exception):
    """The engine ran out of its time limit."""


class EngineUnavailableError(Exception):
    """The engine cannot answer at all, for the reason in the message; another engine may."""


@dataclass(frozen=True, slots=True)
class LanguageText:
    """The query text analysed for the projects of one language; None means every project."""

    language: str
    project_ids: tuple[int, ...] | None
    words: TextQuery


@dataclass(frozen=True, slots=True)
class Filter:
    """The selected values of one facet. Each selected name is a group of values, because a name may be ambiguous.

    A name that resolves to nothing is an empty group: it matches nothing, and never widens.
    """

    key: str
    include: tuple[tuple[Value, ...], ...] = ()
    exclude: tuple[tuple[Value, ...], ...] = ()
    no_value: bool = False
    any_value: bool = False
    require_all: bool = False

    @property
    def includes(self) -> bool:
        return bool(self.include) or self.no_value


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """A k-NN query: the `limit` nearest memories among those that pass the filters, none below `min_similarity`.

    `vector` is float32 as bytes, with the dimensions of the model `model_id`. With `semantic_only`, words do not match.
    """

    model_id: int
    vector: bytes
    min_similarity: float
    limit: int
    semantic_only: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a memory in an order by date, title or recalls: its date, its title in lower case, or how often it
    was recalled; and its id.

    It stays the same place whatever is stored, changed or deleted afterwards.
    """

    key: datetime | str | int
    id: int


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Memories and their similarities, the nearest first. `truncated` if the limit may have cut off more."""

    ids: Ids
    similarities: Similarities
    truncated: bool = False


NO_NEIGHBOURS = Neighbours(np.empty(0, np.int64), np.empty(0, np.float32))


@dataclass(frozen=True, slots=True)
class EngineQuery:
    """A resolved query. `project_ids` are the projects that the viewer may see; None means all of them.

    A memory matches by the words of `texts`, by `meaning`, or by name: it carries one of the terms in `named`, values
    by facet. By words and by meaning it has the phrases and signed words of `texts`.
    """

    project_ids: tuple[int, ...] | None = None
    # Whether nothing matches, because something that was asked cannot be read or resolved.
    is_refused: bool = False
    texts: tuple[LanguageText, ...] = ()
    named: tuple[tuple[str, tuple[Value, ...]], ...] = ()
    meaning: VectorQuery | None = None
    filters: tuple[Filter, ...] = ()
    start: datetime | None = None
    end: datetime | None = None
    # The earliest time of the last change.
    updated_from: datetime | None = None
    # The instant just before which it must be valid.
    as_of: datetime | None = None
    # The area of the map of meaning in which a memory has its place.
    area: Area | None = None
    # When it was recalled last: then or later, or before then or never.
    recalled_from: datetime | None = None
    not_recalled_from: datetime | None = None
    # The revision of the recalls, where the filters or the order depend on them.
    recalls: int = 0
    # Whether a category includes its descendants.
    subcategories: bool = True
    # Whether the counts of a facet keep its own inclusions.
    counts_results: bool = False

    @property
    def has_text(self) -> bool:
        return bool(self.texts or self.named)

    @property
    def without_text(self) -> "EngineQuery":
        """The filters alone."""
        return replace(self, texts=(), named=(), meaning=None)

    @property
    def by_words(self) -> "EngineQuery":
        """The matches by words alone."""
        return replace(self, named=(), meaning=None)

    @property
    def by_name(self) -> "EngineQuery":
        """The matches by name alone."""
        return replace(self, texts=(), meaning=None)

    def filter(self, key: str) -> Filter | None:
        return next((f for f in self.filters if f.key == key), None)

    def drops_selection(self, key: str) -> bool:
        """Whether the counts of a facet ignore its own inclusions."""
        chosen = self.filter(key)
        return chosen is not None and chosen.includes and not (chosen.require_all or self.counts_results)

    def with_filter(self, changed: Filter) -> "EngineQuery":
        others = tuple(f for f in self.filters if f.key != changed.key)
        return replace(self, filters=(*others, changed))

    def without_filter(self, key: str) -> "EngineQuery":
        return replace(self, filters=tuple(f for f in self.filters if f.key != key))


@dataclass(frozen=True, slots=True)
class FacetRequest:
    """The values to count in a facet: the `limit` largest and those in `always`, restricted to `only`.

    Each of the `groups` is a limit and values of `only`: beyond its largest values up to that limit, and ties with the
    last, values may be left out unless they are in `always`.
    """

    key: str
    limit: int | None = None
    always: tuple[Value, ...] = ()
    only: tuple[Value, ...] | None = None
    groups: tuple[tuple[int, tuple[Value, ...]], ...] = ()


class ValueCount(NamedTuple):
    """The number of memories with a value; for a category, `own` counts those filed directly in it."""

    value: Value
    count: int  # type: ignore[assignment]  # not the method of tuples
    own: int = 0


@dataclass(frozen=True, slots=True)
class FacetCounts:
    """The values of a facet, the largest count first, and the number of distinct values with a count.

    If `truncated`, the k-NN limit was reached, and the counts are lower bounds.
    """

    values: tuple[ValueCount, ...] = ()
    distinct: int = 0
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class MatchSet:
    """The size of a match set, and its memories without a value by facet. `truncated` as in FacetCounts."""

    total: int
    no_value: dict[str, int] = field(default_factory=dict)
    truncated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class MapTile:
    """The matches in a tile of the map: each point by its coordinates or, if there are too many, how many are in each
    square of a grid of 256 by 256 over the tile, by its column and row.

    Arrays are parallel. `groups` are 1 for the first group that a match belongs to, 0 for none; `counts` are 1 for
    points.
    """

    total: int
    xs: npt.NDArray[np.uint16]
    ys: npt.NDArray[np.uint16]
    groups: npt.NDArray[np.uint8]
    counts: npt.NDArray[np.int64]
    is_grid: bool = False


# The columns and rows of the grid of a tile, and of the coarse grid of the whole map, as powers of two.
TILE_BITS = 8
COARSE_BITS = 6


@dataclass(frozen=True, slots=True)
class Counts:
    """All counts of one query: facets, days, and the cumulative buckets with and without the date filter.

    Unless days are requested, the match set, the days and the buckets are empty.
    """

    summary: MatchSet
    facets: dict[str, FacetCounts]
    days: DayCounts
    buckets: tuple[int, ...]
    buckets_without_dates: tuple[int, ...]
    # Days are counted without the date filter; see FacetCounts.truncated.
    days_truncated: bool = False
    as_of: datetime | None = None
    """The time of the counts, if the corpus has changed since."""


@dataclass(frozen=True, slots=True)
class FacetValues:
    """Some values of a facet, as the rows or columns of a table of counts."""

    key: str
    values: tuple[Value, ...]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True, slots=True)
class Spans:
    """Consecutive spans of time, each from an edge to before the next, as the columns of a table of counts."""

    edges: tuple[datetime, ...]

    def __len__(self) -> int:
        return max(0, len(self.edges) - 1)


class Engine(Protocol):
    """Finds and counts memories. All engines pass the same conformance tests.

    Every method may raise EngineUnavailableError, and then another engine answers instead.
    """

    name: str
    seconds_behind: float
    """Age of the oldest unapplied change when this engine was opened."""
    waited_ms: float
    """How long the caller waited for this engine to have what was stored just before."""

    @property
    def revision(self) -> str:
        """Changes whenever an answer may; a key for caches of answers."""

    def match(self, plans: Sequence[EngineQuery], *, no_values: bool = False, reuse: bool = False) -> list[MatchSet]:
        """The sizes of the match sets of queries and, with `no_values`, their memories without a value by facet.

        `reuse` announces that hits or counts of the same queries follow, so that the sets are worth caching.
        """

    def any_match(self, plans: Sequence[EngineQuery]) -> list[bool]:
        """Whether any memory matches each of the queries, without counting them."""

    def knn(self, plan: EngineQuery) -> Neighbours:
        """The memories that match by vector, the nearest first."""

    def filter_ids(self, plan: EngineQuery, ids: Sequence[int]) -> set[int]:
        """The memories among `ids` that match."""

    def values_present(self, plan: EngineQuery, key: str, values: Sequence[Value]) -> set[Value]:
        """The values of a facet that a match has, among `values`."""

    def word_scores(self, plan: EngineQuery, ids: Sequence[int]) -> dict[int, float]:
        """The scores of some memories by words, whether they match or not; memories without any word are left out."""

    def similarities(self, meaning: VectorQuery, ids: Sequence[int]) -> dict[int, float]:
        """The similarities of some memories, whatever the minimum; memories without a vector are left out."""

    def hits(self, plan: EngineQuery, order: Sort, *, limit: int, offset: int) -> list[tuple[int, float | None]]:
        """A page of ids and scores. The order is total, so that the same page always has the same ids."""

    def places(
        self, plan: EngineQuery, order: Sort, *, limit: int, offset: int = 0, after: Place | None = None
    ) -> list[Place]:
        """A page in an order by date, title or recalls, of the matches after a place: its cost does not grow with the
        place.
        """

    def counts(
        self, plan: EngineQuery, requests: Sequence[FacetRequest], *, zone: tzinfo, now: datetime, days: bool = True
    ) -> Counts:
        """Counts by facet and, with `days`, by day and bucket. Raises EngineTimeoutError.

        The summary may lack the memories without a value of a facet that is not requested, if its counts ignore its own
        selection.
        """

    def span_counts(self, plan: EngineQuery, spans: Spans) -> tuple[Numbers, Numbers]:
        """The matches of each span of time: without the dates of the query, and with them."""

    def cross(self, plan: EngineQuery, rows: FacetValues, columns: FacetValues | Spans) -> Numbers:
        """A table of counts: the matches with the value of a row that also have the value of a column, or were created
        in its span. Raises EngineTimeoutError.
        """

    def map_tile(
        self, plan: EngineQuery, layout: tuple[int, int], tile: Tile, groups: Sequence[EngineQuery], *, limit: int
    ) -> MapTile:
        """The matches in a tile of the map, given by its number and revision: up to `limit` points, or a grid.
        Raises EngineTimeoutError.
        """

    def map_cells(
        self, plan: EngineQuery, layout: tuple[int, int], key: str, values: Sequence[Value]
    ) -> dict[Value, npt.NDArray[np.int64]]:
        """For each value of a facet, how many matches that have it are in each square of a coarse grid of the map, by
        `column << COARSE_BITS | row`; values that no match on the map has are left out. Raises EngineTimeoutError.
        """

    def similar_terms(self, plan: EngineQuery, term: str) -> list[str]:
        """Some terms of matches that are spelled like this one, in no particular order."""
