"""Every number of a match set: facet values from the columns, days, and the buckets by date."""

import heapq
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from functools import partial
from itertools import chain
from typing import Protocol

import numpy as np

from search.engines.array_files import Array, Mask
from search.engines.base import BUCKET_DAYS, EngineQuery, FacetCounts, FacetRequest, Value, ValueCount
from search.engines.index import days
from search.engines.index.bitmaps import Places, Shared
from search.engines.index.match import Matches
from search.engines.index.segments import MULTIPLE, QUARTER, Part
from search.engines.index.store import View, codes_of, column_of, stretches, values_at
from search.facets import FACET, FacetKind
from search.histogram import DayCounts, HourCount

# From so many memories on, and where at least so many are left, values are counted by bitmaps in those parts that are
# as large and of which they are such a share.
_WORTH_BITMAPS = 90_000
_WORTH_LEFT = 60_000
_LARGE_PART = 50_000
_LARGE_SHARE = 0.05
# For so many plans their days are kept.
_KEPT_DAYS = 8


class Counter(Protocol):
    """How many of one set have each code of one column. Code 0 is "none"; it counts, and is no value."""

    def of(self, code: int) -> int:
        """How many have a code."""

    def some(self) -> list[int]:
        """The codes that any may have, and maybe others."""

    def largest(self, limit: int, values: Sequence[Value]) -> list[int]:
        """The codes of the largest counts, the first by value among equal ones."""

    def leading(self, codes: Array, limit: int) -> list[int]:
        """Those of the codes that have the largest counts, and those that have as many as the last of these."""

    def distinct(self) -> int:
        """How many codes have any."""


