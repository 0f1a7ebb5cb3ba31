"""The order by relevance: words and meaning fused, the first candidates reranked, near-duplicates drawn together.

Pure: knows nothing of engines and the database. Every order is total and is worked out over the same candidates
whatever page is asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

# So many of the best by words are fused with all that match by meaning.
WORD_CANDIDATES = 1_000
# So many of the best are reranked, and looked through for near-duplicates.
WINDOW = 200


@dataclass(frozen=True, slots=True)
class Weights:
    """What the rerank adds up, each a share from 0 to 1 of what is best."""

    relevance: float = 1.0
    quality: float = 0.05
    recency: float = 0.05
    source: float = 0.05


@dataclass(frozen=True, slots=True)
class Traits:
    """What of a memory itself speaks for it, each from 0 to 1."""

    quality: float = 0.5
    recency: float = 0.0
    source: float = 1.0


@dataclass(frozen=True, slots=True)
class Parts:
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
    word_rank: int | None = None
    word_score: float | None = None
    meaning_rank: int | None = None
    similarity: float | None = None
    relevance: float | None = None
    traits: Traits | None = None
    parts: Parts | None = None
    # What the cross-encoder said of it, where one read it.
    reread_rank: int | None = None
    reread_score: float | None = None
    # The memory before it that says nearly the same.
    similar_to: int | None = None

    def without_scores(self) -> "Ranked":
        """For who may not know how rare a word is among all memories."""
        parts = replace(self.parts, relevance=None) if self.parts else None
        return replace(self, score=None, word_score=None, relevance=None, parts=parts)


def fuse(words: Mapping[int, float], similarities: Mapping[int, float], weight: float) -> list[Ranked]:
    """All candidates by a convex sum of their scores, each leg brought to 0…1 between its least and its best.

    A candidate should have a score in both, where it has one at all: to have matched by one leg only says little of
    the other. What is missing counts as the least, and who has none of the words, a score of 0, has no rank by them.

    Of equal sums the nearer in meaning is first, then the one with the higher id.
    """
    word_ranks = _ranks({pk: score for pk, score in words.items() if score > 0})
    meaning_ranks = _ranks(similarities)
    word_shares, meaning_shares = _shares(words), _shares(similarities)
    sums = {
        pk: weight * meaning_shares.get(pk, 0.0) + (1 - weight) * word_shares.get(pk, 0.0)
        for pk in {*words, *similarities}
    }
    return [
        Ranked(
            id=pk,
            score=sums[pk],
            word_rank=word_ranks.get(pk),
            word_score=words.get(pk),
            meaning_rank=meaning_ranks.get(pk),
            similarity=similarities.get(pk),
            relevance=sums[pk],
        )
        for pk in sorted(sums, key=lambda pk: (-sums[pk], -similarities.get(pk, 0.0), -pk))
    ]


def reorder(candidates: Sequence[Ranked], scores: Mapping[int, float]) -> list[Ranked]:
    """The same candidates, their first ones in the order of other scores, which may be of any size.

    Those that have one come first, and no candidate without one passes them: their shares are laid over the span of
    relevance from the best down to the best of the others.
    """
    read = [one for one in candidates if one.id in scores]
    others = [one for one in candidates if one.id not in scores]
    ranks, shares = _ranks(scores), _shares(scores)
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
                reread_rank=ranks[one.id],
                reread_score=scores[one.id],
            )
        )
    return [*found, *others]


def rerank(candidates: Sequence[Ranked], traits: Mapping[int, Traits], weights: Weights) -> list[Ranked]:
    """The same candidates by what all weights come to; those whose traits are not known keep their relevance alone."""
    whole = weights.relevance + weights.quality + weights.recency + weights.source
    scored = []
    for one in candidates:
        own = traits.get(one.id, Traits())
        relevance = weights.relevance * (one.relevance or 0.0) / whole
        parts = Parts(
            relevance,
            quality=weights.quality * own.quality / whole,
            recency=weights.recency * own.recency / whole,
            source=weights.source * own.source / whole,
        )
        score = relevance + parts.quality + parts.recency + parts.source
        scored.append(replace(one, score=score, traits=own, parts=parts))
    return sorted(scored, key=lambda one: (-(one.score or 0.0), -(one.relevance or 0.0), -one.id))


def fold(candidates: Sequence[Ranked], vectors: Mapping[int, npt.NDArray[np.float32]], least: float) -> list[Ranked]:
    """The same candidates, those that say nearly the same moved up behind the first of them.

    `vectors` are of unit length; a memory without one is like no other.
    """
    known = [one.id for one in candidates if one.id in vectors]
    if not known:
        return list(candidates)
    matrix = np.stack([vectors[pk] for pk in known])
    alike = matrix @ matrix.T >= least
    row = {pk: n for n, pk in enumerate(known)}
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


def _ranks(scores: Mapping[int, float]) -> dict[int, int]:
    ordered = sorted(scores, key=lambda pk: (-scores[pk], -pk))
    return {pk: n for n, pk in enumerate(ordered, 1)}


def _shares(scores: Mapping[int, float]) -> dict[int, float]:
    if not scores:
        return {}
    least, most = min(scores.values()), max(scores.values())
    if most <= least:
        return dict.fromkeys(scores, 1.0)
    return {pk: (score - least) / (most - least) for pk, score in scores.items()}
