"""The contexts of the pages of curation: a term with its forms, a preview, the log."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any
from urllib.parse import urlencode

from django.http import QueryDict
from django.urls import reverse

from access.viewer import Viewer
from categories.kinds import TERM_KINDS, VOCABULARIES
from categories.local_texts import TermTexts, texts_of
from categories.models import Category, Concept, Entity
from categories.queries import aliases_of_tags, category_nodes
from categories.text_projects import AliasProjects, readable_aliases, readable_description, row_holds
from curation.forms import OperationForm, RetagForm, SplitForm, forms_of, term_name
from curation.memory_edits import MOST_MERGED
from curation.models import Curation
from curation.overview import Overview, build_overview
from curation.plan import Plan
from curation.queries import find_term, labels, read_log, visible_relationships, visible_terms
from curation.working_copy import TermRef
from explorer.explore.page import Notice, problem_notices
from explorer.explore.sidebar import HiddenField, criteria, form_fields
from explorer.links import explore_url, filter_url
from memories.models import Memory, Project
from memories.queries import visible_to
from search.facets import Facet
from search.query import FacetScope, SearchQuery
from search.result import Hit, HitDetail
from search.run import run
from text.formatting import listed, number
from text.formatting import memories as memories_label
from web.validation import Problem

PAGE_SIZE = 50
# The last changes beside the tasks of curation.
_BESIDE_TASKS = 8
SHOWN_LINES = 60
SHOWN_RELATIONS = 30


_TYPE = "Type"
# Terms as label, value and number of memories.
Held = Sequence[tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class TermPage:
    """A term, its properties, and the forms of its operations."""

    kind: str
    ref: str
    label: str
    count: str
    samples: tuple[Hit, ...]
    """The newest of its memories."""
    ticked: frozenset[str]
    """The numbers of those that are ticked for a split."""
    zone: tzinfo
    explore_url: str
    facts: tuple[tuple[str, str], ...]
    other_names: tuple[str, ...]
    """The aliases, and former paths, that can be removed."""
    forms: tuple[OperationForm, ...]
    is_refused: bool
    """Whether one of the forms was submitted and has errors, which then have the focus."""
    next_url: str
    """Where a change returns to; empty for the log."""
    other_numbers: str
    """The numbers of chosen memories that are not among the newest."""
    removal_url: str
    """The preview that takes a tag from its memories; empty for other kinds."""

    @property
    def type(self) -> str:
        """The type of an entity, which is shown with its name."""
        return dict(self.facts).get(_TYPE, "")

    @property
    def other_facts(self) -> tuple[tuple[str, str], ...]:
        return tuple(fact for fact in self.facts if fact[0] != _TYPE)

    @property
    def has_split(self) -> bool:
        """Whether a form lists the newest memories already."""
        return any(form.verb == "split" for form in self.forms)


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The preview of a plan in sentences. `pairs` are the hidden fields of the form that applies it."""

    plan: Plan
    title: str
    button: str
    heading: str
    """How many memories change, and how many of them a search does not show."""
    figures: tuple[str, ...]
    staying: str
    """How many of the chosen memories stay as they are, and why."""
    pairs: tuple[tuple[str, str], ...]
    url: str
    back_url: str
    back_label: str
    changed: bool = False


@dataclass(frozen=True, slots=True)
class EditPart:
    """The fields for one kind of term. `set` replaces all terms, if the kind has such a field."""

    kind: str
    label: str
    is_open: bool
    held: Held
    removed: frozenset[str]
    remove_name: str
    add: Any
    set: Any


@dataclass(frozen=True, slots=True)
class SplitPart:
    """The form that leads to a split: the kinds of terms to choose from, each with its label and its terms."""

    terms: tuple[tuple[str, str, Held], ...]
    chosen: tuple[str, str] | None
    """The kind and the value of the term that is chosen at first."""
    is_open: bool


