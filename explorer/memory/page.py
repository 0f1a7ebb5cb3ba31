"""MemoryContext and SimilarContext: all data for the pages of a memory. No database and no request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, tzinfo
from itertools import groupby, islice
from typing import Any
from urllib.parse import urlsplit

from django.urls import reverse
from django.utils.safestring import SafeString

from categories.models import Entity
from categories.queries import CategoryNode, Term
from explorer.links import (
    duplicates_url,
    explore_url,
    filter_url,
    memory_url,
    node_url,
    relationship_url,
    session_url,
    similar_url,
    why_not_url,
)
from explorer.markdown import render_markdown
from memories.models import Memory
from memories.queries import Around, MemoryDetail, MemoryTitle, memory_version
from search.query import SearchQuery
from search.similar import SharedTerms, SimilarMemory, SimilarResult
from text.formatting import day_label, local_time, moment_label, type_family
from text.highlight import plain_title

_DAYS_AROUND = 3


@dataclass(frozen=True, slots=True)
class FactValue:
    """A value of a fact, with a link if `url` is set."""

    label: str
    url: str = ""
    note: str = ""
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class MemoryFact:
    """A fact, with the field of a form that edits it, if the viewer may."""

    label: str
    values: tuple[FactValue, ...]
    is_tags: bool = False
    name: str = ""
    control: Any = None


@dataclass(frozen=True, slots=True)
class MemoryLink:
    """A reference to a memory or an external target. Without a URL it is this memory, or cannot be opened."""

    title: str
    url: str
    id: str
    type: str = ""
    family: str = ""
    date: str = ""
    date_iso: str = ""
    state: str = ""
    project: str = ""
    snippet: str = ""
    is_here: bool = False
    is_external: bool = False


@dataclass(frozen=True, slots=True)
class LinkGroup:
    """Links with the same relation."""

    label: str
    mentions: tuple[MemoryLink, ...]


@dataclass(frozen=True, slots=True)
class Relation:
    source: FactValue
    verb: str
    target: FactValue
    fact: str
    confidence: str
    url: str
    """The page of the relationship."""


@dataclass(frozen=True, slots=True)
class MemoryActions:
    """The addresses that change a memory, and the fields of the forms in place."""

    edit_url: str
    state_url: str
    replace_url: str
    version: str
    supersedes: Any
    superseded_by: Any
    is_there: bool
    """Whether it can be archived or superseded, else restored."""


@dataclass(frozen=True, slots=True)
class MemoryContext:
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
    why_url: str
    """Explains the memory's place in the search that led here."""
    facts: tuple[MemoryFact, ...]
    provenance: tuple[MemoryFact, ...]
    superseded_by: MemoryLink | None
    supersedes: tuple[MemoryLink, ...]
    links: tuple[LinkGroup, ...]
    backlinks: tuple[LinkGroup, ...]
    relations: tuple[Relation, ...]
    around: tuple[MemoryLink, ...]
    around_url: str
    similar_url: str
    actions: MemoryActions | None
    """The actions that the viewer may take on the memory."""


def build_memory(
    detail: MemoryDetail,
    around: Around | None,
    query: SearchQuery | None,
    zone: tzinfo = UTC,
    controls: Mapping[str, Any] | None = None,
) -> MemoryContext:
    """The context of the page of a memory, or of a panel, which shows nothing around it.

    `query` is the search that led here, if any. `controls` are the fields that edit facts, if the viewer may.
    """
    memory = detail.memory
    title = plain_title(memory.title) or f"Memory {memory.pk}"
    fields = controls or {}
    facts = (replace(fact, control=fields.get(fact.name)) for fact in _facts(detail, zone))
    return MemoryContext(
        id=memory.pk,
        title=title,
        type=_filter("type", memory.memory_type),
        family=type_family(memory.memory_type),
        state="" if memory.state == Memory.State.ACTIVE else memory.state,
        state_note=memory.state_reason,
        summary=memory.summary,
        body=render_markdown(memory.content, title),
        back_url=explore_url(query or SearchQuery()),
        back_label="Back to results" if query else "Explore all memories",
        why_url=why_not_url(query, memory.pk) if query else "",
        facts=tuple(fact for fact in facts if fact.values or fact.control),
        provenance=tuple(fact for fact in _provenance(memory, zone) if fact.values),
        superseded_by=memory_link(detail.superseded_by, query, zone) if detail.superseded_by else None,
        supersedes=tuple(memory_link(older, query, zone) for older in detail.supersedes),
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
        around=_around(memory, around, query, zone) if around else (),
        around_url=explore_url(_time_around(memory, around, zone)) if around else "",
        similar_url=similar_url(memory.pk, query),
        actions=_actions(memory, fields) if fields else None,
    )


