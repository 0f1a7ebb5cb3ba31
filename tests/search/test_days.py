from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np

from search.engines.index.counts import count_days
from search.engines.index.segments import QUARTER, microseconds_of


def counted(count, moments, zone):
    created = np.array([microseconds_of(moment) for moment in moments], np.int64)
    return count(created // (QUARTER * 1_000_000), lambda some: created[some], None, ZoneInfo(zone))


def test_days_of_a_zone_that_is_off_by_less_than_a_quarter_are_local_days():
    # 23:55 and 00:05 in Kiritimati, which was off by 10:40 until 1979.
    moments = [datetime(1975, 1, 2, 10, minute, tzinfo=UTC) for minute in (35, 45)]
    days = counted(count_days, moments, "Pacific/Kiritimati")
    assert [(str(day), every) for day, every, _ in days.listed()] == [("1975-01-01", 1), ("1975-01-02", 1)]
