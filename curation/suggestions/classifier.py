"""Predicts categories for a memory from the nearest memories and from its similarity to each category.

Two scores for a category, each from 0 to 1:

- neighbours: its share of the votes of the nearest memories, weighted by similarity;
- centroid: the similarity of the memory to the mean of the category's other members.

`docs/suggestions.md` has measurements of both together, and the reasons for their weights.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from curation.suggestions.proposals import STATES
from memories.embedding.query import ServingModel
from memories.models import Memory
from search.engines.base import Ids, VectorQuery
from search.engines.knn import nearest_candidates
from search.ranking import Vector, chunks_of
from web.sql import fetch

# Memories that vote, and chunks of a memory that search for them.
NEIGHBOURS = 15
_MOST_CHUNKS = 3
# A neighbour of similarity s votes with s to this power.
_SHARPNESS = 4
# With fewer neighbours, the confidence decreases in proportion.
_ENOUGH = 5
# The power of the similarity of the voters relative to that of the nearest memories.
_CONTRAST = 3
# The weights of the two scores.
_BY_NEIGHBOURS, _BY_CENTROID = 0.7, 0.3

# The number of members of each category and the mean of their vectors. The precision of halfvec is too low.
_CENTROIDS = """
SELECT linked.category_id, count(*), avg(chunk.embedding::vector)::text
FROM memories_memory memory CROSS JOIN LATERAL unnest(memory.category_ids) AS linked (category_id)
JOIN memories_chunk chunk ON chunk.memory_id = memory.id AND chunk.model_id = %(model)s AND chunk.ordinal = 0
WHERE memory.id = ANY(%(ids)s) GROUP BY 1"""


@dataclass(frozen=True, slots=True)
class Voter:
    """A memory that votes for a category, with its similarity."""

    memory_id: int
    similarity: float


@dataclass(frozen=True, slots=True)
class CategoryChoice:
    """A predicted category with its confidence and its evidence."""

    category_id: int
    confidence: float
    neighbours: tuple[Voter, ...]
    neighbours_in_all: int
    near_centroid: float


class _Allowed:
    """A filter of the nearest-neighbour search: the memories that may vote."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def contains(self, ids: Ids) -> npt.NDArray[np.bool_]:
        at = np.searchsorted(self._ids, ids).clip(max=max(0, len(self._ids) - 1))
        return self._ids[at] == ids if len(self._ids) else np.zeros(len(ids), np.bool_)

    def count(self, limit: int | None = None) -> int | None:
        return len(self._ids)

    def ids(self) -> Ids:
        return self._ids


