"""How memories are found and counted, behind one protocol: the engine that is set, and the one that always can."""

import logging
from collections.abc import Callable
from typing import TypeVar

from django.conf import settings

from search.engines.base import Engine, EngineUnavailableError
from search.engines.postgres import PostgresEngine
from search.engines.tantivy.engine import TantivyEngine

logger = logging.getLogger(__name__)

ENGINES: dict[str, Callable[[], Engine]] = {"postgres": PostgresEngine, "tantivy": TantivyEngine}

Answer = TypeVar("Answer")


def engine_named(name: str) -> Engine:
    """The engine of a name. Raises EngineUnavailableError where it cannot answer now."""
    return ENGINES[name]()


def engine_in_use() -> Engine:
    """The engine that is set; where it cannot answer now, the one that needs nothing but the database."""
    try:
        return engine_named(settings.SEARCH_ENGINE)
    except EngineUnavailableError as error:
        logger.debug("%s", error)
        return PostgresEngine()


def answered(ask: Callable[[Engine], Answer]) -> Answer:
    """What the engine in use answers; if it fails on the way, what the database answers."""
    engine = engine_in_use()
    try:
        return ask(engine)
    except EngineUnavailableError as error:
        logger.warning("The %s engine failed, and the database answered: %s", engine.name, error)
        return ask(PostgresEngine())
