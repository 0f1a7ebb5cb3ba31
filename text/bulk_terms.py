"""The terms of many documents, for imports: the results of `text.analysis`, prepared for Postgres and tantivy.

Most pieces of text between spaces recur, so they are cached; tokens contain no spaces and do not depend on neighbours.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from operator import add, itemgetter
from typing import NamedTuple

from text.analysis import (
    FIELD_GAP,
    MAX_DISTINCT_TERMS,
    MAX_POSITION,
    MAX_POSITIONS_PER_TERM,
    TOKEN,
    analyse_token,
    index_terms,
    quote_term,
    single_term,
    to_tsvector,
)

# The suffix of a term in a tsvector literal, by position. Later positions are left out.
_PLACES = {weight: [f"':{at}{weight}" for at in range(MAX_POSITION)] for weight in "ABCD"}

# Characters that may follow a token at the end of a piece.
_ENDS = ".,;:!?)"

# The size of the cache, and the longest piece cached. Ids and text without spaces rarely recur.
_MAX_CACHED = 400_000
_MAX_LENGTH = 60
_NUMBER = re.compile(r"\d{4}")

FieldTerms = str | list[tuple[str, int]]
"""The terms of a field: usually a text of words with consecutive positions, otherwise each term with its position."""


class PlacedTerms(NamedTuple):
    """The terms of a document, as a tsvector literal and by field with positions within the field."""

    vector: str
    fields: list[FieldTerms] | None
    """None if they exceed the limits of Postgres: then `vector` has the terms that fit."""
    is_joined: bool = False
    """Whether the second field continues the first one without a gap."""


class _Piece(NamedTuple):
    """A piece of text between spaces: each term, its text in a literal, and its position, ordered by position."""

    terms: tuple[tuple[str, str, int], ...]
    width: int
    text: str | None
    """As in `FieldTerms`."""


@cache
def _caches(language: str) -> tuple[dict[str, str], dict[str, _Piece]]:
    """The caches of a language: the term of each single word (empty for none), and the analysis of other pieces.

    Plain dictionaries, since every word of an import is looked up.
    """
    return {}, {}


def placed_terms(fields: list[tuple[str, str]], language: str = "english", *, is_joined: bool = False) -> PlacedTerms:
    """`index_terms` and `to_tsvector` in one pass. A term is repeated for each position; Postgres merges them."""
    known, _ = _caches(language)
    entries: list[str] = []
    placed: list[FieldTerms] = []
    position = 1
    try:
        for number, (text, weight) in enumerate(fields):
            pieces = text.split()
            words = list(map(known.get, pieces))
            terms: FieldTerms
            if None in words:
                terms, width = _mixed(pieces, words, language, _PLACES[weight], position, entries)
            else:
                found = list(filter(None, words))
                terms, width = " ".join(found), len(found)
                entries += map(add, found, _PLACES[weight][position : position + width])
            placed.append(terms)
            position += width + (0 if is_joined and not number else FIELD_GAP)
    except IndexError:
        position = MAX_POSITION + FIELD_GAP + 1
    if position > MAX_POSITION + FIELD_GAP or (len(entries) > MAX_POSITIONS_PER_TERM and _are_too_many(entries)):
        return PlacedTerms(to_tsvector(index_terms(fields, language, is_joined=is_joined)), None)
    return PlacedTerms("'" + " '".join(entries) if entries else "", placed, is_joined)


def join_fields(first: FieldTerms, second: FieldTerms) -> FieldTerms:
    """The terms of two fields as those of one, the second right after the first."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first} {second}".strip()
    before = _with_positions(first)
    width = max((at for _, at in before), default=-1) + 1
    return [*before, *((term, width + at) for term, at in _with_positions(second))]


def _with_positions(terms: FieldTerms) -> list[tuple[str, int]]:
    return terms if isinstance(terms, list) else [(term, at) for at, term in enumerate(terms.split())]


def _are_too_many(entries: list[str]) -> bool:
    """Whether a document has too many distinct terms, or too many positions of a term."""
    often = Counter(entry.rpartition(":")[0] for entry in entries)
    return len(often) > MAX_DISTINCT_TERMS or max(often.values()) > MAX_POSITIONS_PER_TERM


def _mixed(
    pieces: list[str], words: list[str | None], language: str, places: list[str], position: int, entries: list[str]
) -> tuple[FieldTerms, int]:
    """The terms of a field with uncached or complex pieces, and the number of positions. Adds to `entries`.

    Raises IndexError past the last position.
    """
    _, others = _caches(language)
    found: list[str | _Piece] = []
    width = 0
    for text, word in zip(pieces, words, strict=True):
        if word is None:
            piece = others.get(text) or _analyse_piece(text, language)
            entries += [quoted + places[position + width + at] for _, quoted, at in piece.terms]
            found.append(piece)
            width += piece.width
        elif word:
            entries.append(word + places[position + width])
            found.append(word)
            width += 1
    return _text(found) or _each_placed(found), width


def _text(found: Sequence[str | _Piece]) -> str | None:
    texts = [one if isinstance(one, str) else one.text for one in found]
    return None if None in texts else " ".join(filter(None, texts))


def _each_placed(found: Sequence[str | _Piece]) -> list[tuple[str, int]]:
    terms: list[tuple[str, int]] = []
    width = 0
    for one in found:
        if isinstance(one, str):
            terms.append((one, width))
            width += 1
        else:
            terms += [(term, width + at) for term, _, at in one.terms]
            width += one.width
    return terms


def _analyse_piece(text: str, language: str) -> _Piece:
    """Analyse and cache a piece."""
    words, others = _caches(language)
    if len(words) + len(others) >= _MAX_CACHED:
        words.clear()
        others.clear()
    if term := single_term(text.rstrip(_ENDS), language):
        words[text] = term
        return _Piece(((term, term, 0),), 1, term)
    piece = _analysed(text, language)
    if piece.text is not None and len(piece.terms) < 2:
        words[text] = piece.text
    elif len(text) <= _MAX_LENGTH and not _NUMBER.search(text):
        others[text] = piece
    return piece


def _analysed(text: str, language: str) -> _Piece:
    raws = [raw for found in TOKEN.findall(text) if (raw := analyse_token(found, language)).terms]
    starts = accumulate((raw.width for raw in raws), initial=0)
    placed = [
        (term, at + start)
        for raw, start in zip(raws, starts, strict=False)
        for term, at in sorted(raw.terms, key=itemgetter(1))
    ]
    width = sum(raw.width for raw in raws)
    # Quotes and backslashes need an escape in a literal.
    are_words = len(placed) == width and "".join(term for term, _ in placed).isalnum()
    text_of = " ".join(term for term, _ in placed) if are_words or not width else None
    return _Piece(tuple((term, quote_term(term)[1:-1], at) for term, at in placed), width, text_of)
