"""When two names may mean the same: by exact normal form, then by trigrams. Pure; says how sure, and why.

Names that differ in a number, or are code, are only the same where their normal forms are: `get_x` and `set_x`, or
3.11 and 3.12, are as alike as names can be.
"""

import re
import unicodedata
from dataclasses import dataclass
from difflib import SequenceMatcher

from search.analysis import fold

# What Postgres is asked for; what comes back is looked at again here.
LEAST_TRIGRAM = 0.55
# Of two words: one letter of five may differ.
_SPELT_ALIKE = 0.8
# By so many letters words begin alike.
_HEAD = 3
# Of vectors of names: below, what is near is only of the same kind.
LEAST_MEANING = 0.85
# Names of so few characters are alike by chance.
_SHORTEST = 5
_SEPARATORS = re.compile(r"[\s_\-./:,;'’\"()]+")
_NUMBERS = re.compile(r"\d+")
_CODE = re.compile(r"[_:/()\\@$#<>=+]|\.(?=\w)|[a-z][A-Z]|[A-Z]{2}[a-z]")
_WORDS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Likeness:
    """That two names may mean the same."""

    confidence: float
    reason: str
    rule: str


def normal_form(name: str) -> str:
    """What is left of a name without case, accents and separators. Underscores at its ends are part of it."""
    bare = unicodedata.normalize("NFKC", name).strip().removesuffix("()")
    head = bare[: len(bare) - len(bare.lstrip("_"))]
    tail = bare[len(bare.rstrip("_")) :] if bare.strip("_") else ""
    return head + _SEPARATORS.sub("", fold(bare)) + tail


def is_code(name: str) -> bool:
    """Whether a name is spelt as code is: every character of it counts."""
    return bool(_CODE.search(name))


def numbers_differ(one: str, other: str) -> bool:
    return _NUMBERS.findall(one) != _NUMBERS.findall(other)


def alike(one: str, other: str, trigram: float) -> Likeness | None:
    """Whether two names of one type may mean the same. `trigram` is how alike Postgres finds them."""
    if one.casefold() == other.casefold():
        return Likeness(0.99, "The names differ in case alone.", "exact")
    if normal_form(one) == normal_form(other) and (is_code(one) or is_code(other)):
        return Likeness(0.6, "The names are the same but for case and separators; in code that may matter.", "exact")
    if normal_form(one) == normal_form(other):
        return Likeness(0.95, "The names are the same but for case, accents and separators.", "exact")
    if numbers_differ(one, other):
        return None
    if _sorted_words(one) == _sorted_words(other) and not (is_code(one) or is_code(other)):
        return Likeness(0.9, "The names have the same words in another order.", "exact")
    if _is_plural(one, other):
        return Likeness(0.85, "One name is the plural of the other.", "exact")
    if is_code(one) or is_code(other) or min(len(one), len(other)) < _SHORTEST or trigram < LEAST_TRIGRAM:
        return None
    if not _words_pair_up(one, other):
        return None
    confidence = round(0.4 + 0.5 * (trigram - LEAST_TRIGRAM) / (1 - LEAST_TRIGRAM), 3)
    reason = f"The names are spelt alike: {trigram:.0%} of their letter groups are the same."
    return Likeness(confidence, reason, "spelling")


def alike_by_meaning(one: str, other: str, similarity: float) -> Likeness | None:
    """Whether two names may mean the same by what a model makes of them, where their spelling does not say so."""
    if numbers_differ(one, other) or is_code(one) or is_code(other) or not _words_begin_alike(one, other):
        return None
    confidence = round(min(0.6, 0.3 + 2.0 * max(0.0, similarity - LEAST_MEANING)), 3)
    return Likeness(confidence, f"The names are {similarity:.2f} similar in meaning.", "meaning")


def _sorted_words(name: str) -> list[str]:
    return sorted(_WORDS.findall(fold(name)))


def _is_plural(one: str, other: str) -> bool:
    """By the endings of English alone, and of names that are no code."""
    shorter, longer = sorted((fold(one), fold(other)), key=len)
    if is_code(one) or is_code(other) or len(shorter) < 3:
        return False
    return longer in {f"{shorter}s", f"{shorter}es"} or (shorter.endswith("y") and longer == f"{shorter[:-1]}ies")


def _words_pair_up(one: str, other: str) -> bool:
    """Whether each word has one of the other name that is spelt much like it: two people share a surname."""
    first, second = _sorted_words(one), _sorted_words(other)
    if len(first) != len(second) or not first:
        # An initial or a middle name more is no other person; a word more is another thing.
        shorter, longer = sorted((first, second), key=len)
        rest = list(longer)
        for word in shorter:
            if word not in rest:
                return False
            rest.remove(word)
        return bool(shorter) and len(shorter) > 1 and all(len(word) == 1 for word in rest)
    return all(_near(a, b) for a, b in zip(first, second, strict=True))


def _words_begin_alike(one: str, other: str) -> bool:
    """Whether both are of several words, and each of the shorter begins as one of the longer: people share surnames."""
    shorter, longer = sorted((fold(one).split(), fold(other).split()), key=len)
    if len(shorter) < 2:
        return False
    heads = [word[:_HEAD] for word in longer]
    for word in shorter:
        if word[:_HEAD] not in heads:
            return False
        heads.remove(word[:_HEAD])
    return True


def _near(one: str, other: str) -> bool:
    """Whether two words differ in a letter, or two of a long word."""
    return one == other or (min(len(one), len(other)) > 3 and SequenceMatcher(None, one, other).ratio() >= _SPELT_ALIKE)
