"""Finds near-duplicate memories, and memories that a newer memory may supersede, within each project."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings

from curation.suggestions.proposals import Kind, Proposal
from memories.models import Chunk, MemoryLink
from search.engines.vectors.pgvector import hnsw_scan
from search.ranking import chunks_of, mean_vector
from text.analysis import STOPWORDS
from web.sql import fetch

# Nearest chunks of a memory, in all projects, and `ef_search` of the index.
_NEAREST = 12
_EF_SEARCH = 40
# Up to this many chunks all are compared, in about a millisecond: neighbours may be hidden from the index behind
# deleted rows that are not vacuumed yet, in a cluster also those of one shard while other shards find enough.
_COMPARED_EXACTLY = 2_000
# Below this similarity, a pair is not compared.
_MIN_SIMILARITY = 0.75
# Minimum shares of common terms.
_DUPLICATE_TERMS = 0.6
_SUBJECT_TERMS = 0.3
# Words such as “remove” are frequent: such cues count only for very similar pairs.
_STRONG_CUE = 0.2
_MIN_FOR_WEAK_CUE = 0.85
_SAME_FRAME_TERMS = 0.7
_NAMED_TERMS = 8
# Subtracted from the confidence of a duplicate if the two name different things.
_DISTINCT_PENALTY = 0.3
_CODE = re.compile(r"[A-Za-z]+(?:[A-Z][a-z]+|_\w+)\w*")
_LONG_WORDS = re.compile(r"\w[\w./-]{3,}\w")
_NUMBERS = re.compile(r"\d+(?:\.\d+)*")

# By the primary key.
_VECTORS = """
SELECT memory_id, embedding::text FROM memories_chunk
WHERE memory_id = ANY(%(ids)s) AND model_id = %(model)s AND ordinal = 0"""
# A statement for each vector: shards do not join chunks with those of other shards.
_NEAREST_CHUNKS = """
SELECT memory_id, 1 - (embedding <=> %(vector)s::halfvec) AS similarity
FROM memories_chunk WHERE model_id = %(model)s ORDER BY {distance} LIMIT %(limit)s"""
# chunk_embedding_hnsw
_BY_INDEX = _NEAREST_CHUNKS.format(distance="embedding <=> %(vector)s::halfvec")
# Every vector: an index cannot serve an expression. NaN sorts last.
_BY_ALL = _NEAREST_CHUNKS.format(distance="(embedding <=> %(vector)s::halfvec) + 0")
# By the primary key.
_TEXTS = """
SELECT id, project_id, title, content, content_hash, created_at, importance, pinned, cardinality(category_ids)
  + cardinality(concept_ids) + cardinality(entity_ids) + cardinality(tags), tsvector_to_array(terms)
FROM memories_memory WHERE id = ANY(%s) AND state IN ('active', 'proposed')"""


@dataclass(frozen=True, slots=True)
class _Text:
    """The compared values of a memory."""

    id: int
    project_id: int
    title: str
    content: str
    content_hash: str
    created_at: datetime
    importance: float | None
    pinned: bool
    linked: int
    terms: frozenset[str]

    @property
    def full_text(self) -> str:
        return f"{self.title}\n{self.content}"

    @property
    def retention_key(self) -> tuple[Any, ...]:
        """The order of retention: pinned, longer, better linked, more important, older."""
        return (self.pinned, len(self.content), self.linked, self.importance or 0.0, -self.id)


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two similar memories of a project."""

    older: _Text
    newer: _Text
    similarity: float

    @property
    def shared(self) -> list[str]:
        """Common words, the longest first."""
        both = set(_LONG_WORDS.findall(self.older.full_text)) & set(_LONG_WORDS.findall(self.newer.full_text))
        return sorted(both - STOPWORDS["english"], key=lambda word: (-len(word), word))

    @property
    def overlap(self) -> float:
        """The share of common terms."""
        return len(self.older.terms & self.newer.terms) / max(1, len(self.older.terms | self.newer.terms))

    @property
    def distinct_identifiers(self) -> list[str]:
        """Identifiers in only one of the two texts: they distinguish texts made from one template."""
        return sorted(set(_CODE.findall(self.older.full_text)) ^ set(_CODE.findall(self.newer.full_text)))

    @property
    def same_numbers(self) -> bool:
        return _NUMBERS.findall(self.older.full_text) == _NUMBERS.findall(self.newer.full_text)


