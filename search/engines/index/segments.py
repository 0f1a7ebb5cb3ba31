"""The columns of the derived index: numpy arrays of what facets, filters, dates and orders read of each memory.

A doc is the position of a memory in all columns. Docs are assigned in order and never reused: a change gives the memory
a new doc and marks the old one deleted. A segment holds the columns of consecutive docs, is written once as one file,
and is mapped into the memory of every process that reads it; a row is a position within a segment. Values are codes of
a dictionary that only grows; code 0 means "no value".
"""

import mmap
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg
from django.db import connection
from pyroaring import BitMap

from search.engines import sql
from search.engines.base import Value
from search.engines.segment_files import Array, DamagedError, Mask, arrays_map, arrays_write
from search.facets import FACETS, KEY_KINDS, OWN_CATEGORIES, FacetKind
from web.processes import release_memory

_IS_SCALAR = {FacetKind.SCALAR, *KEY_KINDS}
# Columns with one code per row, by facet, with the column of memories that each is read from.
SCALAR_SOURCES = {spec.key: spec.column for spec in FACETS if spec.kind in _IS_SCALAR}
# Columns with any number of codes per row. `category` includes all ancestors, `category_own` only the categories that a
# memory is filed in.
MULTIPLE_SOURCES = {
    key: column
    for spec in FACETS
    if spec.kind not in _IS_SCALAR
    for key, column in (
        (spec.key, spec.column),
        *([(f"{spec.key}_own", OWN_CATEGORIES)] if spec.kind == FacetKind.TREE else []),
    )
}
SCALARS, MULTIPLE = tuple(SCALAR_SOURCES), tuple(MULTIPLE_SOURCES)
COLUMNS = (*SCALARS, *MULTIPLE)
# In seconds. UTC offsets are multiples of it, so counts by quarter of an hour add up to days in any time zone.
QUARTER = 900


class IndexRow(NamedTuple):
    """A memory as the index stores it. Instants are microseconds since 1970; `digest` changes with any field."""

    id: int
    scalars: tuple[Value, ...]
    multiple: tuple[Sequence[Value], ...]
    created: int
    updated: int
    title: str
    digest: int
    # From and to before which it is valid; by default always.
    valid_since: int = -(2**63)
    valid_until: int = 2**63 - 1


class Dictionary:
    """The values of each column and their codes."""

    def __init__(self) -> None:
        self.values: dict[str, list[Value]] = {name: [""] for name in COLUMNS}
        self.codes: dict[str, dict[Value, int]] = {name: {"": 0} for name in COLUMNS}

    def code(self, column: str, value: Value) -> int:
        """The code of a value; assigns a new code if it has none."""
        codes = self.codes[column]
        if (found := codes.get(value)) is None:
            found = codes[value] = len(codes)
            self.values[column].append(value)
        return found

    def codes_of(self, column: str, values: Sequence[Value]) -> Array:
        codes = self.codes[column]
        for value in dict.fromkeys(values):
            self.code(column, value)
        return np.array([codes[value] for value in values], np.uint32)

    def sizes(self) -> dict[str, int]:
        return {name: len(values) for name, values in self.values.items()}

    def since(self, sizes: Mapping[str, int]) -> dict[str, list[Value]]:
        """The values added since the columns had these sizes."""
        return {name: values[sizes[name] :] for name, values in self.values.items() if len(values) > sizes[name]}

    def extend(self, values: Mapping[str, Sequence[Value]], first: Mapping[str, int]) -> None:
        """Add the values of a segment, whose first codes are in `first`, unless they are known."""
        for name, more in values.items():
            known = self.values[name]
            if len(known) < first[name]:
                raise DamagedError(f"the values of {name} before {first[name]} are missing")
            for value in more[len(known) - first[name] :]:
                self.codes[name][value] = len(known)
                known.append(value)


