"""How the memories of some values of a facet are spread over time: the small charts of tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime

import numpy as np

from access.viewer import Viewer
from search.engines.base import Engine, EngineTimeoutError, FacetValues, Spans, Value
from search.histogram import Bar, DayCounts, bar_edges, build_histogram
from search.plan import resolve_query
from search.query import SearchQuery
from web.cache import RevisionCache

_PERIODS = 24
# Share of the oldest memories that precede the first period, so that a few of them do not make all others narrow.
_LEFT_OUT = 0.02
_KEPT, _KEPT_SECONDS = 64, 300


@dataclass(frozen=True, slots=True)
class Trends:
    """The number of memories of each value in each period. There are no periods if nothing could be counted."""

    key: str = ""
    periods: tuple[Bar, ...] = ()
    counts: tuple[tuple[Value, tuple[int, ...]], ...] = ()

    def by_value(self) -> dict[Value, tuple[int, ...]]:
        return dict(self.counts)


NO_TRENDS = Trends()
_cache = RevisionCache[tuple[object, ...], Trends](_KEPT, seconds=_KEPT_SECONDS)


def trends(engine: Engine, query: SearchQuery, key: str, values: Sequence[Value], viewer: Viewer) -> Trends:
    """Count values of a facet under a query over its time. The caller holds a snapshot."""
    if not values:
        return NO_TRENDS
    resolved = resolve_query(engine, query, viewer, datetime.now(UTC))
    # Without a text, a query is its plan: one with a span up to now differs each time, and is counted each time.
    known, revision = (engine.name, resolved.plan, str(resolved.zone), key, tuple(values)), engine.revision
    if (found := _cache.get(known, revision)) is not None:
        return found
    try:
        days = engine.counts(resolved.plan, [], zone=resolved.zone, now=resolved.now).days
        domain = _domain(days)
        if domain is None:
            return NO_TRENDS
        bars = build_histogram(days, domain, most=_PERIODS).bars
        spans = Spans(bar_edges(bars, resolved.zone))
        table = engine.cross(resolved.plan, FacetValues(key, tuple(values)), spans).tolist()
    except EngineTimeoutError:
        return NO_TRENDS
    counts = tuple((value, tuple(row)) for value, row in zip(values, table, strict=True))
    return _cache.put(known, Trends(key, bars, counts), revision)


def _domain(days: DayCounts) -> tuple[date, date] | None:
    """The first and last day of the periods."""
    total = np.cumsum(days.inside)
    if not len(total) or not total[-1]:
        return None
    first = int(np.searchsorted(total, total[-1] * _LEFT_OUT, "right"))
    last = int(np.flatnonzero(days.inside)[-1])
    return date.fromordinal(int(days.days[min(first, last)])), date.fromordinal(int(days.days[last]))
