"""Reads a text as a question about relationships, and finds how well each one answers it. Pure.

The words between the names decide: "who depends on A" asks for the sources of relationships, "what does A depend on"
for their targets. It is the grammar of English questions; in other languages the order of the words alone counts.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from text.analysis import fold, is_stopword, single_term, tokens

# The points of an end that the text names: as it asks for it, in an unknown direction, or in the contrary one.
_AGREES, _NAMED, _CONTRARY = 3.0, 2.0, 1.0
_ASKING = frozenset(("who", "whom", "whose", "what", "which", "where", "when", "why", "how"))
_KINDS = frozenset(("which", "what"))
_AUXILIARIES = frozenset(("do", "does", "did"))
_BEING = frozenset(("is", "are", "was", "were"))
_ARTICLES = frozenset(("the", "a", "an", "our"))
# Forms of verbs that no stemmer knows.
_VERBS = {
    form: verb
    for verb, forms in {
        "break": "broke broken", "bring": "brought", "build": "built", "buy": "bought", "choose": "chose chosen",
        "draw": "drew drawn", "drive": "drove driven", "feed": "fed", "get": "got", "give": "gave given",
        "hold": "held", "keep": "kept", "know": "knew known", "lead": "led", "make": "made", "meet": "met",
        "pay": "paid", "run": "ran", "sell": "sold", "send": "sent", "speak": "spoke spoken", "take": "took taken",
        "teach": "taught", "write": "wrote written",
    }.items()
    for form in forms.split()
}  # fmt: skip
# The endings of words for who does something: `user`, `owner`, `operators`.
_AGENTS = ("r", "er", "or", "rs", "ers", "ors")
# The endings of nouns for a source, as in "A's dependents", and of those for a target, as in "dependencies of A".
_SOURCES = ("er", "or", "ent", "ers", "ors", "ents")
_TARGETS = ("ency", "encies")
_NOWHERE = frozenset[int]()
_PART = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_POSSESSIVE = re.compile(r"['’]s?(?!\w)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A relationship as it is read: its type, and the names and types of its ends."""

    source: str
    source_type: str
    type: str
    target: str
    target_type: str


@dataclass(frozen=True, slots=True)
class Fit:
    """How well a relationship answers a text; with `is_whole`, it has everything that the text names or asks for."""

    score: float = 0.0
    is_whole: bool = False
    is_contrary: bool = False
    names_both: bool = False
    """Whether the text names both ends, in this direction."""


NO_FIT = Fit()


@dataclass(frozen=True, slots=True)
class _Word:
    """A word as it is written, its whole term, and all of its terms, such as those of the parts of `PgBouncer`."""

    written: str
    whole: str
    terms: frozenset[str]

    @property
    def is_weak(self) -> bool:
        return is_stopword(self.written, "english")


def fits(text: str, language: str, statements: Mapping[int, Statement]) -> dict[int, Fit]:
    question = _Question(text, language, statements.values())
    return {pk: question.fit(statement) for pk, statement in statements.items()}


def is_question(text: str) -> bool:
    words = [word.written for word in _read(text, "english")[:2]]
    return not _ASKING.union(_AUXILIARIES, _BEING).isdisjoint(words) or text.rstrip().endswith(("?", "？", "؟"))


