"""One view of the data for all statements of an answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import psycopg
from django.db import connection, transaction


@contextmanager
def snapshot(timeout_ms: int = 0) -> Iterator[None]:
    """A write in between cannot make numbers and rows differ. A statement that takes longer than said is cut off."""
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
    """Transactions read one moment and write nothing. Said as they begin: a statement of its own is waited for."""
    connection.ensure_connection()
    raw: psycopg.Connection[object] = connection.connection
    with connection.wrap_database_errors:
        raw.isolation_level, raw.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
    try:
        yield
    finally:
        if connection.connection is not raw:
            # It was given back to the pool meanwhile: nobody else is to read what was before, or to write in vain.
            raw.close()
        elif not raw.closed:
            raw.isolation_level = raw.read_only = None


@cache
def _jit_is_on(alias: str) -> bool:
    """Whether this server compiles large statements, which takes longer than to run those of facets. Asked once."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW jit")
        return bool(cursor.fetchone() == ("on",))
