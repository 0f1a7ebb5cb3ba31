"""Two slices of the memories: a query that they share, and some parameters of each; the steps of time that they are
compared in. Knows no database.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Annotated
from urllib.parse import parse_qsl, urlencode

import numpy as np
from pydantic import AfterValidator, Field

from search.facets import DATE_KEY, FACET
from search.histogram import DayCounts, bucket_start, choose_interval
from search.query import VIEW, ExtraParams, Interval, SearchQuery, plain
from web.params import Pair, QueryError, Text
from web.validation import Problem

SEARCHES = "search"
_DATES = ("from", "to", "since")


def _check_by(value: str) -> str:
    if value not in (DATE_KEY, *FACET, SEARCHES):
        raise ValueError(f"is not a way to compare: write {DATE_KEY}, {SEARCHES} or one of {', '.join(FACET)}")
    return value


def _check_facet(value: str) -> str:
    if value and value not in FACET:
        raise ValueError(f"is not a facet: write one of {', '.join(FACET)}")
    return value


class CompareRequest(ExtraParams):
    """How two slices are compared. The parameters of a slice have the prefix `a.` or `b.`, both share all others; `a`
    and `b` take all parameters of a slice at once.
    """

    by: Annotated[str, AfterValidator(_check_by)] = Field(
        DATE_KEY, description="The difference of slices that are not given: `date`, `search` or a facet."
    )
    a: Text = Field(
        "",
        max_length=8_000,
        description="Slice A, as the address or the query string of a search. Each of its parameters may also be given"
        " by itself: `a.from=2025-01-01`, `a.agent=codex`.",
    )
    b: Text = Field("", max_length=8_000, description="Slice B, in the same ways.")
    facet: Annotated[str, AfterValidator(_check_facet)] = Field("", description="Only the values of this facet.")
    values: int = Field(15, ge=1, le=200, description="Values listed that differ, and in one slice only.")
    least: int = Field(3, ge=1, le=1_000, description="Fewest memories of a value, in both slices together.")

    ineffective = VIEW
    ineffective_message = "has no effect on a comparison"
    ineffective_suggestion = "leave it out"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a comparison: the query that the slices share, and the parameters of each, None if it has none."""

    request: CompareRequest
    shared: SearchQuery
    a: SearchQuery | None = None
    b: SearchQuery | None = None

    @property
    def by(self) -> str:
        """How the slices differ: as requested; slices that are given may show it by their own parameters."""
        keys = {key for own in (self.a, self.b) if own for key, _ in own.parameters()}
        if self.request.by != DATE_KEY or keys <= set(_DATES):
            return self.request.by
        return keys.pop() if len(keys) == 1 and keys <= FACET.keys() else SEARCHES

    def parameters(self) -> list[Pair]:
        pairs = [*self.shared.parameters(), *self.request.parameters()]
        for prefix, own in (("a", self.a), ("b", self.b)):
            pairs += [(f"{prefix}.{key}", value) for key, value in (own.parameters() if own else ())]
        return pairs

    def querystring(self) -> str:
        return urlencode(self.parameters())


def split_slices(
    pairs: Iterable[Pair], kind: type[SearchQuery] = SearchQuery
) -> tuple[list[Pair], dict[str, SearchQuery | None], tuple[Problem, ...]]:
    """The parameters that the slices share, those of each slice, and the invalid ones of these. `kind` is the kind of
    query that an address may have.
    """
    shared: list[Pair] = []
    owns: dict[str, list[Pair]] = {"a": [], "b": []}
    problems: list[Problem] = []
    for key, value in pairs:
        prefix, dot, name = key.partition(".")
        if dot and prefix in owns:
            owns[prefix].append((name, value))
        elif key in owns:
            # The address of a search, as a browser copies it.
            found = parse_qsl(value.rpartition("?")[2].partition("#")[0].strip(), keep_blank_values=True)
            if value.strip() and not found:
                advice = "write parameters of a search, such as agent=codex, or the address of one"
                problems.append(Problem(key, "has no parameters", advice))
            owns[key] += found
        else:
            shared.append((key, value))
    queries: dict[str, SearchQuery | None] = {}
    for prefix, own in owns.items():
        query, misread = kind.read(own)
        problems += [replace(one, parameter=f"{prefix}.{one.parameter}") for one in misread]
        queries[prefix] = plain(query) if plain(query).parameters() else None
    return shared, queries, tuple(problems)


