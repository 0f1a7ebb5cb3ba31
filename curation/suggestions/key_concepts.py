"""Suggests concepts for memories without any: concepts of the project that the text names, and recurring phrases.

Only the memory's own text and project are used, so that suggestions disclose nothing of others.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from yake_rust import Yake

from categories.models import Concept, Entity
from categories.texts import readable_aliases
from curation.suggestions.proposals import STATES, Kind, Proposal
from memories.models import Memory, Project
from text.analysis import STOPWORDS, TOKEN, analyse_token, fold

IDENTIFIER, TECHNOLOGY, THEMATIC = "identifier", "technology", "thematic"

# Key phrases of a text, and characters of it that are read.
MAX_PHRASES = 12
_READ = 20_000
_MAX_WORDS = 3
_LONGEST = 60
_SHORTEST = 3

# YAKE has stop words by two-letter code; other languages use the English words.
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
# Words of actions, with which a phrase may neither begin nor end.
_ACTION_WORDS = """
    add added adding adds allow allowed allows avoid breaking change changed changes check create created default do
    ensure example faster fix fixed fixes handle handling improve improved issue latest longer made make makes
    multiple new now patch propose proposed proposes provide provided raise raised raises raising remove removed
    removes rename slower support supported supports throw throwing throws times update updated updates use used
    uses using via wa way
