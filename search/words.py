"""What a visitor typed, as clauses over analysed terms: the `by words` half of the match set.

Knows nothing of engines. An engine compiles a `TextQuery` to query objects of its own; no engine parses typed text.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from search.analysis import Pattern, RawToken, fold, is_stopword, is_unspaced, phrase_pattern, raw_tokens

_CHUNK = re.compile(r'([+-]?)"([^"]*)"|(\S+)')
_SHORT_FLAG = re.compile(r"-[A-Za-z0-9]{1,2}")
_LONG_FLAG = re.compile(r"--\w")


@dataclass(frozen=True, slots=True)
class Group:
    """One side of an `or`: every phrase, and at least `need` of the distinct words."""

    phrases: tuple[Pattern, ...]
    words: tuple[Pattern, ...]

    @property
    def need(self) -> int:
        return words_needed(len(self.words))


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A typed query in one language. A memory matches when it has every `required` pattern, no `excluded` one, and
    passes one of the groups, where there are any.
    """

    groups: tuple[Group, ...] = ()
    required: tuple[Pattern, ...] = ()
    excluded: tuple[Pattern, ...] = ()
    ignored: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True where the text held nothing to look for or to leave out."""
        return not (self.groups or self.required or self.excluded)

    @property
    def positive(self) -> tuple[Pattern, ...]:
        """Every pattern that a match may show, for ranking and highlights."""
        found: dict[Pattern, None] = dict.fromkeys(self.required)
        for group in self.groups:
            found.update(dict.fromkeys((*group.phrases, *group.words)))
        return tuple(found)

    def matches(self, index: Mapping[str, set[int]]) -> bool:
        """Whether a document passes, given the positions of its terms: the definition that engines are tested by."""
        if any(pattern_occurs(pattern, index) for pattern in self.excluded):
            return False
        if not all(pattern_occurs(pattern, index) for pattern in self.required):
            return False
        if not self.groups:
            return bool(self.required or self.excluded)
        return any(
            all(pattern_occurs(pattern, index) for pattern in group.phrases)
            and sum(pattern_occurs(pattern, index) for pattern in group.words) >= group.need
            for group in self.groups
        )

    def describe(self) -> str:
        """In words, what a memory had to have."""
        alternatives = []
        for group in self.groups:
            parts = []
            if group.words:
                count, need = len(group.words), group.need
                if count == 1:
                    parts.append("the word")
                elif need == count:
                    parts.append("both words" if count == 2 else f"all {count} words")
                else:
                    parts.append(f"at least {need} of the {count} words")
            if group.phrases:
                parts.append("the phrase" if len(group.phrases) == 1 else f"all {len(group.phrases)} phrases")
            if parts:
                alternatives.append(" and ".join(parts))
        text = ", or ".join(dict.fromkeys(alternatives))
        if self.required:
            text = f"{text}, and every +word" if text else "every +word"
        if self.excluded:
            text = f"{text}, and no -word" if text else "no -word"
        return text


def words_needed(count: int) -> int:
    """How many of the distinct words of a query a memory must have: every one of one or two, two of three or four, a
    third, rounded up, of more.
    """
    if count <= 2:
        return count
    return 2 if count <= 4 else math.ceil(count / 3)


def pattern_occurs(pattern: Pattern, index: Mapping[str, set[int]]) -> bool:
    starts = index.get(pattern.terms[0])
    if not starts:
        return False
    if len(pattern.terms) == 1:
        return True
    offsets: list[tuple[str, int]] = []
    at = 0
    for term, gap in zip(pattern.terms[1:], pattern.gaps, strict=True):
        at += gap
        offsets.append((term, at))
    return any(all(start + offset in index.get(term, ()) for term, offset in offsets) for start in starts)


@lru_cache(maxsize=4096)
def parse_text(text: str, language: str = "english") -> TextQuery:
    """Read a query: words, "quoted phrases", +required, -excluded, and `or` between alternatives.

    A single dash before one or two characters is a command-line flag (`rm -rf`), not an exclusion; `-"rf"` excludes.
    """
    required: dict[Pattern, None] = {}
    excluded: dict[Pattern, None] = {}
    ignored: dict[str, None] = {}
    flags: dict[str, None] = {}
    groups: list[tuple[dict[Pattern, None], dict[Pattern, None], dict[Pattern, str]]] = [({}, {}, {})]
    chunks = list(_CHUNK.finditer(text))
    for place, chunk in enumerate(chunks):
        sign, quoted, bare = chunk.groups()
        if bare is not None:
            if bare.lower() in {"or", "|", "||"} and 0 < place < len(chunks) - 1:
                groups.append(({}, {}, {}))
                continue
            sign, bare = _split_sign(bare, flags)
            raws = list(raw_tokens(bare, language))
        else:
            raws = list(raw_tokens(quoted, language))
        if not raws:
            continue
        if sign:
            (required if sign == "+" else excluded)[phrase_pattern(raws)] = None
            continue
        phrases, words, weak = groups[-1]
        if bare is None:
            phrases[phrase_pattern(raws)] = None
            continue
        if len(raws) == 1 and is_stopword(fold(bare), language):
            weak[phrase_pattern(raws)] = fold(bare)
            continue
        # A run of characters written without spaces is one word to look for.
        for unspaced, run in groupby(raws, is_unspaced):
            together = list(run)
            words.update(dict.fromkeys([phrase_pattern(together)] if unspaced else map(_single, together)))
    for phrases, words, weak in groups:
        if words or phrases or (len(groups) == 1 and (required or excluded)):
            ignored.update(dict.fromkeys(weak.values()))
        else:
            words.update(dict.fromkeys(weak))
    return TextQuery(
        groups=tuple(Group(tuple(phrases), tuple(words)) for phrases, words, _ in groups if phrases or words),
        required=tuple(required),
        excluded=tuple(excluded),
        ignored=tuple(ignored),
        flags=tuple(flags),
    )


def _single(raw: RawToken) -> Pattern:
    return phrase_pattern([raw])


def _split_sign(bare: str, flags: dict[str, None]) -> tuple[str, str]:
    if bare.startswith("+"):
        return "+", bare[1:]
    if bare.startswith("-") and not _LONG_FLAG.match(bare):
        if _SHORT_FLAG.fullmatch(bare):
            flags[bare] = None
            return "", bare
        return "-", bare[1:]
    return "", bare
