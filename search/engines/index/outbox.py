"""Changes not yet applied to the index, recorded by triggers in the same transactions.

While `memories_corpus.indexed` is set, `memories_outbox` has a row for each memory that a committed statement inserted,
changed or deleted, however it was made, and a single row for all memories of an import. Applying a change reads the
current state of the memory, so a change may be applied twice.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import OperationalError, connection, transaction
from django.db.models import Max
from psycopg.errors import LockNotAvailable

from memories.models import Memory, OutboxEntry

# An outbox row with this memory id means that the table was truncated. A negative id is that of an import batch.
EVERYTHING = 0


@dataclass(frozen=True, slots=True)
class Backlog:
    """Pending changes. `seconds` is the age of the oldest."""

    changes: int = 0
    seconds: float = 0.0


def backlog(at_most: int = 100_000) -> Backlog:
    """Count pending changes, in at most this many outbox rows."""
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
    """Whether changes are recorded, for which generation of the index, and the revision of the corpus.

    `seconds` is the age of the oldest pending change.
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
    """Whether changes are recorded."""
    return follow_state().indexed


def start_following() -> None:
    """Record changes from here on. Waits for transactions under way, so that theirs are recorded too."""
    while not is_followed():
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                # A transaction that has begun to change memories has checked whether to record it, or is about to.
                # Later ones queue behind this lock: only for these seconds, then it is tried again.
                cursor.execute("SET LOCAL lock_timeout = '2s'")
                cursor.execute("LOCK TABLE memories_memory IN SHARE MODE")
                # A flushed database lacks the row.
                cursor.execute(
                    "INSERT INTO memories_corpus (id, revision, indexed, generation) VALUES (1, 0, true, '')"
                    " ON CONFLICT (id) DO UPDATE SET indexed = true, generation = ''"
                )
        except OperationalError as error:
            if not isinstance(error.__cause__, LockNotAvailable):
                raise
            time.sleep(1)


def activate(generation: str, has: Sequence[int] = ()) -> None:
    """Record changes for this generation, so that no other answers for this database, and delete those that it has."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE memories_corpus SET generation = %s WHERE id = 1", [generation])
        delete_applied(has)


def stop_following() -> None:
    """Stop recording changes, and delete those recorded."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE memories_corpus SET indexed = false, generation = '' WHERE id = 1")
        cursor.execute("DELETE FROM memories_outbox")


def oldest(limit: int) -> tuple[list[int], list[int]]:
    """The ids of the oldest outbox rows, and their distinct memories in that order. The row of an import comes alone,
    once all before it are gone.
    """
    rows = list(OutboxEntry.objects.order_by("pk").values_list("pk", "memory_id")[:limit])
    ahead = next((at for at, row in enumerate(rows) if row[1] < 0), len(rows))
    rows = rows[: max(ahead, 1)]
    return [row[0] for row in rows], list(dict.fromkeys(row[1] for row in rows))


def newest() -> int:
    """The number of the newest pending change; 0 if there is none."""
    number: int = OutboxEntry.objects.aggregate(newest=Max("pk", default=0))["newest"]
    return number


def is_applied(number: int) -> bool:
    """Whether the index has all changes up to this one on disk."""
    return not OutboxEntry.objects.filter(pk__lte=number).exists()


def batch_memories(batch_id: int, after: int, limit: int) -> list[int]:
    """The memories of an import batch with ids above `after`, in order."""
    # Uses memory_batch_idx, or the primary key if most memories are of the batch.
    memories = Memory.objects.filter(batch_id=batch_id, pk__gt=after).order_by("pk")
    return list(memories.values_list("pk", flat=True)[:limit])


def pending_memories() -> set[int]:
    """Every memory with a pending change."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT memory_id FROM memories_outbox WHERE memory_id > 0 UNION SELECT memory.id FROM memories_outbox"
            " JOIN memories_memory memory ON memory.batch_id = -memory_id WHERE memory_id < 0"
        )
        return {row[0] for row in cursor.fetchall()}


def all_ids() -> list[int]:
    """All outbox rows that this transaction sees."""
    return list(OutboxEntry.objects.values_list("pk", flat=True))


def delete_applied(ids: Sequence[int]) -> None:
    """Delete outbox rows whose changes the index has on disk."""
    with connection.cursor() as cursor:
        for start in range(0, len(ids), 50_000):
            cursor.execute("DELETE FROM memories_outbox WHERE id = ANY(%s)", [list(ids[start : start + 50_000])])
