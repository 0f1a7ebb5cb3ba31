"""Dates as people and spreadsheets write them, besides ISO 8601. Does not use the database."""

import gettext
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path

import django
from django.utils.dates import MONTHS, MONTHS_3, WEEKDAYS, WEEKDAYS_ABBR

from memories.timestamps import parse_moment
from web.validation import shown

DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
ORDERS = (DAY_FIRST, MONTH_FIRST)
_CATALOGUES = Path(django.__file__).parent / "conf" / "locale"
# The first one counts if two use the same word for different months.
_LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "sv", "nb", "da", "fi", "pl", "cs", "ru", "uk", "tr")
_FURTHER_MONTHS = {"mrz": 3, "maerz": 3, "sept": 9}
# Articles, and what is written after a number.
_FILLERS = frozenset(
    {
        *("a", "al", "am", "at", "d", "da", "de", "del", "den", "der", "do", "e", "el", "eme", "er", "g", "il", "in"),
        *("kl", "la", "las", "le", "nd", "o", "of", "om", "on", "rd", "st", "th", "the", "uhr", "um"),
    }
)
_CLOCK = re.compile(
    r"(?:^|[t,\s]+)(?:(?:at|um|a las|alle|as|om|kl\.?)\s+)?(?P<hour>\d{1,2})(?::|h)(?P<minute>\d{2})"
    r"(?::(?P<second>\d{2})(?P<part>[.,]\d{1,9})?)?\s*(?:uhr)?\s*(?P<half>[ap])?(?:\.?m\.?)?\s*"
    r"(?P<zone>z|(?:utc|gmt)?[+-]\d{2}:?\d{2}|utc|gmt)?\s*(?:\([a-z ]+\))?$"
)
_NUMERIC = re.compile(r"(?P<first>\d{1,4})\s*(?P<between>[./\s-])\s*(?P<second>\d{1,2})\s*[./\s-]\s*(?P<third>\d{1,4})")
_DIGITS = re.compile(
    r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)?"
)
_TOKEN = re.compile(r"\d+|[^\W\d_]+")
_SERIAL = re.compile(r"\d{5}(?:[.,]\d+)?")
_SCIENTIFIC = re.compile(r"\d(?:[.,]\d+)?[eE]\+?\d{1,2}")
_MONTH = re.compile(r"(?P<month>\d{1,2})[./-](?P<year>\d{4})|(?P<iso_year>\d{4})-(?P<iso_month>\d\d)")
# Seconds since 1970 have nine digits or more.
_FRACTION = re.compile(r"[+-]?\d{1,8}\.\d+")
_SERIALS_BEGIN = datetime(1899, 12, 30, tzinfo=UTC)
# Two digits are a year of this century below this one.
_CENTURY = 70
_LONGEST = 60


class AmbiguousDateError(ValueError):
    """A date whose first number may be its day or its month."""


def read_moment(value: object, order: str = "", *, is_cell: bool = False, zone: tzinfo = UTC) -> datetime | None:
    """A point in time from any usual way to write one. `order` tells whether the day or the month is first.

    Without an offset it is one of `zone`. A number in a cell of a table may be the day of a spreadsheet. Raises
    ValueError, and AmbiguousDateError without an order that is needed.
    """
    if not isinstance(value, str):
        return parse_moment(value)
    text = value.strip()
    if is_cell and _SERIAL.fullmatch(text):
        return _SERIALS_BEGIN + timedelta(days=float(text.replace(",", ".")))
    if match := _DIGITS.fullmatch(text):
        return _of_parts(value, zone, *(int(part or 0) for part in match.groups()))
    if len(text) in (16, 19) and text.isdecimal():
        # Microseconds or nanoseconds.
        return parse_moment(int(text[:13]))
    if _SCIENTIFIC.fullmatch(text):
        return parse_moment(int(float(text.replace(",", "."))))
    if match := _MONTH.fullmatch(text):
        year, month = int(match["year"] or match["iso_year"]), int(match["month"] or match["iso_month"])
        return _of_parts(value, zone, year, month, 1)
    if _FRACTION.fullmatch(text):
        raise _no_date(value)
    try:
        return parse_moment(value, zone=zone)
    except ValueError:
        if len(text) > _LONGEST:
            raise
        return _spelled_moment(value, order, zone)


def date_value(value: object, order: str = "", *, is_cell: bool = False) -> object:
    """A date as a record has it: what it understands stays as it is. Raises as `read_moment`."""
    moment = read_moment(value, order, is_cell=is_cell)
    try:
        if moment == parse_moment(value):
            return value
    except ValueError:
        pass
    return moment.isoformat() if moment else ""


@dataclass(slots=True)
class DateOrder:
    """Whether the day or the month is first in dates that are seen together, as in the column of a table."""

    days_first: int = 0
    months_first: int = 0
    unclear: str = ""
    """One that may be both."""

    def see(self, values: Iterable[object]) -> None:
        for value in values:
            if isinstance(value, str) and len(value) <= _LONGEST and (match := _NUMERIC.match(value.strip())):
                self._see(match, value)

    def _see(self, match: re.Match[str], value: str) -> None:
        first, second = int(match["first"]), int(match["second"])
        if len(match["first"]) > 2:
            return
        if first > 12:
            self.days_first += 1
        elif second > 12:
            self.months_first += 1
        elif first != second and match["between"] != ".":
            # Those with dots have the day first unless others show the month there.
            self.unclear = self.unclear or value.strip()

    @property
    def order(self) -> str:
        """The order that they all have; empty if they have none, or do not tell."""
        if self.days_first and self.months_first:
            return ""
        if self.months_first:
            return MONTH_FIRST
        return DAY_FIRST if self.days_first else ""

    @property
    def question(self) -> str:
        """A date that cannot be read unless somebody tells the order; empty if there is none."""
        return self.unclear if not self.order else ""


