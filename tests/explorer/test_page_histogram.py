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


def test_caption_says_when_by_what_and_where_it_peaks():
    assert context_of(histogram=MONTHS).plot.caption == "Apr 2026 – Jun 2026, by month · peak 8 in Jun 2026"
    chosen = context_of("from=2026-03-15&to=2026-08-31", histogram=MONTHS).plot.caption
    assert chosen == "15 Mar 2026 – 31 Aug 2026, by month · peak 8 in Jun 2026"
    assert context_of("since=1y", histogram=MONTHS).plot.caption.startswith("Last year, by month")
    assert context_of(histogram=Histogram()).plot.caption == "No dates"
    years = Histogram(Interval.YEAR, (Bar("1990-01-01", "1999-12-31", "1990–1999", 3, 3),), step=10)
    assert context_of(histogram=years).plot.caption == "1990 – 1999, by 10 years · peak 3 in 1990–1999"
    day = Histogram(Interval.DAY, (Bar("2026-11-22", "2026-11-22", "22 Nov 2026", 3, 3),))
    assert context_of(histogram=day).plot.caption == "22 Nov 2026, by day · peak 3 on 22 Nov 2026"


def test_handles_stand_on_the_dates():
    plot = context_of("from=2026-04-10&to=2026-05-20", histogram=MONTHS).plot
    assert [(handle.end, handle.value, handle.text) for handle in plot.handles] == [
        ("from", 1, "Apr 2026"),
        ("to", 2, "May 2026"),
    ]
    assert (plot.chosen_left, plot.chosen_width) == ("25.000%", "50.000%")
    assert plot.reset_url == "/explore/"
    free = context_of(histogram=MONTHS).plot
    assert [handle.value for handle in free.handles] == [0, 3]
    assert free.chosen_width == ""


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


def test_a_divided_bar_is_stacked_from_the_largest_value_up():
    bars = (Bar("2026-01-01", "2026-01-31", "Jan 2026", 5, 5), Bar("2026-02-01", "2026-02-28", "Feb 2026", 4, 10))
    plot = context_of("split=type", histogram=Histogram(bars=bars), split=divided()).plot
    assert [(one.label, one.count, one.colour) for one in plot.series] == [
        ("bugfix", "6", "fix"),
        ("note", "2", "note"),
        ("other", "1", "other"),
    ]
    assert [one.url for one in plot.series][:2] == [
        "/explore/?type=bugfix&split=type",
        "/explore/?type=note&split=type",
    ]
    assert [one.path for one in plot.series] == [
        "M0.07 100.0V60.0h0.86V100.0zM1.07 100.0V80.0h0.86V100.0z",
        "M1.07 80.0V60.0h0.86V80.0z",
        "M0.07 60.0V50.0h0.86V60.0z",
    ]
    assert [bar.parts for bar in plot.bars] == [("4", "0", "1"), ("2", "2", "0")]
    assert plot.bars[0].name == "Jan 2026: 5 (bugfix 4, other 1)"


def test_facets_that_divide_a_bar_are_offered():
    bars = (Bar("2026-01-01", "2026-01-31", "Jan 2026", 5, 5),)
    plot = context_of("split=agent", histogram=Histogram(bars=bars)).plot
    assert [option.value for option in plot.splits] == ["", "project", "type", "agent", "source", "state"]
    assert [option.value for option in plot.splits if option.selected] == ["agent"]
