"""Reads of single memories with their links and neighbours, in a fixed number of statements.

Every memory that is named, linked or listed here comes through `visible_to(viewer)`.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Q, QuerySet, Window
from django.db.models.functions import RowNumber

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


# The columns that hold what a memory says; others are derived from them, or say how it came here.
_VERSIONED = [
    column.attname
    for column in Memory._meta.concrete_fields
    if column.attname not in {"content", "terms", "raw", "record_hash", "batch_id", "category_path_ids"}
]


def memory_version(memory: Memory) -> str:
    """A word that differs whenever anything of the memory has changed."""
    # The content counts by its hash; links by name by `updated_at`, since only services change them.
    values = [getattr(memory, name) for name in _VERSIONED]
    return hashlib.sha256(repr(values).encode(errors="surrogatepass")).hexdigest()[:20]


_MAX_LINKS = 200
_MAX_BACKLINKS = 50
_MAX_RELATIONSHIPS = 50


@dataclass(frozen=True, slots=True)
class MemoryTitle:
    """A memory as other pages list it."""

    id: int
    title: str
    memory_type: str
    state: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ResolvedLink:
    """A link of a memory's record. `memory` is its target, if the viewer may open it."""

    rel: str
    target: str
    url: str
    memory: MemoryTitle | None


@dataclass(frozen=True, slots=True)
class MemoryDetail:
    """A memory and everything linked to it."""

    memory: Memory
    categories: tuple[CategoryNode, ...]
    concepts: tuple[Term, ...]
    entities: tuple[Term, ...]
    links: tuple[ResolvedLink, ...]
    backlinks: tuple[tuple[str, MemoryTitle], ...]
    supersedes: tuple[MemoryTitle, ...]
    superseded_by: MemoryTitle | None
    relationships: tuple[Relationship, ...]


@dataclass(frozen=True, slots=True)
class Around:
    """The neighbours of a memory in its project, the oldest first."""

    before: tuple[MemoryTitle, ...]
    after: tuple[MemoryTitle, ...]


def memory_details(viewer: Viewer, memory_ids: Collection[int]) -> dict[int, MemoryDetail]:
    """The memories that the viewer may open, by id. Eight statements."""
    found = visible_to(viewer).select_related("project", "session", "batch").defer("terms", "raw")
    # A number that is too large for an id, from a URL, is an error of a cluster's database.
    memories = found.in_bulk([pk for pk in memory_ids if pk < 2**63])
    ids = list(memories)
    if not ids:
        return {}
    links, backlinks = _links(ids), _backlinks(viewer, ids)
    wanted = {link.target_memory_id for group in links.values() for link in group}
    wanted |= {pk for group in backlinks.values() for _, pk in group} | {m.superseded_by_id for m in memories.values()}
    titles, older = _titles(viewer, wanted, ids)
    categories = category_nodes([pk for memory in memories.values() for pk in memory.category_ids])
    concepts = concept_terms([pk for memory in memories.values() for pk in memory.concept_ids])
    entities = entity_terms([pk for memory in memories.values() for pk in memory.entity_ids])
    relationships = _relationships(ids)
    return {
        pk: MemoryDetail(
            memory=memory,
            categories=_sorted_nodes(categories, memory.category_ids),
            concepts=_sorted_terms(concepts, memory.concept_ids),
            entities=_sorted_terms(entities, memory.entity_ids),
            links=tuple(ResolvedLink(x.rel, x.target, x.url, titles.get(x.target_memory_id or 0)) for x in links[pk]),
            backlinks=tuple((rel, titles[k]) for rel, k in backlinks[pk] if k in titles),
            supersedes=tuple(older[pk]),
            superseded_by=titles.get(memory.superseded_by_id or 0),
            relationships=tuple(relationships[pk]),
        )
        for pk, memory in memories.items()
    }


def _links(memory_ids: Collection[int]) -> dict[int, list[MemoryLink]]:
    links: dict[int, list[MemoryLink]] = defaultdict(list)
    for link in MemoryLink.objects.filter(memory__in=memory_ids, ordinal__lt=_MAX_LINKS).order_by("ordinal"):
        links[link.memory_id].append(link)
    return links


def _backlinks(viewer: Viewer, memory_ids: Collection[int]) -> dict[int, list[tuple[str, int]]]:
    """The first links to each memory, as relation and source."""
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
    """The relationships that each memory supports."""
    found: dict[int, list[Relationship]] = defaultdict(list)
    facts = Relationship.objects.filter(evidence_ids__overlap=list(memory_ids)).select_related("source", "target")
    for fact in facts.order_by("relationship_type", "id"):
        for pk in set(fact.evidence_ids) & set(memory_ids):
            if len(found[pk]) < _MAX_RELATIONSHIPS:
                found[pk].append(fact)
    return found


def timeline_around(viewer: Viewer, memory: Memory, before: int = 5, after: int = 5) -> Around:
    """The memories created just before and after a memory, in its project."""
    near = visible_to(viewer).filter(project_id=memory.project_id, state__in=["active", "proposed"])
    # Many memories may have the same time, so the id decides. The index is memory_project_created_idx.
    same = Q(created_at=memory.created_at)
    earlier = near.filter(created_at__lte=memory.created_at).exclude(same & Q(id__gte=memory.pk))
    later = near.filter(created_at__gte=memory.created_at).exclude(same & Q(id__lte=memory.pk))
    return Around(
        before=tuple(reversed(titles_of(earlier.order_by("-created_at", "-id")[:before]))),
        after=tuple(titles_of(later.order_by("created_at", "id")[:after])),
    )


def _titles(
    viewer: Viewer, wanted: Iterable[int | None], memory_ids: Collection[int]
) -> tuple[dict[int, MemoryTitle], dict[int, list[MemoryTitle]]]:
    """The memories by id, and the memories that each of `memory_ids` supersedes, in one statement."""
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


def titles_of(memories: QuerySet[Memory]) -> list[MemoryTitle]:
    return [MemoryTitle(*row) for row in memories.values_list("id", "title", "memory_type", "state", "created_at")]


def _sorted_nodes(nodes: Mapping[int, CategoryNode], ids: Iterable[int]) -> tuple[CategoryNode, ...]:
    return tuple(sorted((nodes[pk] for pk in ids if pk in nodes), key=lambda node: node.path))


def _sorted_terms(terms: Mapping[int, Term], ids: Iterable[int]) -> tuple[Term, ...]:
    return tuple(sorted((terms[pk] for pk in ids if pk in terms), key=lambda term: (term.type, term.label.casefold())))
