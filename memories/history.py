"""The history of a memory: who changed what, when and through which interface, with the values before and after.

Changes of single memories are events of the audit trail. Changes of many at once are in the journal of curation, which
a layer above adds through `history_source_register`.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from django.db.models import BooleanField, ExpressionWrapper, Q

from access.models import AuditEvent, MemoryChange
from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.models import MadeBy
from categories.services import tags_written
from memories.changes import kind_of_values
from memories.models import Memory, Project, Session
from memories.queries import MemoryTitle, memory_details, titles_of, visible_to
from memories.refusals import EventNotFoundError
from web.errors import Refusal

MOST_EVENTS = 10_000
# Events whose values are read at once.
_BLOCK = 50
# The verbs of the first event of a memory.
_ARRIVALS = ("create", "import")
# The event of a memory whose arrival the audit trail does not have by itself, such as that of an imported one.
FIRST = "first"
# Columns that describe a record's arrival, not its content.
_NOT_SHOWN = {"raw", "record_hash", "batch_id", "trust"}
_NOT_RESTORED = {*_NOT_SHOWN, "id", "updated_at"}
_HUMAN = MadeBy.HUMAN.value
_BY_PLURAL = {kind.plural: kind for kind in VOCABULARIES.values()}


@dataclass(frozen=True, slots=True)
class LinkChange:
    """Terms of a kind that a memory lost and got."""

    removed: tuple[int, ...] = ()
    added: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field before and after: texts, numbers, or lists of names.

    `is_partial`: the lists have only the terms that the memory lost and got.
    """

    field: str
    before: Any
    after: Any
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class HistoryEvent:
    """A change of a memory. `kind` is that of the feed of changes."""

    id: str
    at: datetime
    kind: str
    by: str
    door: str
    reason: str = ""
    batch_id: int | None = None
    curation_id: int | None = None
    before: Mapping[str, Any] = field(default_factory=dict)
    """The values as they are stored."""
    after: Mapping[str, Any] = field(default_factory=dict)
    links: Mapping[str, LinkChange] = field(default_factory=dict)
    """The changes to links, if it concerned many memories."""
    changes: tuple[FieldChange, ...] = ()
    """The values for people."""


class HistorySource(Protocol):
    """Changes of many memories at once, and what became of terms that no longer exist."""

    def events(self, memory_id: int, viewer: Viewer) -> Sequence[HistoryEvent]:
        """The changes that concerned a memory."""

    def present_ids(self, kind: str, ids: Collection[int]) -> dict[int, int]:
        """Each id with that of the term that took its place; its own if it exists, 0 if nothing did."""

    def former_names(self, kind: str, ids: Collection[int]) -> dict[int, str]:
        """The names that terms had which no longer exist."""


_sources: list[HistorySource] = []


def history_source_register(source: HistorySource) -> None:
    """Add a source. Called once, when the app of the source is ready."""
    _sources.append(source)


@dataclass(frozen=True, slots=True)
class History:
    """Changes of a memory, the newest first. `next` is the event before which further ones are, if there are more."""

    memory_id: int
    events: tuple[HistoryEvent, ...]
    next: str = ""


def memory_history(viewer: Viewer, memory_id: int, *, before: str = "", limit: int = 50) -> History | None:
    """The history of a memory; None if the viewer may not open it. Raises EventNotFoundError for `before`."""
    memory = visible_to(viewer).filter(pk=memory_id).select_related("batch").defer("content", "terms", "raw").first()
    return None if memory is None else history_of(memory, viewer, before=before, limit=limit)


def history_of(memory: Memory, viewer: Viewer, *, before: str = "", limit: int = 50) -> History:
    """The history of a memory that the viewer may open. Raises EventNotFoundError for `before`."""
    events = _events_of(memory, viewer, with_values=0 if before else min(limit, _BLOCK))
    begin = _place_of(before, memory.pk, events) + 1 if before else 0
    page = list(_with_values(events[begin : begin + limit]))
    names = _Names.of(page, viewer)
    has_more = len(events) > begin + limit
    return History(memory.pk, tuple(_shown(event, names) for event in page), page[-1].id if page and has_more else "")


def values_at(memory: Memory, event_id: str, links: Mapping[str, Any], viewer: Viewer) -> dict[str, Any]:
    """The fields of a memory that may differ from what they were after an event, with their values then.

    `links` are its links now, as events have them. Terms that no longer exist are replaced by those that took their
    place. Raises EventNotFoundError, and TermGoneError if nothing did.
    """
    events = _events_of(memory, viewer)
    values: dict[str, Any] = {}
    for event in _with_values(events[: _place_of(event_id, memory.pk, events)]):
        values |= {name: value for name, value in event.before.items() if name not in _NOT_RESTORED}
        for plural, change in event.links.items():
            refs = [ref for ref in values.get(plural, links[plural]) if ref[0] not in change.added]
            values[plural] = [*refs, *([term_id, _HUMAN, 1.0] for term_id in change.removed)]
    for plural, kind in _BY_PLURAL.items():
        if plural in values:
            values[plural] = _present_refs(kind.name, values[plural])
    if "tags" in values:
        values["tags"] = list(tags_written(values["tags"], memory.project_id, viewer))
    return values


