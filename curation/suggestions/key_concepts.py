"""Concepts for memories that have none: those of their project that the text names, then phrases that recur in it.

What comes from a memory's own project, and from its own text, tells nobody of another one.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from yake_rust import Yake

from categories.models import Concept, Entity
from curation.suggestions.proposals import Kind, Proposal
from memories.models import Memory, Project
from text.analysis import STOPWORDS, TOKEN, analyse_token, fold

IDENTIFIER, TECHNOLOGY, THEMATIC = "identifier", "technology", "thematic"

# Of each text so many phrases are looked at, and so much of it is read.
MOST_PHRASES = 12
_READ = 20_000
_MOST_WORDS = 3
_LONGEST = 60
_SHORTEST = 3

# YAKE's own stop words are those of a two-letter code; a language that it has none for is read with the English ones.
_CODES = {
    "arabic": "ar", "danish": "da", "dutch": "nl", "english": "en", "finnish": "fi", "french": "fr", "german": "de",
    "greek": "el", "hindi": "hi", "hungarian": "hu", "indonesian": "id", "italian": "it", "lithuanian": "lt",
    "norwegian": "no", "portuguese": "pt", "romanian": "ro", "russian": "ru", "spanish": "es", "swedish": "sv",
    "turkish": "tr",
}  # fmt: skip
_IDENTIFIER = re.compile(r"[_/:\\()<>=$@#]|\.(?=\w)|^-|^[a-z]+[A-Z][a-z]")
_QUOTED = re.compile(r"`([^`\n]+)`")
_URL = re.compile(r"https?://\S+|www\.\S+")
_FENCED = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_MARKUP = re.compile(r"[`*>|]+|^#{1,6}\s|\[([^\]]*)\]\([^)]*\)", re.MULTILINE)
# Words that a phrase may neither begin nor end with: what was done, and not to what.
_WORDS_DONE = """
    add added adding adds allow allowed allows avoid breaking change changed changes check create created default do
    ensure example faster fix fixed fixes handle handling improve improved issue latest longer made make makes
    multiple new now patch propose proposed proposes provide provided raise raised raises raising remove removed
    removes rename slower support supported supports throw throwing throws times update updated updates use used
    uses using via wa way
