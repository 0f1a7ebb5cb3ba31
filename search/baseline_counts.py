"""Counts of every facet value without any filter: the second number of `141 / 12,208`.

Cached per process, view of the corpus and engine revision. They also answer the explorer's first page, which has an
empty query.

Counting more than a million memories in SQL takes longer than a writer pauses. Then the latest counts are served while
those of the next revision are made, and the answer says of what time they are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
from django.db import DataError, connection

from access.viewer import Viewer
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
    Value,
    ValueCount,
    is_large,
)
from search.engines.postgres import PostgresEngine
from search.engines.segment_files import Array
from search.facets import DEFAULT_STATES, FACETS
from search.result import CorpusCounts
from web.cache import RepeatedReads

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
    """The plan of an empty query."""
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
