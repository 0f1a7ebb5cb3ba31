"""Analysis of text to terms with positions and offsets, the same for every engine and every query.

A word becomes its folded stem. Words joined by symbols (`asyncio.run`, `foo_bar`, `src/x.py`) also give a term for each
pair of neighbours, so that a query for some of them in a row finds them wherever the name begins or ends.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import combinations, groupby, pairwise, takewhile
from typing import NamedTuple

import Stemmer

# Increased whenever a text may give other terms, so that stored terms are replaced.
VERSION = 2

# Limits of a Postgres document: positions up to 16383, 255 of them for a term, 2046 bytes for a term.
MAX_POSITION = 16_383
MAX_POSITIONS_PER_TERM = 255
MAX_TERM_LENGTH = 200
MAX_DISTINCT_TERMS = 20_000

# Scripts written without spaces, Hangul, whose particles follow a word without one, and emoji: each character is a
# token, so that a phrase of characters finds any substring.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U000323af"
    "\u1100-\u115f\u3131-\u318e\ua960-\ua97c\uac00-\ud7a3\uffa1-\uffdc"
    "\u231a-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
)
# Marks that distinguish no words, since they are left out as often as written: accents, the vowels and points of
# Hebrew, Arabic and Syriac, and variants of characters. Others, such as the vowels of Indic scripts, are letters.
_FOLDED_MARKS = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0711\u0730-\u074a\u08ca-\u08ff"
    "\u180b-\u180f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef]"
)
# Arabic's filler of lines, Hangul's of syllables, and the skin tones of emoji.
_IGNORED = "\u0640\u115f\u1160\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
# Letters and signs that Unicode does not decompose.
_SPELT = {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D", "ð": "d", "Ð": "D", "ħ": "h", "Ħ": "H", "ı": "i"}
_SPELT |= {"ŧ": "t", "Ŧ": "T", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "TH", "\u0345": "ι"}
_SPELT |= dict.fromkeys("\u2019\u02bc", "'") | dict.fromkeys("\u2010\u2011", "-")


def _marks_and_invisible() -> tuple[list[int], list[int]]:
    """Code points of the marks of all scripts, and of characters without a shape such as soft hyphens and joiners."""
    marks, invisible = [], []
    # The planes between hold no marks.
    for number in (*range(0x20000), *range(0xE0000, 0xE0200)):
        category = unicodedata.category(chr(number))
        if category == "Cf":
            invisible.append(number)
        elif category[0] == "M":
            marks.append(number)
    return marks, invisible


def _ranges(numbers: Iterable[int]) -> str:
    """Ascending code points as the ranges of a character class."""
    runs = groupby(enumerate(numbers), key=lambda placed: placed[1] - placed[0])
    spans = [[number for _, number in run] for _, run in runs]
    return "".join(f"\\U{span[0]:08x}-\\U{span[-1]:08x}" for span in spans)


_mark_points, _invisible_points = _marks_and_invisible()
# The latter vowels, consonants and voicing of a syllable are letters to Unicode.
_MARKS = _ranges(_mark_points) + "\u1160-\u11ff\ud7b0-\ud7fb\uff9e\uff9f\U0001f3fb-\U0001f3ff"
_FOLLOWING = _MARKS + _ranges(_invisible_points)
_FOLDED: dict[int, str | None] = {ord(letter): spelt for letter, spelt in _SPELT.items()}
_FOLDED |= {number: None for number in _mark_points if number != 0x345 and _FOLDED_MARKS.match(chr(number))}
_FOLDED |= dict.fromkeys(_invisible_points) | {ord(letter): None for letter in _IGNORED}

# A raw token: a character with its marks, or an optional sigil or flag dash, words joined by connectors, and an
# optional suffix such as ++ or #.
_LETTERS = rf"(?:[^\W{_UNSPACED}]++[{_FOLLOWING}]*+)++"
TOKEN = re.compile(
    rf"[{_UNSPACED}][{_FOLLOWING}]*+"
    rf"|(?:(?<![^\W_])(?<![{_MARKS}])(?:--?|[@#$.])(?=[^\W{_UNSPACED}]))?"
    rf"{_LETTERS}(?:(?:::|[.\-\u2010\u2011:/@\\'\u2019]){_LETTERS})*(?:\+\+|\#(?!\w))?"
)
_CHARACTER = re.compile(f"[{_UNSPACED}]")
_ALNUM = rf"(?:[^\W_]++[{_FOLLOWING}]*+)++"
_WORDS = re.compile(rf"{_ALNUM}(?:'{_ALNUM})*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_JOINTS = re.compile(r"::|[./:@\\]")
_POSSESSIVE = re.compile(r"'[sS](?![^\W_])")
# English endings after an apostrophe. Other words there are words of their own: `l'équipe`, `O'Connor`.
_CONTRACTED = frozenset(("t", "d", "m", "ll", "re", "ve"))
_LAST_DIGITS, _FIRST_DIGITS = re.compile(r"[0-9]+$"), re.compile(r"[0-9]+")
# More humps are those of encoded data.
_MAX_HUMPS = 6
# The digits of a number that belongs to a word with a hyphen, such as `utf-8`; those of ids are more.
_MAX_NUMBER = 3

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

    `wanted` are those of the terms that a query for the token looks for.
    """

    terms: tuple[tuple[str, int], ...]
    width: int
    wanted: tuple[tuple[str, int], ...]