"""
_DONE = frozenset(_WORDS_DONE.split())


@dataclass(frozen=True, slots=True)
class Phrase:
    """A key phrase: what it is known by, how it is written, and its place among those of its text, 0 the first."""

    key: str
    text: str
    rank: int
    is_quoted: bool = False
    """Whether the text has it as code, between backticks."""
    is_name: bool = False
    """Whether the text has it with a capital within a sentence."""


def key_phrases(title: str, content: str, language: str) -> list[Phrase]:
    """The key phrases of a text, the most telling first, each once whatever its forms."""
    text = f"{title}.\n\n{_plain(content[:_READ])}" if title else _plain(content[:_READ])
    quoted = {code.removesuffix("()") for code in _QUOTED.findall(f"{title}\n{content[:_READ]}")}
    found: dict[str, Phrase] = {}
    for spelt, _ in _extractor(_CODES.get(language, "en")).get_n_best(text, n=3 * MOST_PHRASES):
        phrase = " ".join(spelt.split())
        key = phrase_key(phrase, language)
        if key and key not in found and _says_something(phrase, key) and _stands_whole(phrase, text):
            found[key] = Phrase(key, phrase, len(found), phrase in quoted, _is_name(phrase, text))
        if len(found) == MOST_PHRASES:
            break
    return list(found.values())


def phrase_key(phrase: str, language: str) -> str:
    """What a phrase is known by: the stems of its words, whatever their case and endings."""
    return " ".join(stem for token in TOKEN.finditer(phrase) for stem in _stem(token.group(), language))


def concept_type(phrase: str, is_quoted: bool = False, is_name: bool = False) -> str:
    """What type of concept a phrase would be, by its spelling, and whether texts have it as code or as a name."""
    words = phrase.split()
    if is_quoted or (len(words) == 1 and _IDENTIFIER.search(phrase)):
        return IDENTIFIER
    if any(word[1:] != word[1:].lower() or any(c.isdigit() for c in word) for word in words):
        return TECHNOLOGY
    # One capital alone may only be that of a sentence.
    if is_name or (all(word[:1].isupper() for word in words) and len(words) > 1):
        return TECHNOLOGY
    return THEMATIC


def spans(text: str, language: str, most_words: int) -> Iterator[tuple[str, int, int]]:
    """Every run of words of a text, up to so many, as the key it would be known by, and where it stands."""
    tokens = [(one.start(), one.end(), _stem(one.group(), language)) for one in TOKEN.finditer(text[:_READ])]
    for at in range(len(tokens)):
        stems: list[str] = []
        for _, end, more in tokens[at : at + most_words]:
            stems += more
            yield " ".join(stems), tokens[at][0], end


def _stem(token: str, language: str) -> list[str]:
    """What symbols hold together stands for itself; a hyphen may as well be a space."""
    raw = analyse_token(token, language)
    return [raw.whole] if raw.whole and not raw.hyphenated else list(raw.parts)


@lru_cache(maxsize=16)
def _extractor(code: str) -> Yake:
    return Yake(language=code, ngrams=_MOST_WORDS, remove_duplicates=False)


def _plain(text: str) -> str:
    """Markdown without its marks, its blocks of code and its addresses."""
    return _MARKUP.sub(r" \1 ", _URL.sub(" ", _FENCED.sub(" ", text)))


def _stands_whole(phrase: str, text: str) -> bool:
    """Whether a text has a phrase by itself: YAKE parts names at underscores, and `PyBytes_Decode` is no `PyBytes`."""
    words = r"\W+".join(map(re.escape, phrase.split()))
    return re.search(rf"(?<!\w){words}(?!\w)", text) is not None


def _is_name(phrase: str, text: str) -> bool:
    """Whether a text has a phrase with a capital where no sentence begins."""
    return phrase[:1].isupper() and re.search(rf"[a-z,;] {re.escape(phrase)}\b", text) is not None


def _says_something(phrase: str, key: str) -> bool:
    words = fold(phrase).split()
    if not _SHORTEST <= len(phrase) <= _LONGEST or not any(c.isalpha() for c in phrase):
        return False
    if words[0] in _DONE or words[-1] in _DONE or any(word in STOPWORDS["english"] for word in words):
        return False
    return not all(stem.isdigit() for stem in key.split())


# Of one memory.
_MOST_KNOWN = 4
_MOST_NEW = 3
# So many of its key phrases may stand anywhere in it; any other one stands in its title.
_TELLING = 3
# A phrase is worth a concept when it is a key phrase of so many memories and of such a share of them, and not of every
# other one: what three of ten thousand have in common divides nothing.
LEAST_MEMORIES = 3
_LEAST_SHARE = 0.001
_MOST_SHARE = 0.05
# What recurs is learnt from so many of the newest memories.
_LEARNT_FROM = 50_000
_BLOCK = 1_000

STATES = (Memory.State.ACTIVE, Memory.State.PROPOSED)


@dataclass(slots=True)
class _Known:
    """The concepts of a project by the keys of their names and aliases."""

    ids: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    words: int = 1


@dataclass(slots=True)
class _Recurring:
    """In how many memories each phrase is a key phrase, and how it is mostly written."""

    counts: Counter[str] = field(default_factory=Counter)
    quoted: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    spellings: dict[str, Counter[str]] = field(default_factory=dict)
    memories: int = 0

    def add(self, phrases: Iterable[Phrase]) -> None:
        self.memories += 1
        for phrase in phrases:
            self.counts[phrase.key] += 1
            self.quoted[phrase.key] += phrase.is_quoted
            self.names[phrase.key] += phrase.is_name
            self.spellings.setdefault(phrase.key, Counter())[phrase.text] += 1

    def is_worth_it(self, key: str) -> bool:
        least = max(LEAST_MEMORIES, _LEAST_SHARE * self.memories)
        if not least <= self.counts[key] <= max(2 * LEAST_MEMORIES, _MOST_SHARE * self.memories):
            return False
        # A plain word alone, such as “error”, divides nothing.
        return " " in key or self.type_of(key) != THEMATIC

    def termhood(self, key: str) -> float:
        """How well a phrase does as a term: how many have it, and of how many words it is."""
        return self.counts[key] * math.log2(1 + len(key.split()))

    def type_of(self, key: str) -> str:
        """By its usual spelling, and whether many texts have it as code or as a name."""
        count = self.counts[key]
        return concept_type(self.spelling(key), 2 * self.quoted[key] > count, 4 * self.names[key] > count)

    def spelling(self, key: str) -> str:
        """The most usual one; of equals the one with the fewest capitals, which is no beginning of a sentence."""
        return min(self.spellings[key].items(), key=lambda one: (-one[1], sum(map(str.isupper, one[0])), one[0]))[0]


def concept_proposals(project: Project) -> Iterator[Proposal]:
    """What may be linked to the memories of a project that have no concept."""
    memories = Memory.objects.filter(project=project, state__in=STATES)
    waiting = memories.filter(concept_ids=[]).order_by("id")
    if not waiting.exists():
        return
    known = _known(project)
    recurring = _Recurring()
    for row in memories.order_by("-id").values_list("title", "content")[:_LEARNT_FROM].iterator(_BLOCK):
        recurring.add(key_phrases(*row, project.language))
    # What a memory is linked to by that name already.
    names = Entity.objects.values_list("pk", "name")
    entities = {pk: frozenset(phrase_key(name, project.language).split()) for pk, name in names}
    for memory_id, title, content, entity_ids in waiting.values_list("id", "title", "content", "entity_ids").iterator(
        _BLOCK
    ):
        named = [entities[pk] for pk in entity_ids if pk in entities]
        mentioned = _mentions(title, content, known, project.language)
        yield from _known_proposals(project.pk, memory_id, mentioned, known)
        titled = f" {phrase_key(title, project.language)} "
        # What a memory is about stands in its title, or comes first; of the rest it only speaks.
        phrases = [
            one
            for one in key_phrases(title, content, project.language)
            if one.rank < _TELLING or f" {one.key} " in titled
        ]
        new = [one for one in phrases if one.key not in known.ids and not _is_named(one, named)]
        yield from _new_proposals(project.pk, memory_id, new, recurring)


def _is_named(phrase: Phrase, named: Sequence[frozenset[str]]) -> bool:
    """Whether a phrase is an entity of the memory, or a part of its name, such as somebody's surname."""
    words = set(phrase.key.split())
    return any(words <= name for name in named)