# The number of rows that fit into the cache of a core.
_STRETCH = 1 << 17
# Values with at least the first number of rows have bitmaps, in a segment of up to the second number. In a larger one
# they need the same share of it: a bitmap takes 60 bytes for each 65,536 rows of the segment among which it has any.
_SHARED, _SHARED_OF = 150, 1_000_000


class Bitmaps:
    """A column of a segment for large sets: bitmaps by code for frequent values, and the rows of the rare ones."""

    def __init__(self, keys: Array, starts: Array, rows: Array, size: int, *, shared_by: int | None = None) -> None:
        lengths = np.diff(starts)
        shared = lengths >= (_shared_by(size) if shared_by is None else shared_by)
        self.codes: Array = keys[shared].astype(np.int64)
        self.sizes: Array = lengths[shared]
        low, high = starts[:-1][shared].tolist(), starts[1:][shared].tolist()
        self.by_code = {
            code: bitmap_of(rows[begin:end]) for code, begin, end in zip(self.codes.tolist(), low, high, strict=True)
        }
        self._rare: Array = keys[~shared]
        self._rows: Array = rows[np.repeat(~shared, lengths)]
        self._starts: Array = np.cumsum(lengths[~shared]) - lengths[~shared]

    def count_rare(self, mask: Mask, counts: Array) -> None:
        """Add the number of rows in the mask of each rare value to the counts by code."""
        if len(self._rare):
            counts[self._rare] += sums(mask, self._rows, self._starts)


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


class Segment:
    """The columns of the docs from `first` to `first + size`, as arrays by name. See SegmentBuilder.build and
    multiple_column for their types.
    """

    def __init__(
        self,
        first: int,
        arrays: Mapping[str, Array],
        values: Mapping[str, Sequence[Value]] | None = None,
        values_first: Mapping[str, int] | None = None,
        name: str = "",
    ) -> None:
        self.name = name
        self.first = first
        self.arrays = arrays
        self.values = values or {}
        self.values_first = values_first or {}
        self.ids: Array = arrays["id"]
        self.size = len(self.ids)
        self._bitmaps: dict[str, Bitmaps] | None = None
        self._totals: dict[str, Array] = {}
        self._lock = threading.Lock()

    @property
    def span(self) -> slice:
        return slice(self.first, self.first + self.size)

    def rows_of(self, column: str, code: int) -> Array:
        """The rows with a code, in ascending order."""
        if column in SCALARS:
            return np.flatnonzero(self.arrays[column] == code)
        keys, starts = self.arrays[f"{column}.keys"], self.arrays[f"{column}.starts"]
        at = int(np.searchsorted(keys, code))
        if at == len(keys) or keys[at] != code:
            return np.empty(0, np.uint32)
        found: Array = self.arrays[f"{column}.rows"][starts[at] : starts[at + 1]]
        return found

    def count(self, column: str, mask: Mask, rows: Array, length: int) -> Array:
        """The number of rows in the mask by code: int64 of `length`. `rows` are the rows of the mask. Code 0 counts
        rows without a value.
        """
        if column in SCALARS:
            codes = self.arrays[column]
            return np.bincount(codes if len(rows) == self.size else codes.take(rows), minlength=length)
        # Testing every value of the column takes as long as fetching the values of a fifth of the rows.
        if len(rows) * 5 < self.size:
            return self._count_fetched(column, rows, length)
        counts = np.zeros(length, np.int64)
        keys, starts = self.arrays[f"{column}.keys"], self.arrays[f"{column}.starts"]
        if len(keys):
            counts[keys] = sums(mask, self.arrays[f"{column}.rows"], starts[:-1])
        return counts

    def totals(self, column: str) -> Array:
        """The number of rows by code, up to the highest code of the segment; cached."""
        if (known := self._totals.get(column)) is None:
            if column in SCALARS:
                known = np.bincount(self.arrays[column])
            else:
                keys = self.arrays[f"{column}.keys"]
                known = np.zeros(int(keys[-1]) + 1 if len(keys) else 0, np.int64)
                known[keys] = np.diff(self.arrays[f"{column}.starts"])
            self._totals[column] = known
        return known

    def _count_fetched(self, column: str, rows: Array, length: int) -> Array:
        offsets = self.arrays[f"{column}.offsets"]
        begins = offsets.take(rows).astype(np.int64)
        lengths = offsets.take(rows + 1) - begins
        ends = np.cumsum(lengths)
        if not len(ends) or not ends[-1]:
            return np.zeros(length, np.int64)
        at = np.arange(ends[-1]) + np.repeat(begins - ends + lengths, lengths)
        return np.bincount(self.arrays[f"{column}.values"].take(at), minlength=length)

    def bitmaps(self, column: str) -> Bitmaps | None:
        """The bitmaps of a column, for counting large sets; None while they are being made, or if they would save
        nothing.

        Making them all takes a second per million memories, so a thread does it at the first request.
        """
        with self._lock:
            if self._bitmaps is None:
                self._bitmaps = {}
                threading.Thread(target=self.make_bitmaps, name="index-bitmaps", daemon=True).start()
            return self._bitmaps.get(column)

    def make_bitmaps(self) -> None:
        made = {name: Bitmaps(*by_value(self.arrays[name]), self.size, shared_by=1) for name in SCALARS}
        for column in MULTIPLE:
            keys, starts = self.arrays[f"{column}.keys"], self.arrays[f"{column}.starts"]
            if is_shared(starts, self.size):
                made[column] = Bitmaps(keys, starts, self.arrays[f"{column}.rows"], self.size)
        self._bitmaps = made
        for column in made:
            if column in MULTIPLE:
                _release_pages(self.arrays[f"{column}.rows"])
        # Making bitmaps takes ten times as much as counting.
        release_memory()

    def write(self, path: Path) -> None:
        """Write the segment as one file, and flush it to disk."""
        head = {"first": self.first, "values": self.values, "values_first": self.values_first}
        arrays_write(path, head, self.arrays)

    @staticmethod
    def read(path: Path) -> "Segment":
        """Map a segment into memory. Raise DamagedError if the file is incomplete."""
        head, arrays = arrays_map(path)
        return Segment(head["first"], arrays, head["values"], head["values_first"], path.name)


