"""The terms of many documents, as an import needs them: what `search.analysis` finds, ready for Postgres and tantivy.

Most of a text was met before. So it is looked up by what stands between blanks: no token has a blank in it, or depends
on what lies beyond one.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from operator import add, itemgetter
from typing import NamedTuple

from text.analysis import (
    MAX_DISTINCT_TERMS,
    MAX_POSITION,
    MAX_POSITIONS_PER_TERM,
    TOKEN,
    analyse_token,
    index_terms,
    is_hyphenated,
    needs_no_position,
    quote_term,
    single_term,
    to_tsvector,
)

# What the literal of a tsvector has after a term. What comes later has no place of its own, and is not in here.
_PLACES = {weight: [f"':{at}{weight}" for at in range(MAX_POSITION)] for weight in "ABCD"}

# What may end a piece and is no part of a token there.
_ENDS = ".,;:!?)"

# Of what may come again so much is kept. Ids hardly do, nor does what scripts without blanks write in a row.
_MOST = 400_000
_LONGEST = 60
_NUMBER = re.compile(r"\d{4}")

FieldTerms = tuple[str, str] | list[tuple[str, int]]
"""The terms of one field: where they are words with one position each, a text of them and another of what hyphens hold
together, where nobody can ask for its place; else each with its position.
"""


class PlacedTerms(NamedTuple):
    """The terms of a document: as the literal of its tsvector, and of each field with their positions within it."""

    vector: str
    fields: list[FieldTerms] | None
    """None where Postgres cannot hold all of them: then what there is stands in the literal alone."""


class _Piece(NamedTuple):
    """What stands between blanks: each term, how a literal begins it, and its position, in the order of these."""

    terms: tuple[tuple[str, str, int], ...]
    width: int
    texts: tuple[str, str] | None
    """As in `FieldTerms`."""


@cache
def _met(language: str) -> tuple[dict[str, str], dict[str, _Piece]]:
    """What was met: the terms of what is one word, empty where there is none, and of all else that may come again.
    Plain dictionaries, since they are asked for every word of an import.
    """
    return {}, {}


def placed_terms(fields: list[tuple[str, str]], language: str = "english") -> PlacedTerms:
    """`index_terms` and `to_tsvector` at once. A term has an entry for each of its positions: Postgres joins them."""
    known, _ = _met(language)
    entries: list[str] = []
    placed: list[FieldTerms] = []
    position = 1
    try:
        for text, weight in fields:
            pieces = text.split()
            words = list(map(known.get, pieces))
            terms: FieldTerms
            if None in words:
                terms, width = _mixed(pieces, words, language, _PLACES[weight], position, entries)
            else:
                found = list(filter(None, words))
                terms, width = (" ".join(found), ""), len(found)
                entries += map(add, found, _PLACES[weight][position : position + width])
            placed.append(terms)
            position += width + 2
    except IndexError:
        position = MAX_POSITION + 3
    if position > MAX_POSITION + 2 or (len(entries) > MAX_POSITIONS_PER_TERM and _are_too_many(entries)):
        return PlacedTerms(to_tsvector(index_terms(fields, language)), None)
    return PlacedTerms("'" + " '".join(entries) if entries else "", placed)


def _are_too_many(entries: list[str]) -> bool:
    """Whether these are more different terms than are kept of a document, or more positions of one."""
    often = Counter(entry.rpartition(":")[0] for entry in entries)
    return len(often) > MAX_DISTINCT_TERMS or max(often.values()) > MAX_POSITIONS_PER_TERM


def _mixed(
    pieces: list[str], words: list[str | None], language: str, places: list[str], position: int, entries: list[str]
) -> tuple[FieldTerms, int]:
    """The terms of a field where not all is words that were met, and how many positions it has. Adds to the entries;
    raises IndexError where there is no place for one.
    """
    _, others = _met(language)
    found: list[str | _Piece] = []
    width = 0
    for text, word in zip(pieces, words, strict=True):
        if word is None:
            piece = others.get(text) or _learnt(text, language)
            entries += [quoted + places[position + width + at] for _, quoted, at in piece.terms]
            found.append(piece)
            width += piece.width
        elif word:
            entries.append(word + places[position + width])
            found.append(word)
            width += 1
    return _texts(found) or _each_placed(found), width


def _texts(found: Sequence[str | _Piece]) -> tuple[str, str] | None:
    in_a_row: list[str] = []
    apart: list[str] = []
    for one in found:
        if isinstance(one, str):
            in_a_row.append(one)
        elif one.texts is None:
            return None
        else:
            in_a_row.append(one.texts[0])
            if one.texts[1]:
                apart.append(one.texts[1])
    return " ".join(in_a_row), " ".join(apart)


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


def _learnt(text: str, language: str) -> _Piece:
    """What was not met so far."""
    words, others = _met(language)
    if len(words) + len(others) >= _MOST:
        words.clear()
        others.clear()
    if (term := single_term(text.rstrip(_ENDS), language)).isalnum():
        words[text] = term
        return _Piece(((term, term, 0),), 1, (term, ""))
    piece = _analysed(text, language)
    if piece.texts and len(piece.terms) < 2:
        words[text] = piece.terms[0][0] if piece.terms else ""
    elif len(text) <= _LONGEST and not _NUMBER.search(text):
        others[text] = piece
    return piece


def _analysed(text: str, language: str) -> _Piece:
    terms: list[tuple[str, str, int]] = []
    apart: list[str] = []
    width = 0
    for found in TOKEN.findall(text):
        raw = analyse_token(found, language)
        if raw.terms:
            terms += [(term, quote_term(term)[1:-1], width + at) for term, at in sorted(raw.terms, key=itemgetter(1))]
            width += raw.width
            if raw.hyphenated and needs_no_position(raw.whole, raw.parts[0]):
                apart.append(raw.whole)
    in_a_row = [term for term, _, _ in terms if not (apart and is_hyphenated(term))]
    are_words = len(in_a_row) == width == len(terms) - len(apart) and "".join(in_a_row).isalnum()
    return _Piece(tuple(terms), width, (" ".join(in_a_row), " ".join(apart)) if are_words or not width else None)