def memory_pair_proposals(memory_ids: Sequence[int], model_id: int, kinds: Collection[Kind]) -> Iterator[Proposal]:
    """Duplicates and superseded memories among these memories and their nearest neighbours."""
    near = _near_pairs(memory_ids, model_id)
    texts = _read({pk for pair in near for pk in pair})
    pairs = []
    for (one, other), similarity in sorted(near.items()):
        if one in texts and other in texts and texts[one].project_id == texts[other].project_id:
            older, newer = sorted((texts[one], texts[other]), key=lambda text: (text.created_at, text.id))
            pairs.append(_Pair(older, newer, similarity))
    duplicates = _duplicates(pairs, model_id)
    if Kind.MEMORY_DUPLICATE in kinds:
        yield from duplicates.values()
    if Kind.SUPERSEDED in kinds:
        linked = _linked_pairs(memory_ids)
        yield from linked
        stated = {(proposal.subject_id, proposal.target_id) for proposal in linked}
        for pair in pairs:
            key = (pair.older.id, pair.newer.id)
            if key not in duplicates and key not in stated and (proposal := _superseded(pair)):
                yield proposal


def _near_pairs(memory_ids: Sequence[int], model_id: int) -> dict[tuple[int, int], float]:
    vectors = dict(fetch(_VECTORS, {"ids": list(memory_ids), "model": model_id}))
    if Chunk.objects.filter(model_id=model_id)[: _COMPARED_EXACTLY + 1].count() <= _COMPARED_EXACTLY:
        rows = _nearest(_BY_ALL, vectors, model_id)
    else:
        with hnsw_scan(_EF_SEARCH):
            rows = _nearest(_BY_INDEX, vectors, model_id)
    found: dict[tuple[int, int], float] = {}
    for one, other, similarity in rows:
        if one != other and similarity >= _MIN_SIMILARITY:
            pair = (min(one, other), max(one, other))
            found[pair] = max(min(1.0, similarity), found.get(pair, 0.0))
    return found


def _nearest(statement: str, vectors: Mapping[int, str], model_id: int) -> list[tuple[int, int, float]]:
    """Rows of a memory, the memory of a chunk near its first chunk, and their similarity."""
    return [
        (memory_id, other, similarity)
        for memory_id, vector in vectors.items()
        for other, similarity in fetch(statement, {"model": model_id, "vector": vector, "limit": _NEAREST})
    ]


def _read(ids: Collection[int]) -> dict[int, _Text]:
    rows = fetch(_TEXTS, [list(ids)])
    return {row[0]: _Text(*[*row[:9], frozenset(row[9] or ()) - STOPWORDS["english"]]) for row in rows}


def _duplicates(pairs: Sequence[_Pair], model_id: int) -> dict[tuple[int, int], Proposal]:
    """Pairs with common terms and equal numbers that are similar enough for search results to be deduplicated."""
    suspects = [pair for pair in pairs if pair.overlap >= _DUPLICATE_TERMS and pair.same_numbers]
    chunks = chunks_of({text.id for pair in suspects for text in (pair.older, pair.newer)}, model_id)
    found = {}
    for pair in suspects:
        whole = float(mean_vector(chunks[pair.older.id]) @ mean_vector(chunks[pair.newer.id]))
        if whole >= settings.SEARCH_DEDUP_SIMILARITY:
            found[pair.older.id, pair.newer.id] = _duplicate(pair, min(1.0, whole))
    return found


def _duplicate(pair: _Pair, whole: float) -> Proposal:
    same = pair.older.content_hash == pair.newer.content_hash
    retained, other = sorted((pair.older, pair.newer), key=lambda text: text.retention_key, reverse=True)
    threshold = settings.SEARCH_DEDUP_SIMILARITY
    evidence = {"similarity": round(whole, 3), "terms": pair.shared[:_NAMED_TERMS], "overlap": round(pair.overlap, 3)}
    confidence = 0.99 if same else 0.5 + 0.25 * (whole - threshold) / max(1e-6, 1 - threshold) + 0.25 * pair.overlap
    reason = (
        "Title and text are the same."
        if same
        else f"The texts have a similarity of {whole:.2f} and share {pair.overlap:.0%} of their words."
    )
    if named := pair.distinct_identifiers:
        confidence -= _DISTINCT_PENALTY
        reason += f" But only one of them mentions {', '.join(named[:2])}{' and more' if len(named) > 2 else ''}."
    return Proposal(
        kind=Kind.MEMORY_DUPLICATE,
        key=(min(retained.id, other.id), max(retained.id, other.id)),
        confidence=round(min(confidence, 0.99), 3),
        reason=reason,
        evidence=evidence,
        project_id=retained.project_id,
        subject_id=other.id,
        target_id=retained.id,
    )


