"""Pages of hits by relevance: reads candidates by keywords and by vectors from the engine, and ranks them.

Matches beyond the candidates follow in keyword order, so that every memory of the match set has one rank.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection

from memories.embedding.chunking import embedded_text
from memories.models import Memory
from search.cross_encoder import RerankUnavailableError, cross_encode
from search.engines.base import Engine, EngineQuery, VectorQuery
from search.engines.vectors.pgvector import vector_text
from search.query import Sort
from search.ranking import (
    WINDOW,
    WORD_CANDIDATES,
    Boosts,
    Fused,
    Ranked,
    RankWeights,
    demote,
    fold,
    fuse,
    reorder,
    rerank,
)

Vector = npt.NDArray[np.float32]

# Days after which recency is halved.
_HALF_LIFE = 180.0
_PROPOSED = 0.8

# Uses the primary key. The binary format of halfvec is a header of four bytes, then half floats.
_CHUNKS = """
SELECT memory_id, halfvec_send(embedding) FROM memories_chunk
WHERE memory_id = ANY(%s) AND model_id = %s{which} ORDER BY memory_id, ordinal"""
_VECTOR_HEAD = 4
# Uses the primary key.
_SUCCESSORS = """
SELECT id, superseded_by_id FROM memories_memory
WHERE id = ANY(%s) AND state = 'superseded' AND superseded_by_id IS NOT NULL"""
# Uses the primary key of chunks. Memories without chunks give the beginning of their text.
_PASSAGES = """
SELECT m.id, m.title, coalesce(near.passage, left(m.content, 2000)) FROM memories_memory m LEFT JOIN LATERAL (
    SELECT substr(m.content, c.start + 1, c."end" - c.start) AS passage FROM memories_chunk c
    WHERE c.memory_id = m.id AND c.model_id = %s ORDER BY c.embedding <=> %s::halfvec, c.ordinal LIMIT 1
) near ON true WHERE m.id = ANY(%s)"""


@dataclass(frozen=True, slots=True)
class RankedPage:
    """A page of hits. `rerank_failure` is the reason if the configured cross-encoder did not rerank them."""

    hits: list[Ranked]
    rerank_failure: str = ""


def ranked_page(engine: Engine, plan: EngineQuery, text: str, *, limit: int, offset: int, now: datetime) -> RankedPage:
    """A page of the match set by relevance. `text` is the plain text of the query."""
    if plan.meaning is None:
        return RankedPage(_without_false_ranks(engine, plan, _by_words(engine, plan, limit=limit, offset=offset)))
    candidates, vectors = _fused(engine, plan, plan.meaning)
    fused, rerank_failure = _cross_encoded(candidates, plan.meaning, text)
    successors = successors_of(plan, candidates.ids)
    fused = demote(fused, successors)
    page: list[Ranked] = []
    if offset < WINDOW:
        page = _reranked(fused[:WINDOW], vectors, now, successors)[offset : offset + limit]
    page += fused[max(WINDOW, offset) : offset + limit]
    if len(page) < limit and not plan.meaning.semantic_only:
        page += _by_words_alone(engine, plan, set(candidates.ids), limit=limit - len(page), offset=offset)
    return RankedPage(page, rerank_failure)


def _by_words(engine: Engine, plan: EngineQuery, *, limit: int, offset: int) -> list[Ranked]:
    """A page in keyword order, the first WORD_CANDIDATES with superseded memories below their successors."""
    if offset >= WORD_CANDIDATES or not _may_match_superseded(plan):
        found = engine.hits(plan, Sort.RELEVANCE, limit=limit, offset=offset)
        return [Ranked(pk, score, offset + n, score) for n, (pk, score) in enumerate(found, 1)]
    found = engine.hits(plan, Sort.RELEVANCE, limit=max(WORD_CANDIDATES, offset + limit), offset=0)
    ranked = [Ranked(pk, score, n, score) for n, (pk, score) in enumerate(found, 1)]
    first = ranked[:WORD_CANDIDATES]
    first = list(demote(first, successors_of(plan, [one.id for one in first])))
    return [*first, *ranked[WORD_CANDIDATES:]][offset : offset + limit]


def _by_words_alone(
    engine: Engine, plan: EngineQuery, candidate_ids: Set[int], *, limit: int, offset: int
) -> list[Ranked]:
    """Matches after the candidates, in keyword order; those by name alone are the last."""
    by_words = replace(plan, meaning=None)
    begin = max(0, offset - len(candidate_ids))
    # All candidates may be among the best keyword matches, so read that many more.
    found = engine.hits(by_words, Sort.RELEVANCE, limit=len(candidate_ids) + begin + limit, offset=0)
    rest = [(n, pk, score) for n, (pk, score) in enumerate(found, 1) if pk not in candidate_ids]
    ranked = [Ranked(pk, 0.0, n, score) for n, pk, score in rest[begin : begin + limit]]
    return _without_false_ranks(engine, plan, ranked)


def _without_false_ranks(engine: Engine, plan: EngineQuery, ranked: list[Ranked]) -> list[Ranked]:
    """The same memories, without a rank by words for those that match by name alone."""
    if not plan.named or not ranked:
        return ranked
    having = engine.filter_ids(plan.by_words, [one.id for one in ranked])
    return [one if one.id in having else replace(one, keyword_rank=None, word_score=None) for one in ranked]


def _fused(engine: Engine, plan: EngineQuery, meaning: VectorQuery) -> tuple[Fused, dict[int, Vector]]:
    """Semantic matches, the best keyword matches and the newest matches by name, with both scores, and the vectors of
    the first WINDOW. A search by meaning alone has the order of similarity, and no other.
    """
    near = engine.knn(plan)
    similarities = dict(zip(near.ids.tolist(), near.similarities.tolist(), strict=True))
    words: dict[int, float] = {}
    named: set[int] = set()
    if not meaning.semantic_only:
        best = engine.hits(plan.by_words, Sort.RELEVANCE, limit=WORD_CANDIDATES, offset=0)
        newest = engine.hits(plan.by_name, Sort.NEWEST, limit=WORD_CANDIDATES, offset=0) if plan.named else []
        words = dict.fromkeys([*(pk for pk, _ in (*best, *newest)), *similarities], 0.0)
        if plan.named:
            named = engine.filter_ids(plan.by_name, list(words))
        similarities |= engine.similarities(meaning, [pk for pk in words if pk not in similarities])
        words |= engine.word_scores(plan, list(words))
    fused = fuse(words, similarities, settings.SEARCH_SEMANTIC_WEIGHT, named)
    vectors = vectors_of(fused.ids[:WINDOW], meaning.model_id)
    if not meaning.semantic_only:
        fused = fused.with_neighbours(vectors, settings.SEARCH_NEIGHBOUR_WEIGHT, named)
    return fused, vectors


def _reranked(
    window: Sequence[Ranked], vectors: Mapping[int, Vector], now: datetime, successors: Mapping[int, int]
) -> list[Ranked]:
    """The first candidates by weighted score, with near-duplicates grouped."""
    ids = [one.id for one in window]
    window = demote(rerank(window, boosts_of(ids, now), RankWeights(**settings.SEARCH_WEIGHTS)), successors)
    # A superseded memory has its place below its successor; grouping it under another memory could move it above.
    foldable = {pk: vector for pk, vector in vectors.items() if pk not in successors}
    return fold(window, foldable, settings.SEARCH_DEDUP_SIMILARITY)


def successors_of(plan: EngineQuery, ids: Sequence[int]) -> dict[int, int]:
    """The memories among `ids` that superseded others among them, by the id of the superseded one."""
    if not ids or not _may_match_superseded(plan):
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_SUCCESSORS, [list(ids)])
        rows = cursor.fetchall()
    present = set(ids)
    return {pk: after for pk, after in rows if after in present}


def _may_match_superseded(plan: EngineQuery) -> bool:
    states = plan.filter("state")
    if states is None:
        return True
    state = Memory.State.SUPERSEDED
    included = not states.include or any(state in group for group in states.include)
    return included and not any(state in group for group in states.exclude)


def _cross_encoded(fused: Fused, meaning: VectorQuery, text: str) -> tuple[Sequence[Ranked], str]:
    """The candidates reranked by the configured cross-encoder, and the reason if it failed."""
    if not (settings.RERANK_MODEL and text and fused):
        return fused, ""
    try:
        scores = cross_encode(text, passages_of([one.id for one in fused[: settings.RERANK_CANDIDATES]], meaning))
    except RerankUnavailableError as error:
        return fused, error.reason
    return reorder(fused, scores), ""


def passages_of(ids: Sequence[int], meaning: VectorQuery) -> dict[int, str]:
    """The title and the chunk nearest to the query vector of each memory; without vectors, its beginning."""
    with connection.cursor() as cursor:
        cursor.execute(_PASSAGES, [meaning.model_id, vector_text(meaning), list(ids)])
        rows = cursor.fetchall()
    return {
        memory_id: embedded_text(title, passage, 0, len(passage)) if title else passage
        for memory_id, title, passage in rows
    }


def boosts_of(ids: Sequence[int], now: datetime) -> dict[int, Boosts]:
    """Quality, recency and source weight of memories."""
    # From the end of the day: an answer is the same all day, and the memories of a day still differ.
    until = datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)
    rows = Memory.objects.filter(pk__in=ids).values_list(
        "pk", "importance", "confidence", "pinned", "state", "source", "created_at"
    )
    sources: dict[str, float] = settings.SEARCH_SOURCE_WEIGHTS
    found = {}
    for pk, importance, confidence, pinned, state, source, created_at in rows:
        # Without a rating: neutral.
        ratings = [0.5 if rating is None else float(rating) for rating in (importance, confidence)]
        quality = 1.0 if pinned else sum(ratings) / len(ratings)
        if state == Memory.State.PROPOSED:
            quality *= _PROPOSED
        age = max(0.0, (until - created_at).total_seconds() / 86_400)
        found[pk] = Boosts(quality, 0.5 ** (age / _HALF_LIFE), sources.get(source, 1.0))
    return found


def vectors_of(ids: Iterable[int], model_id: int) -> dict[int, Vector]:
    """Unit vectors of the first chunk of each memory."""
    return dict(_vectors(_CHUNKS.format(which=" AND ordinal = 0"), ids, model_id))


def chunks_of(ids: Iterable[int], model_id: int) -> dict[int, list[Vector]]:
    """Unit vectors of all chunks of each memory, in order. Memories without chunks are missing."""
    found: dict[int, list[Vector]] = {}
    for memory_id, vector in _vectors(_CHUNKS.format(which=""), ids, model_id):
        found.setdefault(memory_id, []).append(vector)
    return found


def mean_vector(chunks: Sequence[Vector]) -> Vector:
    """The mean of the vectors of a memory's chunks, of unit length."""
    total = np.sum(chunks, axis=0)
    mean: Vector = total / max(float(np.linalg.norm(total)), 1e-6)
    return mean


def _vectors(statement: str, ids: Iterable[int], model_id: int) -> Iterator[tuple[int, Vector]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, [list(ids), model_id])
        rows = cursor.fetchall()
    for memory_id, sent in rows:
        vector = np.frombuffer(bytes(sent), ">f2", offset=_VECTOR_HEAD).astype(np.float32)
        yield memory_id, vector / max(float(np.linalg.norm(vector)), 1e-6)
