"""The context of the home page besides the overview itself. Pure: no database, no request."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from functools import partial

from django.urls import reverse

from curation.suggestions.pages import review_url
from curation.suggestions.params import ReviewQuery
from explorer.explore.histogram_plot import Plot, build_plot
from explorer.links import Link, explore_url, filter_url
from explorer.listings import SessionsRequest
from explorer.sessions.page import build_sessions, sessions_url
from explorer.views.page import new_link
from home.news import Arrivals
from home.overview import FIRST_SPAN, STRIP_WEEKS, Overview, Slice, strip_start
from search.histogram import bucket_end
from search.query import Interval
from text.formatting import (
    MONTHS,
    WEEKDAYS,
    day_text,
    local_time,
    memories,
    moment_label,
    plural,
    type_family,
    when_text,
)

_WEEK = timedelta(days=6)
_SPANS = (("24h", "24 hours"), ("7d", "7 days"), ("30d", "30 days"))
# One each, for the largest types; a type has the colour of its family if no larger one has it.
_COLOURS = ("decision", "fix", "feature", "test", "note")
_GAP = 0.07
_SHADES = 5


@dataclass(frozen=True, slots=True)
class Series:
    """The columns of one type, as an SVG path, and its key."""

    colour: str
    path: str
    key: Link


@dataclass(frozen=True, slots=True)
class DayStrip:
    """The days of the last year as squares, a column per week: a path for each shade, from 0 for empty days to 5."""

    width: int
    paths: tuple[tuple[int, str], ...]
    months: tuple[tuple[str, Link], ...]
    """Places in percent, and links to the memories of the month that begins there."""
    days: str
    busiest: Link


@dataclass(frozen=True, slots=True)
class Growth:
    """Memories over time by type, as stacked columns with a table."""

    plot: Plot
    series: tuple[Series, ...]
    scale: tuple[tuple[str, str], ...]
    """Round numbers up to the largest: how far down they are, in percent, and how they are written."""
    headings: tuple[str, ...]
    rows: tuple[tuple[Link, tuple[str, ...]], ...]


def home_context(
    found: Overview, *, asked: str, last_visit: datetime | None, now: datetime, zone: tzinfo
) -> dict[str, object]:
    """The context of the template. `asked` is the span or time that the reader chose; without one it begins at the last
    visit.
    """
    rows = build_sessions(found.sessions, SessionsRequest(), zone).rows
    return {
        "found": found,
        "arrivals": _arrivals_text(found.arrivals, now, zone),
        "since": _span_text(span) if (span := span_of(asked, last_visit)) else _since_text(found.first, now, zone),
        "last_visit": _moment_text(last_visit, zone) if last_visit else "",
        "spans": _spans(asked, last_visit),
        "growth": _growth(found, zone, now),
        "strip": _strip(found, local_time(now, zone).date()) if found.days else None,
        "questions": [
            (review_url(ReviewQuery.from_mapping({"kind": kind})), label, count)
            for kind, label, count in found.questions[:6]
        ],
        "new_link": new_link,
        "sessions": [(row, one.session.begun_at) for one, row in zip(found.sessions.rows, rows, strict=True)],
        "all_sessions_url": sessions_url(),
        "spark": _spark,
        "when": partial(when_text, now=now, zone=zone),
        "moment": partial(moment_label, zone=zone),
        "filter_url": filter_url,
        "type_family": type_family,
    }


def _link(found: Slice) -> Link:
    return Link(found.label, found.url, count=found.shown)


def span_of(asked: str, last_visit: datetime | None) -> str:
    """The offered span that the page shows changes of; empty for another one, or since the last visit."""
    since = asked or ("" if last_visit else FIRST_SPAN)
    return since if since in dict(_SPANS) else ""


def _spans(asked: str, last_visit: datetime | None) -> tuple[Link, ...]:
    home = reverse("home")
    links = [Link("Since your last visit", home, current=not asked)] if last_visit else []
    for since, label in _SPANS:
        current = since == span_of(asked, last_visit)
        links.append(Link(label, f"{home}?since={since}", f"Changes of the last {label}", current=current))
    return tuple(links)


def _spark(months: Sequence[int]) -> str:
    """The columns of a project's months, as an SVG path."""
    peak = max(months, default=0)
    return "".join(
        f"M{place * 4.2:.1f} 24V{24 - max(2.0, 22 * count / peak):.1f}h3V24z"
        for place, count in enumerate(months)
        if count
    )


def _growth(found: Overview, zone: tzinfo, now: datetime) -> Growth:
    plot = build_plot(found.corpus.query, found.growth, None, zone, now)
    bars = found.growth.bars
    peak = max((bar.all for bar in bars), default=0)
    colours = _colours([part.label for part, _ in found.types])
    counts = [[series.get(bar.first, 0) for bar in bars] for _, series in found.types]
    rest = [bar.all - sum(column[place] for column in counts) for place, bar in enumerate(bars)]
    columns = [(colour, part, column) for colour, (part, _), column in zip(colours, found.types, counts, strict=True)]
    if any(rest):
        others = found.corpus.query.with_(not_type=tuple(sorted(part.query.type[0] for part, _ in found.types)))
        columns.append(("other", Slice("others", sum(rest), others, found.corpus.at_least), rest))
    floors = [0] * len(bars)
    series = []
    for colour, part, column in columns:
        path = "".join(
            f"M{place + _GAP:.2f} {_height(floor, peak)}V{_height(floor + count, peak)}"
            f"h{1 - 2 * _GAP:.2f}V{_height(floor, peak)}z"
            for place, (floor, count) in enumerate(zip(floors, column, strict=True))
            if count
        )
        floors = [floor + count for floor, count in zip(floors, column, strict=True)]
        series.append(Series(colour, path, _link(part)))
    rows = tuple(
        (
            Link(bar.label, plot_bar.url, count=plot_bar.all),
            tuple(f"{column[place]:,}" for _, _, column in columns),
        )
        for place, (bar, plot_bar) in enumerate(zip(bars, plot.bars, strict=True))
        if bar.all
    )
    scale = tuple((f"{_height(value, peak)}%", f"{value:,}") for value in _round_values(peak))
    return Growth(plot, tuple(series), scale, tuple(part.label for _, part, _ in columns), rows)


