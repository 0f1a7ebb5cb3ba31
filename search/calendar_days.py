"""The memories of each day of a year, and of each year, under a query."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

from access.viewer import Viewer
from search.engines import with_engine
from search.engines.base import Engine, EngineTimeoutError
from search.facets import DATE_KEY
from search.matrix import base_query
from search.plan import resolve_query
from search.query import SearchQuery
from search.result import SearchWarning
from search.snapshots import snapshot
from text.formatting import local_time
from web.timing import Stopwatch


@dataclass(frozen=True, slots=True)
class CalendarDays:
    """Counts without the dates of the query; choosing a day gives its count. Without memories the year is 0."""

    query: SearchQuery
    base: SearchQuery
    """The query without its dates."""
    year: int = 0
    days: Mapping[date, int] = field(default_factory=dict)
    """The days of the year that have memories."""
    years: tuple[tuple[int, int], ...] = ()
    """The years that have memories, with their numbers, the first one first."""
    months: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """The (year, month) pairs that have memories, with their numbers."""
    today: date = date.max
    """In the time zone of the query."""
    at_least: bool = False
    unavailable: str = ""
    warnings: tuple[SearchWarning, ...] = ()
    labels: Mapping[tuple[str, str], str] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(count for _, count in self.years)


def calendar_days(query: SearchQuery, year: int, viewer: Viewer) -> CalendarDays:
    """Count by day. Year 0 is that of the last day of the query's dates, or of its newest memory."""
    return with_engine(lambda engine: _calendar(engine, query, year, viewer), viewer)


def days_since(query: SearchQuery, first: date, viewer: Viewer) -> dict[date, int]:
    """The days from one on that have memories, with their numbers; none if counting takes too long."""

    def answer(engine: Engine) -> dict[date, int]:
        with snapshot():
            since = query.with_(date_from=first.isoformat())
            resolved = resolve_query(engine, since, viewer, datetime.now(UTC))
            try:
                counted = engine.counts(resolved.plan, [], zone=resolved.zone, now=resolved.now)
            except EngineTimeoutError:
                return {}
        return {day: inside for day, _, inside in counted.days.listed() if inside}

    return with_engine(answer, viewer)


def _calendar(engine: Engine, query: SearchQuery, year: int, viewer: Viewer) -> CalendarDays:
    watch = Stopwatch(engine.waited_ms)
    base = base_query(query, DATE_KEY)
    with snapshot(), watch.stage("facets"):
        asked = resolve_query(engine, query, viewer, datetime.now(UTC))
        resolved = resolve_query(engine, base, viewer, asked.now)
        today = local_time(asked.now, resolved.zone).date()
        found = CalendarDays(query, base, today=today, warnings=asked.warnings, labels=asked.labels)
        try:
            counted = engine.counts(resolved.plan, [], zone=resolved.zone, now=resolved.now)
        except EngineTimeoutError:
            return replace(found, unavailable="Counting took too long. A narrower search is faster.")
    rows = [(day, count) for day, count, _ in counted.days.listed()]
    years, months = Counter[int](), Counter[tuple[int, int]]()
    for day, count in rows:
        years[day.year] += count
        months[day.year, day.month] += count
    if not years:
        return replace(found, timings=watch.timings)
    last = max(years)
    if asked.plan.end is not None:
        last = min(last, local_time(asked.plan.end - timedelta(microseconds=1), asked.zone).year)
    year = year or last
    return replace(
        found,
        year=year,
        days={day: count for day, count in rows if day.year == year},
        years=tuple(sorted(years.items())),
        months=months,
        at_least=counted.days_truncated,
        timings=watch.timings,
    )
