"""The changes of vectors that the replica has yet to take in, written down in the transactions that make them.

`memories_vectorchange` has a row for each revision of the vectors since the replica was made, as long as
`memories_corpus.replica` names one. Revisions are given under the lock of the corpus, which is held until the end, so
they are committed in their order.
"""

from dataclasses import dataclass

import numpy as np
from django.db import connection

from search.engines.base import Ids

# More of them than this are not read one by one.
MAX_CHANGES = 200

_STANDING = """
SELECT (SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'memories_chunk'::regclass), vectors, replica,
       (SELECT count(*) FROM (SELECT FROM memories_vectorchange WHERE revision > %(known)s LIMIT %(most)s + 1) AS few),
       ARRAY(SELECT unnest(memory_ids) FROM (SELECT memory_ids FROM memories_vectorchange
             WHERE revision > %(known)s AND model_id = %(model)s ORDER BY revision LIMIT %(most)s) AS few)
FROM memories_corpus WHERE id = 1"""


@dataclass(frozen=True, slots=True)
class ChangeState:
    """How the vectors stand by now, seen from a revision of before."""

    chunks: int = 0
    """About how many there are, as Postgres last estimated."""
    revision: int = 0
    replica: str = ""
    """The replica that changes are written down for."""
    changes: int = 0
    """How many rows there are since, counted to one above the most."""
    memory_ids: tuple[int, ...] = ()
    """The memories whose vectors changed since, if all of them were read."""

    def follows(self, name: str, known: int) -> bool:
        """Whether a replica that was up to date at a revision can be brought up to date by what was written down."""
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
    """Name the replica that changes are written down for from here on, those of transactions under way too; none where
    the name is empty. What was written down for another is forgotten.
    """
    with connection.cursor() as cursor:
        # Waits for who is about to commit vectors. The one row may be missing: a database that was flushed has none.
        cursor.execute(
            "INSERT INTO memories_corpus (id, revision, replica) VALUES (1, 0, %s)"
            " ON CONFLICT (id) DO UPDATE SET replica = EXCLUDED.replica",
            [replica],
        )
        cursor.execute("DELETE FROM memories_vectorchange")


def delete_applied(revision: int) -> None:
    """Forget the changes up to a revision: they are in the replica, and are on the disk there."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM memories_vectorchange WHERE revision <= %s", [revision])
