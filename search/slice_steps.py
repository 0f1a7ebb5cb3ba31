"""The memories of two slices over time, in steps of the same length. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np

from search.histogram import DayCounts, bucket_start, choose_interval
from search.query import Interval


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
