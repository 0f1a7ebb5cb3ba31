"""Numbers, types, dates and time spans: how they are written for people, and read from queries. Pure."""

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import available_timezones

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

# Types are free text from the sources; the colour shows their family.
_FAMILIES = {
    "fix": {"fix", "bugfix", "bug", "hotfix", "security", "incident", "error", "revert", "problem", "defect"},
    "feature": {"feature", "feat", "improvement", "enhancement", "performance", "perf", "release"},
    "decision": {
        "decision",
        "change",
        "refactor",
        "process",
        "standards",
        "removal",
        "deprecation",
        "policy",
        "design",
    },
    "test": {"test", "tests", "testing", "build", "ci", "benchmark", "experiment"},
}


def legible(text: str, most: int = 60) -> str:
    """The beginning of a user's input without unprintable characters, for error messages."""
    short = text if len(text) <= most else f"{text[:most]}…"
    return "".join(c if c.isprintable() else "\ufffd" for c in short)


@lru_cache(maxsize=1_000)
def type_family(memory_type: str) -> str:
    """The family of a type, for its colour."""
    words = set(memory_type.lower().replace("_", "-").replace(" ", "-").split("-"))
    return next((family for family, names in _FAMILIES.items() if words & names), "note")


def number(count: int, *, at_least: bool = False) -> str:
    """A count, with a plus if it is a lower bound."""
    return f"{count:,}+" if at_least else f"{count:,}"


def spoken_number(count: int, *, at_least: bool = False) -> str:
    """A count for screen readers."""
    return f"at least {count:,}" if at_least else f"{count:,}"


def plural(count: int, one: str, many: str = "", *, at_least: bool = False) -> str:
    return f"{number(count, at_least=at_least)} {one if count == 1 and not at_least else many or one + 's'}"


def memories(count: int, *, at_least: bool = False) -> str:
    return plural(count, "memory", "memories", at_least=at_least)


def ordinal(place: int) -> str:
    ending = "th" if place // 10 % 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place:,}{ending}"


def listed(parts: Sequence[str], word: str = "and") -> str:
    """A list in words: "a, b and c"."""
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}" if len(parts) > 1 else "".join(parts)


def with_article(name: str) -> str:
    return f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"


def local_time(moment: datetime, zone: tzinfo) -> datetime:
    """A time in a zone. Unchanged where the conversion would leave the calendar."""
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment


def day_text(day: date) -> str:
    return f"{day.day} {MONTHS[day.month - 1]} {day.year}"


def day_label(moment: datetime, zone: tzinfo) -> str:
    return day_text(local_time(moment, zone))


def minute_label(moment: datetime, zone: tzinfo) -> str:
    """Day and time, where it is clear that they are those of the reader."""
    local = local_time(moment, zone)
    return f"{day_text(local)}, {local:%H:%M}"


def moment_label(moment: datetime, zone: tzinfo) -> str:
    return f"{minute_label(moment, zone)} {local_time(moment, zone).tzname() or ''}".rstrip()


def when_text(moment: datetime, now: datetime, zone: tzinfo) -> str:
    """A time as people say it: the nearer, the more exactly."""
    local, today = local_time(moment, zone), local_time(now, zone).date()
    days = (today - local.date()).days
    if days in (0, 1):
        return f"{'yesterday' if days else 'today'}, {local:%H:%M}"
    if 1 < days < 7:
        return f"{WEEKDAYS[local.weekday()][:3]}, {local:%H:%M}"
    day = f"{local.day} {MONTHS[local.month - 1]}"
    return day if local.year == today.year else f"{day} {local.year}"


def date_text(text: str) -> str:
    """A date or time from a URL, for people."""
    day = f"{int(text[8:10])} {MONTHS[int(text[5:7]) - 1]} {text[:4]}"
    return f"{day}, {text[11:16]}" if len(text) > 10 else day


def verb_text(name: str) -> str:
    """The type of a link or a relationship, in words."""
    return name.replace("_", " ").replace("-", " ")


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


# Pieces of a text as tokenizers split it: words, numbers, spaces, punctuation, other characters.
_PIECES = re.compile(r"([A-Za-z]+)|([0-9]+)|([ \t]+)|(\s+)|([!-/:-@\[-`{-~]+)|(.)", re.DOTALL)
_WORD, _NUMBER, _MARKS = 7, 3, 2
# Short words and unusual names take more tokens than their lengths suggest.
_MARGIN = 1.12


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too high than too low."""
    return math.ceil(_MARGIN * sum(_cost(*match.groups()) for match in _PIECES.finditer(text)))


def _cost(word: str, number: str, blank: str, line: str, marks: str, other: str) -> int:
    if word:
        return -(-len(word) // _WORD)
    if number:
        return -(-len(number) // _NUMBER)
    if marks:
        return -(-len(marks) // _MARKS)
    # A single space belongs to the word after it.
    return 0 if blank == " " else 1
