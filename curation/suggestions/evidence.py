"""The evidence of a suggestion: the memories and names that it is about, as the queue compares them."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from difflib import SequenceMatcher
from typing import NamedTuple, cast

from django.db.models import Count, Max, QuerySet
from django.utils.safestring import SafeString

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.models import Concept, Entity
from categories.texts import readable_aliases, readable_description
from curation.suggestions.models import Suggestion
from curation.suggestions.proposals import Kind
from curation.suggestions.queries import Named, ShownSuggestion, visible_suggestions, with_names
from explorer.links import filter_url
from explorer.markdown import render_marked
from memories.models import Memory
from memories.queries import visible_to
from text.highlight import plain_title
from text.steering import phrases_of

# The time of a comparison grows with the square of its words.
_COMPARED_WORDS = 1_500
_WORDS = re.compile(r"\s*\S+|\s+$")
# Characters of a text that are shown; the memory's page has the rest.
SHOWN_TEXT = 6_000
# The number of supporting memories that are shown.
_SHOWN = 6


class Piece(NamedTuple):
    """A part of a text, highlighted or not."""

    text: str
    is_marked: bool = False


def with_marked(text: str, phrases: Iterable[str]) -> tuple[Piece, ...]:
    """A text with all occurrences of the phrases marked, even across line breaks."""
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
    """Both texts with their differences marked. Of long texts, only the beginnings are compared."""
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


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """The memory of a suggestion, or a memory that supports it."""

    id: int
    title: str
    memory_type: str
    state: str
    project: str
    created_at: datetime
    by: str = ""
    """The authors, or the agent that wrote it."""
    content: str = ""
    tags: tuple[str, ...] = ()
    similarity: float | None = None

    @property
    def shown_text(self) -> str:
        """The part of its text that is shown."""
        return self.content[:SHOWN_TEXT]


@dataclass(frozen=True, slots=True)
class ShownText:
    """A memory that is compared, the role in which it is, and its text as HTML, with what matters highlighted."""

    memory: ShownMemory
    role: str
    body: SafeString


@dataclass(frozen=True, slots=True)
class Side:
    """One of two names, with the number of visible memories that have it and the newest of these."""

    named: Named
    description: str
    aliases: tuple[str, ...]
    count: int
    newest: datetime | None
    memories: tuple[ShownMemory, ...]

    @property
    def explore_url(self) -> str:
        return filter_url(
            self.named.kind, f"{self.named.type}:{self.named.name}" if self.named.kind == "entity" else self.named.name
        )


@dataclass(frozen=True, slots=True)
class Evidence:
    """The details of a suggestion."""

    texts: tuple[ShownText, ...] = ()
    supporting: tuple[ShownMemory, ...] = ()
    supporting_count: int = 0
    sides: tuple[Side, Side] | tuple[()] = ()
    alternatives: tuple[ShownSuggestion, ...] = ()


def evidence_of(viewer: Viewer, shown: ShownSuggestion) -> Evidence:
    """The visible details of a suggestion."""
    row = shown.row
    if row.kind in (Kind.MEMORY_DUPLICATE, Kind.SUPERSEDED):
        memories = _memories(viewer, [row.subject_id, row.target_id], content=True)
        return Evidence(texts=_compared_texts(row, memories.get(row.subject_id or 0), memories.get(row.target_id or 0)))
    if row.kind == Kind.MARKED:
        memory = _memories(viewer, [row.subject_id], content=True).get(row.subject_id or 0)
        phrases = phrases_of(memory.content) if memory else ()
        return Evidence(texts=(_text(memory, "", with_marked(memory.shown_text, phrases)),) if memory else ())
    if row.kind == Kind.CATEGORY:
        texts = _compared_texts(row, _memories(viewer, [row.subject_id], content=True).get(row.subject_id or 0))
        near = dict(row.evidence.get("neighbours", []))
        found = _memories(viewer, list(near)[:_SHOWN])
        supporting = [replace(found[pk], similarity=near[pk]) for pk in list(near)[:_SHOWN] if pk in found]
        supporting_count = visible_to(viewer).filter(pk__in=list(near)).count()
        return Evidence(
            texts=texts,
            supporting=tuple(supporting),
            supporting_count=supporting_count,
            alternatives=_alternatives(viewer, row),
        )
    if row.kind == Kind.CONCEPT:
        texts = _compared_texts(row, _memories(viewer, [row.subject_id], content=True).get(row.subject_id or 0))
        others = _with_concept(viewer, row)
        having = others.exclude(pk=row.subject_id or 0).order_by("-created_at", "-id")
        return Evidence(
            texts=texts,
            supporting=tuple(_memories(viewer, list(having.values_list("pk", flat=True)[:_SHOWN])).values()),
            supporting_count=having.count(),
            alternatives=_alternatives(viewer, row),
        )
    return Evidence(sides=(_side(viewer, row, shown.subject), _side(viewer, row, shown.target)))


def _compared_texts(
    row: Suggestion, memory: ShownMemory | None, other: ShownMemory | None = None
) -> tuple[ShownText, ...]:
    if memory is None:
        return ()
    if other is None:
        return (_text(memory, "", with_marked(memory.shown_text, [row.evidence.get("phrase", "")])),)
    if row.kind == Kind.MEMORY_DUPLICATE:
        one, two = with_differences(memory.shown_text, other.shown_text)
        return _text(memory, "will be superseded", one), _text(other, "will be kept", two)
    marked = with_marked(other.shown_text, [row.evidence.get("sentence", "")])
    return _text(memory, "older", [Piece(memory.shown_text)]), _text(other, "newer", marked)


def _text(memory: ShownMemory, role: str, pieces: Iterable[Piece]) -> ShownText:
    return ShownText(memory, role, render_marked(pieces, highest=4))


def _with_concept(viewer: Viewer, row: Suggestion) -> QuerySet[Memory]:
    """Memories of the project with the concept; for a new concept, those it is proposed for too."""
    memories = visible_to(viewer).filter(project_id=row.project_id or 0)
    if row.target_id is not None:
        return memories.filter(concept_ids__contains=[row.target_id])
    same = Suggestion.objects.filter(
        kind=Kind.CONCEPT, project_id=row.project_id or 0, proposal__concept=row.proposal.get("concept")
    )
    return memories.filter(pk__in=visible_suggestions(viewer, same).values("subject_id"))


def _alternatives(viewer: Viewer, row: Suggestion) -> tuple[ShownSuggestion, ...]:
    """Other open suggestions of the kind for the same memory."""
    others = Suggestion.objects.filter(kind=row.kind, subject_id=row.subject_id, state=Suggestion.State.OPEN)
    visible = visible_suggestions(viewer, others.exclude(pk=row.pk))
    return tuple(with_names(visible.order_by("-confidence", "id")[:_SHOWN], viewer))


def _memories(viewer: Viewer, ids: Collection[int | None], *, content: bool = False) -> dict[int, ShownMemory]:
    """Visible memories, in the order of the ids."""
    columns = [
        "pk",
        "authors",
        "agent",
        "title",
        "memory_type",
        "state",
        "project__name",
        "project__slug",
        "created_at",
    ]
    columns += ["content", "tags"] if content else []
    rows = visible_to(viewer).filter(pk__in=[pk for pk in ids if pk is not None]).values_list(*columns)
    found = {}
    for pk, authors, agent, title, memory_type, state, name, slug, created_at, *text in rows:
        found[pk] = ShownMemory(
            id=pk,
            title=plain_title(title) or f"Memory {pk}",
            memory_type=memory_type,
            state=state,
            project=name or slug,
            created_at=created_at,
            by=", ".join(authors) or agent,
            content=text[0] if content else "",
            tags=tuple(text[1]) if content else (),
        )
    return {pk: found[pk] for pk in ids if pk is not None and pk in found}


def _side(viewer: Viewer, row: Suggestion, named: Named) -> Side:
    """The use of one of two names by visible memories."""
    described: Concept | Entity | None = None
    if row.kind == Kind.TAG_DUPLICATE:
        memories = visible_to(viewer).filter(tags__contains=[named.name])
    else:
        vocabulary = VOCABULARIES[named.kind]
        memories = visible_to(viewer).filter(**{f"{vocabulary.memory_column}__contains": [named.id]})
        described = cast("Concept | Entity | None", vocabulary.model._default_manager.filter(pk=named.id or 0).first())
    totals = memories.aggregate(n=Count("pk"), newest=Max("created_at"))
    newest = list(memories.order_by("-created_at", "-pk").values_list("pk", flat=True)[:_SHOWN])
    return Side(
        named=named,
        description=readable_description(described, viewer.project_ids) if described else "",
        aliases=tuple(readable_aliases(described, viewer.project_ids)) if described else (),
        count=totals["n"],
        newest=totals["newest"],
        memories=tuple(_memories(viewer, newest).values()),
    )
