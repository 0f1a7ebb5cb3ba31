"""The bars of a histogram add up to its total, and each holds what a click on it selects, whatever clocks do."""

from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import pairwise
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from django.core.management import call_command
from django.db import connection

from search.engines.index.counts import count_days
from search.engines.index.segments import QUARTER, microseconds_of
from search.engines.sql import Sql
from search.engines.sql import local_day as sql_local_day
from search.histogram import bar_edges, bucket_end, bucket_start, build_histogram, build_hours, hour_edges
from search.query import Interval, SearchQuery
from search.run import run
from tests.search.conftest import EVERY_COUNT
from text.formatting import check_date, local_day, zone_names

pytestmark = EVERY_COUNT

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
# Around a change: just before and after, and at distances that lie in bars on either side.
AROUND = [timedelta(minutes=n) + m * SECOND for n in (0, 1, 15, 30, 59, 60, 90, 1440) for m in (-1, 0, 1)]
WIDTHS = [Interval.DAY, Interval.WEEK, Interval.MONTH, Interval.QUARTER, Interval.YEAR]


def changes_of(zone: tzinfo, since=1900, until=2038):
    """The instants at which a clock changes, found by looking at it once a week."""
    moments = [datetime(since, 1, 1, tzinfo=UTC) + 7 * DAY * n for n in range((until - since) * 52)]
    found = []
    for before, after in pairwise(moments):
        if before.astimezone(zone).utcoffset() == after.astimezone(zone).utcoffset():
            continue
        while after - before > SECOND:
            middle = before + (after - before) // 2 // SECOND * SECOND
            same = middle.astimezone(zone).utcoffset() == before.astimezone(zone).utcoffset()
            before, after = (middle, after) if same else (before, middle)
        found.append(after)
    return found


def every_clock(part):
    """Each `part`th of the zones with its last twenty changes; those with the same changes and times once."""
    clocks = {}
    for name in sorted(zone_names())[::part]:
        zone = ZoneInfo(name)
        changes = changes_of(zone)[-20:]
        clocks.setdefault(tuple((at, at.astimezone(zone).isoformat()) for at in changes), (zone, changes))
    return list(clocks.values())