def _actions(memory: Memory, controls: Mapping[str, Any]) -> MemoryActions:
    return MemoryActions(
        edit_url=reverse("explorer:edit", args=[memory.pk]),
        state_url=reverse("explorer:set_state", args=[memory.pk]),
        replace_url=f"{reverse('explorer:new')}?replaces={memory.pk}",
        version=memory_version(memory),
        supersedes=controls.get("supersedes"),
        superseded_by=controls.get("superseded_by"),
        is_there=memory.state in (Memory.State.ACTIVE, Memory.State.PROPOSED),
    )


def _filter(key: str, value: str, label: str = "", note: str = "") -> FactValue:
    return FactValue(label or value, filter_url(key, value), note)


def _filters(key: str, values: Iterable[str]) -> tuple[FactValue, ...]:
    return tuple(_filter(key, value) for value in values if value)


def _day(instant: datetime | None, zone: tzinfo) -> tuple[FactValue, ...]:
    """A date with a link to all memories of that day."""
    if instant is None:
        return ()
    address = explore_url(_days_around(SearchQuery(), instant, zone, 0))
    return (FactValue(day_label(instant, zone), address, moment_label(instant, zone)),)


def _time_around(memory: Memory, around: Around, zone: tzinfo) -> SearchQuery:
    """A query for the project around the memory, wide enough to include the neighbours shown."""
    shown = [memory.created_at, *(neighbour.created_at for neighbour in (*around.before, *around.after))]
    query = SearchQuery().only("project", memory.project.slug)
    return _days_around(query, memory.created_at, zone, _DAYS_AROUND, shown)


def _days_around(
    query: SearchQuery, instant: datetime, zone: tzinfo, days: int, shown: Iterable[datetime] = ()
) -> SearchQuery:
    """The query with dates that span `days` on both sides of an instant, and all instants in `shown`."""
    day = local_time(instant, zone).date().toordinal()
    others = [local_time(other, zone).date().toordinal() for other in shown]
    first = max(min(day - days, *others, day), date.min.toordinal())
    last = min(max(day + days, *others, day), date.max.toordinal())
    # At either end of the calendar the span is open: the first day of a zone may begin after the instant.
    return query.between(
        date.fromordinal(first).isoformat() if first > date.min.toordinal() else "",
        date.fromordinal(last).isoformat() if last < date.max.toordinal() else "",
    )


def _instant(instant: datetime | None, zone: tzinfo) -> tuple[FactValue, ...]:
    return (FactValue(moment_label(instant, zone)),) if instant else ()


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _facts(detail: MemoryDetail, zone: tzinfo) -> Iterable[MemoryFact]:
    memory = detail.memory
    yield MemoryFact("Project", (_filter("project", memory.project.slug, memory.project.name or memory.project.slug),))
    yield MemoryFact("Type", (_filter("type", memory.memory_type),), name="type")
    yield MemoryFact("State", (_filter("state", memory.state),))
    yield MemoryFact("Created", _day(memory.created_at, zone))
    yield MemoryFact("Category", tuple(_category(node) for node in detail.categories), name="categories")
    yield MemoryFact("Tags", _filters("tag", memory.tags), is_tags=True, name="tags")
    yield MemoryFact("Concepts", tuple(_node("concept", term) for term in detail.concepts), name="concepts")
    yield MemoryFact("Entities", tuple(_node("entity", term) for term in detail.entities), name="entities")
    yield MemoryFact("Happened", _instant(memory.happened_at, zone))
    yield MemoryFact("Updated", _instant(_changed_at(memory), zone))
    yield MemoryFact("Valid from", _instant(memory.valid_from, zone))
    yield MemoryFact("Valid to", _instant(memory.valid_to, zone))


