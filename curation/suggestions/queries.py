"""Reads of suggestions: visibility, a page of the queue, names, and evidence.

A suggestion about memories is visible to viewers of their project; a suggestion about names, to viewers of memories
with both.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain

from django.db.models import Case, Count, Max, Min, Q, QuerySet, TextField, When
from django.db.models.fields.json import KeyTextTransform

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from curation.queries import counts_of
from curation.suggestions.models import Suggestion
from curation.suggestions.params import ReviewQuery
from curation.suggestions.proposals import HELD_ALIAS, NAME_KINDS, Kind
from curation.working_copy import TermRef
from memories.models import Memory, Project
from memories.queries import visible_to
from search.engines import with_engine
from search.engines.base import Engine, EngineQuery, Value
from text.highlight import plain_title

PAGE = 25

FROM_TAG, INTO_TAG = KeyTextTransform("from", "proposal"), KeyTextTransform("into", "proposal")
# The name of a new concept; an existing one has its id.
_CONCEPT = Case(When(target_id=None, then=KeyTextTransform("concept", "proposal")), output_field=TextField())
# Kinds that propose the same term for many memories.
GROUPED_KINDS = (Kind.CATEGORY, Kind.CONCEPT)
# The kinds of the subject and the target of a suggestion.
_KINDS_NAMED = {
    Kind.CATEGORY: ("memory", "category"),
    Kind.CONCEPT: ("memory", "concept"),
    Kind.ENTITY_DUPLICATE: ("entity", "entity"),
    Kind.CONCEPT_DUPLICATE: ("concept", "concept"),
    Kind.TAG_DUPLICATE: ("tag", "tag"),
    Kind.MEMORY_DUPLICATE: ("memory", "memory"),
    Kind.SUPERSEDED: ("memory", "memory"),
    Kind.MARKED: ("memory", "mark"),
}
# Facets of their terms, whose values may be invisible to a viewer.
_FACETS = {kind: target for kind, (_, target) in _KINDS_NAMED.items() if target not in ("memory", "mark")}


@dataclass(frozen=True, slots=True)
class Named:
    """The subject or the target of a suggestion. `id` is None for tags and new concepts."""

    kind: str
    id: int | None
    name: str
    type: str = ""
    names: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name as people read it: a category with those above it, a memory with its number, since near-duplicates
        often have the same title.
        """
        return f"#{self.id} {plain_title(self.name)}" if self.kind == "memory" else " / ".join(self.names) or self.name

    @property
    def ref(self) -> str:
        """Its name in addresses."""
        return self.name if self.kind == "tag" else str(self.id)

    @property
    def known_as(self) -> str:
        """Its name in operations."""
        return self.name if self.kind == "tag" else f"#{self.id}"

    @property
    def short_name(self) -> str:
        return self.name if len(self.name) <= 30 else f"{self.name[:29]}…"


@dataclass(frozen=True, slots=True)
class ShownSuggestion:
    """A suggestion with the current names of its subject and target."""

    row: Suggestion
    subject: Named
    target: Named
    is_turned: bool = False
    """Whether subject and target are exchanged: of two names, the target is the one that more memories have."""
    counts: tuple[int, int] | None = None
    """The memories of both, of two names that are not decided yet."""

    @property
    def is_of_names(self) -> bool:
        return self.row.kind in NAME_KINDS

    @property
    def proposal(self) -> str:
        """The proposed change in a line."""
        return f"{self.subject.name} → {self.target.name}" if self.is_of_names else self.target.label

    @property
    def title(self) -> str:
        """The memory that it is about; empty for names."""
        return self.subject.label if self.subject.kind == "memory" else ""

    @property
    def note(self) -> str:
        """The type of a concept, and the types of entities."""
        if self.row.kind == Kind.CONCEPT:
            return f"new, {self.target.type}" if self.target.id is None else self.target.type
        types = dict.fromkeys(named.type for named in (self.subject, self.target) if named.type)
        return " and ".join(types) if self.row.kind == Kind.ENTITY_DUPLICATE else ""

    @property
    def ways(self) -> tuple[str, str]:
        """The words on the buttons that accept it, and that keep the other of two; the latter may be empty."""
        if self.is_of_names:
            return f"Keep “{self.target.short_name}”", f"Keep “{self.subject.short_name}”"
        if self.row.kind == Kind.MEMORY_DUPLICATE:
            return f"Keep #{self.target.id}", f"Keep #{self.subject.id}"
        if self.row.kind == Kind.MARKED:
            return "Yes: archive it", ""
        return "Mark the older one superseded" if self.row.kind == Kind.SUPERSEDED else "Accept", ""

    @property
    def refusal(self) -> str:
        """The words on the button that rejects it."""
        return "No: it is harmless" if self.row.kind == Kind.MARKED else "Reject"


