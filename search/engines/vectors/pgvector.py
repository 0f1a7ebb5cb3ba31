"""The vectors as pgvector has them: read by memory, all of them, or the nearest first from the HNSW index."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from search.engines.base import Ids, Similarities, VectorQuery

# The index looks at so many at once for each that is read, within bounds: those at the edge of what it looks at it
# misses most. Where that is not enough it goes on (iterative scan). The least is what finds 99 of 100 of the first ten.
EF_PER_CHUNK = 2
MIN_EF_SEARCH = 400
_MAX_EF_SEARCH = 1_000
_MAX_SCANNED = 2_000_000

_NEAREST = """
SELECT memory_id, (1 - (embedding <=> %(vector)s::halfvec))::real AS similarity FROM memories_chunk
WHERE model_id = %(model)s {which}"""
# Two columns of all rows at once, as bytes: thousands of rows are read in the time of a hundred. Above 1 is what is no
# number: how near a vector without a direction is.
_PACKED = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(float4send(similarity), ''::bytea)
FROM ({rows}) AS near WHERE similarity BETWEEN %(min_similarity)s AND 1"""
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


def ef_search(chunks: int) -> int:
    """How many the index looks at for so many."""
    return min(max(MIN_EF_SEARCH, EF_PER_CHUNK * chunks), _MAX_EF_SEARCH)


def vector_text(meaning: VectorQuery) -> str:
    """The vector as Postgres reads it."""
    return "[" + ",".join(map(str, np.frombuffer(meaning.vector, np.float32).tolist())) + "]"


def scan(meaning: VectorQuery) -> tuple[Ids, Similarities]:
    """All memories down to the least similarity: each once, by its nearest chunk."""
    ids, similarities, _ = _read(_EVERY, meaning)
    return ids, similarities


def by_ids(meaning: VectorQuery, ids: Iterable[int]) -> tuple[Ids, Similarities]:
    """Those of some memories."""
    found, similarities, _ = _read(_BY_ID, meaning, ids="{" + ",".join(map(str, ids)) + "}")
    return found, similarities


@contextmanager
def hnsw_scan(ef: int) -> Iterator[None]:
    """Within, the nearest are read from the HNSW index, which looks at so many at once, and on until there are enough.

    Without that, rows that were deleted or changed and not yet vacuumed, and those of another model, which stand in the
    index too, may hide all that there is.
    """
    with transaction.atomic(savepoint=False):
        with connection.cursor() as cursor:
            cursor.execute(_INDEX_SETTINGS, [str(ef), str(_MAX_SCANNED)])
        yield
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('enable_seqscan', 'on', true)")


def hnsw_nearest(meaning: VectorQuery, chunks: int) -> tuple[Ids, Similarities, bool]:
    """What the index gives of so many chunks, and whether these went down to the least similarity."""
    with hnsw_scan(ef_search(chunks)):
        ids, similarities, read = _read(_FIRST, meaning, chunks=chunks)
    return ids, similarities, read < chunks


def sample(model_id: int, percent: float) -> bytes:
    """Some of the vectors of a model, one after the other, as halves with the most significant byte first."""
    with connection.cursor() as cursor:
        cursor.execute(_SAMPLE, {"percent": percent, "model": model_id})
        (packed,) = cursor.fetchone()
    return packed or b""


def _read(statement: str, meaning: VectorQuery, **parameters: int | str) -> tuple[Ids, Similarities, int]:
    """What a statement finds: each memory once, by its nearest chunk; and of how many chunks."""
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
    """Each memory once, by its nearest chunk, in the order of their ids."""
    if len(ids) > 1 and not bool(np.all(ids[1:] >= ids[:-1])):
        order = np.argsort(ids, kind="stable")
        ids, similarities = ids[order], similarities[order]
    starts: npt.NDArray[np.int64] = np.flatnonzero(np.diff(ids, prepend=-1))
    if len(starts) == len(ids):
        return ids, similarities
    return ids[starts], np.maximum.reduceat(similarities, starts)
