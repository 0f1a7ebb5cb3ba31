"""Ranking by relevance: reads candidates by keywords and by vectors from the engine, fuses their scores, reranks the
first, groups near-duplicates, and places superseded memories below those that superseded them.

Every order is total and computed over the same candidates for all pages. Matches beyond the candidates follow in
keyword order, so that every memory of the match set has one rank.
"""

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import cached_property
from typing import TypeVar, overload

import numkong
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

K = TypeVar("K", bound=Hashable)
Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

# The number of best keyword matches that are fused with all semantic matches.
WORD_CANDIDATES = 1_000
# The least relevance of a memory that carries a term which the text names: halfway between the worst candidate and the
# best, so after those that the text fits by its words and above those that are only similar.
NAMED_RELEVANCE = 0.5
# The number of best candidates that are compared with each other, of the most similar ones that count for each, and of
# vectors without which none are compared: of a few, each would have the mean of all others.
COMPARED = 30
NEIGHBOURS = 12
_LEAST_COMPARED = 2 * NEIGHBOURS
# The number of best candidates that are reranked and deduplicated.
WINDOW = 200


@dataclass(frozen=True, slots=True)
class RankWeights:
    """The weights of the signals in a score."""

    relevance: float = 1.0
    quality: float = 0.05
    recency: float = 0.05
    source: float = 0.05

    def score_parts(self, relevance: float, boosts: "Boosts") -> "tuple[float, ScoreParts]":
        """The score, the weighted mean of all signals, and its parts."""
        total = self.relevance + self.quality + self.recency + self.source
        parts = ScoreParts(
            weighted := self.relevance * relevance / total,
            quality=self.quality * boosts.quality / total,
            recency=self.recency * boosts.recency / total,
            source=self.source * boosts.source / total,
        )
        return weighted + parts.quality + parts.recency + parts.source, parts


