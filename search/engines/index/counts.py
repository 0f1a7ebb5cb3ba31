"""All numbers of a match set: facet values, buckets by date, and days in any time zone, from quarters of an hour."""

import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import chain, repeat

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
from search.engines.index.match import MatchMasks
from search.engines.index.segments import (
    EPOCH,
    MULTIPLE,
    QUARTER,
    SCALARS,
    Bitmaps,
    Segment,
    bitmap_of,
    instant_of,
    microseconds_of,
)
from search.engines.index.store import View, by_segment, codes_of, column_of, values_at
from search.engines.segment_files import Array, Mask
from search.facets import FACET, FacetKind
from search.histogram import DayCounts
from text.formatting import day_start, local_day

# Bitmaps count a set of more memories than this that also leaves out as many. The facets of a half of a million
# memories take 28 ms instead of 48, those of a half of 400,000 take 14 instead of 17; for smaller sets arrays are as
# fast.
_WORTH_BITMAPS = 150_000
# The number of queries whose counts by day are cached.
_CACHED_DAYS = 8
# The number of levels of the tree whose codes are cached.
_CACHED_CODES = 1_000
# Columns of a table that are counted together; each takes a byte for every memory.
_COLUMNS_AT_ONCE = 64


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
        counts = {code: n for code in self._codes_to_show(request, column, counter) if (n := counter.count(code))}
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

        return count_days(self._quarters_of(mask), created, None if inside is None else inside[docs], zone)

    def spans(self, mask: Mask, spans: Spans) -> Array:
        """The number of docs of the mask in each span."""
        counts = np.zeros(len(spans), np.int64)
        for segment in self._view.segments:
            labels = span_labels(segment, spans.edges)[mask[segment.span]]
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
        moments = [microseconds_of(now - timedelta(days=n)) for n in BUCKET_DAYS]
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
        later = int(np.count_nonzero(found >= microseconds_of(now)))
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
            labels = span_labels(segment, columns.edges)
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

    def _codes_to_show(self, request: FacetRequest, column: str, counter: "_ArrayCounts | _BitmapCounts") -> list[int]:
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
        if self._view.manifest.memories > 2 * _WORTH_BITMAPS:
            for segment in self._view.segments:
                if segment.size > _WORTH_BITMAPS:
                    segment.bitmaps(MULTIPLE[0])

    def _counter(self, column: str, mask: Mask) -> "_ArrayCounts | _BitmapCounts":
        hits = self._matches.count(mask)
        if min(hits, self._view.manifest.memories - hits) <= _WORTH_BITMAPS:
            return _ArrayCounts(self._count_codes(column, mask))
        counts = np.zeros(self._view.sizes[column], np.int64)
        shared: list[tuple[BitMap, Bitmaps]] = []
        for segment in self._view.segments:
            within = mask[segment.span]
            bitmaps = segment.bitmaps(column) if segment.size > _WORTH_BITMAPS else None
            if bitmaps is None:
                counts += segment.count(column, within, np.flatnonzero(within), len(counts))
            else:
                bitmaps.count_rare(within, counts)
                shared.append((self._row_set(mask, segment), bitmaps))
        return _BitmapCounts(shared, counts) if shared else _ArrayCounts(counts)

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
    """The counts of one column over one set, by code, all counted at once. Code 0 is "no value": it has a count, but is
    no value.
    """

    def __init__(self, counts: Array) -> None:
        self._counts = counts

    def count(self, code: int) -> int:
        return int(self._counts[code])

    def codes(self) -> list[int]:
        """The codes with a count."""
        found: list[int] = (np.flatnonzero(self._counts[1:]) + 1).tolist()
        return found

    def top(self, limit: int, values: Sequence[Value]) -> list[int]:
        """The codes with the largest counts; ties are broken by value."""
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
        """Those of the codes with the largest counts, and all ties with the last."""
        found = self._counts[codes]
        if len(codes) > limit:
            codes = codes[found >= np.partition(found, len(found) - limit)[len(found) - limit]]
        listed: list[int] = codes.tolist()
        return listed

    def distinct(self) -> int:
        """The number of codes with a count."""
        return int(np.count_nonzero(self._counts[1:]))


