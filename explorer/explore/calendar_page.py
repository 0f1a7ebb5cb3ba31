"""The page of a calendar: a column per week, a row per weekday, each day a link to its memories. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from pydantic import Field

from explorer.compare.matrix_page import MatrixCell, MatrixRow, count_shade
from explorer.explore.page import Notice, did_you_mean_text
from explorer.explore.sidebar import Chip, build_chips
from explorer.links import Link, calendar_url, explore_url, matrix_url
from explorer.page_query import PageQuery
from search.calendar_days import CalendarDays
from search.facets import DATE_KEY
from search.histogram import bucket_end
from search.query import Interval
from text.formatting import MONTHS, day_text, memories, number, plural
from web.params import Params

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_SHADES = 5
# Years that are listed, and in the table of months, the newest first; each has some thirty nodes.
_YEARS = 12


class CalendarRequest(Params):
    """The year of a calendar."""

    year: int = Field(0, ge=0, le=9999, description="The year; by default the last one of the query.")


@dataclass(frozen=True, slots=True)
class CalendarDay:
    """A cell. Days of other years are `outside`, those to come `ahead`; days without memories have no URL."""

    name: str = ""
    url: str = ""
    shade: str = "outside"


@dataclass(frozen=True, slots=True)
class WeekdayRow:
    label: str
    days: tuple[CalendarDay, ...]
    count: str


@dataclass(frozen=True, slots=True)
class MonthHeading:
    label: str
    name: str
    weeks: int
    url: str


@dataclass(frozen=True, slots=True)
class CalendarContext:
    title: str
    heading: str
    summary: str
    busiest: Link | None
    results_url: str
    chips: tuple[Chip, ...]
    notices: tuple[Notice, ...]
    years: tuple[Link, ...]
    earlier: tuple[Link, ...]
    """The years before those."""
    months: tuple[MonthHeading, ...]
    rows: tuple[WeekdayRow, ...]
    month_names: tuple[str, ...]
    by_month: tuple[MatrixRow, ...]
    """The months of the newest years, if there are several."""
    in_numbers: Link | None
    unavailable: str


def build_calendar(query: PageQuery, found: CalendarDays, problems: Sequence[Notice] = ()) -> CalendarContext:
    """The context of the page."""
    here = sum(found.days.values())
    shown = memories(here, at_least=found.at_least)
    warnings = (Notice(w.message, suggestion=did_you_mean_text(w.did_you_mean)) for w in found.warnings)
    peak = max(found.days, key=lambda day: (found.days[day], day), default=None)
    first, last = f"{found.year:04}-01-01", f"{found.year:04}-12-31"
    years = tuple(
        Link(str(year), calendar_url(query, year), count=number(count), current=year == found.year)
        for year, count in reversed(found.years)
    )
    return CalendarContext(
        title=f"Calendar {found.year or ''}".strip(),
        heading=f"Calendar of {found.year}" if found.year else "Calendar",
        summary=f"{shown} on {plural(len(found.days), 'day')}" if found.year else "No memory matches",
        busiest=_day_link(found, peak) if peak else None,
        results_url=explore_url(query),
        chips=build_chips(query, found.labels),
        notices=(*problems, *warnings),
        years=years[:_YEARS],
        earlier=years[_YEARS:],
        months=tuple(_months(found)) if found.year else (),
        rows=_rows(found) if found.year else (),
        month_names=tuple(MONTHS),
        by_month=_by_month(found) if len(found.years) > 1 else (),
        in_numbers=Link(
            "In numbers, by month and type",
            matrix_url(found.base.between(first, last).with_(bucket="month"), {"rows": "type", "columns": DATE_KEY}),
        )
        if found.days
        else None,
        unavailable=found.unavailable,
    )


def _day_link(found: CalendarDays, day: date) -> Link:
    url = explore_url(found.base.between(day.isoformat(), day.isoformat()))
    return Link(f"{day_text(day)}, {memories(found.days[day], at_least=found.at_least)}", url)


def _first_monday(year: int) -> int:
    """The ordinal of the Monday of the week of 1 January."""
    start = date(year, 1, 1)
    return start.toordinal() - start.weekday()


def _weeks(year: int) -> int:
    return (date(year, 12, 31).toordinal() - _first_monday(year)) // 7 + 1


def _rows(found: CalendarDays) -> tuple[WeekdayRow, ...]:
    peak = max(found.days.values(), default=0)
    begin, weeks = _first_monday(found.year), _weeks(found.year)
    rows = []
    for weekday, label in enumerate(WEEKDAYS):
        ordinals = [begin + 7 * week + weekday for week in range(weeks)]
        cells = tuple(_cell(found, ordinal, peak) for ordinal in ordinals)
        count = sum(count for day, count in found.days.items() if day.weekday() == weekday)
        rows.append(WeekdayRow(label, cells, number(count, at_least=found.at_least)))
    return tuple(rows)


def _cell(found: CalendarDays, ordinal: int, peak: int) -> CalendarDay:
    if not 1 <= ordinal <= date.max.toordinal() or (day := date.fromordinal(ordinal)).year != found.year:
        return CalendarDay()
    count = found.days.get(day, 0)
    if not count:
        return CalendarDay(shade="today" if day == found.today else "ahead" if day > found.today else "")
    shade = f"d{day_shade(count, peak)}" + (" today" if day == found.today else "")
    name = f"{WEEKDAYS[day.weekday()]}, {day_text(day)}: {number(count, at_least=found.at_least)}"
    return CalendarDay(name, explore_url(found.base.between(day.isoformat(), day.isoformat())), shade)


def day_shade(count: int, peak: int) -> int:
    """The shade of a day from 1 to 5, by the logarithm: one busy day must not make all others look the same."""
    return 1 + round((_SHADES - 1) * math.log(count) / math.log(peak)) if peak > 1 else _SHADES


def _months(found: CalendarDays) -> list[MonthHeading]:
    """The months above the weeks that their first days are in."""
    year, begin = found.year, _first_monday(found.year)
    starts = [date(year, month, 1) for month in range(1, 13)]
    columns = [(start.toordinal() - begin) // 7 for start in starts]
    headings = []
    for n, (start, column) in enumerate(zip(starts, columns, strict=True)):
        following = columns[n + 1] if n < 11 else _weeks(year)
        last = (starts[n + 1] - timedelta(days=1)) if n < 11 else date(year, 12, 31)
        count = sum(count for day, count in found.days.items() if day.month == start.month)
        label = MONTHS[n]
        url = explore_url(found.base.between(start.isoformat(), last.isoformat())) if count else ""
        name = f"{label} {year}: {number(count, at_least=found.at_least)}"
        headings.append(MonthHeading(label, name, following - column, url))
    return headings


def _by_month(found: CalendarDays) -> tuple[MatrixRow, ...]:
    years = found.years[-_YEARS:]
    peak = max(count for (year, _), count in found.months.items() if year >= years[0][0])
    rows = []
    for year, in_year in reversed(years):
        cells = []
        for month, label in enumerate(MONTHS, 1):
            count = found.months.get((year, month), 0)
            first = date(year, month, 1)
            last = bucket_end(first, Interval.MONTH)
            url = explore_url(found.base.between(first.isoformat(), last.isoformat())) if count else ""
            shown = number(count, at_least=found.at_least) if count else ""
            cells.append(MatrixCell(url, shown, f"{label} {year}: {shown or 0}", count_shade(count, peak)))
        shown = number(in_year, at_least=found.at_least)
        rows.append(MatrixRow(str(year), calendar_url(found.query, year), shown, tuple(cells)))
    return tuple(rows)