def _spelled_moment(value: str, order: str, zone: tzinfo) -> datetime:
    text = unicodedata.normalize("NFKC", value).casefold().strip(" \t\"'[]<>")
    text = text.replace("年", "-").replace("月", "-").replace("日", "").replace(" o'clock", "")
    clock = _CLOCK.search(text)
    if clock:
        text = text[: clock.start()]
    text = text.strip(" ,.")
    if match := _NUMERIC.fullmatch(text):
        year, month, day = _numeric_day(match, value, order)
    else:
        year, month, day = _worded_day(text, value)
    return _at_time(_of_parts(value, zone, year, month, day), clock, value)


def _numeric_day(match: re.Match[str], value: str, order: str) -> tuple[int, int, int]:
    first, second, third = int(match["first"]), int(match["second"]), int(match["third"])
    if len(match["first"]) == 4:
        return (first, third, second) if second > 12 else (first, second, third)
    if len(match["first"]) > 2 or len(match["third"]) not in (2, 4):
        raise _no_date(value)
    year = _full_year(match["third"])
    if first > 12 or first == second:
        return year, second, first
    if second > 12:
        return year, first, second
    order = order or (DAY_FIRST if match["between"] == "." else "")
    if not order:
        raise AmbiguousDateError(f"{shown(value)} may have the day or the month first")
    return (year, second, first) if order == DAY_FIRST else (year, first, second)


def _worded_day(text: str, value: str) -> tuple[int, int, int]:
    """A date with the name of its month."""
    names, month, numbers = _month_names(), 0, list[str]()
    for token in _TOKEN.findall(text):
        if token.isdecimal():
            numbers.append(token)
            continue
        word = _plain_word(token)
        if found := names.get(word) or _begun(word):
            if month:
                raise _no_date(value)
            month = found
        elif word not in _FILLERS and word not in _day_names():
            raise _no_date(value)
    if not numbers and not month:
        raise _no_date(value)
    if not month:
        # A year alone is its first day.
        if text.isdecimal() and len(text) == 4 and 1000 <= int(text) <= 2200:
            return int(text), 1, 1
        raise _no_date(value)
    years = [number for number in numbers if len(number) == 4]
    others = [number for number in numbers if len(number) <= 2]
    if len(years) == 1 and len(others) <= 1 and len(numbers) == len(years) + len(others):
        return int(years[0]), month, int(others[0]) if others else 1
    if not years and len(others) == 2 and len(numbers) == 2:
        return _full_year(others[1]), month, int(others[0])
    raise _no_date(value)


def _full_year(digits: str) -> int:
    year = int(digits)
    if len(digits) > 2:
        return year
    return year + (2000 if year < _CENTURY else 1900)


def _of_parts(value: str, zone: tzinfo, *parts: int) -> datetime:
    try:
        return datetime(*parts, tzinfo=zone)  # type: ignore[arg-type,misc]
    except ValueError:
        raise _no_date(value) from None


def _at_time(day: datetime, clock: re.Match[str] | None, value: str) -> datetime:
    if clock is None:
        return day
    hour = int(clock["hour"])
    if clock["half"]:
        hour = hour % 12 + (12 if clock["half"] == "p" else 0)
    second = min(int(clock["second"] or 0), 59)
    offset_text = (clock["zone"] or "").removeprefix("utc").removeprefix("gmt")
    at = UTC if clock["zone"] else day.tzinfo
    if offset_text[:1] in ("+", "-"):
        offset = timedelta(hours=int(offset_text[1:3]), minutes=int(offset_text[-2:]))
        at = timezone(-offset if offset_text[0] == "-" else offset)
    try:
        return day.replace(hour=hour, minute=int(clock["minute"]), second=second, tzinfo=at)
    except ValueError:
        raise _no_date(value) from None


def _no_date(value: str) -> ValueError:
    return ValueError(f"{shown(value)} is not a date")


def _plain_word(word: str) -> str:
    """A word in lower case without accents."""
    return "".join(one for one in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(one))


@cache
def _month_names() -> dict[str, int]:
    """The names of months in some languages, by Django's translations."""
    names: dict[str, int] = {}
    for translated in _translations():
        for number in MONTHS:
            name, short = str(MONTHS[number]), str(MONTHS_3[number])
            for found in (
                translated.gettext(name),
                translated.gettext(short),
                translated.pgettext("alt. month", name),
                name,
                short,
            ):
                names.setdefault(_plain_word(found.rstrip(".")), number)
    return names | _FURTHER_MONTHS


@cache
def _day_names() -> frozenset[str]:
    days = [str(day) for day in (*WEEKDAYS.values(), *WEEKDAYS_ABBR.values())]
    names = [*days, *(translated.gettext(day) for translated in _translations() for day in days)]
    return frozenset(token for name in names for token in _TOKEN.findall(_plain_word(name)))


@cache
def _translations() -> tuple[gettext.NullTranslations, ...]:
    return tuple(gettext.translation("django", _CATALOGUES, [code], fallback=True) for code in _LANGUAGES)


def _begun(word: str) -> int:
    """The month whose names alone begin with a word, such as `janv`."""
    if len(word) < 3:
        return 0
    months = {number for name, number in _month_names().items() if name.startswith(word)}
    return months.pop() if len(months) == 1 else 0
