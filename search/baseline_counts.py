"""Counts of every facet value without any filter: the second number of `141 / 12,208`.

Cached per process, view of the corpus and engine revision. They also answer the explorer's first page, which has an
empty query.

Counting more than a million memories in SQL takes longer than a writer pauses. Then the latest counts are served while
those of the next revision are made, and the answer says of what time they are.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from django.db import DataError, connection

from access.viewer import Viewer
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
)
from search.engines.large_corpus import is_large
from search.engines.postgres import PostgresEngine
from search.facets import DEFAULT_STATES, FACETS
from search.result import CorpusCounts
from search.snapshots import snapshot
from web.cache import RepeatedReads

_KEPT_VIEWS = 16
# Bounds how long a change made directly in the database, bypassing the services, stays invisible.
_KEPT_SECONDS = 300


@dataclass(frozen=True, slots=True)
class CorpusView:
    """All counts without a query: every value of every facet, and the days of one time zone."""

    counted: Counts
    counts: dict[tuple[str, Value], int]
    revision: str
    at: datetime
    may_be_older: bool
    """Whether these counts may be served although the corpus has changed since."""

    def older_than(self, engine: Engine) -> datetime | None:
        """The time of these counts, if the corpus has changed since."""
        # Others need no statement that reads the revision.
        return self.at if self.may_be_older and self.revision != engine.revision else None

    def answer(self, request: FacetRequest) -> FacetCounts:
        """The answer of an engine to the request over the whole corpus."""
        every = self.counted.facets[request.key]
        if request.only is not None:
            wanted = set(request.only)
            return FacetCounts(tuple(v for v in every.values if v.value in wanted), every.distinct)
        if request.limit is None:
            return every
        largest = every.values[: request.limit]
        shown = {v.value for v in largest}
        chosen = (ValueCount(v, self.counts[request.key, v]) for v in request.always if (request.key, v) in self.counts)
        return FacetCounts((*largest, *(v for v in chosen if v.value not in shown)), every.distinct)


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
    counts = {(key, v.value): v.count for key, f in counted.facets.items() for v in f.values}
    # Another engine answers from a view of its own, which no thread may use later, and counts in memory.
    may_be_older = isinstance(engine, PostgresEngine) and is_large(counted.summary.total)
    return CorpusView(counted, counts, revision, now, may_be_older)


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