@dataclass(frozen=True, slots=True)
class RetagPage:
    """Chosen memories, and the form that edits them. Without a form the choice could not be read."""

    heading: str
    which: str
    notices: tuple[Notice, ...]
    form: OperationForm | None
    """None if a parameter could not be read: without it, too many memories would match."""
    parts: tuple[EditPart, ...]
    state_is_open: bool
    kept: Sequence[Memory]
    """The memories to choose from, if few enough are chosen to be merged."""
    merge_is_open: bool
    split: SplitPart | None
    """None for viewers who may not curate, and without terms to split."""
    samples: Sequence[tuple[int, str]]
    """The numbers and titles of some of them."""
    pairs: tuple[HiddenField, ...]
    back_url: str
    zone: tzinfo


@dataclass(frozen=True, slots=True)
class LogPage:
    rows: Sequence[Curation]
    more_url: str
    newest_url: str
    """The first page; empty on it."""
    search: str
    kinds: tuple[str, ...]
    name: str
    kind: str
    error: str
    overview: Overview | None
    """The tasks of curators; None on further pages of the log."""


def find_ref(kind: str, value: str, viewer: Viewer) -> TermRef:
    """The term of a URL: a tag by its name, any other by its id."""
    return find_term(kind, term_name(kind, value), viewer)


def term_url(kind: str, ref: TermRef, next_url: str = "") -> str:
    """The page of a term. `next_url` is where a change made there returns to."""
    page = reverse("curation:term", args=[kind, str(ref)])
    return f"{page}?{urlencode({'next': next_url})}" if next_url else page


def term_page(
    kind: str, ref: TermRef, viewer: Viewer, forms: list[OperationForm] | None = None, next_url: str = ""
) -> TermPage:
    forms = forms or forms_of(kind, ref)
    facts = tuple((name, text) for name, text in _facts(kind, ref, viewer) if text)
    ticked = next((form.ticked() for form in forms if isinstance(form, SplitForm)), frozenset[str]())
    value = str(ref) if kind == "tag" else labels(kind, [int(ref)])[int(ref)]
    found = run(SearchQuery().only(kind, value).with_(page_size=_TICKED), viewer, detail=HitDetail.INDEX)
    label = _full_name(kind, ref, value)
    for form in forms:
        if form.verb == "rename":
            form.initial["name"] = label.rpartition(" / ")[2] if kind == "category" else label
    return TermPage(
        kind=kind,
        ref=str(ref),
        label=label,
        count=memories_label(found.total),
        samples=found.hits,
        ticked=ticked,
        zone=viewer.timezone,
        explore_url=filter_url(kind, value),
        facts=facts,
        other_names=tuple(_other_names(kind, ref, viewer)),
        forms=tuple(forms),
        is_refused=any(form.is_bound for form in forms),
        next_url=next_url,
        other_numbers=" ".join(sorted(ticked - {str(hit.id) for hit in found.hits})),
        removal_url=_removal_url(str(ref), next_url) if kind == "tag" and "write" in viewer.scopes else "",
    )


def _removal_url(tag: str, next_url: str) -> str:
    # The page of a tag that nothing has any more would find nothing.
    asked = {"tag": tag, "next": next_url or reverse("curation:log")}
    return f"{reverse('curation:remove_tags')}?{urlencode(asked)}"


def _full_name(kind: str, ref: TermRef, value: str) -> str:
    """As a reader knows it: a category with those above it, an entity without its type."""
    if kind == "category":
        return " / ".join(category_nodes([int(ref)])[int(ref)].names)
    return value.partition(":")[2] if kind == "entity" else value


def _other_names(kind: str, ref: TermRef, viewer: Viewer) -> list[str]:
    """The aliases of a term that the viewer may read; of a category also its former paths."""
    projects = viewer.project_ids
    if kind == "tag":
        return list(aliases_of_tags([str(ref)], projects).get(str(ref), ()))
    row: Any = VOCABULARIES[kind].model._default_manager.get(pk=ref)
    local = texts_of(kind, [int(ref)], projects).get(int(ref), TermTexts())
    names = list(local.named(row.name, readable_aliases(row, projects)))
    if isinstance(row, Category):
        paths = {*row.former_paths.filter(row_holds(projects)).values_list("path", flat=True), *local.paths}
        names += sorted(paths)[:SHOWN_RELATIONS]
    return names


