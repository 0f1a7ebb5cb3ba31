"""Names of the vocabulary that may mean the same: entities, concepts, tags. By spelling first, then by meaning.

Whether two names are alike is said by the names alone, never by how many memories have them: confidences must not tell
of memories that somebody may not see.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from categories.models import Concept, Entity, EntityVector
from curation.suggestions.proposals import Kind, Proposal
from memories.embedding.models import Embedder
from text.analysis import fold

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
        return Likeness(0.99, "The names differ only in case.", "exact")
    if normal_form(one) == normal_form(other) and (is_code(one) or is_code(other)):
        return Likeness(0.6, "The names differ only in case and separators, which may matter in code.", "exact")
    if normal_form(one) == normal_form(other):
        return Likeness(0.95, "The names differ only in case, accents and separators.", "exact")
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
    reason = f"The names are spelled similarly: they share {trigram:.0%} of their trigrams."
    return Likeness(confidence, reason, "spelling")


def alike_by_meaning(one: str, other: str, similarity: float) -> Likeness | None:
    """Whether two names may mean the same by what a model makes of them, where their spelling does not say so."""
    if numbers_differ(one, other) or is_code(one) or is_code(other) or not _words_begin_alike(one, other):
        return None
    confidence = round(min(0.6, 0.3 + 2.0 * max(0.0, similarity - LEAST_MEANING)), 3)
    return Likeness(confidence, f"The names are close in meaning (similarity {similarity:.2f}).", "meaning")


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


# A normal form that so many names have is no accident of spelling.
_MOST_OF_ONE_FORM = 12
_BLOCK = 1_000

# entity_name_trgm
_SPELT_ENTITIES = """
SELECT one.id, other.id, similarity(one.name, other.name) FROM categories_entity one
JOIN categories_entity other ON other.name %% one.name AND other.id > one.id AND other.entity_type = one.entity_type"""
# concept_name_trgm
_SPELT_CONCEPTS = """
SELECT one.id, other.id, similarity(one.name, other.name) FROM categories_concept one
JOIN categories_concept other ON other.name %% one.name AND other.id > one.id"""
# No table of tags: they are compared as they stand in the memories.
_TAGS = "SELECT DISTINCT unnest(tags) AS name FROM memories_memory WHERE state <> 'deleted'"
_SPELT_TAGS = f"""
WITH tag AS MATERIALIZED ({_TAGS})
SELECT one.name, other.name, similarity(one.name, other.name) FROM tag one
JOIN tag other ON other.name > one.name AND other.name %% one.name"""

Pair = tuple[int, int]
Group = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class _Named:
    """A row of the vocabulary. Aliases count as names of their own."""

    id: int
    name: str
    type: str = ""
    aliases: tuple[str, ...] = ()


def entity_proposals(model_id: int | None) -> Iterator[Proposal]:
    """Entities of one type with like names; and those of one name with two types, told as that."""
    rows = {
        pk: _Named(pk, name, kind, tuple(aliases))
        for pk, name, kind, aliases in Entity.objects.order_by("id").values_list("id", "name", "entity_type", "aliases")
    }
    found = _by_form(list(rows.values()), within_type=True)
    found |= _by_spelling(_SPELT_ENTITIES, rows, found)
    if model_id is not None:
        found |= _by_meaning(rows, _vectors_by_type(rows, model_id), found)
    found |= _across_types(rows.values(), found)
    yield from (_pair(Kind.ENTITY_DUPLICATE, rows, pair, likeness) for pair, likeness in sorted(found.items()))


def concept_duplicate_proposals(embedder: Embedder | None) -> Iterator[Proposal]:
    """Concepts with like names. By meaning only where a model is at hand: their names have no vectors kept."""
    columns = ("id", "name", "concept_type", "aliases")
    rows = {
        pk: _Named(pk, name, kind, tuple(aliases))
        for pk, name, kind, aliases in Concept.objects.order_by("id").values_list(*columns)
    }
    found = _by_form(list(rows.values()), within_type=False)
    found |= _by_spelling(_SPELT_CONCEPTS, rows, found)
    if embedder is not None and rows:
        ids = np.array(list(rows), np.int64)
        vectors = embedder.encode([row.name for row in rows.values()])
        found |= _by_meaning(rows, [(ids, vectors)], found)
    related = {
        (min(pk, other), max(pk, other))
        for pk, *groups in Concept.objects.values_list("id", "broader_ids", "narrower_ids")
        for group in groups
        for other in group
    }
    # One is said to be part of the other: people have told them apart.
    found = {pair: likeness for pair, likeness in found.items() if pair not in related}
    yield from (_pair(Kind.CONCEPT_DUPLICATE, rows, pair, likeness) for pair, likeness in sorted(found.items()))


def tag_proposals() -> Iterator[Proposal]:
    """Tags with like names."""
    with connection.cursor() as cursor:
        cursor.execute(f"{_TAGS} ORDER BY 1")
        names = [row[0] for row in cursor.fetchall()]
    forms: dict[str, list[str]] = defaultdict(list)
    for name in names:
        forms[normal_form(name)].append(name)
    found: dict[tuple[str, str], Likeness] = {
        pair: likeness
        for group in forms.values()
        if 1 < len(group) <= _MOST_OF_ONE_FORM
        for pair in combinations(group, 2)
        if (likeness := alike(*pair, 1.0))
    }
    for one, other, trigram in _spelt(_SPELT_TAGS):
        pair = (min(one, other), max(one, other))
        if pair not in found and (likeness := alike(one, other, trigram)):
            found[pair] = likeness
    for (one, other), likeness in sorted(found.items()):
        into, gone = sorted((one, other), key=_plainness)
        yield Proposal(
            kind=Kind.TAG_DUPLICATE,
            key=(one, other),
            confidence=likeness.confidence,
            reason=likeness.reason,
            proposal={"from": gone, "into": into},
            evidence={"rule": likeness.rule},
        )


def _pair(kind: Kind, rows: dict[int, _Named], pair: Pair, likeness: Likeness) -> Proposal:
    into, gone = sorted((rows[pk] for pk in pair), key=lambda row: (*_plainness(row.name), row.id))
    return Proposal(
        kind=kind,
        key=pair,
        confidence=likeness.confidence,
        reason=likeness.reason,
        proposal={"from": gone.name, "into": into.name},
        evidence={"rule": likeness.rule},
        subject_id=gone.id,
        target_id=into.id,
    )


def _plainness(name: str) -> tuple[int, int, str]:
    """Which of two names to keep, by the names alone: the longer one says more; then the one with fewer capitals."""
    return (-len(name), sum(map(str.isupper, name)), name)


def _by_form(rows: Sequence[_Named], *, within_type: bool) -> dict[Pair, Likeness]:
    """Those of the same normal form. A name that is another one's alias counts as the same name."""
    forms: dict[tuple[str, str], set[int]] = defaultdict(set)
    named = {row.id: row for row in rows}
    for row in rows:
        for spelling in (row.name, *row.aliases):
            forms[row.type if within_type else "", normal_form(spelling)].add(row.id)
    found: dict[Pair, Likeness] = {}
    for (_, form), group in forms.items():
        if form and 1 < len(group) <= _MOST_OF_ONE_FORM:
            for pair in combinations(sorted(group), 2):
                by_name = alike(named[pair[0]].name, named[pair[1]].name, 0.0)
                found[pair] = by_name or Likeness(0.9, "A name of one is an alias of the other.", "exact")
    return found


