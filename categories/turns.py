"""The turns of the writers of a cluster: first come, first served, and nobody waits in the queue of a lock.

A transaction that has read something and waits in the queue for a lock counts for Citus as a part of deadlocks between
servers, and is cancelled though it holds nothing. So a writer asks for the lock again and again, and meanwhile holds a
ticket, a lock of its own whose key is the time of its arrival: who comes later, or has only just had a turn, is behind.
A ticket ends with its transaction, as the turn does.
"""

import time

from django.db import connection

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
