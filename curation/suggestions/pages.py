"""ReviewContext: all that the pages of the queue may read. No database and no request."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from difflib import SequenceMatcher
from urllib.parse import urlencode

from django.urls import reverse

from curation.suggestions.evidence import Evidence, ShownMemory, Side
from curation.suggestions.models import Suggestion
from curation.suggestions.params import ReviewQuery, kind_labels
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import PAGE, Named, Queue, ShownSuggestion
from explorer.http import Pager, build_pager
from explorer.links import filter_url, memory_url
from memories.models import Project
from text.formatting import day_label, memories, number, plural, type_family

# A comparison takes the square of its words.
_COMPARED_WORDS = 1_500
_WORDS = re.compile(r"\s*\S+|\s+$")


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of text, and whether it is marked."""

    text: str
    is_marked: bool = False


def with_marked(text: str, phrases: Iterable[str]) -> tuple[Piece, ...]:
    """The text with every place marked where one of the phrases stands, however it breaks its lines."""
    patterns = [r"\s+".join(map(re.escape, phrase.split())) for phrase in phrases if phrase.strip()]
    if not patterns:
        return (Piece(text),)
    pieces: list[Piece] = []
    at = 0
    for match in re.finditer("|".join(patterns), text, re.IGNORECASE):
        pieces += [Piece(text[at : match.start()]), Piece(match.group(), is_marked=True)]
        at = match.end()
    pieces.append(Piece(text[at:]))
    return tuple(piece for piece in pieces if piece.text)