def _facts(kind: str, ref: TermRef, viewer: Viewer) -> list[tuple[str, str]]:
    names = ("Other names", ", ".join(_other_names(kind, ref, viewer)))
    if kind == "tag":
        return [names]
    vocabulary = VOCABULARIES[kind]
    row: Any = vocabulary.model._default_manager.get(pk=ref)
    projects = viewer.project_ids
    local = texts_of(kind, [int(ref)], projects).get(int(ref), TermTexts())
    facts = [
        ("Description", local.described(readable_description(row, projects), projects)),
        names,
    ]
    if projects is None:
        facts.append(("Not for everybody", "; ".join(_projects_of_texts(row)[:SHOWN_RELATIONS])))
    if isinstance(row, Entity):
        facts = [(_TYPE, row.entity_type), *facts]
        facts.append(("Relationships", "; ".join(_relationship_labels(row, viewer))))
    for column in sorted(vocabulary.relations):
        label = column.removesuffix("_ids").capitalize()
        facts.append((label, _visible_labels(kind, getattr(row, column), viewer)))
    return facts


def _projects_of_texts(row: Category | Concept | Entity) -> list[str]:
    """The texts of a term that are not public, each with the projects in which it holds."""
    held: AliasProjects = row.alias_projects or {}
    texts = {f"“{alias}”": {*map(int, held[alias])} for alias in row.aliases if alias in held}
    if row.description_projects is not None:
        texts = {"the description": {*row.description_projects}, **texts}
    slugs = dict(Project.objects.filter(pk__in=set().union(*texts.values())).order_by("slug").values_list("pk", "slug"))
    return [
        f"{text} holds in {listed([slug for pk, slug in slugs.items() if pk in ids]) or 'no project any more'}"
        for text, ids in texts.items()
    ]


def _visible_labels(kind: str, ids: list[int], viewer: Viewer) -> str:
    visible = visible_terms(kind, ids[:SHOWN_RELATIONS], viewer)
    return ", ".join(sorted(labels(kind, visible).values()))


def _relationship_labels(entity: Entity, viewer: Viewer) -> list[str]:
    facts = visible_relationships(viewer).filter(source=entity).select_related("source", "target")
    return [f"{fact.relationship_type} {fact.target}" for fact in facts[:SHOWN_RELATIONS]]


def plan_page(
    plan: Plan, pairs: list[tuple[str, str]], *, url: str, back_url: str, back_label: str, changed: bool = False
) -> PlanPage:
    return PlanPage(
        plan=plan,
        title=_to_do(plan.title),
        button=_button(plan),
        heading=_plan_heading(plan),
        figures=tuple(_figure(figure) for figure in plan.figures if figure.moved or figure.collapsed)[:SHOWN_LINES],
        staying=_staying(plan),
        pairs=(*((key, value) for key, value in pairs if key != "token"), ("token", plan.token)),
        url=url,
        back_url=back_url,
        back_label=back_label,
        changed=changed,
    )


def _button(plan: Plan) -> str:
    """The words on the button that applies a plan. Only changes of memories have a number: a merge merges terms."""
    verb = _to_do(plan.title).partition(" ")[0].removesuffix(":")
    return f"{verb} {memories_label(plan.memories)}" if verb in _OF_MEMORIES and plan.memories else verb


def _staying(plan: Plan) -> str:
    parts = []
    if plan.unchanged:
        parts.append(f"{memories_label(plan.unchanged)} {'needs' if plan.unchanged == 1 else 'need'} no change")
    if plan.not_writable:
        what = "is of a project" if plan.not_writable == 1 else "are of projects"
        stay = "stays" if plan.not_writable == 1 else "stay"
        parts.append(
            f"{memories_label(plan.not_writable)} {what} that you may read but not write, and {stay} unchanged"
        )
    return f"{'; '.join(parts)}." if parts else ""


def _plan_heading(plan: Plan) -> str:
    changing = f"{memories_label(plan.memories)} {'changes' if plan.memories == 1 else 'change'}"
    hidden = f", {number(plan.hidden)} of them archived, superseded or deleted" if plan.hidden else ""
    return f"{changing}{hidden}" if plan.memories else "No memory changes"


