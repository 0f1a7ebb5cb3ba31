"""What the pages of curation show: a term with its forms, a plan, the log. No request, no writing."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse

from access.viewer import Viewer
from categories.models import Category, Concept, Entity, TagAlias
from curation.forms import VerbForm, forms_of
from curation.models import Curation
from curation.plan import Plan
from curation.queries import curations_seen, labels, query_read, relationships_seen, term_named, terms_seen, who
from curation.working_copy import KINDS, Ref
from explorer.links import Link, explore_url, filter_url
from search.facets import FACET
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
from text.formatting import memories as memories_label
from text.formatting import number

ON_PAGE = 50
# The terms that a browser offers while one is typed; any other can be written out.
OFFERED = 300
SHOWN_LINES = 60
SHOWN_RELATIONS = 30


@dataclass(frozen=True, slots=True)
class TermPage:
    """A term, what is known of it, and what can be done to it."""

    kind: str
    ref: str
    label: str
    count: str
    explore_url: str
    facts: tuple[tuple[str, str], ...]
    forms: tuple[VerbForm, ...]
    offered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanPage:
    """A plan before it is done: what a form sends to do it is in `pairs`."""

    title: str
    memories: str
    figures: tuple[str, ...]
    lines: tuple[Any, ...]
    more_lines: int
    examples: tuple[Link, ...]
    pairs: tuple[tuple[str, str], ...]
    url: str
    back_url: str
    back_label: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class RetagPage:
    """All memories that match a query, and what can be done to them."""

    count: str
    asked: str
    form: VerbForm
    query: str
    url: str
    back_url: str
    offered: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogRow:
    id: int
    title: str
    memories: str
    by: str
    at: datetime
    undone: str


@dataclass(frozen=True, slots=True)
class LogPage:
    rows: tuple[LogRow, ...]
    more_url: str
    kinds: tuple[str, ...]
    name: str
    kind: str
    error: str


def ref_of(kind: str, value: str, viewer: Viewer) -> Ref:
    """The term that an address names: by its number, a tag by its name."""
    return term_named(kind, value if kind == "tag" else f"#{value}", viewer)


def term_url(kind: str, ref: Ref) -> str:
    return reverse("curation:term", args=[kind, str(ref)])


def term_page(kind: str, ref: Ref, viewer: Viewer, forms: list[VerbForm] | None = None) -> TermPage:
    value = str(ref) if kind == "tag" else labels(kind, [int(ref)])[int(ref)]
    count = run(SearchQuery().only(kind, value), viewer, detail=HitDetail.NONE).total
    return TermPage(
        kind=kind,
        ref=str(ref),
        label=value,
        count=memories_label(count),
        explore_url=filter_url(kind, value),
        facts=tuple((name, text) for name, text in _facts(kind, ref, viewer) if text),
        forms=tuple(forms or forms_of(kind, _named(kind, ref))),
        offered=offered(kind, viewer),
    )


def _named(kind: str, ref: Ref) -> str:
    return str(ref) if kind == "tag" else f"#{ref}"


def _facts(kind: str, ref: Ref, viewer: Viewer) -> list[tuple[str, str]]:
    """What is said of a term: of others only those that the viewer sees."""
    if kind == "tag":
        return [("Other names", ", ".join(TagAlias.objects.filter(tag=ref).values_list("alias", flat=True)))]
    pk = int(ref)
    if kind == "category":
        row = Category.objects.get(pk=pk)
        former = ", ".join(row.former_paths.order_by("path").values_list("path", flat=True)[:SHOWN_RELATIONS])
        related = _seen_labels(kind, row.related_ids, viewer)
        return [*_described(row), ("Earlier paths", former), ("Related", related)]
    if kind == "concept":
        concept = Concept.objects.get(pk=pk)
        relations = [(how.capitalize(), getattr(concept, f"{how}_ids")) for how in ("broader", "narrower", "related")]
        return [*_described(concept), *((how, _seen_labels(kind, ids, viewer)) for how, ids in relations)]
    entity = Entity.objects.get(pk=pk)
    return [*_described(entity), ("Relationships", "; ".join(_relationships(entity, viewer)))]


def _described(row: Category | Concept | Entity) -> list[tuple[str, str]]:
    return [("Description", row.description), ("Other names", ", ".join(row.aliases))]


def _seen_labels(kind: str, ids: list[int], viewer: Viewer) -> str:
    seen = terms_seen(kind, ids[:SHOWN_RELATIONS], viewer)
    return ", ".join(sorted(labels(kind, seen).values()))


def _relationships(entity: Entity, viewer: Viewer) -> list[str]:
    """Those that the viewer may know of."""
    facts = relationships_seen(viewer).filter(source=entity).select_related("source", "target")
    return [f"{fact.relationship_type} {fact.target}" for fact in facts[:SHOWN_RELATIONS]]


def offered(kind: str, viewer: Viewer) -> tuple[str, ...]:
    """The terms of a kind that most of the viewer's memories have."""
    answer = run(SearchQuery(), viewer, include_facets=True, facet_limit=OFFERED, detail=HitDetail.NONE)
    facet = next((facet for facet in answer.facets or () if facet.key == kind), None)
    return tuple(str(value.value) for value in facet.values if value.value) if facet and kind in FACET else ()


