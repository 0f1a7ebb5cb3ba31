"""Times in plain words."""

from datetime import date

import pytest

from text.periods import find_period

# A Wednesday.
TODAY = date(2026, 5, 13)


@pytest.mark.parametrize(
    ("text", "label", "first", "last", "width"),
    [
        ("May 2024 plan", "May 2024", date(2024, 5, 1), date(2024, 5, 31), 2),
        ("März 2026", "March 2026", date(2026, 3, 1), date(2026, 3, 31), 2),
        ("février 2024", "February 2024", date(2024, 2, 1), date(2024, 2, 29), 2),
        ("mayo de 2024", "May 2024", date(2024, 5, 1), date(2024, 5, 31), 3),
        ("dicembre 2025", "December 2025", date(2025, 12, 1), date(2025, 12, 31), 2),
        ("março 2025", "March 2025", date(2025, 3, 1), date(2025, 3, 31), 2),
        ("maart 2025", "March 2025", date(2025, 3, 1), date(2025, 3, 31), 2),
        ("oct 2025", "October 2025", date(2025, 10, 1), date(2025, 10, 31), 2),
        ("2026-03", "March 2026", date(2026, 3, 1), date(2026, 3, 31), 1),
        ("2026-03-12", "12 March 2026", date(2026, 3, 12), date(2026, 3, 12), 1),
        ("12 May 2026", "12 May 2026", date(2026, 5, 12), date(2026, 5, 12), 3),
        ("May 12 2026", "12 May 2026", date(2026, 5, 12), date(2026, 5, 12), 3),
        ("Q1 2026", "Q1 2026", date(2026, 1, 1), date(2026, 3, 31), 2),
        ("2025 q4", "Q4 2025", date(2025, 10, 1), date(2025, 12, 31), 2),
        ("last week", "last week", date(2026, 5, 4), date(2026, 5, 10), 2),
        ("letzte Woche", "last week", date(2026, 5, 4), date(2026, 5, 10), 2),
        ("semaine dernière", "last week", date(2026, 5, 4), date(2026, 5, 10), 2),
        ("last month", "last month", date(2026, 4, 1), date(2026, 4, 30), 2),
        ("this year", "this year", date(2026, 1, 1), date(2026, 12, 31), 2),
        ("last 7 days", "last 7 days", date(2026, 5, 6), date(2026, 5, 13), 3),
    ],
)
def test_a_time_that_can_mean_nothing_else(text, label, first, last, width):
    found = find_period(text.split(), 0, TODAY)
    assert (found.label, found.first, found.last, found.width, found.is_sure) == (label, first, last, width, True)


@pytest.mark.parametrize(
    ("text", "label", "width"),
    [
        ("March", "March 2026", 1),
        ("June", "June 2025", 1),
        ("2024", "2024", 1),
        ("q3", "Q3 2025", 1),
        ("gestern", "yesterday", 1),
    ],
)
def test_a_time_that_may_mean_something_else(text, label, width):
    found = find_period(text.split(), 0, TODAY)
    assert (found.label, found.width, found.is_sure) == (label, width, False)


@pytest.mark.parametrize(
    "text",
    ["mar", "sep tests", "31 February 2026", "2026-13", "2026-02-30", "CVE-2026-03", "1850", "12 kettles", "q5 2026",
     "last minute", "last 0 days", "last 99999999 days", "marched", "de 2024"],
)  # fmt: skip
def test_what_is_no_time(text):
    assert find_period(text.split(), 0, TODAY) is None
