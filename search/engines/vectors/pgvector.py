"""Vectors read from pgvector, by memory, all of them, or the nearest from the HNSW index, and which of them changed.

`memories_vectorchange` has a row for each revision of the vectors since the replica was made, as long as
`memories_corpus.replica` names a replica, recorded in the transactions that make the changes. Revisions are assigned
under the lock of the corpus row, which is held until the end of the transaction, so they are committed in order.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from cluster import estimated_rows
from memories.models import VectorChange
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


# Above this many changes, readers do not use the replica.
MAX_CHANGES = 200

_STANDING = """
SELECT {chunks}, vectors, replica,
       (SELECT count(*) FROM (SELECT FROM memories_vectorchange WHERE revision > %(known)s LIMIT %(most)s + 1) AS few),
       ARRAY(SELECT unnest(memory_ids) FROM (SELECT memory_ids FROM memories_vectorchange
             WHERE revision > %(known)s AND model_id = %(model)s ORDER BY revision LIMIT %(most)s) AS few)
FROM memories_corpus WHERE id = 1"""


@dataclass(frozen=True, slots=True)
class ChangeState:
    """The vectors of the database, compared with an earlier revision."""

    chunks: int = 0
    """Postgres' estimate of their number."""
    revision: int = 0
    replica: str = ""
    """The name of the replica that changes are recorded for."""
    changes: int = 0
    """Rows since that revision, counted up to the limit plus one."""
    memory_ids: tuple[int, ...] = ()
    """The memories whose vectors changed since; complete only if `changes` is within the limit."""

    def follows(self, name: str, known: int) -> bool:
        """Whether the recorded changes lead from revision `known` of this replica to now, without a gap."""
        return self.replica == name and 0 <= self.revision - known == self.changes

    def changed(self) -> Ids:
        return np.unique(np.array(self.memory_ids, np.int64))


def change_state(known: int = 0, model_id: int = 0, most: int = MAX_CHANGES) -> ChangeState:
    with connection.cursor() as cursor:
        statement = _STANDING.format(chunks=estimated_rows("memories_chunk"))
        cursor.execute(statement, {"known": known, "model": model_id, "most": most})
        row = cursor.fetchone()
    if row is None:
        return ChangeState()
    chunks, revision, replica, changes, ids = row
    return ChangeState(int(chunks), revision, replica, changes, tuple(ids))


def track_changes_for(replica: str) -> None:
    """Record changes for this replica from here on, and delete those recorded for another; with "", record none."""
    with connection.cursor() as cursor:
        # Waits for transactions that are about to commit vectors. A flushed database lacks the row.
        cursor.execute(
            "INSERT INTO memories_corpus (id, revision, replica) VALUES (1, 0, %s)"
            " ON CONFLICT (id) DO UPDATE SET replica = EXCLUDED.replica",
            [replica],
        )
        cursor.execute("DELETE FROM memories_vectorchange")


def delete_applied(revision: int) -> None:
    """Delete the changes up to a revision that the replica has on disk."""
    VectorChange.objects.filter(revision__lte=revision).delete()