def _strip(found: Overview, today: date) -> DayStrip:
    """Squares of 10 every 12 units, up to today."""
    query, first, peak = found.corpus.query, strip_start(today), max(found.days.values())
    days = [first + timedelta(days=n) for n in range((today - first).days + 1)]
    squares: dict[int, list[str]] = {}
    for n, day in enumerate(days):
        count = found.days.get(day, 0)
        square = f"M{n // 7 * 12} {n % 7 * 12}h10v10h-10z"
        squares.setdefault(_day_shade(count, peak) if count else 0, []).append(square)
    busiest = max(found.days, key=lambda day: (found.days[day], day))
    url = explore_url(query.between(busiest.isoformat(), busiest.isoformat()))
    return DayStrip(
        width=12 * STRIP_WEEKS - 2,
        paths=tuple((shade, "".join(parts)) for shade, parts in sorted(squares.items())),
        months=tuple(_strip_months(found, days)),
        days=plural(len(found.days), "day"),
        busiest=Link(f"{day_text(busiest)}, {memories(found.days[busiest])}", url),
    )


def _day_shade(count: int, peak: int) -> int:
    """The shade of a day from 1 to 5, by the logarithm: one busy day must not make all others look the same."""
    return 1 + round((_SHADES - 1) * math.log(count) / math.log(peak)) if peak > 1 else _SHADES


def _strip_months(found: Overview, days: Sequence[date]) -> Iterator[tuple[str, Link]]:
    """The months that begin within the days, but for one that hardly has begun."""
    for n, day in enumerate(days):
        if day.day != 1 or n // 7 > STRIP_WEEKS - 3:
            continue
        last = bucket_end(day, Interval.MONTH)
        name = MONTHS[day.month - 1]
        count = sum(number for other, number in found.days.items() if day <= other <= last)
        url = explore_url(found.corpus.query.between(day.isoformat(), last.isoformat()))
        label = f"{name} {day.year}: {memories(count)}"
        # A week whose first days are of the month before is that month's.
        yield f"{100 * -(-n // 7) / STRIP_WEEKS:.2f}%", Link(name, url, label)


def _round_values(peak: int) -> range:
    """Multiples of 1, 2 or 5 times a power of ten up to `peak`: from two to four, or one of a peak of one."""
    steps = (times * 10**power for power in range(len(str(peak))) for times in (1, 2, 5))
    step = next(step for step in steps if peak < 5 * step)
    return range(step, peak + 1, step)


def _height(count: int, peak: int) -> str:
    return f"{100 - 100 * count / peak:.1f}" if peak else "100"


def _colours(types: Sequence[str]) -> list[str]:
    # The largest type of a family has its colour, as everywhere; the others take what is left.
    first: dict[str, str] = {}
    for name in types:
        if (family := type_family(name)) in _COLOURS:
            first.setdefault(family, name)
    free = [colour for colour in _COLOURS if colour not in first]
    own = {name: family for family, name in first.items()}
    return [own.get(name) or (free.pop(0) if free else "other") for name in types]


# --- times -------------------------------------------------------------------------------------------------------


def _arrivals_text(arrivals: Arrivals, now: datetime, zone: tzinfo) -> tuple[str, str]:
    """Whether all of it came today, and the dates that it carries, in words; both may be empty."""
    if not (arrivals.first and arrivals.last and arrivals.since):
        return "", ""
    today, first, last = (local_time(at, zone).date() for at in (now, arrivals.first, arrivals.last))
    came = "today" if local_time(arrivals.since, zone).date() == today else ""
    if first == last:
        return came, "" if last == today else f", dated {day_text(last)}"
    begin, end = (f"{MONTHS[day.month - 1]} {day.year}" for day in (first, last))
    return came, f", dated {begin}" + (f" to {end}" if begin != end else "")


def _since_text(moment: datetime, now: datetime, zone: tzinfo) -> str:
    local, today = local_time(moment, zone), local_time(now, zone).date()
    days = (today - local.date()).days
    if days <= 0:
        return f"since {local:%H:%M}"
    if days == 1:
        return "since yesterday"
    if days <= _WEEK.days:
        return f"since {WEEKDAYS[local.weekday()]}"
    return f"since {local.day} {MONTHS[local.month - 1]}" + ("" if local.year == today.year else f" {local.year}")


def _span_text(since: str) -> str:
    return f"in the last {dict(_SPANS)[since]}"


def _moment_text(moment: datetime, zone: tzinfo) -> str:
    local = local_time(moment, zone)
    return f"on {WEEKDAYS[local.weekday()]} {local.day} {MONTHS[local.month - 1]} at {local:%H:%M}"