"""
_ACTIONS = frozenset(_ACTION_WORDS.split())


@dataclass(frozen=True, slots=True)
class Phrase:
    """A key phrase: its normalised key, its spelling, and its rank in the text from 0."""

    key: str
    text: str
    rank: int
    is_quoted: bool = False
    """Whether it stands between backticks."""
    is_name: bool = False
    """Whether it is capitalised within a sentence."""


def key_phrases(title: str, content: str, language: str) -> list[Phrase]:
    """The key phrases of a text, by relevance, without repeats in another form."""
    text = f"{title}.\n\n{_plain(content[:_READ])}" if title else _plain(content[:_READ])
    quoted = {code.removesuffix("()") for code in _QUOTED.findall(f"{title}\n{content[:_READ]}")}
    found: dict[str, Phrase] = {}
    for spelling, _ in _extractor(_CODES.get(language, "en")).get_n_best(text, n=3 * MAX_PHRASES):
        phrase = " ".join(spelling.split())
        key = phrase_key(phrase, language)
        if key and key not in found and _is_meaningful(phrase, key) and _is_whole_phrase(phrase, text):
            found[key] = Phrase(key, phrase, len(found), phrase in quoted, _is_name(phrase, text))
        if len(found) == MAX_PHRASES:
            break
    return list(found.values())


def phrase_key(phrase: str, language: str) -> str:
    """The key of a phrase: the stems of its words."""
    return " ".join(stem for token in TOKEN.finditer(phrase) for stem in _stem(token.group(), language))


def concept_type(phrase: str, is_quoted: bool = False, is_name: bool = False) -> str:
    """The type of concept of a phrase, by its spelling and its use as code or as a name."""
    words = phrase.split()
    if is_quoted or (len(words) == 1 and _IDENTIFIER.search(phrase)):
        return IDENTIFIER
    if any(word[1:] != word[1:].lower() or any(c.isdigit() for c in word) for word in words):
        return TECHNOLOGY
    # A single capital may be the beginning of a sentence.
    if is_name or (all(word[:1].isupper() for word in words) and len(words) > 1):
        return TECHNOLOGY
    return THEMATIC


def spans(text: str, language: str, max_words: int) -> Iterator[tuple[str, int, int]]:
    """Every sequence of up to `max_words` words of a text: its key, its start and its end."""
    tokens = [(one.start(), one.end(), _stem(one.group(), language)) for one in TOKEN.finditer(text[:_READ])]
    for at in range(len(tokens)):
        stems: list[str] = []
        for _, end, more in tokens[at : at + max_words]:
            stems += more
            yield " ".join(stems), tokens[at][0], end


def _stem(token: str, language: str) -> list[str]:
    """The stems of a token. An identifier counts as one word; hyphens separate words."""
    return [term for term, _ in analyse_token(token, language).wanted]


@lru_cache(maxsize=16)
def _extractor(code: str) -> Yake:
    return Yake(language=code, ngrams=_MAX_WORDS, remove_duplicates=False)


def _plain(text: str) -> str:
    """Markdown without markup, code blocks and URLs."""
    return _MARKUP.sub(r" \1 ", _URL.sub(" ", _FENCED.sub(" ", text)))


def _is_whole_phrase(phrase: str, text: str) -> bool:
    """Whether a phrase is not part of a name: YAKE splits at underscores, but `PyBytes_Decode` is no `PyBytes`."""
    words = r"\W+".join(map(re.escape, phrase.split()))
    return re.search(rf"(?<!\w){words}(?!\w)", text) is not None


def _is_name(phrase: str, text: str) -> bool:
    """Whether a phrase is capitalised within a sentence."""
    return phrase[:1].isupper() and re.search(rf"[a-z,;] {re.escape(phrase)}\b", text) is not None


def _is_meaningful(phrase: str, key: str) -> bool:
    words = fold(phrase).split()
    if not _SHORTEST <= len(phrase) <= _LONGEST or not any(c.isalpha() for c in phrase):
        return False
    if words[0] in _ACTIONS or words[-1] in _ACTIONS or any(word in STOPWORDS["english"] for word in words):
        return False
    return not all(stem.isdigit() for stem in key.split())


# Suggestions for one memory.
_MAX_KNOWN = 4
_MAX_NEW = 3
# Key phrases after these ranks count only if they are in the title.
_TOP_RANKS = 3
# A phrase becomes a concept if enough memories have it, but too many distinguish nothing.
MIN_MEMORIES = 3
_MIN_SHARE = 0.001
_MAX_SHARE = 0.05
# The newest memories, from which recurring phrases are counted.
_COUNTED_MEMORIES = 50_000
_BLOCK = 1_000


@dataclass(slots=True)
class _Known:
    """The concepts of a project by the keys of their names and aliases."""

    ids: dict[str, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    words: int = 1


@dataclass(slots=True)
class _Recurring:
    """The number of memories with each key phrase, and its spellings."""

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

    def is_specific(self, key: str) -> bool:
        minimum = max(MIN_MEMORIES, _MIN_SHARE * self.memories)
        if not minimum <= self.counts[key] <= max(2 * MIN_MEMORIES, _MAX_SHARE * self.memories):
            return False
        # A plain word, such as “error”, distinguishes nothing.
        return " " in key or self.type_of(key) != THEMATIC

    def termhood(self, key: str) -> float:
        """The suitability of a phrase as a term, from its frequency and its length."""
        return self.counts[key] * math.log2(1 + len(key.split()))

    def type_of(self, key: str) -> str:
        """The type of concept of a phrase, by its usual spelling and its frequent use as code or as a name."""
        count = self.counts[key]
        return concept_type(self.spelling(key), 2 * self.quoted[key] > count, 4 * self.names[key] > count)

    def spelling(self, key: str) -> str:
        """The most frequent spelling; of equally frequent spellings, the one with the fewest capitals."""
        return min(self.spellings[key].items(), key=lambda one: (-one[1], sum(map(str.isupper, one[0])), one[0]))[0]


def concept_proposals(project: Project) -> Iterator[Proposal]:
    """Concepts for the memories of a project without any."""
    memories = Memory.objects.filter(project=project, state__in=STATES)
    without_concepts = memories.filter(concept_ids=[]).order_by("id")
    if not without_concepts.exists():
        return
    known = _known(project)
    recurring = _Recurring()
    for row in memories.order_by("-id").values_list("title", "content")[:_COUNTED_MEMORIES].iterator(_BLOCK):
        recurring.add(key_phrases(*row, project.language))
    names = Entity.objects.values_list("pk", "name")
    entities = {pk: frozenset(phrase_key(name, project.language).split()) for pk, name in names}
    rows = without_concepts.values_list("id", "title", "content", "entity_ids")
    for memory_id, title, content, entity_ids in rows.iterator(_BLOCK):
        named = [entities[pk] for pk in entity_ids if pk in entities]
        mentioned = _mentions(title, content, known, project.language)
        yield from _known_proposals(project.pk, memory_id, mentioned, known)
        titled = f" {phrase_key(title, project.language)} "
        # The subject of a memory is in its title or comes first.
        phrases = [
            one
            for one in key_phrases(title, content, project.language)
            if one.rank < _TOP_RANKS or f" {one.key} " in titled
        ]
        new = [one for one in phrases if one.key not in known.ids and not _is_named(one, named)]
        yield from _new_proposals(project.pk, memory_id, new, recurring)


def _is_named(phrase: Phrase, named: Sequence[frozenset[str]]) -> bool:
    """Whether a phrase is, or is part of, the name of an entity of the memory."""
    words = set(phrase.key.split())
    return any(words <= name for name in named)


def _known(project: Project) -> _Known:
    ids = Memory.objects.filter(project=project).exclude(concept_ids=[]).values_list("concept_ids", flat=True)
    own = {pk for found in ids.iterator(_BLOCK) for pk in found}
    known = _Known()
    for concept in Concept.objects.filter(pk__in=own).order_by("id").only("name", "aliases", "alias_projects"):
        pk, name = concept.pk, concept.name
        known.names[pk] = name
        # A name takes precedence over an alias.
        for spelling in (name, *readable_aliases(concept, frozenset({project.pk}))):
            if key := phrase_key(spelling, project.language):
                known.words = max(known.words, len(spelling.split()))
                if spelling == name or key not in known.ids:
                    known.ids[key] = pk
    return known


@dataclass(slots=True)
class _ConceptMention:
    """The mentions of a concept in a text: the first spelling, and their number."""

    text: str
    times: int = 0
    in_title: bool = False


def _mentions(title: str, content: str, known: _Known, language: str) -> dict[int, _ConceptMention]:
    found: dict[int, _ConceptMention] = {}
    for text in (title, content):
        for key, start, end in spans(text, language, known.words) if known.ids else ():
            if (pk := known.ids.get(key)) is not None:
                mention = found.setdefault(pk, _ConceptMention(text[start:end]))
                mention.times += 1
                mention.in_title = mention.in_title or text is title
    return found


def _known_proposals(
    project_id: int, memory_id: int, mentioned: dict[int, _ConceptMention], known: _Known
) -> Iterator[Proposal]:
    scored = []
    for pk, mention in mentioned.items():
        several_words = " " in known.names[pk]
        confidence = 0.55 + 0.2 * mention.in_title + 0.05 * min(3, mention.times - 1) + 0.1 * several_words
        scored.append((round(min(confidence, 0.95), 3), pk, mention))
    for confidence, pk, mention in sorted(scored, key=lambda one: (-one[0], one[1]))[:_MAX_KNOWN]:
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
    specific = [phrase for phrase in phrases if recurring.is_specific(phrase.key)]
    chosen: list[Phrase] = []
    # The best term among phrases that share words; then in the order of the text.
    for phrase in sorted(specific, key=lambda one: (-recurring.termhood(one.key), one.rank)):
        words = set(phrase.key.split())
        if not any(words & set(one.key.split()) for one in chosen):
            chosen.append(phrase)
    chosen = sorted(chosen, key=lambda one: one.rank)[:_MAX_NEW]
    for phrase in chosen:
        name = recurring.spelling(phrase.key)
        count = recurring.counts[phrase.key]
        yield Proposal(
            kind=Kind.CONCEPT,
            key=(memory_id, name.lower()),
            confidence=_confidence_of_new(phrase, count),
            reason=f"A key phrase of the text, and of {count:,} memories of the project in total.",
            proposal={"concept": name, "is_new": True, "concept_type": recurring.type_of(phrase.key)},
            evidence={"phrase": phrase.text},
            project_id=project_id,
            subject_id=memory_id,
        )


def _confidence_of_new(phrase: Phrase, count: int) -> float:
    """Lower than for existing concepts."""
    confidence = 0.25 + 0.04 * math.log2(count) + 0.12 * (" " in phrase.key) - 0.01 * phrase.rank
    return round(max(0.1, min(0.6, confidence)), 3)