def read_comparison(pairs: Iterable[Pair]) -> Asked:
    """Read a request. Raises QueryError, naming all that is wrong."""
    shared, owns, problems = split_slices(pairs)
    try:
        request, query = CompareRequest.with_query(shared)
    except QueryError as error:
        raise QueryError([*error.problems, *problems]) from error
    if problems:
        raise QueryError(problems)
    return Asked(request, query, owns["a"], owns["b"])


def slice_query(shared: SearchQuery, own: SearchQuery) -> SearchQuery:
    """The shared query with the parameters of a slice, each in the place of the shared one of its name."""
    pairs = own.parameters()
    names = {name for name, _ in pairs}
    if names.intersection(_DATES):
        names.update(_DATES)
    kept = [pair for pair in plain(shared).parameters() if pair[0] not in names]
    return SearchQuery.read([*kept, *pairs])[0]


def with_value(query: SearchQuery, key: str, value: str) -> SearchQuery | None:
    """The search for exactly the memories of a slice that have a value; None if no search can select them."""
    chosen = query.selection(key)
    if chosen.require_all and value in chosen.include:
        return query
    if chosen.require_all or not (chosen.include or chosen.no_value):
        return query.with_(**{FACET[key].field: tuple(sorted({*chosen.include, value}))})
    is_below = key == "category" and any(value.startswith(f"{name}/") for name in chosen.include)
    if FACET[key].exclusive or chosen.include == (value,) or is_below:
        return query.with_(**{FACET[key].field: (value,), "no": tuple(other for other in query.no if other != key)})
    return None


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of time of the chart, and the number of memories in it. Both days are included."""

    first: date
    last: date
    count: int


Period = tuple[date, date]


def align_steps(
    slices: Sequence[tuple[DayCounts, Period | None]], *, aligned: bool
) -> tuple[Interval, tuple[tuple[Step, ...], ...]]:
    """The days of some slices, each within its period, in steps of the same length: over the same calendar, or
    `aligned` so that all begin with the first step.
    """
    known = [period for _, period in slices if period]
    if not known:
        return Interval.DAY, tuple(() for _ in slices)
    if not aligned:
        whole = (min(first for first, _ in known), max(last for _, last in known))
        slices = [(days, whole) for days, _ in slices]
        known = [whole]
    interval, years = choose_interval(*max(known, key=lambda period: period[1] - period[0]))
    interval = Interval.DAY if interval == Interval.HOUR else interval
    steps: list[tuple[Step, ...]] = []
    for days, period in slices:
        if period is None:
            steps.append(())
            continue
        first = period[0] if aligned else bucket_start(period[0], interval, years)
        steps.append(_counted_steps(days, tuple(_starts(first, period[1], interval, years)), period[1]))
    return interval, tuple(steps)


def _starts(first: date, last: date, interval: Interval, years: int) -> Iterator[date]:
    """The first days of steps, from the first day on."""
    months = {Interval.MONTH: 1, Interval.QUARTER: 3, Interval.YEAR: 12 * years}.get(interval)
    width = timedelta(days=7 if interval == Interval.WEEK else 1)
    start, place = first, 0
    while start <= last:
        yield start
        place += 1
        try:
            start = _months_after(first, place * months) if months else first + place * width
        except (OverflowError, ValueError):
            return


def _months_after(day: date, months: int) -> date:
    """The same day some months later, or the last one of that month."""
    following = day.year * 12 + day.month - 1 + months
    month_start = day.replace(year=following // 12, month=following % 12 + 1, day=1)
    try:
        return month_start.replace(day=day.day)
    except ValueError:
        return (month_start + timedelta(days=31)).replace(day=1) - timedelta(days=1)


def _counted_steps(days: DayCounts, starts: Sequence[date], last: date) -> tuple[Step, ...]:
    edges = [*(start.toordinal() for start in starts), last.toordinal() + 1]
    sums = np.concatenate(([0], np.cumsum(days.inside)))
    places = np.searchsorted(days.days, edges)
    counts = np.diff(sums[places]).tolist()
    ends = [date.fromordinal(edge - 1) for edge in edges[1:]]
    return tuple(Step(start, end, count) for start, end, count in zip(starts, ends, counts, strict=True))
