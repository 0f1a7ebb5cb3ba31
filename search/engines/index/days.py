"""Days in any time zone, from counts by quarter of an hour."""

import itertools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

import numpy as np

from search.engines.index.segments import QUARTER, Segment
from search.engines.segment_files import Array
from search.histogram import DayCounts
from text.formatting import day_start, local_day

# In quarters of an hour: a hundred years.
_LONGEST_TABLE = 3_500_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Between these, all UTC offsets are whole quarters of an hour; Kiritimati was the last exception, in 1979.
_FIRST_EVEN = int(datetime(1980, 1, 1, tzinfo=UTC).timestamp()) // QUARTER
_LAST_EVEN = int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) // QUARTER


def instant_of(microseconds: int) -> datetime:
    """The instant, or the end of the calendar that it is beyond."""
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC) if microseconds < 0 else datetime.max.replace(tzinfo=UTC)


def microseconds_of(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def span_labels(segment: Segment, edges: Sequence[datetime]) -> Array:
    """The span of each row of a segment, from 1; 0 is before the first edge, and the highest label after the last."""
    at = np.array([microseconds_of(edge) for edge in edges], np.int64)
    quarters, rest = np.divmod(at, QUARTER * 1_000_000)
    if rest.any():
        return np.searchsorted(at, segment.arrays["created"], "right")
    first, last = int(quarters[0]), int(quarters[-1])
    stored = segment.arrays["quarter"]
    if last - first > _LONGEST_TABLE:
        return np.searchsorted(quarters, stored, "right")
    # Looking up a label takes a tenth of the time of searching for it.
    labels = np.arange(len(edges) + 1, dtype=np.min_scalar_type(len(edges)))
    table = np.repeat(labels, [1, *np.diff(quarters), 1])
    return table.take(np.clip(stored, first - 1, last) - (first - 1))


def count_days(quarters: Array, created: Callable[[Array], Array], inside: Array | None, zone: tzinfo) -> DayCounts:
    """Count instants, given as quarters, by local day. `created` returns the microseconds of some of them; `inside`
    marks those within the dates, None if all are.
    """
    even = _even(quarters)
    if even is None:
        return DayCounts(*_count_even_days(quarters, inside, zone))
    found = _count_even_days(quarters[even], None if inside is None else inside[even], zone)
    totals = {day: [n, within] for day, n, within in zip(*(array.tolist() for array in found), strict=True)}
    marks = itertools.repeat(True) if inside is None else inside[~even].tolist()
    for at, marked in zip(created(~even).tolist(), marks, strict=False):
        known = totals.setdefault(local_day(instant_of(at), zone).toordinal(), [0, 0])
        known[0] += 1
        known[1] += marked
    return DayCounts(*np.array(sorted((day, *counts) for day, counts in totals.items()), np.int64).reshape(-1, 3).T)


def _even(quarters: Array) -> Array | None:
    """A mask of the instants at which every offset is a whole quarter; None if all are."""
    if not len(quarters) or (quarters.min() >= _FIRST_EVEN and quarters.max() < _LAST_EVEN):
        return None
    return (quarters >= _FIRST_EVEN) & (quarters < _LAST_EVEN)


def _count_even_days(quarters: Array, inside: Array | None, zone: tzinfo) -> tuple[Array, Array, Array]:
    """Count even instants by day, in order: the days, their counts, and counts inside."""
    if not len(quarters):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    last = int(quarters.max())
    starts, days = _days(int(quarters.min()), last, zone)
    n = _span_counts(quarters, starts, last)
    m = n if inside is None else _span_counts(quarters[inside], starts, last)
    some = np.flatnonzero(n)
    return days[some], n[some], m[some]


def _span_counts(quarters: Array, starts: Array, last: int) -> Array:
    """The number of quarters in the span that begins at each of the starts, the first of which is not after any
    quarter.
    """
    length = last - int(starts[0]) + 1
    if len(quarters) * 10 < length:
        return np.bincount(np.searchsorted(starts, quarters, "right") - 1, minlength=len(starts))
    within = starts <= last
    counts = np.zeros(len(starts), np.int64)
    every = np.bincount(quarters - starts[0], minlength=length)
    counts[within] = np.add.reduceat(every, starts[within] - starts[0])
    return counts


def _days(first: int, last: int, zone: tzinfo) -> tuple[Array, Array]:
    """The quarters at which local days begin, and their ordinals, for all years that the quarters may touch."""
    return _days_of_years((_at(first) - timedelta(days=2)).year, (_at(last) + timedelta(days=2)).year, zone)


@lru_cache(maxsize=64)
def _days_of_years(first: int, last: int, zone: tzinfo) -> tuple[Array, Array]:
    found = [_days_of_year(year, zone) for year in range(first, last + 1)]
    return np.concatenate([starts for starts, _ in found]), np.concatenate([days for _, days in found])


@lru_cache(maxsize=512)
def _days_of_year(year: int, zone: tzinfo) -> tuple[Array, Array]:
    starts: list[int] = []
    ordinals: list[int] = []
    day = datetime(year, 1, 1, tzinfo=zone)
    before = (day - timedelta(days=1)).utcoffset()
    while day.year == year:
        following = day + timedelta(days=1)
        offset, after = day.utcoffset(), following.utcoffset()
        if offset is not None and before == offset == after:
            starts.append(int((day.replace(tzinfo=UTC) - offset - _EPOCH).total_seconds()) // QUARTER)
        else:
            start = day_start(day.date(), zone) or _EPOCH
            starts.append(int((start - _EPOCH).total_seconds()) // QUARTER)
        # A day that a zone skipped at the date line begins where the next one does.
        ordinals.append(day.toordinal())
        before, day = offset, following
    return np.array(starts, np.int64), np.array(ordinals, np.int64)


def _at(quarter: int) -> datetime:
    return _EPOCH + timedelta(seconds=quarter * QUARTER)