def _changed_at(memory: Memory) -> datetime | None:
    """When it was changed last; None if never since it was created or imported."""
    batch = memory.batch
    if batch and batch.finished_at and batch.started_at <= memory.updated_at <= batch.finished_at:
        return None
    return memory.updated_at if memory.updated_at != memory.created_at else None


def _provenance(memory: Memory, zone: tzinfo) -> Iterable[MemoryFact]:
    yield MemoryFact("Author", _filters("author", memory.authors))
    yield MemoryFact("Agent", _filters("agent", [memory.agent]))
    session = memory.session
    yield MemoryFact(
        "Session",
        (FactValue(session.title or session.external_id, session_url(session.pk), session.external_id),)
        if session
        else (),
    )
    yield MemoryFact("Source", _filters("source", [memory.source]))
    yield MemoryFact("Original", (_address(memory.source_uri),) if memory.source_uri else ())
    yield MemoryFact("Original id", (FactValue(memory.external_id),) if memory.external_id else ())
    batch = memory.batch
    # The path on the server's disk is only shown in the admin.
    imported = f"batch {batch.pk}, {batch.format}, {day_label(batch.started_at, zone)}" if batch else ""
    yield MemoryFact("Imported", (FactValue(imported),) if batch else ())
    yield MemoryFact("Confidence", (FactValue(_percent(memory.confidence)),) if memory.confidence is not None else ())
    yield MemoryFact("Importance", (FactValue(_percent(memory.importance)),) if memory.importance is not None else ())
    yield MemoryFact("Pinned", (FactValue("yes"),) if memory.pinned else ())


def _address(uri: str) -> FactValue:
    """A link if the scheme is http or https, else plain text: records may contain any scheme."""
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
    """A link to the page of an entity or a concept."""
    return FactValue(term.label, node_url(kind, term.id, term.value), term.type)


def _entity(entity: Entity) -> FactValue:
    return _node("entity", Term(entity.pk, str(entity), entity.name, entity.entity_type))


