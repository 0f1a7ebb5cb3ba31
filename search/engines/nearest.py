"""The memories nearest to a vector, read from pgvector as far as an answer needs them, for every engine.

A set *by meaning* is the `limit` nearest of those that pass the filters, and none below the least similarity. All sets
of one answer are cut from one reading, so that they agree with each other. How it is read is chosen by what it costs:
the nearest of all from the HNSW index, deeper where many do not pass, the vectors of the few that pass, or every one.
Some of the vectors, kept in the process, tell beforehand whether there are as many as are asked for.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from search.engines.base import Ids, Meaning, Near, Similarities

# What it costs to compare one vector, in microseconds, measured on 200,000: read one after the other, all of a memory
# by its id, and as the next nearest of the HNSW index. They only choose between ways, each of which gives the set as
# defined.
_SCAN_COST = 0.5
_BY_ID_COST = 2.7
_NEXT_COST = 35.0
# Chunks that are read for each memory that may be answered: one memory may have several among the nearest.
_CHUNKS_PER_MEMORY = 1.25
# How often the index is read, each time so much further at the least, before every vector is; and how many of the
# nearest count as much as the share of all that passes.
_MOST_READINGS = 4
_FURTHER = 4
_TRUSTED = 50
# The index looks at so many at once for each that is read, within bounds: those at the edge of what it looks at it
# misses most. Where that is not enough it goes on (iterative scan). The least is what finds 99 of 100 of the first ten.
_AT_ONCE = 2
_LEAST_AT_ONCE = 400
_MOST_AT_ONCE = 1_000
_MOST_SCANNED = 2_000_000
# So many chunks are looked at to guess how many there are down to the least similarity.
_SAMPLED = 4_096
# Readings are kept between answers, up to so many memories in all.
_KEPT_READINGS = 64
_KEPT_MEMORIES = 500_000

_NEAREST = """
SELECT memory_id, (1 - (embedding <=> %(vector)s::halfvec))::real AS similarity FROM memories_chunk
WHERE model_id = %(model)s {which}"""
# Two columns of all rows at once, as bytes: thousands of rows are read in the time of a hundred.
_PACKED = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(float4send(similarity), ''::bytea)
FROM ({rows}) AS near WHERE similarity >= %(least)s"""
# The primary key is led by the memory. The ids come as the text of an array: psycopg takes longer to write a list out
# than Postgres to find its rows.
_BY_ID = _PACKED.format(rows=_NEAREST.format(which="AND memory_id = ANY(%(ids)s::bigint[])"))
_EVERY = _PACKED.format(rows=_NEAREST.format(which=""))
# chunk_embedding_hnsw
_FIRST = _PACKED.format(rows=_NEAREST.format(which="ORDER BY embedding <=> %(vector)s::halfvec LIMIT %(chunks)s"))
# A head of four bytes, then halves; always the same rows of the same table, so that every process guesses alike.
_SAMPLE = """
SELECT string_agg(substr(halfvec_send(embedding), 5), ''::bytea)
FROM memories_chunk TABLESAMPLE SYSTEM (%(percent)s) REPEATABLE (0) WHERE model_id = %(model)s"""
_INDEX_SETTINGS = """
SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'strict_order', true),
       set_config('hnsw.max_scan_tuples', %s, true), set_config('hnsw.scan_mem_multiplier', '8', true),
       set_config('enable_seqscan', 'off', true)"""


