"""Read your own writes: readers notify the writer of the index, and wait until it has applied recent changes.

The writer polls a few times a second. A reader that finds a pending change notifies it, and gives it time to apply it.
A notification may be lost, by a pooler or a database that does not support them: it only saves the time until the next
poll.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from django.db import DatabaseError, connection

from search.engines.array_files import DamagedError
from search.engines.index import outbox, store
from search.engines.segment_store import NotReadableError

# Channels are separate for each database.
_CHANNEL = "mnemoscope_index"
_LOOK_SECONDS = 0.01
_LONGEST_LOOK_SECONDS = 0.05


@contextmanager
def listening() -> Iterator[None]:
    """Receive notifications inside, for `wait_for_notification`. The thread has to keep its connection."""
    _execute(f"LISTEN {_CHANNEL}")
    try:
        yield
    finally:
        # Otherwise the next user of a pooled connection would collect notifications that it never reads.
        with suppress(DatabaseError):
            _execute(f"UNLISTEN {_CHANNEL}")


def wait_for_notification(seconds: float) -> None:
    """Wait this long, or until a reader notifies; return at once if there was a notification since the last call."""
    raw: psycopg.Connection[object] = connection.connection
    with connection.wrap_database_errors:
        for _ in raw.notifies(timeout=seconds, stop_after=1):
            pass


def notify_writer() -> None:
    """Let the writer look for changes now, if it waits."""
    with suppress(DatabaseError):
        _execute(f"NOTIFY {_CHANNEL}")


def wait_until_applied(seconds: float) -> bool:
    """Notify the writer, and wait until the index has all changes that are committed now, or the time is over. Return
    whether it has.

    Do not wait within a transaction: its own changes are not visible to the writer.
    """
    if connection.in_atomic_block:
        return False
    until = time.monotonic() + seconds
    last = outbox.newest()
    notify_writer()
    look = _LOOK_SECONDS
    # If the index is gone, the next reader finds out.
    with suppress(NotReadableError, DamagedError):
        while not (outbox.is_applied(last) and store.is_newest(store.read_view())):
            if time.monotonic() >= until:
                return False
            time.sleep(look)
            look = min(look * 1.5, _LONGEST_LOOK_SECONDS)
        return True
    return False


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