def _known(project: Project) -> _Known:
    ids = Memory.objects.filter(project=project).exclude(concept_ids=[]).values_list("concept_ids", flat=True)
    own = {pk for found in ids.iterator(_BLOCK) for pk in found}
    known = _Known()
    for pk, name, aliases in Concept.objects.filter(pk__in=own).order_by("id").values_list("id", "name", "aliases"):
        known.names[pk] = name
        # A name comes before another one's alias.
        for spelling in (name, *aliases):
            if key := phrase_key(spelling, project.language):
                known.words = max(known.words, len(spelling.split()))
                if spelling == name or key not in known.ids:
                    known.ids[key] = pk
    return known


@dataclass(slots=True)
class _Mention:
    """A concept as a text names it."""

    text: str
    times: int = 0
    in_title: bool = False


def _mentions(title: str, content: str, known: _Known, language: str) -> dict[int, _Mention]:
    found: dict[int, _Mention] = {}
    for text in (title, content):
        for key, start, end in spans(text, language, known.words) if known.ids else ():
            if (pk := known.ids.get(key)) is not None:
                mention = found.setdefault(pk, _Mention(text[start:end]))
                mention.times += 1
                mention.in_title = mention.in_title or text is title
    return found


def _known_proposals(
    project_id: int, memory_id: int, mentioned: dict[int, _Mention], known: _Known
) -> Iterator[Proposal]:
    scored = []
    for pk, mention in mentioned.items():
        several_words = " " in known.names[pk]
        confidence = 0.55 + 0.2 * mention.in_title + 0.05 * min(3, mention.times - 1) + 0.1 * several_words
        scored.append((round(min(confidence, 0.95), 3), pk, mention))
    for confidence, pk, mention in sorted(scored, key=lambda one: (-one[0], one[1]))[:_MOST_KNOWN]:
        where = "title" if mention.in_title else "text"
        times = "" if mention.times == 1 else f", {mention.times} times in total"
        yield Proposal(
            kind=Kind.CONCEPT,
            key=(memory_id, known.names[pk].lower()),
            confidence=confidence,
            reason=f"The {where} mentions it as “{mention.text}”{times}.",
            proposal={"concept": known.names[pk]},
            evidence={"phrase": mention.text},
            project_id=project_id,
            subject_id=memory_id,
            target_id=pk,
        )


def _new_proposals(project_id: int, memory_id: int, phrases: list[Phrase], recurring: _Recurring) -> Iterator[Proposal]:
    worth_it = [phrase for phrase in phrases if recurring.is_worth_it(phrase.key)]
    chosen: list[Phrase] = []
    # Of those that share words the one that stands for most; then the text's own order.
    for phrase in sorted(worth_it, key=lambda one: (-recurring.termhood(one.key), one.rank)):
        words = set(phrase.key.split())
        if not any(words & set(one.key.split()) for one in chosen):
            chosen.append(phrase)
    chosen = sorted(chosen, key=lambda one: one.rank)[:_MOST_NEW]
    for phrase in chosen:
        name = recurring.spelling(phrase.key)
        count = recurring.counts[phrase.key]
        yield Proposal(
            kind=Kind.CONCEPT,
            key=(memory_id, name.lower()),
            confidence=_confidence_of_new(phrase, count),
            reason=f"A key phrase of the text, and of {count:,} memories of the project in total.",
            proposal={
                "concept": name,
                "is_new": True,
                "concept_type": recurring.type_of(phrase.key),
            },
            evidence={"phrase": phrase.text},
            project_id=project_id,
            subject_id=memory_id,
        )


def _confidence_of_new(phrase: Phrase, count: int) -> float:
    """Never as sure as a concept that people made already."""
    confidence = 0.25 + 0.04 * math.log2(count) + 0.12 * (" " in phrase.key) - 0.01 * phrase.rank
    return round(max(0.1, min(0.6, confidence)), 3)
