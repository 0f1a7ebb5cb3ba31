"""Reads of single memories: one with all that hangs on it, and what happened around it. A fixed number of statements.

Every memory that is named, linked or listed here comes through `visible_to(viewer)`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q, QuerySet

from access.models import AuditEvent
from access.viewer import Viewer, visible_to
from categories.models import Relationship
from categories.queries import CategoryNode, Term, category_nodes, concept_terms, entity_terms
from memories.models import Memory, MemoryLink

_MOST_LINKS = 200
_MOST_BACKLINKS = 50
_MOST_EVENTS = 50
_MOST_RELATIONSHIPS = 50


@dataclass(frozen=True, slots=True)
class MemoryTitle:
    """A memory as other pages name it."""

    id: int
    title: str
    memory_type: str
    state: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NamedLink:
    """A link that a memory's record names: `memory` where it is one that the viewer may open."""

    rel: str
    target: str
    url: str
    memory: MemoryTitle | None


@dataclass(frozen=True, slots=True)
class MemoryDetail:
    """A memory and what hangs on it."""

    memory: Memory
    categories: tuple[CategoryNode, ...]
    concepts: tuple[Term, ...]
    entities: tuple[Term, ...]
    links: tuple[NamedLink, ...]
    backlinks: tuple[tuple[str, MemoryTitle], ...]
    supersedes: tuple[MemoryTitle, ...]
    superseded_by: MemoryTitle | None
    relationships: tuple[Relationship, ...]
    events: tuple[AuditEvent, ...]


@dataclass(frozen=True, slots=True)
class Around:
    """The neighbours of a memory in its project, the oldest first."""

    before: tuple[MemoryTitle, ...]
    after: tuple[MemoryTitle, ...]


def memory_detail(viewer: Viewer, memory_id: int) -> MemoryDetail | None:
    """A memory with everything about it, or None where there is none that the viewer may open."""
    found = visible_to(viewer).select_related("project", "session", "batch").defer("terms", "raw")
    memory = found.filter(pk=memory_id).first()
    if memory is None:
        return None
    links = list(MemoryLink.objects.filter(memory_id=memory_id).order_by("ordinal")[:_MOST_LINKS])
    back = list(
        MemoryLink.objects.filter(target_memory_id=memory_id, memory__in=visible_to(viewer))
        .exclude(memory_id=memory_id)
        .order_by("rel", "memory_id")
        .values_list("rel", "memory_id")[:_MOST_BACKLINKS]
    )
    wanted = {link.target_memory_id for link in links} | {pk for _, pk in back} | {memory.superseded_by_id}
    named, supersedes = _titles(viewer, wanted, memory_id)
    categories = category_nodes(memory.category_ids)
    return MemoryDetail(
        memory=memory,
        categories=tuple(sorted(categories.values(), key=lambda node: node.path)),
        concepts=_sorted(concept_terms(memory.concept_ids).values()),
        entities=_sorted(entity_terms(memory.entity_ids).values()),
        links=tuple(NamedLink(x.rel, x.target, x.url, named.get(x.target_memory_id or 0)) for x in links),
        backlinks=tuple((rel, named[pk]) for rel, pk in dict.fromkeys(back) if pk in named),
        supersedes=supersedes,
        superseded_by=named.get(memory.superseded_by_id or 0),
        relationships=tuple(
            Relationship.objects.filter(evidence_ids__contains=[memory_id])
            .select_related("source", "target")
            .order_by("relationship_type", "id")[:_MOST_RELATIONSHIPS]
        ),
        events=tuple(
            AuditEvent.objects.filter(subject_type="memory", subject_id=memory_id).select_related("user", "api_key")[
                :_MOST_EVENTS
            ]
        ),
    )


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
    viewer: Viewer, wanted: Iterable[int | None], memory_id: int
) -> tuple[dict[int, MemoryTitle], tuple[MemoryTitle, ...]]:
    """The memories named by id, and those that this one supersedes, in one statement."""
    ids = [pk for pk in wanted if pk is not None]
    rows = visible_to(viewer).filter(Q(pk__in=ids) | Q(superseded_by_id=memory_id)).order_by("id")
    fields = rows.values_list("id", "title", "memory_type", "state", "created_at", "superseded_by_id")
    titles = [(MemoryTitle(*row[:5]), row[5]) for row in fields[: _MOST_LINKS + 2 * _MOST_BACKLINKS]]
    return {t.id: t for t, _ in titles}, tuple(t for t, newer in titles if newer == memory_id)


def _rows(memories: QuerySet[Memory]) -> list[MemoryTitle]:
    return [MemoryTitle(*row) for row in memories.values_list("id", "title", "memory_type", "state", "created_at")]


def _sorted(terms: Iterable[Term]) -> tuple[Term, ...]:
    return tuple(sorted(terms, key=lambda term: (term.type, term.label.casefold())))