class _Question:
    """A text, with the places of the names and of the relations that occur in it."""

    def __init__(self, text: str, language: str, statements: Collection[Statement]) -> None:
        self._language = language
        self._words = _read(text, language)
        names = {name for one in statements for name in (one.source, one.target)}
        found = {name: self._places(name) for name in names}
        # `api` is not named by `booking-api`.
        spans = {own for own in found.values() if own}
        whole = {name: _NOWHERE if any(own < other for other in spans) else own for name, own in found.items()}
        self._named = frozenset[int]().union(*whole.values())
        relations = frozenset[str]().union(*map(self._terms, {one.type for one in statements}))
        self._relations = [n for n in self._free() if self._forms(n) & relations]
        self._ends = {name: (places, 1.0) if places else self._part(name) for name, places in whole.items()}
        self._by = next((n for n in self._free(weak=True) if self._words[n].written == "by"), None)
        self._asks = is_question(text)
        self._is_possessive = bool(_POSSESSIVE.search(text))

    def fit(self, statement: Statement) -> Fit:
        source, target = statement.source, statement.target
        if "by" in {word.written for word in _read(statement.type, self._language)}:
            source, target = target, source
        score, said, contrary = 0.0, set[int](), False
        for name, is_source in ((source, True), (target, False)):
            places, share = self._ends[name]
            if not places:
                continue
            asked = self._asks_source(min(places))
            if asked is None and share < 1:
                continue
            is_contrary = asked is not None and asked != is_source
            contrary |= is_contrary
            said |= places
            score += share * (_NAMED if asked is None else _CONTRARY if is_contrary else _AGREES)
        both_named = source != target and self._ends[source][1] == self._ends[target][1] == 1.0
        related = [n for n in self._relations if self._forms(n) & self._terms(statement.type)]
        types = self._terms(statement.source_type) | self._terms(statement.target_type)
        said |= {*related, *(n for n in self._free() if self._words[n].terms & types)}
        is_named = both_named or (bool(related) and max(self._ends[source][1], self._ends[target][1]) == 1.0)
        content = (n for n, word in enumerate(self._words) if not word.is_weak)
        is_whole = is_named and not contrary and said.issuperset(content)
        return Fit(score + bool(related), is_whole, contrary, both_named and not contrary)

    def _asks_source(self, place: int) -> bool | None:
        """Whether the name at a place is what does something, rather than what it is done to; None if it is open."""
        before = [self._words[n].written for n in range(place) if self._words[n].written not in _ARTICLES]
        if self._by is not None:
            return bool(before) and before[-1] == "by"
        if before and before[-1] in _AUXILIARIES:
            return True
        if self._relations:
            noun = self._words[self._relations[0]].written
            if noun.endswith(_TARGETS):
                return place > self._relations[0] or self._is_possessive
            ends = self._relations[0] == len(self._words) - 1 and not self._asks
            is_owner = noun.endswith(_SOURCES) and (self._is_possessive or ends)
            return place < self._relations[0] and not is_owner
        is_open = not before or before[-1] in _BEING or _ASKING.isdisjoint(before)
        return None if is_open else False

    def _free(self, *, weak: bool = False) -> list[int]:
        """The places of words that belong to no name, without stop words unless `weak`."""
        places = (n for n in range(len(self._words)) if n not in self._named)
        return [n for n in places if weak or not self._words[n].is_weak]

    def _forms(self, n: int) -> frozenset[str]:
        """The terms of a word, and those of the verb that it is made of."""
        written = self._words[n].written
        verbs = [written.removesuffix(ending) for ending in _AGENTS if written.endswith(ending)]
        return self._words[n].terms.union(*(self._terms(verb) for verb in verbs if len(verb) > 1))

    def _places(self, name: str) -> frozenset[int]:
        asked = _read(name, self._language)
        for start in range(len(self._words) - len(asked) + 1) if asked else ():
            found = self._words[start : start + len(asked)]
            if all(one.whole in other.terms for one, other in zip(asked, found, strict=True)):
                return frozenset(range(start, start + len(asked)))
        return _NOWHERE

    def _part(self, name: str) -> tuple[frozenset[int], float]:
        """The places of some words of a name that stand in no whole name, and their share of its words."""
        asked = [one.terms for one in _read(name, self._language) if not one.is_weak]
        # Neither the relation nor the kind of answer, as in "which team", names an end.
        free = (n for n in self._free() if n not in self._relations and self._words[n - 1].written not in _KINDS)
        places = frozenset(n for n in free if any(self._words[n].terms & terms for terms in asked))
        return places, min(1.0, len(places) / len(asked)) * 0.9 if places else 0.0

    def _terms(self, text: str) -> frozenset[str]:
        return _content_terms(text, self._language)


@lru_cache(maxsize=10_000)
def _content_terms(text: str, language: str) -> frozenset[str]:
    return frozenset[str]().union(*(one.terms for one in _read(text, language) if not one.is_weak))


@lru_cache(maxsize=10_000)
def _read(text: str, language: str) -> tuple[_Word, ...]:
    """The words of a text in order. A name with joints, such as `depends_on`, is several."""
    return tuple(_words(text, language))


def _words(text: str, language: str) -> Iterator[_Word]:
    for token in tokens(text, language):
        parts = dict(enumerate(_PART.findall(fold(text[token.start : token.end])), token.terms[0][1]))
        for place, placed in groupby(sorted(token.terms, key=itemgetter(1)), key=itemgetter(1)):
            terms = [term for term, _ in placed]
            written = parts.get(place, "")
            if language == "english" and written in _VERBS:
                terms.append(single_term(_VERBS[written], language))
            yield _Word(written, terms[0], frozenset(terms))
