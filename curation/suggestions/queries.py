"""Reads of suggestions: those that a viewer may see, a page of them, and their names.

A suggestion about memories is seen by who sees their project; one about names by who sees memories of both.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet
from django.db.models.fields.json import KeyTextTransform

from access.viewer import Viewer
from categories.queries import category_nodes, concept_terms, entity_terms
from curation.suggestions.models import Suggestion
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import MEMORY_KINDS, NAME_KINDS, Kind
from memories.models import Memory, Project
from search.engines import with_engine
from search.engines.base import Engine, EngineQuery, Value

PAGE = 25

_FROM, _INTO = KeyTextTransform("from", "proposal"), KeyTextTransform("into", "proposal")
# What a suggestion names that its viewer may not know of, by the facet that it is a value of.
_FACETS = {
    Kind.CATEGORY: "category",
    Kind.CONCEPT: "concept",
    Kind.ENTITY_DUPLICATE: "entity",
    Kind.CONCEPT_DUPLICATE: "concept",
    Kind.TAG_DUPLICATE: "tag",
}


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


def suggestions_visible(viewer: Viewer, among: QuerySet[Suggestion]) -> QuerySet[Suggestion]:
    """Those of some suggestions that a viewer may see: the one place that decides it."""
    if viewer.project_ids is None:
        return among
    seen = _seen(viewer, among)
    tags, concepts, entities = seen[Kind.TAG_DUPLICATE], seen[Kind.CONCEPT_DUPLICATE], seen[Kind.ENTITY_DUPLICATE]
    return among.alias(from_tag=_FROM, into_tag=_INTO).filter(
        # What was proposed may have come from other projects, or be in none of the viewer's any more.
        Q(
            Q(kind__in=[Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED])
            | Q(kind=Kind.CATEGORY, evidence__elsewhere=False, target_id__in=seen[Kind.CATEGORY])
            | Q(Q(target_id=None) | Q(target_id__in=seen[Kind.CONCEPT]), kind=Kind.CONCEPT),
            project_id__in=viewer.project_ids,
        )
        | Q(kind=Kind.ENTITY_DUPLICATE, subject_id__in=entities, target_id__in=entities)
        | Q(kind=Kind.CONCEPT_DUPLICATE, subject_id__in=concepts, target_id__in=concepts)
        | Q(kind=Kind.TAG_DUPLICATE, from_tag__in=tags, into_tag__in=tags)
    )


def _seen(viewer: Viewer, among: QuerySet[Suggestion]) -> dict[Kind, set[Value]]:
    """Of all that some suggestions name, by their kind, what memories of the viewer have: the engine has it at hand."""
    projects = tuple(sorted(viewer.project_ids or ()))
    named: dict[Kind, set[Value]] = {kind: set() for kind in _FACETS}
    about = among.filter(kind__in=[Kind.CATEGORY, Kind.CONCEPT], project_id__in=projects, target_id__isnull=False)
    for kind, target_id in about.order_by().values_list("kind", "target_id").distinct():
        named[Kind(kind)].add(target_id or 0)
    names = among.filter(kind__in=NAME_KINDS).order_by().values_list("kind", "subject_id", "target_id", _FROM, _INTO)
    for kind, subject_id, target_id, gone, into in names:
        named[Kind(kind)] |= {gone, into} if kind == Kind.TAG_DUPLICATE else {subject_id, target_id}

    def present(engine: Engine) -> dict[Kind, set[Value]]:
        plan = EngineQuery(project_ids=projects)
        return {
            kind: engine.values_present(plan, _FACETS[kind], sorted(values, key=str)) if values else set()
            for kind, values in named.items()
        }

    return with_engine(present, viewer)


def suggestions_matching(viewer: Viewer, query: ReviewQuery) -> QuerySet[Suggestion]:
    """Those of a kind, a project, a state and from a confidence on; the surest first."""
    rows = Suggestion.objects.filter(confidence__gte=query.confidence, state=query.state)
    if query.kind:
        rows = rows.filter(kind=query.kind)
    if query.project:
        rows = rows.filter(project__slug=query.project)
    return suggestions_visible(viewer, rows).select_related("project", "decided_by").order_by("-confidence", "id")


def counts_by_kind(viewer: Viewer, query: ReviewQuery) -> dict[str, int]:
    """Maximum number of each kind match."""
    rows = suggestions_matching(viewer, query.with_(kind=""))
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
    rows = suggestions_visible(viewer, Suggestion.objects.filter(pk=suggestion_id))
    return next(iter(with_names(rows.select_related("project", "decided_by"))), None)


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
