"""Days, times and time spans in queries: their canonical forms, and the instants that they mean."""

import re
from bisect import bisect_left
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import available_timezones

from text.formatting import date_text

_SINCE = re.compile(r"([1-9]\d{0,4})(min|[hdwmy])")
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8}
_NUMBERS |= {"nine": 9, "ten": 10, "eleven": 11, "twelve": 12}
_SPAN_WORDS = re.compile(
    r"(?:(?:in|for|within|over) )?(?:the )?(?:(?:last|past|previous) )?"
    rf"(?:(?P<count>\d{{1,5}}|{'|'.join(_NUMBERS)}) ?)?"
    r"(?P<unit>min(?:ute)?s?|h(?:ou)?rs?|days?|weeks?|wks?|fortnights?|months?|quarters?|y(?:ea)?rs?)(?: ago)?"
)
# The unit that a word with this beginning counts, and how many of it.
_UNIT_WORDS = {
    "min": (1, "min"),
    "h": (1, "h"),
    "d": (1, "d"),
    "w": (1, "w"),
    "f": (2, "w"),
    "mo": (1, "m"),
    "q": (3, "m"),
    "y": (1, "y"),
}
_DAYS_AGO = {"today": 0, "yesterday": 1}
_MONTH = re.compile(r"\d{4}-\d\d")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_OFFSET = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d){0,2})$", re.IGNORECASE)
_NOT_DIGITS = re.compile(r"\D")
_INSTANT = timedelta(microseconds=1)
# Before the first the zones have no changes, and from the last on they are the same every year.
_FIRST_CHANGE, _LAST_CHANGE = date(1840, 1, 1), date(2040, 1, 1)
_LONGEST_SPAN = timedelta(days=200 * 366)
_UNITS = {
    "min": ("minutes", timedelta(minutes=1)),
    "h": ("hours", timedelta(hours=1)),
    "d": ("days", timedelta(days=1)),
    "w": ("weeks", timedelta(days=7)),
    "m": ("months", timedelta(days=30)),
    "y": ("years", timedelta(days=365)),
}


def check_date(value: str) -> str:
    """The canonical form of a date or time in any ISO 8601 form, so that each has a single spelling."""
    if not value:
        return value
    try:
        return date.fromisoformat(value).isoformat()
    except ValueError:
        pass
    # An unencoded plus sign arrives as a space.
    written = value.replace(" ", "+")
    try:
        moment = datetime.fromisoformat(written)
    except ValueError:
        raise ValueError("is not a date: write YYYY-MM-DD, or an ISO 8601 time such as 2026-03-01T14:00Z") from None
    digits = len(_NOT_DIGITS.sub("", _OFFSET.sub("", written.partition("T")[2])))
    return moment.isoformat(timespec="microseconds" if moment.microsecond else "seconds" if digits > 4 else "minutes")


def check_start(value: str) -> str:
    """The canonical form of a start: a span up to now, a day in words, or a day or time."""
    words = " ".join(value.lower().split()).removeprefix("since ")
    if words in _DAYS_AGO:
        return words
    if match := _SPAN_WORDS.fullmatch(words):
        count = match["count"] or "1"
        number = int(count) if count.isdigit() else _NUMBERS[count]
        ((times, unit),) = (unit for begin, unit in _UNIT_WORDS.items() if match["unit"].startswith(begin))
        words = f"{number * times}{unit}"
    if is_span(words):
        if since_span(words) > _LONGEST_SPAN:
            raise ValueError("is too long a span: write at most 200y")
        return words
    try:
        return check_date(f"{words}-01" if _MONTH.fullmatch(words) else value)
    except ValueError:
        raise ValueError(
            "is neither a time span nor a date: write a number and min, h, d, w, m (months) or y, such as 24h or 7d;"
            " words such as yesterday, last week or 3 months; or a date such as 2026-03-01"
        ) from None


@lru_cache(maxsize=1)
def zone_names() -> frozenset[str]:
    """The names of time zones, except those whose meaning depends on the machine."""
    return frozenset(available_timezones()) - {"localtime", "posixrules", "Factory"}


def check_zone(value: str) -> str:
    if value and value not in zone_names():
        raise ValueError("is not a time zone: write a name such as Europe/Berlin or UTC")
    return value


