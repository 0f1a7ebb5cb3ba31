"""Texts with what matters in them marked: a phrase, a sentence, what two of them do not share. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

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
