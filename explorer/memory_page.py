"""DetailContext: all that the page of one memory may read. No database and no request."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, tzinfo
from itertools import groupby, islice
from typing import Any
from urllib.parse import urlsplit

from django.urls import reverse
from django.utils.safestring import SafeString

from access.models import AuditEvent
from categories.models import Entity
from categories.queries import CategoryNode, Term
from explorer.links import explore_url, filter_url, memory_url, node_url, relationship_url, similar_url, why_not_url
from explorer.markdown import render_markdown
from memories.models import Memory
from memories.queries import Around, MemoryDetail, MemoryTitle
from search.query import SearchQuery
from search.similar import Shared, Similar, SimilarMemory
from text.formatting import day_label, local_time, moment_label, type_family

_LONGEST_CHANGE = 160
_DAYS_AROUND = 3
_DOORS = {
    AuditEvent.Door.PAGE: "on a page",
    AuditEvent.Door.API: "through the API",
    AuditEvent.Door.MCP: "through MCP",
    AuditEvent.Door.ADMIN: "in the admin",
    AuditEvent.Door.COMMAND: "on the command line",
}


@dataclass(frozen=True, slots=True)
class FactValue:
    """One value of a fact. Without an address it is only told."""

    label: str
    url: str = ""
    note: str = ""
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class Fact:
    label: str
    values: tuple[FactValue, ...]
    is_tags: bool = False


@dataclass(frozen=True, slots=True)
class Mention:
    """Another memory as this page names it. Without an address it is this one, or not to be opened from here."""

    title: str
    url: str
    id: str
    type: str = ""
    family: str = ""
    date: str = ""
    date_iso: str = ""
    state: str = ""
    is_here: bool = False
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Links of one sort."""

    label: str
    mentions: tuple[Mention, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    source: FactValue
    verb: str
    target: FactValue
    fact: str
    confidence: str
    # Where all is that bears it out.
    url: str


@dataclass(frozen=True, slots=True)
class Change:
    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Event:
    verb: str
    date: str
    date_iso: str
    who: str
    note: str
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class DetailContext:
    id: int
    title: str
    type: FactValue
    family: str
    state: str
    state_note: str
    summary: str
    body: SafeString
    back_url: str
    back_label: str
    # Why it is among the results of the search that led here, or is not.
    why_url: str
    facts: tuple[Fact, ...]
    provenance: tuple[Fact, ...]
    superseded_by: Mention | None
    supersedes: tuple[Mention, ...]
    links: tuple[Group, ...]
    backlinks: tuple[Group, ...]
    relations: tuple[Relation, ...]
    events: tuple[Event, ...]
    around: tuple[Mention, ...]
    around_url: str
    similar_url: str


def build_detail(detail: MemoryDetail, around: Around, query: SearchQuery | None, zone: tzinfo = UTC) -> DetailContext:
    """Everything that the page of a memory says. `query` is the search that led here, if one did."""
    memory = detail.memory
    return DetailContext(
        id=memory.pk,
        title=memory.title or f"Memory {memory.pk}",
        type=_filter("type", memory.memory_type),
        family=type_family(memory.memory_type),
        state="" if memory.state == Memory.State.ACTIVE else memory.state,
        state_note=memory.state_reason,
        summary=memory.summary,
        body=render_markdown(memory.content),
        back_url=explore_url(query or SearchQuery()),
        back_label="Back to results" if query else "Explore all memories",
        why_url=why_not_url(query, memory.pk) if query else "",
        facts=tuple(fact for fact in _facts(detail, zone) if fact.values),
        provenance=tuple(fact for fact in _provenance(memory, zone) if fact.values),
        superseded_by=mention(detail.superseded_by, query, zone) if detail.superseded_by else None,
        supersedes=tuple(mention(older, query, zone) for older in detail.supersedes),
        links=_links(detail, query, zone),
        backlinks=_backlinks(detail, query, zone),
        relations=tuple(
            Relation(
                _entity(relationship.source),
                relationship.relationship_type.replace("_", " ").replace("-", " "),
                _entity(relationship.target),
                relationship.fact,
                _percent(relationship.confidence),
                relationship_url(relationship.pk),
            )
            for relationship in detail.relationships
        ),
        events=_events(detail, zone),
        around=_around(memory, around, query, zone),
        around_url=explore_url(_time_around(memory, around, zone)),
        similar_url=similar_url(memory.pk, query),
    )


def _filter(key: str, value: str, label: str = "", note: str = "") -> FactValue:
    return FactValue(label or value, filter_url(key, value), note)


def _some(key: str, values: Iterable[str]) -> tuple[FactValue, ...]:
    return tuple(_filter(key, value) for value in values if value)


def _day(moment: datetime | None, zone: tzinfo) -> tuple[FactValue, ...]:
    """A moment as a link to everything of that day."""
    if moment is None:
        return ()
    address = explore_url(_days_around(SearchQuery(), moment, zone, 0))
    return (FactValue(day_label(moment, zone), address, moment_label(moment, zone)),)


def _time_around(memory: Memory, around: Around, zone: tzinfo) -> SearchQuery:
    """A query for the project in the days of the neighbours that are shown, and some on either side of the memory."""
    shown = [memory.created_at, *(near.created_at for near in (*around.before, *around.after))]
    query = SearchQuery().only("project", memory.project.slug)
    return _days_around(query, memory.created_at, zone, _DAYS_AROUND, shown)


def _days_around(
    query: SearchQuery, moment: datetime, zone: tzinfo, days: int, shown: Iterable[datetime] = ()
) -> SearchQuery:
    """A query for the day of a moment, as many days on either side, and all between them and what is shown."""
    day = local_time(moment, zone).date().toordinal()
    others = [local_time(other, zone).date().toordinal() for other in shown]
    first = max(min(day - days, *others, day), date.min.toordinal())
    last = min(max(day + days, *others, day), date.max.toordinal())
    # At either end of the calendar the span is left open: a zone's own first day may begin after the moment.
    return query.between(
        date.fromordinal(first).isoformat() if first > date.min.toordinal() else "",
        date.fromordinal(last).isoformat() if last < date.max.toordinal() else "",
    )


def _moment(moment: datetime | None, zone: tzinfo) -> tuple[FactValue, ...]:
    return (FactValue(moment_label(moment, zone)),) if moment else ()


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _facts(detail: MemoryDetail, zone: tzinfo) -> Iterable[Fact]:
    memory = detail.memory
    yield Fact("Project", (_filter("project", memory.project.slug, memory.project.name or memory.project.slug),))
    yield Fact("Type", (_filter("type", memory.memory_type),))
    yield Fact("State", (_filter("state", memory.state),))
    yield Fact("Created", _day(memory.created_at, zone))
    yield Fact("Category", tuple(_category(node) for node in detail.categories))
    yield Fact("Tags", _some("tag", memory.tags), is_tags=True)
    yield Fact("Concepts", tuple(_node("concept", term) for term in detail.concepts))
    yield Fact("Entities", tuple(_node("entity", term) for term in detail.entities))
    yield Fact("Happened", _moment(memory.happened_at, zone))
    changed = memory.updated_at if memory.updated_at != memory.created_at else None
    yield Fact("Updated", _moment(changed, zone))
    yield Fact("Valid from", _moment(memory.valid_from, zone))
    yield Fact("Valid to", _moment(memory.valid_to, zone))


def _provenance(memory: Memory, zone: tzinfo) -> Iterable[Fact]:
    yield Fact("Author", _some("author", memory.authors))
    yield Fact("Agent", _some("agent", [memory.agent]))
    session = memory.session
    yield Fact(
        "Session", (FactValue(session.title or session.external_id, "", session.external_id),) if session else ()
    )
    yield Fact("Source", _some("source", [memory.source]))
    yield Fact("Original", (_address(memory.source_uri),) if memory.source_uri else ())
    yield Fact("Original id", (FactValue(memory.external_id),) if memory.external_id else ())
    batch = memory.batch
    # Where it came from on the server's disk is for those who run the server: the admin tells them.
    imported = f"batch {batch.pk}, {batch.format}, {day_label(batch.started_at, zone)}" if batch else ""
    yield Fact("Imported", (FactValue(imported),) if batch else ())
    yield Fact("Confidence", (FactValue(_percent(memory.confidence)),) if memory.confidence is not None else ())
    yield Fact("Importance", (FactValue(_percent(memory.importance)),) if memory.importance is not None else ())
    yield Fact("Pinned", (FactValue("yes"),) if memory.pinned else ())


def _address(uri: str) -> FactValue:
    """A link where it is one for the web, else plain text: a record may name any scheme."""
    if not _is_web(uri):
        return FactValue(uri)
    parts = urlsplit(uri)
    return FactValue(f"{parts.netloc}{parts.path}".rstrip("/"), uri, uri, is_external=True)


def _is_web(uri: str) -> bool:
    try:
        parts = urlsplit(uri)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.netloc)


