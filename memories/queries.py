"""Reads of single memories with their links and neighbours, in a fixed number of statements.

Every memory that is named, linked or listed here comes through `visible_to(viewer)`.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db.models import BigIntegerField, F, OuterRef, Q, QuerySet, Subquery, Value, Window
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Left, RowNumber

from access.viewer import Viewer
from categories.models import Relationship
from categories.names import data_revision, names_at
from categories.queries import CategoryNode, Term
from memories.models import Memory, MemoryLink, MemoryMark
from memories.pins import agents_pinned_for
from memories.properties import OWN_PROPERTIES, stored_properties
from text.wiki_links import NOTE_END, names_of_file


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


MAX_LINKS = 200
_MAX_BACKLINKS = 50
_MAX_RELATIONSHIPS = 50
_TITLE = ("id", "title", "memory_type", "state", "created_at")


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
    """A link of a memory's record. `memory` is its target, if the viewer may open it.

    `aliases` are further names of a note that a text with links between notes may have for it.
    """

    rel: str
    target: str
    url: str
    memory: MemoryTitle | None
    aliases: tuple[str, ...] = ()


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
    properties: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Properties of its record besides the fields of a memory."""
    around: tuple[MemoryTitle, ...] = ()
    """The memory among its neighbours, the oldest first, if they were asked for."""
    marks: tuple[str, ...] = ()
    """Why it may steer a model that reads it, unless somebody has judged it harmless."""
    pinned_for: str = ""
    """The agent for which alone it is pinned; empty if it is pinned for all, or not."""


def memory_details(viewer: Viewer, memory_ids: Collection[int], *, around: int = 0) -> dict[int, MemoryDetail]:
    """The memories that the viewer may open, by id, each with up to `around` neighbours before it and after it.

    Four statements; another one if some have links or successors, one more if these may be links between notes, some if
    a memory is pinned, and those for names that are not cached.
    """
    names = names_at(data_revision())
    found = visible_to(viewer).select_related("project__batch", "session", "batch").defer("terms", "raw")
    unjudged = MemoryMark.objects.filter(memory_id=OuterRef("pk"), harmless_at=None)
    own = KeyTransform(OWN_PROPERTIES, "raw")
    found = found.annotate(marks=Subquery(unjudged.values("marks")), own_properties=own)
    # A number that is too large for an id, from a URL, is an error of a cluster's database.
    memories = found.in_bulk([pk for pk in memory_ids if pk < 2**63])
    ids = list(memories)
    if not ids:
        return {}
    related = _related_by_id(viewer, memories.values(), around)
    wanted = {one.target_id or 0 for group in related.values() for one in group if one.role == _LINK}
    wanted = (wanted | {memory.superseded_by_id or 0 for memory in memories.values()}) - {0}
    titles = {title.id: title for title in titles_of(visible_to(viewer).filter(pk__in=wanted))} if wanted else {}
    aliases = _aliases_of(titles) if any("[[" in memory.content for memory in memories.values()) else {}
    categories = names.category_nodes([pk for memory in memories.values() for pk in memory.category_ids])
    concepts = names.concept_terms([pk for memory in memories.values() for pk in memory.concept_ids])
    entities = names.entity_terms([pk for memory in memories.values() for pk in memory.entity_ids])
    relationships = _relationships(ids)
    pinned = [pk for pk, memory in memories.items() if memory.pinned]
    pinned_for = agents_pinned_for(pinned) if pinned else {}
    return {
        pk: MemoryDetail(
            memory=memory,
            categories=_sorted_nodes(categories, memory.category_ids),
            concepts=_sorted_terms(concepts, memory.concept_ids),
            entities=_sorted_terms(entities, memory.entity_ids),
            links=tuple(
                ResolvedLink(
                    one.rel, target, one.url, titles.get(one.target_id or 0), aliases.get(one.target_id or 0, ())
                )
                for one in related[pk]
                if one.role == _LINK and (target := _shown_target(one, memory.content, titles))
            ),
            # One that links here twice by the same relation is listed once.
            backlinks=tuple(dict.fromkeys((one.rel, one.memory) for one in related[pk] if one.role == _BACKLINK)),
            supersedes=tuple(one.memory for one in related[pk] if one.role == _OLDER)[:MAX_LINKS],
            superseded_by=titles.get(memory.superseded_by_id or 0),
            relationships=tuple(relationships[pk]),
            properties=stored_properties(getattr(memory, "own_properties", None)),
            around=_sorted_titles(memory, (one.memory for one in related[pk] if one.role == _NEAR)) if around else (),
            marks=tuple(memory.marks or ()),
            pinned_for=pinned_for.get(pk, ""),
        )
        for pk, memory in memories.items()
    }


