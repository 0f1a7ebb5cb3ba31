"""Parse points in time: ISO 8601, dates, and numbers of seconds or milliseconds."""

import math
import re
from datetime import UTC, date, datetime, timedelta, tzinfo

from web.validation import kind_of, refuse, shown

# Larger numbers are milliseconds: as seconds this is the year 5138.
MILLISECONDS_FROM = 10**11

_NUMBER = re.compile(r"[+-]?\d{9,}(?:\.\d+)?|[+-]?\d+\.\d+")
# A leap second is stored as the second before.
_LEAP_SECOND = re.compile(r"(?<=[T ])(\d{2}:?59:?)60(?=\D|$)")
# Postgres accepts smaller offsets only.
_FURTHEST_OFFSET = timedelta(hours=16)


def parse_moment(value: object, *, zone: tzinfo = UTC) -> datetime | None:
    """A point in time from ISO 8601, a date, float seconds or integer milliseconds; without an offset in `zone`."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | date):
        raise refuse(f"must be a date, not {kind_of(value)}: write ISO 8601, such as 2026-08-05T14:30:00+02:00")
    if isinstance(value, str):
        text = value.strip()
        # Most dates begin with a year and a dash, and are no numbers.
        if text[4:5] != "-" and _NUMBER.fullmatch(text):
            return _moment_of_number(float(text) if "." in text else int(text), value)
        try:
            moment = datetime.fromisoformat(_LEAP_SECOND.sub(r"\g<1>59", text))
        except ValueError:
            raise refuse(
                f"{shown(value)} is not a date: write ISO 8601, such as 2026-08-05 or 2026-08-05T14:30:00+02:00, "
                "or seconds since 1970"
            ) from None
    elif isinstance(value, datetime):
        moment = value
    elif isinstance(value, date):
        moment = datetime(value.year, value.month, value.day, tzinfo=zone)
    else:
        return _moment_of_number(value, value)
    return _in_range(moment if moment.tzinfo else moment.replace(tzinfo=zone), value)


def _moment_of_number(number: float, value: object) -> datetime:
    if not math.isfinite(number):
        raise refuse(f"{shown(value)} is not a date")
    seconds = number / 1000 if abs(number) >= MILLISECONDS_FROM else number
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        raise refuse(f"{shown(value)} is not a date between the years 1 and 9999") from None
    return _in_range(moment, value)


def _in_range(moment: datetime, value: object) -> datetime:
    if moment.tzinfo is UTC:
        return moment
    try:
        in_utc = moment.astimezone(UTC)
    except OverflowError:
        raise refuse(f"{shown(value)} is not a date between the years 1 and 9999") from None
    return moment if abs(moment.utcoffset() or timedelta()) < _FURTHEST_OFFSET else in_utc
