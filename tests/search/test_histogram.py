from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.histogram import (
    MAX_BARS,
    NO_DAYS,
    DayCounts,
    bucket_end,
    bucket_start,
    build_histogram,
    choose_interval,
    histogram_domain,
)
from search.query import Interval

INTERVALS = [Interval.DAY, Interval.WEEK, Interval.MONTH, Interval.QUARTER, Interval.YEAR]


def days(*counts):
    return DayCounts.of((date(*day), n, n) for day, n in counts)


@pytest.mark.parametrize(
    ("first", "last", "interval"),
    [
        (date(2026, 1, 1), date(2026, 1, 2), Interval.HOUR),
        (date(2026, 1, 1), date(2026, 2, 20), Interval.DAY),
        (date(2026, 1, 1), date(2026, 12, 31), Interval.WEEK),
        (date(2022, 1, 1), date(2026, 12, 31), Interval.MONTH),
        (date(2012, 1, 1), date(2026, 12, 31), Interval.QUARTER),
        (date(1970, 1, 1), date(2026, 12, 31), Interval.YEAR),
    ],
)
def test_finest_interval_that_fits_is_chosen(first, last, interval):
    assert choose_interval(first, last)[0] == interval


@given(st.dates(), st.dates(), st.sampled_from(list(Interval)))
def test_never_more_bars_than_fit(first, last, asked):
    first, last = sorted((first, last))
    counts = DayCounts.of((day, 1, 1) for day in {first, last})
    histogram = build_histogram(counts, (first, last), asked)
    assert 1 <= len(histogram.bars) <= MAX_BARS
    assert sum(bar.all for bar in histogram.bars) == len(counts.days)


@given(st.dates(), st.sampled_from(INTERVALS))
def test_a_day_lies_in_its_bucket_and_the_next_starts_after_it(day, interval):
    start = bucket_start(day, interval)
    end = bucket_end(start, interval)
    assert start <= day <= end
    if end != date.max:
        assert bucket_start(end + timedelta(days=1), interval) == end + timedelta(days=1)


def test_bars_are_without_gaps_and_name_their_dates():
    histogram = build_histogram(
        days(((2026, 1, 5), 2), ((2026, 3, 1), 1)), (date(2026, 1, 5), date(2026, 3, 1)), Interval.MONTH
    )
    assert [(bar.first, bar.last, bar.label, bar.all) for bar in histogram.bars] == [
        ("2026-01-01", "2026-01-31", "Jan 2026", 2),
        ("2026-02-01", "2026-02-28", "Feb 2026", 0),
        ("2026-03-01", "2026-03-31", "Mar 2026", 1),
    ]


def test_domain_is_the_period_with_half_as_much_again_on_either_side():
    counts = days(((2020, 1, 1), 1), ((2026, 1, 1), 1))
    assert histogram_domain(counts, None, None) == (date(2020, 1, 1), date(2026, 1, 1))
    assert histogram_domain(counts, date(2022, 1, 1), date(2022, 1, 10)) == (date(2021, 12, 27), date(2022, 1, 15))


def test_no_days_no_domain():
    assert histogram_domain(NO_DAYS, None, None) is None
