"""The contexts of the pages of the review queue. No database and no request."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from curation.suggestions.compared import MemorySummary, ShownSide, ShownText, memory_summary, side_of, texts_of
from curation.suggestions.models import Suggestion
from curation.suggestions.params import ReviewQuery, kind_labels
from curation.suggestions.proposals import NAME_KINDS, Kind
from curation.suggestions.queries import GROUPED_KINDS, PAGE, Evidence, Named, ProposalGroup, Queue, ShownSuggestion
from explorer.http import Pager, build_pager
from explorer.links import Link
from memories.models import Project
from text.formatting import day_label, memories, moment_label, number, plural
from text.highlight import plain_title
from web.command_line import command

State = Suggestion.State
# The two names of a pair, before and after a decision.
_ROLES = {
    State.OPEN: ("will be merged away", "will be kept"),
    State.ACCEPTED: ("was merged away", "was kept"),
    State.REJECTED: ("stays", "stays"),
}
_CONFIDENCES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9)
_QUESTIONS = {
    Kind.CATEGORY: "Does this memory belong in",
    Kind.CONCEPT: "Is this memory about",
    Kind.ENTITY_DUPLICATE: "Are these the same entity?",
    Kind.CONCEPT_DUPLICATE: "Are these the same concept?",
    Kind.TAG_DUPLICATE: "Are these the same tag?",
    Kind.MEMORY_DUPLICATE: "Do these two memories say the same?",
    Kind.SUPERSEDED: "Does the newer memory replace the older one?",
}


@dataclass(frozen=True, slots=True)
class FilterOption:
    """A value of a filter: a tab, a project, a state."""

    label: str
    value: str
    url: str
    count: str = ""
    current: bool = False


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A suggestion in the list."""

    id: int
    url: str
    title: str
    proposal: str
    note: str
    confidence: float
    current: bool
    counts: str
    """The memories of both names."""
    instead: str = ""
    """The surer suggestion with which it does not go together."""


@dataclass(frozen=True, slots=True)
class SuggestionDetail:
    """The current suggestion with its evidence."""

    row: Suggestion
    question: str
    steps: tuple[str, ...]
    badge: str
    decided: str
    accept_label: str
    swap_label: str
    turned: str
    """The direction in which it is shown, for the button that accepts it: "1" if subject and target are exchanged."""
    texts: tuple[ShownText, ...]
    sides: tuple[ShownSide, ...]
    shared: tuple[str, ...]
    supporting: tuple[MemorySummary, ...]
    supporting_label: str
    alternatives: tuple[QueueRow, ...]
    may_decide: bool
    by_column: bool
    """Whether each of the two columns has the button that keeps it."""


@dataclass(frozen=True, slots=True)
class LastDecision:
    """The last decision, which can be undone."""

    message: str
    undo_url: str


