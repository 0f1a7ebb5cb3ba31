"""How the writer of the index stands to the database: one moment of it, and one who follows it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from django.db import (
    DEFAULT_DB_ALIAS,
    DatabaseError,
    InterfaceError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from psycopg.errors import LockNotAvailable

from search.engines.index import store

# The key of the advisory lock: an outbox has one reader.
FOLLOW_LOCK = 0x6D6E656D78

# How long the lock is waited for: the server may take a moment to see that a process that had it was killed.
FOLLOW_LOCK_TIMEOUT = "5s"


@contextmanager
def read_snapshot() -> Iterator[None]:
    """One moment of the database for all that is read. Within a transaction of somebody else it is that one's."""
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


@contextmanager
def follower_lock() -> Iterator[Path]:
    """Be the one process that writes the index, and the one that follows this database, on whatever machine.

    The lock belongs to a transaction on a connection of its own, so that it also holds behind a transaction pooler.
    Raises WriterElsewhereError.
    """
    with store.writer_lock() as root:
        gate = connections.create_connection(DEFAULT_DB_ALIAS)
        try:
            gate.set_autocommit(False)
            with gate.cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [FOLLOW_LOCK_TIMEOUT])
                try:
                    cursor.execute("SELECT pg_advisory_xact_lock(%s)", [FOLLOW_LOCK])
                except OperationalError as error:
                    if not isinstance(error.__cause__, LockNotAvailable):
                        raise
                    raise FollowedElsewhereError("another process follows this database") from None
            yield root
        finally:
            with suppress(DatabaseError, InterfaceError):
                gate.rollback()
            gate.close()


class FollowedElsewhereError(store.WriterElsewhereError):
    """Another process takes in the changes of this database, for an index elsewhere."""
