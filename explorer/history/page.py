"""HistoryContext: the history of a memory for its page, texts compared by words. No database and no request."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, tzinfo
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

from access.models import AuditEvent, MemoryChange
from explorer.explore.sparkline import bar_path
from memories.history import FieldChange, History, HistoryEvent
from memories.models import Memory
from memories.recalls import DAYS_KEPT, Recalls
from text.formatting import day_text, moment_label, number, plural

_DOOR_LABELS = {
    AuditEvent.Door.PAGE: "on a page",
    AuditEvent.Door.API: "through the API",
    AuditEvent.Door.MCP: "through MCP",
    AuditEvent.Door.ADMIN: "in the admin",
    AuditEvent.Door.COMMAND: "on the command line",
}
# Comparing takes the product of the numbers of tokens in the worst case: longer texts are compared by lines.
_MOST_TOKENS = 1_500
# Characters of an unchanged part that are shown at each side of a change.
_CONTEXT = 60
_TOKEN = re.compile(r"\s*\S+|\s+$")
_IGNORED = {"updated_at"}
_TEXTS = {"title", "summary", "content", "state_reason"}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text: `same`, `del` or `ins`."""

    how: str
    text: str

    @property
    def html(self) -> SafeString:
        return (
            conditional_escape(self.text) if self.how == "same" else format_html("<{0}>{1}</{0}>", self.how, self.text)
        )


@dataclass(frozen=True, slots=True)
class ShownChange:
    field: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """An event. `restore_url` restores the memory as it was after it."""

    label: str
    kind: str
    date: str
    date_iso: str
    who: str
    note: str
    changes: tuple[ShownChange, ...] = ()
    restore_url: str = ""


@dataclass(frozen=True, slots=True)
class RecalledDay:
    """The recalls of a day."""

    date: str
    date_iso: str
    by_agents: str
    by_people: str


@dataclass(frozen=True, slots=True)
class RecallsContext:
    """How often a memory was recalled, as a sentence, and the days on which it was, the latest first.

    `path` draws a bar for each of the last `slots` days.
    """

    summary: str
    last: str = ""
    last_iso: str = ""
    days: tuple[RecalledDay, ...] = ()
    slots: int = 0
    path: str = ""


@dataclass(frozen=True, slots=True)
class HistoryContext:
    entries: tuple[Entry, ...]
    version: str
    older_url: str
    """The page with the events before these, if there are any."""
    recalls: RecallsContext


def build_history(
    memory: Memory,
    history: History,
    version: str,
    zone: tzinfo,
    *,
    may_write: bool,
    has_newer: bool = False,
    recalls: Recalls,
    today: date,
) -> HistoryContext:
    """The events of a memory, the newest first, with the dates of its record among them.

    `has_newer`: they begin after later events.
    """
    dated = [
        (event.at, _entry(memory.pk, event, zone, may_restore=may_write and (place > 0 or has_newer)))
        for place, event in enumerate(history.events)
    ]
    if not history.next:
        dated += _own_dates(memory, history.events, zone)
    # Stable: events of one time stay in their order.
    dated.sort(key=lambda pair: pair[0], reverse=True)
    page = reverse("explorer:memory", args=[memory.pk])
    older_url = f"{page}?{urlencode({'before': history.next})}#history-title" if history.next else ""
    return HistoryContext(tuple(entry for _, entry in dated), version, older_url, _recalled(recalls, zone, today))


def _recalled(recalls: Recalls, zone: tzinfo, today: date) -> RecallsContext:
    if recalls.last_at is None:
        return RecallsContext("Never recalled.")
    totals = {day.day: day.total for day in recalls.days}
    since = [totals.get(today - timedelta(days=back), 0) for back in reversed(range(DAYS_KEPT))]
    makers = [(count, who) for count, who in ((recalls.by_agents, "agents"), (recalls.by_people, "people")) if count]
    # One number is not said twice.
    by = " and ".join(f"by {who}" if len(makers) == 1 else f"{number(count)} by {who}" for count, who in makers)
    return RecallsContext(
        summary=f"Recalled {plural(recalls.total, 'time')}, {by}",
        last=moment_label(recalls.last_at, zone),
        last_iso=recalls.last_at.isoformat(),
        days=tuple(
            RecalledDay(day_text(day.day), day.day.isoformat(), number(day.by_agents), number(day.by_people))
            for day in recalls.days
        ),
        slots=len(since),
        path=bar_path(since, max(since) or 1),
    )


