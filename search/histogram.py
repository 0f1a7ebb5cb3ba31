"""Bars of the date histogram from counts by day. Pure."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from search.query import Interval
from text.formatting import MONTHS, day_start, day_text, instant

MAX_BARS = 60
# Early days that hold at most this share of the memories are left out if they are at least that share of all days.
_HARDLY, _WORTH_CUTTING = 0.02, 0.2
# Years per bar if a bar per year would be too many: one memory dated in the year 1 is enough for that.
_YEAR_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_FIRST_INSTANT, _LAST_INSTANT = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_ORDER = (Interval.HOUR, Interval.DAY, Interval.WEEK, Interval.MONTH, Interval.QUARTER, Interval.YEAR)


Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class DayCounts:
    """Counts of memories by calendar day, as parallel arrays in order of days, without empty days.

    Days are proleptic ordinals. Counts are without and with the date filter.
    """

    days: Numbers
    all: Numbers
    inside: Numbers

    @staticmethod
    def of(rows: Iterable[tuple[date, int, int]]) -> "DayCounts":
        """Build from (day, count without the date filter, count with it) in any order."""
        table = np.array(sorted((day.toordinal(), n, inside) for day, n, inside in rows), np.int64).reshape(-1, 3)
        return DayCounts(*table.T)

    def listed(self) -> list[tuple[date, int, int]]:
        """Rows of (day, count without the date filter, count with it)."""
        days = map(date.fromordinal, self.days.tolist())
        return list(zip(days, self.all.tolist(), self.inside.tolist(), strict=True))


NO_DAYS = DayCounts.of(())


@dataclass(frozen=True, slots=True)
class Bar:
    """A bucket. `from=first&to=last` selects exactly its memories.

    `all` counts without the date filter, as a click on the bar does; `count` counts with it. A bar is partial if the
    dates of the query cut through it.
    """

    first: str
    last: str
    label: str
    count: int
    all: int
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Histogram:
    """Calendar-aligned bars without gaps. `step` is the number of years per bar if the interval is a year."""

    interval: Interval = Interval.MONTH
    bars: tuple[Bar, ...] = ()
    coarsened_from: Interval | None = None
    step: int = 1
    unavailable: str = ""
    at_least: bool = False
    """Whether the counts are lower bounds."""
    earlier: int = 0
    """The memories before the first bar, if early days are left out."""

    @property
    def peak(self) -> Bar | None:
        """The highest bar by `count`."""
        return max(self.bars, key=lambda bar: bar.count, default=None)


def histogram_domain(
    counts: DayCounts, first: date | None, last: date | None, *, margin: bool = True
) -> tuple[date, date] | None:
    """The first and last day to draw: all days, or the dates of the query and half their length on both sides."""
    if not len(counts.days):
        return None
    earliest, latest = (date.fromordinal(int(counts.days[at])) for at in (0, -1))
    if first is None and last is None:
        return earliest, latest
    begin = max(first, earliest) if first else earliest
    end = min(last, latest) if last else latest
    if begin > end:
        return earliest, latest
    around = (end - begin + timedelta(days=1)) // 2 if margin else timedelta()
    try:
        wide = begin - around, end + around
    except OverflowError:
        return earliest, latest
    return max(earliest, wide[0]), min(latest, wide[1])


def without_early_days(counts: DayCounts, domain: tuple[date, date]) -> tuple[date, date]:
    """The domain without a long time at its begin that holds hardly anything; it then begins with a month or a year."""
    first, last = domain
    until = np.cumsum(counts.all)
    kept = date.fromordinal(int(counts.days[np.searchsorted(until, _HARDLY * until[-1], "right")]))
    begin = bucket_start(kept, Interval.YEAR if last.year - first.year > 4 else Interval.MONTH)
    is_long = begin > first and (begin - first).days >= _WORTH_CUTTING * (last - first).days
    return (begin, last) if is_long else domain


def count_before(counts: DayCounts, day: date) -> int:
    """The memories of earlier days, whatever the dates of the query."""
    return int(counts.all[: np.searchsorted(counts.days, day.toordinal())].sum())


def choose_interval(first: date, last: date, most: int = MAX_BARS) -> tuple[Interval, int]:
    """The finest interval with at most `most` bars, and the number of years per bar."""
    for interval in _ORDER[:-1]:
        if _bars_needed(interval, first, last) <= most:
            return interval, 1
    years = last.year - first.year + 1
    for step in _YEAR_STEPS:
        if years // step + 2 <= max(most, 3) or step == _YEAR_STEPS[-1]:
            return Interval.YEAR, step
    raise AssertionError("unreachable: the last step always answers")


def effective_interval(requested: Interval, first: date, last: date, most: int = MAX_BARS) -> tuple[Interval, int]:
    """The requested interval, or the finest that fits if it would have too many bars."""
    finest, step = choose_interval(first, last, most)
    if requested == Interval.AUTO or _ORDER.index(requested) < _ORDER.index(finest):
        return finest, step
    return requested, step if requested == finest == Interval.YEAR else 1


def build_histogram(
    counts: DayCounts, domain: tuple[date, date], requested: Interval = Interval.AUTO, most: int = MAX_BARS
) -> Histogram:
    """At most `most` bars of days or longer over the domain."""
    interval, step = effective_interval(requested, *domain, most)
    if interval == Interval.HOUR:
        interval = Interval.DAY
    coarsened = requested if requested not in {Interval.AUTO, interval} else None
    starts = list(_every_start(domain, interval, step))
    sums = _sums_between(counts, [*starts, bucket_end(starts[-1], interval, step)])
    bars = tuple(_bar(start, interval, step, *pair) for start, pair in zip(starts, sums, strict=True))
    return Histogram(interval, bars, coarsened, step)


def hour_edges(domain: tuple[date, date], zone: tzinfo) -> tuple[datetime, ...]:
    """The instants between the first and last day, of which neither is an end of the calendar, at which a clock shows
    a whole hour or changes, and the one at which the last day ends.
    """
    edge, end = day_start(domain[0], zone), day_start(domain[1] + timedelta(days=1), zone)
    if edge is None or end is None:
        raise ValueError("the ends of the calendar have no hours")
    edges = []
    while edge < end:
        edges.append(edge)
        edge = min(_next_edge(edge, zone), end)
    return (*edges, end)


def build_hours(edges: Sequence[datetime], every: Numbers, inside: Numbers, zone: tzinfo) -> Histogram:
    """A bar from each edge of `hour_edges` to the next, from the counts of each without and with the date filter."""
    counts = zip(every.tolist(), inside.tolist(), strict=True)
    bars = (_hour_bar(*pair, zone, *both) for pair, both in zip(pairwise(edges), counts, strict=True))
    return Histogram(Interval.HOUR, tuple(bars))


def bar_edges(bars: Sequence[Bar], zone: tzinfo) -> tuple[datetime, ...]:
    """The instants at which consecutive bars begin, and the one at which the last ends."""
    if not bars:
        return ()
    starts = [instant(bar.first, zone, end=False) or _FIRST_INSTANT for bar in bars]
    return (*starts, instant(bars[-1].last, zone, end=True) or _LAST_INSTANT)


def _sums_between(counts: DayCounts, bounds: Sequence[date]) -> list[tuple[int, int]]:
    """Sums of the days from each bound to the next; the last one is open."""
    edges = [*(bound.toordinal() for bound in bounds[:-1]), bounds[-1].toordinal() + 1]
    # Days before the first bound count in the first bucket.
    places = np.searchsorted(edges, counts.days, "right")
    sums = np.zeros((2, len(edges) + 1), np.int64)
    np.add.at(sums[0], places, counts.all)
    np.add.at(sums[1], places, counts.inside)
    return list(zip(*sums[:, 1:-1].tolist(), strict=True))


def bucket_start(day: date, interval: Interval, step: int = 1) -> date:
    """The first day of the bucket of a day. Weeks are ISO weeks."""
    match interval:
        case Interval.WEEK:
            return date.fromordinal(max(1, day.toordinal() - day.weekday()))
        case Interval.MONTH:
            return day.replace(day=1)
        case Interval.QUARTER:
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case Interval.YEAR:
            return date(max(1, day.year // step * step), 1, 1)
    return day


@lru_cache(maxsize=10_000)
def bucket_end(start: date, interval: Interval, step: int = 1) -> date:
    """The last day of a bucket."""
    try:
        match interval:
            case Interval.WEEK:
                following = date.fromordinal(start.toordinal() - start.weekday() + 7)
            case Interval.MONTH:
                following = (start.replace(day=28) + timedelta(days=4)).replace(day=1)
            case Interval.QUARTER:
                following = (start.replace(month=start.month + 2, day=28) + timedelta(days=4)).replace(day=1)
            case Interval.YEAR:
                following = date(start.year // step * step + step, 1, 1)
            case _:
                return start
    except (OverflowError, ValueError):
        return date.max
    return following - timedelta(days=1)


def _bars_needed(interval: Interval, first: date, last: date) -> int:
    days = last.toordinal() - first.toordinal() + 1
    match interval:
        case Interval.HOUR:
            return days * 24
        case Interval.DAY:
            return days
        case Interval.WEEK:
            return (bucket_start(last, interval) - bucket_start(first, interval)).days // 7 + 1
        case Interval.QUARTER:
            return (last.year - first.year) * 4 + (last.month - 1) // 3 - (first.month - 1) // 3 + 1
    return (last.year - first.year) * 12 + last.month - first.month + 1


def _every_start(domain: tuple[date, date], interval: Interval, step: int) -> Iterable[date]:
    start = bucket_start(domain[0], interval, step)
    while start <= domain[1]:
        yield start
        end = bucket_end(start, interval, step)
        if end == date.max:
            return
        start = end + timedelta(days=1)


def _next_edge(edge: datetime, zone: tzinfo) -> datetime:
    """The next instant at which the clock shows a whole hour, or changes."""
    local = edge.astimezone(zone)
    seconds = range(1, 3600 - local.minute * 60 - local.second + 1)
    changed = bisect_left(
        seconds, True, key=lambda s: (edge + timedelta(seconds=s)).astimezone(zone).utcoffset() != local.utcoffset()
    )
    return edge + timedelta(seconds=min(changed + 1, len(seconds)))


def _hour_bar(start: datetime, end: datetime, zone: tzinfo, count_all: int, count: int) -> Bar:
    # `to` includes the minute that it names, or the second if it has seconds, as before a change in past centuries.
    has_seconds = start.astimezone(zone).second or (end - timedelta(seconds=1)).astimezone(zone).second != 59
    unit, timespec = (timedelta(seconds=1), "seconds") if has_seconds else (timedelta(minutes=1), "minutes")
    first, last = start.astimezone(zone), (end - unit).astimezone(zone)
    label = f"{day_text(first.date())}, {first:%H:%M}–{last:%H:%M}"
    for twice in ([local.replace(fold=fold) for fold in (0, 1)] for local in (first, last)):
        if twice[0].utcoffset() != twice[1].utcoffset():
            # Clocks show this time twice. Some zones have one name for both, others have numbers for names.
            names = {f"{local:%Z}" for local in twice}
            is_named = len(names) == 2 and all(map(str.isalpha, names))
            label += f" {first:%Z}" if is_named else f" UTC{first.isoformat(timespec='minutes')[16:]}"
            break
    return Bar(
        first.isoformat(timespec=timespec),
        last.isoformat(timespec=timespec),
        label,
        count,
        count_all,
        0 < count < count_all,
    )


def _bar(start: date, interval: Interval, step: int, count_all: int, count: int) -> Bar:
    return Bar(*_dates_of(start, interval, step), count, count_all, 0 < count < count_all)


@lru_cache(maxsize=10_000)
def _dates_of(start: date, interval: Interval, step: int) -> tuple[str, str, str]:
    """The first and the last day of a bar, and its label. Cached, since most histograms have the same bars."""
    end = bucket_end(start, interval, step)
    return start.isoformat(), end.isoformat(), _label(start, end, interval, step)


def _label(start: date, end: date, interval: Interval, step: int) -> str:
    match interval:
        case Interval.DAY:
            return day_text(start)
        case Interval.WEEK:
            if start.year != end.year:
                return f"{day_text(start)} – {day_text(end)}"
            if start.month != end.month:
                return f"{start.day} {MONTHS[start.month - 1]} – {day_text(end)}"
            return f"{start.day}–{day_text(end)}"
        case Interval.MONTH:
            return f"{MONTHS[start.month - 1]} {start.year}"
        case Interval.QUARTER:
            return f"{MONTHS[start.month - 1]}–{MONTHS[end.month - 1]} {start.year}"
    return str(start.year) if step == 1 else f"{start.year}–{end.year}"
