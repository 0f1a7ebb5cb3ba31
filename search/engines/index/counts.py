"""All numbers of a match set: facet values, days, and the buckets by date."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, tzinfo
from functools import partial
from itertools import chain, repeat
from typing import Protocol

import numpy as np
from pyroaring import BitMap

from search.engines.base import (
    BUCKET_DAYS,
    EngineQuery,
    FacetCounts,
    FacetRequest,
    FacetValues,
    Spans,
    Value,
    ValueCount,
)
from search.engines.index import days
from search.engines.index.bitmaps import BitmapSegment, bitmap_of
from search.engines.index.match import MatchMasks
from search.engines.index.segments import MULTIPLE, QUARTER, SCALARS, Segment
from search.engines.index.store import View, by_segment, codes_of, column_of, values_at
from search.engines.segment_files import Array, Mask
from search.facets import FACET, FacetKind
from search.histogram import DayCounts

# Bitmaps pay off for sets above the first size that leave out at least the second number of memories, in segments of at
# least the third size that the set covers by at least the share.
_WORTH_BITMAPS = 90_000
_WORTH_LEFT = 60_000
_LARGE_SEGMENT = 50_000
_LARGE_SHARE = 0.05
# The number of queries whose counts by day are cached.
_CACHED_DAYS = 8
# The number of levels of the tree whose codes are cached.
_CACHED_CODES = 1_000
# Columns of a table that are counted together; each takes a byte for every memory.
_COLUMNS_AT_ONCE = 64


class CodeCounts(Protocol):
    """The counts of one column over one set, by code. Code 0 is "no value": it has a count, but is no value."""

    def count(self, code: int) -> int:
        """The count of a code."""

    def codes(self) -> list[int]:
        """All codes with a count, and possibly others."""

    def top(self, limit: int, values: Sequence[Value]) -> list[int]:
        """The codes with the largest counts; ties are broken by value."""

    def top_of(self, codes: Array, limit: int) -> list[int]:
        """Those of the codes with the largest counts, and all ties with the last."""

    def distinct(self) -> int:
        """The number of codes with a count."""


def _blocks(columns: FacetValues | Spans) -> Iterator[tuple[int, FacetValues | Spans]]:
    """The columns of a table in parts that are counted together, each with the number of its first one."""
    if isinstance(columns, Spans):
        yield 0, columns
        return
    for first in range(0, len(columns), _COLUMNS_AT_ONCE):
        yield first, FacetValues(columns.key, columns.values[first : first + _COLUMNS_AT_ONCE])


class FacetCounter:
    """The counts of one answer."""

    def __init__(self, view: View, matches: MatchMasks) -> None:
        self._view = view
        self._matches = matches
        # Keyed by the ids of masks, which `matches` stores, and the first docs of segments.
        self._chosen: dict[tuple[int, int], BitMap] = {}
        self._quarters: dict[int, Array] = {}
        self._no_values: dict[tuple[int, str], int] = {}

    def no_value(self, plan: EngineQuery, key: str) -> int:
        """The number of memories without a value in a facet."""
        if FACET[key].kind == FacetKind.PROJECT:
            return 0
        mask = self._matches.of(plan, without_includes=key)
        if (counted := self._no_values.get((id(mask), key))) is not None:
            return counted
        return int(np.count_nonzero(self._matches.without_value(key) & mask))

    def facet(self, plan: EngineQuery, request: FacetRequest) -> FacetCounts:
        mask = self._matches.of(plan, without_includes=request.key)
        column = column_of(request.key, plan)
        counter = self._counter(column, mask)
        if column == request.key:
            self._no_values[id(mask), request.key] = counter.count(0)
        values = self._view.dictionary.values[column]
        counts = {code: n for code in self._wanted(request, column, counter) if (n := counter.count(code))}
        own = self._own(list(counts), column, mask) if FACET[request.key].kind == FacetKind.TREE else repeat(0)
        rows = [ValueCount(values[code], n, of) for (code, n), of in zip(counts.items(), own, strict=False)]
        rows.sort(key=lambda row: (-row.count, row.value))
        truncated = self._matches.knn(plan, without_includes=request.key).truncated
        return FacetCounts(tuple(rows), counter.distinct(), truncated)

    def days(self, mask: Mask, inside: Mask | None, zone: tzinfo) -> DayCounts:
        """By local day: the count of the mask, and of its docs inside the dates."""
        docs = self._matches.docs(mask)

        def created(some: Array) -> Array:
            return values_at(self._view, "created", docs[some])

        return days.count_days(self._quarters_of(mask), created, None if inside is None else inside[docs], zone)

    def spans(self, mask: Mask, spans: Spans) -> Array:
        """The number of docs of the mask in each span."""
        counts = np.zeros(len(spans), np.int64)
        for segment in self._view.segments:
            labels = days.span_labels(segment, spans.edges)[mask[segment.span]]
            counts += np.bincount(labels, minlength=len(spans) + 2)[1:-1]
        return counts

    def days_around(self, dateless: EngineQuery, inside: Mask, zone: tzinfo) -> DayCounts:
        """By local day: the count without the dates, which is cached because dates change while all else stays, and
        inside.
        """
        cache: dict[object, DayCounts] = self._view.cache.setdefault("days", {})  # type: ignore[assignment]
        if (every := cache.get((dateless, zone))) is None:
            every = self.days(self._matches.of(dateless), None, zone)
            if len(cache) >= _CACHED_DAYS:
                cache.clear()
            cache[dateless, zone] = every
        within = self.days(inside, None, zone)
        counts = np.zeros(len(every.days), np.int64)
        counts[np.searchsorted(every.days, within.days)] = within.all
        return DayCounts(every.days, every.all, counts)

    def buckets(self, mask: Mask, now: datetime) -> tuple[int, ...]:
        moments = [days.microseconds_of(now - timedelta(days=n)) for n in BUCKET_DAYS]
        first = moments[-1] // (QUARTER * 1_000_000)
        # Most memories are older than the longest bucket.
        if (quarters := self._quarters.get(id(mask))) is not None:
            recent = self._matches.docs(mask)[np.flatnonzero(quarters >= first)]
        else:
            late = np.zeros(len(mask), np.bool_)
            for segment in self._view.segments:
                late[segment.span] = segment.arrays["quarter"] >= first
            recent = np.flatnonzero(late & mask)
        found = values_at(self._view, "created", recent)
        later = int(np.count_nonzero(found >= days.microseconds_of(now)))
        since = [int(np.count_nonzero(found >= moment)) - later for moment in moments]
        return (*since, self._matches.count(mask) - since[-1] - later, later)

    def cross(self, plan: EngineQuery, rows: FacetValues, columns: FacetValues | Spans) -> Array:
        """A table of counts, by a value and by another value or a span of time."""
        found = np.zeros((len(rows), len(columns)), np.int64)
        if not found.size:
            return found
        mask, column = self._matches.of(plan), column_of(rows.key, plan)
        known, length = self._view.dictionary.codes[column], self._view.sizes[column]
        codes = [known.get(value, 0) if value != "" else 0 for value in rows.values]
        for segment in self._view.segments:
            within = mask[segment.span]
            for first, some in _blocks(columns):
                count = self._column_counter(segment, plan, some)
                for place, code in enumerate(codes):
                    if 0 < code < length and len(docs := segment.rows_of(column, code)):
                        found[place, first : first + len(some)] += count(docs[within.take(docs)])
        return found

    def _column_counter(
        self, segment: Segment, plan: EngineQuery, columns: FacetValues | Spans
    ) -> Callable[[Array], Array]:
        """A function that counts some rows of a segment by column."""
        if isinstance(columns, Spans):
            labels = days.span_labels(segment, columns.edges)
            # The first and the last label are those outside of all spans.
            return lambda rows: np.bincount(labels.take(rows), minlength=len(columns) + 2)[1:-1]
        column = column_of(columns.key, plan)
        known, length = self._view.dictionary.codes[column], self._view.sizes[column]
        codes = [code if (code := known.get(value, 0)) < length else 0 for value in columns.values]
        if column in SCALARS:
            places = np.full(length, len(codes), np.int64)
            places[[code for code in codes if code]] = [n for n, code in enumerate(codes) if code]
            return lambda rows: np.bincount(places.take(segment.arrays[column].take(rows)), minlength=len(codes) + 1)[
                :-1
            ]
        having = np.zeros((len(codes), segment.size), np.bool_)
        for place, code in enumerate(codes):
            if code:
                having[place, segment.rows_of(column, code)] = True
        return lambda rows: np.count_nonzero(having[:, rows], axis=1)

    def _quarters_of(self, mask: Mask) -> Array:
        if (known := self._quarters.get(id(mask))) is None:
            known = self._quarters[id(mask)] = values_at(self._view, "quarter", self._matches.docs(mask))
        return known

    def _wanted(self, request: FacetRequest, column: str, counter: CodeCounts) -> list[int]:
        """The codes to return; some may have no count."""
        if request.groups:
            groups = [(limit, self._codes(column, group)) for limit, group in request.groups]
            leading = [counter.top_of(codes, limit) for limit, codes in groups if len(codes)]
            return list(dict.fromkeys(chain(*leading, codes_of(self._view, column, request.always))))
        if request.only is not None:
            return codes_of(self._view, column, request.only)
        if request.limit is None:
            return counter.codes()
        largest = counter.top(request.limit, self._view.dictionary.values[column])
        return list(dict.fromkeys([*largest, *codes_of(self._view, column, request.always)]))

    def _codes(self, column: str, values: tuple[Value, ...]) -> Array:
        """The codes of the values, cached: most sidebars have the same categories."""
        cache: dict[object, Array] = self._view.cache.setdefault("codes", {})  # type: ignore[assignment]
        if (known := cache.get((column, values))) is None:
            if len(cache) >= _CACHED_CODES:
                cache.clear()
            known = cache[column, values] = np.array(codes_of(self._view, column, values), np.int64)
        return known

    def _own(self, codes: Sequence[int], column: str, mask: Mask) -> list[int]:
        """The number of docs of the mask filed directly in each category."""
        values = self._view.dictionary.values[column]
        known, length = self._view.dictionary.codes["category_own"], self._view.sizes["category_own"]
        counter = self._counter("category_own", mask)
        at = [known.get(values[code], length) for code in codes]
        return [counter.count(code) if code < length else 0 for code in at]

    def warm_up(self) -> None:
        """Make the bitmaps for counting large sets, if there can be such sets."""
        if self._view.manifest.memories > _WORTH_BITMAPS + _WORTH_LEFT:
            for segment in self._view.segments:
                if segment.size >= _LARGE_SEGMENT:
                    segment.bitmaps(MULTIPLE[0])

    def _counter(self, column: str, mask: Mask) -> CodeCounts:
        hits = self._matches.count(mask)
        if not _WORTH_BITMAPS < hits < self._view.manifest.memories - _WORTH_LEFT:
            return _ArrayCounts(self._count_codes(column, mask))
        length = self._view.sizes[column]
        rest = np.zeros(length, np.int64)
        shared: list[BitmapSegment] = []
        for segment in self._view.segments:
            within = mask[segment.span]
            chosen = self._row_set(mask, segment) if segment.size >= _LARGE_SEGMENT else None
            many = chosen is not None and len(chosen) >= _LARGE_SHARE * segment.size
            if chosen and many and (bitmaps := segment.bitmaps(column)) is not None:
                shared.append(BitmapSegment(within, chosen, bitmaps, partial(segment.rows_of, column)))
            else:
                rest += segment.count(column, within, np.flatnonzero(within), length)
        return _BitmapCounts(shared, rest) if shared else _ArrayCounts(rest)

    def _row_set(self, mask: Mask, segment: Segment) -> BitMap:
        key = (id(mask), segment.first)
        if (known := self._chosen.get(key)) is None:
            known = self._chosen[key] = bitmap_of(np.flatnonzero(mask[segment.span]))
        return known

    def _count_codes(self, column: str, mask: Mask) -> Array:
        """Count by code. For more than half of all memories, count the others and subtract."""
        if len(self._matches.docs(mask)) * 2 > self._view.manifest.memories:
            rest = self._matches.cached(("not", id(mask)), lambda: self._view.live & ~mask)
            return self._all_counts(column) - self._counted(column, rest)
        return self._counted(column, mask)

    def _all_counts(self, column: str) -> Array:
        cache, name = self._view.cache, f"counts of {column}"
        if name not in cache:
            counts = np.zeros(self._view.sizes[column], np.int64)
            for segment in self._view.segments:
                every = segment.totals(column)
                counts[: len(every)] += every
            # Segments have few deleted docs.
            cache[name] = counts - self._counted(column, ~self._view.live)
        found: Array = cache[name]  # type: ignore[assignment]
        return found

    def _counted(self, column: str, mask: Mask) -> Array:
        length = self._view.sizes[column]
        counts = np.zeros(length, np.int64)
        for segment, rows in by_segment(self._view, self._matches.docs(mask)):
            counts += segment.count(column, mask[segment.span], rows, length)
        return counts


class _ArrayCounts:
    """Counts of all codes at once."""

    def __init__(self, counts: Array) -> None:
        self._counts = counts

    def count(self, code: int) -> int:
        return int(self._counts[code])

    def codes(self) -> list[int]:
        found: list[int] = (np.flatnonzero(self._counts[1:]) + 1).tolist()
        return found

    def top(self, limit: int, values: Sequence[Value]) -> list[int]:
        some = np.flatnonzero(self._counts[1:]) + 1
        if len(some) <= limit:
            return some.tolist()
        if not limit:
            return []
        found = self._counts[some]
        least = np.partition(found, len(found) - limit)[len(found) - limit]
        above = some[found > least].tolist()
        equal = some[found == least].tolist()
        equal.sort(key=values.__getitem__)
        return [*above, *equal[: limit - len(above)]]

    def top_of(self, codes: Array, limit: int) -> list[int]:
        found = self._counts[codes]
        if len(codes) > limit:
            codes = codes[found >= np.partition(found, len(found) - limit)[len(found) - limit]]
        listed: list[int] = codes.tolist()
        return listed

    def distinct(self) -> int:
        return int(np.count_nonzero(self._counts[1:]))


class _BitmapCounts:
    """Counts of shared values on demand, from bitmaps, because only few are shown. `shared` are the large segments,
    `rest` the counts of all others.
    """

    def __init__(self, shared: Sequence[BitmapSegment], rest: Array) -> None:
        self._shared = shared
        self._rest = rest
        self._known: dict[int, int] = {}
        # Upper bounds by code.
        self._most: Array = rest.copy()
        self._has_bitmaps = np.zeros(len(rest), np.bool_)
        for one in shared:
            self._most[one.bitmaps.codes] += one.bitmaps.sizes
            self._most[one.bitmaps.rare.codes] += one.bitmaps.rare.lengths
            self._has_bitmaps[one.bitmaps.codes] = True
        self._codes: Array = np.flatnonzero(self._has_bitmaps[1:]) + 1
        self._counted: Array | None = None

    def count(self, code: int) -> int:
        if (known := self._known.get(code)) is None:
            known = self._known[code] = int(self._rest[code]) + sum(one.count(code) for one in self._shared)
        return known

    def codes(self) -> list[int]:
        others = self._without_bitmaps()
        self._known.update(zip(others.tolist(), self._counts()[others].tolist(), strict=True))
        return [*self._codes.tolist(), *others.tolist()]

    def top(self, limit: int, values: Sequence[Value]) -> list[int]:
        if not limit:
            return []
        candidates, least = self._candidates(self._codes, limit)
        if (self._most[1:][~self._has_bitmaps[1:]] >= least).any():
            others, counts = self._without_bitmaps(), self._counts()
            if len(others) > limit:
                found = counts[others]
                others = others[found >= np.partition(found, len(found) - limit)[len(found) - limit]]
            self._known.update(zip(others.tolist(), counts[others].tolist(), strict=True))
            candidates += others.tolist()
        candidates.sort(key=lambda code: (-self.count(code), values[code]))
        return candidates[:limit]

    def top_of(self, codes: Array, limit: int) -> list[int]:
        found, least = self._candidates(codes, limit)
        return [code for code in found if self.count(code) >= least]

    def distinct(self) -> int:
        some = self._rest > 0
        for one in self._shared:
            for codes in one.bitmaps.rare.codes_in(one.mask):
                some[codes] = True
            some[one.bitmaps.codes] |= one.bitmaps.witnessed(one.mask)
        unseen = self._codes[~some[self._codes]].tolist()
        return int(np.count_nonzero(some[1:])) + sum(1 for code in unseen if self.count(code))

    def _candidates(self, codes: Array, limit: int) -> tuple[list[int], int]:
        """Codes with a count, including all with the largest counts, and the lowest of these counts, or 1 if there are
        fewer. Codes are counted in the order of their upper bounds, until none that is left could be among the largest.
        """
        best: list[int] = []
        candidates = []
        most = self._most[codes]
        order = np.argsort(-most)
        for code, at_most in zip(codes[order].tolist(), most[order].tolist(), strict=True):
            if len(best) == limit and at_most < best[0]:
                break
            if n := self.count(code):
                candidates.append(code)
                (heapq.heappush if len(best) < limit else heapq.heappushpop)(best, n)
        return candidates, best[0] if len(best) == limit else 1

    def _counts(self) -> Array:
        """Counts by code, of the codes without bitmaps."""
        if self._counted is None:
            self._counted = self._rest.copy()
            for one in self._shared:
                one.bitmaps.rare.count(one.mask, self._counted)
        return self._counted

    def _without_bitmaps(self) -> Array:
        """The codes with a count that have no bitmaps."""
        found: Array = np.flatnonzero((self._counts() > 0) & ~self._has_bitmaps)
        return found[found > 0]
