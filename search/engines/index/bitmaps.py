"""Roaring bitmaps for counting large sets: the values of a column of a segment, each counted only on demand."""

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from search.engines.segment_files import Array, Mask

# The number of rows that fit into the cache of a core.
_STRETCH = 1 << 17
# Values with at least the first number of rows have bitmaps, in a segment of up to the second number. In a larger one
# they need the same share of it: a bitmap takes 60 bytes for each 65,536 rows of the segment among which it has any.
_SHARED, _SHARED_OF = 150, 1_000_000
# Sample rows of a value, tested before all its rows: most values have a row in the set, often among the first.
_WITNESSES, _FIRST_WITNESSES = 64, 16
# Values with fewer rows are tested row by row.
_FEWEST = 16


class Bitmaps:
    """A column of a segment for large sets: bitmaps by code for frequent values, and rare values."""

    def __init__(self, keys: Array, starts: Array, rows: Array, size: int, *, shared_by: int | None = None) -> None:
        lengths = np.diff(starts)
        shared = lengths >= (_shared_by(size) if shared_by is None else shared_by)
        self.codes: Array = keys[shared].astype(np.int64)
        self.sizes: Array = lengths[shared]
        low, high = starts[:-1][shared].tolist(), starts[1:][shared].tolist()
        self.by_code = {
            code: bitmap_of(rows[begin:end]) for code, begin, end in zip(self.codes.tolist(), low, high, strict=True)
        }
        self._witnesses: Array = _witnesses(starts[:-1][shared], self.sizes, rows)
        self.rare = Rare(keys[~shared].astype(np.int64), lengths[~shared], rows[np.repeat(~shared, lengths)])

    def witnessed(self, mask: Mask) -> Mask:
        """The codes that certainly have a row in the mask; others may have one too."""
        found: Mask = np.logical_or.reduce(mask.take(self._witnesses[:_FIRST_WITNESSES]), axis=0)
        left = np.flatnonzero(~found)
        found[left] = np.logical_or.reduce(mask.take(self._witnesses[_FIRST_WITNESSES:, left]), axis=0)
        return found


class Rare:
    """The values of few rows, laid out to be tested at once. Those with the fewest rows are stored by rank: the first
    row of each, the second of each that has one, and so on. The others are stored one after the other.
    """

    def __init__(self, codes: Array, lengths: Array, rows: Array) -> None:
        starts = np.cumsum(lengths) - lengths
        self.codes = codes
        self.lengths = lengths
        order = np.argsort(-lengths, kind="stable")
        fewest = order[lengths[order] < _FEWEST]
        self._fewest: Array = codes[fewest]
        self._by_rank: list[Array] = []
        for n in range(int(lengths[fewest].max(initial=0))):
            # By falling length: those that have another row come first.
            having = fewest[: np.count_nonzero(lengths[fewest] > n)]
            self._by_rank.append(rows[starts[having] + n])
        others = lengths >= _FEWEST
        self._others: Array = codes[others]
        self._lengths: Array = lengths[others]
        self._rows: Array = rows[np.repeat(others, lengths)]
        self._starts: Array = np.cumsum(self._lengths) - self._lengths
        self._witnesses: Array = _witnesses(self._starts, self._lengths, self._rows, _FEWEST // 2)

    def count(self, mask: Mask, counts: Array) -> None:
        """Add the number of rows in the mask to the counts by code."""
        if self._by_rank:
            found = np.zeros(len(self._fewest), np.uint8)
            for rank in self._by_rank:
                found[: len(rank)] += mask.view(np.uint8).take(rank)
            counts[self._fewest] += found
        if len(self._others):
            counts[self._others] += sums(mask, self._rows, self._starts)

    def codes_in(self, mask: Mask) -> Iterator[Array]:
        """Yield arrays of the codes that have a row in the mask."""
        if self._by_rank:
            found = np.zeros(len(self._fewest), np.bool_)
            for rank in self._by_rank:
                found[: len(rank)] |= mask.take(rank)
            yield self._fewest[found]
        if len(self._others):
            found = np.logical_or.reduce(mask.take(self._witnesses), axis=0)
            # Large segments have values of many rows here. Test more samples of these that have no witness in the mask.
            left = np.flatnonzero(~found & (self._lengths >= _SHARED))
            samples = _witnesses(self._starts[left], self._lengths[left], self._rows)
            found[left] = np.logical_or.reduce(mask.take(samples), axis=0)
            # Then all rows of the others.
            left = np.flatnonzero(~found)
            lengths = self._lengths[left]
            ends = np.cumsum(lengths)
            if len(left):
                at = np.arange(ends[-1]) + np.repeat(self._starts[left] - ends + lengths, lengths)
                found[left] = np.logical_or.reduceat(mask.take(self._rows.take(at)), ends - lengths)
            yield self._others[found]


def _witnesses(starts: Array, lengths: Array, rows: Array, number: int = _WITNESSES) -> Array:
    """Sample rows of each value, by rank. Consecutive ranks are far apart in the segment."""
    order = np.arange(number) * 37 % number
    return rows[starts + lengths * order[:, None] // number]


def is_shared(starts: Array, size: int) -> bool:
    """Whether values with bitmaps cover a third of the rows of a column; otherwise bitmaps save nothing. `size` is the
    number of rows of the segment.
    """
    lengths = np.diff(starts)
    return bool(lengths[lengths >= _shared_by(size)].sum() * 3 >= starts[-1])


def _shared_by(size: int) -> int:
    return max(_SHARED, size * _SHARED // _SHARED_OF)


def sums(mask: Mask, rows: Array, starts: Array) -> Array:
    """Count the rows in the mask, from each start to the next."""
    # In stretches: numpy widens the rows first, which for all of them exceeds the cache.
    stretches = (rows[begin : begin + _STRETCH] for begin in range(0, len(rows), _STRETCH))
    marks = np.concatenate([mask.view(np.uint8).take(stretch) for stretch in stretches])
    found: Array = np.add.reduceat(marks, starts, dtype=np.int32)
    return found


def by_value(codes: Array) -> tuple[Array, Array, Array]:
    """Lay out a scalar column like a multiple one: its codes, the start of each in the rows, and the rows."""
    counts = np.bincount(codes)
    keys = np.flatnonzero(counts)
    starts = np.concatenate([[0], np.cumsum(counts[keys])])
    return keys, starts, np.argsort(codes, kind="stable").astype(np.uint32)


def bitmap_of(rows: Array) -> BitMap:
    """The rows as a roaring bitmap. From an array of C it takes a fortieth of the time that numpy's takes."""
    return BitMap(array("I", rows.astype(np.uint32).tobytes()))


@dataclass(frozen=True, slots=True)
class BitmapSegment:
    """The rows of a large segment to count, and the bitmaps of a column. `rows_of` returns the rows of any code."""

    mask: Mask
    chosen: BitMap
    bitmaps: Bitmaps
    rows_of: Callable[[int], Array]

    def count(self, code: int) -> int:
        if (rows := self.bitmaps.by_code.get(code)) is not None:
            return int(self.chosen.intersection_cardinality(rows))
        return int(np.count_nonzero(self.mask.take(self.rows_of(code))))
