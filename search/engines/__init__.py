"""How memories are found and counted, behind one protocol: the engine that is set, and the one that always can."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from django.conf import settings

from access.viewer import Viewer
from search.engines.base import Engine, EngineUnavailableError
from search.engines.index.engine import IndexEngine
from search.engines.index.freshness import wait_until_applied
from search.engines.postgres import PostgresEngine

# In seconds. What was stored so short a time ago is waited for; longer than that, the index is behind.
_MAX_WAIT = 1.0
_MAX_LAG = 10.0

logger = logging.getLogger(__name__)

ENGINES: dict[str, Callable[[], Engine]] = {"postgres": PostgresEngine, "tantivy": IndexEngine}

Answer = TypeVar("Answer")


def engine_named(name: str) -> Engine:
    """The engine of a name. Raises EngineUnavailableError where it cannot answer now."""
    return ENGINES[name]()


def select_engine(viewer: Viewer, *, wait_for_index: bool = True) -> Engine:
    """The engine that is set; where it cannot answer now, the one that needs nothing but the database. Unless it is not
    to wait, what has just been stored is found: who stores something looks for it next.

    Which project a memory is in decides who may see it: who may not see all is not answered from an index that lacks
    what happened longer ago than a moment.
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


def with_engine(ask: Callable[[Engine], Answer], viewer: Viewer, *, wait_for_index: bool = True) -> Answer:
    """What the engine in use answers; if it fails on the way, what the database answers. Who asks for a part of an
    answer that has waited for the index need not wait again.
    """
    engine = select_engine(viewer, wait_for_index=wait_for_index)
    try:
        return ask(engine)
    except EngineUnavailableError as error:
        logger.warning("The %s engine failed, and the database answered: %s", engine.name, error)
        return ask(PostgresEngine())
