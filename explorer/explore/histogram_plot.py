"""The histogram as an SVG plot: bars, ticks and the selected period. Pure.

Positions are percentages without a viewBox, so that the plot fits any width without distortion.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import pairwise
from typing import NamedTuple

from explorer.links import Link, explore_url
from search.facets import DateBuckets
from search.histogram import Bar, Histogram, bar_edges
from search.query import Interval, SearchQuery, dates_label
from search.result import HistogramSplit
from text.formatting import MONTHS, day_text, local_time, number, spoken_number, type_family

# Percent; a bar of one memory next to one of ten thousand stays visible.
_MIN_HEIGHT = 2.0
_BAR_SHARE = 0.86
_MAX_TICKS = 16
_NARROW_TICKS = 6
# The colours of series, as the families of types have them.
_COLOURS = ("fix", "feature", "decision", "note", "test")
_INSTANT, _MINUTE, _SECOND = timedelta(microseconds=1), timedelta(minutes=1), timedelta(seconds=1)

INTERVAL_LABELS = {
    Interval.AUTO: "auto",
    Interval.HOUR: "hour",
    Interval.DAY: "day",
    Interval.WEEK: "week",
    Interval.MONTH: "month",
    Interval.QUARTER: "quarter",
    Interval.YEAR: "year",
}
QUICK_RANGES = (
    ("7d", "7 d", "last 7 days", "last_7d"),
    ("30d", "30 d", "last 30 days", "last_30d"),
    ("90d", "90 d", "last 90 days", "last_90d"),
    ("1y", "1 y", "last year", "last_year"),
)


class PlotBar(NamedTuple):
    """A bar as a link: `all` is its number without the date filter, drawn pale; `now` within it, drawn on top."""

    id: str
    url: str
    name: str
    label: str
    first: str
    last: str
    all: str
    now: str
    empty: bool
    parts: tuple[str, ...] = ()
    """The numbers of the series within the dates."""


@dataclass(frozen=True, slots=True)
class PartialBar:
    """The part of a bar within the dates if they cut the bar. It is drawn hatched."""

    x: str
    width: str
    y: str
    height: str


@dataclass(frozen=True, slots=True)
class Tick:
    x: str
    label: str
    is_major: bool
    """Whether it is shown on narrow screens."""
    is_last: bool = False
    """Whether it would cross the right edge, and ends with its bar instead of beginning with it."""


@dataclass(frozen=True, slots=True)
class QuickRange:
    since: str
    label: str
    name: str
    count: str
    url: str
    current: bool
    empty: bool


@dataclass(frozen=True, slots=True)
class Handle:
    """A keyboard slider at an end of the selected period. `value` is the index of a bar."""

    end: str
    name: str
    value: int
    text: str


@dataclass(frozen=True, slots=True)
class Option:
    value: str
    label: str
    selected: bool


@dataclass(frozen=True, slots=True)
class DateFields:
    """Values of the two date inputs: the period of the query in local time.

    `type` and `step` are attributes of both. `asked_first` and `asked_last` are the texts of the query, which are sent
    if the user does not change the input.
    """

    type: str = "date"
    step: str = ""
    first: str = ""
    last: str = ""
    asked_first: str = ""
    asked_last: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """The parts of all bars that have one value, stacked on those of the series before it."""

    label: str
    url: str
    name: str
    count: str
    colour: str
    path: str


@dataclass(frozen=True, slots=True)
class Plot:
    caption: str
    """The dates, the interval and the highest bar."""
    period: str = ""
    """The dates of the bars."""
    bars: tuple[PlotBar, ...] = ()
    slots: int = 0
    all_path: str = ""
    now_path: str = ""
    """SVG paths of all bars, one unit wide and 100 high each; empty if nothing is to be drawn."""
    partial_bars: tuple[PartialBar, ...] = ()
    has_table: bool = False
    ticks: tuple[Tick, ...] = ()
    ranges: tuple[QuickRange, ...] = ()
    earlier: Link | None = None
    """The memories before the first bar, if these times are left out."""
    reset_url: str = ""
    dates: DateFields = DateFields()
    intervals: tuple[Option, ...] = ()
    handles: tuple[Handle, ...] = ()
    chosen_left: str = ""
    chosen_width: str = ""
    last_index: int = 0
    note: str = ""
    unavailable: str = ""
    filtered: bool = False
    """Whether the query has dates."""
    at_least: bool = False
    """Whether the numbers are lower bounds."""
    series: tuple[Series, ...] = ()
    """The bars by the values of a facet, instead of `now_path` and `partial_bars`."""
    splits: tuple[Option, ...] = ()
    """The facets that can divide the bars."""

    @property
    def fields(self) -> set[str]:
        """The parameters of the query that its own fields send."""
        own = {"from", "to", "bucket", "as_of"} if self.bars else set()
        return own | {"split"} if own and self.splits else own

    @property
    def is_long(self) -> bool:
        """Whether it has more bars than two, which would be as wide as a page and say no more than their dates."""
        return len(self.bars) > 2


def build_plot(
    query: SearchQuery,
    histogram: Histogram,
    ranges: DateBuckets | None,
    zone: tzinfo,
    now: datetime,
    *,
    has_table: bool = False,
    split: HistogramSplit | None = None,
    splits: tuple[Option, ...] = (),
) -> Plot:
    """Build the plot of a histogram."""
    peak = max((bar.all for bar in histogram.bars), default=0)
    whole = [0 if bar.partial else bar.count for bar in histogram.bars]
    chosen = _chosen_bars(query, histogram.bars, zone, now)
    return Plot(
        caption=_caption(query, histogram),
        period=_period(histogram),
        bars=_bars(query, histogram, split),
        slots=len(histogram.bars),
        # Without dates both are the same, and the coloured bars would cover the pale ones.
        all_path=_path([bar.all for bar in histogram.bars], peak) if query.has_dates else "",
        now_path=_path(whole, peak),
        partial_bars=_partial_bars(histogram.bars, peak),
        has_table=has_table,
        ticks=_ticks(histogram),
        ranges=_ranges(query, ranges, at_least=histogram.at_least),
        earlier=_earlier(query, histogram),
        reset_url=explore_url(query.without("date")) if query.has_dates else "",
        dates=build_date_fields(query, zone, now),
        intervals=tuple(
            Option("" if interval == Interval.AUTO else interval.value, label, query.bucket == interval)
            for interval, label in INTERVAL_LABELS.items()
        ),
        handles=_handles(histogram.bars, chosen),
        chosen_left=_percent(chosen[0], len(histogram.bars)) if query.has_dates and chosen else "",
        chosen_width=_percent(chosen[1] - chosen[0] + 1, len(histogram.bars)) if query.has_dates and chosen else "",
        last_index=max(0, len(histogram.bars) - 1),
        note=_note(histogram),
        unavailable=histogram.unavailable,
        filtered=query.has_dates,
        at_least=histogram.at_least,
        series=_series(query, histogram, split, peak) if split else (),
        splits=splits,
    )


def _earlier(query: SearchQuery, histogram: Histogram) -> Link | None:
    if not histogram.earlier:
        return None
    first = _day(histogram.bars[0].first)
    label = str(first.year) if (first.month, first.day) == (1, 1) else day_text(first)
    count = number(histogram.earlier, at_least=histogram.at_least)
    day_before = (first - timedelta(days=1)).isoformat()
    return Link(f"‹ {count} before {label}", explore_url(query.with_(date_to=day_before)))


def build_date_fields(query: SearchQuery, zone: tzinfo, now: datetime) -> DateFields:
    """Date inputs with the coarsest type that expresses the period: days, minutes or seconds.

    A period that no picker can express, such as within the repeated hour in autumn, gets text inputs.
    """
    written = query.date_from, query.date_to
    if not any(written):
        return DateFields()
    if not any("T" in text for text in written):
        return DateFields("date", "", *written, *written)
    period = query.period(zone, now)
    for first, last in _picker_spans(*period, zone):
        # Without scripts the form sends these texts, so they must parse to the same period.
        if query.between(first, last).period(zone, now) == period:
            kind = "datetime-local" if "T" in first + last else "date"
            has_seconds = max(len(first), len(last)) > len("2026-01-01T00:00")
            return DateFields(kind, "1" if has_seconds else "", first, last, *written)
    return DateFields("text", "", *written, *written)


def _picker_spans(start: datetime | None, end: datetime | None, zone: tzinfo) -> Iterator[tuple[str, str]]:
    """A period as (first, last) of two pickers, coarsest first. `end` is exclusive, `last` is inclusive."""
    first = local_time(start, zone) if start else None
    lasts = [_before(end, span, zone) if end else None for span in (_INSTANT, _MINUTE, _SECOND)]
    yield first.date().isoformat() if first else "", lasts[0].date().isoformat() if lasts[0] else ""
    for last in lasts[1:]:
        yield _picker_value(first), _picker_value(last)


def _before(end: datetime, span: timedelta, zone: tzinfo) -> datetime:
    return local_time(end - min(span, end - datetime.min.replace(tzinfo=UTC)), zone)


def _picker_value(instant: datetime | None) -> str:
    """The format of browsers: without offset, and without seconds if they are 0."""
    if instant is None:
        return ""
    return instant.replace(tzinfo=None).isoformat(timespec="seconds" if instant.second else "minutes")


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.3f}%" if whole else "0%"


def _bars(query: SearchQuery, histogram: Histogram, split: HistogramSplit | None) -> tuple[PlotBar, ...]:
    labels = [label for label, _ in split.parts] if split else []
    rows = [counts for _, counts in split.parts] if split else []
    columns: list[tuple[int, ...]] = list(zip(*rows, strict=True)) or [()] * len(histogram.bars)
    return tuple(
        PlotBar(
            # With the offset: an hour may occur twice.
            id=f"bar-{bar.first}",
            url=explore_url(query.between(bar.first, bar.last)),
            name=_bar_name(bar, at_least=histogram.at_least) + _parts_name(labels, parts),
            label=bar.label,
            first=bar.first[:16],
            last=bar.last[:16],
            all=number(bar.all, at_least=histogram.at_least),
            now=number(bar.count, at_least=histogram.at_least),
            empty=not bar.all,
            parts=tuple(number(part, at_least=histogram.at_least) for part in parts),
        )
        for bar, parts in zip(histogram.bars, columns, strict=True)
    )


def _parts_name(labels: Sequence[str], parts: Sequence[int]) -> str:
    shown = [f"{label} {part:,}" for label, part in zip(labels, parts, strict=True) if part]
    return f" ({', '.join(shown)})" if shown else ""


def _series(query: SearchQuery, histogram: Histogram, split: HistogramSplit, peak: int) -> tuple[Series, ...]:
    """The series from the bottom up: the largest value first, all others last."""
    free = list(_COLOURS)
    below = [0.0] * len(histogram.bars)
    series = []
    for value, counts in zip(split.values, split.counts, strict=True):
        own = type_family(value.label) if split.key == "type" else ""
        colour = own if own in free else free[0]
        free.remove(colour)
        path = _stacked(histogram.bars, counts, below, peak)
        chosen = query.with_() if value.selected else query.toggle(split.key, value.value)
        shown = number(sum(counts), at_least=histogram.at_least)
        name = f"Filter by {split.key} {value.label}"
        series.append(Series(value.label, explore_url(chosen), name, shown, colour, path))
    if any(split.rest):
        shown = number(sum(split.rest), at_least=histogram.at_least)
        series.append(Series("other", "", "", shown, "other", _stacked(histogram.bars, split.rest, below, peak)))
    return tuple(series)


def _stacked(bars: Sequence[Bar], counts: Sequence[int], below: list[float], peak: int) -> str:
    """The path of one series. `below` is the height of what is under it, to which it is added."""
    gap = (1 - _BAR_SHARE) / 2
    parts = []
    for index, (bar, count) in enumerate(zip(bars, counts, strict=True)):
        if count:
            bottom = 100 - below[index]
            # In the proportion of the whole bar, which has a least height.
            below[index] += _height(bar.count, peak) * count / bar.count
            parts.append(f"M{index + gap:.2f} {bottom:.1f}V{100 - below[index]:.1f}h{_BAR_SHARE}V{bottom:.1f}z")
    return "".join(parts)


def _path(counts: list[int], peak: int) -> str:
    gap = (1 - _BAR_SHARE) / 2
    return "".join(
        f"M{index + gap:.2f} 100V{100 - _height(count, peak):.1f}h{_BAR_SHARE}V100z"
        for index, count in enumerate(counts)
        if count
    )


def _partial_bars(bars: tuple[Bar, ...], peak: int) -> tuple[PartialBar, ...]:
    return tuple(
        PartialBar(
            x=_percent(index + (1 - _BAR_SHARE) / 2, len(bars)),
            width=_percent(_BAR_SHARE, len(bars)),
            y=f"{100 - _height(bar.count, peak):.2f}%",
            height=f"{_height(bar.count, peak):.2f}%",
        )
        for index, bar in enumerate(bars)
        if bar.partial and bar.count
    )


def _height(count: int, peak: int) -> float:
    return max(_MIN_HEIGHT, 100 * count / peak) if count else 0.0


def _bar_name(bar: Bar, *, at_least: bool) -> str:
    """The accessible name of a bar; for a partial bar with the count within the dates."""
    name = f"{bar.label}: {spoken_number(bar.all, at_least=at_least)}"
    return f"{name}, {spoken_number(bar.count, at_least=at_least)} within the dates" if bar.partial else name


def _day(text: str) -> date:
    return date.fromisoformat(text[:10])


def _caption(query: SearchQuery, histogram: Histogram) -> str:
    """Period, interval and peak: "Jan 2018 – Dec 2023, by quarter · peak 20 in Jan–Mar 2019".

    The period is the chosen one; without dates it is that of the bars.
    """
    if not any(bar.all for bar in histogram.bars):
        return "No dates"
    by = f"by {histogram.interval.value}" if histogram.step == 1 else f"by {histogram.step} years"
    chosen = dates_label(query) if query.has_dates else ""
    spread = chosen[:1].upper() + chosen[1:] if chosen else _period(histogram)
    if histogram.peak is None or not histogram.peak.count:
        return f"{spread}, {by} · none within the dates"
    peak = number(histogram.peak.count, at_least=histogram.at_least)
    at = {Interval.HOUR: "at", Interval.DAY: "on"}.get(histogram.interval, "in")
    return f"{spread}, {by} · peak {peak} {at} {histogram.peak.label}"


def _period(histogram: Histogram) -> str:
    """The dates from the first to the last bar with a memory: "Jan 2018 – Dec 2023"; empty without any."""
    filled = [bar for bar in histogram.bars if bar.count] or [bar for bar in histogram.bars if bar.all]
    if not filled:
        return ""
    start, end = _day(filled[0].first), _day(filled[-1].last)
    if histogram.interval == Interval.YEAR:
        return str(start.year) if start.year == end.year else f"{start.year} – {end.year}"
    if histogram.interval in {Interval.QUARTER, Interval.MONTH}:
        texts = [f"{MONTHS[day.month - 1]} {day.year}" for day in (start, end)]
    else:
        texts = [day_text(day) for day in (start, end)]
    return texts[0] if texts[0] == texts[1] else " – ".join(texts)


def _note(histogram: Histogram) -> str:
    if histogram.coarsened_from is None:
        return ""
    wanted = INTERVAL_LABELS[histogram.coarsened_from]
    return f"Too many bars by {wanted}; shown by {INTERVAL_LABELS[histogram.interval]}."


def _ranges(query: SearchQuery, buckets: DateBuckets | None, *, at_least: bool) -> tuple[QuickRange, ...]:
    if buckets is None or not (query.since or buckets.last_year or buckets.older):
        return ()
    links = []
    for since, label, name, attribute in QUICK_RANGES:
        count: int = getattr(buckets, attribute)
        current = query.since == since and not (query.date_from or query.date_to)
        target = query.without("date") if current else query.without("date").with_(since=since)
        shown = number(count, at_least=at_least)
        # The accessible name begins with the visible text, by which people who speak to their computer name it.
        spoken = f"{label} {shown}, {name}" if count else f"{label}, {name}: none"
        links.append(QuickRange(since, label, spoken, shown, explore_url(target), current, not count))
    return tuple(links)


def _chosen_bars(query: SearchQuery, bars: tuple[Bar, ...], zone: tzinfo, now: datetime) -> tuple[int, int] | None:
    """Indexes of the first and last bar that overlap the dates of the query."""
    if not bars:
        return None
    start, end = query.period(zone, now)
    spans = enumerate(pairwise(bar_edges(bars, zone)))
    touched = [i for i, (first, last) in spans if (not start or last > start) and (not end or first < end)]
    return (touched[0], touched[-1]) if touched else None


def _handles(bars: tuple[Bar, ...], chosen: tuple[int, int] | None) -> tuple[Handle, ...]:
    if not bars:
        return ()
    first, last = chosen or (0, len(bars) - 1)
    return (
        Handle("from", "First bar", first, bars[first].label),
        Handle("to", "Last bar", last, bars[last].label),
    )


def _ticks(histogram: Histogram) -> tuple[Tick, ...]:
    """Labels at the bars that begin a larger unit of the calendar, thinned to fit."""
    bars = histogram.bars
    places = [(i, text) for i, bar in enumerate(bars) if (text := _tick_label(bar, histogram.interval, i == 0))]
    step = -(-len(places) // _MAX_TICKS) or 1
    places = places[::step]
    wide = -(-len(places) // _NARROW_TICKS) or 1
    # A label extends to the right of its bar.
    return tuple(
        Tick(_percent(i + is_last, len(bars)), text, n % wide == 0 and i <= 0.88 * len(bars), is_last)
        for n, (i, text) in enumerate(places)
        for is_last in (i > 0.92 * len(bars),)
        if i <= 0.97 * len(bars)
    )


def _tick_label(bar: Bar, interval: Interval, is_first: bool) -> str:
    day = _day(bar.first)
    match interval:
        case Interval.HOUR:
            hour = bar.first[11:16]
            return _short_day(day) if hour == "00:00" else hour if hour in {"06:00", "12:00", "18:00"} else ""
        case Interval.DAY:
            return _short_day(day) if day.weekday() == 0 or (is_first and day.weekday() < 5) else ""
        case Interval.WEEK:
            return _month_or_year(day) if day.day <= 7 else ""
        case Interval.MONTH:
            return _month_or_year(day) if day.month in {1, 4, 7, 10} else ""
        case Interval.QUARTER:
            return str(day.year) if day.month == 1 else ""
    return str(day.year)


def _short_day(day: date) -> str:
    return f"{day.day} {MONTHS[day.month - 1]}"


def _month_or_year(day: date) -> str:
    return str(day.year) if day.month == 1 else MONTHS[day.month - 1]
