"""What speaks for a suggestion, and what it is about: of all that only what the viewer may see."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from django.db.models import Count, Max, QuerySet

from access.viewer import Viewer
from categories.models import Concept, Entity
from curation.suggestions.models import Suggestion
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import Named, ShownSuggestion, suggestions_visible, with_names
from memories.models import Memory
from memories.queries import visible_to

# Of the memories that speak for something, so many are shown.
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory that is looked at, or that speaks for something."""

    id: int
    title: str
    memory_type: str
    state: str
    project: str
    created_at: datetime
    content: str = ""
    tags: tuple[str, ...] = ()
    similarity: float | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """One of two names: how often the viewer's memories have it, and the newest of them."""

    named: Named
    description: str
    aliases: tuple[str, ...]
    count: int
    newest: datetime | None
    memories: tuple[ShownMemory, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is shown beside a suggestion."""

    memory: ShownMemory | None = None
    other: ShownMemory | None = None
    speakers: tuple[ShownMemory, ...] = ()
    speaking: int = 0
    sides: tuple[Side, Side] | tuple[()] = ()
    alternatives: tuple[ShownSuggestion, ...] = ()


def evidence_of(viewer: Viewer, shown: ShownSuggestion) -> Evidence:
    """What is shown beside a suggestion, of what the viewer may see."""
    row = shown.row
    if row.kind in (Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED):
        memories = _memories(viewer, [row.subject_id, row.target_id], content=True)
        return Evidence(memory=memories.get(row.subject_id or 0), other=memories.get(row.target_id or 0))
    if row.kind == Kind.CATEGORY:
        memory = _memories(viewer, [row.subject_id], content=True).get(row.subject_id or 0)
        near = dict(row.evidence.get("neighbours", []))
        found = _memories(viewer, list(near)[:_SHOWN])
        speakers = [replace(found[pk], similarity=near[pk]) for pk in list(near)[:_SHOWN] if pk in found]
        speaking = visible_to(viewer).filter(pk__in=list(near)).count()
        return Evidence(
            memory=memory, speakers=tuple(speakers), speaking=speaking, alternatives=_alternatives(viewer, row)
        )
    if row.kind == Kind.CONCEPT:
        memory = _memories(viewer, [row.subject_id], content=True).get(row.subject_id or 0)
        others = _with_concept(viewer, row)
        having = others.exclude(pk=row.subject_id or 0).order_by("-created_at", "-id")
        return Evidence(
            memory=memory,
            speakers=tuple(_memories(viewer, list(having.values_list("pk", flat=True)[:_SHOWN])).values()),
            speaking=having.count(),
            alternatives=_alternatives(viewer, row),
        )
    return Evidence(sides=(_side(viewer, row, shown.subject), _side(viewer, row, shown.target)))


def _with_concept(viewer: Viewer, row: Suggestion) -> QuerySet[Memory]:
    """Those of the memory's project that have the concept, or of a new one those that it is proposed for as well."""
    memories = visible_to(viewer).filter(project_id=row.project_id or 0)
    if row.target_id is not None:
        return memories.filter(concept_ids__contains=[row.target_id])
    same = Suggestion.objects.filter(
        kind=Kind.CONCEPT, project_id=row.project_id or 0, proposal__concept=row.proposal.get("concept")
    )
    return memories.filter(pk__in=suggestions_visible(viewer, same).values("subject_id"))


def _alternatives(viewer: Viewer, row: Suggestion) -> tuple[ShownSuggestion, ...]:
    """What else is proposed for the same memory."""
    others = Suggestion.objects.filter(kind=row.kind, subject_id=row.subject_id, state=Suggestion.State.OPEN)
    seen = suggestions_visible(viewer, others.exclude(pk=row.pk))
    return tuple(with_names(seen.order_by("-confidence", "id")[:_SHOWN]))


def _memories(viewer: Viewer, ids: Collection[int | None], *, content: bool = False) -> dict[int, ShownMemory]:
    """Some memories, in the order of the ids."""
    columns = ["pk", "title", "memory_type", "state", "project__slug", "created_at"]
    columns += ["content", "tags"] if content else []
    rows = visible_to(viewer).filter(pk__in=[pk for pk in ids if pk is not None]).values_list(*columns)
    found = {}
    for pk, title, *rest in rows:
        more = {"content": rest[4], "tags": tuple(rest[5])} if content else {}
        found[pk] = ShownMemory(pk, title or f"Memory {pk}", *rest[:4], **more)
    return {pk: found[pk] for pk in ids if pk is not None and pk in found}


def _side(viewer: Viewer, row: Suggestion, named: Named) -> Side:
    """What the viewer's memories say of one of two names."""
    described: Concept | Entity | None = None
    if row.kind == Kind.TAG_DUPLICATE:
        memories = visible_to(viewer).filter(tags__contains=[named.label])
    elif row.kind == Kind.ENTITY_DUPLICATE:
        memories = visible_to(viewer).filter(entity_ids__contains=[named.id])
        described = Entity.objects.filter(pk=named.id or 0).first()
    else:
        memories = visible_to(viewer).filter(concept_ids__contains=[named.id])
        described = Concept.objects.filter(pk=named.id or 0).first()
    told = memories.aggregate(n=Count("pk"), newest=Max("created_at"))
    newest = list(memories.order_by("-created_at", "-pk").values_list("pk", flat=True)[:_SHOWN])
    return Side(
        named=named,
        description=described.description if described else "",
        aliases=tuple(described.aliases) if described else (),
        count=told["n"],
        newest=told["newest"],
        memories=tuple(_memories(viewer, newest).values()),
    )