_PARTS = {"tag": "Tags", "category": "Category", "concept": "Concepts", "entity": "Entities"}
_HELD_SHOWN = 12
_SAMPLES = 5
_TICKED = 10
# The end of an address of results on which those memories are ticked that were ticked before.
TICKED_AGAIN = "#chosen"


def retag_page(
    query: SearchQuery,
    memories: Sequence[int] | None,
    form: RetagForm,
    viewer: Viewer,
    problems: Iterable[Problem],
    begin: str = "",
) -> RetagPage:
    """The page that edits memories by number, or without numbers all that match. With problems it only names them."""
    notices = problem_notices(problems)
    if memories is not None and not memories:
        notices = (*notices, Notice("No memory is chosen: tick some, or take all that match.", is_error=True))
    if notices:
        return RetagPage(
            "Edit memories", "", notices, None, (), False, (), False, None, (), (), explore_url(query), viewer.timezone
        )
    if memories is None:
        # The terms of these memories, not those that other filters would find.
        counted = query.with_(page_size=_SAMPLES, facet_scope=FacetScope.RESULTS)
        found = run(counted, viewer, include_facets=True, facet_limit=_HELD_SHOWN)
        total, held = found.total, {facet.key: _held_by_match(facet) for facet in found.facets or ()}
        titles = [(hit.id, hit.title_text) for hit in found.hits]
        asked = criteria(query, found.labels)
        which = f"All that match {asked}" if asked else "All memories"
        rows: list[Memory] = []
    else:
        rows = list(visible_to(viewer).filter(pk__in=memories).defer("content", "terms", "raw").order_by("-created_at"))
        total, held = len(rows), _held_by(rows)
        titles = [(row.pk, row.title) for row in rows[:_SAMPLES]]
        which = "Chosen by hand"
    begin = begin or _first_part(form)
    if not form.errors:
        form.focus("set_state" if begin == "state" else f"add_{plural_of(begin)}")
    return RetagPage(
        heading=f"Edit {'' if memories is not None else 'all '}{memories_label(total)}",
        which=which,
        notices=(),
        form=form,
        parts=tuple(_edit_part(kind, form, held.get(kind, ()), begin) for kind in _PARTS),
        state_is_open=begin == "state",
        kept=rows if 1 < len(rows) <= MOST_MERGED else (),
        merge_is_open=begin == "merge",
        split=_split_part(query, held, is_open=begin == "split") if "curate" in viewer.scopes else None,
        samples=titles,
        pairs=(*form_fields(query), *_choice_fields(memories)),
        back_url=results_url(query, memories),
        zone=viewer.timezone,
    )


def results_url(query: SearchQuery, memories: Sequence[int] | None) -> str:
    """The results that memories were chosen among; a script ticks those again that were ticked there."""
    return explore_url(query) + (TICKED_AGAIN if memories else "")


def _choice_fields(memories: Sequence[int] | None) -> Iterable[HiddenField]:
    if memories is not None:
        yield HiddenField("take", "chosen")
        yield from (HiddenField("memory", str(pk)) for pk in memories)


def _first_part(form: RetagForm) -> str:
    """The part of the form that has an error, else the tags."""
    names = " ".join(form.errors) if form.is_bound else ""
    if "merge_into" in names:
        return "merge"
    return next((kind for kind in (*_PARTS, "state") if plural_of(kind) in names), "tag")


def plural_of(kind: str) -> str:
    """The plural of a kind of term, as in the names of fields."""
    return VOCABULARIES[kind].plural if kind in VOCABULARIES else f"{kind}s"


def _edit_part(kind: str, form: RetagForm, held: Held, begin: str) -> EditPart:
    name = plural_of(kind)
    removed = form.data.getlist(f"remove_{name}") if isinstance(form.data, QueryDict) else ()
    return EditPart(
        kind=kind,
        label=_PARTS[kind],
        is_open=kind == begin,
        held=held,
        removed=frozenset(removed),
        remove_name=f"remove_{name}",
        add=form[f"add_{name}"],
        set=form["set_category"] if kind == "category" else None,
    )


