"""The pages of a term with its forms, and of chosen memories with the form that edits them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any
from urllib.parse import urlencode

from django.forms import BoundField
from django.http import QueryDict
from django.urls import reverse

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.models import Category, Concept, Entity
from categories.queries import aliases_of_tags, category_nodes
from categories.texts import AliasProjects, TermTexts, readable_aliases, readable_description, row_holds, texts_of
from curation.forms import OperationForm, RetagForm, SplitForm, forms_of, term_name
from curation.memory_operations import MOST_MERGED
from curation.queries import find_term, labels, visible_relationships, visible_terms
from curation.working_copy import TermRef
from explorer.explore.sidebar import HiddenField, criteria, form_fields
from explorer.links import explore_url, filter_url
from memories.models import Memory, Project
from memories.queries import visible_to
from memories.records import slug_name
from search.facets import Facet
from search.query import FacetScope, SearchQuery
from search.result import HitDetail, SearchResult
from search.run import run
from text.formatting import listed

SHOWN_RELATIONS = 30


# Terms as label, value and number of memories.
Held = Sequence[tuple[str, str, int]]


@dataclass(frozen=True, slots=True)
class TermPage:
    """A term, its properties, and the forms of its operations."""

    kind: str
    ref: str
    label: str
    type: str
    """The type of an entity, which is shown with its name."""
    found: SearchResult
    """Its memories, the newest first."""
    ticked: frozenset[str]
    """The numbers of those that are ticked for a split."""
    zone: tzinfo
    explore_url: str
    facts: Mapping[str, str]
    other_names: Sequence[str]
    """The aliases, and former paths, that can be removed."""
    forms: Sequence[OperationForm]
    next_url: str
    """Where a change returns to; empty for the log."""
    removal_url: str
    """The preview that takes a tag from its memories; empty for other kinds."""

    @property
    def verbs(self) -> list[str]:
        return [form.verb for form in self.forms]

    @property
    def other_numbers(self) -> str:
        """The numbers of chosen memories that are not among the newest."""
        return " ".join(sorted(self.ticked - {str(hit.id) for hit in self.found.hits}))


@dataclass(frozen=True, slots=True)
class SplitPart:
    """The form that leads to a split: the kinds of terms to choose from, each with its label and its terms."""

    terms: tuple[tuple[str, str, Held], ...]
    chosen: tuple[str, str] | None
    """The kind and the value of the term that is chosen at first."""


@dataclass(frozen=True, slots=True)
class RetagPage:
    """Chosen memories, and the form that edits them."""

    form: RetagForm
    total: int
    is_chosen: bool
    """Whether they were chosen one by one: else they are all that match."""
    asked: str
    """The filters that they match, in words."""
    held: Mapping[str, Held]
    """The terms that they have, by kind."""
    begin: str
    """The part of the form that is open: a kind of terms, `state`, `merge` or `split`."""
    kept: Sequence[Memory]
    """The memories to choose from, if few enough are chosen to be merged."""
    split: SplitPart | None
    """None for viewers who may not curate, and without terms to split."""
    samples: Sequence[tuple[int, str]]
    """The numbers and titles of some of them."""
    pairs: Sequence[HiddenField]
    back_url: str
    zone: tzinfo
    missing_project: str
    """The name of a project that is not there, for those who may make it."""

    @property
    def parts(self) -> Iterator[tuple[str, str, str, Held]]:
        """The kinds of terms, each with its label, its plural as in names of fields, and the terms that are held."""
        for kind, label in _PARTS.items():
            yield kind, label, plural_of(kind), self.held.get(kind, ())

    @property
    def parts_of_fields(self) -> Iterator[tuple[str, str, list[BoundField], Held]]:
        """The parts for other values: name, label, fields, and of authors those that they have."""
        for name, (label, fields) in PARTS_OF_FIELDS.items():
            held = self.held.get("author", ()) if name == "author" else ()
            yield name, label, [self.form[field] for field in fields], held

    def is_open(self, part: str, plural: str = "") -> bool:
        """Whether a part of the form is open: the one to begin with, and each in which something is written."""
        own = PARTS_OF_FIELDS[part][1] if part in PARTS_OF_FIELDS else (f"add_{plural}", f"remove_{plural}")
        names = (*own, *_BESIDE.get(part, ()))
        return part == self.begin or any(self.form.data.get(name) for name in names)

    def removed(self, plural: str) -> Sequence[str]:
        """The terms that were ticked to be removed."""
        data = self.form.data
        return data.getlist(f"remove_{plural}") if isinstance(data, QueryDict) else ()


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
    row: Any = None if kind == "tag" else VOCABULARIES[kind].model._default_manager.get(pk=ref)
    local = TermTexts() if row is None else texts_of(kind, [int(ref)], viewer.project_ids).get(int(ref), TermTexts())
    public = {} if row else aliases_of_tags([str(ref)], viewer.project_ids)
    names = _other_names(row, local, viewer) if row else public.get(str(ref), [])
    ticked = next((form.ticked() for form in forms if isinstance(form, SplitForm)), frozenset[str]())
    value = str(ref) if kind == "tag" else labels(kind, [int(ref)])[int(ref)]
    label = _full_name(kind, ref, value)
    for form in forms:
        if form.verb == "rename":
            form.initial["name"] = label.rpartition(" / ")[2] if kind == "category" else label
    facts = _facts(kind, row, local, names, viewer) if row else {"Other names": ", ".join(names)}
    return TermPage(
        kind=kind,
        ref=str(ref),
        label=label,
        type=row.entity_type if isinstance(row, Entity) else "",
        found=run(SearchQuery().only(kind, value).with_(page_size=_TICKED), viewer, detail=HitDetail.INDEX),
        ticked=ticked,
        zone=viewer.timezone,
        explore_url=filter_url(kind, value),
        facts={name: text for name, text in facts.items() if text},
        other_names=names,
        forms=forms,
        next_url=next_url,
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


def _other_names(row: Category | Concept | Entity, local: TermTexts, viewer: Viewer) -> list[str]:
    """The aliases of a term that the viewer may read; of a category also its former paths."""
    names = list(local.named(row.name, readable_aliases(row, viewer.project_ids)))
    if isinstance(row, Category):
        held = row.former_paths.filter(row_holds(viewer.project_ids)).values_list("path", flat=True)
        names += sorted({*held, *local.paths})[:SHOWN_RELATIONS]
    return names


def _facts(kind: str, row: Any, local: TermTexts, names: Sequence[str], viewer: Viewer) -> dict[str, str]:
    projects = viewer.project_ids
    facts = {
        "Description": local.described(readable_description(row, projects), projects),
        "Other names": ", ".join(names),
    }
    if projects is None:
        facts["Not for everybody"] = "; ".join(_projects_of_texts(row)[:SHOWN_RELATIONS])
    if isinstance(row, Entity):
        facts["Relationships"] = "; ".join(_relationship_labels(row, viewer))
    for column in sorted(VOCABULARIES[kind].relations):
        facts[column.removesuffix("_ids").capitalize()] = _visible_labels(kind, getattr(row, column), viewer)
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


# The parts of the form for other values than terms: label and fields.
PARTS_OF_FIELDS = {
    "type": ("Type and project", ("set_type", "set_project")),
    "date": ("Date", ("set_date", "shift_date")),
    "validity": ("Validity", ("set_valid_from", "set_valid_to")),
    "author": ("Authors", ("add_authors", "set_authors")),
    "state": ("State", ("set_state", "reason")),
}
# Fields in a part besides those that add and remove.
_BESIDE = {"category": ("set_category",), "author": ("remove_authors",)}
_PARTS = {"tag": "Tags", "category": "Category", "concept": "Concepts", "entity": "Entities"}
_HELD_SHOWN = 12
_SAMPLES = 5
_TICKED = 10
# The end of an address of results on which those memories are ticked that were ticked before.
TICKED_AGAIN = "#chosen"


def retag_page(
    query: SearchQuery, memories: Sequence[int] | None, form: RetagForm, viewer: Viewer, begin: str = ""
) -> RetagPage:
    """The page that edits memories by number, or without numbers all that match."""
    asked, rows = "", list[Memory]()
    if memories is None:
        # The terms of these memories, not those that other filters would find.
        counted = query.with_(page_size=_SAMPLES, facet_scope=FacetScope.RESULTS)
        found = run(counted, viewer, include_facets=True, facet_limit=_HELD_SHOWN)
        total, held = found.total, {facet.key: _held_by_match(facet) for facet in found.facets or ()}
        titles = [(hit.id, hit.title_text) for hit in found.hits]
        asked = criteria(query, found.labels)
    else:
        rows = list(visible_to(viewer).filter(pk__in=memories).defer("content", "terms", "raw").order_by("-created_at"))
        total, held = len(rows), _held_by(rows)
        titles = [(row.pk, row.title) for row in rows[:_SAMPLES]]
    begin = begin or _first_part(form)
    if not form.errors:
        form.focus(PARTS_OF_FIELDS[begin][1][0] if begin in PARTS_OF_FIELDS else f"add_{plural_of(begin)}")
    return RetagPage(
        form=form,
        total=total,
        is_chosen=memories is not None,
        asked=asked,
        held=held,
        begin=begin,
        kept=rows if 1 < len(rows) <= MOST_MERGED else (),
        split=_split_part(query, held) if "curate" in viewer.scopes else None,
        samples=titles,
        pairs=(*form_fields(query), *_choice_fields(memories)),
        back_url=results_url(query, memories),
        zone=viewer.timezone,
        missing_project=_missing_project(form, viewer),
    )


def _missing_project(form: RetagForm, viewer: Viewer) -> str:
    if "set_project" not in form.errors or not viewer.may_write(None):
        return ""
    name = str(form["set_project"].value() or "").strip()
    return "" if Project.objects.filter(slug=slug_name(name)).exists() else name


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
    for part, (_, fields) in PARTS_OF_FIELDS.items():
        if set(fields) & form.errors.keys():
            return part
    if "merge_into" in names:
        return "merge"
    return next((kind for kind in _PARTS if plural_of(kind) in names), "tag")


def plural_of(kind: str) -> str:
    """The plural of a kind of term, as in the names of fields."""
    return VOCABULARIES[kind].plural if kind in VOCABULARIES else f"{kind}s"


def _split_part(query: SearchQuery, held: Mapping[str, Held]) -> SplitPart | None:
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
    return SplitPart(tuple(part[1:] for part in kinds), (kind, first[0][1]) if has_filter else None)


def _held_by_match(facet: Facet) -> tuple[tuple[str, str, int], ...]:
    """The values of a facet as label, name and number; of categories those that memories are in directly."""
    rows = ((value, value.count if value.own_count is None else value.own_count) for value in facet.values)
    held = [(value.label, value.canonical or value.value, count) for value, count in rows if count]
    return tuple(sorted(held, key=lambda term: -term[2]))


def _held_by(memories: Iterable[Memory]) -> dict[str, tuple[tuple[str, str, int], ...]]:
    """The terms that memories have as label, name and number, the most frequent first, by kind."""
    memories = list(memories)
    found = {}
    for kind, column in (("tag", "tags"), ("author", "authors")):
        names = Counter(name for memory in memories for name in getattr(memory, column))
        found[kind] = tuple((name, name, count) for name, count in names.most_common(_HELD_SHOWN))
    for kind, vocabulary in VOCABULARIES.items():
        ids = Counter(pk for memory in memories for pk in getattr(memory, vocabulary.memory_column))
        most = ids.most_common(_HELD_SHOWN)
        label_of = labels(kind, [pk for pk, _ in most])
        found[kind] = tuple((label_of[pk], f"#{pk}", count) for pk, count in most if pk in label_of)
    return found