def with_differences(one: str, other: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Both texts, in each what the other has not. Only their beginnings are compared where they are long."""
    first, second = _WORDS.findall(one), _WORDS.findall(other)
    heads = [word.strip() for word in first[:_COMPARED_WORDS]], [word.strip() for word in second[:_COMPARED_WORDS]]
    blocks = SequenceMatcher(None, *heads, autojunk=False).get_matching_blocks()
    return (
        tuple(_pieces(first, [(block.a, block.a + block.size) for block in blocks])),
        tuple(_pieces(second, [(block.b, block.b + block.size) for block in blocks])),
    )


def _pieces(words: Sequence[str], same: Iterable[tuple[int, int]]) -> Iterable[Piece]:
    at = 0
    for start, end in same:
        for words_of, is_marked in ((words[at:start], True), (words[start:end], False)):
            if words_of:
                yield Piece("".join(words_of), is_marked)
        at = end
    if rest := words[at:]:
        yield Piece("".join(rest))


_CONFIDENCES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9)
# A text is shown so far; its own page has the rest.
_SHOWN_TEXT = 6_000
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
class Choice:
    """Something that can be chosen: a tab, a project, a state."""

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
    confidence: str
    percent: int
    current: bool


@dataclass(frozen=True, slots=True)
class Mention:
    """A memory that is named."""

    title: str
    url: str
    type: str
    family: str
    date: str
    date_iso: str
    project: str
    state: str
    near: str


@dataclass(frozen=True, slots=True)
class ShownText:
    """A memory with its text."""

    mention: Mention
    role: str
    pieces: tuple[Piece, ...]
    tags: tuple[str, ...]
    is_cut: bool


@dataclass(frozen=True, slots=True)
class ShownSide:
    """One of two names."""

    name: str
    type: str
    role: str
    count: str
    since: str
    description: str
    aliases: tuple[str, ...]
    memories: tuple[Mention, ...]
    explore_url: str


@dataclass(frozen=True, slots=True)
class DetailContext:
    """The suggestion that is looked at, with all that speaks for it."""

    id: int
    kind: str
    question: str
    steps: tuple[str, ...]
    badge: str
    reason: str
    confidence: str
    percent: int
    state: str
    decided: str
    accept_label: str
    swap_label: str
    texts: tuple[ShownText, ...]
    sides: tuple[ShownSide, ...]
    shared: tuple[str, ...]
    speakers: tuple[Mention, ...]
    speaking: str
    alternatives: tuple[QueueRow, ...]
    may_decide: bool
    accept_url: str
    reject_url: str
    undo_url: str


@dataclass(frozen=True, slots=True)
class Done:
    """What was decided last, and can be taken back."""

    said: str
    undo_url: str


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """The page of the queue."""

    title: str
    tabs: tuple[Choice, ...]
    projects: tuple[Choice, ...]
    states: tuple[Choice, ...]
    confidences: tuple[Choice, ...]
    kind: str
    rows: tuple[QueueRow, ...]
    detail: DetailContext | None
    pager: Pager | None
    previous_url: str
    next_url: str
    next_id: str
    querystring: str
    many_url: str
    notices: tuple[str, ...]
    done: Done | None
    empty: str


def review_url(query: ReviewQuery, item: int | None = None, done: int | None = None) -> str:
    more = [(name, str(value)) for name, value in (("item", item), ("done", done)) if value is not None]
    querystring = urlencode([*query.parameters(), *more])
    return reverse("suggestions:review") + (f"?{querystring}" if querystring else "")


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
) -> ReviewContext:
    query, shown, counts, current = queue.query, queue.rows, queue.counts, queue.current
    at = next((n for n, one in enumerate(shown) if current and one.row.pk == current.row.pk), -1)
    before = shown[at - 1] if at > 0 else None
    after = shown[at + 1] if 0 <= at < len(shown) - 1 else None
    total = counts.get(query.kind, 0)
    pages = max(1, -(-total // PAGE))
    pager = build_pager(query.page, pages, PAGE, total, lambda page: review_url(query.with_(page=page)))
    labels = kind_labels()
    return ReviewContext(
        title=f"{number(sum(counts.values()))} {query.state}",
        tabs=tuple(
            Choice(label, kind, review_url(query.with_(kind=kind)), number(counts.get(kind, 0)), kind == query.kind)
            for kind, label in labels.items()
        ),
        projects=(
            Choice("All projects", "", review_url(query.with_(project="")), current=not query.project),
            *(
                Choice(one.name, one.slug, review_url(query.with_(project=one.slug)), current=one.slug == query.project)
                for one in projects
            ),
        ),
        states=tuple(
            Choice(label, value, review_url(query.with_(state=value)), current=value == query.state)
            for value, label in (("open", "Open"), ("accepted", "Accepted"), ("rejected", "Rejected"))
        ),
        confidences=tuple(
            Choice(
                f"{least:.0%} or more" if least else "Any confidence",
                f"{least}",
                review_url(query.with_(confidence=least)),
                current=least == query.confidence,
            )
            for least in sorted({*_CONFIDENCES, query.confidence})
        ),
        kind=labels[query.kind],
        rows=tuple(queue_row(one, query, is_current=bool(current and one.row.pk == current.row.pk)) for one in shown),
        detail=_detail(current, evidence, query, may_decide, zone) if current and evidence else None,
        pager=pager if pages > 1 else None,
        previous_url=review_url(query.with_(page=query.page), before.row.pk) if before else pager.previous_url,
        next_url=review_url(query.with_(page=query.page), after.row.pk) if after else pager.next_url,
        next_id=str(after.row.pk) if after else "",
        querystring=query.querystring(),
        many_url=f"{reverse('suggestions:accept_many')}?{query.querystring()}"
        if may_decide_many and query.state == "open"
        else "",
        notices=tuple(notices),
        done=_done(done) if done else None,
        empty=_empty(query),
    )


def proposal_text(one: ShownSuggestion) -> str:
    """What is proposed, in a line."""
    if one.target.kind == "category":
        return " / ".join(one.target.names) or one.target.label
    if one.row.kind in (Kind.ENTITY_DUPLICATE, Kind.CONCEPT_DUPLICATE, Kind.TAG_DUPLICATE):
        return f"{one.subject.label} → {one.target.label}"
    return one.target.label


def queue_row(one: ShownSuggestion, query: ReviewQuery, *, is_current: bool = False) -> QueueRow:
    return QueueRow(
        id=one.row.pk,
        url=review_url(query.with_(page=query.page), one.row.pk),
        title=one.subject.label if one.subject.kind == "memory" and one.subject.label != proposal_text(one) else "",
        proposal=proposal_text(one),
        note=_note(one),
        confidence=f"{one.row.confidence:.0%}",
        percent=round(one.row.confidence * 100),
        current=is_current,
    )


def _note(one: ShownSuggestion) -> str:
    if one.row.kind == Kind.CONCEPT:
        return f"new, {one.target.type}" if one.target.id is None else one.target.type
    types = dict.fromkeys(named.type for named in (one.subject, one.target) if named.type)
    return " and ".join(types) if one.row.kind == Kind.ENTITY_DUPLICATE else ""


def _empty(query: ReviewQuery) -> str:
    if query.project or query.confidence:
        return "No suggestion of this kind matches the filters."
    if query.state != "open":
        return f"No suggestion of this kind has been {query.state} yet."
    return "Nothing to review. The command “manage.py suggest” finds more suggestions."


def _done(one: ShownSuggestion) -> Done | None:
    if one.row.state == Suggestion.State.OPEN:
        return Done(f"Reopened: {proposal_text(one)}.", "")
    said = f"{one.row.get_state_display()}: {proposal_text(one)}."
    return Done(said, reverse("suggestions:undo", args=[one.row.pk]))


# --- the one that is looked at ---------------------------------------------------------------------------------------


def _detail(
    one: ShownSuggestion, evidence: Evidence, query: ReviewQuery, may_decide: bool, zone: tzinfo
) -> DetailContext:
    row = one.row
    kind = Kind(row.kind)
    accept, swap = _verbs(one)
    return DetailContext(
        id=row.pk,
        kind=row.kind,
        question=_QUESTIONS[kind],
        steps=(one.target.names or (one.target.label,)) if kind in (Kind.CATEGORY, Kind.CONCEPT) else (),
        badge=_note(one) if kind is Kind.CONCEPT else "",
        reason=row.reason,
        confidence=f"{row.confidence:.0%}",
        percent=round(row.confidence * 100),
        state=row.state,
        decided=_decided(row, zone),
        accept_label=accept,
        swap_label=swap,
        texts=_texts(one, evidence, zone),
        sides=tuple(
            _side(side, role, zone)
            for side, role in zip(evidence.sides, ("will be merged away", "will be kept"), strict=False)
        ),
        shared=tuple(row.evidence.get("terms", ())),
        speakers=tuple(_mention(memory, zone) for memory in evidence.speakers),
        speaking=_speaking(one, evidence),
        alternatives=tuple(queue_row(other, query) for other in evidence.alternatives),
        may_decide=may_decide,
        accept_url=reverse("suggestions:accept", args=[row.pk]),
        reject_url=reverse("suggestions:reject", args=[row.pk]),
        undo_url=reverse("suggestions:undo", args=[row.pk]),
    )


def _verbs(one: ShownSuggestion) -> tuple[str, str]:
    """What accepting is called, and what the other way round is, where there is one."""
    kind = Kind(one.row.kind)
    if kind in (Kind.ENTITY_DUPLICATE, Kind.CONCEPT_DUPLICATE, Kind.TAG_DUPLICATE):
        return f"Keep “{_short(one.target)}”", f"Keep “{_short(one.subject)}”"
    if kind is Kind.MEMORY_DUPLICATE:
        return f"Keep #{one.target.id}", f"Keep #{one.subject.id}"
    return {Kind.CATEGORY: "Accept", Kind.CONCEPT: "Accept"}.get(kind, "Mark the older one superseded"), ""


def _short(named: Named) -> str:
    return named.label if len(named.label) <= 30 else f"{named.label[:29]}…"


def _decided(row: Suggestion, zone: tzinfo) -> str:
    if row.state == Suggestion.State.OPEN or row.decided_at is None:
        return ""
    who = "automatically" if row.is_automatic else f"by {row.decided_by}" if row.decided_by else ""
    return f"{row.get_state_display()} {day_label(row.decided_at, zone)} {who}".strip()


def _texts(one: ShownSuggestion, evidence: Evidence, zone: tzinfo) -> tuple[ShownText, ...]:
    said = one.row.evidence
    if evidence.memory and evidence.other:
        if one.row.kind == Kind.MEMORY_DUPLICATE:
            pieces = with_differences(_cut(evidence.memory), _cut(evidence.other))
            roles = ("will be superseded", "will be kept")
        else:
            pieces = ((Piece(_cut(evidence.memory)),), with_marked(_cut(evidence.other), [said.get("sentence", "")]))
            roles = ("older", "newer")
        both = zip((evidence.memory, evidence.other), roles, pieces, strict=True)
        return tuple(_text(memory, role, shown, zone) for memory, role, shown in both)
    if evidence.memory:
        return (_text(evidence.memory, "", with_marked(_cut(evidence.memory), [said.get("phrase", "")]), zone),)
    return ()


def _cut(memory: ShownMemory) -> str:
    return memory.content[:_SHOWN_TEXT]


def _text(memory: ShownMemory, role: str, pieces: tuple[Piece, ...], zone: tzinfo) -> ShownText:
    return ShownText(_mention(memory, zone), role, pieces, memory.tags[:8], len(memory.content) > _SHOWN_TEXT)


def _mention(memory: ShownMemory, zone: tzinfo) -> Mention:
    return Mention(
        title=memory.title,
        url=memory_url(memory.id),
        type=memory.memory_type,
        family=type_family(memory.memory_type),
        date=day_label(memory.created_at, zone),
        date_iso=memory.created_at.isoformat(),
        project=memory.project,
        state="" if memory.state == "active" else memory.state,
        near="" if memory.similarity is None else f"{memory.similarity:.2f}",
    )


def _side(side: Side, role: str, zone: tzinfo) -> ShownSide:
    named = side.named
    value = f"{named.type}:{named.label}" if named.kind == "entity" else named.label
    return ShownSide(
        name=named.label,
        type=named.type,
        role=role,
        count=memories(side.count),
        since=f"newest {day_label(side.newest, zone)}" if side.newest else "",
        description=side.description,
        aliases=side.aliases[:8],
        memories=tuple(_mention(memory, zone) for memory in side.memories),
        explore_url=filter_url(named.kind, value),
    )


def _speaking(one: ShownSuggestion, evidence: Evidence) -> str:
    if not evidence.speakers:
        return ""
    if one.row.kind == Kind.CATEGORY:
        return f"{plural(evidence.speaking, 'memory', 'memories')} close to this one that are in it"
    if one.target.id is None:
        return f"Proposed for {memories(evidence.speaking)} more"
    return f"{memories(evidence.speaking)} of the project with it"


@dataclass(frozen=True, slots=True)
class ManyContext:
    """What accepting many would do, before it does."""

    kind: str
    count: int
    shown: str
    least: str
    sample: tuple[QueueRow, ...]
    is_too_many: bool
    most: str
    querystring: str
    back_url: str
    notices: tuple[str, ...]


def build_many(
    query: ReviewQuery, count: int, most: int, sample: Sequence[ShownSuggestion], notices: Sequence[str] = ()
) -> ManyContext:
    return ManyContext(
        kind=kind_labels()[query.kind],
        count=count,
        shown=plural(count, "suggestion"),
        least=f"{query.confidence:.0%}",
        sample=tuple(queue_row(one, query) for one in sample),
        is_too_many=count > most,
        most=number(most),
        querystring=query.querystring(),
        back_url=review_url(query),
        notices=tuple(notices),
    )
