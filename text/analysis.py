"""Analysis of text to terms with positions and offsets, the same for every engine and every query.

A word becomes its folded stem. Words joined by symbols (`asyncio.run`, `foo_bar`, `C++`, `--dry-run`, `src/x.py`) also
give an exact term, at the position of their first part.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise, takewhile
from typing import NamedTuple

import Stemmer

# Limits of a Postgres document: positions up to 16383, 255 of them for a term, 2046 bytes for a term.
MAX_POSITION = 16_383
MAX_POSITIONS_PER_TERM = 255
MAX_TERM_LENGTH = 200
MAX_DISTINCT_TERMS = 20_000

# A raw token: an optional sigil or flag dash, words joined by connectors, and an optional suffix such as ++ or #.
# Scripts written without spaces give a token for each character, so that a phrase of characters finds any substring.
_UNSPACED = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD = rf"[^\W{_UNSPACED}]+"
TOKEN = re.compile(
    rf"[{_UNSPACED}]"
    rf"|(?:(?<![^\W_])(?:--?|[@#$.])(?={_WORD}))?"
    rf"{_WORD}(?:(?:[.\-:/@\\]|::|['\u2019])(?={_WORD}){_WORD})*(?:\+\+|\#(?!\w))?"
)
_PARTS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINTS = re.compile(r"::|[./:@\\]")
_APOSTROPHES = re.compile(r"['\u2019]")
_MAX_SUBPATHS = 8

# Indexed, so that phrases work, but not counted as words of a query.
_ENGLISH = """
a about after all also am an and any are as at be because been before being between both but by can could
did do does doing during each few for from further had has have having he her here hers him his how i if
in into is it its itself just me more most my no nor not of off on once only or other our out over own
same she should so some such than that the their them then there these they this those through to too
under until up very was we were what when where which while who whom why will with would you your
"""
STOPWORDS: dict[str, frozenset[str]] = {"english": frozenset(_ENGLISH.split())}


@dataclass(frozen=True, slots=True)
class Token:
    """A token of a text: its offsets, and its terms with their positions."""

    start: int
    end: int
    terms: tuple[tuple[str, int], ...]


class RawToken(NamedTuple):
    """The analysis of a raw token: terms with positions relative to it, and the number of positions that it takes.

    `parts` are the plain words in it; `whole` is the exact spelling if symbols join them, else empty.
    """

    terms: tuple[tuple[str, int], ...]
    width: int
    parts: tuple[str, ...]
    whole: str
    hyphenated: bool


def fold(text: str) -> str:
    """Fold case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFKC", "".join(c for c in decomposed if not unicodedata.combining(c)))


@cache
def _stemmer(language: str) -> Stemmer.Stemmer | None:
    if language == "simple":
        return None
    return Stemmer.Stemmer(language, 0)


def languages() -> list[str]:
    """The languages of projects: every Snowball stemmer, and `simple`, which does not stem."""
    return ["simple", *Stemmer.algorithms()]


def _stem(word: str, language: str) -> str:
    stemmer = _stemmer(language)
    # Numbers and mixes of letters and digits are names.
    if stemmer is None or not word.isalpha():
        return word
    return str(stemmer.stemWord(word))


@lru_cache(maxsize=20_000)
def _analyse_word(word: str, language: str) -> tuple[str, str, tuple[str, ...]]:
    """A plain word folded, its stem, and the stems of its camel-case parts. Cached: tokens share words."""
    folded = fold(word)
    stem = _stem(folded, language)[:MAX_TERM_LENGTH]
    if _has_no_humps(word):
        return folded, stem, (stem,)
    humps = [hump for hump in _CAMEL.split(word) if hump]
    if len(humps) == 1:
        return folded, stem, (stem,)
    return folded, stem, tuple(_stem(fold(hump), language)[:MAX_TERM_LENGTH] for hump in humps)


def _has_no_humps(word: str) -> bool:
    return word.islower() or word.isdigit() or (word[1:].isalpha() and word[1:].islower())