def _release_pages(array: Array) -> None:
    """Release the pages of a mapped array that has been read as a whole and is unlikely to be read again. Arrays that
    are not mapped from a file are left alone: they could not be read again.
    """
    begin, held = array.ctypes.data, array
    while isinstance(held.base, np.ndarray):
        held = held.base
    if isinstance(held.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        first = -(-(begin - held.ctypes.data) // mmap.PAGESIZE) * mmap.PAGESIZE
        length = begin + array.nbytes - held.ctypes.data - first
        if length > 0:
            held.base.madvise(mmap.MADV_DONTNEED, first, length)


_NO_VALUE: dict[Value, None] = {"": None}


class SegmentBuilder:
    """Collects rows into a segment."""

    def __init__(self, first: int, dictionary: Dictionary) -> None:
        self.first = first
        self.dictionary = dictionary
        self._known = dictionary.sizes()
        self._rows: list[IndexRow] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: IndexRow) -> int:
        """Add a memory, and return its doc."""
        self._rows.append(row)
        return self.first + len(self._rows) - 1

    def build(self) -> Segment:
        rows = self._rows
        created = np.array([row.created for row in rows], np.int64)
        arrays: dict[str, Array] = {
            "id": np.array([row.id for row in rows], np.int64),
            "created": created,
            "updated": np.array([row.updated for row in rows], np.int64),
            "valid_since": np.array([row.valid_since for row in rows], np.int64),
            "valid_until": np.array([row.valid_until for row in rows], np.int64),
            "digest": np.array([row.digest for row in rows], np.int64),
            **title_keys([row.title for row in rows]),
        }
        codes_of = self.dictionary.codes_of
        for name, column in zip(SCALARS, zip(*(row.scalars for row in rows), strict=True), strict=True):
            arrays[name] = _narrow(codes_of(name, column))
        for name, lists in zip(MULTIPLE, zip(*(row.multiple for row in rows), strict=True), strict=True):
            # Rows without a value have code 0, so that they are counted and found like any other.
            distinct = [dict.fromkeys(values) if values else _NO_VALUE for values in lists]
            lengths = np.array([len(values) for values in distinct], np.uint32)
            arrays |= multiple_column(name, codes_of(name, list(chain.from_iterable(distinct))), lengths)
        return Segment(self.first, _with_quarters(arrays), self.dictionary.since(self._known), self._known)


def merge_segments(segments: Sequence[Segment], live: Mask) -> Segment:
    """Merge neighbouring segments. Deleted docs keep their rows, so that the others keep their docs, but lose their
    values.
    """
    arrays: dict[str, Array] = {}
    for name in ("id", "created", "updated", "valid_since", "valid_until", "digest", "title1", "title2", *SCALARS):
        # The widest type of each column is kept.
        arrays[name] = np.concatenate([segment.arrays[name] for segment in segments])
    kept = np.concatenate([live[segment.span] for segment in segments])
    for name in MULTIPLE:
        lengths = np.concatenate([np.diff(segment.arrays[f"{name}.offsets"]) for segment in segments])
        values = np.concatenate([segment.arrays[f"{name}.values"] for segment in segments])
        alive = np.repeat(kept, lengths)
        arrays |= multiple_column(name, values[alive], np.where(kept, lengths, 0).astype(np.uint32))
    values_of: dict[str, list[Value]] = {}
    first: dict[str, int] = dict.fromkeys(COLUMNS, 1)
    for segment in segments:
        for name, more in segment.values.items():
            if name not in values_of:
                first[name] = segment.values_first[name]
            values_of.setdefault(name, []).extend(more)
    for name in COLUMNS:
        if name not in values_of:
            first[name] = min((segment.values_first.get(name, 1) for segment in segments), default=1)
    return Segment(segments[0].first, _with_quarters(arrays), values_of, first)


def multiple_column(name: str, values: Array, lengths: Array) -> dict[str, Array]:
    """A column of any number of values per row, by row (`values`, cut at `offsets`) and by code (`rows`, cut at
    `starts`).
    """
    values = _narrow(values)
    offsets = np.zeros(len(lengths) + 1, np.uint32)
    np.cumsum(lengths, out=offsets[1:])
    order = np.argsort(values, kind="stable")
    rows = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)[order]
    keys, starts = np.unique(values[order], return_index=True)
    return {
        f"{name}.values": values,
        f"{name}.offsets": offsets,
        f"{name}.keys": keys.astype(np.uint32),
        f"{name}.starts": np.append(starts, len(values)).astype(np.int64),
        f"{name}.rows": rows,
    }


