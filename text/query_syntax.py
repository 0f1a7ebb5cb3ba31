"""Parse typed queries into clauses of analysed terms.

Does not know engines: each compiles a `TextQuery` itself, and none parses typed text.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import lru_cache
from itertools import groupby, islice, pairwise

from text.analysis import (
    FIELD_WEIGHTS,
    TOKEN,
    Pattern,
    RawToken,
    fold,
    is_stopword,
    is_unspaced,
    phrase_pattern,
    prefix_term,
    raw_tokens,
    without_possessive,
)

# The terms of a document with their positions and weights, as `index_terms` returns them.
Index = Mapping[str, Sequence[tuple[int, str]]]

_FIELDS = f"(?ai:{'|'.join(FIELD_WEIGHTS)})"
_CHUNK = re.compile(rf'([+-]?)(?:({_FIELDS}):)?"([^"]*)"|(\S+)')
# `title::size` is a C++ name; a field without anything after it is a word.
_FIELD = re.compile(rf"({_FIELDS}):(?!:)(?=.*\w)")
_AROUND = re.compile(r"\A\W+|\W+\Z")
_PREFIX = re.compile(r"\w\*\s*\Z")
# A prefix of a single letter would match nearly everything, and slowly.
_MIN_PREFIX = 2
# The beginning of a commit or a checksum, alone or at the end of a name. All of its digits are found as they are.
_HEXADECIMAL = re.compile(r"(.*[/@:])?(?=[a-f]*[0-9])[0-9a-f]{7,39}")
_SHORT_FLAG = re.compile(r"-[A-Za-z0-9]{1,2}")
_LONG_FLAG = re.compile(r"--\w")
# A text of more words than this, or of more characters in scripts without spaces, is prose, such as a question in
# sentences or a pasted error: its signs are none of ours.
_TYPED_WORDS = 40
# The number of distinct words of prose that are searched for, so that the longest text takes bounded time.
MAX_WORDS = 64


@dataclass(frozen=True, slots=True)
class Alternative:
    """An alternative of an `or`: every phrase, and at least `need` of the distinct words."""

    phrases: tuple[Pattern, ...]
    words: tuple[Pattern, ...]

    @property
    def need(self) -> int:
        return words_needed(len(self.words))


@dataclass(frozen=True, slots=True)
class TextQuery:
    """A typed query in one language.

    A memory matches if it has every `required` pattern, no `excluded` one, and matches one of the groups, if there are
    any.
    """

    groups: tuple[Alternative, ...] = ()
    required: tuple[Pattern, ...] = ()
    excluded: tuple[Pattern, ...] = ()
    ignored: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    short_prefixes: tuple[str, ...] = ()
    repeated: tuple[tuple[Pattern, int], ...] = ()
    """The patterns that the text has more than once, and how often: they count more in the ranking."""
    left_out: int = 0
    """The number of distinct words that were left out of a very long text."""

    @property
    def is_empty(self) -> bool:
        """True if the text contains nothing to search for or exclude."""
        return not (self.groups or self.required or self.excluded)

    @property
    def always(self) -> "TextQuery":
        """The conditions on semantic matches: signed words, and the phrases of one of the groups."""
        phrases = tuple(Alternative(group.phrases, ()) for group in self.groups)
        if not all(group.phrases for group in phrases):
            phrases = ()
        return TextQuery(groups=phrases, required=self.required, excluded=self.excluded)

    @property
    def positive(self) -> tuple[Pattern, ...]:
        """Every pattern that a match may contain, for ranking and highlights."""
        found: dict[Pattern, None] = dict.fromkeys(self.required)
        for group in self.groups:
            found.update(dict.fromkeys((*group.phrases, *group.words)))
        return tuple(found)

    def matches(self, index: Index) -> bool:
        """Whether a document with these terms matches: the reference that engines are tested against."""
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
        """The condition in words."""
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
            text = f"{text}, and every required word" if text else "every required word"
        if self.excluded:
            text = f"{text}, and no excluded word" if text else "no excluded word"
        return text


def words_needed(count: int) -> int:
    """The number of distinct words of a query that a memory needs: all of up to two, two of up to six, three of up to
    15, and one more each time that the number of words doubles: four from 16 on, five from 32 on.
    """
    if count <= 2:
        return count
    if count <= 6:
        return 2
    return max(3, count.bit_length() - 1)


def pattern_occurs(pattern: Pattern, index: Index) -> bool:
    starts = _positions(pattern, 0, index)
    offset = 0
    for place, gap in enumerate(pattern.gaps, 1):
        offset += gap
        following = _positions(pattern, place, index) if starts else ()
        starts = {start for start in starts if start + offset in following}
    return bool(starts)


def _positions(pattern: Pattern, place: int, index: Index) -> set[int]:
    """The positions in a document of a term of a pattern, or of any term with this prefix, in the pattern's field."""
    term = pattern.terms[place]
    if pattern.prefix and place == len(pattern.terms) - 1:
        found = [known for known in index if known.startswith(term)]
    else:
        found = [term] if term in index else []
    weight = FIELD_WEIGHTS.get(pattern.field)
    return {at for known in found for at, weighs in index[known] if weight in (None, weighs)}


