"""Database transactions of the index: consistent reads, and the lock of the only follower."""

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

# The server may take a moment to notice that a process with the lock was killed.
FOLLOW_LOCK_TIMEOUT = "5s"


@contextmanager
def read_snapshot() -> Iterator[None]:
    """Read everything inside from one snapshot. Within an outer transaction, use the snapshot of that one."""
    outermost = not connection.in_atomic_block
    with transaction.atomic():
        if outermost:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


@contextmanager
def follower_lock() -> Iterator[Path]:
    """Hold the locks of the only writer of the index and the only follower of this database, on any machine.

    The advisory lock belongs to a transaction on a separate connection, so that it also works behind a transaction
    pooler. Raise WriterElsewhereError.
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
    """Another process applies the changes of this database to an index elsewhere."""