def _narrow(codes: Array) -> Array:
    """Use the smallest type that fits: narrow columns are faster to read and stay in the cache."""
    return codes.astype(np.min_scalar_type(int(codes.max(initial=0))))


def _with_quarters(arrays: dict[str, Array]) -> dict[str, Array]:
    arrays["quarter"] = (arrays["created"] // (QUARTER * 1_000_000)).astype(np.int32)
    return arrays


def title_keys(titles: Sequence[str]) -> dict[str, Array]:
    """The first sixteen bytes of each title as two integers that sort like them."""
    heads = np.array([title.encode()[:16].ljust(16, b"\0") for title in titles], "S16")
    pairs = np.frombuffer(b"".join(bytes(head).ljust(16, b"\0") for head in heads), ">u8").reshape(-1, 2)
    return {"title1": pairs[:, 0].astype(np.uint64), "title2": pairs[:, 1].astype(np.uint64)}


# Postgres can store infinite timestamps, which only hand-written SQL creates: such a memory is left out and reported.
_MOMENT = "CASE WHEN isfinite({0}) THEN (extract(epoch FROM {0}) * 1000000)::bigint END"
_CREATED, _UPDATED = _MOMENT.format("m.created_at"), _MOMENT.format("m.updated_at")
_INFINITE_DATE = "NOT (isfinite(m.created_at) AND isfinite(m.updated_at))"
# Dates of validity may be infinite; beyond these years nobody can ask for one.
_VALIDITY = "(extract(epoch FROM least(greatest({0}, '0001-01-01Z'), '9999-12-31T23:59:59.999999Z')) * 1000000)::bigint"
_SINCE = _VALIDITY.format(sql.SINCE)
_UNTIL = _VALIDITY.format(f"coalesce({sql.UNTIL}, 'infinity')")
# Everything that the index holds of a memory is part of its digest.
_COLUMNS = ", ".join(
    [
        *(f"m.{column}" for column in (*SCALAR_SOURCES.values(), *MULTIPLE_SOURCES.values())),
        _CREATED,
        _UPDATED,
        _SINCE,
        _UNTIL,
        "lower(m.title)",
    ]
)
_TERMS = "coalesce(m.terms::text, '')"
# Hash the values themselves: converting them to text takes twice as long.
_DIGEST = f"hash_record_extended(row({_COLUMNS}, tsvectorsend(m.terms)), {{version}})"
_FETCH = 2_000


def _select(version: int) -> str:
    return f"SELECT m.id, {_DIGEST.format(version=version)}, {_TERMS}, {_COLUMNS} FROM memories_memory m"


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Memories to index, each with its terms, and the ids of memories that cannot be indexed."""

    rows: list[tuple[IndexRow, str]]
    unindexable: list[int]


def load_rows(ids: Sequence[int], version: int) -> FoundRows:
    """Load the memories of these ids that exist, ordered by id. Needs a transaction."""
    unindexable: list[int] = []
    found = _stream(f"{_select(version)} WHERE m.id = ANY(%s) ORDER BY m.id", [list(ids)])
    return FoundRows(list(_index_rows(found, unindexable)), unindexable)


def stream_rows(version: int, unindexable: list[int]) -> Iterator[tuple[IndexRow, str]]:
    """Yield every memory ordered by id; the ids of those that cannot be indexed are added to `unindexable`. Needs a
    transaction.
    """
    yield from _index_rows(_stream(f"{_select(version)} ORDER BY m.id"), unindexable)


def stream_digests(version: int) -> Iterator[tuple[int, int, bool]]:
    """Yield every memory's id, digest, and whether it cannot be indexed, ordered by id. Needs a transaction."""
    yield from _stream(
        f"SELECT m.id, {_DIGEST.format(version=version)}, {_INFINITE_DATE} FROM memories_memory m ORDER BY m.id"
    )


def _stream(statement: str, parameters: Sequence[object] = ()) -> Iterator[Any]:
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    with psycopg.ServerCursor(raw, "index_rows") as cursor:
        cursor.itersize = _FETCH
        # Binary arrays of numbers are read twice as fast.
        yield from cursor.execute(statement, parameters, binary=True)


def _index_rows(found: Iterable[Sequence[Any]], unindexable: list[int]) -> Iterator[tuple[IndexRow, str]]:
    for stored in found:
        memory_id, digest, terms, *values, created, updated, since, until, title = stored
        if created is None or updated is None:
            unindexable.append(memory_id)
            continue
        yield (
            IndexRow(
                id=memory_id,
                scalars=tuple("" if value is None else value for value in values[: len(SCALARS)]),
                multiple=tuple(values[len(SCALARS) :]),
                created=created,
                updated=updated,
                title=title,
                digest=digest,
                valid_since=since,
                valid_until=until,
            ),
            terms,
        )


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant_of(microseconds: int) -> datetime:
    """The instant, or the end of the calendar that it is beyond."""
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC) if microseconds < 0 else datetime.max.replace(tzinfo=UTC)


def microseconds_of(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)