def value_changes(memory_id: int, name: str, viewer: Viewer) -> list[tuple[Any, Any]]:
    """The values of a field before and after each event that changed it, the last first."""
    memory = Memory.objects.select_related("batch").defer("content", "terms", "raw").get(pk=memory_id)
    events = _with_values(_events_of(memory, viewer))
    return [(event.before[name], event.after.get(name)) for event in events if name in event.before]


def value_before(memory_id: int, name: str, now: Any, viewer: Viewer) -> Any:
    """The value of a field before the last event that gave it its present value; None without such an event."""
    return next((before for before, after in value_changes(memory_id, name, viewer) if after == now), None)


@dataclass(frozen=True, slots=True)
class Superseded:
    """A memory that another one replaces. `instead_of` replaced it until then, `former` at any time."""

    memory: MemoryTitle
    instead_of: int | None
    former: frozenset[int]


def superseded_by(memory_id: int, viewer: Viewer) -> tuple[Superseded, ...]:
    """The memories that a memory replaces now, for a viewer who may read it."""
    detail = memory_details(viewer, [memory_id]).get(memory_id) if "read" in viewer.scopes else None
    found = []
    for title in detail.supersedes if detail else ():
        changes = value_changes(title.id, "superseded_by_id", viewer)
        instead_of = next((before for before, after in changes if after == memory_id), None)
        former = frozenset(before for before, _ in changes if before not in {None, memory_id})
        found.append(Superseded(title, instead_of, former))
    return tuple(found)


def rivals_of(superseded: Sequence[Superseded], viewer: Viewer) -> list[MemoryTitle]:
    """The memories that replaced the same ones before and are still active."""
    former = {pk for one in superseded for pk in one.former}
    still = (Memory.State.ACTIVE, Memory.State.PROPOSED)
    return titles_of(visible_to(viewer).filter(pk__in=former, state__in=still).order_by("id")) if former else []


class TermGoneError(Refusal):
    """A version cannot be restored, because a term of the memory was deleted since."""

    status = 409
    code = "cannot_restore"

    def __init__(self, kind: str, name: str) -> None:
        self.suggestion = f"Make the {kind} again, or change the fields by PATCH."
        super().__init__(f"At that time the memory had the {kind} {name}, which no longer exists.")