@dataclass(frozen=True, slots=True)
class SearchState:
    """The search for more suggestions: whether the viewer may start one, one is under way, and why the last failed."""

    may_start: bool = False
    is_running: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The page of the queue."""

    title: str
    tabs: tuple[FilterOption, ...]
    projects: tuple[FilterOption, ...]
    states: tuple[FilterOption, ...]
    confidences: tuple[FilterOption, ...]
    kind: str
    rows: tuple[QueueRow, ...]
    detail: SuggestionDetail | None
    pager: Pager | None
    previous_url: str
    next_url: str
    next_id: str
    querystring: str
    many_url: str
    groups_url: str
    """The same suggestions grouped by proposal, for kinds that propose a term for many memories."""
    proposal: str
    group: str
    """The proposal, if the queue has one alone."""
    notices: tuple[str, ...]
    done: LastDecision | None
    is_stepping: bool
    """Whether the suggestion was opened, or comes after one that was decided: its question then has the focus."""
    empty: str
    has_any: bool
    """Whether there are suggestions of any kind under the filters."""
    is_narrowed: bool
    search: SearchState
    here: str
    undo_many: Link | None
    """Undoes what the reader has decided together last."""


def undo_many_url(together: datetime) -> str:
    return f"{reverse('suggestions:undo_many')}?{urlencode({'together': together.isoformat()})}"


def review_url(query: ReviewQuery, item: int | None = None, done: int | None = None) -> str:
    more = [(name, str(value)) for name, value in (("item", item), ("done", done)) if value is not None]
    querystring = urlencode([*query.parameters(), *more])
    return reverse("suggestions:review") + (f"?{querystring}" if querystring else "")


def many_url(query: ReviewQuery) -> str:
    return f"{reverse('suggestions:accept_many')}?{query.querystring()}"


def groups_url(query: ReviewQuery) -> str:
    return f"{reverse('suggestions:proposals')}?{query.with_(proposal='').querystring()}"


@dataclass(frozen=True, slots=True)
class GroupsContext:
    """The page of the suggestions of a kind, grouped by proposal."""

    kind: str
    tabs: tuple[FilterOption, ...]
    query: ReviewQuery
    rows: Sequence[ProposalGroup]
    total: int
    may_decide: bool
    pager: Pager | None
    queue_url: str
    notices: tuple[str, ...]


def build_groups(
    query: ReviewQuery, groups: Sequence[ProposalGroup], total: int, *, may_decide: bool, notices: Sequence[str] = ()
) -> GroupsContext:
    pages = max(1, -(-total // PAGE))
    labels = {kind.value: kind_labels()[kind] for kind in GROUPED_KINDS}
    pager = build_pager(query.page, pages, PAGE, total, lambda page: groups_url(query.with_(page=page)))
    return GroupsContext(
        kind=labels[Kind(query.kind)],
        tabs=tuple(
            FilterOption(label, kind, groups_url(query.with_(kind=kind)), current=kind == query.kind)
            for kind, label in labels.items()
        ),
        query=query,
        rows=groups,
        total=total,
        may_decide=may_decide,
        pager=pager if pages > 1 else None,
        queue_url=review_url(query.with_(proposal="")),
        notices=tuple(notices),
    )


def build_review(
    queue: Queue,
    evidence: Evidence | None,
    projects: Sequence[Project],
    *,
    may_decide: bool,
    may_decide_many: bool,
    zone: tzinfo,
    notices: Sequence[str] = (),
    done: ShownSuggestion | None = None,
    is_stepping: bool = False,
    search: SearchState = SearchState(),
    together: tuple[datetime, int] | None = None,
) -> ReviewContext:
    query, shown, counts, current = queue.query, queue.rows, queue.counts, queue.current
    current_id = current.row.pk if current else None
    before, after = _neighbours(shown, current_id)
    total = counts.get(query.kind, 0)
    pages = max(1, -(-total // PAGE))
    pager = build_pager(query.page, pages, PAGE, total, lambda page: review_url(query.with_(page=page)))
    labels = kind_labels()
    confidences = {
        confidence: f"{confidence:.0%} or more" if confidence else "Any"
        for confidence in sorted({*_CONFIDENCES, query.confidence})
    }
    return ReviewContext(
        title=f"{number(sum(counts.values()))} {query.state}",
        tabs=_options(query, "kind", labels, counts),
        projects=_options(query, "project", {"": "All projects", **{one.slug: one.name for one in projects}}),
        states=_options(query, "state", {"open": "Open", "accepted": "Accepted", "rejected": "Rejected"}),
        confidences=_options(query, "confidence", confidences),
        kind=labels[query.kind],
        rows=tuple(queue_row(one, query, is_current=one.row.pk == current_id) for one in shown),
        detail=_detail(current, evidence, query, may_decide, zone) if current and evidence else None,
        pager=pager if pages > 1 else None,
        previous_url=review_url(query.with_(page=query.page), before.row.pk) if before else pager.previous_url,
        next_url=review_url(query.with_(page=query.page), after.row.pk) if after else pager.next_url,
        next_id=str(after.row.pk) if after else "",
        querystring=query.querystring(),
        many_url=many_url(query) if may_decide_many and query.state == "open" else "",
        groups_url=groups_url(query) if query.kind in GROUPED_KINDS and query.state == "open" else "",
        proposal=query.proposal,
        group=proposal_text(shown[0]) if query.proposal and shown else query.proposal,
        notices=tuple(notices),
        done=_done(done) if done else None,
        is_stepping=is_stepping,
        empty=_empty(query, search, any(counts.values())),
        has_any=any(counts.values()),
        is_narrowed=bool(query.project or query.confidence or query.proposal or query.state != "open"),
        search=search,
        here=review_url(query if shown else query.with_(kind="")),
        undo_many=Link(
            f"Undo the {number(together[1])} {query.state} together {moment_label(together[0], zone)}",
            undo_many_url(together[0]),
        )
        if together
        else None,
    )


def _neighbours(
    shown: Sequence[ShownSuggestion], current_id: int | None
) -> tuple[ShownSuggestion | None, ShownSuggestion | None]:
    """The suggestions of a page before and after the current one."""
    at = next((n for n, one in enumerate(shown) if one.row.pk == current_id), -1)
    return shown[at - 1] if at > 0 else None, shown[at + 1] if 0 <= at < len(shown) - 1 else None


def _options(
    query: ReviewQuery, name: str, labels: Mapping[Any, str], counts: Mapping[str, int] | None = None
) -> tuple[FilterOption, ...]:
    """The options of a filter, from labels by value."""
    return tuple(
        FilterOption(
            label,
            f"{value}",
            review_url(query.with_(**{name: value})),
            number(counts.get(value, 0)) if counts is not None else "",
            value == getattr(query, name),
        )
        for value, label in labels.items()
    )


def proposal_text(one: ShownSuggestion) -> str:
    """The proposed change in a line."""
    if one.target.kind == "memory":
        return _name_with_number(one.target)
    if one.target.kind == "category":
        return " / ".join(one.target.names) or one.target.name
    if one.row.kind in NAME_KINDS:
        return f"{one.subject.name} → {one.target.name}"
    return one.target.name


def _name_with_number(memory: Named) -> str:
    """The title of a memory with its number, since near-duplicates often have the same title."""
    return f"#{memory.id} {plain_title(memory.name)}"


def queue_row(one: ShownSuggestion, query: ReviewQuery, *, is_current: bool = False) -> QueueRow:
    return QueueRow(
        id=one.row.pk,
        url=review_url(query.with_(page=query.page), one.row.pk),
        title=_name_with_number(one.subject) if one.subject.kind == "memory" else "",
        proposal=proposal_text(one),
        note=_note(one),
        confidence=one.row.confidence,
        current=is_current,
        counts=" → ".join(map(number, one.counts)) if one.counts else "",
    )


def _note(one: ShownSuggestion) -> str:
    if one.row.kind == Kind.CONCEPT:
        return f"new, {one.target.type}" if one.target.id is None else one.target.type
    types = dict.fromkeys(named.type for named in (one.subject, one.target) if named.type)
    return " and ".join(types) if one.row.kind == Kind.ENTITY_DUPLICATE else ""


def _empty(query: ReviewQuery, search: SearchState, has_others: bool) -> str:
    if query.project or query.confidence:
        return "No suggestion of this kind matches the filters."
    if query.state != "open":
        return f"No suggestion of this kind has been {query.state} yet."
    if has_others:
        return "Nothing to review of this kind"
    if search.is_running:
        return "Nothing to review yet"
    return (
        "Nothing to review"
        if search.may_start
        else f"Nothing to review. The command “{command('suggest')}” finds more."
    )


def _done(one: ShownSuggestion) -> LastDecision | None:
    if one.row.state == State.OPEN:
        return LastDecision(f"Reopened: {proposal_text(one)}.", "")
    message = f"{one.row.get_state_display()}: {proposal_text(one)}."
    if one.row.state == State.REJECTED:
        # Neither name goes into the other.
        if one.row.kind in NAME_KINDS:
            message = f"“{one.subject.name}” and “{one.target.name}” are kept apart."
        message += " It is not proposed again."
    return LastDecision(message, reverse("suggestions:undo", args=[one.row.pk]))


# --- the current suggestion ------------------------------------------------------------------------------------------


def _detail(
    one: ShownSuggestion, evidence: Evidence, query: ReviewQuery, may_decide: bool, zone: tzinfo
) -> SuggestionDetail:
    row = one.row
    kind = Kind(row.kind)
    accept, swap = _verbs(one)
    texts = texts_of(one, evidence, zone)
    return SuggestionDetail(
        row=row,
        question=_QUESTIONS[kind],
        steps=(one.target.names or (one.target.name,)) if kind in (Kind.CATEGORY, Kind.CONCEPT) else (),
        badge=_note(one) if kind is Kind.CONCEPT else "",
        decided=_decided(row, zone),
        accept_label=accept,
        swap_label=swap,
        turned="1" if one.is_turned else "0",
        texts=texts,
        sides=tuple(
            side_of(side, role, zone) for side, role in zip(evidence.sides, _ROLES[State(row.state)], strict=False)
        ),
        shared=tuple(row.evidence.get("terms", ())),
        supporting=tuple(memory_summary(memory, zone) for memory in evidence.supporting),
        supporting_label=_supporting_label(one, evidence),
        alternatives=tuple(queue_row(other, query) for other in evidence.alternatives),
        may_decide=may_decide,
        by_column=bool(swap) and 2 in (len(texts), len(evidence.sides)) and row.state == State.OPEN,
    )


def _verbs(one: ShownSuggestion) -> tuple[str, str]:
    """The labels of accepting and of swapping, which may be empty."""
    kind = Kind(one.row.kind)
    if kind in NAME_KINDS:
        return f"Keep “{_short(one.target)}”", f"Keep “{_short(one.subject)}”"
    if kind is Kind.MEMORY_DUPLICATE:
        return f"Keep #{one.target.id}", f"Keep #{one.subject.id}"
    return {Kind.CATEGORY: "Accept", Kind.CONCEPT: "Accept"}.get(kind, "Mark the older one superseded"), ""


def _short(named: Named) -> str:
    return named.name if len(named.name) <= 30 else f"{named.name[:29]}…"


def _decided(row: Suggestion, zone: tzinfo) -> str:
    if row.state == State.OPEN or row.decided_at is None:
        return ""
    by = "automatically" if row.is_automatic else f"by {row.decided_by}" if row.decided_by else ""
    return f"{row.get_state_display()} {day_label(row.decided_at, zone)} {by}".strip()


def _supporting_label(one: ShownSuggestion, evidence: Evidence) -> str:
    if not evidence.supporting:
        return ""
    if one.row.kind == Kind.CATEGORY:
        are = "is" if evidence.supporting_count == 1 else "are"
        return f"{memories(evidence.supporting_count)} close to this one that {are} in it"
    if one.target.id is None:
        return f"Proposed for {memories(evidence.supporting_count)} more"
    return f"{memories(evidence.supporting_count)} of the project with it"


@dataclass(frozen=True, slots=True)
class ManyContext:
    """The preview of accepting or rejecting many suggestions."""

    kind: str
    proposal: str
    """The proposal, if all suggestions are of one."""
    count: int
    shown: str
    min_confidence: str
    doubtful: tuple[QueueRow, ...]
    surest: tuple[QueueRow, ...]
    listed: str
    """The numbers of those that are listed."""
    left_out: frozenset[int]
    """The numbers of those without a tick."""
    contradicted: int
    """How many contradict a surer one."""
    some: str
    """How many of how many are listed, unless all are."""
    all_url: str
    accept_label: str
    reject_label: str
    rest: str
    """How many more there are than are decided at once; empty if there are none."""
    querystring: str
    back_url: str
    notices: tuple[str, ...]


def _row_of_many(one: ShownSuggestion, query: ReviewQuery, surer: ShownSuggestion | None) -> QueueRow:
    row = queue_row(one, query)
    if surer is None:
        return row
    is_tie = surer.row.confidence <= one.row.confidence
    return replace(row, instead=f"not with {proposal_text(surer)}, which is {'as sure' if is_tie else 'surer'}")


def build_many(
    query: ReviewQuery,
    count: int,
    rest: int,
    doubtful: Sequence[ShownSuggestion],
    surest: Sequence[ShownSuggestion],
    notices: Sequence[str] = (),
    left_out: Collection[int] = (),
    instead: Mapping[int, ShownSuggestion] = MappingProxyType({}),
) -> ManyContext:
    """The preview: the least confident suggestions first, since they are those to look at, and some of the others.

    `left_out` has no tick; `instead` has those that do not go together with a surer one, with that.
    """
    listed = [one.row.pk for one in (*doubtful, *surest)]
    # Those that contradict a listed or a surer one stay open.
    unlisted = sorted(instead.keys() - set(listed))
    others = count - len(listed) - len(unlisted)
    more = f", and {number(others)} more" if others else ""
    of_all = f"{number(count - len(instead))} of " if instead else ""
    return ManyContext(
        kind=kind_labels()[query.kind],
        proposal=proposal_text(doubtful[0]) if query.proposal and doubtful else "",
        count=count,
        shown=memories(count) if query.proposal else of_all + plural(count, "suggestion"),
        min_confidence=f"{query.confidence:.0%}",
        doubtful=tuple(_row_of_many(one, query, instead.get(one.row.pk)) for one in doubtful),
        surest=tuple(_row_of_many(one, query, instead.get(one.row.pk)) for one in surest),
        listed=" ".join(map(str, (*listed, *unlisted))),
        left_out=frozenset(left_out),
        contradicted=len(instead) - len(unlisted),
        some=f"{number(len(listed))} of {number(count)} are listed." if others or unlisted else "",
        all_url=f"{many_url(query)}&list=all",
        accept_label=f"Accept those ticked{more}",
        reject_label=f"Reject those ticked{more}",
        rest=number(rest) if rest else "",
        querystring=query.querystring(),
        back_url=review_url(query),
        notices=tuple(notices),
    )
