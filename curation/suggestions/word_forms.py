"""Finds tags that may be forms of one word: the same stem, two letters exchanged, or a short form of a longer tag."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import Stemmer

# A first letter, the number of the letters that are left out, and a last letter: `k8s`, `i18n`.
_NUMERONYM = re.compile(r"([a-z])(\d{1,2})([a-z])")
_SEPARATORS = re.compile(r"[\s_\-./]+")
# Letters of a name of which two may be exchanged, of a word with forms, and of an acronym at most.
_LONG, _WORD, _ACRONYM = 5, 3, 5
# More forms of one stem are no accident.
_MOST_OF_A_STEM = 8

WordForm = tuple[str, str, float, str]
"""Two names, the confidence that they mean the same, and the reason."""


def word_forms(names: Sequence[str]) -> Iterator[WordForm]:
    """Pairs of names in lower case. A pair may be found in several ways, the surest first."""
    yield from _short_forms(names)
    yield from _exchanged(names)
    yield from _same_stems(names)


def _short_forms(names: Sequence[str]) -> Iterator[WordForm]:
    by_ends: dict[tuple[str, int, str], list[str]] = defaultdict(list)
    by_initials: dict[str, list[str]] = defaultdict(list)
    for name in names:
        by_ends[name[:1], len(name), name[-1:]].append(name)
        words = [word for word in _SEPARATORS.split(name) if word]
        if 1 < len(words) <= _ACRONYM:
            by_initials["".join(word[0] for word in words)].append(name)
    for name in names:
        if found := _NUMERONYM.fullmatch(name):
            first, left_out, last = found.groups()
            for whole in by_ends[first, int(left_out) + 2, last]:
                if whole.isalpha():
                    yield (
                        name,
                        whole,
                        0.8,
                        f"“{name}” is short for a word of {int(left_out) + 2} letters like “{whole}”.",
                    )
        for whole in by_initials.get(name, ()):
            yield name, whole, 0.5, f"“{name}” has the first letters of the words of “{whole}”."


def _exchanged(names: Sequence[str]) -> Iterator[WordForm]:
    known = set(names)
    for name in names:
        if len(name) < _LONG:
            continue
        for at in range(1, len(name) - 1):
            other = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
            if name < other and other in known:
                yield name, other, 0.7, "Two letters are exchanged."


def _same_stems(names: Sequence[str]) -> Iterator[WordForm]:
    stem = Stemmer.Stemmer("english").stemWord
    by_stem: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name in names:
        words = [word for word in _SEPARATORS.split(name) if word]
        if words and all(word.isalpha() and len(word) >= _WORD for word in words):
            by_stem[tuple(map(stem, words))].append(name)
    for forms in by_stem.values():
        if len(forms) <= _MOST_OF_A_STEM:
            for one, other in combinations(forms, 2):
                yield one, other, 0.65, "They are forms of the same word in English."