def visible_suggestions(viewer: Viewer, among: QuerySet[Suggestion]) -> QuerySet[Suggestion]:
    """The visible suggestions: the only definition of their visibility."""
    if viewer.project_ids is None:
        return among
    visible = _visible_values(viewer, among)
    among = among.exclude(kind__in=NAME_KINDS, evidence__rule=HELD_ALIAS)
    return among.alias(from_tag=FROM_TAG, into_tag=INTO_TAG).filter(
        # A target may come from other projects, or have left those of the viewer.
        Q(
            Q(kind__in=[Kind.MARKED, Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED])
            | Q(kind=Kind.CATEGORY, evidence__elsewhere=False, target_id__in=visible[Kind.CATEGORY])
            | Q(Q(target_id=None) | Q(target_id__in=visible[Kind.CONCEPT]), kind=Kind.CONCEPT),
            project_id__in=viewer.project_ids,
        )
        | names_among(visible)
    )


def _visible_values(viewer: Viewer, among: QuerySet[Suggestion]) -> dict[Kind, set[Value]]:
    """The terms of suggestions that visible memories have, by kind. The engine answers this from its columns."""
    projects = None if viewer.project_ids is None else tuple(sorted(viewer.project_ids))
    named: dict[Kind, set[Value]] = {kind: set() for kind in _FACETS}
    about = among.filter(kind__in=[Kind.CATEGORY, Kind.CONCEPT], project_id__in=projects or (), target_id__isnull=False)
    for kind, target_id in about.order_by().values_list("kind", "target_id").distinct():
        named[Kind(kind)].add(target_id or 0)
    names = (
        among.filter(kind__in=NAME_KINDS).order_by().values_list("kind", "subject_id", "target_id", FROM_TAG, INTO_TAG)
    )
    for kind, subject_id, target_id, source, target in names:
        named[Kind(kind)] |= {source, target} if kind == Kind.TAG_DUPLICATE else {subject_id, target_id}

    def present(engine: Engine) -> dict[Kind, set[Value]]:
        plan = EngineQuery(project_ids=projects)
        return {
            kind: engine.values_present(plan, _FACETS[kind], sorted(values, key=str)) if values else set()
            for kind, values in named.items()
        }

    return with_engine(present, viewer)


def suggestions_matching(viewer: Viewer, query: ReviewQuery) -> QuerySet[Suggestion]:
    """The visible suggestions that match the filters, by descending confidence."""
    rows: QuerySet[Suggestion] = Suggestion.objects.alias(from_tag=FROM_TAG, into_tag=INTO_TAG)
    rows = rows.filter(confidence__gte=query.confidence, state=query.state)
    if query.kind:
        rows = rows.filter(kind=query.kind)
    if query.proposal:
        rows = _of_proposal(rows, query.proposal)
    if query.project:
        rows = _of_project(rows, query.project, viewer)
    elif query.state == Suggestion.State.OPEN.value and viewer.project_ids is None:
        rows = rows.filter(~Q(kind__in=NAME_KINDS) | names_among(_visible_values(viewer, rows)))
    return visible_suggestions(viewer, rows).select_related("project", "decided_by").order_by("-confidence", "id")


