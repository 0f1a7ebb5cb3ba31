"""The contexts of the pages of curation: a term with its forms, a preview, the log."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse

from access.viewer import Viewer
from categories.kinds import TERM_KINDS, VOCABULARIES
from categories.local_texts import TermTexts, texts_of
from categories.models import Category, Entity
from categories.queries import aliases_of_tags
from curation.forms import OperationForm, forms_of, term_name
from curation.models import Curation
from curation.plan import Plan
from curation.queries import (
    find_term,
    labels,
    read_log,
    visible_relationships,
    visible_terms,
)
from curation.working_copy import TermRef
from explorer.links import Link, explore_url, filter_url
from explorer.page import Notice, problem_notices
from explorer.sidebar import HiddenField, form_fields
from search.facets import FACET
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
from text.formatting import memories as memories_label
from text.formatting import number
from text.titles import plain_title
from web.validation import Problem

PAGE_SIZE = 50
# Terms that the browser suggests while typing.
MAX_TERM_OPTIONS = 300
SHOWN_LINES = 60
SHOWN_RELATIONS = 30


@dataclass(frozen=True, slots=True)
class TermPage:
    """A term, its properties, and the forms of its operations."""

    kind: str
    ref: str
    label: str
    count: str
    explore_url: str
    facts: tuple[tuple[str, str], ...]
    forms: tuple[OperationForm, ...]
    term_options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The preview of a plan. `pairs` are the hidden fields of the form that applies it."""

    title: str
    memories: str
    heading: str
    """How many memories change, and how many of them a search does not show."""
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
    """The memories that match a query, and the form that retags them."""

    count: str
    search_query: str
    notices: tuple[Notice, ...]
    form: OperationForm | None
    """None if a parameter could not be read: without it, too many memories would match."""
    pairs: tuple[HiddenField, ...]
    url: str
    back_url: str
    term_options: tuple[str, ...]


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


def find_ref(kind: str, value: str, viewer: Viewer) -> TermRef:
    """The term of a URL: a tag by its name, any other by its id."""
    return find_term(kind, term_name(kind, value), viewer)


def term_url(kind: str, ref: TermRef) -> str:
    return reverse("curation:term", args=[kind, str(ref)])


def term_page(kind: str, ref: TermRef, viewer: Viewer, forms: list[OperationForm] | None = None) -> TermPage:
    value = str(ref) if kind == "tag" else labels(kind, [int(ref)])[int(ref)]
    count = run(SearchQuery().only(kind, value), viewer, detail=HitDetail.NONE).total
    return TermPage(
        kind=kind,
        ref=str(ref),
        label=value,
        count=memories_label(count),
        explore_url=filter_url(kind, value),
        facts=tuple((name, text) for name, text in _facts(kind, ref, viewer) if text),
        forms=tuple(forms or forms_of(kind, ref)),
        term_options=term_options(kind, viewer),
    )


def _facts(kind: str, ref: TermRef, viewer: Viewer) -> list[tuple[str, str]]:
    if kind == "tag":
        return [("Other names", ", ".join(aliases_of_tags([str(ref)], viewer.project_ids).get(str(ref), ())))]
    vocabulary = VOCABULARIES[kind]
    row: Any = vocabulary.model._default_manager.get(pk=ref)
    projects = viewer.project_ids
    local = texts_of(kind, [int(ref)], projects).get(int(ref), TermTexts())
    facts = [
        ("Description", local.described(row.description, projects)),
        ("Other names", ", ".join(local.named(row.name, row.aliases))),
    ]
    if isinstance(row, Category):
        paths = sorted({*row.former_paths.values_list("path", flat=True), *local.paths})
        facts.append(("Earlier paths", ", ".join(paths[:SHOWN_RELATIONS])))
    if isinstance(row, Entity):
        facts.append(("Relationships", "; ".join(_relationship_labels(row, viewer))))
    for column in sorted(vocabulary.relations):
        label = column.removesuffix("_ids").capitalize()
        facts.append((label, _visible_labels(kind, getattr(row, column), viewer)))
    return facts


def _visible_labels(kind: str, ids: list[int], viewer: Viewer) -> str:
    visible = visible_terms(kind, ids[:SHOWN_RELATIONS], viewer)
    return ", ".join(sorted(labels(kind, visible).values()))


def _relationship_labels(entity: Entity, viewer: Viewer) -> list[str]:
    facts = visible_relationships(viewer).filter(source=entity).select_related("source", "target")
    return [f"{fact.relationship_type} {fact.target}" for fact in facts[:SHOWN_RELATIONS]]


def term_options(kind: str, viewer: Viewer) -> tuple[str, ...]:
    """The terms of a kind with the most visible memories."""
    answer = run(SearchQuery(), viewer, include_facets=True, facet_limit=MAX_TERM_OPTIONS, detail=HitDetail.NONE)
    facet = next((facet for facet in answer.facets or () if facet.key == kind), None)
    return tuple(str(value.value) for value in facet.values if value.value) if facet and kind in FACET else ()


def plan_page(
    plan: Plan, pairs: list[tuple[str, str]], *, url: str, back_url: str, back_label: str, changed: bool = False
) -> PlanPage:
    return PlanPage(
        title=_to_do(plan.title),
        memories=memories_label(plan.memories) if plan.memories else "No memory",
        heading=_plan_heading(plan),
        figures=tuple(_figure(figure) for figure in plan.figures if figure.moved or figure.collapsed)[:SHOWN_LINES],
        lines=plan.lines[:SHOWN_LINES],
        more_lines=max(0, len(plan.lines) - SHOWN_LINES),
        examples=tuple(
            Link(plain_title(example.title) or f"#{example.id}", reverse("explorer:memory", args=[example.id]))
            for example in plan.examples
        ),
        pairs=(*((key, value) for key, value in pairs if key != "token"), ("token", plan.token)),
        url=url,
        back_url=back_url,
        back_label=back_label,
        changed=changed,
    )


def _plan_heading(plan: Plan) -> str:
    changing = f"{memories_label(plan.memories)} {'changes' if plan.memories == 1 else 'change'}"
    hidden = f", {number(plan.hidden)} of them archived, superseded or deleted" if plan.hidden else ""
    return f"{changing}{hidden}" if plan.memories else "No memory changes"


def retag_page(query: SearchQuery, form: OperationForm, viewer: Viewer, problems: Iterable[Problem]) -> RetagPage:
    """The page to retag all memories that match a query. With problems it only names them."""
    notices = problem_notices(problems)
    return RetagPage(
        count="" if notices else memories_label(run(query, viewer, detail=HitDetail.NONE).total),
        search_query=query.querystring(),
        notices=notices,
        form=None if notices else form,
        pairs=form_fields(query),
        url=reverse("curation:retag"),
        back_url=explore_url(query),
        term_options=() if notices else term_options("category", viewer),
    )


# First words of titles in the log, and in the preview.
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
    "Deleted": "Delete",
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
    curations, has_more = read_log(viewer, PAGE_SIZE, before)
    return LogPage(
        rows=tuple(_row(curation) for curation in curations),
        more_url=f"{reverse('curation:log')}?before={curations[-1].pk}" if has_more else "",
        kinds=TERM_KINDS,
        name=name,
        kind=kind or TERM_KINDS[0],
        error=error,
    )


def _row(curation: Curation) -> LogRow:
    undone = f"{curation.undone_by or 'a key'}" if curation.undone_at else ""
    return LogRow(
        id=curation.pk,
        title=curation.title,
        memories=memories_label(curation.memories) if curation.memories else "–",
        by=curation.by,
        at=curation.at,
        undone=undone and f"undone by {undone}",
    )
