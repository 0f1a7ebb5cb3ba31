"""The order by relevance: words and meaning fused, the first candidates reranked, near-duplicates drawn together.

Pure: knows nothing of engines and the database. Every order is total and is worked out over the same candidates
whatever page is asked for.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

import numkong
import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

# So many of the best by words are fused with all that match by meaning.
WORD_CANDIDATES = 1_000
# So many of the best are reranked, and looked through for near-duplicates.
WINDOW = 200


@dataclass(frozen=True, slots=True)
class RankWeights:
    """What the rerank adds up, each a share from 0 to 1 of what is best."""

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
    """What of a memory itself speaks for it, each from 0 to 1."""

    quality: float = 0.5
    recency: float = 0.0
    source: float = 1.0


@dataclass(frozen=True, slots=True)
class ScoreParts:
    """What a score is the sum of. `relevance` is None for who may not know the score."""

    relevance: float | None
    quality: float
    recency: float
    source: float


@dataclass(frozen=True, slots=True)
class Ranked:
    """A memory in its place, and why it stands there. Ranks begin with 1; None where a leg did not find it."""

    id: int
    score: float | None = None
    keyword_rank: int | None = None
    word_score: float | None = None
    semantic_rank: int | None = None
    similarity: float | None = None
    relevance: float | None = None
    boosts: Boosts | None = None
    score_parts: ScoreParts | None = None
    # What the cross-encoder said of it, where one read it.
    cross_encoder_rank: int | None = None
    cross_encoder_score: float | None = None
    # The memory before it that says nearly the same.
    similar_to: int | None = None

    def without_scores(self) -> "Ranked":
        """For who may not know how rare a word is among all memories."""
        score_parts = replace(self.score_parts, relevance=None) if self.score_parts else None
        return replace(self, score=None, word_score=None, relevance=None, score_parts=score_parts)


class Fused(Sequence[Ranked]):
    """Candidates in their order. What is told of each is put together for those that are looked at."""

    def __init__(self, ids: Ids, sums: Scores, words: Scores, similarities: Scores) -> None:
        """By candidate in their order; NaN where a leg has no score of one."""
        self.ids: list[int] = ids.tolist()
        self._sums = sums
        self._words = words
        self._similarities = similarities
        self._word_ranks = _ranks(ids, words, words > 0)
        self._meaning_ranks = _ranks(ids, similarities, ~np.isnan(similarities))

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def without_vector(self) -> int:
        """How many have none: most of them have yet to be embedded."""
        return int(np.count_nonzero(np.isnan(self._similarities)))

    @overload
    def __getitem__(self, at: int) -> Ranked: ...
    @overload
    def __getitem__(self, at: slice) -> list[Ranked]: ...
    def __getitem__(self, at: int | slice) -> Ranked | list[Ranked]:
        if isinstance(at, slice):
            return [self._ranked(n) for n in range(*at.indices(len(self)))]
        return self._ranked(range(len(self))[at])

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
        )


def fuse(words: Mapping[int, float], similarities: Mapping[int, float], weight: float) -> Fused:
    """All candidates by a convex sum of their scores, each leg brought to 0…1 between its least and its best.

    A candidate should have a score in both, where it has one at all: to have matched by one leg only says little of
    the other. One without a similarity has no vector: it is taken to be as near as its words are good, or a corpus
    of which a part is embedded would show nothing but that. Who has none of the words has a score of 0, and no rank by
    them.

    Of equal sums the nearer in meaning is first, then the one with the higher id.
    """
    candidates = [*words, *(pk for pk in similarities if pk not in words)]
    ids = np.array(candidates, np.int64)
    by_words = np.array([words.get(pk, math.nan) for pk in candidates], np.float64)
    by_meaning = np.array([similarities.get(pk, math.nan) for pk in candidates], np.float64)
    word_shares = _shares(by_words)
    sums = np.where(np.isnan(by_meaning), word_shares, weight * _shares(by_meaning) + (1 - weight) * word_shares)
    order = np.lexsort((-ids, -np.nan_to_num(by_meaning), -sums))
    return Fused(ids[order], sums[order], by_words[order], by_meaning[order])


def reorder(candidates: Sequence[Ranked], scores: Mapping[int, float]) -> list[Ranked]:
    """The same candidates, their first ones in the order of other scores, which may be of any size.

    Those that have one come first, and no candidate without one passes them: their shares are laid over the span of
    relevance from the best down to the best of the others.
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
    """The same candidates by what all weights come to; those whose boosts are not known keep their relevance alone."""
    scored = []
    for one in candidates:
        own = boosts.get(one.id, Boosts())
        score, score_parts = weights.score_parts(one.relevance or 0.0, own)
        scored.append(replace(one, score=score, boosts=own, score_parts=score_parts))
    return sorted(scored, key=lambda one: (-(one.score or 0.0), -(one.relevance or 0.0), -one.id))


def fold(
    candidates: Sequence[Ranked], vectors: Mapping[int, npt.NDArray[np.float32]], min_similarity: float
) -> list[Ranked]:
    """The same candidates, those that say nearly the same moved up behind the first of them.

    `vectors` are of unit length; a memory without one is like no other.
    """
    known = [one.id for one in candidates if one.id in vectors]
    if not known:
        return list(candidates)
    matrix = np.stack([vectors[pk] for pk in known])
    # One thread of its own work: those of a BLAS wait for each other, on a busy machine for longer than this takes.
    alike = np.asarray(numkong.cdist(matrix, matrix, "dot")) >= min_similarity
    # Most are like no other.
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
            # Rows are in the order of the candidates: the first that leads is the best.
            leader = known[like[0]]
            followers.setdefault(leader, []).append(replace(one, similar_to=leader))
        else:
            leaders.append(one)
            leads[at] = True
    return [one for leader in leaders for one in (leader, *followers.get(leader.id, ()))]


def _ranks(ids: Ids, scores: Scores, which: npt.NDArray[np.bool_]) -> Ids:
    """The places, from 1 on, of those that have one; 0 for the others."""
    ranks = np.zeros(len(ids), np.int64)
    places = np.flatnonzero(which)
    ranks[places[np.lexsort((-ids[places], -scores[places]))]] = np.arange(1, len(places) + 1)
    return ranks


def _shares(scores: Scores) -> Scores:
    """From 0 to 1 between the least and the best; what has no score counts as the least."""
    there = scores[~np.isnan(scores)]
    if not len(there):
        return np.zeros(len(scores))
    least, most = there.min(), there.max()
    if most <= least:
        return np.where(np.isnan(scores), 0.0, 1.0)
    shares: Scores = np.nan_to_num((scores - least) / (most - least))
    return shares
