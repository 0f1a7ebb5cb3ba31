"""Whether the site is well: does the database answer?"""

from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate

import psycopg
from django.db import Error, connection

# Whoever asks about health wants an answer now; waiting for a free connection may take far longer.
DEADLINE = 1.0

# One thread: however many ask while the database hangs, one waits for it and the others stop waiting at their deadline.
_probes = ThreadPoolExecutor(max_workers=1, thread_name_prefix="health")


def database_answers(within: float = DEADLINE) -> bool:
    """Whether the database answers a statement before the deadline, in seconds."""
    probe = _probes.submit(_ask_database)
    try:
        probe.result(within)
    except (Error, psycopg.Error, TooLate):
        # One that has not begun need not begin.
        probe.cancel()
        return False
    return True


def _ask_database() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        # The thread lives on; its connection goes back to the pool.
        connection.close()
