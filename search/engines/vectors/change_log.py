"""Changes of vectors not yet applied to the replica, recorded in the transactions that make them.

`memories_vectorchange` has a row for each revision of the vectors since the replica was made, as long as
`memories_corpus.replica` names a replica. Revisions are assigned under the lock of the corpus row, which is held until
the end of the transaction, so they are committed in order.
"""

from dataclasses import dataclass

import numpy as np
from django.db import connection

from memories.models import VectorChange
from search.engines.base import Ids
from web.cache import RepeatedReads
from web.distribution import is_distributed

# Above this many changes, readers do not use the replica.
MAX_CHANGES = 200

_STANDING = """
SELECT {chunks}, vectors, replica,
       (SELECT count(*) FROM (SELECT FROM memories_vectorchange WHERE revision > %(known)s LIMIT %(most)s + 1) AS few),
       ARRAY(SELECT unnest(memory_ids) FROM (SELECT memory_ids FROM memories_vectorchange
             WHERE revision > %(known)s AND model_id = %(model)s ORDER BY revision LIMIT %(most)s) AS few)
FROM memories_corpus WHERE id = 1"""
_CHUNKS = "(SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'memories_chunk'::regclass)"
# In a cluster that table is empty: the estimates of its shards are asked for, which takes a question to every node.
_CHUNKS_ON_SHARDS = """
SELECT coalesce(sum(result::bigint), 0) FROM run_command_on_shards('memories_chunk',
  $$SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = '%s'::regclass$$) WHERE success"""
_on_shards = RepeatedReads[tuple[object, ...], int]()


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
    chunks = str(_chunks_on_shards()) if is_distributed() else _CHUNKS
    with connection.cursor() as cursor:
        cursor.execute(_STANDING.format(chunks=chunks), {"known": known, "model": model_id, "most": most})
        row = cursor.fetchone()
    if row is None:
        return ChangeState()
    chunks, revision, replica, changes, ids = row
    return ChangeState(int(chunks), revision, replica, changes, tuple(ids))


def _chunks_on_shards() -> int:
    """Postgres' estimate of the number of chunks in a cluster, read again after a while."""

    def read() -> int:
        with connection.cursor() as cursor:
            # Without parameters: the statement for a shard has a percent sign.
            cursor.execute(_CHUNKS_ON_SHARDS)
            return int(cursor.fetchone()[0])

    settings = connection.settings_dict
    return _on_shards.get((settings["HOST"], settings["PORT"], settings["NAME"]), object(), read)


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
