from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from search.engines.index.days import count_days, count_hours, microseconds_of
from search.engines.index.segments import QUARTER


def counted(count, moments, zone):
    created = np.array([microseconds_of(moment) for moment in moments], np.int64)
    return count(created // (QUARTER * 1_000_000), lambda some: created[some], None, ZoneInfo(zone))


@pytest.mark.parametrize(
    ("zone", "first", "expected"),
    [
        pytest.param(
            "Europe/Berlin", (2024, 10, 27, 0, 0), [("02:00+02:00", 2), ("02:00+01:00", 2)], id="an hour twice"
        ),
        pytest.param("Australia/Lord_Howe", (2024, 4, 6, 14, 30), [("01:00+11:00", 2), ("02:00+10:30", 2)], id="half"),
        pytest.param("Europe/Berlin", (1960, 6, 1, 0, 0), [("01:00+01:00", 2), ("02:00+01:00", 2)], id="one by one"),
    ],
)
def test_hours_of_a_clock_that_is_put_back_are_counted_apart(zone, first, expected):
    start = datetime(*first, tzinfo=UTC)
    hours = counted(count_hours, [start + timedelta(minutes=30 * n) for n in range(4)], zone)
    assert [(f"{hour.instant:%H:%M}{hour.instant.isoformat()[-6:]}", hour.all) for hour in hours] == expected


def test_days_of_a_zone_that_is_off_by_less_than_a_quarter_are_local_days():
    # 23:55 and 00:05 in Kiritimati, which was off by 10:40 until 1979.
    moments = [datetime(1975, 1, 2, 10, minute, tzinfo=UTC) for minute in (35, 45)]
    days = counted(count_days, moments, "Pacific/Kiritimati")
    assert [(str(day), every) for day, every, _ in days.listed()] == [("1975-01-01", 1), ("1975-01-02", 1)]
