"""Formats of numbers, dates and types for people. Pure."""

from collections.abc import Sequence
from datetime import date, datetime, tzinfo
from functools import lru_cache

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
