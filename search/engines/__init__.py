"""The search engines, behind one protocol: the configured one, and Postgres, the fallback that is always available."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from django.conf import settings

from access.viewer import Viewer
from search.engines.base import Engine, EngineUnavailableError
from search.engines.column_snapshot import ColumnSnapshot
from search.engines.index.engine import IndexEngine
from search.engines.index.freshness import wait_until_applied
from search.engines.postgres import PostgresEngine
from search.engines.postgres_columns import postgres_snapshot

# In seconds. A reader waits for changes younger than the first; an index that lags by more than the second does not
# answer a viewer who may see only some projects.
_MAX_WAIT = 1.0
_MAX_LAG = 10.0

logger = logging.getLogger(__name__)

ENGINES: dict[str, Callable[[], Engine]] = {"postgres": PostgresEngine, "tantivy": IndexEngine}

T = TypeVar("T")


def engine_named(name: str) -> Engine:
    """Raise EngineUnavailableError if the engine cannot answer now."""
    return ENGINES[name]()


def select_engine(viewer: Viewer, *, wait_for_index: bool = True) -> Engine:
    """Return the configured engine or, if it cannot answer now, the Postgres engine.

    With `wait_for_index`, wait up to a second until the index has what was stored just before: clients search for what
    they have just stored. A memory's project decides who may see it, so a viewer restricted to some projects gets no
    answer from an index that lags by more than ten seconds.
    """
    try:
        engine = engine_named(settings.SEARCH_ENGINE)
        if wait_for_index and 0 < engine.seconds_behind < _MAX_WAIT:
            begin = time.perf_counter()
            wait_until_applied(_MAX_WAIT - engine.seconds_behind)
            engine = engine_named(settings.SEARCH_ENGINE)
            engine.waited_ms = (time.perf_counter() - begin) * 1000
    except EngineUnavailableError as error:
        logger.debug("%s", error)
        return PostgresEngine()
    if viewer.project_ids is not None and engine.seconds_behind > _MAX_LAG:
        return PostgresEngine()
    return engine


def with_engine(ask: Callable[[Engine], T], viewer: Viewer, *, wait_for_index: bool = True) -> T:
    """Call `ask` with the engine in use; if that fails, call it again with the Postgres engine. Requests that follow
    another one of the same page need not wait for the index again.
    """
    engine = select_engine(viewer, wait_for_index=wait_for_index)
    try:
        return ask(engine)
    except EngineUnavailableError as error:
        logger.warning("The %s engine failed, and the database answered: %s", engine.name, error)
        return ask(PostgresEngine())


def read_columns(engine: Engine) -> ColumnSnapshot:
    """The columns of all memories as the engine sees them, for counts that no query narrows."""
    return engine.column_snapshot() if isinstance(engine, IndexEngine) else postgres_snapshot()