def _split_part(query: SearchQuery, held: Mapping[str, Held], *, is_open: bool) -> SplitPart | None:
    """The terms that chosen memories have. Those that the query filters by come first, and the first is chosen."""
    kinds: list[tuple[bool, str, str, Held]] = []
    for kind, label in _PARTS.items():
        filtered = query.selection(kind).include
        counted = {value: (name, value, count) for name, value, count in held.get(kind, ())}
        # A filter by a name that the facet does not list, such as an alias, is offered as it was written.
        terms = [counted.get(value, (value, value, 0)) for value in dict.fromkeys([*filtered, *counted])]
        if terms:
            kinds.append((bool(filtered), label, kind, terms))
    # Sorting is stable: only kinds with a filter come before the others.
    kinds.sort(key=lambda part: not part[0])
    if not kinds:
        return None
    has_filter, _, kind, first = kinds[0]
    return SplitPart(tuple(part[1:] for part in kinds), (kind, first[0][1]) if has_filter else None, is_open)


def _held_by_match(facet: Facet) -> tuple[tuple[str, str, int], ...]:
    """The values of a facet as label, name and number; of categories those that memories are in directly."""
    rows = ((value, value.count if value.own_count is None else value.own_count) for value in facet.values)
    held = [(value.label, value.canonical or value.value, count) for value, count in rows if count]
    return tuple(sorted(held, key=lambda term: -term[2]))


def _held_by(memories: Iterable[Memory]) -> dict[str, tuple[tuple[str, str, int], ...]]:
    """The terms that memories have as label, name and number, the most frequent first, by kind."""
    memories = list(memories)
    tags = Counter(tag for memory in memories for tag in memory.tags)
    found = {"tag": tuple((tag, tag, count) for tag, count in tags.most_common(_HELD_SHOWN))}
    for kind, vocabulary in VOCABULARIES.items():
        ids = Counter(pk for memory in memories for pk in getattr(memory, vocabulary.memory_column))
        most = ids.most_common(_HELD_SHOWN)
        names = labels(kind, [pk for pk, _ in most])
        found[kind] = tuple((names[pk], f"#{pk}", count) for pk, count in most if pk in names)
    return found


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
    "Removed": "Remove",
    "Retagged": "Retag",
    "Deleted": "Delete",
    "Archived": "Archive",
    "Restored": "Restore",
}


_OF_MEMORIES = {"Archive", "Restore", "Retag"}


def _to_do(title: str) -> str:
    first, _, rest = title.partition(" ")
    return f"{_TO_DO.get(first, first)} {rest}"


def _figure(figure: Any) -> str:
    if figure.kind == "state":
        return f"{memories_label(figure.moved)} will be {figure.target}"
    kind = {"category": "in", "concept": "about", "entity": "naming", "tag": "tagged"}[figure.kind]
    if not figure.source:
        return f"{memories_label(figure.moved)} will be {kind} “{figure.target}”"
    if not figure.target:
        return f"{memories_label(figure.moved)} will no longer be {kind} “{figure.source}”"
    both = f"; {number(figure.collapsed)} had both and keep one" if figure.collapsed else ""
    comes = "moves" if figure.moved == 1 else "move"
    return f"{memories_label(figure.moved)} {kind} “{figure.source}” {comes} to “{figure.target}”{both}"


def log_page(
    viewer: Viewer, *, before: int | None, search: str = "", kind: str = "", name: str = "", error: str = ""
) -> LogPage:
    """The log, from below the id `before`. `search` is a part of the titles; `kind` and `name` find a term."""
    has_tasks = before is None and not search
    curations, has_more = read_log(viewer, _BESIDE_TASKS if has_tasks else PAGE_SIZE, before, search)
    page = reverse("curation:log")
    further = {"search": search} if search else {}
    return LogPage(
        rows=curations,
        more_url=f"{page}?{urlencode({**further, 'before': curations[-1].pk})}" if has_more else "",
        newest_url=f"{page}?{urlencode(further)}".rstrip("?") if before is not None else "",
        search=search,
        kinds=TERM_KINDS,
        name=name,
        kind=kind or "tag",
        error=error,
        overview=build_overview(viewer) if has_tasks else None,
    )
