"""Reads of suggestions: those that a viewer may see, a page of them, and their names.

A suggestion about memories is seen by who sees their project; one about names by who sees memories of both.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.db.models import BigIntegerField, Count, F, Func, Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform

from access.viewer import Viewer, visible_to
from categories.queries import category_nodes, concept_terms, entity_terms
from categories.suggestions.models import Suggestion
from categories.suggestions.proposals import MEMORY_KINDS, Kind
from categories.suggestions.requests import ReviewQuery
from memories.models import Memory, Project

PAGE = 25


@dataclass(frozen=True, slots=True)
class Named:
    """What a suggestion is about, or what it proposes. `id` is None for a tag, and for what is yet to be made."""

    kind: str
    id: int | None
    label: str
    type: str = ""
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownSuggestion:
    """A suggestion with its names."""

    row: Suggestion
    subject: Named
    target: Named


def suggestions_visible(viewer: Viewer) -> QuerySet[Suggestion]:
    """The one queryset that decides which suggestions a viewer may see."""
    if viewer.project_ids is None:
        return Suggestion.objects.all()
    categories = _held(viewer, "category_path_ids", BigIntegerField())
    tags = _held(viewer, "tags", TextField())
    concepts = _held(viewer, "concept_ids", BigIntegerField())
    entities = _held(viewer, "entity_ids", BigIntegerField())
    return Suggestion.objects.alias(
        from_tag=KeyTextTransform("from", "proposal"), into_tag=KeyTextTransform("into", "proposal")
    ).filter(
        # What was proposed may have come from other projects, or be in none of the viewer's any more.
        Q(
            Q(kind__in=[Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED])
            | Q(kind=Kind.CATEGORY, evidence__elsewhere=False, target_id__in=categories)
            | Q(Q(target_id=None) | Q(target_id__in=concepts), kind=Kind.CONCEPT),
            project_id__in=viewer.project_ids,
        )
        | Q(kind=Kind.ENTITY_DUPLICATE, subject_id__in=entities, target_id__in=entities)
        | Q(kind=Kind.CONCEPT_DUPLICATE, subject_id__in=concepts, target_id__in=concepts)
        | Q(kind=Kind.TAG_DUPLICATE, from_tag__in=tags, into_tag__in=tags)
    )


def _held(viewer: Viewer, column: str, field: "BigIntegerField[Any, Any] | TextField[Any, Any]") -> QuerySet[Any, Any]:
    """The values of an array column that memories of the viewer have."""
    return visible_to(viewer).annotate(held=Func(F(column), function="unnest", output_field=field)).values("held")


def suggestions_matching(viewer: Viewer, query: ReviewQuery) -> QuerySet[Suggestion]:
    """Those of a kind, a project, a state and from a confidence on; the surest first."""
    rows = suggestions_visible(viewer).filter(confidence__gte=query.confidence, state=query.state)
    if query.kind:
        rows = rows.filter(kind=query.kind)
    if query.project:
        rows = rows.filter(project__slug=query.project)
    return rows.select_related("project", "decided_by").order_by("-confidence", "id")


def counts_by_kind(viewer: Viewer, query: ReviewQuery) -> dict[str, int]:
    """How many of each kind match."""
    rows = suggestions_matching(viewer, query.but(kind=""))
    return dict(rows.order_by().values_list("kind").annotate(n=Count("id")))


@dataclass(frozen=True, slots=True)
class Queue:
    """A page of suggestions of one kind, how many there are of each, and the one that is looked at."""

    query: ReviewQuery
    rows: tuple[ShownSuggestion, ...]
    counts: dict[str, int]
    current: ShownSuggestion | None


def queue_of(viewer: Viewer, query: ReviewQuery, item: int | None) -> Queue:
    """The page that was asked for; of no kind in particular, that of the first which there are any of."""
    counts = counts_by_kind(viewer, query)
    if not query.kind:
        query = query.model_copy(
            update={"kind": next((kind for kind in Kind if counts.get(kind)), Kind.CATEGORY).value}
        )
    start = (query.page - 1) * PAGE
    rows = with_names(suggestions_matching(viewer, query)[start : start + PAGE])
    current = next((one for one in rows if one.row.pk == item), None)
    if current is None and item is not None:
        # One that was decided meanwhile is still shown where it is asked for.
        current = suggestion_shown(viewer, item)
        current = current if current and current.row.kind == query.kind else None
    return Queue(query, tuple(rows), counts, current or next(iter(rows), None))


def projects_of(viewer: Viewer) -> list[Project]:
    """The projects that the viewer may see, by name."""
    projects = Project.objects.order_by("name")
    return list(projects if viewer.project_ids is None else projects.filter(pk__in=viewer.project_ids))


def suggestion_shown(viewer: Viewer, suggestion_id: int) -> ShownSuggestion | None:
    """A suggestion with its names, or None where there is none that the viewer may see."""
    rows = suggestions_visible(viewer).filter(pk=suggestion_id).select_related("project", "decided_by")
    return next(iter(with_names(rows)), None)


def with_names(rows: Iterable[Suggestion]) -> list[ShownSuggestion]:
    """Suggestions with the names that their rows have now, in a fixed number of statements."""
    them = list(rows)
    ids = {kind: {pk for one in them if one.kind == kind for pk in (one.subject_id, one.target_id)} for kind in Kind}
    memory_ids = {one.subject_id for one in them if one.kind in MEMORY_KINDS}
    memory_ids |= ids[Kind.MEMORY_DUPLICATE] | ids[Kind.SUPERSEDED]
    titles = dict(Memory.objects.filter(pk__in=[pk for pk in memory_ids if pk is not None]).values_list("pk", "title"))
    categories = category_nodes([one.target_id for one in them if one.kind == Kind.CATEGORY and one.target_id])
    concepts = concept_terms([pk for pk in ids[Kind.CONCEPT] | ids[Kind.CONCEPT_DUPLICATE] if pk is not None])
    entities = entity_terms([pk for pk in ids[Kind.ENTITY_DUPLICATE] if pk is not None])

    def named(row: Suggestion, pk: int | None, said: str) -> Named:
        if row.kind == Kind.TAG_DUPLICATE:
            return Named("tag", None, said)
        if row.kind in (Kind.CONCEPT_DUPLICATE, Kind.ENTITY_DUPLICATE):
            terms = concepts if row.kind == Kind.CONCEPT_DUPLICATE else entities
            kind = "concept" if row.kind == Kind.CONCEPT_DUPLICATE else "entity"
            term = terms.get(pk or 0)
            return Named(kind, pk, term.label if term else said, term.type if term else "")
        return Named("memory", pk, titles.get(pk or 0) or f"Memory {pk}")

    def target(row: Suggestion) -> Named:
        if row.kind == Kind.CATEGORY:
            node = categories.get(row.target_id or 0)
            return Named("category", row.target_id, node.path if node else "", names=node.names if node else ())
        if row.kind == Kind.CONCEPT:
            term = concepts.get(row.target_id or 0)
            label = term.label if term else str(row.proposal.get("concept", ""))
            return Named("concept", row.target_id, label, term.type if term else row.proposal.get("concept_type", ""))
        return named(row, row.target_id, str(row.proposal.get("into", "")))

    return [
        ShownSuggestion(row, named(row, row.subject_id, str(row.proposal.get("from", ""))), target(row)) for row in them
    ]
