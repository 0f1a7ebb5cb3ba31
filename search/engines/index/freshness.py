"""How who reads the index calls its writer, instead of answering without what was stored a moment ago.

The writer looks for changes a few times a second. Whoever finds that one waits notifies it, and gives it the time to
take it in. A call may be lost, in a pooler or where a database takes none: it saves the time until the next look.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from django.db import DatabaseError, connection

from search.engines.array_files import DamagedError
from search.engines.index import outbox, store

# The server keeps them apart by database.
_CHANNEL = "mnemoscope_index"
_LOOK_SECONDS = 0.01
_LONGEST_LOOK_SECONDS = 0.05


@contextmanager
def listening() -> Iterator[None]:
    """From here on `wait_for_notification` hears every call. The connection of this thread has to stay the same."""
    _execute(f"LISTEN {_CHANNEL}")
    try:
        yield
    finally:
        # Whoever gets this connection from a pool would keep all calls, and never read them.
        with suppress(DatabaseError):
            _execute(f"UNLISTEN {_CHANNEL}")


def wait_for_notification(seconds: float) -> None:
    """Wait so long, or until a reader calls; not at all where one has called since the last time."""
    raw: psycopg.Connection[object] = connection.connection
    with connection.wrap_database_errors:
        for _ in raw.notifies(timeout=seconds, stop_after=1):
            pass


def notify_writer() -> None:
    """Let the writer look for changes now, if it waits."""
    with suppress(DatabaseError):
        _execute(f"NOTIFY {_CHANNEL}")


def wait_until_applied(seconds: float) -> None:
    """Call the writer, and wait until what is committed by now can be read in the index, but no longer than said.

    In a transaction this does not wait: what it has changed itself nobody else can see.
    """
    if connection.in_atomic_block:
        return
    until = time.monotonic() + seconds
    last = outbox.newest()
    notify_writer()
    look = _LOOK_SECONDS
    # Where there is no index any more, whoever reads next finds out.
    with suppress(store.NoIndexError, DamagedError):
        while time.monotonic() < until and not (outbox.is_applied(last) and store.is_newest(store.read_view())):
            time.sleep(look)
            look = min(look * 1.5, _LONGEST_LOOK_SECONDS)


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