def duplicate_pairs(viewer: Viewer, project: str, limit: int) -> list[tuple[Suggestion, str, str]]:
    """The pairs of memories that are proposed as duplicates, in a project or in all, with the titles of both."""
    query = ReviewQuery(kind=Kind.MEMORY_DUPLICATE.value, project=project)
    pairs = list(suggestions_matching(viewer, query)[:limit])
    ids = {pk for pair in pairs for pk in (pair.subject_id, pair.target_id) if pk}
    titles: dict[int | None, str] = dict(visible_to(viewer).filter(pk__in=ids).values_list("id", "title"))
    there = [pair for pair in pairs if pair.subject_id in titles and pair.target_id in titles]
    return [(pair, titles[pair.subject_id], titles[pair.target_id]) for pair in there]


def _of_project(rows: QuerySet[Suggestion], slug: str, viewer: Viewer) -> QuerySet[Suggestion]:
    """The suggestions about memories of a project, and those about two names that its memories have one or both of."""
    project = next((project for project in projects_of(viewer) if project.slug == slug), None)
    if project is None:
        return rows.none()
    values = _visible_values(replace(viewer, project_ids=frozenset([project.pk])), rows)
    return rows.filter(Q(~Q(kind__in=NAME_KINDS), project_id=project.pk) | names_among(values, both=False))


def names_among(values: Mapping[Kind, set[Value]], *, both: bool = True) -> Q:
    """The suggestions about two names of these values, or one of the two. Needs the aliases of both tags."""
    found = Q()
    for kind in NAME_KINDS:
        ends = ("from_tag", "into_tag") if kind == Kind.TAG_DUPLICATE else ("subject_id", "target_id")
        named = Q(*((f"{end}__in", values[kind]) for end in ends), _connector=Q.AND if both else Q.OR)
        found |= Q(named, kind=kind)
    return found


def _of_proposal(rows: QuerySet[Suggestion], proposal: str) -> QuerySet[Suggestion]:
    """The suggestions of one category or concept for memories."""
    rows = rows.filter(kind__in=GROUPED_KINDS)
    number = proposal.removeprefix("#")
    if proposal.startswith("#") and number.isascii() and number.isdecimal() and len(number) < 19:
        return rows.filter(target_id=int(number))
    return rows.filter(target_id=None, proposal__concept=proposal)


@dataclass(frozen=True, slots=True)
class ProposalGroup:
    """A category or a concept that is proposed for several memories, with the confidences."""

    named: Named
    proposal: str
    count: int
    least: float
    most: float


def proposals_of(viewer: Viewer, query: ReviewQuery, limit: int, begin: int) -> tuple[list[ProposalGroup], int]:
    """The proposals that match, those of most memories first, and their number."""
    rows = suggestions_matching(viewer, query).order_by().values("target_id", name=_CONCEPT)
    groups = rows.annotate(n=Count("id"), least=Min("confidence"), most=Max("confidence"))
    page = list(groups.order_by("-n", "-most", "target_id", "name")[begin : begin + limit])
    ids = [row["target_id"] for row in page if row["target_id"] is not None]
    kind = query.kind
    terms = VOCABULARIES[kind].terms(ids) if kind in (Kind.CATEGORY, Kind.CONCEPT) else {}
    found = []
    for row in page:
        pk, name = row["target_id"], row["name"] or ""
        term = terms.get(pk or 0)
        named = Named(kind, pk, term.label, names=term.names) if term else Named(kind, pk, name)
        proposal = name if pk is None else f"#{pk}"
        found.append(ProposalGroup(named, proposal, row["n"], row["least"], row["most"]))
    return found, groups.count()


def counts_by_kind(viewer: Viewer, query: ReviewQuery) -> dict[str, int]:
    """The number of matching suggestions by kind."""
    rows = suggestions_matching(viewer, query.with_(kind=""))
    return dict(rows.order_by().values_list("kind").annotate(n=Count("id")))