class Counting:
    """The counts of one answer."""

    def __init__(self, view: View, matches: Matches) -> None:
        self._view = view
        self._matches = matches
        # By the ids of masks, which `matches` keeps, and the first slots of parts.
        self._chosen: dict[tuple[int, int], Places] = {}
        self._quarters: dict[int, Array] = {}
        self._no_values: dict[tuple[int, str], int] = {}

    def no_value(self, plan: EngineQuery, key: str) -> int:
        """How many have no value in a facet."""
        if FACET[key].kind == FacetKind.PROJECT:
            return 0
        mask = self._matches.of(plan, without_includes=key)
        if (counted := self._no_values.get((id(mask), key))) is not None:
            return counted
        return int(np.count_nonzero(self._matches.none(key) & mask))

    def facet(self, plan: EngineQuery, request: FacetRequest) -> FacetCounts:
        mask = self._matches.of(plan, without_includes=request.key)
        column = column_of(request.key, plan)
        counter = self._counter(column, mask)
        if column == request.key:
            self._no_values[id(mask), request.key] = counter.of(0)
        values = self._view.dictionary.values[column]
        codes = self._wanted(request, column, counter)
        own = self._own(codes, column, mask) if FACET[request.key].kind == FacetKind.TREE else [0] * len(codes)
        rows = [ValueCount(values[code], counter.of(code), n) for code, n in zip(codes, own, strict=True)]
        rows = sorted((row for row in rows if row.count), key=lambda row: (-row.count, row.value))
        capped = self._matches.near(plan, without_includes=request.key).capped
        return FacetCounts(tuple(rows), counter.distinct(), capped)

    def days(self, mask: Mask, inside: Mask | None, zone: tzinfo) -> DayCounts:
        """By local day: how many of the mask, and how many of those inside."""
        return days.count_days(*self._moments(mask, inside), zone)

    def hours(self, mask: Mask, inside: Mask | None, zone: tzinfo) -> tuple[HourCount, ...]:
        """As `days`, by the hour."""
        return days.count_hours(*self._moments(mask, inside), zone)

    def _moments(self, mask: Mask, inside: Mask | None) -> tuple[Array, Callable[[Array], Array], Array | None]:
        slots = self._matches.slots(mask)

        def created(some: Array) -> Array:
            return values_at(self._view, "created", slots[some])

        return self._quarters_of(mask), created, None if inside is None else inside[slots]

    def days_around(self, dateless: EngineQuery, inside: Mask, zone: tzinfo) -> DayCounts:
        """By local day: how many a plan without dates has, and how many of those inside. Dates are moved about while
        all else stays, so the former are kept for the next dates.
        """
        kept: dict[object, DayCounts] = self._view.kept.setdefault("days", {})  # type: ignore[assignment]
        if (every := kept.get((dateless, zone))) is None:
            every = self.days(self._matches.of(dateless), None, zone)
            if len(kept) >= _KEPT_DAYS:
                kept.clear()
            kept[dateless, zone] = every
        within = self.days(inside, None, zone)
        counts = np.zeros(len(every.days), np.int64)
        counts[np.searchsorted(every.days, within.days)] = within.all
        return DayCounts(every.days, every.all, counts)

    def buckets(self, mask: Mask, now: datetime) -> tuple[int, ...]:
        moments = [days.microseconds_of(now - timedelta(days=n)) for n in BUCKET_DAYS]
        first = moments[-1] // (QUARTER * 1_000_000)
        # Most memories are older than the longest bucket.
        if (quarters := self._quarters.get(id(mask))) is not None:
            recent = self._matches.slots(mask)[np.flatnonzero(quarters >= first)]
        else:
            late = np.zeros(len(mask), np.bool_)
            for part in self._view.parts:
                late[part.slots] = part.arrays["quarter"] >= first
            recent = np.flatnonzero(late & mask)
        found = values_at(self._view, "created", recent)
        since = [int(np.count_nonzero(found >= moment)) for moment in moments]
        return (*since, self._matches.count(mask) - since[-1])

    def _quarters_of(self, mask: Mask) -> Array:
        if (known := self._quarters.get(id(mask))) is None:
            known = self._quarters[id(mask)] = values_at(self._view, "quarter", self._matches.slots(mask))
        return known

    def _wanted(self, request: FacetRequest, column: str, counter: Counter) -> list[int]:
        """The codes that a request is for; some of them may count nothing."""
        if request.groups:
            groups = [(limit, codes_of(self._view, column, group)) for limit, group in request.groups]
            leading = [counter.leading(np.array(codes, np.int64), limit) for limit, codes in groups if codes]
            return list(dict.fromkeys(chain(*leading, codes_of(self._view, column, request.always))))
        if request.only is not None:
            return codes_of(self._view, column, request.only)
        if request.limit is None:
            return counter.some()
        largest = counter.largest(request.limit, self._view.dictionary.values[column])
        return list(dict.fromkeys([*largest, *codes_of(self._view, column, request.always)]))

    def _own(self, codes: Sequence[int], column: str, mask: Mask) -> list[int]:
        """How many of the mask are filed in each category itself."""
        values = self._view.dictionary.values[column]
        known, length = self._view.dictionary.codes["category_own"], self._view.sizes["category_own"]
        counter = self._counter("category_own", mask)
        at = [known.get(values[code], length) for code in codes]
        return [counter.of(code) if code < length else 0 for code in at]

    def warm_up(self) -> None:
        """Have the bitmaps made that large sets are counted by, where there can be such sets."""
        if self._view.manifest.memories > _WORTH_BITMAPS + _WORTH_LEFT:
            for part in self._view.parts:
                if part.size >= _LARGE_PART:
                    part.bitmaps(MULTIPLE[0])

    def _counter(self, column: str, mask: Mask) -> Counter:
        hits = self._matches.count(mask)
        if not _WORTH_BITMAPS < hits < self._view.manifest.memories - _WORTH_LEFT:
            return _Counted(self._count(column, mask))
        length = self._view.sizes[column]
        rest = np.zeros(length, np.int64)
        shared: list[Shared] = []
        for part in self._view.parts:
            within = mask[part.slots]
            chosen = self._places(mask, part) if part.size >= _LARGE_PART else None
            many = chosen is not None and chosen.count >= _LARGE_SHARE * part.size
            if chosen and many and (bitmaps := part.bitmaps(column)) is not None:
                shared.append(Shared(within, chosen, bitmaps, partial(part.rows_of, column)))
            else:
                rest += part.count(column, within, np.flatnonzero(within), length)
        return _CountedByBitmaps(shared, rest) if shared else _Counted(rest)

    def _places(self, mask: Mask, part: Part) -> Places:
        key = (id(mask), part.first)
        if (known := self._chosen.get(key)) is None:
            known = self._chosen[key] = Places.of(mask[part.slots])
        return known

    def _count(self, column: str, mask: Mask) -> Array:
        """Counts by code. Of more than half of all memories, the others are counted and taken away."""
        if len(self._matches.slots(mask)) * 2 > self._view.manifest.memories:
            rest = self._matches.known(("not", id(mask)), lambda: self._view.live & ~mask)
            return self._all_counts(column) - self._counted(column, rest)
        return self._counted(column, mask)

    def _all_counts(self, column: str) -> Array:
        kept, name = self._view.kept, f"counts of {column}"
        if name not in kept:
            counts = np.zeros(self._view.sizes[column], np.int64)
            for part in self._view.parts:
                every = part.totals(column)
                counts[: len(every)] += every
            # What is dead in a part is little beside it.
            kept[name] = counts - self._counted(column, ~self._view.live)
        found: Array = kept[name]  # type: ignore[assignment]
        return found

    def _counted(self, column: str, mask: Mask) -> Array:
        length = self._view.sizes[column]
        counts = np.zeros(length, np.int64)
        for part, places in stretches(self._view, self._matches.slots(mask)):
            counts += part.count(column, mask[part.slots], places, length)
        return counts


