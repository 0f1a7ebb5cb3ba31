"""Finds names of entities, concepts and tags that may mean the same, by spelling and by meaning.

Only the names are compared: a confidence that depended on memories would disclose invisible memories.
"""

import re
import unicodedata
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from django.db import transaction

from categories.models import Concept, Entity, EntityVector
from curation.suggestions.proposals import HELD_ALIAS, Kind, Proposal
from memories.embedding.models import Embedder
from memories.invented_team import sample_projects
from text.analysis import fold
from web.sql import fetch

# The minimum trigram similarity of candidates.
MIN_TRIGRAM = 0.55
# The minimum similarity of two words: one letter of five may differ.
_MIN_WORD_SIMILARITY = 0.8
# Letters of the beginning of a word.
_HEAD = 3
# The minimum similarity of vectors; below it, names are only of the same kind.
MIN_MEANING = 0.85
# Shorter names are similar by chance.
_SHORTEST = 5
_SEPARATORS = re.compile(r"[\s_\-./:,;'’\"()]+")
_NUMBERS = re.compile(r"\d+")
_CODE = re.compile(r"[_:/()\\@$#<>=+]|\.(?=\w)|[a-z][A-Z]|[A-Z]{2}[a-z]")
_WORDS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class NameSimilarity:
    """A reason why two names may mean the same."""

    confidence: float
    reason: str
    rule: str


def normal_form(name: str) -> str:
    """A name without case, accents and separators, except underscores at its ends."""
    bare = unicodedata.normalize("NFKC", name).strip().removesuffix("()")
    head = bare[: len(bare) - len(bare.lstrip("_"))]
    tail = bare[len(bare.rstrip("_")) :] if bare.strip("_") else ""
    return head + _SEPARATORS.sub("", fold(bare)) + tail


def is_code(name: str) -> bool:
    """Whether a name is an identifier, where every character counts."""
    return bool(_CODE.search(name))


def numbers_differ(one: str, other: str) -> bool:
    return _NUMBERS.findall(one) != _NUMBERS.findall(other)


def compare_names(one: str, other: str, trigram: float) -> NameSimilarity | None:
    """Compare the spelling of two names of one type. `trigram` is their trigram similarity, 0 to 1."""
    code = is_code(one) or is_code(other)
    if one.casefold() == other.casefold():
        return NameSimilarity(0.99, "The names differ only in case.", "exact")
    if normal_form(one) == normal_form(other):
        if code:
            reason = "The names differ only in case and separators, which may matter in code."
            return NameSimilarity(0.6, reason, "exact")
        return NameSimilarity(0.95, "The names differ only in case, accents and separators.", "exact")
    if code or numbers_differ(one, other):
        return None
    if _sorted_words(one) == _sorted_words(other):
        return NameSimilarity(0.9, "The names have the same words in another order.", "exact")
    if _is_plural(one, other):
        return NameSimilarity(0.85, "One name is the plural of the other.", "exact")
    if min(len(one), len(other)) < _SHORTEST or trigram < MIN_TRIGRAM or not _words_pair_up(one, other):
        return None
    confidence = round(0.4 + 0.5 * (trigram - MIN_TRIGRAM) / (1 - MIN_TRIGRAM), 3)
    reason = f"The names are spelled similarly: {trigram:.0%} of their letter groups are the same."
    return NameSimilarity(confidence, reason, "spelling")


def compare_by_meaning(one: str, other: str, similarity: float) -> NameSimilarity | None:
    """Compare the meaning of two names, given the similarity of their vectors."""
    if numbers_differ(one, other) or is_code(one) or is_code(other) or not _words_share_beginnings(one, other):
        return None
    confidence = round(min(0.6, 0.3 + 2.0 * max(0.0, similarity - MIN_MEANING)), 3)
    return NameSimilarity(confidence, f"The names are close in meaning (similarity {similarity:.2f}).", "meaning")


def _sorted_words(name: str) -> list[str]:
    return sorted(_WORDS.findall(fold(name)))


def _is_plural(one: str, other: str) -> bool:
    """Whether one name is the English plural of the other."""
    shorter, longer = sorted((fold(one), fold(other)), key=len)
    if is_code(one) or is_code(other) or len(shorter) < 3:
        return False
    return longer in {f"{shorter}s", f"{shorter}es"} or (shorter.endswith("y") and longer == f"{shorter[:-1]}ies")


