"""How memories are found and counted, behind one protocol."""

from search.engines.base import Engine
from search.engines.postgres import PostgresEngine


def engine_in_use() -> Engine:
    """The engine that answers."""
    return PostgresEngine()
