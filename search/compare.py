"""Compares two slices of the memories: which values of the facets are more frequent in one of them than in the other.

A slice is the shared query with some parameters of its own: dates, an agent, a project, or any others.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

import numpy as np

from access.viewer import Viewer
from categories.queries import Term
from search.engines import snapshot, with_engine
from search.engines.base import Counts, Engine, EngineQuery, EngineTimeoutError, FacetRequest, Filter, Value
from search.facet_counts import log_likelihood, value_terms
from search.facets import DATE_KEY, FACET, FACETS, FacetKind
from search.histogram import NO_DAYS, DayCounts, build_histogram
from search.hits import load_hits
from search.plan import ResolvedQuery, explain_unknown, resolve_query
from search.query import FacetScope, Interval, SearchQuery, Sort, plain
from search.ranking import Ranked
from search.result import Hit, HitDetail, SearchWarning
from search.run import engine_notices
from search.slices import SEARCHES, Asked, Period, Step, align_steps, slice_query
from text.analysis import fold
from text.formatting import listed, local_time, number
from web.timing import Stopwatch

# The values of a facet that are compared: the most frequent of each slice.
COMPARED_VALUES = 1_000
# Chance alone makes a difference of this G² less than once in twenty times.
_SIGNIFICANT = 3.84
# A period this many times as long as another is not laid over it.
_MOST_LONGER = 2
# Typical memories: how many, the values that they are chosen by, and the newest memories with each that are considered.
_TYPICAL, _TYPICAL_VALUES, _CONSIDERED = 3, 6, 40


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two slices: the parameters of its own, its whole query, and its numbers.

    With `at_least`, the semantic search was truncated, and all of them are lower bounds.
    """

    own: SearchQuery
    query: SearchQuery
    total: int
    at_least: bool = False
    without_text: int | None = None
    """The memories that pass the filters alone; None if there is no text."""
    by_agents: int = 0
    categorised: int = 0
    superseded: int | None = None
    """Those superseded since, which the slice leaves out; None if the query selects states."""
    steps: tuple[Step, ...] = ()
    typical: tuple[Hit, ...] = ()
    warnings: tuple[SearchWarning, ...] = ()
    labels: dict[tuple[str, str], str] = field(default_factory=dict)

    def share(self, count: int) -> float:
        return count / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """A value of a facet in both slices. `evidence` is the log-likelihood ratio G²."""

    key: str
    value: str
    """The value in URLs."""
    label: str
    a: int
    b: int
    share_a: float
    share_b: float
    evidence: float
    ref: Value
    """The value of engines."""

    @property
    def points(self) -> float:
        """The difference of the shares, in percentage points."""
        return 100 * (self.share_b - self.share_a)

    @property
    def lift(self) -> float | None:
        """How many times as frequent the value is in B as in A; None if it is not in A."""
        return self.share_b / self.share_a if self.share_a else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two slices and their differences, the strongest evidence first; the values of one slice only, the largest first.

    `left_out` are the facets in which the slices were chosen differently. `cut` are those with more values than were
    compared. `aligned` tells that the steps of the two slices begin with their own first days.
    """

    asked: Asked
    a: Side | None = None
    b: Side | None = None
    differs: tuple[Difference, ...] = ()
    only_a: tuple[Difference, ...] = ()
    only_b: tuple[Difference, ...] = ()
    left_out: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    aligned: bool = False
    interval: Interval = Interval.MONTH
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    choices: tuple[tuple[str, str, int], ...] = ()
    """The largest values of the facet that the slices are chosen by: value, label and count."""
    warnings: tuple[SearchWarning, ...] = ()
    unavailable: str = ""
    timings: dict[str, float] = field(default_factory=dict)


def compare(asked: Asked, viewer: Viewer) -> Comparison:
    """Compare two slices; slices that are not given are chosen by `by`: see docs/compare.md."""
    asked = replace(asked, shared=plain(asked.shared))
    return with_engine(lambda engine: _compare(engine, asked, viewer), viewer)


def _compare(engine: Engine, asked: Asked, viewer: Viewer) -> Comparison:
    watch = Stopwatch(engine.waited_ms)
    now = datetime.now(UTC)
    found = Comparison(asked, warnings=tuple(engine_notices(engine, viewer)))
    try:
        with snapshot():
            with watch.stage("search"):
                resolved = resolve_query(engine, asked.shared, viewer, now)
                found = replace(found, labels=dict(resolved.labels))
                choices = _choices(engine, resolved, asked.by) if asked.by in FACET else ()
                own_a, own_b = _chosen(engine, asked, resolved, choices)
            if own_a is None or own_b is None:
                return replace(found, choices=choices, timings=watch.timings)
            with watch.stage("facets"):
                found = _compared(engine, found, (own_a, own_b), viewer, now)
        return replace(found, choices=choices, timings=watch.timings)
    except EngineTimeoutError:
        return replace(found, unavailable="Counting took too long. Narrow the search.", timings=watch.timings)


# --- slices that are not given -----------------------------------------------------------------------------------


def _choices(engine: Engine, resolved: ResolvedQuery, key: str) -> tuple[tuple[str, str, int], ...]:
    """The largest values of a facet under the shared query, those of equal counts by name."""
    plan = replace(resolved.plan, counts_results=True)
    request = FacetRequest(key, limit=COMPARED_VALUES)
    counted = engine.counts(plan, [request], zone=resolved.zone, now=resolved.now, days=False).facets[key].values
    terms = value_terms(FACET[key], [one.value for one in counted], resolved)
    rows = [(terms[one.value], one.count) for one in counted if one.value in terms]
    rows.sort(key=lambda row: (-row[1], fold(row[0].label), row[0].value))
    return tuple((term.value, term.label, count) for term, count in rows[:100])


def _chosen(
    engine: Engine, asked: Asked, resolved: ResolvedQuery, choices: Sequence[tuple[str, str, int]]
) -> tuple[SearchQuery | None, SearchQuery | None]:
    """The parameters of both slices: those given, otherwise the ones that `by` suggests."""
    own_a, own_b, by = asked.a, asked.b, asked.by
    if own_a is not None and own_b is not None:
        return own_a, own_b
    if by == SEARCHES:
        # One search alone is compared with everything that the shared filters leave.
        return (own_a, own_b) if own_a is own_b is None else (own_a or SearchQuery(), own_b or SearchQuery())
    if by == DATE_KEY:
        periods = _other_period(own_a, own_b) or _halves(engine, resolved)
        first, second = periods or (None, None)
        return own_a or first, own_b or second
    given = {value for own in (own_a, own_b) if own for value in own.selection(by).include}
    others = (SearchQuery().only(by, value) for value, _, _ in choices if value not in given)
    return own_a or next(others, None), own_b or next(others, None)


def _other_period(own_a: SearchQuery | None, own_b: SearchQuery | None) -> tuple[SearchQuery, SearchQuery] | None:
    """Whole days of a given slice, and as many days before them, or after them if they are those of A."""
    own = own_a or own_b
    if own is None or not (own.date_from and own.date_to) or "T" in own.date_from + own.date_to:
        return None
    first, last = date.fromisoformat(own.date_from), date.fromisoformat(own.date_to)
    days = last - first + timedelta(days=1)
    try:
        if own_a:
            return own, SearchQuery().between(*_iso(first + days, last + days))
        return SearchQuery().between(*_iso(first - days, last - days)), own
    except OverflowError:
        return None


def _iso(*days: date) -> tuple[str, ...]:
    return tuple(day.isoformat() for day in days)


def _halves(engine: Engine, resolved: ResolvedQuery) -> tuple[SearchQuery, SearchQuery] | None:
    periods = equal_periods(_inside(engine.counts(resolved.plan, [], zone=resolved.zone, now=resolved.now).days))
    if periods is None:
        return None
    one, other = (SearchQuery().between(*_iso(*days)) for days in periods)
    return one, other


def equal_periods(days: DayCounts) -> tuple[Period, Period] | None:
    """Two periods of as many days, before and after the bar of the histogram at which half of the memories have been.

    If less time passed before it than since, or without memories, they are the halves of all the time; of an odd number
    of days the second one has one more. None if there is one day only.
    """
    if len(days.days) < 2:
        return None
    first, last = (date.fromordinal(int(days.days[at])) for at in (0, -1))
    starts = [date.fromisoformat(bar.first) for bar in build_histogram(days, (first, last)).bars]
    before = np.cumsum(days.inside) - days.inside
    half = float(days.inside.sum()) / 2

    def distance(day: date) -> float:
        place = int(np.searchsorted(days.days, day.toordinal()))
        return abs(float(before[place]) - half)

    start = min((start for start in starts if start > first), key=distance, default=last)
    length = last - start + timedelta(days=1)
    begin = start - length
    if begin < first or not ((days.days >= begin.toordinal()) & (days.days < start.toordinal())).any():
        begin, start = first, first + timedelta(days=((last - first).days + 1) // 2)
    return (begin, start - timedelta(days=1)), (start, last)


def _inside(days: DayCounts) -> DayCounts:
    """The days on which the slice has memories."""
    some = days.inside > 0
    return DayCounts(days.days[some], days.inside[some], days.inside[some])


# --- the comparison ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Counted:
    """A slice and its counts, before the values of the other are added."""

    own: SearchQuery
    query: SearchQuery
    resolved: ResolvedQuery
    counts: Counts

    @property
    def days(self) -> DayCounts:
        return _inside(self.counts.days) if len(self.counts.days.days) else NO_DAYS


def _compared(
    engine: Engine, found: Comparison, owns: tuple[SearchQuery, SearchQuery], viewer: Viewer, now: datetime
) -> Comparison:
    both = tuple(_counted(engine, found.asked.shared, own, viewer, now) for own in owns)
    one, other = both
    left_out = tuple(key for key in FACET if one.query.selection(key) != other.query.selection(key))
    values: list[Difference] = []
    cut = []
    for spec in FACETS:
        if spec.key not in left_out:
            rows, is_cut = _differences(engine, spec.key, one, other, found.asked.request.least)
            values += rows
            cut += [spec.key] if is_cut else []
    periods = [_period(counted, within_dates=True) for counted in both]
    aligned = one.query.has_dates and other.query.has_dates and _may_be_laid_over(*periods)
    if not aligned:
        periods = [_period(counted, within_dates=False) for counted in both]
    interval, steps = align_steps(list(zip((one.days, other.days), periods, strict=True)), aligned=aligned)
    differs = sorted(
        (row for row in values if row.a and row.b and row.evidence >= _SIGNIFICANT),
        key=lambda row: (-row.evidence, row.key, fold(row.label), row.value),
    )
    sides = [
        _side(engine, counted, these, [row for row in values if _leans(row, is_b=is_b)], viewer)
        for counted, these, is_b in ((one, steps[0], False), (other, steps[1], True))
    ]
    unknown = dict.fromkeys(warning for side in sides for warning in side.warnings)
    return replace(
        found,
        a=sides[0],
        b=sides[1],
        differs=tuple(differs),
        only_a=_only([row for row in values if not row.b]),
        only_b=_only([row for row in values if not row.a]),
        left_out=left_out,
        cut=tuple(cut),
        aligned=aligned,
        interval=interval,
        warnings=(*found.warnings, *unknown),
    )


def _counted(engine: Engine, shared: SearchQuery, own: SearchQuery, viewer: Viewer, now: datetime) -> _Counted:
    query = slice_query(shared, own)
    resolved = resolve_query(engine, query.replace(facet_scope=FacetScope.RESULTS), viewer, now)
    requests = [FacetRequest(spec.key, limit=COMPARED_VALUES) for spec in FACETS]
    return _Counted(own, query, resolved, engine.counts(resolved.plan, requests, zone=resolved.zone, now=now))


def _differences(engine: Engine, key: str, one: _Counted, other: _Counted, least: int) -> tuple[list[Difference], bool]:
    """The values of a facet in both slices, and whether there are more than were compared."""
    counts_a, cut_a = _largest(one, key)
    counts_b, cut_b = _largest(other, key)
    counts_a |= _missing(engine, one, key, counts_b.keys() - counts_a.keys(), is_cut=cut_a)
    counts_b |= _missing(engine, other, key, counts_a.keys() - counts_b.keys(), is_cut=cut_b)
    wanted = [value for value in counts_a if counts_a[value] + counts_b.get(value, 0) >= least]
    wanted += [value for value in counts_b if value not in counts_a and counts_b[value] >= least]
    terms = value_terms(FACET[key], wanted, one.resolved)
    rows = [
        _difference(key, terms[value], value, (counts_a.get(value, 0), counts_b.get(value, 0)), one, other)
        for value in wanted
        if value in terms
    ]
    return rows, cut_a or cut_b


def _largest(counted: _Counted, key: str) -> tuple[dict[Value, int], bool]:
    """The most frequent values of a facet, and whether there are others. Where the list is cut, all values of the least
    count are left out: which of them engines list depends on when they were stored.
    """
    found = counted.counts.facets[key]
    is_cut = found.distinct > len(found.values)
    least = found.values[-1].count if is_cut and found.values else 0
    return {one.value: one.count for one in found.values if one.count > least}, is_cut


def _missing(engine: Engine, counted: _Counted, key: str, values: set[Value], *, is_cut: bool) -> dict[Value, int]:
    """The counts of values that are frequent in the other slice only. A list that is not cut would have them."""
    if not values or not is_cut:
        return {}
    request = FacetRequest(key, only=tuple(values))
    plan, resolved = counted.resolved.plan, counted.resolved
    found = engine.counts(plan, [request], zone=resolved.zone, now=resolved.now, days=False).facets[key]
    return {one.value: one.count for one in found.values if one.count}


def _difference(
    key: str, term: Term, ref: Value, counts: tuple[int, int], one: _Counted, other: _Counted
) -> Difference:
    (a, b), total_a, total_b = counts, one.counts.summary.total, other.counts.summary.total
    return Difference(
        key=key,
        value=term.value,
        label=term.label,
        a=a,
        b=b,
        share_a=a / total_a if total_a else 0.0,
        share_b=b / total_b if total_b else 0.0,
        evidence=log_likelihood(a, total_a, b, total_b) if total_a and total_b else 0.0,
        ref=ref,
    )


def _leans(row: Difference, *, is_b: bool) -> bool:
    """Whether a value is more frequent in a slice than chance explains."""
    return row.evidence >= _SIGNIFICANT and (row.share_b > row.share_a) == is_b


def _only(rows: Iterable[Difference]) -> tuple[Difference, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.a - row.b, row.key, fold(row.label), row.value)))


def _side(
    engine: Engine, counted: _Counted, steps: tuple[Step, ...], leaning: Sequence[Difference], viewer: Viewer
) -> Side:
    resolved, summary = counted.resolved, counted.counts.summary
    plan = resolved.plan
    superseded = plan.with_filter(Filter("state", include=(("superseded",),)))
    plain, outdated = engine.match([plan.without_text, superseded])
    chooses_states = counted.query.selection("state").restricts
    warnings = [*resolved.warnings, *explain_unknown(resolved, engine, resolved.unknown)]
    return Side(
        own=counted.own,
        query=counted.query,
        total=summary.total,
        at_least=summary.truncated,
        without_text=plain.total if plan.has_text else None,
        by_agents=summary.total - summary.no_value.get("agent", 0),
        categorised=summary.total - summary.no_value.get("category", 0),
        superseded=None if chooses_states else outdated.total,
        steps=steps,
        typical=_typical(engine, resolved, leaning, viewer),
        warnings=tuple(warnings),
        labels=dict(resolved.labels),
    )


def _typical(engine: Engine, resolved: ResolvedQuery, leaning: Sequence[Difference], viewer: Viewer) -> tuple[Hit, ...]:
    """The memories that carry the most of the values that are typical of their slice, the newest of equal ones first.

    A category counts with its subcategories, so only the deepest of a branch is taken.
    """
    strongest = sorted(leaning, key=lambda row: (-row.evidence, row.key, fold(row.label), row.value))
    chosen: list[Difference] = []
    for row in strongest:
        if len(chosen) < _TYPICAL_VALUES and not any(_same_branch(row, other) for other in chosen):
            chosen.append(row)
    plans = [_carrying(resolved.plan, row) for row in chosen] or [resolved.plan]
    places = {place.id: place for plan in plans for place in engine.places(plan, Sort.NEWEST, limit=_CONSIDERED)}
    scores = dict.fromkeys(places, 0.0)
    for row, plan in zip(chosen, plans, strict=False):
        for pk in engine.filter_ids(plan, list(places)):
            scores[pk] += row.evidence
    newest = sorted(places, key=lambda pk: (places[pk].key, pk), reverse=True)
    best = sorted(newest, key=lambda pk: -scores[pk])[:_TYPICAL]
    return load_hits([Ranked(pk) for pk in best], resolved, viewer, HitDetail.INDEX)


def _same_branch(row: Difference, other: Difference) -> bool:
    if row.key != "category" or other.key != "category":
        return False
    return f"{row.value}/".startswith(f"{other.value}/") or f"{other.value}/".startswith(f"{row.value}/")


def _carrying(plan: EngineQuery, row: Difference) -> EngineQuery:
    """The memories of a slice that carry a value. Where the slice selects other values of the facet, all of them: the
    values are those of its memories, and a memory may have several.
    """
    chosen = plan.filter(row.key) or Filter(row.key)
    if chosen.includes and FACET[row.key].kind in {FacetKind.TEXTS, FacetKind.IDS, FacetKind.TREE}:
        return plan
    return plan.with_filter(replace(chosen, include=((row.ref,),), no_value=False))


def _period(counted: _Counted, *, within_dates: bool) -> Period | None:
    """The days of a slice: from its first to its last memory or, `within_dates`, all those that it asks for."""
    days, plan, zone = counted.days.days, counted.resolved.plan, counted.resolved.zone
    first, last = (date.fromordinal(int(days[at])) for at in (0, -1)) if len(days) else (None, None)
    if within_dates:
        first = local_time(plan.start, zone).date() if plan.start else first
        last = local_time(plan.end - timedelta(microseconds=1), zone).date() if plan.end else last
    return (first, last) if first and last and first <= last else None


def _may_be_laid_over(one: Period | None, other: Period | None) -> bool:
    """Whether two periods differ, and neither is much longer than the other."""
    if one is None or other is None or one == other:
        return False
    shorter, longer = sorted((last - first).days + 1 for first, last in (one, other))
    return longer <= _MOST_LONGER * shorter


def cut_notice(found: Comparison) -> str:
    """Which facets have more values than were compared; empty if none has."""
    if not found.cut:
        return ""
    names = listed([FACET[key].label.lower() for key in found.cut])
    return f"Of {names} the {number(COMPARED_VALUES)} most frequent values of each slice are compared."