def _words_pair_up(one: str, other: str) -> bool:
    """Whether each word is similar to a word of the other name, so that a shared surname is not enough."""
    first, second = _sorted_words(one), _sorted_words(other)
    if len(first) != len(second) or not first:
        # An additional initial may be the same person; an additional word is another thing.
        shorter, longer = sorted((first, second), key=len)
        rest = list(longer)
        for word in shorter:
            if word not in rest:
                return False
            rest.remove(word)
        return bool(shorter) and len(shorter) > 1 and all(len(word) == 1 for word in rest)
    return all(_are_similar(a, b) for a, b in zip(first, second, strict=True))


def _words_share_beginnings(one: str, other: str) -> bool:
    """Whether both have several words, and each of the shorter begins like a word of the longer name."""
    shorter, longer = sorted((fold(one).split(), fold(other).split()), key=len)
    if len(shorter) < 2:
        return False
    heads = [word[:_HEAD] for word in longer]
    for word in shorter:
        if word[:_HEAD] not in heads:
            return False
        heads.remove(word[:_HEAD])
    return True


def _are_similar(one: str, other: str) -> bool:
    """Whether two words differ in few letters."""
    return one == other or (
        min(len(one), len(other)) > 3 and SequenceMatcher(None, one, other).ratio() >= _MIN_WORD_SIMILARITY
    )


# More names of one normal form are no accident of spelling.
_MAX_SAME_FORM = 12
_BLOCK = 1_000

# entity_name_trgm
_ENTITY_PAIRS = """
SELECT one.id, other.id, similarity(one.name, other.name) FROM categories_entity one
JOIN categories_entity other ON other.name %% one.name AND other.id > one.id AND other.entity_type = one.entity_type"""
# concept_name_trgm
_CONCEPT_PAIRS = """
SELECT one.id, other.id, similarity(one.name, other.name) FROM categories_concept one
JOIN categories_concept other ON other.name %% one.name AND other.id > one.id"""
# Tags have no table, and are compared as the memories have them.
_TAG_PAIRS = """
WITH tag AS MATERIALIZED (SELECT DISTINCT unnest(tags) AS name FROM memories_memory WHERE state <> 'deleted')
SELECT one.name, other.name, similarity(one.name, other.name) FROM tag one
JOIN tag other ON other.name > one.name AND other.name %% one.name"""

_USES = """
SELECT name, project_id, count(*) FROM (
  SELECT unnest({column}) AS name, project_id FROM memories_memory WHERE state <> 'deleted'
) named GROUP BY 1, 2"""

T = TypeVar("T", int, str)
IdPair = tuple[int, int]
Found = dict[IdPair, NameSimilarity]
Uses = dict[T, dict[int, int]]
"""The number of memories with a term, by project."""
VectorGroup = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class _VocabularyRow:
    """An entity or a concept. Aliases are compared like names; `held` are those that hold in some projects only."""

    id: int
    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()
    held: tuple[str, ...] = ()


def _rows(model: type[Concept | Entity], type_column: str) -> dict[int, _VocabularyRow]:
    columns = ("id", "name", type_column, "aliases", "alias_projects")
    return {
        pk: _VocabularyRow(
            *(pk, name, kind),
            tuple(alias for alias in aliases if alias not in (held or ())),
            tuple(alias for alias in aliases if alias in (held or ())),
        )
        for pk, name, kind, aliases, held in model._default_manager.order_by("id").values_list(*columns)
    }


def entity_proposals(model_id: int | None) -> Iterator[Proposal]:
    """Entities of one type with similar names, and entities of different types with equal names."""
    rows = _rows(Entity, "entity_type")
    found = _by_form(list(rows.values()), within_type=True)
    found |= _by_spelling(_ENTITY_PAIRS, rows, found)
    if model_id is not None:
        found |= _by_meaning(rows, _vectors_by_type(rows, model_id), found)
    found |= _across_types(rows.values(), found)
    found |= _by_held_alias(rows, found, within_type=True)
    yield from _term_proposals(Kind.ENTITY_DUPLICATE, rows, found, _uses("entity_ids"))


