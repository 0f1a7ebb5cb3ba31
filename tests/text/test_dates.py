from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from text.formatting import check_start, start_label, start_of

NOW = datetime(2026, 3, 11, 22, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("7d", "7d"),
        ("7 days", "7d"),
        ("last week", "1w"),
        ("Last  Week", "1w"),
        ("the past 3 months", "3m"),
        ("in the last twelve hours", "12h"),
        ("an hour ago", "1h"),
        ("a fortnight", "2w"),
        ("2 quarters", "6m"),
        ("last year", "1y"),
        ("45 minutes", "45min"),
        ("90 mins", "90min"),
        ("30D", "30d"),
        ("yesterday", "yesterday"),
        (" Today ", "today"),
        ("2026-03-01", "2026-03-01"),
        ("2026-03", "2026-03-01"),
        ("since yesterday", "yesterday"),
        ("since last week", "1w"),
        ("2026-03-01T14:00Z", "2026-03-01T14:00+00:00"),
        ("2026-03-01T14:00+00:53:28", "2026-03-01T14:00+00:53:28"),
    ],
)
def test_start_is_read_as_a_span_in_words_or_as_a_date(written, canonical):
    assert check_start(written) == canonical
    assert check_start(canonical) == canonical


@pytest.mark.parametrize(
    "written", ["0d", "last", "7", "zero days", "next week", "7 dayz", "soon", "-3d", "a few days"]
)
def test_start_that_is_not_understood_names_what_would_be(written):
    with pytest.raises(ValueError, match="last week or 3 months; or a date such as 2026-03-01"):
        check_start(written)


@pytest.mark.parametrize("written", ["201y", "three hundred years", "99999 months"])
def test_span_is_not_longer_than_the_calendar(written):
    with pytest.raises(ValueError, match=r"at most 200y|a date such as"):
        check_start(written)


def test_yesterday_begins_at_midnight_of_the_viewer():
    kathmandu = ZoneInfo("Asia/Kathmandu")
    assert start_of("yesterday", kathmandu, NOW) == datetime(2026, 3, 10, 18, 15, tzinfo=UTC)
    assert start_of("today", kathmandu, NOW) == datetime(2026, 3, 11, 18, 15, tzinfo=UTC)
    assert start_of("today", ZoneInfo("UTC"), NOW) == datetime(2026, 3, 11, tzinfo=UTC)
    assert start_label("yesterday") == "since yesterday"
    assert start_label(check_start("last week")) == "last week"