def _category(node: CategoryNode) -> FactValue:
    return FactValue(" / ".join(node.names), reverse("explorer:category", args=[node.path]))


def _node(kind: str, term: Term) -> FactValue:
    """An entity or a concept, which has a page of its own."""
    return FactValue(term.label, node_url(kind, term.id, term.value), term.type)


def _entity(entity: Entity) -> FactValue:
    return _node("entity", Term(entity.pk, str(entity), entity.name, entity.entity_type))


def mention(memory: MemoryTitle, query: SearchQuery | None, zone: tzinfo, *, is_here: bool = False) -> Mention:
    return Mention(
        title=memory.title or f"Memory {memory.id}",
        url="" if is_here else memory_url(memory.id, query),
        id=f"#{memory.id}",
        type=memory.memory_type,
        family=type_family(memory.memory_type),
        date=day_label(memory.created_at, zone),
        date_iso=memory.created_at.isoformat(),
        state="" if memory.state == Memory.State.ACTIVE else memory.state,
        is_here=is_here,
    )


def _relation_label(rel: str) -> str:
    words = rel.replace("_", " ").replace("-", " ").strip()
    return f"{words[:1].upper()}{words[1:]}" or "Linked"


def _links(detail: MemoryDetail, query: SearchQuery | None, zone: tzinfo) -> tuple[Group, ...]:
    """What the record links to, by relation: memories by their titles, the rest by the name it was linked by."""
    groups = []
    ordered = sorted(detail.links, key=lambda link: link.rel)
    for rel, links in groupby(ordered, key=lambda link: link.rel):
        mentions = []
        for link in links:
            if link.memory:
                mentions.append(mention(link.memory, query, zone))
            else:
                url = link.url if _is_web(link.url) else ""
                mentions.append(Mention(link.target, url, "", is_external=bool(url)))
        groups.append(Group(_relation_label(rel), tuple(mentions)))
    return tuple(groups)