def concept_duplicate_proposals(embedder: Embedder | None) -> Iterator[Proposal]:
    """Concepts with similar names. Their names have no stored vectors, so meaning needs an embedder."""
    rows = _rows(Concept, "concept_type")
    found = _by_form(list(rows.values()), within_type=False)
    found |= _by_spelling(_CONCEPT_PAIRS, rows, found)
    if embedder is not None and rows:
        ids = np.array(list(rows), np.int64)
        vectors = embedder.encode([row.name for row in rows.values()])
        found |= _by_meaning(rows, [(ids, vectors)], found)
    found |= _by_held_alias(rows, found, within_type=False)
    related = {
        (min(pk, other), max(pk, other))
        for pk, *groups in Concept.objects.values_list("id", "broader_ids", "narrower_ids")
        for group in groups
        for other in group
    }
    # A concept and a broader concept differ.
    found = {pair: similarity for pair, similarity in found.items() if pair not in related}
    yield from _term_proposals(Kind.CONCEPT_DUPLICATE, rows, found, _uses("concept_ids"))


def tag_proposals() -> Iterator[Proposal]:
    """Tags with similar names."""
    uses: Uses[str] = _uses("tags")
    names = sorted(uses)
    forms: dict[str, list[str]] = defaultdict(list)
    for name in names:
        forms[normal_form(name)].append(name)
    found: dict[tuple[str, str], NameSimilarity] = {
        pair: similarity
        for group in forms.values()
        if 1 < len(group) <= _MAX_SAME_FORM
        for pair in combinations(group, 2)
        if (similarity := compare_names(*pair, 1.0))
    }
    # Short ones, such as `bug` and `bugs`, share too few trigrams.
    known = set(names)
    plurals = ((name, plural, 0.0) for name in names for plural in (f"{name}s", f"{name}es") if plural in known)
    for one, other, trigram in (*plurals, *_trigram_pairs(_TAG_PAIRS)):
        pair = (min(one, other), max(one, other))
        if pair not in found and (similarity := compare_names(one, other, trigram)):
            found[pair] = similarity
    for source, target in pairs_to_merge(found, uses, str, sample_projects()):
        pair = (min(source, target), max(source, target))
        yield _proposal(Kind.TAG_DUPLICATE, pair, found[pair], source, target)


def _term_proposals(kind: Kind, rows: dict[int, _VocabularyRow], found: Found, uses: Uses[int]) -> Iterator[Proposal]:
    for source, target in pairs_to_merge(found, uses, lambda pk: rows[pk].name, sample_projects()):
        pair = (min(source, target), max(source, target))
        proposal = _proposal(kind, pair, found[pair], rows[source].name, rows[target].name)
        yield replace(proposal, subject_id=source, target_id=target)


def _proposal(
    kind: Kind, pair: tuple[T, T], similarity: NameSimilarity, source_name: str, target_name: str
) -> Proposal:
    return Proposal(
        kind=kind,
        key=pair,
        confidence=similarity.confidence,
        reason=similarity.reason,
        proposal={"from": source_name, "into": target_name},
        evidence={"rule": similarity.rule},
    )


def pairs_to_merge(
    found: Mapping[tuple[T, T], NameSimilarity],
    uses: Uses[T],
    name_of: Callable[[T], str],
    sample: frozenset[int] = frozenset(),
) -> Iterator[tuple[T, T]]:
    """The pairs of terms with memories to propose, each with the one that ends first, in the order of their terms.

    Terms that are alike form a group, and each is merged towards the one of most memories: directly, or by the term
    that links the two. Pairs of others are left out, unless somebody sees both of them and not the linking terms.
    """
    links: dict[T, dict[T, float]] = defaultdict(dict)
    for (one, other), similarity in found.items():
        # The names of an invented team are nothing to anybody else.
        if one in uses and other in uses and len({sample.issuperset(uses[term]) for term in (one, other)}) == 1:
            links[one][other] = links[other][one] = similarity.confidence

    def rank(term: T) -> tuple[int, int, int, str]:
        # Among those of as many memories: shorter names, then names with fewer capitals.
        name = name_of(term)
        return -sum(uses[term].values()), len(name), sum(map(str.isupper, name)), name

    parents: dict[T, T] = {}
    waiting = deque[T]()
    for term in sorted(links, key=rank):
        if term not in parents:
            parents[term] = term
            waiting.append(term)
        while waiting:
            near = waiting.popleft()
            for other in sorted(links[near], key=lambda other: (-links[near][other], rank(other))):
                if other not in parents:
                    parents[other] = near
                    waiting.append(other)
    for one, other in sorted(found):
        if one not in links or other not in links[one]:
            continue
        target, source = sorted((one, other), key=rank)
        is_seen_with_parent = any(uses[term].keys() <= uses[parents[term]].keys() for term in (one, other))
        if parents[source] == target or not is_seen_with_parent:
            yield source, target
        elif parents[target] == source:
            yield target, source


