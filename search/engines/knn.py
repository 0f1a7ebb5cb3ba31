"""k-NN search for every engine: the memories nearest to a vector, read only as far as the answer needs.

A semantic match set is the `limit` nearest memories that pass the filters, none below the minimum similarity. All sets
of one answer are cut from one reading, so that they agree. The cheapest way to read is chosen by estimated cost: the
nearest of all from the HNSW index (deeper if many do not pass), the vectors of the few that pass, or a full scan. A
sample of vectors, cached in the process, estimates how many memories are above the minimum similarity.

Vectors are read from pgvector or, next to a derived index, from the replica, at an eighth of the cost: up to about
750,000 vectors a full scan of it beats the HNSW index.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Protocol

import numpy as np
import numpy.typing as npt

from search.engines.base import Ids, Neighbours, Similarities, VectorQuery
from search.engines.vectors import pgvector, replica
from search.engines.vectors.replica import Replica
from web.cache import RevisionCache

# The cost of comparing one vector in microseconds, measured on 200,000 vectors: in a full scan, by memory id, and as
# the next result of the HNSW index; then the first two for the replica. The costs only choose between ways that all
# give the same set.
_SCAN_COST = 0.5
_BY_ID_COST = 2.7
_NEXT_COST = 35.0
_REPLICA_SCAN_COST = 0.06
_REPLICA_BY_ID_COST = 0.6
# One full scan serves every set of an answer, up to this many: reading by ids has to be cheaper by this factor.
_SETS = 4
# Chunks to read per memory: one memory may have several among the nearest.
_CHUNKS_PER_MEMORY = 1.25
# The number of HNSW readings before a full scan, and the factor by which each goes further; and the prior weight of the
# overall share of passing memories against the share among those read.
_MAX_READINGS = 4
_DEEPER = 4
_PRIOR_WEIGHT = 50
# Sampled chunks, to estimate the number above the minimum similarity.
_SAMPLE_SIZE = 4_096
# Limits of the cache of readings, the second in memories of all readings together.
_MAX_CACHED_READINGS = 64
_MAX_CACHED_MEMORIES = 500_000


class Candidates(Protocol):
    """The memories that pass all filters of a query, as an engine knows them."""

    def contains(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """A mask of the ids that pass."""

    def count(self, most: int | None = None) -> int | None:
        """The number that pass; None if it exceeds `most` and counting all of them would be slow."""

    def ids(self) -> Ids:
        """All ids that pass, in any order."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The nearest of all memories, in any order: all above the minimum similarity, or only the first of them."""

    ids: Ids
    similarities: Similarities
    complete: bool
    # Whether the minimum similarity was reached: reading further finds nothing.
    reached_min_similarity: bool = False


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors at one revision, and where to read them."""

    chunks: int
    """Estimated."""
    revision: int
    scan_cost: float
    by_id_cost: float
    replica: Replica | None = None
    changed: Ids | None = None
    """Sorted ids of the memories whose changes the replica has not applied yet."""

    def scan(self, meaning: VectorQuery) -> tuple[Ids, Similarities]:
        if self.replica is None:
            return pgvector.scan(meaning)
        return self._with_changed(meaning, *self.replica.scan(_vector(meaning), meaning.min_similarity), self.changed)

    def by_ids(self, meaning: VectorQuery, ids: Ids) -> tuple[Ids, Similarities]:
        if self.replica is None:
            return pgvector.by_ids(meaning, ids.tolist())
        wanted = np.sort(ids)
        changed = None if self.changed is None else np.intersect1d(self.changed, wanted)
        return self._with_changed(
            meaning, *self.replica.by_ids(_vector(meaning), meaning.min_similarity, wanted), changed
        )

    def _with_changed(
        self, meaning: VectorQuery, ids: Ids, similarities: Similarities, changed: Ids | None
    ) -> tuple[Ids, Similarities]:
        if changed is None or not len(changed):
            return ids, similarities
        kept = ~np.isin(ids, changed)
        newer, similar = pgvector.by_ids(meaning, changed.tolist())
        return np.concatenate([ids[kept], newer]), np.concatenate([similarities[kept], similar])


# Model, vector, minimum similarity, revision of the vectors, and number of chunks read; 0 for a full scan.
_Key = tuple[int, bytes, float, int, int]
readings = RevisionCache[_Key, _Reading](
    _MAX_CACHED_READINGS, weight=_MAX_CACHED_MEMORIES, weigh=lambda reading: len(reading.ids)
)
# Locks held while a reading is made.
_locks: dict[_Key, Lock] = {}
# A sample of the vectors, scaled to unit length, by model and revision.
_samples = RevisionCache[tuple[int, int], npt.NDArray[np.float32]](1)
_lock = Lock()


def nearest_candidates(meaning: VectorQuery, passing: Candidates, vectors: Vectors | None = None) -> Neighbours:
    """Return the nearest memories that pass, at or above the minimum similarity, at most `limit`.

    They are read from `vectors`, without these from the database. The same query over the same vectors is always read
    in the same way, so that pages fit together.
    """
    vectors = vectors or vectors_now(meaning, replicated=False)
    size = vectors.chunks
    chunks = _depth(meaning.limit, 1.0)
    every = size * vectors.scan_cost
    if every <= _index_cost(chunks):
        # Counting is cheap for the engine that reads the replica.
        few = passing.count() if vectors.replica is not None else None
        if few is not None and few * vectors.by_id_cost * _SETS <= every:
            return _read_passing(meaning, vectors, passing)
        return _passing_of(meaning, _read_every(meaning, vectors), passing)
    # If reading by ids costs no more than the HNSW index, skip the index.
    count = passing.count(math.ceil(_index_cost(chunks) / vectors.by_id_cost))
    if count is not None:
        if count * vectors.by_id_cost <= _index_cost(chunks):
            return _read_passing(meaning, vectors, passing)
        chunks = _depth(meaning.limit, count / max(size, count))
    # If fewer candidates pass than the limit, HNSW would scan to the end and still miss some.
    if _share_of_all(meaning, vectors) * (size if count is None else count) >= meaning.limit:
        near, count = _read_deeper(meaning, vectors, passing, chunks, count)
        if near is not None:
            return near
    count = passing.count() or 0 if count is None else count
    if count * vectors.by_id_cost <= every:
        return _read_passing(meaning, vectors, passing)
    return _passing_of(meaning, _read_every(meaning, vectors), passing)


def _read_deeper(
    meaning: VectorQuery, vectors: Vectors, passing: Candidates, chunks: int, count: int | None
) -> tuple[Neighbours | None, int | None]:
    """Read ever more of the HNSW index until enough of the nearest pass; None if another way is cheaper.

    `chunks` is the number to read first. `count` is the number of candidates, if known; it is returned too.
    """
    size = vectors.chunks
    every = size * vectors.scan_cost
    for _ in range(_MAX_READINGS):
        if _index_cost(chunks) >= min(math.inf if count is None else count * vectors.by_id_cost, every):
            break
        reading = _read_first(meaning, chunks, vectors)
        near = _passing_of(meaning, reading, passing)
        # The HNSW index is approximate, so a set that is not full may be incomplete.
        if near.truncated:
            return near, count
        count = passing.count() or 0 if count is None else count
        if reading.reached_min_similarity:
            break
        # Estimate the share of candidates among the next nearest from those read so far and from all.
        share = (len(near.ids) + _PRIOR_WEIGHT * count / max(size, count, 1)) / (len(reading.ids) + _PRIOR_WEIGHT)
        chunks = max(_DEEPER * chunks, _depth(meaning.limit, share))
    return None, count


def similarities_of(meaning: VectorQuery, ids: Sequence[int], *, replicated: bool = False) -> dict[int, float]:
    """The similarities of some memories, whatever the minimum similarity; memories without a vector are left out."""
    if not ids:
        return {}
    asked = replace(meaning, min_similarity=-1.0)
    if replicated:
        found, similarities = vectors_now(meaning, replicated).by_ids(asked, np.array(ids, np.int64))
    else:
        found, similarities = pgvector.by_ids(asked, ids)
    return dict(zip(found.tolist(), similarities.tolist(), strict=True))


def _depth(limit: int, share: float) -> int:
    """The number of chunks to read to find `limit` memories if a `share` of all pass, with a margin for bad luck."""
    needed = math.ceil(_CHUNKS_PER_MEMORY * limit * (1 + 2 / math.sqrt(limit)) / max(share, 1e-9))
    # The HNSW search examines at least this many anyway.
    return max(needed, pgvector.MIN_EF_SEARCH // pgvector.EF_PER_CHUNK)


def _index_cost(chunks: int) -> float:
    return max(chunks, pgvector.ef_search(chunks)) * _NEXT_COST


def _share_of_all(meaning: VectorQuery, vectors: Vectors) -> float:
    """Estimate the share of all chunks above the minimum similarity from a sample."""
    some = _samples.get_or_make((meaning.model_id, vectors.revision), lambda: _sample(meaning, vectors))
    vector = _vector(meaning)
    near = some @ vector >= meaning.min_similarity * np.linalg.norm(vector)
    return float(np.count_nonzero(near) / max(len(some), 1))


def _vector(meaning: VectorQuery) -> npt.NDArray[np.float32]:
    return np.frombuffer(meaning.vector, np.float32)


def _sample(meaning: VectorQuery, vectors: Vectors) -> npt.NDArray[np.float32]:
    packed = pgvector.sample(meaning.model_id, min(100.0, 100 * _SAMPLE_SIZE / max(vectors.chunks, 1)))
    some = np.frombuffer(packed, ">f2").astype(np.float32).reshape(-1, len(_vector(meaning)))
    some /= np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-6)
    return some


def _read_passing(meaning: VectorQuery, vectors: Vectors, passing: Candidates) -> Neighbours:
    if (every := readings.get(_key(meaning, vectors, 0))) is not None:
        return _passing_of(meaning, every, passing)
    return _nearest_of(meaning, *vectors.by_ids(meaning, passing.ids()))


def _passing_of(meaning: VectorQuery, reading: _Reading, passing: Candidates) -> Neighbours:
    """The candidates in a reading. If the reading is not complete, only a full result is conclusive."""
    passes = passing.contains(reading.ids)
    ids, similarities = reading.ids[passes], reading.similarities[passes]
    return _nearest_of(meaning, ids, similarities, complete=reading.complete)


def _nearest_of(meaning: VectorQuery, ids: Ids, similarities: Similarities, *, complete: bool = True) -> Neighbours:
    """The first `limit` of them, the nearest first; ties are broken by the higher id."""
    found = len(ids)
    truncated = found > meaning.limit or (found == meaning.limit and not complete)
    if found > meaning.limit > 0:
        lowest = np.partition(similarities, found - meaning.limit)[found - meaning.limit]
        kept = similarities >= lowest
        ids, similarities = ids[kept], similarities[kept]
    order = np.lexsort((-ids, -similarities))[: meaning.limit]
    return Neighbours(ids[order], similarities[order], truncated)


def _read_every(meaning: VectorQuery, vectors: Vectors) -> _Reading:
    return _cached(_key(meaning, vectors, 0), lambda: _Reading(*vectors.scan(meaning), complete=True))


def _read_first(meaning: VectorQuery, chunks: int, vectors: Vectors) -> _Reading:
    def read() -> _Reading:
        ids, similarities, reached_min_similarity = pgvector.hnsw_nearest(meaning, chunks)
        return _Reading(ids, similarities, complete=False, reached_min_similarity=reached_min_similarity)

    return _cached(_key(meaning, vectors, chunks), read)


def _cached(key: _Key, read: Callable[[], _Reading]) -> _Reading:
    """Return a reading from the cache, or make it. Threads that ask for the same reading wait for the first."""
    if (found := readings.get(key)) is not None:
        return found
    with _lock:
        lock = _locks.setdefault(key, Lock())
    try:
        with lock:
            return readings.get_or_make(key, read)
    finally:
        with _lock:
            _locks.pop(key, None)


def _key(meaning: VectorQuery, vectors: Vectors, chunks: int) -> _Key:
    return (meaning.model_id, meaning.vector, meaning.min_similarity, vectors.revision, chunks)


def vectors_now(meaning: VectorQuery, replicated: bool) -> Vectors:
    """Where the vectors are to be read in this transaction."""
    found, now = replica.serving_replica(meaning.model_id) if replicated else (None, pgvector.change_state())
    if found is None or found.manifest.dimensions != len(_vector(meaning)):
        return Vectors(now.chunks, now.revision, _SCAN_COST, _BY_ID_COST)
    changed = now.changed() if now.changes else None
    return Vectors(found.manifest.size, now.revision, _REPLICA_SCAN_COST, _REPLICA_BY_ID_COST, found, changed)
