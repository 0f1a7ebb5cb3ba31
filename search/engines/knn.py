"""The memories nearest to a vector, read as far as an answer needs them, for every engine.

A set *by meaning* is the `limit` nearest of those that pass the filters, and none below the least similarity. All sets
of one answer are cut from one reading, so that they agree with each other. How it is read is chosen by what it costs:
the nearest of all from the HNSW index, deeper where many do not pass, the vectors of the few that pass, or every one.
Some of the vectors, kept in the process, tell beforehand whether there are as many as are asked for.

Vectors are read from pgvector or, where it stands beside the derived index, from their replica, which is an eighth of
the work: up to some 750,000 of them all are compared then, and the index is not asked.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Protocol

import numpy as np
import numpy.typing as npt

from search.engines.base import Ids, Neighbours, Similarities, VectorQuery
from search.engines.vectors import change_log, pgvector, replica
from search.engines.vectors.replica import Replica

# What it costs to compare one vector, in microseconds, measured on 200,000: read one after the other, all of a memory
# by its id, and as the next nearest of the HNSW index; and the first two in the replica. They only choose between
# ways, each of which gives the set as defined.
_SCAN_COST = 0.5
_BY_ID_COST = 2.7
_NEXT_COST = 35.0
_REPLICA_SCAN_COST = 0.06
_REPLICA_BY_ID_COST = 0.6
# One reading of all serves every set of an answer, of which there may be this many: what passes is read by its ids
# where that costs so much less.
_SETS = 4
# Chunks that are read for each memory that may be answered: one memory may have several among the nearest.
_CHUNKS_PER_MEMORY = 1.25
# How often the index is read, each time so much further at the least, before every vector is; and how many of the
# nearest count as much as the share of all that passes.
_MOST_READINGS = 4
_FURTHER = 4
_TRUSTED = 50
# So many chunks are looked at to guess how many there are down to the least similarity.
_SAMPLED = 4_096
# Readings are kept between answers, up to so many memories in all.
_KEPT_READINGS = 64
_KEPT_MEMORIES = 500_000


class Candidates(Protocol):
    """The memories that pass everything but the meaning, as an engine knows them."""

    def contains(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of the memories pass."""

    def count(self, most: int | None = None) -> int | None:
        """How many pass in all. None where they are more than `most`, and to count them all takes long."""

    def ids(self) -> Ids:
        """All that pass, in any order."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The nearest of all memories, in any order: everything down to the least similarity, or the first of it."""

    ids: Ids
    similarities: Similarities
    complete: bool
    # Whether it went down to the least similarity: there is no use in reading further.
    reached_min_similarity: bool = False


@dataclass(frozen=True, slots=True)
class _Vectors:
    """The vectors as they are now, and where they are read."""

    chunks: int
    """About how many there are."""
    revision: int
    scan_cost: float
    by_id_cost: float
    replica: Replica | None = None
    changed: Ids | None = None
    """The memories, in the order of their ids, that the replica has not taken in yet."""

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


# By model, vector, least similarity, revision of the vectors, and how many chunks were read: 0 for every one.
_Key = tuple[int, bytes, float, int, int]
_readings: OrderedDict[_Key, _Reading] = OrderedDict()
# Held by who makes a reading, for as long as that takes.
_turns: dict[_Key, Lock] = {}
# The model and the revision of the vectors, and some of them, of unit length.
_sample: tuple[tuple[int, ...], npt.NDArray[np.float32]] = ((), np.empty((0, 0), np.float32))
_lock = Lock()


