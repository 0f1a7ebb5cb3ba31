"""The process beside a server that keeps the derived index up to date."""

import time

from config.children import KeptProcess
from search.engines.arrays import DamagedError
from search.engines.tantivy import store
from search.engines.tantivy.store import NoIndexError


def follower() -> KeptProcess:
    return KeptProcess(["index", "--follow"], "The search index is not kept")


def wait_until_readable(seconds: float) -> None:
    """Until the index can be read, but no longer than said."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not _is_readable():
        time.sleep(0.05)


def _is_readable() -> bool:
    try:
        view = store.read_view()
    except (NoIndexError, DamagedError):
        return False
    return store.is_of_this_database(view.generation, view.manifest)