_NO_WORD = RawToken((), 1, ())

# Longer texts without spaces rarely recur.
_LONGEST_CACHED = 60


class _Word(NamedTuple):
    """A word of a token: as folded, its stem, and that and the stems of the parts and runs of parts in it."""

    folded: str
    stem: str
    terms: tuple[str, ...]


def plain(text: str) -> str:
    """Remove accents, compatibility forms and invisible characters, and keep the case."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", text).translate(_FOLDED))


def without_possessive(text: str) -> str:
    """Cut the *'s* off the words of a plain text: `GitHub's` becomes `GitHub`."""
    return _POSSESSIVE.sub("", text)


def fold(text: str) -> str:
    """Fold case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", plain(text).casefold())


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
    if stemmer is not None and (word.isalpha() or not any(map(str.isdigit, word))):
        # A stemmer may leave nothing.
        word = str(stemmer.stemWord(word)) or word
    return word[:MAX_TERM_LENGTH]


@lru_cache(maxsize=20_000)
def _analyse_word(word: str, language: str) -> _Word:
    """Analyse a word of plain text, which may have apostrophes. Cached: tokens share words."""
    pieces = word.split("'")
    if fold(pieces[-1]) in _CONTRACTED:
        pieces = ["".join(pieces)]
    humps = [hump for piece in pieces for hump in _CAMEL.split(piece) if hump]
    folded = fold("".join(pieces))
    stem = _stem(folded, language)
    runs = [humps[start:end] for start, end in combinations(range(len(humps) + 1), 2)]
    if len(humps) > _MAX_HUMPS:
        runs = [[hump] for hump in humps]
    return _Word(folded, stem, tuple(dict.fromkeys((stem, *(_stem(fold("".join(run)), language) for run in runs)))))


def single_term(raw: str, language: str) -> str:
    """The term of a token that is a single plain word in ASCII, as most are; empty for any other."""
    if raw.isascii() and raw.isalnum() and (raw.islower() or raw.isdigit() or raw[1:].islower()):
        return _stem(raw.lower(), language)
    return ""


@lru_cache(maxsize=20_000)
def analyse_token(raw: str, language: str) -> RawToken:
    """The terms of a raw token found by `TOKEN`.

    Words are at positions in a row, and everything else is at that of the first word in it. A query looks for pairs of
    words and for the words that no symbol joins, so that a hyphen equals a space; for a word with a sigil, as it is.
    """
    if term := single_term(raw, language):
        return RawToken(((term, 0),), 1, ((term, 0),))
    if all(stems := [single_term(part, language) for part in raw.split("-")]):
        # Fast: most names are words joined by hyphens, and of ids most are not cached.
        parts = tuple((stem, at) for at, stem in enumerate(stems))
        joined = _stem(_joined_by_hyphens(raw.lower().split("-")), language)
        return RawToken((*parts, (joined, 0)) if joined else parts, len(stems), parts)
    if _CHARACTER.match(raw):
        term = "".join(fold(raw).split())[:MAX_TERM_LENGTH]
        return RawToken(((term, 0),), 1, ((term, 0),)) if term else _NO_WORD
    name = without_possessive(plain(raw))
    places = [match.span() for match in _WORDS.finditer(name)]
    if not places:
        return _NO_WORD
    words = [_analyse_word(name[start:end], language) for start, end in places]
    joints = [name[end:start].strip() for (_, end), (start, _) in pairwise(places)]
    pairs = [(pair, at) for at, joint in enumerate(joints) for pair in _pairs(words[at], joint, words[at + 1])]
    signed = list(_signed_parts(name))
    terms = dict.fromkeys((term, at) for at, word in enumerate(words) for term in word.terms)
    terms |= dict.fromkeys([*pairs, *signed])
    if not signed and set(joints) == {"-"} and (joined := _joined_by_hyphens([word.folded for word in words])):
        terms[_stem(joined, language), 0] = None
    if signed and not _JOINTS.search(name, 1):
        return RawToken(tuple(terms), len(words), tuple(signed))
    paired = {at: pair for pair, at in reversed(pairs)}
    alone = {at: word.stem for at, word in enumerate(words) if at not in paired and at - 1 not in paired}
    wanted = tuple((term, at) for at, term in sorted((paired | alone).items()))
    return RawToken(tuple(terms), len(words), wanted)


def _pairs(left: _Word, joint: str, right: _Word) -> Iterator[str]:
    """The terms for two neighbours, as they are written first. Versions are found without the letters around them."""
    if joint in ("", "-"):
        return
    befores, afters = [left.folded], [right.folded]
    if joint == "." and (last := _LAST_DIGITS.search(left.folded)) and (first := _FIRST_DIGITS.match(right.folded)):
        befores.append(last.group())
        afters.append(first.group())
    for before in befores:
        for after in afters:
            yield f"{before}{fold(joint)}{after}"[:MAX_TERM_LENGTH]


def _signed_parts(name: str) -> Iterator[tuple[str, int]]:
    """The parts of a name with signs that belong to them, such as `@input`, `c++`, `--dry-run` and `__init__`."""
    at = 0
    parts = _JOINTS.split(name[1:])
    for part in (name[:1] + parts[0], *parts[1:]):
        if part and (part[0] in "-_@#$." or part[-1] in "_+#"):
            yield fold(part.replace("'", ""))[:MAX_TERM_LENGTH], at
        at += len(_WORDS.findall(part))


def _joined_by_hyphens(words: list[str]) -> str:
    """Two words that are also written as one, such as `e-mail`; empty for numbers and ids."""
    joined = "".join(words)
    is_id = joined.isdigit() or any(len(word) > _MAX_NUMBER and word.isdigit() for word in words)
    return joined if len(words) == 2 and not is_id else ""


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
    return _CHARACTER.match(raw.terms[0][0]) is not None


def is_stopword(term: str, language: str) -> bool:
    return term in STOPWORDS.get(language, ())


# Positions between the fields of a document.
_FIELD_GAP = 2


class _Piece(NamedTuple):
    """A text without spaces: its terms with their positions in it, also as literals, and the number of positions."""

    terms: tuple[tuple[str, int], ...]
    quoted: tuple[tuple[str, int], ...]
    width: int


def _analyse_piece(text: str, language: str) -> _Piece:
    terms: list[tuple[str, int]] = []
    width = 0
    for found in TOKEN.findall(text):
        raw = analyse_token(found, language)
        if raw.terms:
            terms += [(term, width + at) for term, at in raw.terms]
            width += raw.width
    return _Piece(tuple(terms), tuple((quote_term(term), at) for term, at in terms), width)


# Most pieces of the texts of an import recur.
_cached_piece = lru_cache(maxsize=200_000)(_analyse_piece)


def _pieces(text: str, language: str) -> Iterator[_Piece]:
    """The pieces of a text. No token has a space or depends on what is beyond one."""
    for piece in text.split():
        yield (_cached_piece if len(piece) <= _LONGEST_CACHED else _analyse_piece)(piece, language)


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
        for piece in _pieces(text, language):
            for term, offset in piece.terms:
                at = position + offset
                if (known := positions.get(term)) is None:
                    if len(positions) < MAX_DISTINCT_TERMS:
                        positions[term] = [(min(at, MAX_POSITION), weight)]
                elif at < MAX_POSITION and len(known) < MAX_POSITIONS_PER_TERM:
                    known.append((at, weight))
            position += piece.width
        position += 0 if is_joined and not number else _FIELD_GAP
    return positions


def document_vector(fields: list[tuple[str, str]], language: str = "english", *, is_joined: bool = False) -> str:
    """`to_tsvector` of `index_terms`, in half the time for a short document: Postgres merges the places of a term."""
    entries: list[str] = []
    position = 1
    for number, (text, weight) in enumerate(fields):
        for piece in _pieces(text, language):
            entries += [f"{term}:{position + at}{weight}" for term, at in piece.quoted]
            position += piece.width
        position += 0 if is_joined and not number else _FIELD_GAP
    if len(entries) > MAX_POSITIONS_PER_TERM:
        return to_tsvector(index_terms(fields, language, is_joined=is_joined))
    return " ".join(entries)


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


def phrase_pattern(raws: Iterable[RawToken]) -> Pattern:
    """Consecutive tokens as a pattern."""
    placed: list[tuple[str, int]] = []
    position = 0
    for raw in raws:
        placed += [(term, position + at) for term, at in raw.wanted]
        position += raw.width
    gaps = tuple(after - before for (_, before), (_, after) in pairwise(placed))
    return Pattern(tuple(term for term, _ in placed), gaps)


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
