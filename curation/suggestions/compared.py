"""The memories and names that a suggestion is about, as the queue compares them. No database and no request."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from difflib import SequenceMatcher

from django.utils.safestring import SafeString

from curation.suggestions.proposals import Kind
from curation.suggestions.queries import Evidence, ShownMemory, ShownSuggestion, Side
from explorer.links import filter_url, memory_url
from explorer.markdown import render_marked
from text.formatting import day_label, memories, moment_label, type_family

# The time of a comparison grows with the square of its words.
_COMPARED_WORDS = 1_500
_WORDS = re.compile(r"\s*\S+|\s+$")
# Characters of a text that are shown; the memory's page has the rest.
_SHOWN_TEXT = 6_000


@dataclass(frozen=True, slots=True)
class Piece:
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
class MemorySummary:
    """A memory in a list."""

    number: str
    title: str
    url: str
    type: str
    family: str
    date: str
    date_iso: str
    moment: str
    """The date with the time, which tells memories of the same day apart."""
    by: str
    project: str
    state: str
    near: str


@dataclass(frozen=True, slots=True)
class ShownText:
    """A memory with its text."""

    mention: MemorySummary
    role: str
    body: SafeString
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
    memories: tuple[MemorySummary, ...]
    explore_url: str


def texts_of(one: ShownSuggestion, evidence: Evidence, zone: tzinfo) -> tuple[ShownText, ...]:
    details = one.row.evidence
    if evidence.memory and evidence.other:
        if one.row.kind == Kind.MEMORY_DUPLICATE:
            pieces = with_differences(_cut(evidence.memory), _cut(evidence.other))
            roles = ("will be superseded", "will be kept")
        else:
            pieces = ((Piece(_cut(evidence.memory)),), with_marked(_cut(evidence.other), [details.get("sentence", "")]))
            roles = ("older", "newer")
        both = zip((evidence.memory, evidence.other), roles, pieces, strict=True)
        return tuple(_text(memory, role, shown, zone) for memory, role, shown in both)
    if evidence.memory:
        return (_text(evidence.memory, "", with_marked(_cut(evidence.memory), [details.get("phrase", "")]), zone),)
    return ()


def _cut(memory: ShownMemory) -> str:
    return memory.content[:_SHOWN_TEXT]


def _text(memory: ShownMemory, role: str, pieces: tuple[Piece, ...], zone: tzinfo) -> ShownText:
    body = render_marked(((piece.text, piece.is_marked) for piece in pieces), highest=4)
    return ShownText(memory_summary(memory, zone), role, body, memory.tags[:8], len(memory.content) > _SHOWN_TEXT)


def memory_summary(memory: ShownMemory, zone: tzinfo) -> MemorySummary:
    return MemorySummary(
        number=f"#{memory.id}",
        title=memory.title,
        url=memory_url(memory.id),
        type=memory.memory_type,
        family=type_family(memory.memory_type),
        date=day_label(memory.created_at, zone),
        date_iso=memory.created_at.isoformat(),
        moment=moment_label(memory.created_at, zone),
        by=memory.by,
        project=memory.project,
        state="" if memory.state == "active" else memory.state,
        near="" if memory.similarity is None else f"{memory.similarity:.2f}",
    )


def side_of(side: Side, role: str, zone: tzinfo) -> ShownSide:
    named = side.named
    value = f"{named.type}:{named.name}" if named.kind == "entity" else named.name
    return ShownSide(
        name=named.name,
        type=named.type,
        role=role,
        count=memories(side.count),
        since=f"newest {day_label(side.newest, zone)}" if side.newest else "",
        description=side.description,
        aliases=side.aliases[:8],
        memories=tuple(memory_summary(memory, zone) for memory in side.memories),
        explore_url=filter_url(named.kind, value),
    )
