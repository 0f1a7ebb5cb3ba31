"""Counting large sets: the values of a column of a segment as roaring bitmaps, each of which is looked at only when its
number is asked for.
"""

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from pyroaring import BitMap

from search.engines.array_files import Array, Mask

# So many rows fit into the cache of a core.
_STRETCH = 1 << 17
# Values that at least so many rows of a segment share are kept as bitmaps.
_SHARED = 150
# Where up to one place in sixteen is in a set, a roaring bitmap lists them, and two sets take a step for each of the
# smaller one. From one in fifty on it takes less time to count with all others, which are a bit for every place.
_LISTED, _LONG_LIST = 16, 50
# Of so many rows of a value it is looked at whether one of them is in a set, before all are: of most values one is,
# and mostly one of the first.
_WITNESSES, _FIRST_WITNESSES = 64, 16
# Values with fewer rows than these are looked at place by place.
_FEWEST = 16


class RowSet:
    """Some of the rows of a segment: as a bitmap of them, or of all others."""

    __slots__ = ("_bitmap", "_others", "_size", "count")

    def __init__(self, rows: Array, size: int) -> None:
        self.count = len(rows)
        self._size = size
        self._others = size < self.count * _LONG_LIST and self.count * _LISTED <= size
        if self._others:
            mask = np.ones(size, np.bool_)
            mask[rows] = False
            self._bitmap = bitmap_of(mask)
        else:
            # A copy, as it does not take what cannot be written to.
            self._bitmap = BitMap(rows.copy())
        self._bitmap.shrink_to_fit()

    @staticmethod
    def of(mask: Mask) -> "RowSet":
        found = RowSet.__new__(RowSet)
        found.count = int(np.count_nonzero(mask))
        found._size = len(mask)
        found._others = found.count * _LISTED <= len(mask)
        found._bitmap = bitmap_of(~mask if found._others else mask)
        return found

    def listed(self) -> Array:
        """The rows in order."""
        listed: Array = np.frombuffer(self._bitmap.to_array(), np.uint32) if self._bitmap else np.empty(0, np.uint32)
        if not self._others:
            return listed
        mask = np.ones(self._size, np.bool_)
        mask[listed] = False
        return np.flatnonzero(mask)

    def shared_with(self, other: "RowSet") -> int:
        """How many rows both have."""
        both = self._bitmap.intersection_cardinality(other._bitmap)
        if self._others:
            return self.count + other.count - self._size + both if other._others else other.count - both
        return self.count - both if other._others else both


class Bitmaps:
    """A column of a segment for large sets: what many rows share as bitmaps by code; and the other values, of which
    there are many with few rows each.
    """

    def __init__(self, keys: Array, starts: Array, rows: Array, size: int, *, shared_by: int | None = None) -> None:
        lengths = np.diff(starts)
        shared = lengths >= (_SHARED if shared_by is None else shared_by)
        self.codes: Array = keys[shared].astype(np.int64)
        self.sizes: Array = lengths[shared]
        low, high = starts[:-1][shared].tolist(), starts[1:][shared].tolist()
        self.by_code = {
            code: RowSet(rows[begin:end], size) for code, begin, end in zip(self.codes.tolist(), low, high, strict=True)
        }
        self._witnesses: Array = _witnesses(starts[:-1][shared], self.sizes, rows)
        self.rare = Rare(keys[~shared].astype(np.int64), lengths[~shared], rows[np.repeat(~shared, lengths)])

    def witnessed(self, mask: Mask) -> Mask:
        """Of which of the codes it is plain that some of the mask have it; others may have it too."""
        found: Mask = np.logical_or.reduce(mask.take(self._witnesses[:_FIRST_WITNESSES]), axis=0)
        left = np.flatnonzero(~found)
        found[left] = np.logical_or.reduce(mask.take(self._witnesses[_FIRST_WITNESSES:, left]), axis=0)
        return found


