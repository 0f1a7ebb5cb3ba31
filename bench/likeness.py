"""Vectors that lie as those of real texts do: subjects within topics, a few large and many small, and near repeats.

Made after the vectors that the packaged model gave 9,500 chunks of real notes: there two at random are 0.11 ± 0.11
similar, the nearest of each 0.64, the tenth 0.51 and the hundredth 0.38 (medians); here it is 0.12 ± 0.10, 0.61, 0.50
and 0.36. Isotropic noise has no neighbours at all.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]

# Of the square of a vector's length: what all texts share, the topic, the subject, and the text's own.
_COMMON, _TOPIC, _SUBJECT, _OWN = 0.10, 0.13, 0.25, 0.52
# Of a query, which is a few words: how much is not of its subject at all.
_OF_QUERY = 0.35
# The spread along the n-th axis falls as 1 / (n + 30) ** 0.6: half of it all is on the first fifty.
_FIRST_AXIS, _FALL = 30, 0.6
_TOPICS = 40
# Subjects grow more slowly than memories.
_SUBJECT_GROWTH = 0.7
# Shares of memories that follow another one, and how much of their own is its own: an aspect, or nearly every word.
_FOLLOWING = ((0.40, 0.45), (0.03, 0.96))
# How many memories have more than one chunk, and how similar two chunks of one memory are.
_LONG, _MOST_CHUNKS = 0.12, 12
_OF_MEMORY = 0.77
_BLOCK = 10_000


@dataclass(frozen=True, slots=True)
class Block:
    """Memories and their chunks, in the order of the memories' ids."""

    memory_ids: Numbers
    ordinals: Numbers
    vectors: Vectors
    # By memory and not by chunk, from the first of the block on.
    subjects: Numbers


class Likeness:
    """A space of meanings. The same seed makes the same vectors, block by block."""

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
        """What is searched for: about the same subjects, and no text that is there."""
        rng = np.random.default_rng((self._seed, 1))
        points = self._points(rng.choice(self.subjects, count, p=self._shares), self._directions(rng, count))
        return _units(np.sqrt(1 - _OF_QUERY) * points + np.sqrt(_OF_QUERY) * self._directions(rng, count))

    def blocks(self) -> Iterator[Block]:
        """All chunks, as halves round them; the last memory may have fewer than it would."""
        begin = memory_id = 0
        rng = np.random.default_rng((self._seed, 2))
        while begin < self.chunks:
            left = min(_BLOCK, self.chunks - begin)
            lengths = np.where(rng.random(left) < _LONG, np.minimum(rng.geometric(0.4, left) + 1, _MOST_CHUNKS), 1)
            memories = int(np.searchsorted(np.cumsum(lengths), left)) + 1
            of_chunk = np.repeat(np.arange(memories), lengths[:memories])[:left]
            subjects = rng.choice(self.subjects, memories, p=self._shares)
            own = self._directions(rng, memories)
            for share, similarity in _FOLLOWING:
                followers = np.flatnonzero(rng.random(memories) < share)
                followed = rng.integers(0, memories, len(followers))
                own[followers] = self._near(rng, own[followed], similarity)
                subjects[followers] = subjects[followed]
            points = self._points(subjects, own)
            vectors = points[of_chunk]
            first = np.r_[True, of_chunk[1:] != of_chunk[:-1]]
            many = np.bincount(of_chunk)[of_chunk] > 1
            vectors[many] = self._near(rng, vectors[many], np.sqrt(_OF_MEMORY))
            starts = np.flatnonzero(first)
            yield Block(
                memory_ids=memory_id + 1 + of_chunk,
                ordinals=np.arange(left) - starts[of_chunk],
                vectors=vectors.astype(np.float16).astype(np.float32),
                subjects=subjects,
            )
            begin += left
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