class _BitmapCounts:
    """The same, of which the codes with bitmaps are counted on demand, because only few are shown.

    `shared` are the matching rows of large segments and their bitmaps, `counts` the counts of all other values.
    """

    def __init__(self, shared: Sequence[tuple[BitMap, Bitmaps]], counts: Array) -> None:
        self._shared = shared
        self._counts = counts
        self._known: dict[int, int] = {}
        # Upper bounds by code.
        self._most: Array = counts.copy()
        has_bitmaps = np.zeros(len(counts), np.bool_)
        for _, bitmaps in shared:
            self._most[bitmaps.codes] += bitmaps.sizes
            has_bitmaps[bitmaps.codes] = True
        self._codes: Array = np.flatnonzero(has_bitmaps[1:]) + 1
        self._others = _ArrayCounts(np.where(has_bitmaps, 0, counts))

    def count(self, code: int) -> int:
        if (known := self._known.get(code)) is None:
            found = sum(chosen.intersection_cardinality(rows) for chosen, rows in self._bitmaps_of(code))
            known = self._known[code] = int(self._counts[code]) + found
        return known

    def codes(self) -> list[int]:
        """All codes with a count, and possibly others."""
        return [*self._codes.tolist(), *self._others.codes()]

    def top(self, limit: int, values: Sequence[Value]) -> list[int]:
        if not limit:
            return []
        found = [*self._candidates(self._codes, limit)[0], *self._others.top(limit, values)]
        found.sort(key=lambda code: (-self.count(code), values[code]))
        return found[:limit]

    def top_of(self, codes: Array, limit: int) -> list[int]:
        found, least = self._candidates(codes, limit)
        return [code for code in found if self.count(code) >= least]

    def distinct(self) -> int:
        return self._others.distinct() + sum(
            bool(self._counts[code]) or any(chosen.intersect(rows) for chosen, rows in self._bitmaps_of(code))
            for code in self._codes.tolist()
        )

    def _bitmaps_of(self, code: int) -> Iterator[tuple[BitMap, BitMap]]:
        """The matching rows of each segment that has a bitmap of the code, and that bitmap."""
        for chosen, bitmaps in self._shared:
            if (rows := bitmaps.by_code.get(code)) is not None:
                yield chosen, rows

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


# In quarters of an hour: a hundred years.
_LONGEST_TABLE = 3_500_000
# Between these, all UTC offsets are whole quarters of an hour; Kiritimati was the last exception, in 1979.
_FIRST_EVEN = int(datetime(1980, 1, 1, tzinfo=UTC).timestamp()) // QUARTER
_LAST_EVEN = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) // QUARTER


def span_labels(segment: Segment, edges: Sequence[datetime]) -> Array:
    """The span of each row of a segment, from 1; 0 is before the first edge, and the highest label after the last."""
    at = np.array([microseconds_of(edge) for edge in edges], np.int64)
    quarters, rest = np.divmod(at, QUARTER * 1_000_000)
    if rest.any():
        return np.searchsorted(at, segment.arrays["created"], "right")
    first, last = int(quarters[0]), int(quarters[-1])
    stored = segment.arrays["quarter"]
    if last - first > _LONGEST_TABLE:
        return np.searchsorted(quarters, stored, "right")
    # Looking up a label takes a tenth of the time of searching for it.
    labels = np.arange(len(edges) + 1, dtype=np.min_scalar_type(len(edges)))
    table = np.repeat(labels, [1, *np.diff(quarters), 1])
    return table.take(np.clip(stored, first - 1, last) - (first - 1))