def _uses(column: str) -> Uses[Any]:
    found: Uses[Any] = defaultdict(dict)
    for name, project_id, count in fetch(_USES.format(column=column)):
        found[name][project_id] = count
    return dict(found)


def _by_form(rows: Sequence[_VocabularyRow], *, within_type: bool) -> Found:
    """Pairs with a name or an alias of the same normal form."""
    forms: dict[tuple[str, str], set[int]] = defaultdict(set)
    named = {row.id: row for row in rows}
    for row in rows:
        for spelling in (row.name, *row.aliases):
            forms[row.type if within_type else "", normal_form(spelling)].add(row.id)
    found: Found = {}
    for (_, form), group in forms.items():
        if form and 1 < len(group) <= _MAX_SAME_FORM:
            for pair in combinations(sorted(group), 2):
                by_name = compare_names(named[pair[0]].name, named[pair[1]].name, 0.0)
                found[pair] = by_name or NameSimilarity(0.9, "A name of one is an alias of the other.", "exact")
    return found


def _by_held_alias(rows: dict[int, _VocabularyRow], known: Found, *, within_type: bool) -> Found:
    """Further pairs because of an alias that holds in some projects only."""
    if not any(row.held for row in rows.values()):
        return {}
    whole = [replace(row, aliases=(*row.aliases, *row.held)) for row in rows.values()]
    found = _by_form(whole, within_type=within_type)
    return {pair: replace(one, rule=HELD_ALIAS) for pair, one in found.items() if pair not in known}


def _by_spelling(statement: str, rows: dict[int, _VocabularyRow], known: Found) -> Found:
    return {
        (one, other): similarity
        for one, other, trigram in _trigram_pairs(statement)
        if (one, other) not in known
        and one in rows
        and other in rows
        and (similarity := compare_names(rows[one].name, rows[other].name, trigram))
    }


def _trigram_pairs(statement: str) -> list[tuple[Any, Any, float]]:
    with transaction.atomic():
        fetch("SELECT set_config('pg_trgm.similarity_threshold', %s, true)", [str(MIN_TRIGRAM)])
        return fetch(statement)


def _by_meaning(rows: dict[int, _VocabularyRow], groups: Sequence[VectorGroup], known: Found) -> Found:
    found: Found = {}
    for ids, vectors in groups:
        units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
        for at in range(0, len(ids), _BLOCK):
            similarities = units[at : at + _BLOCK] @ units.T
            for row, column in zip(*np.nonzero(similarities >= MIN_MEANING), strict=True):
                pair = (int(ids[at + row]), int(ids[column]))
                if pair[0] < pair[1] and pair not in known:
                    one, other = (rows[pk] for pk in pair)
                    if similarity := compare_by_meaning(one.name, other.name, float(similarities[row, column])):
                        found[pair] = similarity
    return found


def _vectors_by_type(rows: dict[int, _VocabularyRow], model_id: int) -> list[VectorGroup]:
    """The stored vectors of entities by type, in the order of their ids."""
    groups: dict[str, list[tuple[int, npt.NDArray[np.float32]]]] = defaultdict(list)
    vectors = EntityVector.objects.filter(model_id=model_id).order_by("entity_id")
    for pk, vector in vectors.values_list("entity_id", "embedding"):
        if pk in rows:
            groups[rows[pk].type].append((pk, np.asarray(vector, np.float32)))
    return [
        (np.array([pk for pk, _ in group], np.int64), np.stack([vector for _, vector in group]))
        for group in groups.values()
    ]


def _across_types(rows: Iterable[_VocabularyRow], known: Found) -> Found:
    """Pairs of entities with equal names and different types."""
    names: dict[str, list[_VocabularyRow]] = defaultdict(list)
    for row in rows:
        names[row.name].append(row)
    return {
        pair: NameSimilarity(0.5, f"The names are equal but the types differ: {one.type} and {other.type}.", "types")
        for group in names.values()
        if 1 < len(group) <= _MAX_SAME_FORM
        for one, other in combinations(sorted(group, key=lambda row: row.id), 2)
        if one.type != other.type and (pair := (one.id, other.id)) not in known
    }
