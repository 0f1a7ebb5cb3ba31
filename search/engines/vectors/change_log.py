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

# Above this many changes, readers do not use the replica.
MAX_CHANGES = 200

_STANDING = """
SELECT (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'memories_chunk'::regclass), vectors, replica,
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
        cursor.execute(_STANDING, {"known": known, "model": model_id, "most": most})
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