def count_days(quarters: Array, created: Callable[[Array], Array], inside: Array | None, zone: tzinfo) -> DayCounts:
    """Count instants, given as quarters, by local day. `created` returns the microseconds of some of them; `inside`
    marks those within the dates, None if all are.
    """
    even = _even(quarters)
    if even is None:
        return DayCounts(*_count_even_days(quarters, inside, zone))
    found = _count_even_days(quarters[even], None if inside is None else inside[even], zone)
    totals = {day: [n, within] for day, n, within in zip(*(array.tolist() for array in found), strict=True)}
    marks = itertools.repeat(True) if inside is None else inside[~even].tolist()
    for at, marked in zip(created(~even).tolist(), marks, strict=False):
        known = totals.setdefault(local_day(instant_of(at), zone).toordinal(), [0, 0])
        known[0] += 1
        known[1] += marked
    return DayCounts(*np.array(sorted((day, *counts) for day, counts in totals.items()), np.int64).reshape(-1, 3).T)


def _even(quarters: Array) -> Array | None:
    """A mask of the instants at which every offset is a whole quarter; None if all are."""
    if not len(quarters) or (quarters.min() >= _FIRST_EVEN and quarters.max() < _LAST_EVEN):
        return None
    return (quarters >= _FIRST_EVEN) & (quarters < _LAST_EVEN)


def _count_even_days(quarters: Array, inside: Array | None, zone: tzinfo) -> tuple[Array, Array, Array]:
    """Count even instants by day, in order: the days, their counts, and counts inside."""
    if not len(quarters):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    last = int(quarters.max())
    starts, days = _days(int(quarters.min()), last, zone)
    n = _span_counts(quarters, starts, last)
    m = n if inside is None else _span_counts(quarters[inside], starts, last)
    some = np.flatnonzero(n)
    return days[some], n[some], m[some]


def _span_counts(quarters: Array, starts: Array, last: int) -> Array:
    """The number of quarters in the span that begins at each of the starts, the first of which is not after any
    quarter.
    """
    length = last - int(starts[0]) + 1
    if len(quarters) * 10 < length:
        return np.bincount(np.searchsorted(starts, quarters, "right") - 1, minlength=len(starts))
    within = starts <= last
    counts = np.zeros(len(starts), np.int64)
    every = np.bincount(quarters - starts[0], minlength=length)
    counts[within] = np.add.reduceat(every, starts[within] - starts[0])
    return counts


def _days(first: int, last: int, zone: tzinfo) -> tuple[Array, Array]:
    """The quarters at which local days begin, and their ordinals, for all years that the quarters may touch."""
    return _days_of_years((_at(first) - timedelta(days=2)).year, (_at(last) + timedelta(days=2)).year, zone)


@lru_cache(maxsize=64)
def _days_of_years(first: int, last: int, zone: tzinfo) -> tuple[Array, Array]:
    found = [_days_of_year(year, zone) for year in range(first, last + 1)]
    return np.concatenate([starts for starts, _ in found]), np.concatenate([days for _, days in found])


@lru_cache(maxsize=512)
def _days_of_year(year: int, zone: tzinfo) -> tuple[Array, Array]:
    starts: list[int] = []
    ordinals: list[int] = []
    day = datetime(year, 1, 1, tzinfo=zone)
    before = (day - timedelta(days=1)).utcoffset()
    while day.year == year:
        following = day + timedelta(days=1)
        offset, after = day.utcoffset(), following.utcoffset()
        if offset is not None and before == offset == after:
            starts.append(int((day.replace(tzinfo=UTC) - offset - EPOCH).total_seconds()) // QUARTER)
        else:
            start = day_start(day.date(), zone) or EPOCH
            starts.append(int((start - EPOCH).total_seconds()) // QUARTER)
        # A day that a zone skipped at the date line begins where the next one does.
        ordinals.append(day.toordinal())
        before, day = offset, following
    return np.array(starts, np.int64), np.array(ordinals, np.int64)


def _at(quarter: int) -> datetime:
    return EPOCH + timedelta(seconds=quarter * QUARTER)