def _present_refs(kind: str, refs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Links to the terms that exist now, each once."""
    ids = [ref[0] for ref in refs]
    present = _present_ids(kind, ids)
    if gone := [term_id for term_id in ids if not present[term_id]]:
        raise TermGoneError(kind, _former_names(kind, gone).get(gone[0], f"#{gone[0]}"))
    found: dict[int, list[Any]] = {}
    for ref in refs:
        found.setdefault(present[ref[0]], [present[ref[0]], *ref[1:]])
    return [found[term_id] for term_id in sorted(found)]


def _present_ids(kind: str, ids: Collection[int]) -> dict[int, int]:
    existing = set(VOCABULARIES[kind].model._default_manager.filter(pk__in=ids).values_list("pk", flat=True))
    present = {term_id: term_id if term_id in existing else 0 for term_id in ids}
    for source in _sources:
        if gone := [term_id for term_id in ids if not present[term_id]]:
            present |= source.present_ids(kind, gone)
    return present


def _former_names(kind: str, ids: Collection[int]) -> dict[int, str]:
    names: dict[int, str] = {}
    for source in _sources if ids else ():
        names |= source.former_names(kind, ids)
    return names


# --- events -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoredEvent:
    """The place of an event of the audit trail, whose values may be long texts."""

    pk: int
    at: datetime

    @property
    def id(self) -> str:
        return str(self.pk)


_Event = HistoryEvent | _StoredEvent


def _events_of(memory: Memory, viewer: Viewer, *, with_values: int = _BLOCK) -> list[_Event]:
    """All changes of a memory, the newest first, and the values of the newest ones; auditevent_subject_idx."""
    stored = AuditEvent.objects.filter(subject_type="memory", subject_id=memory.pk)
    imports = AuditEvent.objects.filter(subject_type="importbatch", subject_id=memory.batch_id or 0, verb="import")
    newest = stored.select_related("user", "api_key")[:with_values]
    found = list(newest.union(imports.select_related("user", "api_key")[:1], all=True)) if memory.batch_id else newest
    read = sorted(
        (event for event in found if event.subject_type == "memory"), key=lambda event: event.pk, reverse=True
    )
    events: list[_Event] = [_audited(event) for event in read]
    has_arrival = any(event.before is None and event.verb in _ARRIVALS for event in read)
    if len(read) == with_values:
        is_arrival = ExpressionWrapper(Q(verb__in=_ARRIVALS, before__isnull=True), BooleanField())
        places = stored.annotate(is_arrival=is_arrival).values_list("pk", "at", "is_arrival")[with_values:MOST_EVENTS]
        events += [_StoredEvent(pk, at) for pk, at, _ in places]
        has_arrival |= any(is_arrival for *_, is_arrival in places)
    if not has_arrival:
        events.append(_arrival(memory, next((event for event in found if event.subject_type != "memory"), None)))
    for source in _sources:
        events += source.events(memory.pk, viewer)
    # Stable: events of one time stay in the order of their ids.
    return sorted(events, key=lambda event: event.at, reverse=True)


def _with_values(events: Sequence[_Event]) -> Iterator[HistoryEvent]:
    """The events with their values, which are read a few at a time."""
    for start in range(0, len(events), _BLOCK):
        block = events[start : start + _BLOCK]
        ids = [event.pk for event in block if isinstance(event, _StoredEvent)]
        stored = AuditEvent.objects.select_related("user", "api_key").in_bulk(ids)
        yield from (_audited(stored[event.pk]) if isinstance(event, _StoredEvent) else event for event in block)


def _audited(event: AuditEvent) -> HistoryEvent:
    before, after = event.before or {}, event.after or {}
    return HistoryEvent(
        id=str(event.pk),
        at=event.at,
        kind=_kind_of(event.verb, before, after, is_first=event.before is None),
        by=maker_of(event),
        door=event.door,
        reason=event.note,
        batch_id=event.batch_id,
        before=before,
        after=after if event.before is not None else {},
    )


def _kind_of(verb: str, before: Mapping[str, Any], after: Mapping[str, Any], *, is_first: bool) -> str:
    if is_first and verb in _ARRIVALS:
        return MemoryChange.Kind.CREATED
    state = None if before.get("state") == after.get("state") else after.get("state")
    was = before.get("state")
    return kind_of_values(was, state, after.keys())


def _arrival(memory: Memory, imported: AuditEvent | None) -> HistoryEvent:
    """The arrival of a memory that has no event of its own: an import has one event for all."""
    batch = memory.batch
    created = HistoryEvent(FIRST, memory.created_at, MemoryChange.Kind.CREATED.value, "", AuditEvent.Door.COMMAND)
    if batch is not None:
        created = replace(created, at=batch.started_at, batch_id=batch.pk)
    return created if imported is None else replace(created, by=maker_of(imported), door=imported.door)


def maker_of(event: AuditEvent) -> str:
    """The person or the key that made a change; empty for a command."""
    return str(event.user) if event.user else event.api_key.name if event.api_key else ""


def _place_of(event_id: str, memory_id: int, events: Sequence[_Event]) -> int:
    for place, event in enumerate(events):
        if event.id == event_id:
            return place
    raise EventNotFoundError(memory_id, event_id)


# --- values for people ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of terms and sessions that events refer to by id."""

    terms: Mapping[tuple[str, int], str]
    sessions: Mapping[int, str]
    projects: Mapping[int, str]
    """Those that the viewer may see: a memory may come from another one."""

    @classmethod
    def of(cls, events: Sequence[HistoryEvent], viewer: Viewer) -> "_Names":
        terms: dict[tuple[str, int], str] = {}
        for plural, kind in _BY_PLURAL.items():
            ids = {ref[0] for event in events for side in (event.before, event.after) for ref in side.get(plural, ())}
            changes = [event.links[plural] for event in events if plural in event.links]
            ids |= {term_id for change in changes for term_id in (*change.removed, *change.added)}
            names = kind.labels(ids) if ids else {}
            names |= _former_names(kind.name, ids - names.keys())
            terms |= {(plural, term_id): names.get(term_id, f"#{term_id}") for term_id in ids}
        ids = {side.get("session_id") for event in events for side in (event.before, event.after)} - {None}
        sessions = dict(Session.objects.filter(pk__in=ids).values_list("pk", "external_id"))
        sides = [side for event in events for side in (event.before, event.after)]
        moved = {int(side["project_id"]) for side in sides if side.get("project_id")}
        seen = moved if viewer.project_ids is None else moved & viewer.project_ids
        projects = dict(Project.objects.filter(pk__in=seen).values_list("pk", "slug")) if seen else {}
        return cls(terms, sessions, projects)

    def value(self, name: str, value: Any) -> Any:
        """A stored value of a field as people write it."""
        if name in _BY_PLURAL:
            return sorted(self.terms[name, ref[0]] for ref in value or ())
        if name == "links":
            return [" ".join(filter(None, link)) for link in value or ()]
        if name == "session_id":
            return self.sessions.get(value, "")
        if name == "project_id":
            return self.projects.get(value, "another project")
        if name == "superseded_by_id":
            return f"#{value}" if value else ""
        return value


def _shown(event: HistoryEvent, names: _Names) -> HistoryEvent:
    changes = [
        FieldChange(name.removesuffix("_id"), names.value(name, event.before.get(name)), names.value(name, value))
        for name, value in event.after.items()
        if name not in _NOT_SHOWN and value != event.before.get(name)
    ]
    for plural, change in event.links.items():
        removed, added = (
            sorted(names.terms[plural, term_id] for term_id in side) for side in (change.removed, change.added)
        )
        changes.append(FieldChange(plural, removed, added, is_partial=True))
    return replace(event, changes=tuple(changes))
