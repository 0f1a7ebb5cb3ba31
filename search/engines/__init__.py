"""The search engines, behind one protocol: the configured one, and Postgres, the fallback that is always available."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import TypeVar

import psycopg
from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from access.models import AuditEvent
from access.viewer import Viewer
from cluster import is_distributed
from search.engines.base import Engine, EngineUnavailableError
from search.engines.column_snapshot import ColumnSnapshot, postgres_snapshot
from search.engines.index import store
from search.engines.index.engine import IndexEngine
from search.engines.index.outbox import backlog
from search.engines.index.store import wait_until_applied
from search.engines.postgres import PostgresEngine
from search.engines.segment_files import DamagedError, NotReadableError
from search.engines.shards import ShardsEngine

# In seconds. A reader waits for changes younger than the first; an index that lags by more than the second does not
# answer. In between it answers those who changed nothing lately.
_MAX_WAIT = 1.0
_MAX_LAG = 10.0
# The longest time between a change in the audit trail and its row in the outbox: both belong to one transaction.
_LONGEST_WRITE = timedelta(seconds=60)

logger = logging.getLogger(__name__)


def postgres_engine() -> PostgresEngine:
    return ShardsEngine() if is_distributed() else PostgresEngine()


ENGINES: dict[str, Callable[[], Engine]] = {"postgres": postgres_engine, "tantivy": IndexEngine}

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
        return postgres_engine()
    if engine.seconds_behind > _MAX_LAG or (late and _has_changed_something(viewer, engine.seconds_behind)):
        return postgres_engine()
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
        return ask(postgres_engine())


def read_columns(engine: Engine) -> ColumnSnapshot:
    """The columns of all memories as the engine sees them, for counts that no query narrows."""
    return engine.column_snapshot() if isinstance(engine, IndexEngine) else postgres_snapshot()


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """The state of the derived index: `ready`, `missing` if the database answers in its place, or `off`.

    `lag_seconds` is the age of the oldest pending change, `waiting` the number of pending changes, and None for viewers
    who may not see all projects. `left_out` are memories that cannot be indexed; None if there are none.
    """

    state: str
    lag_seconds: float = 0.0
    waiting: int | None = None
    left_out: tuple[int, ...] | None = None


def index_state() -> str:
    if settings.SEARCH_ENGINE != "tantivy":
        return "off"
    try:
        IndexEngine()
    except EngineUnavailableError:
        return "missing"
    return "ready"


def index_health(viewer: Viewer) -> IndexHealth:
    """The health that a viewer may see: the number of changes is for viewers of all projects."""
    state = index_state()
    if state == "off":
        return IndexHealth(state)
    behind = backlog()
    if viewer.project_ids is not None:
        return IndexHealth(state, round(behind.seconds, 3))
    return IndexHealth(state, round(behind.seconds, 3), behind.changes, _left_out())


def _left_out() -> tuple[int, ...] | None:
    with suppress(NotReadableError, DamagedError):
        return store.read_view().manifest.unindexable or None
    return None


@contextmanager
def snapshot(timeout_ms: int = 0) -> Iterator[None]:
    """Isolate the statements of a block from concurrent writes. Statements longer than `timeout_ms` are cancelled."""
    if connection.in_atomic_block:
        with transaction.atomic():
            yield
        return
    with _repeatable_read(), transaction.atomic():
        settings = ["SET LOCAL jit = off"] if _jit_is_on(connection.alias) else []
        settings += [f"SET LOCAL statement_timeout = {timeout_ms:d}"] if timeout_ms else []
        if settings:
            with connection.cursor() as cursor:
                cursor.execute("; ".join(settings))
        yield


@contextmanager
def _repeatable_read() -> Iterator[None]:
    """Make transactions REPEATABLE READ and read-only when they begin, without an extra statement."""
    connection.ensure_connection()
    raw: psycopg.Connection[object] = connection.connection
    with connection.wrap_database_errors:
        raw.isolation_level, raw.read_only = psycopg.IsolationLevel.REPEATABLE_READ, True
    try:
        yield
    finally:
        if connection.connection is not raw:
            # The connection went back to the pool, where its settings must not affect others.
            raw.close()
        elif not raw.closed:
            raw.isolation_level = raw.read_only = None


@cache
def _jit_is_on(alias: str) -> bool:
    """Whether the server uses JIT compilation, which takes longer than the statements of facets."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW jit")
        return bool(cursor.fetchone() == ("on",))