def nearest_candidates(meaning: VectorQuery, passing: Candidates, *, replicated: bool = False) -> Neighbours:
    """The memories of a set by meaning: those that pass, down to the least similarity, and no more than the limit.

    With `replicated` they are read from the replica, if there is one. The same question over the same vectors is always
    read in the same way, so that pages fit together.
    """
    vectors = _vectors(meaning, replicated)
    size = vectors.chunks
    chunks = _depth(meaning.limit, 1.0)
    every = size * vectors.scan_cost
    if every <= _index_cost(chunks):
        # Who reads the replica counts what passes at once.
        few = passing.count() if vectors.replica is not None else None
        if few is not None and few * vectors.by_id_cost * _SETS <= every:
            return _read_passing(meaning, vectors, passing)
        return _among(meaning, _read_every(meaning, vectors), passing)
    # No more than the index would have cost are read by their ids without asking it.
    count = passing.count(math.ceil(_index_cost(chunks) / vectors.by_id_cost))
    if count is not None:
        if count * vectors.by_id_cost <= _index_cost(chunks):
            return _read_passing(meaning, vectors, passing)
        chunks = _depth(meaning.limit, count / max(size, count))
    # Where fewer pass than are asked for the index has to be read to the end, and in vain: it may miss some.
    fills = _share_of_all(meaning, vectors) * (size if count is None else count) >= meaning.limit
    for _ in range(_MOST_READINGS if fills else 0):
        if _index_cost(chunks) >= min(math.inf if count is None else count * vectors.by_id_cost, every):
            break
        reading = _read_first(meaning, chunks, vectors)
        near = _among(meaning, reading, passing)
        # The index may miss some: that there are no more is not to be learnt from it.
        if near.truncated:
            return near
        count = passing.count() or 0 if count is None else count
        if reading.reached_min_similarity:
            break
        # As if what passes lay among the nearest as it lies among all, and a little as it does among those read.
        share = (len(near.ids) + _TRUSTED * count / max(size, count, 1)) / (len(reading.ids) + _TRUSTED)
        chunks = max(_FURTHER * chunks, _depth(meaning.limit, share))
    count = passing.count() or 0 if count is None else count
    if count * vectors.by_id_cost <= every:
        return _read_passing(meaning, vectors, passing)
    return _among(meaning, _read_every(meaning, vectors), passing)


def similarities_of(meaning: VectorQuery, ids: Sequence[int], *, replicated: bool = False) -> dict[int, float]:
    """How near each of some memories is, whatever the least similarity; those that have no vector yet are left out."""
    if not ids:
        return {}
    asked = replace(meaning, min_similarity=-1.0)
    if replicated:
        found, similarities = _vectors(meaning, replicated).by_ids(asked, np.array(ids, np.int64))
    else:
        found, similarities = pgvector.by_ids(asked, ids)
    return dict(zip(found.tolist(), similarities.tolist(), strict=True))