class Passing(Protocol):
    """The memories that pass everything but the meaning, as an engine knows them."""

    def among(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Which of the memories pass."""

    def count(self, most: int | None = None) -> int | None:
        """How many pass in all. None where they are more than `most`, and to count them all takes long."""

    def ids(self) -> Ids:
        """All that pass, in any order."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The nearest of all memories: everything down to the least similarity, or the first of it."""

    ids: Ids
    similarities: Similarities
    complete: bool
    # Whether it went down to the least similarity: there is no use in reading further.
    reached_least: bool = False


# By model, vector, least similarity, revision of the vectors, and how many chunks were read: 0 for every one.
_Key = tuple[int, bytes, float, int, int]
_readings: OrderedDict[_Key, _Reading] = OrderedDict()
# Held by who makes a reading, for as long as that takes.
_turns: dict[_Key, Lock] = {}
# The model and the revision of the vectors, and some of them, of unit length.
_sample: tuple[tuple[int, ...], npt.NDArray[np.float32]] = ((), np.empty((0, 0), np.float32))
_lock = Lock()


def nearest_passing(meaning: Meaning, passing: Passing) -> Near:
    """The memories of a set by meaning: those that pass, down to the least similarity, and no more than the limit.

    The same question over the same vectors is always read in the same way, so that pages fit together.
    """
    size, revision = _vectors()
    chunks = _depth(meaning.limit, 1.0)
    if size * _SCAN_COST <= _index_cost(chunks):
        return _among(meaning, _read_every(meaning, revision), passing)
    # No more than the index would have cost are read by their ids without asking it.
    count = passing.count(math.ceil(_index_cost(chunks) / _BY_ID_COST))
    if count is not None:
        if count * _BY_ID_COST <= _index_cost(chunks):
            return _read_passing(meaning, revision, passing)
        chunks = _depth(meaning.limit, count / max(size, count))
    # Where fewer pass than are asked for the index has to be read to the end, and in vain: it may miss some.
    fills = _share_of_all(meaning, size, revision) * (size if count is None else count) >= meaning.limit
    for _ in range(_MOST_READINGS if fills else 0):
        if _index_cost(chunks) >= min(math.inf if count is None else count * _BY_ID_COST, size * _SCAN_COST):
            break
        reading = _read_first(meaning, chunks, revision)
        near = _among(meaning, reading, passing)
        # The index may miss some: that there are no more is not to be learnt from it.
        if near.capped:
            return near
        count = passing.count() or 0 if count is None else count
        if reading.reached_least:
            break
        # As if what passes lay among the nearest as it lies among all, and a little as it does among those read.
        share = (len(near.ids) + _TRUSTED * count / max(size, count, 1)) / (len(reading.ids) + _TRUSTED)
        chunks = max(_FURTHER * chunks, _depth(meaning.limit, share))
    count = passing.count() or 0 if count is None else count
    if count * _BY_ID_COST <= size * _SCAN_COST:
        return _read_passing(meaning, revision, passing)
    return _among(meaning, _read_every(meaning, revision), passing)


def _depth(limit: int, share: float) -> int:
    """How many chunks to read for so many memories of which a share passes: few may lie worse than the average."""
    needed = math.ceil(_CHUNKS_PER_MEMORY * limit * (1 + 2 / math.sqrt(limit)) / max(share, 1e-9))
    # The index looks at more than that anyway.
    return max(needed, _LEAST_AT_ONCE // _AT_ONCE)


def _at_once(chunks: int) -> int:
    return min(max(_LEAST_AT_ONCE, _AT_ONCE * chunks), _MOST_AT_ONCE)


def _index_cost(chunks: int) -> float:
    return max(chunks, _at_once(chunks)) * _NEXT_COST


def _share_of_all(meaning: Meaning, size: int, revision: int) -> float:
    """About which share of all chunks is down to the least similarity, by some of them."""
    global _sample
    key = (meaning.model_id, revision)
    known, vectors = _sample
    vector = np.frombuffer(meaning.vector, np.float32)
    if known != key:
        with connection.cursor() as cursor:
            percent = min(100.0, 100 * _SAMPLED / max(size, 1))
            cursor.execute(_SAMPLE, {"percent": percent, "model": meaning.model_id})
            (packed,) = cursor.fetchone()
        vectors = np.frombuffer(packed or b"", ">f2").astype(np.float32).reshape(-1, len(vector))
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6)
        _sample = (key, vectors)
    near = vectors @ vector >= meaning.least * np.linalg.norm(vector)
    return float(np.count_nonzero(near) / max(len(vectors), 1))


def _read_passing(meaning: Meaning, revision: int, passing: Passing) -> Near:
    if (every := _known(_key(meaning, revision, 0))) is not None:
        return _among(meaning, every, passing)
    ids, similarities, _ = _read(_BY_ID, meaning, ids=_array_text(passing.ids().tolist()))
    return Near(ids[: meaning.limit], similarities[: meaning.limit], len(ids) > meaning.limit)


def similarities_of(meaning: Meaning, ids: Sequence[int]) -> dict[int, float]:
    """How near each of some memories is, whatever the least similarity; those that have no vector yet are left out."""
    if not ids:
        return {}
    found, similarities, _ = _read(_BY_ID, replace(meaning, least=-1.0), ids=_array_text(ids))
    return dict(zip(found.tolist(), similarities.tolist(), strict=True))


def vector_text(meaning: Meaning) -> str:
    """The vector as Postgres reads it."""
    return "[" + ",".join(map(str, np.frombuffer(meaning.vector, np.float32).tolist())) + "]"


def _array_text(ids: Iterable[int]) -> str:
    return "{" + ",".join(map(str, ids)) + "}"


def forget() -> None:
    """Drop what is kept. For tests, whose transactions take the revision back."""
    global _sample
    with _lock:
        _readings.clear()
    _sample = ((), np.empty((0, 0), np.float32))


def _among(meaning: Meaning, reading: _Reading, passing: Passing) -> Near:
    """What of a reading passes. Of one that is not complete, only a full set says anything."""
    passes = passing.among(reading.ids)
    ids, similarities = reading.ids[passes], reading.similarities[passes]
    capped = len(ids) > meaning.limit or (len(ids) == meaning.limit and not reading.complete)
    return Near(ids[: meaning.limit], similarities[: meaning.limit], capped)


def _read_every(meaning: Meaning, revision: int) -> _Reading:
    return _kept(meaning, revision, 0, lambda: _every(meaning))


def _read_first(meaning: Meaning, chunks: int, revision: int) -> _Reading:
    return _kept(meaning, revision, chunks, lambda: _first(meaning, chunks))


def _every(meaning: Meaning) -> _Reading:
    ids, similarities, _ = _read(_EVERY, meaning)
    return _Reading(ids, similarities, complete=True)


def _first(meaning: Meaning, chunks: int) -> _Reading:
    with transaction.atomic(savepoint=False):
        with connection.cursor() as cursor:
            cursor.execute(_INDEX_SETTINGS, [str(_at_once(chunks)), str(_MOST_SCANNED)])
        ids, similarities, read = _read(_FIRST, meaning, chunks=chunks)
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('enable_seqscan', 'on', true)")
    return _Reading(ids, similarities, complete=False, reached_least=read < chunks)


def _read(statement: str, meaning: Meaning, **parameters: int | str) -> tuple[Ids, Similarities, int]:
    """What a statement finds: each memory once, by its nearest chunk, the nearest first; and of how many chunks."""
    bound: dict[str, Any] = {
        "vector": vector_text(meaning),
        "model": meaning.model_id,
        "least": meaning.least,
        **parameters,
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, bound)
        packed_ids, packed_similarities = cursor.fetchone()
    ids = np.frombuffer(packed_ids or b"", ">i8").astype(np.int64)
    similarities = np.frombuffer(packed_similarities or b"", ">f4").astype(np.float32)
    order = np.lexsort((-ids, -similarities))
    ids, similarities = ids[order], similarities[order]
    chunks = len(ids)
    _, nearest = np.unique(ids, return_index=True)
    nearest.sort()
    return ids[nearest], similarities[nearest], chunks


def _kept(meaning: Meaning, revision: int, chunks: int, read: Callable[[], _Reading]) -> _Reading:
    """A reading, from the cache where no vector has changed since. Who asks while another reads it waits for that."""
    key = _key(meaning, revision, chunks)
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


def _key(meaning: Meaning, revision: int, chunks: int) -> _Key:
    return (meaning.model_id, meaning.vector, meaning.least, revision, chunks)


def _vectors() -> tuple[int, int]:
    """About how many chunks there are, as Postgres last estimated, and the revision of their vectors."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'memories_chunk'::regclass), vectors"
            " FROM memories_corpus WHERE id = 1"
        )
        size, revision = cursor.fetchone()
    return int(size), revision
