"""Days and hours of the derived index's moments, in any time zone, from counts of quarters of an hour."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache, partial

import numpy as np

from search.engines.arrays import Array
from search.engines.tantivy.parts import QUARTER
from search.histogram import DayCount

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Between these, every time zone is off UTC by whole quarters of an hour; Liberia was the last to be otherwise, in 1972.
_FIRST_EVEN = int(datetime(1973, 1, 1, tzinfo=UTC).timestamp()) // QUARTER
_LAST_EVEN = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) // QUARTER
# A moment at either end of the calendar has no day in every time zone: it is counted a week further in.
_EARLIEST = datetime(1, 1, 8, tzinfo=UTC)
_LATEST = datetime(9999, 12, 24, tzinfo=UTC)


# As `DayCount._make`, without its call: there are three thousand in eight years.
_day_count = partial(tuple.__new__, DayCount)


def moment_of(microseconds: int) -> datetime:
    """The instant, a week within the calendar."""
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _EARLIEST if microseconds < 0 else _LATEST
    return min(max(moment, _EARLIEST), _LATEST)


def microseconds_of(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def count_spans(
    quarters: Array, created: Callable[[Array], Array], inside: Array | None, zone: tzinfo, *, hours: bool = False
) -> tuple[DayCount, ...]:
    """Counts by local day (or hour) of moments, given as quarters. `created` gives the microseconds of some of them;
    `inside` marks those within the dates asked for, None where all are.
    """
    if not len(quarters) or (quarters.min() >= _FIRST_EVEN and quarters.max() < _LAST_EVEN):
        return tuple(map(_day_count, _count_even(quarters, inside, zone, hours)))
    even = (quarters >= _FIRST_EVEN) & (quarters < _LAST_EVEN)
    totals: dict[datetime, list[int]] = {}
    for moment, n, within in _count_even(quarters[even], None if inside is None else inside[even], zone, hours):
        _add(totals, moment, n, within)
    odd = ~even
    marks = np.ones(len(quarters), np.bool_)[odd] if inside is None else inside[odd]
    for at, marked in zip(created(odd).tolist(), marks.tolist(), strict=True):
        _add(totals, _start(moment_of(at).astimezone(zone), hours), 1, int(marked))
    return tuple(DayCount(moment, n, within) for moment, (n, within) in sorted(totals.items(), key=_moment))


def _moment(item: tuple[datetime, list[int]]) -> tuple[datetime, datetime]:
    # An hour that the clock has twice is two hours.
    return (item[0].replace(tzinfo=None), item[0].astimezone(UTC))


def _count_even(quarters: Array, inside: Array | None, zone: tzinfo, hours: bool) -> list[tuple[datetime, int, int]]:
    """The spans that have any, in order: when each begins, how many, and how many of those inside."""
    if not len(quarters):
        return []
    first, last = int(quarters.min()), int(quarters.max())
    starts, moments = _hours(first, last, zone) if hours else _days(first, last, zone)
    n = _span_counts(quarters, starts, last)
    m = n if inside is None else _span_counts(quarters[inside], starts, last)
    some = np.flatnonzero(n)
    return list(zip([moments[at] for at in some.tolist()], n[some].tolist(), m[some].tolist(), strict=True))


def _span_counts(quarters: Array, starts: Array, last: int) -> Array:
    """How many of the quarters are in the span that begins at each of the starts, the first of which is before all."""
    length = last - int(starts[0]) + 1
    if len(quarters) * 10 < length:
        return np.bincount(np.searchsorted(starts, quarters, "right") - 1, minlength=len(starts))
    within = starts <= last
    counts = np.zeros(len(starts), np.int64)
    every = np.bincount(quarters - starts[0], minlength=length)
    counts[within] = np.add.reduceat(every, starts[within] - starts[0])
    return counts


def _add(totals: dict[datetime, list[int]], moment: datetime, n: int, within: int) -> None:
    known = totals.setdefault(moment, [0, 0])
    known[0] += n
    known[1] += within


def _start(local: datetime, hours: bool) -> datetime:
    if hours:
        return local.replace(minute=0, second=0, microsecond=0)
    return local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def _days(first: int, last: int, zone: tzinfo) -> tuple[Array, list[datetime]]:
    """Where each local day begins, as a quarter, and which it is: of all years that the quarters may touch."""
    return _days_of_years((_at(first) - timedelta(days=2)).year, (_at(last) + timedelta(days=2)).year, zone)


@lru_cache(maxsize=64)
def _days_of_years(first: int, last: int, zone: tzinfo) -> tuple[Array, list[datetime]]:
    found = [_days_of_year(year, zone) for year in range(first, last + 1)]
    return np.concatenate([starts for starts, _ in found]), [day for _, these in found for day in these]


@lru_cache(maxsize=512)
def _days_of_year(year: int, zone: tzinfo) -> tuple[Array, tuple[datetime, ...]]:
    starts: list[int] = []
    moments: list[datetime] = []
    day = datetime(year, 1, 1, tzinfo=zone)
    before = (day - timedelta(days=1)).utcoffset()
    while day.year == year:
        following = day + timedelta(days=1)
        offset, after = day.utcoffset(), following.utcoffset()
        if offset is not None and before == offset == after:
            starts.append(int((day.replace(tzinfo=UTC) - offset - _EPOCH).total_seconds()) // QUARTER)
        else:
            starts.append(_first_quarter(day, zone))
        # A day that a zone left out, when it crossed the date line, begins where the next one does.
        moments.append(day)
        before, day = offset, following
    return np.array(starts, np.int64), tuple(moments)


def _first_quarter(day: datetime, zone: tzinfo) -> int:
    """The first quarter of a local day near which the clock is changed: midnight may be skipped, or come twice."""
    quarter = int((day.replace(tzinfo=UTC) - timedelta(hours=27) - _EPOCH).total_seconds()) // QUARTER
    while _at(quarter).astimezone(zone).date() < day.date():
        quarter += 1
    return quarter


def _hours(first: int, last: int, zone: tzinfo) -> tuple[Array, list[datetime]]:
    """As `_days`, by the hour. Clocks may be put forward or back within one: every quarter is looked at."""
    starts: list[int] = []
    moments: list[datetime] = []
    for quarter in range(first, last + 1):
        moment = _start(_at(quarter).astimezone(zone), hours=True)
        if not moments or moment != moments[-1] or moment.fold != moments[-1].fold:
            starts.append(quarter)
            moments.append(moment)
    return np.array(starts, np.int64), moments


def _at(quarter: int) -> datetime:
    return _EPOCH + timedelta(seconds=quarter * QUARTER)
