"""Read-only transactions that give all statements of a result the same view of the data."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import psycopg
from django.db import connection, transaction


@contextmanager
def snapshot(timeout_ms: int = 0) -> Iterator[None]:
    """Isolate the statements of a block from concurrent writes. Statements longer than `timeout_ms` are cancelled."""
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    with _repeatable_read(), transaction.atomic():
        settings = ["SET LOCAL jit = off"] if _jit_is_on(connection.alias) else []
        settings += [f"SET LOCAL statement_timeout = {timeout_ms:d}"] if timeout_ms else []
        if settings:
            with connection.cursor() as cursor:
                cursor.execute("; ".join(settings))
        yield


@contextmanager
def _repeatable_read() -> Iterator[None]:
    """Make transactions REPEATABLE READ and read-only when they begin, without an extra statement."""
    connection.ensure_connection()
    raw: psycopg.Connection[object] = connection.connection
    with connection.wrap_database_errors:
        raw.isolation_level, raw.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
    try:
        yield
    finally:
        if connection.connection is not raw:
            # The connection went back to the pool, where its settings must not affect others.
            raw.close()
        elif not raw.closed:
            raw.isolation_level = raw.read_only = None


@cache
def _jit_is_on(alias: str) -> bool:
    """Whether the server uses JIT compilation, which takes longer than the statements of facets."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW jit")
        return bool(cursor.fetchone() == ("on",))
