"""The histogram plot from hand-made results, without a database."""

from search.facets import DateBuckets, FacetValue
from search.histogram import Bar, Histogram
from search.query import Interval
from search.result import HistogramSplit
from tests.explorer.contexts import context_of

MONTHS = Histogram(
    Interval.MONTH,
    (
        Bar("2026-03-01", "2026-03-31", "Mar 2026", 0, 10),
        Bar("2026-04-01", "2026-04-30", "Apr 2026", 5, 20, partial=True),
        Bar("2026-05-01", "2026-05-31", "May 2026", 0, 0),
        Bar("2026-06-01", "2026-06-30", "Jun 2026", 8, 8),
    ),
)


def test_bars_are_links_that_are_named_by_what_they_give():
    plot = context_of("q=tea", histogram=MONTHS).plot
    assert plot.bars[0].name == "Mar 2026: 10"
    assert plot.bars[0].url == "/explore/?q=tea&from=2026-03-01&to=2026-03-31"
    assert plot.bars[1].name == "Apr 2026: 20, 5 within the dates"
    assert plot.bars[2].empty


def test_quick_ranges_have_counts_and_the_current_one_is_taken_off_again():
    plot = context_of("since=30d", histogram=MONTHS, quick_ranges=DateBuckets(0, 4, 9, 1_200, 3)).plot
    assert [(r.label, r.count, r.current, r.empty) for r in plot.ranges] == [
        ("7 d", "0", False, True),
        ("30 d", "4", True, False),
        ("90 d", "9", False, False),
        ("1 y", "1,200", False, False),
    ]
    assert plot.ranges[0].url == "/explore/?since=7d"
    assert plot.ranges[1].url == "/explore/"
    assert plot.ranges[3].name == "1 y 1,200, last year"


# --- divided by a facet -------------------------------------------------------------------------------------------


def divided():
    values = (FacetValue("bugfix", "bugfix", 6, ref="bugfix"), FacetValue("note", "note", 2, ref="note"))
    return HistogramSplit("type", values, ((4, 2), (0, 2)), (1, 0))