def single_term(raw: str, language: str) -> str:
    """The term of a token that is a single plain word, as most are; empty for any other."""
    if raw.isalnum() and _has_no_humps(raw):
        return _stem(fold(raw), language)[:MAX_TERM_LENGTH]
    return ""


@lru_cache(maxsize=20_000)
def analyse_token(raw: str, language: str) -> RawToken:
    """The terms of a raw token found by `TOKEN`."""
    if term := single_term(raw, language):
        return RawToken(((term, 0),), 1, (term,), "", False)
    if "-" in raw and all(joined := tuple([single_term(part, language) for part in raw.split("-")])):
        # A fast path for ids such as `brew-00042`, which occur once each and so are never cached.
        placed = [(part, at) for at, part in enumerate(joined)]
        name = fold(raw)[:MAX_TERM_LENGTH]
        # A truncated name may equal its first part.
        return RawToken(tuple(dict.fromkeys((*placed, (name, 0)))), len(joined), joined, name, True)
    plain = _APOSTROPHES.sub("", raw)
    # Python treats some Japanese marks as letters, but they fold to nothing.
    words = [word for part in _PARTS.findall(plain) if (word := _analyse_word(part, language))[1]]
    if not words:
        return RawToken((), 1, (), "", False)
    parts, terms = _placed_parts(words)
    folded = fold(plain)
    symbols = folded != "".join(word[0] for word in words)
    hyphenated = symbols and is_hyphenated(plain)
    whole = ""
    if symbols:
        whole = folded[:MAX_TERM_LENGTH]
        terms[whole, 0] = None
        for subpath in _subpaths(plain):
            terms[fold(subpath)[:MAX_TERM_LENGTH], 0] = None
    elif len(words) == 1 and len(parts) > 1:
        whole = _stem(fold(raw)[:MAX_TERM_LENGTH], language)
    return RawToken(tuple(terms), max(len(parts), 1), tuple(parts), whole, hyphenated)


def _placed_parts(words: Iterable[tuple[str, str, tuple[str, ...]]]) -> tuple[list[str], dict[tuple[str, int], None]]:
    """The stems of the camel-case parts of words, and the terms with their positions, as an ordered set."""
    # `MatTooltip` has to match `mattooltip`: a word in mixed case is also a single word.
    parts: list[str] = []
    terms: dict[tuple[str, int], None] = {}
    for _, stem, humps in words:
        if len(humps) > 1:
            terms[stem, len(parts)] = None
        for hump in humps:
            terms[hump, len(parts)] = None
            parts.append(hump)
    return parts, terms


def _subpaths(name: str) -> Iterator[str]:
    """Leading and trailing parts of a dotted name or path, except plain words: `a.b.c` gives `a.b` and `b.c`."""
    name = name.lstrip("-@#$.")
    joints = [match.span() for match in _JOINTS.finditer(name)]
    if not 2 <= len(joints) + 1 <= _MAX_SUBPATHS:
        return
    for start, end in joints:
        if not name[:start].isalnum():
            yield name[:start]
        if not name[end:].isalnum():
            yield name[end:]


def is_hyphenated(term: str) -> bool:
    """Whether hyphens alone join the words of a term. Queries search for such words as a phrase, not as a whole."""
    return "-" in term and term[0] != "-" and term.replace("-", "").isalnum()


def needs_no_position(whole: str, first: str) -> bool:
    """Whether no query needs the position of a hyphenated term, given the term of its first word.

    A phrase that ends in a prefix does, if that term is shorter than the word: `"the connecti*"` matches only the whole
    of `connection-pool`. A truncated term may contain other symbols than hyphens.
    """
    return is_hyphenated(whole) and len(whole) < MAX_TERM_LENGTH and whole.partition("-")[0] == first


def tokens(text: str, language: str = "english", start_position: int = 0) -> Iterator[Token]:
    """The tokens of a text in order. Positions count plain words from `start_position`."""
    position = start_position
    for match in TOKEN.finditer(text):
        raw = analyse_token(match.group(), language)
        if not raw.terms:
            continue
        yield Token(match.start(), match.end(), tuple((term, position + offset) for term, offset in raw.terms))
        position += raw.width