@dataclass(frozen=True, slots=True)
class Boosts:
    """Signals of a memory that do not depend on the query, each from 0 to 1."""

    quality: float = 0.5
    recency: float = 0.0
    source: float = 1.0


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """The summands of a score. `relevance` is None for viewers who may not see the score."""

    relevance: float | None
    quality: float
    recency: float
    source: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A ranked memory with its signals. Ranks start at 1; None if the leg did not find it."""

    id: int
    score: float | None = None
    keyword_rank: int | None = None
    word_score: float | None = None
    semantic_rank: int | None = None
    similarity: float | None = None
    relevance: float | None = None
    fused_rank: int | None = None
    """The rank by words and meaning, of those that were compared with their neighbours."""
    neighbour_rank: int | None = None
    """The rank after that."""
    boosts: Boosts | None = None
    score_parts: ScoreParts | None = None
    cross_encoder_rank: int | None = None
    cross_encoder_score: float | None = None
    similar_to: int | None = None
    """The higher-ranked near-duplicate that leads its group."""
    moved_below: int | None = None
    """The memory that superseded it, if it was moved down behind this one."""

    def without_scores(self) -> "Ranked":
        """A copy for viewers of some projects: scores reveal how rare a word is among all memories."""
        score_parts = replace(self.score_parts, relevance=None) if self.score_parts else None
        return replace(self, score=None, word_score=None, relevance=None, score_parts=score_parts)


class Fused(Sequence[Ranked]):
    """Candidates in order. `Ranked` objects are created on access."""

    def __init__(
        self, ids: Ids, sums: Scores, words: Scores, similarities: Scores, fused_ranks: Ids | None = None
    ) -> None:
        """Parallel arrays; NaN for a missing score. `fused_ranks` are those of the candidates that were compared."""
        self.ids: list[int] = ids.tolist()
        self._id_column = ids
        self._sums = sums
        self._words = words
        self._similarities = similarities
        self._fused_ranks: list[int] = [] if fused_ranks is None else fused_ranks.tolist()

    # On demand: those of candidates that are put in another order are not needed.
    @cached_property
    def _word_ranks(self) -> Ids:
        return _ranks(self._id_column, self._words, self._words > 0)

    @cached_property
    def _meaning_ranks(self) -> Ids:
        return _ranks(self._id_column, self._similarities, ~np.isnan(self._similarities))

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> Ranked: ...
    @overload
    def __getitem__(self, at: slice) -> list[Ranked]: ...
    def __getitem__(self, at: int | slice) -> Ranked | list[Ranked]:
        if isinstance(at, slice):
            return [self._ranked(n) for n in range(*at.indices(len(self)))]
        return self._ranked(range(len(self))[at])

    def with_neighbours(
        self, vectors: Mapping[int, npt.NDArray[np.float32]], weight: float, named: Set[int] = frozenset()
    ) -> "Fused":
        """The same candidates, the first COMPARED of them ordered also by the relevance of those that each resembles.

        A candidate gets the mean of its own relevance and, with this weight, that of its NEIGHBOURS nearest ones among
        the others, by the cosine of their `vectors`, which are of unit length. One without a vector keeps its own. The
        results are scaled to the range that they had before, so that no other candidate comes first. Those in `named`
        still have at least NAMED_RELEVANCE.
        """
        count = min(COMPARED, len(self))
        known = [n for n in range(count) if self.ids[n] in vectors]
        if not weight or len(known) < _LEAST_COMPARED:
            return self
        own = self._sums[:count]
        relevances = own.copy()
        relevances[known] += weight * (_of_neighbours([vectors[self.ids[n]] for n in known], own[known]) - own[known])
        relevances = own.min() + (own.max() - own.min()) * _shares(relevances)
        if named:
            floor = np.array([NAMED_RELEVANCE if pk in named else 0.0 for pk in self.ids[:count]])
            relevances = np.maximum(relevances, floor)
        order = np.lexsort((-self._id_column[:count], -np.nan_to_num(self._similarities[:count]), -relevances))
        columns = [self._id_column, self._sums, self._words, self._similarities]
        first = [self._id_column[:count], relevances, self._words[:count], self._similarities[:count]]
        ids, sums, words, similarities = (
            np.concatenate([some[order], column[count:]]) for some, column in zip(first, columns, strict=True)
        )
        return Fused(ids, sums, words, similarities, order + 1)

    def _ranked(self, n: int) -> Ranked:
        score, words, similarity = self._sums.item(n), self._words.item(n), self._similarities.item(n)
        return Ranked(
            id=self.ids[n],
            score=score,
            keyword_rank=self._word_ranks.item(n) or None,
            word_score=None if math.isnan(words) else words,
            semantic_rank=self._meaning_ranks.item(n) or None,
            similarity=None if math.isnan(similarity) else similarity,
            relevance=score,
            fused_rank=self._fused_ranks[n] if n < len(self._fused_ranks) else None,
            neighbour_rank=n + 1 if n < len(self._fused_ranks) else None,
        )


def _of_neighbours(vectors: Sequence[npt.NDArray[np.float32]], relevances: Scores) -> Scores:
    """For each candidate the mean relevance of those that it resembles most, weighted by their similarity."""
    matrix = np.stack(vectors)
    alike = np.maximum(np.asarray(numkong.cdist(matrix, matrix, "dot"), np.float64), 0.0)
    np.fill_diagonal(alike, 0.0)
    least = np.partition(alike, -NEIGHBOURS, axis=1)[:, -NEIGHBOURS, np.newaxis]
    alike[alike < least] = 0.0
    totals = alike.sum(axis=1)
    means: Scores = np.where(totals > 0, alike @ relevances / np.maximum(totals, 1e-9), relevances)
    return means


def fuse(
    words: Mapping[int, float], similarities: Mapping[int, float], weight: float, named: Set[int] = frozenset()
) -> Fused:
    """Rank candidates by a convex combination of both scores, each normalized to 0…1 by its minimum and maximum.

    Pass both scores of every candidate, whichever leg matched it. A candidate without a similarity has no vector; its
    keyword score stands in, or a partly embedded corpus would only show embedded memories. A candidate without any of
    the words has a keyword score of 0 and no keyword rank. Those in `named` have at least NAMED_RELEVANCE.

    Ties are broken by similarity, then by descending id.
    """
    candidates = [*words, *(pk for pk in similarities if pk not in words)]
    ids = np.array(candidates, np.int64)
    by_words = np.full(len(candidates), math.nan)
    by_words[: len(words)] = list(words.values())
    by_meaning = np.array(list(map(similarities.get, candidates, itertools.repeat(math.nan))), np.float64)
    word_shares = _shares(by_words)
    sums = np.where(np.isnan(by_meaning), word_shares, weight * _shares(by_meaning) + (1 - weight) * word_shares)
    if named:
        sums = np.where([pk in named for pk in candidates], np.maximum(sums, NAMED_RELEVANCE), sums)
    order = np.lexsort((-ids, -np.nan_to_num(by_meaning), -sums))
    return Fused(ids[order], sums[order], by_words[order], by_meaning[order])


def reorder(candidates: Sequence[Ranked], scores: Mapping[int, float]) -> list[Ranked]:
    """Reorder candidates by scores of any scale; those without a score keep their order after the others.

    The scores are mapped to the range between the highest relevance of the scored candidates and that of the others.
    """
    read = [one for one in candidates if one.id in scores]
    others = [one for one in candidates if one.id not in scores]
    ids, given = np.array(list(scores), np.int64), np.array(list(scores.values()), np.float64)
    ranks = dict(zip(scores, _ranks(ids, given, np.ones(len(ids), np.bool_)).tolist(), strict=True))
    shares = dict(zip(scores, _shares(given).tolist(), strict=True))
    highest = max((one.relevance or 0.0 for one in read), default=0.0)
    lowest = max((one.relevance or 0.0 for one in others), default=0.0)
    found = []
    for one in sorted(read, key=lambda one: ranks[one.id]):
        relevance = lowest + (highest - lowest) * shares[one.id]
        found.append(
            replace(
                one,
                score=relevance,
                relevance=relevance,
                cross_encoder_rank=ranks[one.id],
                cross_encoder_score=scores[one.id],
            )
        )
    return [*found, *others]


def rerank(candidates: Sequence[Ranked], boosts: Mapping[int, Boosts], weights: RankWeights) -> list[Ranked]:
    """Sort candidates by their weighted score; missing boosts have default values."""
    scored = []
    for one in candidates:
        own = boosts.get(one.id, Boosts())
        score, score_parts = weights.score_parts(one.relevance or 0.0, own)
        scored.append(replace(one, score=score, boosts=own, score_parts=score_parts))
    return sorted(scored, key=lambda one: (-(one.score or 0.0), -(one.relevance or 0.0), -one.id))


def below_successors(keys: Sequence[K], successors: Mapping[K, K]) -> list[K]:
    """An order in which whatever comes before its successor follows it instead."""
    if not successors:
        return list(keys)
    found: list[K] = []
    placed: set[K] = set()
    waiting: dict[K, list[K]] = {}
    present = set(keys)
    for key in keys:
        after = successors.get(key)
        if after in present and after not in placed:
            waiting.setdefault(after, []).append(key)
            continue
        ready = [key]
        while ready:
            found.append(one := ready.pop(0))
            placed.add(one)
            ready = [*waiting.pop(one, ()), *ready]
    # Memories that supersede each other in a circle would wait for ever.
    return [*found, *(key for key in keys if key not in placed)]


def demote(candidates: Sequence[Ranked], successors: Mapping[int, int]) -> Sequence[Ranked]:
    """Move superseded candidates behind the candidates that superseded them, and no others."""
    if not successors:
        return candidates
    by_id = {one.id: one for one in candidates}
    place = {pk: n for n, pk in enumerate(by_id)}
    return [
        replace(by_id[pk], moved_below=after)
        if (after := successors.get(pk)) in place and place[pk] < place[after]
        else by_id[pk]
        for pk in below_successors(list(by_id), successors)
    ]


def fold(
    candidates: Sequence[Ranked], vectors: Mapping[int, npt.NDArray[np.float32]], min_similarity: float
) -> list[Ranked]:
    """Move near-duplicates behind the first of them.

    `vectors` are of unit length; a memory without one has no duplicates.
    """
    known = [one.id for one in candidates if one.id in vectors]
    if not known:
        return list(candidates)
    matrix = np.stack([vectors[pk] for pk in known])
    # Single-threaded: synchronizing BLAS threads on a busy machine takes longer than this product.
    alike = np.asarray(numkong.cdist(matrix, matrix, "dot")) >= min_similarity
    # Most memories have no duplicate.
    unique = np.count_nonzero(alike, axis=1) <= 1
    row = {pk: n for n, pk in enumerate(known) if not unique[n]}
    leads = np.zeros(len(known), np.bool_)
    leaders: list[Ranked] = []
    followers: dict[int, list[Ranked]] = {}
    for one in candidates:
        if (at := row.get(one.id)) is None:
            leaders.append(one)
            continue
        like = np.flatnonzero(alike[at] & leads)
        if len(like):
            # Rows are in rank order, so the first leader is the best.
            leader = known[like[0]]
            followers.setdefault(leader, []).append(replace(one, similar_to=leader))
        else:
            leaders.append(one)
            leads[at] = True
    return [one for leader in leaders for one in (leader, *followers.get(leader.id, ()))]


def _ranks(ids: Ids, scores: Scores, which: npt.NDArray[np.bool_]) -> Ids:
    """Ranks from 1 of the elements selected by `which`; 0 for the others."""
    ranks = np.zeros(len(ids), np.int64)
    places = np.flatnonzero(which)
    ranks[places[np.lexsort((-ids[places], -scores[places]))]] = np.arange(1, len(places) + 1)
    return ranks


def _shares(scores: Scores) -> Scores:
    """Normalize scores to 0…1; missing scores count as the minimum."""
    there = scores[~np.isnan(scores)]
    if not len(there):
        return np.zeros(len(scores))
    least, most = there.min(), there.max()
    if most <= least:
        return np.where(np.isnan(scores), 0.0, 1.0)
    shares: Scores = np.nan_to_num((scores - least) / (most - least))
    return shares


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