class Classifier:
    """Predicts from one set of memories with categories, whose centroids it reads once."""

    def __init__(
        self, serving: ServingModel, members: Mapping[int, Sequence[int]], others: Collection[int] = ()
    ) -> None:
        """`others` are the ids of memories without a category: those that are nearer weaken every vote."""
        self.serving = serving
        self._members = members
        self._passing = _Allowed(np.array(sorted(members), np.int64))
        self._all = _Allowed(np.array(sorted({*members, *others}), np.int64)) if others else None
        self._categories, self._counts, self._means = _centroids(members, serving.id)
        self._lengths = np.maximum(np.linalg.norm(self._means, axis=1), 1e-6)
        self._places = {category_id: at for at, category_id in enumerate(self._categories)}

    def choices(self, memory_ids: Collection[int], limit: int = 3) -> dict[int, list[CategoryChoice]]:
        """The best categories of each embedded memory, the best first."""
        return {
            memory_id: self._weigh(self._scores(memory_id, chunks))[:limit]
            for memory_id, chunks in chunks_of(memory_ids, self.serving.id).items()
        }

    def _scores(self, memory_id: int, chunks: Sequence[Vector]) -> "_Scores":
        neighbours = self._neighbours(memory_id, chunks, self._passing)
        return _Scores(
            neighbours,
            self._to_centroids(memory_id, chunks[0]),
            _nearness(neighbours, self._neighbours(memory_id, chunks, self._all)) if self._all else 1.0,
        )

    def _weigh(self, found: "_Scores") -> list[CategoryChoice]:
        """The categories with a positive score, by descending confidence."""
        votes: dict[int, float] = defaultdict(float)
        voters: dict[int, list[Voter]] = defaultdict(list)
        for neighbour in found.neighbours:
            for category_id in self._members[neighbour.memory_id]:
                votes[category_id] += neighbour.similarity**_SHARPNESS
                voters[category_id].append(neighbour)
        all_votes = sum(neighbour.similarity**_SHARPNESS for neighbour in found.neighbours) or 1.0
        scores = np.zeros(len(self._categories))
        for category_id, vote in votes.items():
            scores[self._places[category_id]] += _BY_NEIGHBOURS * vote / all_votes
        scores += _BY_CENTROID * found.to_centroids
        # Two votes of two are weaker evidence than twelve of fifteen.
        scores *= min(1.0, len(found.neighbours) / _ENOUGH)
        scores *= found.nearness
        order = np.argsort(-scores, kind="stable")[:20]
        return [
            CategoryChoice(
                category_id=self._categories[at],
                confidence=round(float(scores[at].clip(0, 1)), 3),
                neighbours=tuple(voters.get(self._categories[at], ())),
                neighbours_in_all=len(found.neighbours),
                near_centroid=round(float(found.to_centroids[at]), 3),
            )
            for at in order
            if scores[at] > 0
        ]

    def _neighbours(self, memory_id: int, chunks: Sequence[Vector], passing: _Allowed) -> list[Voter]:
        near: dict[int, float] = {}
        for chunk in chunks[:_MOST_CHUNKS]:
            # The memory itself may be among them.
            meaning = VectorQuery(
                self.serving.id, chunk.tobytes(), self.serving.min_similarity, NEIGHBOURS + 1, semantic_only=True
            )
            found = nearest_candidates(meaning, passing)
            for pk, similarity in zip(found.ids.tolist(), found.similarities.tolist(), strict=True):
                near[pk] = max(similarity, near.get(pk, 0.0))
        near.pop(memory_id, None)
        best = sorted(near.items(), key=lambda one: (-one[1], one[0]))[:NEIGHBOURS]
        return [Voter(pk, round(min(1.0, similarity), 4)) for pk, similarity in best]

    def _to_centroids(self, memory_id: int, own: Vector) -> npt.NDArray[np.float64]:
        """The similarity to the mean of each category's other members."""
        if not self._categories:
            return np.zeros(0)
        near = self._means @ own / self._lengths
        for category_id in self._members.get(memory_id, ()):
            at = self._places[category_id]
            mean = self._means[at] * self._counts[at] - own
            near[at] = mean @ own / max(float(np.linalg.norm(mean)), 1e-6) if self._counts[at] > 1 else 0.0
        return np.asarray(near.clip(0, 1), np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """The unweighted scores of one memory."""

    neighbours: list[Voter]
    to_centroids: npt.NDArray[np.float64]
    nearness: float = 1.0
    """How near the memories that vote are, beside the nearest memories of all: 1 if they are as near."""


def _nearness(voters: Sequence[Voter], nearest: Sequence[Voter]) -> float:
    """Where the nearest memories have no category, those that have one may be of another subject."""
    count = min(_ENOUGH, len(voters), len(nearest))
    if not count:
        return 1.0
    voting, all_of_them = (sum(one.similarity for one in found[:count]) for found in (voters, nearest))
    return min(1.0, voting / max(all_of_them, 1e-6)) ** _CONTRAST


def members_of(project_id: int | None, *, without: Collection[int] = ()) -> dict[int, list[int]]:
    """Memories with categories and the ids of these; of one project, or of all but some."""
    memories = Memory.objects.filter(state__in=STATES).exclude(category_ids=[])
    if project_id is not None:
        memories = memories.filter(project_id=project_id)
    elif without:
        memories = memories.exclude(project_id__in=without)
    return dict(memories.values_list("id", "category_ids"))


def _centroids(
    members: Mapping[int, Sequence[int]], model_id: int
) -> tuple[list[int], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    rows = sorted(fetch(_CENTROIDS, {"model": model_id, "ids": list(members)}))
    found = [row[0] for row in rows]
    # A category without embedded members has no mean, but may still get votes.
    missing = sorted({pk for ids in members.values() for pk in ids} - set(found))
    means = [np.fromstring(row[2].strip("[]"), sep=",") for row in rows]
    width = len(means[0]) if means else 1
    matrix = np.array([*means, *(np.zeros(width) for _ in missing)])
    return [*found, *missing], np.array([*(float(row[1]) for row in rows), *(0.0 for _ in missing)]), matrix
