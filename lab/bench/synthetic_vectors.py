"""Vectors distributed as those of real texts: subjects within topics, a few large and many small, and near duplicates.

They are fitted to the vectors that the packaged model gave 9,500 chunks of real notes, whose similarity is 0.11 ± 0.11
at random and 0.64, 0.51 and 0.38 to the nearest, tenth and hundredth neighbour (medians); here it is 0.12 ± 0.10, 0.61,
0.50 and 0.36. Isotropic noise would have no neighbours at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

# Parts of the squared length of a vector: common to all texts, of the topic, of the subject, and of the text itself.
_COMMON, _TOPIC, _SUBJECT, _OWN = 0.10, 0.13, 0.25, 0.52
# The part of a query that is unrelated to its subject. Queries are only a few words.
_UNRELATED = 0.35
# The spread along axis n falls as 1 / (n + 30) ** 0.6, so that the first fifty hold half of it.
_FIRST_AXIS, _FALL = 30, 0.6
_TOPICS = 40
# Subjects grow more slowly than memories.
_SUBJECT_GROWTH = 0.7
# Shares of memories that repeat another memory, and their similarity to it: in one aspect, or in nearly every word.
_REPEATS = ((0.40, 0.45), (0.03, 0.96))
# The share of memories with several chunks, and the similarity of two chunks of one memory.
_LONG, _MAX_CHUNKS = 0.12, 12
_WITHIN_MEMORY = 0.77
_BLOCK = 10_000


@dataclass(frozen=True, slots=True)
class Block:
    """Memories and their chunks, in the order of the memories' ids."""

    memory_ids: Numbers
    ordinals: Numbers
    vectors: Vectors
    subjects: Numbers
    """The subject of each memory, not of each chunk."""


class SyntheticVectors:
    """A space of subjects and topics. The same seed makes the same vectors, block by block."""

    def __init__(self, chunks: int, dimensions: int, seed: int) -> None:
        self.chunks = chunks
        self.dimensions = dimensions
        self._seed = seed
        self._scale = 1 / (np.arange(dimensions) + _FIRST_AXIS) ** _FALL
        self._scale /= np.linalg.norm(self._scale)
        rng = np.random.default_rng((seed, 0))
        self.subjects = max(_TOPICS, round(chunks**_SUBJECT_GROWTH))
        topics = self._directions(rng, _TOPICS)
        of_topic = rng.choice(_TOPICS, self.subjects, p=_zipf(_TOPICS))
        self._centres = (
            np.sqrt(_COMMON) * self._directions(rng, 1)
            + np.sqrt(_TOPIC) * topics[of_topic]
            + np.sqrt(_SUBJECT) * self._directions(rng, self.subjects)
        )
        self._shares = _zipf(self.subjects)

    def queries(self, count: int) -> Vectors:
        """Queries about the same subjects as the texts, equal to none of them."""
        rng = np.random.default_rng((self._seed, 1))
        points = self._points(rng.choice(self.subjects, count, p=self._shares), self._directions(rng, count))
        return _units(np.sqrt(1 - _UNRELATED) * points + np.sqrt(_UNRELATED) * self._directions(rng, count))

    def blocks(self) -> Iterator[Block]:
        """All chunks, rounded to half precision. The last memory of a block may be cut short."""
        start = memory_id = 0
        rng = np.random.default_rng((self._seed, 2))
        while start < self.chunks:
            left = min(_BLOCK, self.chunks - start)
            lengths = np.where(rng.random(left) < _LONG, np.minimum(rng.geometric(0.4, left) + 1, _MAX_CHUNKS), 1)
            memories = int(np.searchsorted(np.cumsum(lengths), left)) + 1
            of_chunk = np.repeat(np.arange(memories), lengths[:memories])[:left]
            subjects = rng.choice(self.subjects, memories, p=self._shares)
            own = self._directions(rng, memories)
            for share, similarity in _REPEATS:
                repeats = np.flatnonzero(rng.random(memories) < share)
                originals = rng.integers(0, memories, len(repeats))
                own[repeats] = self._near(rng, own[originals], similarity)
                subjects[repeats] = subjects[originals]
            points = self._points(subjects, own)
            vectors = points[of_chunk]
            first = np.r_[True, of_chunk[1:] != of_chunk[:-1]]
            many = np.bincount(of_chunk)[of_chunk] > 1
            vectors[many] = self._near(rng, vectors[many], np.sqrt(_WITHIN_MEMORY))
            starts = np.flatnonzero(first)
            yield Block(
                memory_ids=memory_id + 1 + of_chunk,
                ordinals=np.arange(left) - starts[of_chunk],
                vectors=vectors.astype(np.float16).astype(np.float32),
                subjects=subjects,
            )
            start += left
            memory_id += memories

    def _points(self, subjects: Numbers, own: Vectors) -> Vectors:
        return _units(self._centres[subjects] + np.sqrt(_OWN) * own)

    def _near(self, rng: np.random.Generator, points: Vectors, similarity: float) -> Vectors:
        return _units(similarity * points + np.sqrt(1 - similarity**2) * self._directions(rng, len(points)))

    def _directions(self, rng: np.random.Generator, count: int) -> Vectors:
        return _units((rng.standard_normal((count, len(self._scale))) * self._scale).astype(np.float32))


def _units(vectors: Vectors) -> Vectors:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Vectors = (vectors / np.maximum(lengths, 1e-6)).astype(np.float32)
    return found


def _zipf(count: int) -> npt.NDArray[np.float64]:
    shares = 1 / np.arange(1, count + 1)
    found: npt.NDArray[np.float64] = shares / shares.sum()
    return found
