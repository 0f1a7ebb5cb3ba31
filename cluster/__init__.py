"""All that knows of several machines: whether the tables lie on the nodes of a Citus cluster, and what differs there.

`cluster.nodes` moves a database onto them; see `manage.py distribute` and docs/growing.md. The engine for memories that
are spread over shards is `search.engines.shards`.
"""

import time
from functools import cache
from typing import Any

from django.conf import settings
from django.core.checks import Error
from django.db import DEFAULT_DB_ALIAS, connection, transaction

from web.cache import RepeatedReads


def is_distributed() -> bool:
    """Whether memories are spread over shards. It changes only while the site is stopped, so it is read once."""
    return _is_distributed(*_database())


def _database() -> tuple[object, ...]:
    own = connection.settings_dict
    return own["HOST"], own["PORT"], own["NAME"]


@cache
def _is_distributed(*database: object) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('pg_dist_partition') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return False
        # There may be no such table yet: the system checks ask before the first migration.
        cursor.execute("SELECT count(*) FROM pg_dist_partition WHERE logicalrelid = to_regclass('memories_memory')")
        return bool(cursor.fetchone()[0])


def forget() -> None:
    """Read it again, after the tables were moved."""
    _is_distributed.cache_clear()


def engine_problem(alias: str) -> list[Error]:
    """Refuse an index beside a cluster: no change would be recorded for it, so it would fall behind silently."""
    if alias != DEFAULT_DB_ALIAS or settings.SEARCH_ENGINE == "postgres" or not is_distributed():
        return []
    return [
        Error(
            f"The memories are spread over a cluster, which SEARCH_ENGINE={settings.SEARCH_ENGINE} cannot follow.",
            hint="Set SEARCH_ENGINE=postgres. See docs/growing.md.",
            id="memories.E010",
        )
    ]


def update_statistics(tables: str) -> None:
    """Update the planner's statistics, including this transaction's rows, until autovacuum does."""
    if is_distributed():
        # Refused in a transaction that has read something. The nodes analyse their shards by themselves.
        return
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL default_statistics_target = 25")
        cursor.execute(f"ANALYZE {tables}")


def store_vectors_in_rows(cursor: Any, table: str) -> None:
    """Store the vectors of a table in its rows, where a scan finds them; in a cluster from the commit on."""
    statement = f"ALTER TABLE {table} ALTER COLUMN embedding SET STORAGE PLAIN"
    if not is_distributed():
        cursor.execute(statement)
        return
    # The table on the coordinator is the model of shards that are made again on another server.
    cursor.execute("SET LOCAL citus.enable_ddl_propagation = off")
    cursor.execute(statement)
    cursor.execute("SET LOCAL citus.enable_ddl_propagation = on")
    transaction.on_commit(lambda: _store_vectors_of_shards_in_rows(table))


def _store_vectors_of_shards_in_rows(table: str) -> None:
    """Citus passes the statement on to no shard. Sent to the shards, it waits for the transaction that changes them."""
    statement = "ALTER TABLE %s ALTER COLUMN embedding SET STORAGE PLAIN"
    with connection.cursor() as cursor:
        cursor.execute("SELECT run_command_on_placements(%s, %s)", [table, statement])


# In a cluster the table is empty: the estimates of its shards are asked for, which takes a question to every node.
_ROWS_ON_SHARDS = """
SELECT coalesce(sum(result::bigint), 0) FROM run_command_on_shards('{table}',
  $$SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = '%s'::regclass$$) WHERE success"""
_rows_on_shards = RepeatedReads[tuple[object, ...], int]()


def estimated_rows(table: str) -> str:
    """SQL for Postgres' estimate of the rows of a table of memories; in a cluster it is read again after a while."""
    if not is_distributed():
        return f"(SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = '{table}'::regclass)"

    def read() -> int:
        with connection.cursor() as cursor:
            # Without parameters: the statement for a shard has a percent sign.
            cursor.execute(_ROWS_ON_SHARDS.format(table=table))
            return int(cursor.fetchone()[0])

    return str(_rows_on_shards.get((*_database(), table), object(), read))


# The turns of writers: first come, first served, and nobody waits in the queue of a lock. A transaction that has read
# something and waits in the queue for a lock counts for Citus as a part of deadlocks between servers, and is cancelled
# though it holds nothing. So a writer asks for the lock again and again, and meanwhile holds a ticket, a lock of its
# own whose key is the time of its arrival: who comes later, or has only just had a turn, is behind. A ticket ends with
# its transaction, as the turn does.

# Tickets begin with these bits; the time in milliseconds follows.
_TICKETS = 0x7477 << 48
_NO_TICKET = (1 << 63) - 1
_FIRST_PAUSE, _PAUSE = 0.005, 0.03

# The key of a lock is in two columns.
_TAKE = """
WITH held AS MATERIALIZED (
  SELECT pid, (classid::bigint << 32) | objid::bigint AS key FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT CASE
  WHEN EXISTS (SELECT FROM held WHERE key = %(lock)s AND pid = pg_backend_pid()) THEN true
  WHEN EXISTS (SELECT FROM held WHERE key >= %(tickets)s AND key < %(ticket)s AND pid <> pg_backend_pid()) THEN NULL
  ELSE pg_try_advisory_xact_lock(%(lock)s) END"""
_IDLE = "SELECT set_config('idle_in_transaction_session_timeout', %s, true)"
# Two that come at the same millisecond get different tickets.
_DRAW = """
SELECT key FROM (
  SELECT %(tickets)s + (extract(epoch FROM clock_timestamp()) * 1000)::bigint + later AS key
  FROM generate_series(0, 1000) later
) drawn WHERE pg_try_advisory_xact_lock(key) LIMIT 1"""


def take_turn(lock: int, seconds: float) -> bool:
    """Take a lock until the end of the transaction, as soon as all who came before have had it, or return False."""
    until = time.monotonic() + seconds
    ticket, allowed = _NO_TICKET, ""
    with connection.cursor() as cursor:
        while True:
            cursor.execute(_TAKE, {"lock": lock, "tickets": _TICKETS, "ticket": ticket})
            (taken,) = cursor.fetchone()
            if taken:
                if ticket != _NO_TICKET:
                    cursor.execute(_IDLE, [allowed])
                return True
            if time.monotonic() > until:
                return False
            if ticket == _NO_TICKET:
                cursor.execute(_DRAW, {"tickets": _TICKETS})
                ((ticket,),) = cursor.fetchall()
                cursor.execute("SELECT current_setting('idle_in_transaction_session_timeout')")
                ((allowed,),) = cursor.fetchall()
                # The server ends who asks no more, because its machine is away: all others would wait for it.
                cursor.execute(_IDLE, ["10s"])
            # Null: others are before this one.
            time.sleep(_PAUSE if taken is None else _FIRST_PAUSE)