def _depth(limit: int, share: float) -> int:
    """How many chunks to read for so many memories of which a share passes: few may lie worse than the average."""
    needed = math.ceil(_CHUNKS_PER_MEMORY * limit * (1 + 2 / math.sqrt(limit)) / max(share, 1e-9))
    # The index looks at more than that anyway.
    return max(needed, pgvector.MIN_EF_SEARCH // pgvector.EF_PER_CHUNK)


def _index_cost(chunks: int) -> float:
    return max(chunks, pgvector.ef_search(chunks)) * _NEXT_COST


def _share_of_all(meaning: VectorQuery, vectors: _Vectors) -> float:
    """About which share of all chunks is down to the least similarity, by some of them."""
    global _sample
    key = (meaning.model_id, vectors.revision)
    known, some = _sample
    vector = _vector(meaning)
    if known != key:
        packed = pgvector.sample(meaning.model_id, min(100.0, 100 * _SAMPLED / max(vectors.chunks, 1)))
        some = np.frombuffer(packed, ">f2").astype(np.float32).reshape(-1, len(vector))
        some /= np.maximum(np.linalg.norm(some, axis=1, keepdims=True), 1e-6)
        _sample = (key, some)
    near = some @ vector >= meaning.min_similarity * np.linalg.norm(vector)
    return float(np.count_nonzero(near) / max(len(some), 1))


def _vector(meaning: VectorQuery) -> npt.NDArray[np.float32]:
    return np.frombuffer(meaning.vector, np.float32)


def clear_readings() -> None:
    """Drop what was read for questions that may come again."""
    with _lock:
        _readings.clear()


def clear_cache() -> None:
    """Drop all that is kept. For tests, whose transactions take the revision back."""
    global _sample
    clear_readings()
    _sample = ((), np.empty((0, 0), np.float32))


def _read_passing(meaning: VectorQuery, vectors: _Vectors, passing: Candidates) -> Neighbours:
    if (every := _known(_key(meaning, vectors, 0))) is not None:
        return _among(meaning, every, passing)
    return _nearest_of(meaning, *vectors.by_ids(meaning, passing.ids()))


def _among(meaning: VectorQuery, reading: _Reading, passing: Candidates) -> Neighbours:
    """What of a reading passes. Of one that is not complete, only a full set says anything."""
    passes = passing.contains(reading.ids)
    ids, similarities = reading.ids[passes], reading.similarities[passes]
    return _nearest_of(meaning, ids, similarities, complete=reading.complete)


def _nearest_of(meaning: VectorQuery, ids: Ids, similarities: Similarities, *, complete: bool = True) -> Neighbours:
    """The first of them, the nearest first and of equal ones the newest."""
    found = len(ids)
    truncated = found > meaning.limit or (found == meaning.limit and not complete)
    if found > meaning.limit > 0:
        lowest = np.partition(similarities, found - meaning.limit)[found - meaning.limit]
        kept = similarities >= lowest
        ids, similarities = ids[kept], similarities[kept]
    order = np.lexsort((-ids, -similarities))[: meaning.limit]
    return Neighbours(ids[order], similarities[order], truncated)


def _read_every(meaning: VectorQuery, vectors: _Vectors) -> _Reading:
    return _kept(_key(meaning, vectors, 0), lambda: _Reading(*vectors.scan(meaning), complete=True))


def _read_first(meaning: VectorQuery, chunks: int, vectors: _Vectors) -> _Reading:
    def read() -> _Reading:
        ids, similarities, reached_min_similarity = pgvector.hnsw_nearest(meaning, chunks)
        return _Reading(ids, similarities, complete=False, reached_min_similarity=reached_min_similarity)

    return _kept(_key(meaning, vectors, chunks), read)


def _kept(key: _Key, read: Callable[[], _Reading]) -> _Reading:
    """A reading, from the cache where no vector has changed since. Who asks while another reads it waits for that."""
    if (found := _known(key)) is not None:
        return found
    with _lock:
        turn = _turns.setdefault(key, Lock())
    try:
        with turn:
            found = _known(key) or read()
            _keep(key, found)
    finally:
        with _lock:
            _turns.pop(key, None)
    return found


def _known(key: _Key) -> _Reading | None:
    with _lock:
        if key in _readings:
            _readings.move_to_end(key)
        return _readings.get(key)


def _keep(key: _Key, found: _Reading) -> None:
    with _lock:
        _readings[key] = found
        kept = sum(len(reading.ids) for reading in _readings.values())
        while len(_readings) > 1 and (len(_readings) > _KEPT_READINGS or kept > _KEPT_MEMORIES):
            kept -= len(_readings.popitem(last=False)[1].ids)


def _key(meaning: VectorQuery, vectors: _Vectors, chunks: int) -> _Key:
    return (meaning.model_id, meaning.vector, meaning.min_similarity, vectors.revision, chunks)


def _vectors(meaning: VectorQuery, replicated: bool) -> _Vectors:
    found, now = replica.serving_replica(meaning.model_id) if replicated else (None, change_log.change_state())
    if found is None or found.manifest.dimensions != len(_vector(meaning)):
        return _Vectors(now.chunks, now.revision, _SCAN_COST, _BY_ID_COST)
    changed = now.changed() if now.changes else None
    return _Vectors(found.manifest.rows, now.revision, _REPLICA_SCAN_COST, _REPLICA_BY_ID_COST, found, changed)