@dataclass(frozen=True, slots=True)
class Queue:
    """A page of suggestions of one kind, the counts by kind, and the current suggestion."""

    query: ReviewQuery
    rows: tuple[ShownSuggestion, ...]
    counts: dict[str, int]
    current: ShownSuggestion | None

    @property
    def total(self) -> int:
        """The number of suggestions of all kinds under the filters."""
        return sum(self.counts.values())

    @property
    def place(self) -> int:
        """The place of the current suggestion on the page; -1 if it is not there."""
        return next((at for at, one in enumerate(self.rows) if one == self.current), -1)


def queue_of(viewer: Viewer, query: ReviewQuery, item: int | None) -> Queue:
    """The page of a query. Without a kind, it is the first kind that has suggestions."""
    counts = counts_by_kind(viewer, query)
    if not query.kind:
        query = query.model_copy(
            update={"kind": next((kind for kind in Kind if counts.get(kind)), Kind.CATEGORY).value}
        )
    start = (query.page - 1) * PAGE
    rows = with_names(suggestions_matching(viewer, query)[start : start + PAGE], viewer)
    current = next((one for one in rows if one.row.pk == item), None)
    if current is None and item is not None:
        # A suggestion that was decided since is still shown.
        current = visible_suggestion(viewer, item)
        current = current if current and current.row.kind == query.kind else None
    return Queue(query, tuple(rows), counts, current or next(iter(rows), None))


def last_together(viewer: Viewer, query: ReviewQuery) -> tuple[datetime, int] | None:
    """When the viewer last accepted several suggestions of a kind together, or rejected them, and how many."""
    if viewer.user_id is None or query.state == Suggestion.State.OPEN.value:
        return None
    decided = visible_suggestions(viewer, Suggestion.objects.filter(kind=query.kind, state=query.state))
    own = decided.filter(decided_by_id=viewer.user_id, decided_together__isnull=False)
    numbers = own.order_by().values_list("decided_together").annotate(n=Count("id"))
    for together, count in numbers.order_by("-decided_together")[:1]:
        if together and count > 1:
            return together, count
    return None


def projects_of(viewer: Viewer) -> list[Project]:
    """The visible projects, by name."""
    projects = Project.objects.order_by("name")
    return list(projects if viewer.project_ids is None else projects.filter(pk__in=viewer.project_ids))


def visible_suggestion(viewer: Viewer, suggestion_id: int) -> ShownSuggestion | None:
    """A visible suggestion with its names, or None."""
    rows = visible_suggestions(viewer, Suggestion.objects.filter(pk=suggestion_id))
    return next(iter(with_names(rows.select_related("project", "decided_by"), viewer)), None)


def _counted(rows: Iterable[Suggestion], viewer: Viewer) -> dict[int, tuple[int, int]]:
    """The numbers of memories of both names of open suggestions about two. Only those that the viewer sees, in any
    state, as a merge moves them.
    """
    pairs = {row.pk: ends for row in rows if row.state == Suggestion.State.OPEN and (ends := _ends(row))}
    refs: dict[str, set[TermRef]] = {}
    for kind, ref in chain.from_iterable(pairs.values()):
        refs.setdefault(kind, set()).add(ref)
    counts = {(kind, ref): n for kind, some in refs.items() for ref, n in counts_of(kind, some, viewer).items()}
    return {pk: (counts[one], counts[other]) for pk, (one, other) in pairs.items()}


def turned_round(
    rows: Collection[Suggestion], viewer: Viewer, counted: Mapping[int, tuple[int, int]] | None = None
) -> set[int]:
    """Ids of the suggestions about names whose subject remains, because more memories have it than the target. Of
    decided suggestions, it is what was decided.
    """
    counts = _counted(rows, viewer) if counted is None else counted
    turned = {pk for pk, (subject, target) in counts.items() if subject > target}
    return turned | {row.pk for row in rows if row.pk not in counts and (row.applied or {}).get("turned")}


