"""A database of the bench's own on the configured server, marked as such: nothing unmarked is ever dropped."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.db.backends.postgresql.base import DatabaseWrapper

_MARK = "made by python -m bench"

# What one memory takes up, with its links and all of their indexes.
_TABLES = (
    "memories_memory",
    "memories_memorylink",
    "categories_categorylink",
    "categories_conceptlink",
    "categories_entitylink",
)
_SIZES = """
SELECT sum(pg_table_size(c.oid)) FILTER (WHERE c.relname = 'memories_memory'),
       sum(pg_indexes_size(c.oid)) FILTER (WHERE c.relname = 'memories_memory'),
       sum(pg_total_relation_size(c.oid)) FILTER (WHERE c.relname <> 'memories_memory'),
       pg_database_size(current_database())
FROM pg_class c WHERE c.relname = ANY(%s)
"""


class DatabaseTakenError(Exception):
    """There is a database of that name that the bench did not make."""


@contextmanager
def bench_database(name: str, *, keep: bool, contents: str, reuse: bool) -> Iterator[bool]:
    """Have every connection of this process lead to the database until the end; gives whether it is loaded already.

    One with the same contents that may be reused is taken as it is; any other is made anew, and migrated.
    """
    usual = connection.settings_dict["NAME"]
    if usual == name:
        raise DatabaseTakenError(f"{name} is the database in use: name another in DATABASE_URL.")
    loaded = reuse and _mark(name) == f"{_MARK}: {contents}"
    if not loaded:
        _drop(name)
    try:
        if not loaded:
            _make(name)
        _lead_to(name)
        call_command("migrate", interactive=False, verbosity=0)
        yield loaded
    finally:
        _lead_to(usual)
        if not keep:
            _drop(name)


def _make(name: str) -> None:
    quoted = connection.ops.quote_name(name)
    with connection._nodb_cursor() as cursor:
        # The order of names is that of the bytes everywhere, so that a run means the same on every server.
        cursor.execute(f"CREATE DATABASE {quoted} TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C'")
        cursor.execute(f"COMMENT ON DATABASE {quoted} IS '{_MARK}'")


def mark_loaded(name: str, contents: str) -> None:
    """Write down what is in the database, for a later run to know it by."""
    with connection.cursor() as cursor:
        comment = f"COMMENT ON DATABASE {connection.ops.quote_name(name)} IS %s"
        cursor.execute(comment, [f"{_MARK}: {contents}"])


def tidy_database() -> None:
    """What autovacuum would have done within minutes: statistics, the visibility map, pending index entries."""
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")


def database_sizes() -> dict[str, int]:
    """Bytes on disk."""
    with connection.cursor() as cursor:
        cursor.execute(_SIZES, [list(_TABLES)])
        memory_table, memory_indexes, link_tables, database = cursor.fetchone()
    return {
        "memory_table_bytes": int(memory_table),
        "memory_indexes_bytes": int(memory_indexes),
        "link_tables_bytes": int(link_tables),
        "database_bytes": int(database),
    }


def server_version() -> str:
    with connection._nodb_cursor() as cursor:
        cursor.execute("SHOW server_version")
        return str(cursor.fetchone()[0])


def _lead_to(name: str) -> None:
    connections.close_all()
    # The pool holds connections to the database it was made for.
    cast(DatabaseWrapper, connections[DEFAULT_DB_ALIAS]).close_pool()
    connection.settings_dict["NAME"] = name


def _drop(name: str) -> None:
    mark = _mark(name)
    if mark is None:
        return
    if mark.partition(":")[0] != _MARK:
        raise DatabaseTakenError(f"There is a database {name} that the bench did not make: rename it, or drop it.")
    with connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE {connection.ops.quote_name(name)} WITH (FORCE)")


def _mark(name: str) -> str | None:
    """The comment on a database, empty where it has none; None where there is no such database."""
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s", [name])
        found = cursor.fetchone()
    return None if found is None else str(found[0] or "")