def counted_days(moments, zone):
    created = np.array([microseconds_of(moment) for moment in moments], np.int64)
    return count_days(created // (QUARTER * 1_000_000), lambda some: created[some], None, zone)


def clicked(bar, moments, zone):
    """The number of moments that `from=first&to=last` selects."""
    query = SearchQuery(date_from=check_date(bar.first), date_to=check_date(bar.last))
    start, end = query.period(zone, datetime.now(UTC))
    return sum((not start or start <= moment) and (not end or moment < end) for moment in moments)


def of_days(moments, zone, width, days):
    """A histogram over the buckets of some days, and the moments in it."""
    first, last = bucket_start(min(days), width), bucket_end(bucket_start(max(days), width), width)
    within = [moment for moment in moments if first <= local_day(moment, zone) <= last]
    return build_histogram(counted_days(within, zone), (first, last), width), within


def of_hours(moments, zone, days):
    edges = hour_edges((min(days), max(days)), zone)
    within = [moment for moment in moments if edges[0] <= moment < edges[-1]]
    found = np.searchsorted(np.array(edges), np.array(within), "right") - 1
    counts = np.bincount(found, minlength=len(edges) - 1)
    return build_hours(edges, counts, counts, zone), within


@pytest.mark.parametrize("part", [10, pytest.param(1, marks=pytest.mark.release)], ids=["a tenth", "all"])
def test_bars_are_clicks_at_the_last_changes_of_clocks(part):
    wrong = []
    clocks = every_clock(part)
    assert len(clocks) > 200 / part
    for zone, changes in clocks:
        moments = sorted({at + sign * apart for at in changes for apart in AROUND for sign in (-1, 1)})
        for at in changes:
            near = [moment for moment in moments if abs(moment - at) <= 2 * DAY]
            days = {local_day(moment, zone) for moment in (at - SECOND, at)}
            drawn = [(width, *of_days(near, zone, width, days)) for width in WIDTHS]
            for width, histogram, within in (*drawn, (Interval.HOUR, *of_hours(near, zone, days))):
                assert within, (zone, at, width)
                clicks = [clicked(bar, within, zone) for bar in histogram.bars]
                if sum(clicks) != len(within) or clicks != [bar.all for bar in histogram.bars]:
                    wrong.append((str(zone), str(at), width))
                if len({bar.label for bar in histogram.bars}) != len(histogram.bars):
                    wrong.append((str(zone), str(at), width, "labels"))
    assert wrong == []


@pytest.mark.parametrize(
    ("zone", "day", "expected"),
    [
        pytest.param("Europe/Berlin", date(2024, 10, 27), ["02:00–02:59 CEST", "02:00–02:59 CET"], id="an hour twice"),
        pytest.param(
            "Australia/Lord_Howe", date(2024, 4, 7), ["01:00–01:59 UTC+11:00", "01:30–01:59 UTC+10:30"], id="half"
        ),
        pytest.param(
            "America/Sao_Paulo", date(2018, 2, 17), ["23:00–23:59 UTC-02:00", "23:00–23:59 UTC-03:00"], id="evening"
        ),
        pytest.param("Asia/Kathmandu", date(1986, 1, 1), ["00:15–00:59"], id="a quarter skipped"),
    ],
)
def test_hours_that_clocks_show_twice_or_in_part_are_named_apart(zone, day, expected):
    edges = hour_edges((day, day), ZoneInfo(zone))
    nothing = np.zeros(len(edges) - 1, np.int64)
    labels = [bar.label.partition(", ")[2] for bar in build_hours(edges, nothing, nothing, ZoneInfo(zone)).bars]
    assert [label for label in labels if label.endswith(tuple(expected))] == expected


def test_hour_that_the_dates_cut_through_is_partial():
    zone = ZoneInfo("UTC")
    edges = hour_edges((date(2026, 1, 1), date(2026, 1, 1)), zone)
    every, inside = np.zeros((2, 24), np.int64)
    every[1], inside[1], every[2], inside[2] = 3, 2, 1, 1
    bars = build_hours(edges, every, inside, zone).bars
    assert [bar.partial for bar in bars[:4]] == [False, True, False, False]


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC", "Pacific/Kiritimati", "Etc/GMT+12"])
@pytest.mark.parametrize("width", WIDTHS)
def test_ends_of_the_calendar_lie_in_the_first_and_last_bar(zone, width):
    zone = ZoneInfo(zone)
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    for moments, days in (
        ([first, first, first + 13 * timedelta(hours=1)], [date(1, 1, 1), date(1, 1, 2)]),
        ([last, last, last - 13 * timedelta(hours=1)], [date(9999, 12, 30), date(9999, 12, 31)]),
    ):
        histogram, within = of_days(moments, zone, width, days)
        assert within == moments
        assert [clicked(bar, moments, zone) for bar in histogram.bars] == [bar.all for bar in histogram.bars]
        assert sum(bar.all for bar in histogram.bars) == 3


@pytest.mark.parametrize(
    "zone",
    [
        "America/St_Johns", "Antarctica/Casey", "America/Toronto", "America/Juneau", "Pacific/Apia", "Asia/Manila",
        "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo", "Asia/Pyongyang", "Europe/Berlin",
    ],
)  # fmt: skip
def test_database_has_the_same_days(db, zone):
    zone = ZoneInfo(zone)
    changes = changes_of(zone, 1840, 2020)
    moments = sorted({at + sign * apart for at in changes for apart in AROUND for sign in (-1, 1)})
    moments += [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    sql = Sql()
    statement = (
        f"SELECT ({sql_local_day(sql, zone)})::text FROM unnest({sql.bind(moments)}::timestamptz[])"
        " WITH ORDINALITY AS m (created_at, n) ORDER BY n"
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, sql.parameters)
        found = [row for (row,) in cursor.fetchall()]
    assert found == [local_day(moment, zone).isoformat() for moment in moments]
    edges = bar_edges(build_histogram(counted_days(moments, zone), (date.min, date.max), Interval.YEAR).bars, zone)
    assert edges == tuple(sorted(edges))


@pytest.mark.parametrize(
    ("querystring", "moments"),
    [
        pytest.param(
            "from=2024-10-27&to=2024-10-27&tz=Europe/Berlin",
            ["2024-10-27T00:30Z", "2024-10-27T00:40Z", "2024-10-27T01:30Z", "2024-10-27T01:40Z"],
            id="an hour twice",
        ),
        pytest.param(
            "from=2024-04-07&to=2024-04-07&tz=Australia/Lord_Howe",
            [f"2024-04-06T1{hour}:{minute}Z" for hour in (4, 5) for minute in (10, 20, 40, 50)],
            id="half an hour",
        ),
        pytest.param("bucket=day&tz=America/St_Johns", ["2007-11-04T02:31Z", "2007-11-04T03:15Z"], id="midnight twice"),
        pytest.param(
            "from=2026-01-01T01:10&to=2026-01-01T01:50", [f"2026-01-01T01:{n}Z" for n in ("05", 20, 30)], id="cut"
        ),
        pytest.param("tz=America/New_York", ["0001-01-01T00:00Z", "0001-01-01T12:00Z"], id="begin of the calendar"),
        pytest.param(
            "from=2011-12-30&to=2011-12-30&tz=Pacific/Apia", ["2011-12-30T09:30Z", "2011-12-30T10:30Z"], id="no day"
        ),
    ],
)
def test_engines_count_a_bar_as_its_click(db, engine, everyone, jsonl, querystring, moments):
    path = jsonl(*({"content": f"Note {n}", "created_at": at} for n, at in enumerate(moments)))
    call_command("import_memories", str(path), verbosity=0)
    query = SearchQuery.from_pairs(parse_qsl(f"include_facets=1&{querystring}"))
    result = run(query, everyone)
    bars = result.histogram.bars
    assert sum(bar.count for bar in bars) == result.total
    for bar in bars:
        assert run(query.between(bar.first, bar.last), everyone).total == bar.all
        assert bar.partial == (0 < bar.count < bar.all)
    if "Apia" in querystring:
        assert result.total == 0
        assert "skipped this time" in result.warnings[0].message