def raw_tokens(text: str, language: str = "english") -> Iterator[RawToken]:
    """The analysed tokens of a text, for queries."""
    for match in TOKEN.finditer(text):
        raw = analyse_token(match.group(), language)
        if raw.terms:
            yield raw


def is_unspaced(raw: RawToken) -> bool:
    """Whether a token is a character of a script written without spaces."""
    return len(raw.parts) == 1 and re.fullmatch(f"[{_UNSPACED}]", raw.parts[0]) is not None


def is_stopword(term: str, language: str) -> bool:
    return term in STOPWORDS.get(language, ())


# Positions between the fields of a document.
FIELD_GAP = 2


def index_terms(
    fields: list[tuple[str, str]], language: str = "english", *, is_joined: bool = False
) -> dict[str, list[tuple[int, str]]]:
    """The terms of a document: its fields (text, weight A to D) in sequence.

    A gap between fields prevents phrases across them; if `is_joined`, there is none after the first field. Positions
    past the limit of Postgres are dropped: terms there still match, phrases do not.
    """
    positions: dict[str, list[tuple[int, str]]] = {}
    position = 1
    for number, (text, weight) in enumerate(fields):
        for match in TOKEN.finditer(text):
            raw = analyse_token(match.group(), language)
            for term, offset in raw.terms:
                at = position + offset
                if (known := positions.get(term)) is None:
                    if len(positions) < MAX_DISTINCT_TERMS:
                        positions[term] = [(min(at, MAX_POSITION), weight)]
                elif at < MAX_POSITION and len(known) < MAX_POSITIONS_PER_TERM:
                    known.append((at, weight))
            position += raw.width if raw.terms else 0
        position += 0 if is_joined and not number else FIELD_GAP
    return positions


def to_tsvector(positions: dict[str, list[tuple[int, str]]]) -> str:
    """A document's terms as a Postgres literal."""
    return " ".join(
        f"{quote_term(term)}:{','.join(f'{at}{weight}' for at, weight in places)}" for term, places in positions.items()
    )


def quote_term(term: str) -> str:
    """A term as a quoted lexeme of tsvector and tsquery literals. User input never reaches those parsers unquoted."""
    return "'" + term.replace("\\", "\\\\").replace("'", "''") + "'"


# Field that a query can name -> the weight of its terms, as `memories.terms` assigns it.
FIELD_WEIGHTS = {"title": "A"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """Terms to match and highlight, each after a gap in positions from the previous one.

    A single term is a pattern of one. With `prefix`, the last term matches every term that starts with it; with
    `field`, all terms have to be in that field.
    """

    terms: tuple[str, ...]
    gaps: tuple[int, ...] = ()
    prefix: bool = False
    field: str = ""


def phrase_pattern(raws: list[RawToken]) -> Pattern:
    """Consecutive tokens as a pattern: exact spellings with symbols, else the plain words."""
    terms: list[str] = []
    starts: list[int] = []
    position = 0
    for raw in raws:
        if raw.whole and not raw.hyphenated:
            terms.append(raw.whole)
            starts.append(position)
        else:
            terms.extend(raw.parts)
            starts.extend(range(position, position + len(raw.parts)))
        position += raw.width
    return Pattern(tuple(terms), tuple(b - a for a, b in pairwise(starts)))


def prefix_term(text: str, language: str) -> str:
    """The prefix that a term needs to match the last word of a text, typed as a prefix.

    It is the common beginning of the folded word and its stem: `connections*` finds *connect*, and `memory*` finds the
    stem *memori*. A single letter would match nearly everything.
    """
    *_, last = (token for token in TOKEN.findall(text) if analyse_token(token, language).terms)
    # The language `simple` does not stem.
    folded, stem = (phrase_pattern([analyse_token(last, name)]).terms[-1] for name in ("simple", language))
    alike = "".join(a for a, _ in takewhile(lambda pair: pair[0] == pair[1], zip(folded, stem, strict=False)))
    return alike if len(alike) > 1 else folded