def _backlinks(detail: MemoryDetail, query: SearchQuery | None, zone: tzinfo) -> tuple[Group, ...]:
    return tuple(
        Group(_relation_label(rel), tuple(mention(memory, query, zone) for _, memory in pairs))
        for rel, pairs in groupby(detail.backlinks, key=lambda pair: pair[0])
    )


def _around(memory: Memory, around: Around, query: SearchQuery | None, zone: tzinfo) -> tuple[Mention, ...]:
    here = MemoryTitle(memory.pk, memory.title, memory.memory_type, memory.state, memory.created_at)
    return (
        *(mention(near, query, zone) for near in around.before),
        mention(here, query, zone, is_here=True),
        *(mention(near, query, zone) for near in around.after),
    )


# --- what happened to it -----------------------------------------------------------------------------------------


def _events(detail: MemoryDetail, zone: tzinfo) -> tuple[Event, ...]:
    """What the record tells of itself and what the audit trail tells of it, the first first."""
    memory = detail.memory
    moments: list[tuple[datetime, Event]] = []
    if memory.happened_at and memory.happened_at != memory.created_at:
        moments.append((memory.happened_at, _own_event("Happened", memory.happened_at, zone)))
    moments.append((memory.created_at, _own_event("Created", memory.created_at, zone, ", ".join(memory.authors[:3]))))
    if memory.batch:
        note = f"batch {memory.batch.pk}"
        moments.append((memory.batch.started_at, _own_event("Imported", memory.batch.started_at, zone, note)))
    moments += [(event.at, _audit_event(event, zone)) for event in detail.events]
    return tuple(event for _, event in sorted(moments, key=lambda pair: pair[0]))


def _own_event(verb: str, moment: datetime, zone: tzinfo, who: str = "") -> Event:
    return Event(verb, moment_label(moment, zone), moment.isoformat(), who, "")