def _by_spelling(statement: str, rows: dict[int, _Named], known: dict[Pair, Likeness]) -> dict[Pair, Likeness]:
    return {
        (one, other): likeness
        for one, other, trigram in _spelt(statement)
        if (one, other) not in known
        and one in rows
        and other in rows
        and (likeness := alike(rows[one].name, rows[other].name, trigram))
    }


def _spelt(statement: str) -> list[tuple[Any, Any, float]]:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT set_config('pg_trgm.similarity_threshold', %s, true)", [str(LEAST_TRIGRAM)])
        cursor.execute(statement, [])
        return list(cursor.fetchall())


def _by_meaning(rows: dict[int, _Named], groups: Sequence[Group], known: dict[Pair, Likeness]) -> dict[Pair, Likeness]:
    found: dict[Pair, Likeness] = {}
    for ids, vectors in groups:
        units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
        for at in range(0, len(ids), _BLOCK):
            near = units[at : at + _BLOCK] @ units.T
            for row, column in zip(*np.nonzero(near >= LEAST_MEANING), strict=True):
                pair = (int(ids[at + row]), int(ids[column]))
                if pair[0] < pair[1] and pair not in known:
                    one, other = (rows[pk] for pk in pair)
                    if likeness := alike_by_meaning(one.name, other.name, float(near[row, column])):
                        found[pair] = likeness
    return found


def _vectors_by_type(rows: dict[int, _Named], model_id: int) -> list[Group]:
    """The kept vectors of entities, those of one type together, in the order of their ids."""
    groups: dict[str, list[tuple[int, npt.NDArray[np.float32]]]] = defaultdict(list)
    vectors = EntityVector.objects.filter(model_id=model_id).order_by("entity_id")
    for pk, vector in vectors.values_list("entity_id", "embedding"):
        if pk in rows:
            groups[rows[pk].type].append((pk, np.asarray(vector, np.float32)))
    return [
        (np.array([pk for pk, _ in group], np.int64), np.stack([vector for _, vector in group]))
        for group in groups.values()
    ]


def _across_types(rows: Iterable[_Named], known: dict[Pair, Likeness]) -> dict[Pair, Likeness]:
    """The same name under two types: perhaps one thing told as two kinds, perhaps two things."""
    names: dict[str, list[_Named]] = defaultdict(list)
    for row in rows:
        names[row.name].append(row)
    return {
        pair: Likeness(0.5, f"The names are equal but the types differ: {one.type} and {other.type}.", "types")
        for group in names.values()
        if 1 < len(group) <= _MOST_OF_ONE_FORM
        for one, other in combinations(sorted(group, key=lambda row: row.id), 2)
        if one.type != other.type and (pair := (one.id, other.id)) not in known
    }