def contradicted(
    rows: Collection[Suggestion], viewer: Viewer, turned: Collection[int] | None = None
) -> dict[int, Suggestion]:
    """Those of the suggestions to merge names that do not go together with a surer one, each with that.

    A name can become one other only, and one that ends takes no other with it: accepted together, a chain would make
    the first name what nobody proposed. `turned` has those of the rows that are turned round, if they are known.
    """
    ends = {row.pk: _ends(row) for row in rows}
    known = Counter(end for both in ends.values() for end in both)
    # Which of both ends stays is counted only where it matters.
    doubled = [row for row in rows if any(known[end] > 1 for end in ends[row.pk])]
    turned = turned_round(doubled, viewer) if turned is None else turned
    ended: dict[tuple[str, TermRef], Suggestion] = {}
    kept: dict[tuple[str, TermRef], Suggestion] = {}
    found: dict[int, Suggestion] = {}
    for row in sorted(doubled, key=lambda row: (-row.confidence, row.pk)):
        both, is_turned = ends[row.pk], row.pk in turned
        end, stays = both[is_turned], both[not is_turned]
        if surer := ended.get(end) or kept.get(end) or ended.get(stays):
            found[row.pk] = surer
            continue
        ended[end] = row
        kept.setdefault(stays, row)
    return found


def _ends(row: Suggestion) -> tuple[tuple[str, TermRef], tuple[str, TermRef]] | tuple[()]:
    """Both names of a suggestion about two, the one that ends first unless it is turned round."""
    if row.kind == Kind.TAG_DUPLICATE:
        return ("tag", str(row.proposal.get("from", ""))), ("tag", str(row.proposal.get("into", "")))
    if row.kind in NAME_KINDS:
        kind = _FACETS[Kind(row.kind)]
        return (kind, row.subject_id or 0), (kind, row.target_id or 0)
    return ()


def with_names(rows: Iterable[Suggestion], viewer: Viewer) -> list[ShownSuggestion]:
    """Suggestions with their current names, in a fixed number of statements."""
    suggestions = list(rows)
    counted = _counted(suggestions, viewer)
    turned = turned_round(suggestions, viewer, counted)
    ids: dict[str, set[int]] = {"memory": set(), "category": set(), "concept": set(), "entity": set()}
    for row in suggestions:
        for kind, pk in zip(_KINDS_NAMED[Kind(row.kind)], (row.subject_id, row.target_id), strict=True):
            if pk is not None and kind != "tag":
                ids[kind].add(pk)
    titles = dict(Memory.objects.filter(pk__in=ids["memory"]).values_list("pk", "title"))
    terms = {kind.name: kind.terms(ids[kind.name]) for kind in VOCABULARIES.values()}

    def named(kind: str, pk: int | None, name: str, term_type: str = "") -> Named:
        if kind in ("tag", "mark"):
            return Named(kind, None, name)
        if kind == "memory":
            return Named(kind, pk, titles.get(pk or 0) or f"Memory {pk}")
        term = terms[kind].get(pk or 0)
        return Named(kind, pk, term.label, term.type, term.names) if term else Named(kind, pk, name, term_type)

    shown = []
    for row in suggestions:
        subject_kind, target_kind = _KINDS_NAMED[Kind(row.kind)]
        proposal = row.proposal
        # Names as they were proposed, for rows that are gone or new.
        subject = named(subject_kind, row.subject_id, str(proposal.get("from", "")))
        target_name = str(proposal.get("concept" if row.kind == Kind.CONCEPT else "into", ""))
        target = named(target_kind, row.target_id, target_name, proposal.get("concept_type", ""))
        is_turned = row.pk in turned
        numbers = counted.get(row.pk)
        ends, sizes = (subject, target), numbers and (numbers[::-1] if is_turned else numbers)
        shown.append(ShownSuggestion(row, *(ends[::-1] if is_turned else ends), is_turned, sizes))
    return shown
