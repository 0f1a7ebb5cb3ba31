"""The history of a memory for its page, texts compared by words."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

from access.models import AuditEvent, MemoryChange
from access.viewer import Viewer
from explorer.explore.sparkline import bar_path
from explorer.reads.page import ReadersPart, read_readers
from memories.history import FieldChange, HistoryEvent, history_of
from memories.models import Memory
from memories.queries import memory_version
from memories.recalls import DAYS_KEPT, Recalls, recalls_of
from text.formatting import number, plural

EVENTS_SHOWN = 20
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
    """An event, or a date of the record. `restores` is the id of the event whose version can be restored."""

    label: str
    at: datetime
    who: str = ""
    note: str = ""
    changes: tuple[ShownChange, ...] = ()
    restores: str = ""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """The history of a memory, how often it was recalled, and by whom it was read as far as the viewer may know."""

    memory_id: int
    version: str
    zone: tzinfo
    entries: tuple[Entry, ...]
    recalls: Recalls
    readers: ReadersPart
    next: str
    """The event before which further ones are, if there are any."""

    @property
    def recalls_text(self) -> str:
        recalls = self.recalls
        if recalls.last_at is None:
            return "Never recalled."
        makers = [(n, who) for n, who in ((recalls.by_agents, "agents"), (recalls.by_people, "people")) if n]
        # One number is not said twice.
        by = " and ".join(f"by {who}" if len(makers) == 1 else f"{number(count)} by {who}" for count, who in makers)
        return f"Recalled {plural(recalls.total, 'time')}, {by}"

    @property
    def bars(self) -> tuple[int, str]:
        """The number of the last days, and the path of a bar for each."""
        today, totals = datetime.now(UTC).date(), {day.day: day.total for day in self.recalls.days}
        since = [totals.get(today - timedelta(days=back), 0) for back in reversed(range(DAYS_KEPT))]
        return len(since), bar_path(since, max(since) or 1)


def read_history(memory: Memory, viewer: Viewer, limit: int = EVENTS_SHOWN, before: str = "") -> HistoryPage:
    """The events of a memory that the viewer sees, before one of them if that is named, the newest first, with the
    dates of its record among them.
    """
    history = history_of(memory, viewer, limit=limit, before=before)
    may_write = viewer.may_write(memory.project_id)
    entries = [
        _entry(event, may_restore=may_write and (place > 0 or bool(before)))
        for place, event in enumerate(history.events)
    ]
    if not history.next:
        entries += _own_dates(memory, history.events)
    # Stable: events of one time stay in their order.
    entries.sort(key=lambda entry: entry.at, reverse=True)
    return HistoryPage(
        memory_id=memory.pk,
        version=memory_version(memory),
        zone=viewer.timezone,
        entries=tuple(entries),
        recalls=recalls_of(viewer, memory.pk),
        readers=read_readers(viewer, memory.pk),
        next=history.next,
    )


def _own_dates(memory: Memory, events: Sequence[HistoryEvent]) -> Iterator[Entry]:
    """When the memory was created elsewhere, and when it happened."""
    arrival = events[-1].at if events else memory.created_at
    if abs((arrival - memory.created_at).total_seconds()) > 1:
        yield Entry("Created", memory.created_at, ", ".join(memory.authors[:3]))
    if memory.happened_at and memory.happened_at != memory.created_at:
        yield Entry("Happened", memory.happened_at)


def _entry(event: HistoryEvent, *, may_restore: bool) -> Entry:
    is_import = event.batch_id is not None and event.kind == MemoryChange.Kind.CREATED
    return Entry(
        label="Imported" if is_import else event.kind.capitalize(),
        at=event.at,
        who=" · ".join(part for part in (event.by, _DOOR_LABELS[AuditEvent.Door(event.door)]) if part),
        note=" · ".join(filter(None, (event.reason, f"batch {event.batch_id}" if event.batch_id else ""))),
        changes=tuple(_shown(change) for change in event.changes if change.field not in _IGNORED),
        restores=event.id if may_restore else "",
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