def memory_link(memory: MemoryTitle, query: SearchQuery | None, zone: tzinfo, *, is_here: bool = False) -> MemoryLink:
    return MemoryLink(
        title=plain_title(memory.title) or f"Memory {memory.id}",
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


def _links(detail: MemoryDetail, query: SearchQuery | None, zone: tzinfo) -> tuple[LinkGroup, ...]:
    """Links of the record by relation: memories by title, other targets by name."""
    groups = []
    ordered = sorted(detail.links, key=lambda link: link.rel)
    for rel, links in groupby(ordered, key=lambda link: link.rel):
        mentions = []
        for link in links:
            if link.memory:
                mentions.append(memory_link(link.memory, query, zone))
            else:
                url = link.url if _is_web(link.url) else ""
                mentions.append(MemoryLink(link.target, url, "", is_external=bool(url)))
        groups.append(LinkGroup(_relation_label(rel), tuple(mentions)))
    return tuple(groups)


def _backlinks(detail: MemoryDetail, query: SearchQuery | None, zone: tzinfo) -> tuple[LinkGroup, ...]:
    """Links of other memories to this one, in words that say which of the two is meant: "Caused by this"."""
    return tuple(
        LinkGroup(f"{_relation_label(rel)} this", tuple(memory_link(memory, query, zone) for _, memory in pairs))
        for rel, pairs in groupby(detail.backlinks, key=lambda pair: pair[0])
    )


def _around(memory: Memory, around: Around, query: SearchQuery | None, zone: tzinfo) -> tuple[MemoryLink, ...]:
    here = MemoryTitle(memory.pk, memory.title, memory.memory_type, memory.state, memory.created_at)
    return (
        *(memory_link(neighbour, query, zone) for neighbour in around.before),
        memory_link(here, query, zone, is_here=True),
        *(memory_link(neighbour, query, zone) for neighbour in around.after),
    )


_SHARED_SHOWN = 3
# Memories with less than this share of the similarity of the closest stand under a heading of their own.
_LESS = 0.6
_OTHER_PROJECT = "Only memories of one project can be merged, and these are of another one."
# Duplicates that are merged with a memory at once: the operation takes twenty.
_MERGED = 19


@dataclass(frozen=True, slots=True)
class SimilarEntry:
    """A similar memory and the values that both have."""

    memory: MemoryLink
    similarity: str
    project: FactValue
    shared: tuple[FactValue, ...]
    more_shared: int


@dataclass(frozen=True, slots=True)
class SimilarGroup:
    """Similar memories; the label is empty if there is only one group."""

    label: str
    rows: tuple[SimilarEntry, ...]
    merge_url: str = ""
    """Where the memory and those of its project are merged."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class SimilarContext:
    title: str
    memory_url: str
    groups: tuple[SimilarGroup, ...]
    empty: str
    """Why there are none."""
    notices: tuple[str, ...]
    more_url: str
    """The page with more of them, if any."""
    min_similarity: str


def build_similar(
    memory_id: int, found: SimilarResult, query: SearchQuery | None, zone: tzinfo = UTC, *, writes_to: str = ""
) -> SimilarContext:
    """The context of similar memories, possible duplicates first.

    `query` is the search that led to the memory; `writes_to` is its project if the viewer may change what is there.
    """
    duplicates = tuple(_row(one, query, zone) for one in found.memories if one.is_duplicate)
    to_merge = [one.hit.id for one in found.memories if one.is_duplicate and one.hit.project == writes_to]
    others = [one for one in found.memories if not one.is_duplicate]
    least = _LESS * max([0.0, *(one.similarity for one in others)])
    close = tuple(_row(one, query, zone) for one in others if one.similarity >= least)
    far = tuple(_row(one, query, zone) for one in others if one.similarity < least)
    merge = duplicates_url([memory_id, *to_merge[:_MERGED]]) if to_merge else ""
    groups = (
        SimilarGroup("Possible duplicates", duplicates, merge, "" if merge or not writes_to else _OTHER_PROJECT),
        SimilarGroup("Only similar" if duplicates else "", close),
        SimilarGroup("Less similar", far),
    )
    return SimilarContext(
        title=plain_title(found.title),
        memory_url=memory_url(memory_id, query),
        groups=tuple(group for group in groups if group.rows),
        empty=f"{found.reason[:1].upper()}{found.reason[1:]}." if found.reason else "",
        notices=tuple(warning.message for warning in found.warnings),
        more_url=similar_url(memory_id, query) if found.has_more else "",
        min_similarity=f"{found.min_similarity:.2f}",
    )


def _row(one: SimilarMemory, query: SearchQuery | None, zone: tzinfo) -> SimilarEntry:
    hit = one.hit
    title = MemoryTitle(hit.id, hit.title_text, hit.memory_type, hit.state, hit.created_at)
    # An entity, a tag and a category of the same name appear once.
    by_name: dict[str, FactValue] = {}
    for value in _shared(one.shared):
        by_name.setdefault(value.label.casefold(), value)
    return SimilarEntry(
        memory=memory_link(title, query, zone),
        # Truncated, so that only equal texts show 1.00; the epsilon absorbs half-precision errors.
        similarity=f"{int(one.similarity * 100 + 0.05) / 100:.2f}",
        project=FactValue(hit.project_name or hit.project, filter_url("project", hit.project)),
        shared=tuple(islice(by_name.values(), _SHARED_SHOWN)),
        more_shared=max(0, len(by_name) - _SHARED_SHOWN) + one.shared.more,
    )


def _shared(shared: SharedTerms) -> Iterable[FactValue]:
    """Shared values, the most specific first: entities, tags, categories."""
    for term in shared.entities:
        yield FactValue(term.label, filter_url("entity", term.value), term.type)
    for tag in shared.tags:
        yield FactValue(tag, filter_url("tag", tag), "tag")
    for category in shared.categories:
        yield FactValue(category.names[-1], filter_url("category", category.path), " / ".join(category.names))
