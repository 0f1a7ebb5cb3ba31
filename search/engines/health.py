"""Health of the configured engine: whether it answers, and how far it lags behind the database."""

from contextlib import suppress
from dataclasses import dataclass

from django.conf import settings

from access.viewer import Viewer
from search.engines.array_files import DamagedError
from search.engines.base import EngineUnavailableError
from search.engines.index import store
from search.engines.index.engine import IndexEngine
from search.engines.index.outbox import backlog
from search.engines.segment_store import NotReadableError


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
