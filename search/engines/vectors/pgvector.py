"""Vectors read from pgvector: by memory, all of them, or the nearest from the HNSW index."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from search.engines.base import Ids, Similarities, VectorQuery

# ef_search grows with the chunks to read, within bounds, because recall is lowest at the edge of the examined set; an
# iterative scan goes on where that is not enough. The minimum finds 99 of 100 of the first ten.
EF_PER_CHUNK = 2
MIN_EF_SEARCH = 400
_MAX_EF_SEARCH = 1_000
_MAX_SCANNED = 2_000_000

_NEAREST = """
SELECT memory_id, (1 - (embedding <=> %(vector)s::halfvec))::real AS similarity FROM memories_chunk
WHERE model_id = %(model)s {which}"""
# Two columns of all rows as bytes: thousands of rows are read in the time of a hundred. Similarities above 1 are NaN,
# those of zero vectors.
_PACKED = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(float4send(similarity), ''::bytea)
FROM ({rows}) AS near WHERE similarity BETWEEN %(min_similarity)s AND 1"""
# The primary key begins with the memory. The ids are passed as the text of an array, because psycopg takes longer to
# adapt a list than Postgres to find its rows.
_BY_ID = _PACKED.format(rows=_NEAREST.format(which="AND memory_id = ANY(%(ids)s::bigint[])"))
_EVERY = _PACKED.format(rows=_NEAREST.format(which=""))
# chunk_embedding_hnsw
_FIRST = _PACKED.format(rows=_NEAREST.format(which="ORDER BY embedding <=> %(vector)s::halfvec LIMIT %(chunks)s"))
# A header of four bytes, then halves. Repeatable, so that every process estimates alike.
_SAMPLE = """
SELECT string_agg(substr(halfvec_send(embedding), 5), ''::bytea)
FROM memories_chunk TABLESAMPLE SYSTEM (%(percent)s) REPEATABLE (0) WHERE model_id = %(model)s"""
_INDEX_SETTINGS = """
SELECT set_config('hnsw.ef_search', %s, true), set_config('hnsw.iterative_scan', 'strict_order', true),
       set_config('hnsw.max_scan_tuples', %s, true), set_config('hnsw.scan_mem_multiplier', '8', true),
       set_config('enable_seqscan', 'off', true)"""


def ef_search(chunks: int) -> int:
    """The value of hnsw.ef_search for reading this many chunks."""
    return min(max(MIN_EF_SEARCH, EF_PER_CHUNK * chunks), _MAX_EF_SEARCH)


def vector_text(meaning: VectorQuery) -> str:
    """The vector in Postgres' text format."""
    return "[" + ",".join(map(str, np.frombuffer(meaning.vector, np.float32).tolist())) + "]"


def scan(meaning: VectorQuery) -> tuple[Ids, Similarities]:
    """All memories at or above the minimum similarity, each once, by its nearest chunk."""
    ids, similarities, _ = _read(_EVERY, meaning)
    return ids, similarities


def by_ids(meaning: VectorQuery, ids: Iterable[int]) -> tuple[Ids, Similarities]:
    """The same for some memories."""
    found, similarities, _ = _read(_BY_ID, meaning, ids="{" + ",".join(map(str, ids)) + "}")
    return found, similarities


@contextmanager
def hnsw_scan(ef: int) -> Iterator[None]:
    """Read from the HNSW index inside, with this ef_search, and iterate until enough rows are found.

    Without iteration, dead rows that are not vacuumed yet, and rows of other models, which share the index, could hide
    all results.
    """
    with transaction.atomic(savepoint=False):
        with connection.cursor() as cursor:
            cursor.execute(_INDEX_SETTINGS, [str(ef), str(_MAX_SCANNED)])
        yield
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('enable_seqscan', 'on', true)")


def hnsw_nearest(meaning: VectorQuery, chunks: int) -> tuple[Ids, Similarities, bool]:
    """The nearest memories by this many chunks, and whether the chunks went down to the minimum similarity."""
    with hnsw_scan(ef_search(chunks)):
        ids, similarities, read = _read(_FIRST, meaning, chunks=chunks)
    return ids, similarities, read < chunks


def sample(model_id: int, percent: float) -> bytes:
    """A random sample of a model's vectors, concatenated as big-endian halves."""
    with connection.cursor() as cursor:
        cursor.execute(_SAMPLE, {"percent": percent, "model": model_id})
        (packed,) = cursor.fetchone()
    return packed or b""


def _read(statement: str, meaning: VectorQuery, **parameters: int | str) -> tuple[Ids, Similarities, int]:
    """Each memory once, by its nearest chunk, and the number of chunks read."""
    bound: dict[str, Any] = {
        "vector": vector_text(meaning),
        "model": meaning.model_id,
        "min_similarity": meaning.min_similarity,
        **parameters,
    }
    with connection.cursor() as cursor:
        cursor.execute(statement, bound)
        packed_ids, packed_similarities = cursor.fetchone()
    ids = np.frombuffer(packed_ids or b"", ">i8").astype(np.int64)
    similarities = np.frombuffer(packed_similarities or b"", ">f4").astype(np.float32)
    return *by_memory(ids, similarities), len(ids)


def by_memory(ids: Ids, similarities: Similarities) -> tuple[Ids, Similarities]:
    """Reduce chunks to memories by the highest similarity; sorted by id."""
    if len(ids) > 1 and not bool(np.all(ids[1:] >= ids[:-1])):
        order = np.argsort(ids, kind="stable")
        ids, similarities = ids[order], similarities[order]
    starts: npt.NDArray[np.int64] = np.flatnonzero(np.diff(ids, prepend=-1))
    if len(starts) == len(ids):
        return ids, similarities
    return ids[starts], np.maximum.reduceat(similarities, starts)
