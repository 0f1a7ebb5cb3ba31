"""How who reads the index calls its writer, instead of answering without what was stored a moment ago.

The writer looks for changes a few times a second. Whoever finds that one waits notifies it, and gives it the time to
take it in.
"""

import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
from django.db import connection

from search.engines.arrays import DamagedError
from search.engines.tantivy import outbox, store

# The server keeps them apart by database.
_CHANNEL = "mnemoscope_index"
_LOOK_SECONDS = 0.01


def wait_until_called(seconds: float, stop: Callable[[], bool]) -> None:
    """Wait so long, or until a reader calls; not at all once told to stop."""
    if stop():
        return
    with connection.cursor() as cursor:
        # Each time, for the connection may be another one; a pooler between may lose the calls, which costs the time.
        cursor.execute(f"LISTEN {_CHANNEL}")
    raw: psycopg.Connection[object] = connection.connection
    with connection.wrap_database_errors:
        for _ in raw.notifies(timeout=seconds, stop_after=1):
            pass


def call_writer() -> None:
    """Let the writer look for changes now, if it waits."""
    with connection.cursor() as cursor:
        cursor.execute(f"NOTIFY {_CHANNEL}")


def wait_until_taken_in(seconds: float) -> None:
    """Call the writer, and wait until what is committed by now can be read in the index, but no longer than said.

    In a transaction this does not wait: what it has changed itself nobody else can see.
    """
    if connection.in_atomic_block or not (last := outbox.newest()):
        return
    until = time.monotonic() + seconds
    call_writer()
    # Where there is none any more, whoever reads next finds out.
    with suppress(store.NoIndexError, DamagedError):
        while time.monotonic() < until and not (outbox.is_past(last) and store.is_up_to_date()):
            time.sleep(_LOOK_SECONDS)
