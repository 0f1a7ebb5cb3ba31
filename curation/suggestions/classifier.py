"""Categories for a memory: by votes of the nearest memories that have some, and by how near it is to each category.

Three measures, each from 0 to 1 for a category:

- neighbours: its share of the votes of the nearest memories, the nearer ones counting more;
- centroid: how near the memory is to the mean of the category's members, the memory itself left out;
- text: how near it is to what the category is called and said to be, as the model reads it.

`docs/suggestions.md` has what each comes to alone, and why they are weighed as they are.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection

from categories.models import Category
from memories.embedding.models import Embedder
from memories.embedding.query import ServingModel
from memories.models import Memory
from search.engines.base import Ids, VectorQuery
from search.engines.knn import nearest_candidates
from search.relevance import Vector, chunks_of

# Of the nearest memories, so many vote; of a long memory, so many chunks look for them.
NEIGHBOURS = 15
_MOST_CHUNKS = 3
# A neighbour of similarity s votes with s to this power.
_SHARPNESS = 4
# With fewer neighbours it is less sure, in proportion.
_ENOUGH = 5

States = (Memory.State.ACTIVE, Memory.State.PROPOSED)

# A row for each category with members: how many, and the mean of their vectors, as floats, since halves would not do.
_CENTROIDS = """
SELECT linked.category_id, count(*), avg(chunk.embedding::vector)::text
FROM memories_memory memory CROSS JOIN LATERAL unnest(memory.category_ids) AS linked (category_id)
JOIN memories_chunk chunk ON chunk.memory_id = memory.id AND chunk.model_id = %(model)s AND chunk.ordinal = 0
WHERE memory.id = ANY(%(ids)s) GROUP BY 1"""


@dataclass(frozen=True, slots=True)
class Weights:
    """What each measure counts; a share of their sum."""

    neighbours: float = 1.0
    centroid: float = 0.0
    text: float = 0.0


CHOSEN = Weights(neighbours=0.7, centroid=0.3)
METHODS = {
    "neighbours": Weights(1, 0, 0),
    "centroids": Weights(0, 1, 0),
    "texts": Weights(0, 0, 1),
    "neighbours and centroids": CHOSEN,
    "all three": Weights(0.6, 0.25, 0.15),
}


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A memory that speaks for a category, and how near it is."""

    memory_id: int
    similarity: float


@dataclass(frozen=True, slots=True)
class Choice:
    """A category, how sure, and what speaks for it."""

    category_id: int
    confidence: float
    neighbours: tuple[Neighbour, ...]
    asked: int
    near_centroid: float


