"""Ranking by relevance: fuses keyword and semantic scores, reranks the first candidates, groups near-duplicates, and
places superseded memories below those that superseded them.

Pure: no engine and no database. Every order is total and computed over the same candidates for all pages.
"""

import itertools
import math
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, overload

import numkong
import numpy as np
import numpy.typing as npt

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