def since_span(since: str) -> timedelta:
    """The duration of `24h`, `7d` or `1y`. Raises ValueError."""
    number, unit = _span_parts(since)
    return number * _UNITS[unit][1]


def span_label(since: str) -> str:
    """A span up to now in words."""
    number, unit = _span_parts(since)
    name = _UNITS[unit][0]
    return f"last {name[:-1]}" if number == 1 else f"last {number} {name}"


def start_of(value: str, zone: tzinfo, now: datetime) -> datetime | None:
    """The instant of a start: that long before now, or when the day or time begins. None without one."""
    if is_span(value):
        return now - since_span(value)
    if value in _DAYS_AGO:
        return day_start(local_day(now, zone) - timedelta(days=_DAYS_AGO[value]), zone)
    return instant(value, zone, end=False)


def start_label(value: str) -> str:
    """A start in words."""
    if is_span(value):
        return span_label(value)
    return f"since {value if value in _DAYS_AGO else date_text(value)}"


def is_span(value: str) -> bool:
    return _SINCE.fullmatch(value) is not None


def _span_parts(since: str) -> tuple[int, str]:
    match = _SINCE.fullmatch(since)
    if match is None:
        raise ValueError(f"{since!r} is not a time span")
    return int(match[1]), match[2]


def instant(value: str, zone: tzinfo, *, end: bool) -> datetime | None:
    """The instant at which a day or time starts or, if `end`, ends. None without a value and beyond the calendar.

    A time without an offset that occurs twice, as clocks go back, starts with the first and ends with the second.
    """
    if not value:
        return None
    try:
        if _DATE.fullmatch(value):
            day = date.fromisoformat(value)
            return day_start(day + timedelta(days=1) if end else day, zone)
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            first = last = moment.astimezone(UTC)
        elif not end and (moment.date(), moment.time()) == (date.min, time()):
            return None
        else:
            first, last = _instants_of(moment, zone)
        if not end or last < first:
            return first
        # `to` is inclusive: it covers the whole minute or second.
        return last + (timedelta(seconds=1) if _SECONDS.match(value) else timedelta(minutes=1))
    except OverflowError:
        # The last day has no end, and the first no start in some zones: both are as good as no bound.
        return None


@lru_cache(maxsize=10_000)
def day_start(day: date, zone: tzinfo) -> datetime | None:
    """The first instant of a day in a time zone: days follow each other without gaps, whatever clocks do.

    Clocks that skip midnight begin the day where they skip to, and those that reach it twice at the first. A day that a
    zone skipped begins where the next one does. None for the first day of the calendar, which has no beginning.
    """
    return None if day == date.min else _instants_of(datetime.combine(day, time()), zone)[0]


def _instants_of(local: datetime, zone: tzinfo) -> tuple[datetime, datetime]:
    """The first instant at which clocks show a time or a later one, and the last at which they show it. That is before
    the first if they skip the time.
    """
    first, last = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1))
    if first > last:
        seconds = range(int((first - last).total_seconds()) + 1)
        found = bisect_left(
            seconds, local, key=lambda s: (last + timedelta(seconds=s)).astimezone(zone).replace(tzinfo=None)
        )
        first = last + timedelta(seconds=found)
        last = first - _INSTANT
    return first, last


def local_day(moment: datetime, zone: tzinfo) -> date:
    """The day of a time zone in which an instant lies, as `day_start` begins it; the first or last of the calendar for
    those beyond its ends.
    """
    try:
        day = moment.astimezone(zone).date()
        following = day_start(day + timedelta(days=1), zone)
    except OverflowError:
        return date.min if moment.year == 1 else date.max
    return day if following is None or moment < following else day + timedelta(days=1)


@lru_cache(maxsize=64)
def repeated_evenings(zone: tzinfo) -> tuple[tuple[date, datetime, datetime], ...]:
    """The days that begin twice, since clocks went back over midnight just after it, with both of their midnights. The
    evening between these belongs to the day that has begun already.
    """
    found = []
    for ordinal in range(_FIRST_CHANGE.toordinal(), _LAST_CHANGE.toordinal()):
        midnight = datetime.fromordinal(ordinal).replace(tzinfo=zone)
        first, second = (midnight.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
        if first < second and (second - _INSTANT).astimezone(zone).date() < midnight.date():
            found.append((midnight.date(), first, second))
    return tuple(found)