def is_prose(text: str) -> bool:
    """Whether a text is too long to be a typed query, so that it is read without operators."""
    return next(islice(TOKEN.finditer(text), _TYPED_WORDS, None), None) is not None


@lru_cache(maxsize=1024)
def parse_text(text: str, language: str = "english") -> TextQuery:
    """Parse a query: words, "quoted phrases", prefixes*, title:words, +required, -excluded, and `or` between
    alternatives.

    Seven hexadecimal digits or more are a prefix too: the beginning of a commit finds it, unless it is in quotes.
    A single dash before one or two characters is a command-line flag (`rm -rf`), not an exclusion; `-"rf"` excludes.
    Prose has no operators but "quoted phrases" of several words, and of very many words only some are searched for.
    """
    if is_prose(text):
        return _parse_prose(text, language)
    parsed = _ParsedText(language)
    chunks = list(_CHUNK.finditer(text))
    for place, chunk in enumerate(chunks):
        sign, field, quoted, bare = chunk.groups()
        if bare is None:
            parsed.add(sign, field, quoted, is_quoted=True)
        elif bare.lower() in {"or", "|", "||"} and 0 < place < len(chunks) - 1:
            parsed.groups.append(_ParsedAlternative())
        else:
            sign, bare = _split_sign(bare, parsed.flags)
            field, bare = _split_field(bare)
            parsed.add(sign, field, bare, is_quoted=False)
    return parsed.query()


def _parse_prose(text: str, language: str) -> TextQuery:
    parsed = _ParsedText(language, is_prose=True)
    for chunk in _CHUNK.finditer(text):
        _, _, quoted, bare = chunk.groups()
        is_phrase = bare is None and " " in quoted.strip()
        parsed.add("", None, quoted if is_phrase else chunk.group(), is_quoted=is_phrase)
    return parsed.query()


@dataclass(slots=True)
class _ParsedAlternative:
    """The parts of an alternative as ordered sets; `weak` are stop words with their spellings."""

    phrases: dict[Pattern, None] = dataclass_field(default_factory=dict)
    words: dict[Pattern, None] = dataclass_field(default_factory=dict)
    weak: dict[Pattern, str] = dataclass_field(default_factory=dict)


@dataclass(slots=True)
class _ParsedText:
    """The parts of a query that were read so far."""

    language: str
    is_prose: bool = False
    required: dict[Pattern, None] = dataclass_field(default_factory=dict)
    excluded: dict[Pattern, None] = dataclass_field(default_factory=dict)
    flags: dict[str, None] = dataclass_field(default_factory=dict)
    short: dict[str, None] = dataclass_field(default_factory=dict)
    times: Counter[Pattern] = dataclass_field(default_factory=Counter)
    groups: list[_ParsedAlternative] = dataclass_field(default_factory=lambda: [_ParsedAlternative()])

    def add(self, sign: str, field: str | None, written: str, *, is_quoted: bool) -> None:
        """Add a phrase, or a run of characters without spaces."""
        raws = list(raw_tokens(written, self.language))
        if not raws:
            return
        prefix = "" if self.is_prose else _prefix(written, raws[-1], self.language, self.short)
        if not (prefix or is_quoted):
            prefix = _hexadecimal(raws)
        field = (field or "").lower()
        if sign:
            (self.required if sign == "+" else self.excluded)[_pattern(raws, prefix, field)] = None
        elif is_quoted:
            self._add(self.groups[-1].phrases, _pattern(raws, prefix, field))
        else:
            self._add_words(raws, prefix, field, written)

    def _add_words(self, raws: list[RawToken], prefix: str, field: str, written: str) -> None:
        group = self.groups[-1]
        # Punctuation is stripped, so that the last word of “what is it?” is a stop word too, and “what's” is one;
        # symbols, as in `a++`, make a name of several terms.
        word = without_possessive(fold(_AROUND.sub("", written)))
        if len(raws) == 1 and len(raws[0].terms) == 1 and not prefix and is_stopword(word, self.language):
            group.weak[_pattern(raws, "", field)] = word
            return
        # A run of characters written without spaces is a single word; in prose, which has sentences of them, any two.
        runs: list[list[RawToken]] = []
        for unspaced, run in groupby(raws, is_unspaced):
            together = list(run)
            if unspaced and self.is_prose and len(together) > 2:
                runs.extend(list(pair) for pair in pairwise(together))
            else:
                runs.extend([together] if unspaced else [[raw] for raw in together])
        for before_last in runs[:-1]:
            self._add(group.words, _pattern(before_last, _hexadecimal(before_last), field))
        self._add(group.words, _pattern(runs[-1], prefix, field))

    def _add(self, found: dict[Pattern, None], pattern: Pattern) -> None:
        found[pattern] = None
        self.times[pattern] += 1

    def query(self) -> TextQuery:
        """The whole query. Stop words are ignored, except in an alternative that has nothing else.

        Of more than MAX_WORDS words of prose, those that the text repeats most are kept, then the longest: which ones
        are rare is not for the query to know, since what matches must not depend on the other memories.
        """
        ignored: dict[str, None] = {}
        is_signed_only = len(self.groups) == 1 and bool(self.required or self.excluded)
        for group in self.groups:
            if group.words or group.phrases or is_signed_only:
                ignored.update(dict.fromkeys(group.weak.values()))
            else:
                group.words.update(dict.fromkeys(group.weak))
        used = [group for group in self.groups if group.phrases or group.words]
        left_out = 0
        for group in used:
            if self.is_prose and len(group.words) > MAX_WORDS:
                left_out += len(group.words) - MAX_WORDS
                kept = set(sorted(group.words, key=self._telling, reverse=True)[:MAX_WORDS])
                group.words = {word: None for word in group.words if word in kept}
        positive = {*self.required, *(pattern for group in used for pattern in (*group.phrases, *group.words))}
        return TextQuery(
            groups=tuple(Alternative(tuple(group.phrases), tuple(group.words)) for group in used),
            required=tuple(self.required),
            excluded=tuple(self.excluded),
            # A long text has most of them; naming them would say nothing.
            ignored=() if self.is_prose else tuple(ignored),
            flags=tuple(self.flags),
            short_prefixes=tuple(self.short),
            repeated=tuple((one, times) for one, times in self.times.items() if times > 1 and one in positive),
            left_out=left_out,
        )

    def _telling(self, word: Pattern) -> tuple[int, int]:
        return self.times[word], sum(map(len, word.terms))