class _OneOf:
    """The memories that may vote, to the search for the nearest."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids

    def contains(self, ids: Ids) -> npt.NDArray[np.bool_]:
        at = np.searchsorted(self._ids, ids).clip(max=max(0, len(self._ids) - 1))
        return self._ids[at] == ids if len(self._ids) else np.zeros(len(ids), np.bool_)

    def count(self, most: int | None = None) -> int | None:
        return len(self._ids)

    def ids(self) -> Ids:
        return self._ids


class Classifier:
    """What one set of memories with categories says of others. Reads their names and centroids once."""

    def __init__(
        self, serving: ServingModel, members: Mapping[int, Sequence[int]], embedder: Embedder | None = None
    ) -> None:
        self._serving = serving
        self._members = members
        self._passing = _OneOf(np.array(sorted(members), np.int64))
        self._categories, self._counts, self._means = _centroids(members, serving.id)
        self._lengths = np.maximum(np.linalg.norm(self._means, axis=1), 1e-6)
        self._places = {category_id: at for at, category_id in enumerate(self._categories)}
        self._texts = _texts(self._categories, embedder) if embedder else None

    def choices(self, memory_ids: Collection[int], weights: Weights = CHOSEN, most: int = 3) -> dict[int, list[Choice]]:
        """The best categories of each memory that has been embedded, the best first."""
        return {
            memory_id: self._chosen(memory_id, chunks, weights)[:most]
            for memory_id, chunks in chunks_of(memory_ids, self._serving.id).items()
        }

    def measured(self, memory_id: int, chunks: Sequence[Vector]) -> "_Measured":
        return _Measured(
            self._neighbours(memory_id, chunks), self._to_centroids(memory_id, chunks[0]), self._to_texts(chunks[0])
        )

    def _chosen(self, memory_id: int, chunks: Sequence[Vector], weights: Weights) -> list[Choice]:
        return self.weighed(self.measured(memory_id, chunks), weights)

    def weighed(self, measured: "_Measured", weights: Weights) -> list[Choice]:
        """All categories that anything speaks for, by what the weights come to."""
        votes: dict[int, float] = defaultdict(float)
        voters: dict[int, list[Neighbour]] = defaultdict(list)
        for neighbour in measured.neighbours:
            for category_id in self._members[neighbour.memory_id]:
                votes[category_id] += neighbour.similarity**_SHARPNESS
                voters[category_id].append(neighbour)
        whole = sum(one.similarity**_SHARPNESS for one in measured.neighbours) or 1.0
        scores = np.zeros(len(self._categories))
        for category_id, vote in votes.items():
            scores[self._places[category_id]] += weights.neighbours * vote / whole
        scores += weights.centroid * measured.to_centroids
        if measured.to_texts is not None:
            scores += weights.text * measured.to_texts
        scores /= weights.neighbours + weights.centroid + weights.text
        # That two of two agree says less than that twelve of fifteen do.
        scores *= min(1.0, len(measured.neighbours) / _ENOUGH) if weights.neighbours else 1.0
        order = np.argsort(-scores, kind="stable")[:20]
        return [
            Choice(
                category_id=self._categories[at],
                confidence=round(float(scores[at].clip(0, 1)), 3),
                neighbours=tuple(voters.get(self._categories[at], ())),
                asked=len(measured.neighbours),
                near_centroid=round(float(measured.to_centroids[at]), 3),
            )
            for at in order
            if scores[at] > 0
        ]

    def _neighbours(self, memory_id: int, chunks: Sequence[Vector]) -> list[Neighbour]:
        near: dict[int, float] = {}
        for chunk in chunks[:_MOST_CHUNKS]:
            # One more: the memory itself may be among them.
            meaning = VectorQuery(
                self._serving.id, chunk.tobytes(), self._serving.min_similarity, NEIGHBOURS + 1, semantic_only=True
            )
            found = nearest_candidates(meaning, self._passing)
            for pk, similarity in zip(found.ids.tolist(), found.similarities.tolist(), strict=True):
                near[pk] = max(similarity, near.get(pk, 0.0))
        near.pop(memory_id, None)
        best = sorted(near.items(), key=lambda one: (-one[1], one[0]))[:NEIGHBOURS]
        return [Neighbour(pk, round(min(1.0, similarity), 4)) for pk, similarity in best]

    def _to_centroids(self, memory_id: int, own: Vector) -> npt.NDArray[np.float64]:
        """How near to the mean of each category's members, of which the memory itself is none."""
        if not self._categories:
            return np.zeros(0)
        near = self._means @ own / self._lengths
        for category_id in self._members.get(memory_id, ()):
            at = self._places[category_id]
            mean = self._means[at] * self._counts[at] - own
            near[at] = mean @ own / max(float(np.linalg.norm(mean)), 1e-6) if self._counts[at] > 1 else 0.0
        return np.asarray(near.clip(0, 1), np.float64)

    def _to_texts(self, own: Vector) -> npt.NDArray[np.float64] | None:
        return None if self._texts is None else np.asarray(self._texts @ own, np.float64).clip(0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """What the three measures say of one memory."""

    neighbours: list[Neighbour]
    to_centroids: npt.NDArray[np.float64]
    to_texts: npt.NDArray[np.float64] | None


def members_of(project_id: int | None) -> dict[int, list[int]]:
    """The memories of a project, or of all, that have categories, with these."""
    memories = Memory.objects.filter(state__in=States).exclude(category_ids=[])
    if project_id is not None:
        memories = memories.filter(project_id=project_id)
    return dict(memories.values_list("id", "category_ids"))


def _centroids(
    members: Mapping[int, Sequence[int]], model_id: int
) -> tuple[list[int], npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    with connection.cursor() as cursor:
        cursor.execute(_CENTROIDS, {"model": model_id, "ids": list(members)})
        rows = sorted(cursor.fetchall())
    found = [row[0] for row in rows]
    # A category whose members are yet to be embedded has no mean, but may be voted for all the same.
    missing = sorted({pk for ids in members.values() for pk in ids} - set(found))
    means = [np.fromstring(row[2].strip("[]"), sep=",") for row in rows]
    width = len(means[0]) if means else 1
    matrix = np.array([*means, *(np.zeros(width) for _ in missing)])
    return [*found, *missing], np.array([*(float(row[1]) for row in rows), *(0.0 for _ in missing)]), matrix


def _texts(category_ids: Sequence[int], embedder: Embedder) -> npt.NDArray[np.float32]:
    """What the categories are called along their paths, and said to be, as the model reads it."""
    rows = Category.objects.filter(pk__in=category_ids).values_list("pk", "path", "description")
    texts = {pk: f"{path.replace('/', ', ').replace('-', ' ')}\n{said}".strip() for pk, path, said in rows}
    return embedder.encode([texts.get(pk, "") for pk in category_ids])
