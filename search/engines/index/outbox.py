"""The changes that the derived index has yet to take in, written down by triggers with the changes themselves.

`memories_outbox` has a row for each memory that a committed statement made, changed or removed, by whatever door, while
`memories_corpus.indexed` is set; and one for all the memories together that an import has brought. What is taken in is
always the memory as it is now, so a row may be seen twice.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import OperationalError, connection, transaction
from psycopg.errors import LockNotAvailable

# A row with this memory's id stands for all of them: the table was truncated. One below it stands for all that the
# batch of that number has brought.
EVERYTHING = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """How far behind the index is. `seconds` is the age of the oldest change."""

    changes: int = 0
    seconds: float = 0.0


def backlog(at_most: int = 100_000) -> Backlog:
    """What waits, counted up to a limit of rows."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(coalesce(batch.created, 1)), 0)::bigint,"
            " coalesce(extract(epoch FROM clock_timestamp() - min(at)), 0)::float8"
            " FROM (SELECT memory_id, at FROM memories_outbox ORDER BY id LIMIT %s) waiting"
            " LEFT JOIN memories_importbatch batch ON batch.id = -waiting.memory_id",
            [at_most],
        )
        changes, seconds = cursor.fetchone()
        return Backlog(changes, max(0.0, seconds))


@dataclass(frozen=True, slots=True)
class FollowState:
    """Whether changes are written down, for which generation of the index, and the corpus' revision by now.

    `seconds` is the age of the oldest change that waits.
    """

    indexed: bool = False
    generation: str = ""
    revision: int = 0
    seconds: float = 0.0


def follow_state() -> FollowState:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT indexed, generation, revision, greatest(0, extract(epoch FROM clock_timestamp()"
            " - (SELECT at FROM memories_outbox ORDER BY id LIMIT 1)))::float8 FROM memories_corpus WHERE id = 1"
        )
        row = cursor.fetchone()
    return FollowState(*row) if row else FollowState()


def is_followed() -> bool:
    """Whether changes are written down."""
    return follow_state().indexed


def start_following() -> None:
    """From here on changes are written down: those of transactions under way too, for which this waits."""
    while not is_followed():
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                # Whoever has begun to change memories has looked whether to write it down, or is about to. Whoever
                # comes next waits behind this: not for longer than these seconds, and then it is tried again.
                cursor.execute("SET LOCAL lock_timeout = '2s'")
                cursor.execute("LOCK TABLE memories_memory IN SHARE MODE")
                # The one row may be missing: a database that was flushed has none.
                cursor.execute(
                    "INSERT INTO memories_corpus (id, revision, indexed, generation) VALUES (1, 0, true, '')"
                    " ON CONFLICT (id) DO UPDATE SET indexed = true, generation = ''"
                )
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            time.sleep(1)


def activate(generation: str, has: Sequence[int] = ()) -> None:
    """Say which generation of the index takes the changes in: no other one may answer for this database. What it has
    already is forgotten in the same moment.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE memories_corpus SET generation = %s WHERE id = 1", [generation])
        delete_applied(has)


def stop_following() -> None:
    """Changes are not written down any more, and those that were are forgotten."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE memories_corpus SET indexed = false, generation = '' WHERE id = 1")
        cursor.execute("DELETE FROM memories_outbox")


def oldest(limit: int) -> tuple[list[int], list[int]]:
    """The oldest rows: their ids, and the distinct memories that they are of, in that order. A row that stands for a
    batch comes alone, once all before it are gone.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, memory_id FROM memories_outbox ORDER BY id LIMIT %s", [limit])
        rows = cursor.fetchall()
    ahead = next((at for at, row in enumerate(rows) if row[1] < 0), len(rows))
    rows = rows[: max(ahead, 1)]
    return [row[0] for row in rows], list(dict.fromkeys(row[1] for row in rows))


def newest() -> int:
    """The number of the change that was written down last, of those that wait; 0 where none does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(max(id), 0) FROM memories_outbox")
        return int(cursor.fetchone()[0])


def is_applied(number: int) -> bool:
    """Whether all changes up to this one are in the index, and are on the disk there."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT NOT EXISTS (SELECT FROM memories_outbox WHERE id <= %s)", [number])
        return bool(cursor.fetchone()[0])


def batch_memories(batch_id: int, after: int, limit: int) -> list[int]:
    """The memories that a batch has brought, in the order of their ids, from after one of them on."""
    with connection.cursor() as cursor:
        # Through memory_batch_idx, or the primary key where most are of the batch.
        cursor.execute(
            "SELECT id FROM memories_memory WHERE batch_id = %s AND id > %s ORDER BY id LIMIT %s",
            [batch_id, after, limit],
        )
        return [row[0] for row in cursor.fetchall()]


def pending_memories() -> set[int]:
    """Every memory that has a change which waits."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT memory_id FROM memories_outbox WHERE memory_id > 0 UNION SELECT memory.id FROM memories_outbox"
            " JOIN memories_memory memory ON memory.batch_id = -memory_id WHERE memory_id < 0"
        )
        return {row[0] for row in cursor.fetchall()}


def pending_batches() -> set[int]:
    """The batches that wait: they have committed, and are not taken in."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT -memory_id FROM memories_outbox WHERE memory_id < 0")
        return {row[0] for row in cursor.fetchall()}


def all_ids() -> list[int]:
    """All rows that this transaction sees."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM memories_outbox")
        return [row[0] for row in cursor.fetchall()]


def delete_applied(ids: Sequence[int]) -> None:
    """Forget rows whose changes are in the index, and are on the disk there."""
    with connection.cursor() as cursor:
        for start in range(0, len(ids), 50_000):
            cursor.execute("DELETE FROM memories_outbox WHERE id = ANY(%s)", [list(ids[start : start + 50_000])])
