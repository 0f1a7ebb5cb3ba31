"""Counts of all memories that a viewer sees, without any filter: of every facet value, the second number of
`141 / 12,208`, and of memories, chunks and concepts per category.

Cached per process, view of the corpus and engine revision. The former also answer the explorer's first page, which has
an empty query. Counting more than a million memories in SQL takes longer than a writer pauses. Then the latest counts
are served while those of the next revision are made, and the answer says of what time they are.

The latter cover memories in the default states; a memory counts once in a category with descendants. They come from the
engine's columns (`search.engines.column_snapshot`), so they agree with the explorer. After a change, only the
categories of changed memories are counted again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
from django.db import DataError, connection

from access.viewer import Viewer
from categories.names import DataRevision
from categories.vocabulary_cache import Tree
from search.engines import snapshot
from search.engines.base import (
    BUCKET_DAYS,
    Counts,
    Engine,
    EngineQuery,
    EngineTimeoutError,
    FacetCounts,
    FacetRequest,
    Filter,
    Ids,
    Value,
    ValueCount,
    is_large,
)
from search.engines.column_snapshot import ColumnSnapshot
from search.engines.postgres import PostgresEngine
from search.engines.segment_files import Array, Mask
from search.facets import DEFAULT_STATES, FACETS
from search.result import CorpusCounts
from web.cache import RepeatedReads, RevisionCache

_KEPT_VIEWS = 16
# Bounds how long a change made directly in the database, bypassing the services, stays invisible.
_KEPT_SECONDS = 300


class ValueTable:
    """Every value of a facet with its count. Values that are ids, of which there may be as many as there are entities,
    take 28 bytes each in arrays; as objects they would take ten times as much.
    """

    __slots__ = ("_counts", "_order", "_own", "_places", "_values", "distinct")

    def __init__(self, counted: FacetCounts) -> None:
        found, self.distinct = counted.values, counted.distinct
        are_ids = all(isinstance(one.value, int) for one in found)
        given = np.array([int(one.value) for one in found] if are_ids else [], np.int64)
        by_id = np.argsort(given) if are_ids else np.arange(len(found))
        self._values: Array | tuple[Value, ...] = given[by_id] if are_ids else tuple(one.value for one in found)
        self._places: dict[Value, int] | None = None if are_ids else {one.value: n for n, one in enumerate(found)}
        self._counts: Array = np.array([one.count for one in found], np.int64)[by_id]
        own = np.array([one.own for one in found], np.int64)[by_id]
        self._own: Array | None = own if own.any() else None
        # The places in the order of the counts, the largest first.
        self._order: Array = np.argsort(by_id).astype(np.uint32)

    def __len__(self) -> int:
        return len(self._order)

    def largest(self, limit: int | None) -> tuple[ValueCount, ...]:
        """The values with the largest counts, in order; without a limit, all of them."""
        return tuple(self._at(place) for place in self._order[:limit].tolist())

    def get(self, value: Value) -> ValueCount | None:
        """A value with its count; None if no memory has it."""
        place = self._place(value)
        return None if place is None else self._at(place)

    def _place(self, value: Value) -> int | None:
        if self._places is not None:
            return self._places.get(value)
        if not isinstance(value, int) or not isinstance(self._values, np.ndarray):
            return None
        place = int(self._values.searchsorted(value))
        return place if place < len(self._values) and self._values[place] == value else None

    def _at(self, place: int) -> ValueCount:
        value = self._values[place]
        own = 0 if self._own is None else int(self._own[place])
        return ValueCount(value if isinstance(value, str) else int(value), int(self._counts[place]), own)


class EveryCount(Mapping[tuple[str, Value], int]):
    """The number of memories by facet and value."""

    def __init__(self, tables: Mapping[str, ValueTable]) -> None:
        self._tables = tables

    def __getitem__(self, key: tuple[str, Value]) -> int:
        facet, value = key
        if (found := self._tables[facet].get(value)) is None:
            raise KeyError(key)
        return found.count

    def __iter__(self) -> Iterator[tuple[str, Value]]:
        return ((key, one.value) for key, table in self._tables.items() for one in table.largest(None))

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))


@dataclass(frozen=True, slots=True)
class CorpusView:
    """All counts without a query: every value of every facet, and the days of one time zone."""

    counted: Counts
    """All but the facets."""
    tables: Mapping[str, ValueTable]
    revision: str
    at: datetime
    may_be_older: bool
    """Whether these counts may be served although the corpus has changed since."""

    @property
    def counts(self) -> EveryCount:
        return EveryCount(self.tables)

    def older_than(self, engine: Engine) -> datetime | None:
        """The time of these counts, if the corpus has changed since."""
        # Others need no statement that reads the revision.
        return self.at if self.may_be_older and self.revision != engine.revision else None

    def answer(self, request: FacetRequest) -> FacetCounts:
        """The answer of an engine to the request over the whole corpus."""
        table = self.tables[request.key]
        if request.only is not None:
            wanted = set(request.only)
            found = (one for value in wanted if (one := table.get(value)) is not None)
            listed = tuple(sorted(found, key=lambda one: (-one.count, one.value)))
            return FacetCounts(listed, table.distinct)
        largest = table.largest(request.limit)
        if request.limit is None:
            return FacetCounts(largest, table.distinct)
        shown = {one.value for one in largest}
        chosen = (one for value in request.always if (one := table.get(value)) is not None)
        return FacetCounts((*largest, *(one for one in chosen if one.value not in shown)), table.distinct)


cache = RepeatedReads[tuple[str, tuple[int, ...] | None, str], CorpusView](
    limit=_KEPT_VIEWS, seconds=_KEPT_SECONDS, may_be_older=lambda view: view.may_be_older
)


def corpus_plan(project_ids: tuple[int, ...] | None) -> EngineQuery:
    states = Filter("state", include=tuple((state,) for state in DEFAULT_STATES))
    return EngineQuery(project_ids=project_ids, filters=(states,))


def corpus_view(engine: Engine, project_ids: tuple[int, ...] | None, zone: tzinfo) -> CorpusView:
    """The counts of the current revision, or those of an older one that may be; cached. Raises EngineTimeoutError."""
    revision = engine.revision

    def read() -> CorpusView:
        # Later reads are made in a thread, which has no snapshot yet.
        with snapshot() if isinstance(engine, PostgresEngine) and not connection.in_atomic_block else nullcontext():
            return _counted(engine, project_ids, zone)

    return cache.get((engine.name, project_ids, str(zone)), revision, read)


def _counted(engine: Engine, project_ids: tuple[int, ...] | None, zone: tzinfo) -> CorpusView:
    now, revision = datetime.now(UTC), engine.revision
    requests = [FacetRequest(spec.key) for spec in FACETS]
    counted = engine.counts(corpus_plan(project_ids), requests, zone=zone, now=now)
    tables = {key: ValueTable(found) for key, found in counted.facets.items()}
    # Another engine answers from a view of its own, which no thread may use later, and counts in memory.
    may_be_older = isinstance(engine, PostgresEngine) and is_large(counted.summary.total)
    return CorpusView(replace(counted, facets={}), tables, revision, now, may_be_older)


def corpus_answer(
    engine: Engine, plan: EngineQuery, requests: Sequence[FacetRequest], zone: tzinfo, now: datetime
) -> Counts:
    """The answer of an engine to the plan of an empty query. Only the date buckets are counted now."""
    view = corpus_view(engine, plan.project_ids, zone)
    spans = [replace(plan, start=now - timedelta(days=days), end=now) for days in BUCKET_DAYS]
    *since, later = (found.total for found in engine.match([*spans, replace(plan, start=now)]))
    buckets = (*since, max(0, view.counted.summary.total - since[-1] - later), later)
    facets = {request.key: view.answer(request) for request in requests}
    as_of = view.older_than(engine)
    return replace(view.counted, facets=facets, buckets=buckets, buckets_without_dates=buckets, as_of=as_of)


def corpus_counts(engine: Engine, viewer: Viewer) -> CorpusCounts:
    """The counts of the whole corpus, to show next to those of a query."""
    projects = None if viewer.project_ids is None else tuple(sorted(viewer.project_ids))
    try:
        view = corpus_view(engine, projects, viewer.timezone)
    except (EngineTimeoutError, DataError):
        # DataError: a time zone that Postgres does not know.
        return CorpusCounts(engine.match([corpus_plan(projects)])[0].total, {}, known=False)
    return CorpusCounts(view.counted.summary.total, view.counts, as_of=view.older_than(engine))


_CACHED_VIEWS = 16
# Sets of categories whose totals are cached.
_CACHED_SETS = 64
# Arrays up to this length are counted by sorting, longer ones by a table of all values.
_FEW = 512

_CHUNKS = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(int4send(chunks), ''::bytea)
FROM memories_embeddedmemory WHERE model_id = %s"""