def _own_dates(memory: Memory, events: Sequence[HistoryEvent], zone: tzinfo) -> Iterator[tuple[datetime, Entry]]:
    """When the memory was created elsewhere, and when it happened."""
    arrival = events[-1].at if events else memory.created_at
    if abs((arrival - memory.created_at).total_seconds()) > 1:
        who = ", ".join(memory.authors[:3])
        yield memory.created_at, _plain_entry("Created", memory.created_at, zone, who)
    if memory.happened_at and memory.happened_at != memory.created_at:
        yield memory.happened_at, _plain_entry("Happened", memory.happened_at, zone)


def _plain_entry(label: str, at: datetime, zone: tzinfo, who: str = "") -> Entry:
    return Entry(label, "", moment_label(at, zone), at.isoformat(), who, "")


def _entry(memory_id: int, event: HistoryEvent, zone: tzinfo, *, may_restore: bool) -> Entry:
    who = " · ".join(part for part in (event.by, _DOOR_LABELS[AuditEvent.Door(event.door)]) if part)
    is_import = event.batch_id is not None and event.kind == MemoryChange.Kind.CREATED
    note = " · ".join(filter(None, (event.reason, f"batch {event.batch_id}" if event.batch_id else "")))
    return Entry(
        label="Imported" if is_import else event.kind.capitalize(),
        kind=event.kind,
        date=moment_label(event.at, zone),
        date_iso=event.at.isoformat(),
        who=who,
        note=note,
        changes=tuple(_shown(change) for change in event.changes if change.field not in _IGNORED),
        restore_url=reverse("explorer:restore_version", args=[memory_id, event.id]) if may_restore else "",
    )


def _shown(change: FieldChange) -> ShownChange:
    return compare(change.field, change.before, change.after)


def compare(field: str, value_before: Any, value_after: Any) -> ShownChange:
    """Two values of a field of a memory, as the parts of one text. Pure."""
    name = field.replace("_", " ")
    if isinstance(value_before, list) and isinstance(value_after, list):
        return ShownChange(name, tuple(_compare_lists(value_before, value_after)))
    before, after = _text(value_before), _text(value_after)
    if field in _TEXTS:
        return ShownChange(name, tuple(_elided(compare_texts(before, after))))
    parts = (Part("del", before), Part("same", " "), Part("ins", after))
    return ShownChange(name, tuple(part for part in parts if part.text))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _compare_lists(before: Sequence[str], after: Sequence[str]) -> Iterator[Part]:
    for how, values, others in (("del", before, after), ("ins", after, before)):
        for value in values:
            if value not in others:
                yield Part(how, value)
                yield Part("same", " ")
    if sorted(before) == sorted(after) and before != after:
        yield Part("same", ", ".join(after))


def compare_texts(before: str, after: str) -> list[Part]:
    """The parts of two texts that are the same, only in the first, and only in the second. Pure."""
    if not before or not after:
        return [Part(how, text) for how, text in (("del", before), ("ins", after)) if text]
    old, new = _TOKEN.findall(before), _TOKEN.findall(after)
    if max(len(old), len(new)) > _MOST_TOKENS:
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    if max(len(old), len(new)) > _MOST_TOKENS:
        return [Part("del", f"{len(before):,} characters"), Part("ins", f"{len(after):,} characters")]
    parts: list[Part] = []
    # A text of few different words would take a second: common words do not begin a match.
    for how, a1, a2, b1, b2 in difflib.SequenceMatcher(None, old, new).get_opcodes():
        if how == "equal":
            parts.append(Part("same", "".join(old[a1:a2])))
            continue
        parts += [Part("del", "".join(old[a1:a2]))] if a2 > a1 else []
        parts += [Part("ins", "".join(new[b1:b2]))] if b2 > b1 else []
    return parts


def _elided(parts: Sequence[Part]) -> Iterable[Part]:
    """The parts, with long ones that did not change shortened."""
    for place, part in enumerate(parts):
        if part.how != "same" or len(part.text) <= 3 * _CONTEXT:
            yield part
            continue
        head = part.text[:_CONTEXT] if place else ""
        tail = part.text[-_CONTEXT:] if place < len(parts) - 1 else ""
        yield Part("same", f"{head} … {tail}")