class Rare:
    """The values of a column that few rows share, laid out to be looked at all at once. Of those with the fewest
    rows stand together: the first place of each, the second of each that has one, and so on. Of the others the
    rows of each, one after the other.
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
            # From the longest to the shortest: those that have another place come first.
            having = fewest[: np.count_nonzero(lengths[fewest] > n)]
            self._by_rank.append(rows[starts[having] + n])
        others = lengths >= _FEWEST
        self._others: Array = codes[others]
        self._lengths: Array = lengths[others]
        self._rows: Array = rows[np.repeat(others, lengths)]
        self._starts: Array = np.cumsum(self._lengths) - self._lengths
        self._witnesses: Array = _witnesses(self._starts, self._lengths, self._rows, _FEWEST // 2)

    def count(self, mask: Mask, counts: Array) -> None:
        """Add to the counts how many of the mask have each of the values."""
        if self._by_rank:
            found = np.zeros(len(self._fewest), np.uint8)
            for rank in self._by_rank:
                found[: len(rank)] += mask.view(np.uint8).take(rank)
            counts[self._fewest] += found
        if len(self._others):
            counts[self._others] += sums(mask, self._rows, self._starts)

    def some(self, mask: Mask) -> Iterator[Array]:
        """The codes that any of the mask have, in some arrays."""
        if self._by_rank:
            found = np.zeros(len(self._fewest), np.bool_)
            for rank in self._by_rank:
                found[: len(rank)] |= mask.take(rank)
            yield self._fewest[found]
        if len(self._others):
            found = np.logical_or.reduce(mask.take(self._witnesses), axis=0)
            # Where no witness is in the mask, all rows are looked at.
            left = np.flatnonzero(~found)
            lengths = self._lengths[left]
            ends = np.cumsum(lengths)
            if len(left):
                at = np.arange(ends[-1]) + np.repeat(self._starts[left] - ends + lengths, lengths)
                found[left] = np.logical_or.reduceat(mask.take(self._rows.take(at)), ends - lengths)
            yield self._others[found]


def _witnesses(starts: Array, lengths: Array, rows: Array, number: int = _WITNESSES) -> Array:
    """Of each value some of its rows, as rows. Rows next to each other are of rows far apart."""
    order = np.arange(number) * 37 % number
    return rows[starts + lengths * order[:, None] // number]


def is_shared(starts: Array) -> bool:
    """Whether most of the rows of a column are of values that many share: where they are not, nothing is saved."""
    lengths = np.diff(starts)
    return bool(lengths[lengths >= _SHARED].sum() * 2 >= starts[-1])


def sums(mask: Mask, rows: Array, starts: Array) -> Array:
    """How many of the rows from each start to the next are in the mask."""
    # In stretches: numpy widens the rows first, which for all of them at once goes through memory.
    stretches = (rows[begin : begin + _STRETCH] for begin in range(0, len(rows), _STRETCH))
    marks = np.concatenate([mask.view(np.uint8).take(stretch) for stretch in stretches])
    found: Array = np.add.reduceat(marks, starts, dtype=np.int32)
    return found


def give_back() -> None:
    """Return to the system what has been freed. glibc keeps it for whoever asks for as much again, and to make bitmaps
    takes ten times as much as to count by them.
    """
    # Other libraries do so by themselves.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def by_value(codes: Array) -> tuple[Array, Array, Array]:
    """A column of one value each as one of several is stored: the codes, where the rows of each start, the rows."""
    counts = np.bincount(codes)
    keys = np.flatnonzero(counts)
    starts = np.concatenate([[0], np.cumsum(counts[keys])])
    return keys, starts, np.argsort(codes, kind="stable").astype(np.uint32)


def bitmap_of(mask: Mask) -> BitMap:
    """A mask as a roaring bitmap, put together as it is written to files, which takes a hundredth of adding numbers.

    See https://github.com/RoaringBitmap/RoaringFormatSpec: a head, then for each 65,536 rows either a bit for every
    place or, where there are up to 4,096, their numbers.
    """
    blocks = range(0, len(mask), 1 << 16)
    heads, bodies = [], []
    for key, begin in enumerate(blocks):
        block = mask[begin : begin + (1 << 16)]
        if hits := int(np.count_nonzero(block)):
            heads.append((key, hits))
            if hits > 4_096:
                bodies.append(np.packbits(block, bitorder="little").tobytes().ljust(8_192, b"\0"))
            else:
                bodies.append(np.flatnonzero(block).astype("<u2").tobytes())
    start = 8 + 8 * len(heads)
    offsets = np.cumsum([start, *map(len, bodies)])[:-1].astype("<u4")
    pairs = np.array([(key, hits - 1) for key, hits in heads], "<u2").tobytes()
    head = (12_346).to_bytes(4, "little") + len(heads).to_bytes(4, "little")
    return BitMap.deserialize(b"".join([head, pairs, offsets.tobytes(), *bodies]))


@dataclass(frozen=True, slots=True)
class Shared:
    """Of a large segment those that are to be counted, and the bitmaps of a column to count them by. `rows_of` gives the
    rows of any code.
    """

    mask: Mask
    chosen: RowSet
    bitmaps: Bitmaps
    rows_of: Callable[[int], Array]

    def count(self, code: int) -> int:
        if (rows := self.bitmaps.by_code.get(code)) is not None:
            return self.chosen.shared_with(rows)
        return int(np.count_nonzero(self.mask.take(self.rows_of(code))))
