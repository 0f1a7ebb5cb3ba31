"""Days, times and time spans in queries: their canonical forms, and the instants that they mean."""

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import available_timezones

from text.formatting import date_text

_SINCE = re.compile(r"([1-9]\d{0,4})(min|[hdwmy])")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SECONDS = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_OFFSET = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$", re.IGNORECASE)
_NOT_DIGITS = re.compile(r"\D")
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


def check_since(value: str) -> str:
    if value and not _SINCE.fullmatch(value):
        raise ValueError("is not a time span: write a number and min, h, d, w, m (months) or y, such as 24h, 7d or 1y")
    if value and since_span(value) > _LONGEST_SPAN:
        raise ValueError("is too long a span: write at most 200y")
    return value


def check_start(value: str) -> str:
    """The canonical form of a start: a span up to now, or a day or time."""
    if is_span(value):
        return check_since(value)
    try:
        return check_date(value)
    except ValueError:
        raise ValueError("is neither a time span nor a date: write 7d, 2026-03-01 or an ISO 8601 time") from None


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
    return now - since_span(value) if is_span(value) else instant(value, zone, end=False)


def start_label(value: str) -> str:
    """A start in words."""
    return span_label(value) if is_span(value) else f"since {date_text(value)}"


def is_span(value: str) -> bool:
    return _SINCE.fullmatch(value) is not None


def _span_parts(since: str) -> tuple[int, str]:
    match = _SINCE.fullmatch(since)
    if match is None:
        raise ValueError(f"{since!r} is not a time span")
    return int(match[1]), match[2]


def instant(value: str, zone: tzinfo, *, end: bool) -> datetime | None:
    """The instant at which a day or time starts or, if `end`, ends. None without a value and beyond the calendar."""
    if not value:
        return None
    try:
        if _DATE.fullmatch(value):
            day = date.fromisoformat(value)
            midnight = datetime.combine(day + timedelta(days=1) if end else day, time(), zone)
            return midnight.astimezone(UTC)
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=zone)
        if end:
            # `to` is inclusive: it covers the whole minute or second.
            moment += timedelta(seconds=1) if _SECONDS.match(value) else timedelta(minutes=1)
        return moment.astimezone(UTC)
    except OverflowError:
        # The last day has no end, and the first no start in some zones: both are as good as no bound.
        return None