def _superseded(pair: _Pair) -> Proposal | None:
    """A proposal if the newer text has a cue of replacement, or the same words with other numbers."""
    if pair.newer.created_at <= pair.older.created_at or pair.overlap < _SUBJECT_TERMS:
        return None
    evidence = {
        "similarity": round(pair.similarity, 3),
        "terms": pair.shared[:_NAMED_TERMS],
        "overlap": round(pair.overlap, 3),
    }
    closeness = (pair.similarity - _MIN_SIMILARITY) / (1 - _MIN_SIMILARITY)
    if pair.overlap >= _SAME_FRAME_TERMS and not pair.same_numbers:
        reason = f"The newer one says the same with other numbers: they share {pair.overlap:.0%} of their words."
        return _superseded_by(pair, 0.35 + 0.25 * closeness, reason, {**evidence, "numbers": True})
    cue = find_cue(pair.newer.full_text)
    if cue is None or cue == find_cue(pair.older.full_text):
        return None
    if cue.strength < _STRONG_CUE and pair.similarity < _MIN_FOR_WEAK_CUE:
        return None
    reason = (
        f"Both have the same subject (similarity {pair.similarity:.2f}), and the newer one {cue.what} something: "
        f"“{cue.word}”."
    )
    confidence = 0.2 + 0.35 * closeness + 0.2 * pair.overlap + cue.strength + 0.1 * _quotes(pair)
    return _superseded_by(pair, min(0.85, confidence), reason, {**evidence, "sentence": cue.sentence})


def _quotes(pair: _Pair) -> bool:
    """Whether the newer text quotes the title of the older text."""
    return len(pair.older.title) > 15 and pair.older.title.lower() in pair.newer.full_text.lower()


def _superseded_by(pair: _Pair, confidence: float, reason: str, evidence: dict[str, Any]) -> Proposal:
    return Proposal(
        kind=Kind.SUPERSEDED,
        key=(pair.older.id, pair.newer.id),
        confidence=round(confidence, 3),
        reason=reason,
        evidence=evidence,
        project_id=pair.older.project_id,
        subject_id=pair.older.id,
        target_id=pair.newer.id,
    )


def _linked_pairs(memory_ids: Collection[int]) -> list[Proposal]:
    """Proposals from links that state a replacement, for memories that are not marked as superseded."""
    links = MemoryLink.objects.filter(
        memory_id__in=memory_ids, target_memory__isnull=False, rel__in=REPLACING_RELS | REPLACED_RELS
    )
    rows = [
        (memory_id, target_id, rel) if rel in REPLACED_RELS else (target_id, memory_id, rel)
        for memory_id, target_id, rel in links.values_list("memory_id", "target_memory_id", "rel")
    ]
    texts = _read({pk for older, newer, _ in rows for pk in (older, newer)})
    return [
        Proposal(
            kind=Kind.SUPERSEDED,
            key=(older, newer),
            confidence=0.9,
            reason=f"A link of one of them states it: “{rel}”.",
            evidence={"link": rel},
            project_id=texts[older].project_id,
            subject_id=older,
            target_id=newer,
        )
        for older, newer, rel in sorted(set(rows))
        if older in texts and newer in texts and texts[older].project_id == texts[newer].project_id and older != newer
    ]


_SENTENCE = re.compile(r"[^\n]+?(?:[.!?](?=\s)|$)", re.MULTILINE)
_CUES = tuple(
    (what, re.compile(rf"\b(?:{words})\b", re.IGNORECASE))
    for what, words in (
        ("reverts", r"revert(?:s|ed|ing)?|roll(?:s|ed|ing)? back|back(?:s|ed)? out|undo(?:es|ne)?"),
        ("replaces", r"supersed(?:e|es|ed|ing)|replac(?:e|es|ed|ing)|obsoletes?|in favou?r of"),
        ("ends", r"no longer|not any ?more|any longer|used to be|until now"),
        (
            "changes",
            r"instead of|rather than|now uses?|switch(?:ed|es)? (?:from|back|to)|moved? (?:from|away)",
        ),
        ("drops", r"deprecat(?:e|es|ed)|remov(?:e|es|ed)|drop(?:s|ped)?|abandon(?:s|ed)?"),
    )
)
# Types of links that state a replacement.
REPLACING_RELS = frozenset({"supersedes", "replaces", "obsoletes", "reverts"})
REPLACED_RELS = frozenset({"superseded-by", "superseded_by", "replaced-by", "replaced_by", "obsoleted-by"})
# The share of a cue in the confidence.
_STRENGTHS = {"reverts": 0.25, "replaces": 0.25, "ends": 0.2, "changes": 0.15, "drops": 0.1}


@dataclass(frozen=True, slots=True)
class Cue:
    """A word for replacing, with its sentence."""

    what: str
    word: str
    sentence: str
    strength: float


def find_cue(text: str) -> Cue | None:
    """The strongest cue of a text; the first of equally strong cues."""
    for what, pattern in _CUES:
        if match := pattern.search(text):
            sentences = _SENTENCE.finditer(text)
            sentence = next((one.group() for one in sentences if one.start() <= match.start() < one.end()), "")
            return Cue(what, match.group(), " ".join(sentence.split())[:300], _STRENGTHS[what])
    return None