# Characters of a text that is shown in that of another memory.
MOST_EMBEDDED_TEXT = 20_000


@dataclass(frozen=True, slots=True)
class NoteText:
    """The text of a memory that is shown in that of another one, and the memories that it names."""

    title: MemoryTitle
    text: str
    links: Mapping[str, int]


def embedded_texts(viewer: Viewer, memory_ids: Collection[int]) -> dict[int, NoteText]:
    """The texts of memories that the viewer may open, cut at `MOST_EMBEDDED_TEXT`; not those of deleted ones."""
    there = visible_to(viewer).filter(pk__in=memory_ids).exclude(state=Memory.State.DELETED)
    rows = there.values_list(*_TITLE, Left("content", MOST_EMBEDDED_TEXT + 1))
    links: dict[int, dict[str, int]] = defaultdict(dict)
    named = MemoryLink.objects.filter(memory_id__in=memory_ids, target_memory__in=visible_to(viewer))
    for memory_id, target, target_id in named.values_list("memory_id", "target", "target_memory_id"):
        links[memory_id][target] = target_id
    return {row[0]: NoteText(MemoryTitle(*row[:-1]), row[-1], links[row[0]]) for row in rows}


def _aliases_of(memory_ids: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The names that notes give themselves besides their titles, as their records have them."""
    rows = Memory.objects.filter(pk__in=memory_ids, raw__has_key="aliases").values_list("pk", "raw__aliases")
    listed = ((pk, value if isinstance(value, list) else str(value).split(",")) for pk, value in rows)
    return {pk: tuple(one.strip() for one in value if isinstance(one, str)) for pk, value in listed}


def _shown_target(link: "_Related", content: str, titles: Mapping[int, MemoryTitle]) -> str:
    """The name of a link, as far as the viewer may know it."""
    is_known = link.target_id is None or link.target_id in titles
    return link.target if is_known else name_in_text(link.target, content)


def name_in_text(target: str, content: str) -> str:
    """The name of a link to a note that the viewer may not see: its path as far as the text has it, or nothing.

    Imports by earlier versions stored the path of the file for whatever name the text has.
    """
    if not NOTE_END.search(target):
        return target
    return next((name for name in names_of_file(target) if f"[[{name}" in content), "")


_LINK, _BACKLINK, _OLDER, _NEAR = "link", "backlink", "older", "near"


@dataclass(frozen=True, slots=True)
class _Related:
    """Something that belongs to a memory, in a role: a link of its record, or another memory."""

    role: str
    rel: str
    target: str
    url: str
    target_id: int | None
    memory: MemoryTitle


def _related_by_id(viewer: Viewer, memories: Collection[Memory], around: int) -> dict[int, list[_Related]]:
    """The links of each memory and to it, the memories that it supersedes, and its neighbours; one statement."""
    ids = [memory.pk for memory in memories]
    links = MemoryLink.objects.annotate(role=Value(_LINK), place=F("ordinal"))
    back = (
        MemoryLink.objects.filter(target_memory__in=ids, memory__in=visible_to(viewer))
        .exclude(memory_id=F("target_memory_id"))
        .annotate(row=Window(RowNumber(), partition_by="target_memory_id", order_by=["rel", "memory_id"]))
        .filter(row__lte=_MAX_BACKLINKS)
        .annotate(role=Value(_BACKLINK), place=Value(0))
    )
    other = {"place": Value(0), "rel": Value(""), "target": Value(""), "url": Value("")}
    older = (
        visible_to(viewer).filter(superseded_by__in=ids).annotate(role=Value(_OLDER), of=F("superseded_by"), **other)
    )
    near = [part for memory in memories for part in _near_in_time(viewer, memory, around)] if around else []
    columns = ("role", "place", "rel", "target", "url")
    of_link = (*columns, "target_memory_id", *(f"memory__{name}" for name in _TITLE))
    rows = (
        links.filter(memory__in=ids, ordinal__lt=MAX_LINKS)
        .values_list(*of_link)
        .union(
            back.values_list(*of_link),
            older.values_list(*columns, "of", *_TITLE),
            *(part.annotate(role=Value(_NEAR), **other).values_list(*columns, "of", *_TITLE) for part in near),
            all=True,
        )
    )
    found: dict[int, list[_Related]] = defaultdict(list)
    for role, _, rel, target, url, target_id, *title in rows.order_by("place", "rel", "memory__id"):
        found[title[0] if role == _LINK else target_id].append(
            _Related(role, rel, target, url, target_id, MemoryTitle(*title))
        )
    return found


def _near_in_time(viewer: Viewer, memory: Memory, count: int) -> tuple[QuerySet[Memory], QuerySet[Memory]]:
    """The memories created just before and after a memory, in its project."""
    near = visible_to(viewer).filter(project_id=memory.project_id, state__in=["active", "proposed"])
    near = near.annotate(of=Value(memory.pk, BigIntegerField()))
    # Many memories may have the same time, so the id decides. The index is memory_project_created_idx.
    same = Q(created_at=memory.created_at)
    earlier = near.filter(created_at__lte=memory.created_at).exclude(same & Q(id__gte=memory.pk))
    later = near.filter(created_at__gte=memory.created_at).exclude(same & Q(id__lte=memory.pk))
    return earlier.order_by("-created_at", "-id")[:count], later.order_by("created_at", "id")[:count]


def _sorted_titles(memory: Memory, others: Iterable[MemoryTitle]) -> tuple[MemoryTitle, ...]:
    """A memory and others, the oldest first."""
    own = MemoryTitle(memory.pk, memory.title, memory.memory_type, memory.state, memory.created_at)
    return tuple(sorted([own, *others], key=lambda title: (title.created_at, title.id)))


def _relationships(memory_ids: Collection[int]) -> dict[int, list[Relationship]]:
    """The relationships that each memory supports."""
    found: dict[int, list[Relationship]] = defaultdict(list)
    facts = Relationship.objects.filter(evidence_ids__overlap=list(memory_ids)).select_related("source", "target")
    for fact in facts.order_by("relationship_type", "id"):
        for pk in set(fact.evidence_ids) & set(memory_ids):
            if len(found[pk]) < _MAX_RELATIONSHIPS:
                found[pk].append(fact)
    return found


def titles_of(memories: QuerySet[Memory]) -> list[MemoryTitle]:
    return [MemoryTitle(*row) for row in memories.values_list(*_TITLE)]


def _sorted_nodes(nodes: Mapping[int, CategoryNode], ids: Iterable[int]) -> tuple[CategoryNode, ...]:
    return tuple(sorted((nodes[pk] for pk in ids if pk in nodes), key=lambda node: node.path))


def _sorted_terms(terms: Mapping[int, Term], ids: Iterable[int]) -> tuple[Term, ...]:
    return tuple(sorted((terms[pk] for pk in ids if pk in terms), key=lambda term: (term.type, term.label.casefold())))
