from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from text.formatting import day_label, local_time, moment_label, zone_names

FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("moment", "zone", "day", "label"),
    [
        pytest.param(FIRST, "America/New_York", "1 Jan 1", "1 Jan 1, 00:00 UTC", id="first, west"),
        pytest.param(FIRST, "Asia/Tokyo", "1 Jan 1", "1 Jan 1, 09:18 LMT", id="first, east"),
        pytest.param(LAST, "Asia/Tokyo", "31 Dec 9999", "31 Dec 9999, 23:59 UTC", id="last, east"),
        pytest.param(LAST, "America/New_York", "31 Dec 9999", "31 Dec 9999, 18:59 EST", id="last, west"),
    ],
)
def test_either_end_of_the_calendar_has_a_label(moment, zone, day, label):
    assert day_label(moment, ZoneInfo(zone)) == day
    assert moment_label(moment, ZoneInfo(zone)) == label


def test_every_moment_has_a_time_in_every_zone():
    for name in zone_names():
        for moment in (FIRST, LAST):
            assert local_time(moment, ZoneInfo(name)) == moment
