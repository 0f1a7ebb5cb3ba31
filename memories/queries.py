"""Reads of single memories: one with all that hangs on it, and what happened around it. A fixed number of statements.

Every memory that is named, linked or listed here comes through `visible_to(viewer)`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

from access.models import AuditEvent
from access.viewer import Viewer
from categories.models import Relationship
from categories.queries import CategoryNode, Term, category_nodes, concept_terms, entity_terms
from memories.models import Memory, MemoryLink


def visible_to(viewer: Viewer) -> QuerySet[Memory]:
    """The memories that a viewer may open. Every read of memories starts from this queryset."""
    memories = Memory.objects.all()
    if viewer.project_ids is None:
        return memories
    return memories.filter(project_id__in=viewer.project_ids)


_MAX_LINKS = 200
_MAX_BACKLINKS = 50
_MAX_EVENTS = 50
_MAX_RELATIONSHIPS = 50


@dataclass(frozen=True, slots=True)
class MemoryTitle:
    """A memory as other pages name it."""

    id: int
    title: str
    memory_type: str
    state: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ResolvedLink:
    """A link that a memory's record names: `memory` where it is one that the viewer may open."""

    rel: str
    target: str
    url: str
    memory: MemoryTitle | None


@dataclass(frozen=True, slots=True)
class MemoryDetail:
    """A memory and what hangs on it. Its history is read for one memory alone."""

    memory: Memory
    categories: tuple[CategoryNode, ...]
    concepts: tuple[Term, ...]
    entities: tuple[Term, ...]
    links: tuple[ResolvedLink, ...]
    backlinks: tuple[tuple[str, MemoryTitle], ...]
    supersedes: tuple[MemoryTitle, ...]
    superseded_by: MemoryTitle | None
    relationships: tuple[Relationship, ...]
    events: tuple[AuditEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Around:
    """The neighbours of a memory in its project, the oldest first."""

    before: tuple[MemoryTitle, ...]
    after: tuple[MemoryTitle, ...]


def memory_detail(viewer: Viewer, memory_id: int) -> MemoryDetail | None:
    """A memory with everything about it, or None where there is none that the viewer may open."""
    found = memory_details(viewer, [memory_id]).get(memory_id)
    if found is None:
        return None
    events = AuditEvent.objects.filter(subject_type="memory", subject_id=memory_id).select_related("user", "api_key")
    return replace(found, events=tuple(events[:_MAX_EVENTS]))


def memory_details(viewer: Viewer, memory_ids: Collection[int]) -> dict[int, MemoryDetail]:
    """Those of the memories that the viewer may open, with everything but their history. Eight statements."""
    found = visible_to(viewer).select_related("project", "session", "batch").defer("terms", "raw")
    memories = found.in_bulk(list(memory_ids))
    ids = list(memories)
    if not ids:
        return {}
    links: dict[int, list[MemoryLink]] = defaultdict(list)
    for link in MemoryLink.objects.filter(memory__in=ids, ordinal__lt=_MAX_LINKS).order_by("ordinal"):
        links[link.memory_id].append(link)
    back = _backlinks(viewer, ids)
    wanted = {link.target_memory_id for named in links.values() for link in named}
    wanted |= {pk for named in back.values() for _, pk in named} | {m.superseded_by_id for m in memories.values()}
    named, older = _titles(viewer, wanted, ids)
    categories = category_nodes([pk for memory in memories.values() for pk in memory.category_ids])
    concepts = concept_terms([pk for memory in memories.values() for pk in memory.concept_ids])
    entities = entity_terms([pk for memory in memories.values() for pk in memory.entity_ids])
    facts = _relationships(ids)
    return {
        pk: MemoryDetail(
            memory=memory,
            categories=tuple(sorted((categories[k] for k in memory.category_ids if k in categories), key=_by_path)),
            concepts=_sorted(concepts[k] for k in memory.concept_ids if k in concepts),
            entities=_sorted(entities[k] for k in memory.entity_ids if k in entities),
            links=tuple(ResolvedLink(x.rel, x.target, x.url, named.get(x.target_memory_id or 0)) for x in links[pk]),
            backlinks=tuple((rel, named[k]) for rel, k in back[pk] if k in named),
            supersedes=tuple(older[pk]),
            superseded_by=named.get(memory.superseded_by_id or 0),
            relationships=tuple(facts[pk]),
        )
        for pk, memory in memories.items()
    }


def _by_path(node: CategoryNode) -> str:
    return node.path


def _backlinks(viewer: Viewer, memory_ids: Collection[int]) -> dict[int, list[tuple[str, int]]]:
    """Who links to each memory, and how: the first of each, in order."""
    rows = (
        MemoryLink.objects.filter(target_memory__in=memory_ids, memory__in=visible_to(viewer))
        .exclude(memory_id=F("target_memory_id"))
        .annotate(row=Window(RowNumber(), partition_by="target_memory_id", order_by=["rel", "memory_id"]))
        .filter(row__lte=_MAX_BACKLINKS)
        .order_by("rel", "memory_id")
        .values_list("target_memory_id", "rel", "memory_id")
    )
    found: dict[int, dict[tuple[str, int], None]] = defaultdict(dict)
    for target, rel, pk in rows:
        found[target or 0][rel, pk] = None
    return defaultdict(list, {pk: list(links) for pk, links in found.items()})


def _relationships(memory_ids: Collection[int]) -> dict[int, list[Relationship]]:
    """The facts that each memory bears out."""
    found: dict[int, list[Relationship]] = defaultdict(list)
    facts = Relationship.objects.filter(evidence_ids__overlap=list(memory_ids)).select_related("source", "target")
    for fact in facts.order_by("relationship_type", "id"):
        for pk in set(fact.evidence_ids) & set(memory_ids):
            if len(found[pk]) < _MAX_RELATIONSHIPS:
                found[pk].append(fact)
    return found


def timeline_around(viewer: Viewer, memory: Memory, before: int = 5, after: int = 5) -> Around:
    """What was remembered just before and just after a memory, in its project."""
    near = visible_to(viewer).filter(project_id=memory.project_id, state__in=["active", "proposed"])
    # Many memories may share an instant, so the id decides; (project, created_at, id) is memory_project_created_idx.
    same = Q(created_at=memory.created_at)
    earlier = near.filter(created_at__lte=memory.created_at).exclude(same & Q(id__gte=memory.pk))
    later = near.filter(created_at__gte=memory.created_at).exclude(same & Q(id__lte=memory.pk))
    return Around(
        before=tuple(reversed(_rows(earlier.order_by("-created_at", "-id")[:before]))),
        after=tuple(_rows(later.order_by("created_at", "id")[:after])),
    )


def _titles(
    viewer: Viewer, wanted: Iterable[int | None], memory_ids: Collection[int]
) -> tuple[dict[int, MemoryTitle], dict[int, list[MemoryTitle]]]:
    """The memories named by id, and for each of `memory_ids` those that it supersedes, in one statement."""
    ids = [pk for pk in wanted if pk is not None]
    rows = visible_to(viewer).filter(Q(pk__in=ids) | Q(superseded_by__in=memory_ids)).order_by("id")
    named: dict[int, MemoryTitle] = {}
    older: dict[int, list[MemoryTitle]] = defaultdict(list)
    for row in rows.values_list("id", "title", "memory_type", "state", "created_at", "superseded_by_id"):
        newer = row[5] or 0
        title = named[row[0]] = MemoryTitle(*row[:5])
        if newer in memory_ids and len(older[newer]) < _MAX_LINKS:
            older[newer].append(title)
    return named, older


def _rows(memories: QuerySet[Memory]) -> list[MemoryTitle]:
    return [MemoryTitle(*row) for row in memories.values_list("id", "title", "memory_type", "state", "created_at")]


def _sorted(terms: Iterable[Term]) -> tuple[Term, ...]:
    return tuple(sorted(terms, key=lambda term: (term.type, term.label.casefold())))