@dataclass(frozen=True, slots=True)
class Chunks:
    """The number of chunks per embedded memory, of the serving model."""

    ids: Ids
    counts: Array

    def of(self, ids: Ids) -> Array:
        if not len(self.ids):
            return np.zeros(len(ids), np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        found: Array = np.where(self.ids[at] == ids, self.counts[at], 0)
        return found


@dataclass(frozen=True, slots=True)
class Totals:
    """Totals over a set of memories: the memories, their chunks, and their distinct concepts."""

    memories: int = 0
    chunks: int = 0
    concepts: int = 0


@dataclass(frozen=True, slots=True)
class ConceptCounts:
    """Concepts of a set of memories, as parallel arrays: ids, numbers of memories, and chunks of those memories."""

    ids: Ids
    memories: Array
    chunks: Array


@dataclass(frozen=True, slots=True)
class CategoryCounts:
    """The counts of all categories for a viewer. Arrays are indexed by the category codes of the snapshot."""

    filing: ColumnSnapshot
    chunks: Chunks
    within: Mask
    shown: Mask
    chunks_at: Array
    """The number of chunks of each memory."""
    known: Mask
    """Whether a category has a visible memory in any state, which makes it visible."""
    own: Array
    """Memories without those of descendants; the other arrays include descendants."""
    memories: Array
    chunk_totals: Array
    concepts: Array
    _cached_concepts: dict[str, Array] = field(default_factory=dict)
    _codes: dict[str, tuple[Tree, Array]] = field(default_factory=dict)
    _set_totals: dict[tuple[int, ...], Totals] = field(default_factory=dict)

    def code(self, category_id: int) -> int:
        """The index of a category in the arrays; 0 if it has no memories."""
        return self.filing.code("category", category_id)

    def codes(self, tree: Tree) -> Array:
        """The indexes of all categories, in the order of the tree."""
        cached = self._codes.get("codes")
        if cached is None or cached[0] is not tree:
            codes, size = self.filing.dictionary.codes["category"], self.filing.sizes["category"]
            found = np.array([codes.get(pk, 0) for pk in tree.nodes], np.int64)
            cached = self._codes["codes"] = (tree, np.where(found < size, found, 0))
        return cached[1]

    def numbers(self, category_id: int) -> Totals:
        """Totals of a category with its descendants."""
        code = self.code(category_id)
        return Totals(*(int(of[code]) for of in (self.memories, self.chunk_totals, self.concepts)) if code else ())

    def own_memories(self, category_id: int) -> int:
        return int(self.own[self.code(category_id)])

    def slots(self, category_id: int, *, below: bool) -> Array:
        """The memories in a category, as indexes into the snapshot."""
        column = "category" if below else "category_own"
        code = self.filing.code(column, category_id)
        return self.filing.having(column, code, self.shown) if code else np.empty(0, np.int64)

    def shown_total(self) -> int:
        return int(np.count_nonzero(self.shown))

    def uncategorised(self) -> int:
        return len(self.filing.having("category", 0, self.shown))

    def numbers_of(self, slots: Array) -> Totals:
        codes, _ = self.filing.values("concept", slots)
        return Totals(len(slots), int(self.chunks_at[slots].sum()), _distinct(codes))

    def numbers_with(self, slots: Array, counted: ConceptCounts) -> Totals:
        """Totals of memories whose concepts are already counted."""
        return Totals(len(slots), int(self.chunks_at[slots].sum()), len(counted.ids))

    def numbers_of_any(self, category_ids: Iterable[int]) -> Totals:
        """Totals of the union of categories with their descendants."""
        wanted = tuple(category_ids)
        if (known := self._set_totals.get(wanted)) is None:
            mask = np.zeros(self.filing.size, np.bool_)
            for category_id in wanted:
                mask[self.slots(category_id, below=True)] = True
            some = self._count_concepts(mask)[1:] > 0
            memories, concepts = (int(np.count_nonzero(of)) for of in (mask, some))
            known = Totals(memories, int(self.chunks_at[mask].sum()), concepts)
            if len(self._set_totals) >= _CACHED_SETS:
                self._set_totals.clear()
            self._set_totals[wanted] = known
        return known

    def concept_counts(self, slots: Array) -> ConceptCounts:
        codes, lengths = self.filing.values("concept", slots)
        size = self.filing.sizes["concept"]
        counts = np.bincount(codes, minlength=size)
        weights = np.repeat(self.chunks_at[slots], lengths)
        chunks = np.bincount(codes, weights=weights, minlength=size).astype(np.int64)
        present = np.flatnonzero(counts[1:]) + 1
        return ConceptCounts(self.filing.ids_of("concept")[present], counts[present], chunks[present])

    def concept_totals(self) -> Array:
        """The number of memories of each concept, by code."""
        return self._concepts("totals", self.shown)

    def knows_concept(self, concept_id: int) -> bool:
        """Whether a visible memory has the concept."""
        code = self.filing.code("concept", concept_id)
        return bool(code and self._concepts("known", self.within)[code])

    def _concepts(self, name: str, among: Mask) -> Array:
        if name not in self._cached_concepts:
            self._cached_concepts[name] = self._count_concepts(among)
        return self._cached_concepts[name]

    def _count_concepts(self, mask: Mask) -> Array:
        size = self.filing.sizes["concept"]
        counts = np.zeros(size, np.int64)
        for segment in self.filing.segments:
            stretch = mask[segment.span]
            counts += segment.count("concept", stretch, np.flatnonzero(stretch), size)
        return counts


_chunks = RepeatedReads[tuple[object, ...], Chunks](limit=1, may_be_older=lambda found: is_large(len(found.ids)))
_counts = RevisionCache[tuple[int, ...] | None, CategoryCounts](_CACHED_VIEWS)


def category_counts_at(
    revision: DataRevision, filing: ColumnSnapshot, project_ids: frozenset[int] | None
) -> CategoryCounts:
    """The counts of all categories in the given projects; None means every project."""
    chunks, is_shared = _chunks_of_model(revision), revision.is_shared
    view = None if project_ids is None else tuple(sorted(project_ids))
    known = _counts.get(view)
    if known is not None and (not is_shared or known.filing.series != filing.series):
        known = None
    if known is not None and known.filing.number >= filing.number and known.chunks is chunks:
        # Another thread may have counted a newer snapshot.
        return known
    if known is not None and known.filing.number > filing.number:
        filing = known.filing
    found = _count_categories(filing, chunks, project_ids, known)
    return _counts.put(view, found) if is_shared else found


def _chunks_of_model(revision: DataRevision) -> Chunks:
    if not revision.is_shared:
        return _read_chunks(revision)
    key = (revision.database, revision.model_id)
    return _chunks.get(key, revision.vectors, lambda: _read_chunks(revision))


def _read_chunks(revision: DataRevision) -> Chunks:
    with connection.cursor() as cursor:
        cursor.execute(_CHUNKS, [revision.model_id])
        packed_ids, packed_counts = cursor.fetchone()
    ids = np.frombuffer(packed_ids or b"", ">i8").astype(np.int64)
    order = np.argsort(ids, kind="stable")
    return Chunks(ids[order], np.frombuffer(packed_counts or b"", ">i4").astype(np.int64)[order])


def _count_categories(
    filing: ColumnSnapshot, chunks: Chunks, project_ids: frozenset[int] | None, before: CategoryCounts | None
) -> CategoryCounts:
    """Count all categories, or with `before` only those that changed."""
    within = filing.within(project_ids)
    shown = filing.shown(within)
    size = filing.sizes["category"]
    if before is None:
        at = chunks.of(filing.take("id", np.arange(filing.size)))
        changed = np.arange(1, size)
    else:
        at = _chunks_at(filing, chunks, before)
        changed = _changed(filing, at, before)
    found = CategoryCounts(
        filing=filing,
        chunks=chunks,
        within=within,
        shown=shown,
        chunks_at=at,
        known=_longer(before.known if before else None, size, np.bool_),
        own=_longer(before.own if before else None, size),
        memories=_longer(before.memories if before else None, size),
        chunk_totals=_longer(before.chunk_totals if before else None, size),
        concepts=_longer(before.concepts if before else None, size),
    )
    ids = filing.ids_of("category")
    for code in changed.tolist():
        _count_category(found, code, int(ids[code]))
    return found


def _chunks_at(filing: ColumnSnapshot, chunks: Chunks, before: CategoryCounts) -> Array:
    if chunks is not before.chunks:
        return chunks.of(filing.take("id", np.arange(filing.size)))
    new = np.arange(before.filing.size, filing.size)
    return np.concatenate([before.chunks_at, chunks.of(filing.take("id", new))])


def _changed(filing: ColumnSnapshot, chunks_at: Array, before: CategoryCounts) -> Array:
    """Codes of the categories with added, removed or re-embedded memories."""
    slots = before.filing.size
    gone = np.flatnonzero(before.filing.live & ~filing.live[:slots])
    new = np.arange(slots, filing.size)
    other = np.flatnonzero(before.filing.live & (before.chunks_at != chunks_at[:slots]))
    codes = [before.filing.values("category", gone)[0], filing.values("category", new)[0]]
    codes.append(before.filing.values("category", other)[0])
    changed = np.unique(np.concatenate(codes))
    return changed[changed > 0]


def _longer(before: Array | None, size: int, kind: type[np.generic] = np.int64) -> Array:
    """A copy of an array, padded with zeros."""
    found: Array = np.zeros(size, kind)
    if before is not None:
        found[: len(before)] = before
    return found


def _count_category(counts: CategoryCounts, code: int, category_id: int) -> None:
    filing = counts.filing
    slots = filing.having("category", code, counts.within)
    counts.known[code] = len(slots) > 0
    numbers = counts.numbers_of(slots[counts.shown.take(slots)])
    counts.memories[code], counts.chunk_totals[code] = numbers.memories, numbers.chunks
    counts.concepts[code] = numbers.concepts
    own = filing.code("category_own", category_id)
    counts.own[code] = len(filing.having("category_own", own, counts.shown)) if own else 0


def _distinct(codes: Array) -> int:
    """The number of distinct codes, without 0 (none)."""
    some = codes[codes > 0]
    if len(some) <= _FEW:
        return len(np.unique(some))
    return int(np.count_nonzero(np.bincount(some)))