class _Counted:
    """All codes counted at once."""

    def __init__(self, counts: Array) -> None:
        self._counts = counts

    def of(self, code: int) -> int:
        return int(self._counts[code])

    def some(self) -> list[int]:
        found: list[int] = (np.flatnonzero(self._counts[1:]) + 1).tolist()
        return found

    def largest(self, limit: int, values: Sequence[Value]) -> list[int]:
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

    def leading(self, codes: Array, limit: int) -> list[int]:
        found = self._counts[codes]
        if len(codes) > limit:
            codes = codes[found >= np.partition(found, len(found) - limit)[len(found) - limit]]
        listed: list[int] = codes.tolist()
        return listed

    def distinct(self) -> int:
        return int(np.count_nonzero(self._counts[1:]))


class _CountedByBitmaps:
    """What many share counted when it is asked for, and never twice: only what may be shown is. `shared` are the large
    parts, `rest` the counts of all others.
    """

    def __init__(self, shared: Sequence[Shared], rest: Array) -> None:
        self._shared = shared
        self._rest = rest
        self._known: dict[int, int] = {}
        # By code, how many there can be at most.
        self._most: Array = rest.copy()
        self._has_bitmaps = np.zeros(len(rest), np.bool_)
        for one in shared:
            self._most[one.bitmaps.codes] += one.bitmaps.sizes
            self._most[one.bitmaps.rare.codes] += one.bitmaps.rare.lengths
            self._has_bitmaps[one.bitmaps.codes] = True
        self._codes: Array = np.flatnonzero(self._has_bitmaps[1:]) + 1
        self._counted: Array | None = None

    def of(self, code: int) -> int:
        if (known := self._known.get(code)) is None:
            known = self._known[code] = int(self._rest[code]) + sum(one.count(code) for one in self._shared)
        return known

    def some(self) -> list[int]:
        alone = self._alone()
        self._known.update(zip(alone.tolist(), self._counts()[alone].tolist(), strict=True))
        return [*self._codes.tolist(), *alone.tolist()]

    def largest(self, limit: int, values: Sequence[Value]) -> list[int]:
        if not limit:
            return []
        candidates, least = self._leading(self._codes, limit)
        if (self._most[1:][~self._has_bitmaps[1:]] >= least).any():
            alone, counts = self._alone(), self._counts()
            if len(alone) > limit:
                found = counts[alone]
                alone = alone[found >= np.partition(found, len(found) - limit)[len(found) - limit]]
            self._known.update(zip(alone.tolist(), counts[alone].tolist(), strict=True))
            candidates += alone.tolist()
        candidates.sort(key=lambda code: (-self.of(code), values[code]))
        return candidates[:limit]

    def leading(self, codes: Array, limit: int) -> list[int]:
        found, least = self._leading(codes, limit)
        return [code for code in found if self.of(code) >= least]

    def distinct(self) -> int:
        some = self._rest > 0
        for one in self._shared:
            for codes in one.bitmaps.rare.some(one.mask):
                some[codes] = True
            some[one.bitmaps.codes] |= one.bitmaps.witnessed(one.mask)
        unseen = self._codes[~some[self._codes]].tolist()
        return int(np.count_nonzero(some[1:])) + sum(1 for code in unseen if self.of(code))

    def _leading(self, codes: Array, limit: int) -> tuple[list[int], int]:
        """Codes that have any, all with the largest counts among them, and the least of these counts, or 1 where there
        are not so many. Those that can be large come first, until none is left that could be among them.
        """
        best: list[int] = []
        candidates = []
        most = self._most[codes]
        order = np.argsort(-most)
        for code, at_most in zip(codes[order].tolist(), most[order].tolist(), strict=True):
            if len(best) == limit and at_most < best[0]:
                break
            if n := self.of(code):
                candidates.append(code)
                (heapq.heappush if len(best) < limit else heapq.heappushpop)(best, n)
        return candidates, best[0] if len(best) == limit else 1

    def _counts(self) -> Array:
        """By code, of those that no part has bitmaps of."""
        if self._counted is None:
            self._counted = self._rest.copy()
            for one in self._shared:
                one.bitmaps.rare.count(one.mask, self._counted)
        return self._counted

    def _alone(self) -> Array:
        """The codes that any have and no part has bitmaps of."""
        found: Array = np.flatnonzero((self._counts() > 0) & ~self._has_bitmaps)
        return found[found > 0]