def spellings(text: str, language: str = "english") -> dict[Pattern, str]:
    """The spelling of each pattern in a typed text, without its sign."""
    found: dict[Pattern, str] = {}
    for chunk in _CHUNK.finditer(text):
        parsed = parse_text(chunk.group(), language)
        for pattern in (*parsed.positive, *parsed.excluded):
            found.setdefault(pattern, chunk.group().lstrip("+-"))
    return found


def plain_text_of(text: str) -> str:
    """A typed text without signs and excluded parts, for semantic search. Prose has none."""
    if is_prose(text):
        return text.strip()
    parts = []
    for chunk in _CHUNK.finditer(text):
        sign, _, quoted, bare = chunk.groups()
        if bare is not None:
            sign, bare = _split_sign(bare, {})
            _, bare = _split_field(bare)
        if sign != "-":
            parts.append((quoted if bare is None else bare).strip())
    return " ".join(part for part in parts if part)


def read_exclusions(text: str) -> tuple[tuple[str, ...], str]:
    """The parts of a typed text that it excludes, and the text with them as words to search for."""
    excluded: list[str] = []

    def read(chunk: re.Match[str]) -> str:
        sign, _, _, bare = chunk.groups()
        if (sign if bare is None else _split_sign(bare, {})[0]) != "-":
            return chunk.group()
        excluded.append(chunk.group()[1:].strip('"'))
        return chunk.group()[1:]

    as_words = _CHUNK.sub(read, text)
    return tuple(dict.fromkeys(excluded)), as_words


def _pattern(raws: list[RawToken], prefix: str, field: str) -> Pattern:
    """Consecutive tokens as a pattern, the last one replaced by the prefix, if any."""
    pattern = phrase_pattern(raws)
    terms = (*pattern.terms[:-1], prefix) if prefix else pattern.terms
    return Pattern(terms, pattern.gaps, prefix=bool(prefix), field=field)


def _prefix(text: str, last: RawToken, language: str, short: dict[str, None]) -> str:
    """The prefix of a text that ends in `*`; empty if there is none."""
    # In scripts without spaces any substring matches already.
    if not _PREFIX.search(text) or is_unspaced(last):
        return ""
    prefix = prefix_term(text, language)
    if len(re.findall(r"\w", prefix)) < _MIN_PREFIX:
        short[text.split()[-1]] = None
        return ""
    return prefix


def _hexadecimal(raws: list[RawToken]) -> str:
    """The last term of some tokens if longer hexadecimal numbers that begin with it are meant too; else empty."""
    *others, (term, _) = raws[-1].wanted
    found = _HEXADECIMAL.fullmatch(term)
    # In a name, digits alone are a number.
    is_number = found is not None and (others or found[1]) and term.removeprefix(found[1] or "").isdigit()
    return term if found and not is_number else ""


def _split_field(bare: str) -> tuple[str, str]:
    found = _FIELD.match(bare)
    return (found[1], bare[found.end() :]) if found else ("", bare)


def _split_sign(bare: str, flags: dict[str, None]) -> tuple[str, str]:
    if bare.startswith("+"):
        return "+", bare[1:]
    if bare.startswith("-") and not _LONG_FLAG.match(bare):
        if _SHORT_FLAG.fullmatch(bare):
            flags[bare] = None
            return "", bare
        return "-", bare[1:]
    return "", bare
