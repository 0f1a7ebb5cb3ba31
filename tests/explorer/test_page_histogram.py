"""The histogram plot from hand-made results, without a database."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from explorer.page_query import PageQuery
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


def test_bars_are_drawn_in_one_path_and_those_cut_by_the_dates_on_their_own():
    plot = context_of("from=2026-04-16&to=2026-06-30", histogram=MONTHS).plot
    assert plot.slots == 4
    assert plot.all_path == "M0.07 100V50.0h0.86V100zM1.07 100V0.0h0.86V100zM3.07 100V60.0h0.86V100z"
    assert plot.now_path == "M3.07 100V60.0h0.86V100z"
    assert [(bar.x, bar.y, bar.height) for bar in plot.partial_bars] == [("26.750%", "75.00%", "25.00%")]
    assert context_of(histogram=MONTHS).plot.all_path == ""


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


def test_memories_before_the_first_bar_are_counted_and_linked():
    assert context_of("q=tea", histogram=MONTHS).plot.earlier is None
    earlier = context_of("q=tea", histogram=replace(MONTHS, earlier=1_234)).plot.earlier
    assert (earlier.label, earlier.url) == ("‹ 1,234 before 1 Mar 2026", "/explore/?q=tea&to=2026-02-28")


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


def test_hours_are_picked_in_local_time():
    hour = Bar("2026-05-01T10:00+02:00", "2026-05-01T10:59+02:00", "1 May 2026, 10:00–10:59", 1, 1)
    zone = ZoneInfo("Europe/Berlin")
    plot = context_of(
        "from=2026-05-01T10:00&to=2026-05-01T10:59", zone, histogram=Histogram(Interval.HOUR, (hour,))
    ).plot
    assert (plot.dates.type, plot.dates.step) == ("datetime-local", "")
    assert (plot.dates.first, plot.dates.last) == ("2026-05-01T10:00", "2026-05-01T10:59")
    assert plot.bars[0].first == "2026-05-01T10:00"
    assert plot.bars[0].url == "/explore/?from=2026-05-01T10%3A00%2B02%3A00&to=2026-05-01T10%3A59%2B02%3A00"
    assert plot.handles[0].value == 0


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


def test_too_fine_a_choice_is_explained():
    plot = context_of(histogram=replace(MONTHS, coarsened_from=Interval.DAY)).plot
    assert plot.note == "Too many bars by day; shown by month."


def test_label_near_the_right_edge_ends_with_its_bar():
    years = tuple(Bar(f"{year}-01-01", f"{year}-12-31", str(year), 1, 1) for year in range(1996, 2028))
    ticks = context_of(histogram=Histogram(Interval.YEAR, years)).plot.ticks
    assert [(tick.label, tick.x, tick.is_last) for tick in ticks][-2:] == [
        ("2024", "87.500%", False),
        ("2026", "96.875%", True),
    ]


def test_ticks_stand_where_a_quarter_or_a_year_begins():
    ticks = context_of(histogram=MONTHS).plot.ticks
    assert [(tick.label, tick.x) for tick in ticks] == [("Apr", "25.000%")]


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


def test_a_facet_of_several_values_divides_nothing():
    _, problems = PageQuery.read([("split", "tag")])
    assert "must be one of project, type, agent, source, state" in problems[0].message
