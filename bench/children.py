"""What needs a process of its own: what one process holds in memory, and a change that another process indexes.

Nothing of the project is imported before the child has set up Django.
"""

import multiprocessing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event

# As a server's workers are: nothing of the bench's own memory comes with them.
_PROCESSES = multiprocessing.get_context("spawn")
_PATIENCE_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Place:
    """Where a child finds what the bench has made."""

    database: str
    index: str
    engine: str


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of a process: all that is in memory for it, and what of it is its own and shared with no file."""

    rss: int
    private: int


def resident_after(place: Place, queries: Sequence[Sequence[tuple[str, str]]]) -> Resident:
    """What a process holds once it has answered all queries with facets."""
    receiver, sender = _PROCESSES.Pipe(duplex=False)
    child = _PROCESSES.Process(target=_answer_all, args=(place, queries, sender), daemon=True)
    child.start()
    sender.close()
    try:
        return Resident(*receiver.recv())
    except EOFError:
        raise RuntimeError("the process that was to answer the log ended before it had") from None
    finally:
        child.join()


@contextmanager
def follower(place: Place) -> Iterator[None]:
    """A process that keeps the derived index up to date, as one does beside a server."""
    stop, ready = _PROCESSES.Event(), _PROCESSES.Event()
    child = _PROCESSES.Process(target=_follow, args=(place, stop, ready), daemon=True)
    child.start()
    try:
        if not ready.wait(_PATIENCE_SECONDS):
            raise RuntimeError("the process that was to follow the changes did not start")
        yield
    finally:
        stop.set()
        child.join(_PATIENCE_SECONDS)


def _set_up(place: Place) -> None:
    import django

    django.setup()
    from django.conf import settings
    from django.db import connection

    connection.settings_dict["NAME"] = place.database
    settings.SEARCH_INDEX = place.index
    settings.SEARCH_ENGINE = place.engine


def _answer_all(place: Place, queries: Sequence[Sequence[tuple[str, str]]], sender: Connection) -> None:
    _set_up(place)
    import psutil

    from access.viewer import command_viewer
    from search.query import SearchQuery
    from search.run import run
    from web.serving import steady_memory

    viewer = command_viewer()
    steady_memory()
    for pairs in queries:
        result = run(SearchQuery.from_pairs(pairs).model_copy(update={"include_facets": True}), viewer)
        if result.engine != place.engine:
            raise RuntimeError(f"The {result.engine} engine answered instead of {place.engine}.")
    found = psutil.Process().memory_full_info()
    sender.send((found.rss, found.uss))


def _follow(place: Place, stop: Event, ready: Event) -> None:
    _set_up(place)
    from search.engines.index import follower as indexer

    # It holds the index open a moment after this; the first change may find it on its way.
    ready.set()
    indexer.follow(stop.is_set)