def plan_page(
    plan: Plan, pairs: list[tuple[str, str]], *, url: str, back_url: str, back_label: str, changed: bool = False
) -> PlanPage:
    return PlanPage(
        title=_to_do(plan.title),
        memories=memories_label(plan.memories) if plan.memories else "No memory",
        figures=tuple(_figure(figure) for figure in plan.figures if figure.moved or figure.collapsed)[:SHOWN_LINES],
        lines=plan.lines[:SHOWN_LINES],
        more_lines=max(0, len(plan.lines) - SHOWN_LINES),
        examples=tuple(
            Link(example.title or f"#{example.id}", reverse("explorer:memory", args=[example.id]))
            for example in plan.examples
        ),
        pairs=(*((key, value) for key, value in pairs if key != "token"), ("token", plan.token)),
        url=url,
        back_url=back_url,
        back_label=back_label,
        changed=changed,
    )


def retag_page(query: str, form: VerbForm, viewer: Viewer) -> RetagPage:
    """Raises CurationRefusedError where the query cannot be read."""
    asked = query_read(query)
    found = run(asked, viewer, detail=HitDetail.NONE)
    return RetagPage(
        count=memories_label(found.total),
        asked=asked.querystring(),
        form=form,
        query=query,
        url=reverse("curation:retag"),
        back_url=explore_url(asked),
        offered=offered("category", viewer),
    )


# What the log says was done, and how the preview of it says what is to be done.
_TO_DO = {
    "Merged": "Merge",
    "Renamed": "Rename",
    "Moved": "Move",
    "Changed": "Change",
    "Related": "Relate",
    "Unrelated": "Unrelate",
    "Added:": "Add:",
    "Removed:": "Remove:",
    "Stated:": "State:",
    "Retagged": "Retag",
}


def _to_do(title: str) -> str:
    first, _, rest = title.partition(" ")
    return f"{_TO_DO.get(first, first)} {rest}"


def _figure(figure: Any) -> str:
    kind = {"category": "in", "concept": "about", "entity": "naming", "tag": "tagged"}[figure.kind]
    if not figure.source:
        return f"{memories_label(figure.moved)} will be {kind} {figure.target}"
    if not figure.target:
        return f"{memories_label(figure.moved)} will no longer be {kind} {figure.source}"
    both = f"; {number(figure.collapsed)} had both and keep one" if figure.collapsed else ""
    comes = "moves" if figure.moved == 1 else "move"
    return f"{memories_label(figure.moved)} {kind} {figure.source} {comes} to {figure.target}{both}"


def log_page(viewer: Viewer, *, before: int | None, kind: str = "", name: str = "", error: str = "") -> LogPage:
    curations = curations_seen(viewer)
    if before is not None:
        curations = curations.filter(pk__lt=before)
    found = list(curations[: ON_PAGE + 1])
    more = f"{reverse('curation:log')}?before={found[ON_PAGE - 1].pk}" if len(found) > ON_PAGE else ""
    return LogPage(tuple(_row(one) for one in found[:ON_PAGE]), more, KINDS, name, kind or KINDS[0], error)


def _row(curation: Curation) -> LogRow:
    undone = f"{curation.undone_by or 'a key'}" if curation.undone_at else ""
    return LogRow(
        id=curation.pk,
        title=curation.title,
        memories=memories_label(curation.memories) if curation.memories else "–",
        by=who(curation),
        at=curation.at,
        undone=undone and f"undone by {undone}",
    )
