"""The search engines, behind one protocol: the configured one, and Postgres, the fallback that is always available."""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from django.conf import settings
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer
from search.engines.base import Engine, EngineUnavailableError
from search.engines.column_snapshot import ColumnSnapshot
from search.engines.index.engine import IndexEngine
from search.engines.index.freshness import wait_until_applied
from search.engines.postgres import PostgresEngine
from search.engines.postgres_columns import postgres_snapshot

# In seconds. A reader waits for changes younger than the first; an index that lags by more than the second does not
# answer. In between it answers those who changed nothing lately.
_MAX_WAIT = 1.0
_MAX_LAG = 10.0
# The longest time between a change in the audit trail and its row in the outbox: both belong to one transaction.
_LONGEST_WRITE = timedelta(seconds=60)

logger = logging.getLogger(__name__)

ENGINES: dict[str, Callable[[], Engine]] = {"postgres": PostgresEngine, "tantivy": IndexEngine}

T = TypeVar("T")


def engine_named(name: str) -> Engine:
    """Raise EngineUnavailableError if the engine cannot answer now."""
    return ENGINES[name]()


def select_engine(viewer: Viewer, *, wait_for_index: bool = True) -> Engine:
    """Return the configured engine or, if it cannot answer now, the Postgres engine.

    Clients search for what they have just stored. With `wait_for_index`, wait up to a second until the index has it; if
    it still has not, for example because its writer restarts, a viewer who changed something lately gets an answer from
    the database. If the index lags by more than ten seconds, all do.
    """
    try:
        engine = engine_named(settings.SEARCH_ENGINE)
        late = engine.seconds_behind >= _MAX_WAIT
        if wait_for_index and 0 < engine.seconds_behind < _MAX_WAIT:
            begin = time.perf_counter()
            late = not wait_until_applied(_MAX_WAIT - engine.seconds_behind)
            engine = engine_named(settings.SEARCH_ENGINE)
            engine.waited_ms = (time.perf_counter() - begin) * 1000
    except EngineUnavailableError as error:
        logger.debug("%s", error)
        return PostgresEngine()
    if engine.seconds_behind > _MAX_LAG or (late and _has_changed_something(viewer, engine.seconds_behind)):
        return PostgresEngine()
    return engine


def _has_changed_something(viewer: Viewer, seconds: float) -> bool:
    """Whether a viewer has changed anything within the last seconds, or in a transaction that ended since."""
    if viewer.door == AuditEvent.Door.COMMAND or (viewer.user_id is None and viewer.api_key_id is None):
        return False  # a command makes one change or one search, and who is nobody changes nothing
    since = timezone.now() - timedelta(seconds=seconds) - _LONGEST_WRITE
    # Uses auditevent_key_idx or auditevent_user_idx: during an import, all others have many rows since.
    if viewer.api_key_id is not None:
        return AuditEvent.objects.filter(api_key=viewer.api_key_id, at__gte=since).order_by().exists()
    return AuditEvent.objects.filter(user=viewer.user_id, at__gte=since).order_by().exists()


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