def _audit_event(event: AuditEvent, zone: tzinfo) -> Event:
    by = str(event.user) if event.user else event.api_key.name if event.api_key else ""
    who = " · ".join(part for part in (by, _DOORS[AuditEvent.Door(event.door)]) if part)
    return Event(
        verb=_relation_label(event.verb.removeprefix("memory_")),
        date=moment_label(event.at, zone),
        date_iso=event.at.isoformat(),
        who=who,
        note=event.note,
        changes=_changes(event.before or {}, event.after or {}) if event.before else (),
    )


def _changes(before: dict[str, Any], after: dict[str, Any]) -> tuple[Change, ...]:
    fields = [name for name in after if before.get(name) != after[name]]
    return tuple(Change(name.replace("_", " "), _shown(before.get(name)), _shown(after[name])) for name in fields)


def _shown(value: object) -> str:
    """A value of the audit trail, short: the trail keeps all of it, the page shows what changed."""
    if value in (None, "", [], ()):
        return "nothing"
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= _LONGEST_CHANGE else f"{text[:_LONGEST_CHANGE]}…"


_NAMED = 3


@dataclass(frozen=True, slots=True)
class SimilarRow:
    """A memory like the one of the page, and what makes it so."""

    memory: Mention
    similarity: str
    project: FactValue
    shared: tuple[FactValue, ...]
    more_shared: int


@dataclass(frozen=True, slots=True)
class SimilarGroup:
    """Without a label it is the only one there is."""

    label: str
    rows: tuple[SimilarRow, ...]


@dataclass(frozen=True, slots=True)
class SimilarContext:
    title: str
    memory_url: str
    groups: tuple[SimilarGroup, ...]
    # Said where there are none.
    empty: str
    notices: tuple[str, ...]
    # Where there are more than these; empty where there are not.
    more_url: str
    least: str


def build_similar(memory_id: int, found: Similar, query: SearchQuery | None, zone: tzinfo = UTC) -> SimilarContext:
    """Possible duplicates apart from what is only similar. `query` is the search that led to the memory, if one did."""
    duplicates = tuple(_row(one, query, zone) for one in found.memories if one.is_duplicate)
    others = tuple(_row(one, query, zone) for one in found.memories if not one.is_duplicate)
    groups = (
        SimilarGroup("Possible duplicates", duplicates),
        SimilarGroup("Only similar" if duplicates else "", others),
    )
    return SimilarContext(
        title=found.title,
        memory_url=memory_url(memory_id, query),
        groups=tuple(group for group in groups if group.rows),
        empty=f"{found.reason[:1].upper()}{found.reason[1:]}." if found.reason else "",
        notices=tuple(warning.message for warning in found.warnings),
        more_url=similar_url(memory_id, query) if found.has_more else "",
        least=f"{found.least:.2f}",
    )


def _row(one: SimilarMemory, query: SearchQuery | None, zone: tzinfo) -> SimilarRow:
    hit = one.hit
    title = MemoryTitle(hit.id, hit.title_text, hit.memory_type, hit.state, hit.created_at)
    # What an entity, a tag and a category call the same is said once.
    named: dict[str, FactValue] = {}
    for value in _shared(one.shared):
        named.setdefault(value.label.casefold(), value)
    return SimilarRow(
        memory=mention(title, query, zone),
        # Cut and not rounded: 1.00 is said of the same text alone, but for what halves leave out.
        similarity=f"{int(one.similarity * 100 + 0.05) / 100:.2f}",
        project=FactValue(hit.project, filter_url("project", hit.project)),
        shared=tuple(islice(named.values(), _NAMED)),
        more_shared=max(0, len(named) - _NAMED) + one.shared.more,
    )


def _shared(shared: Shared) -> Iterable[FactValue]:
    """What says most first: an entity is about something, a tag is a word for it, and a category holds a great deal."""
    for term in shared.entities:
        yield FactValue(term.label, filter_url("entity", term.value), term.type)
    for tag in shared.tags:
        yield FactValue(tag, filter_url("tag", tag), "tag")
    for category in shared.categories:
        yield FactValue(category.names[-1], filter_url("category", category.path), " / ".join(category.names))
