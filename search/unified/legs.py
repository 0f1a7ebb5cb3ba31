"""The ten concurrent legs of unified search: memories and the four kinds of vocabulary, by words and by meaning.

Each has its own thread, connection and deadline. A leg that fails or is late is left out with a warning.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LegTimeout
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from django.conf import settings
from django.db import OperationalError, connection
from psycopg.errors import QueryCanceled

from access.viewer import Viewer
from categories.searched_terms import CATEGORIES, CONCEPTS, ENTITIES, RELATIONSHIPS
from memories.embedding.progress import EmbeddedShare
from search.engines import with_engine
from search.engines.base import Engine, EngineTimeoutError
from search.meaning import memory_share
from search.plan import ResolvedQuery
from search.query import Sort
from search.snapshots import snapshot
from search.unified.vocabulary import LegHit, embedded_share, rows_by_meaning, rows_by_words

logger = logging.getLogger(__name__)

# Legs beyond these wait, which counts toward their deadline: each needs a connection, and most take milliseconds.
_threads: Executor = ThreadPoolExecutor(max_workers=6, thread_name_prefix="leg")


class ResultKind(StrEnum):
    """The kind of a result. Of duplicates, the earlier kind leads."""

    MEMORY = "memory"
    ENTITY = "entity"
    CONCEPT = "concept"
    CATEGORY = "category"
    RELATIONSHIP = "relationship"

    @property
    def plural(self) -> str:
        return f"{self.value[:-1]}ies" if self.value.endswith("y") else f"{self.value}s"


TABLES = {
    ResultKind.ENTITY: ENTITIES,
    ResultKind.CONCEPT: CONCEPTS,
    ResultKind.CATEGORY: CATEGORIES,
    ResultKind.RELATIONSHIP: RELATIONSHIPS,
}
TERM_KINDS = (ResultKind.ENTITY, ResultKind.CONCEPT, ResultKind.CATEGORY)
"""The kinds that are facets of memories too."""


class Way(StrEnum):
    WORDS = "words"
    MEANING = "meaning"


class LegState(StrEnum):
    """The coverage of a leg; only the first two are included in the results."""

    OK = "ok"
    PARTLY = "partly"
    NO_VECTORS = "no_vectors"
    LATE = "late"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Leg:
    """A leg. `ask` returns visible hits, best first."""

    kind: ResultKind
    way: Way
    ask: Callable[[Engine, ResolvedQuery, int], list[LegHit]]

    @property
    def name(self) -> str:
        return f"{self.kind} {self.way}"


@dataclass(frozen=True, slots=True)
class LegAnswer:
    """The hits of a leg, or the reason why it was left out."""

    kind: ResultKind
    way: Way
    ms: float
    state: LegState = LegState.OK
    found: tuple[LegHit, ...] = ()
    reason: str = ""
    share: EmbeddedShare | None = None
    """The share of the rows with a vector; None if it is unknown or not to be shown."""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.way}"

    @property
    def is_included(self) -> bool:
        return self.state in {LegState.OK, LegState.PARTLY}

    @property
    def is_full(self) -> bool:
        """Whether there may be more hits than the limit."""
        return len(self.found) >= settings.UNIFIED_LEG_LIMIT


def memories_by_words(engine: Engine, resolved: ResolvedQuery, limit: int) -> list[LegHit]:
    plan = replace(resolved.plan, meaning=None)
    return [LegHit(pk, score or 0.0, 1) for pk, score in engine.hits(plan, Sort.RELEVANCE, limit=limit, offset=0)]


def memories_by_meaning(engine: Engine, resolved: ResolvedQuery, limit: int) -> list[LegHit]:
    meaning = resolved.plan.meaning
    if meaning is None:
        return []
    # The same search as that of the match set, so that its vectors are read once.
    near = engine.knn(replace(resolved.plan, meaning=replace(meaning, semantic_only=True)))
    pairs = zip(near.ids[:limit].tolist(), near.similarities[:limit].tolist(), strict=True)
    return [LegHit(pk, similarity, 1) for pk, similarity in pairs]


LEGS = (
    Leg(ResultKind.MEMORY, Way.WORDS, memories_by_words),
    Leg(ResultKind.MEMORY, Way.MEANING, memories_by_meaning),
    *(
        Leg(kind, way, partial(ask, searched))
        for kind, searched in TABLES.items()
        for way, ask in ((Way.WORDS, rows_by_words), (Way.MEANING, rows_by_meaning))
    ),
)


class RunningLegs:
    """Starts all legs; `answers` waits for them."""

    def __init__(self, resolved: ResolvedQuery, viewer: Viewer) -> None:
        self._timeout_ms: int = settings.UNIFIED_LEG_TIMEOUT_MS
        self._started = time.monotonic()
        self._without_meaning = resolved.without_meaning
        self._futures: list[tuple[Leg, Future[LegAnswer] | None]] = [
            (
                leg,
                None
                if leg.way == Way.MEANING and resolved.without_meaning
                else _threads.submit(_answer, leg, resolved, viewer, self._timeout_ms),
            )
            for leg in LEGS
        ]

    def answers(self) -> list[LegAnswer]:
        """The answers of all legs at their deadline."""
        return [self._answer_of(leg, future) for leg, future in self._futures]

    def _answer_of(self, leg: Leg, future: Future[LegAnswer] | None) -> LegAnswer:
        if future is None:
            return LegAnswer(leg.kind, leg.way, 0.0, LegState.FAILED, reason=self._without_meaning)
        left = self._started + self._timeout_ms / 1000 - time.monotonic()
        try:
            return future.result(max(0.0, left))
        except LegTimeout:
            # Prevents the start of a waiting leg; a running one ends with its statement timeout.
            future.cancel()
            return _late(leg, (time.monotonic() - self._started) * 1000, self._timeout_ms)


def _answer(leg: Leg, resolved: ResolvedQuery, viewer: Viewer, timeout_ms: int) -> LegAnswer:
    started = time.monotonic()

    def spent() -> float:
        return round((time.monotonic() - started) * 1000, 1)

    def ask(engine: Engine) -> LegAnswer:
        with snapshot(timeout_ms):
            found = leg.ask(engine, resolved, settings.UNIFIED_LEG_LIMIT)
            state, share = _coverage(leg, engine, resolved)
        return LegAnswer(leg.kind, leg.way, spent(), state, tuple(found), _REASONS.get(state, ""), share)

    try:
        return with_engine(ask, viewer, wait_for_index=False)
    except EngineTimeoutError:
        return _late(leg, spent(), timeout_ms)
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            return _late(leg, spent(), timeout_ms)
        logger.exception("The leg %s of a unified search failed.", leg.name)
    except Exception:  # the other legs still answer
        logger.exception("The leg %s of a unified search failed.", leg.name)
    finally:
        # The thread is reused, but its connection must go back to the pool.
        if not connection.in_atomic_block:
            connection.close()
    return LegAnswer(leg.kind, leg.way, spent(), LegState.FAILED, reason="an error, which is in the log")


_REASONS = {LegState.PARTLY: "not everything has a vector so far", LegState.NO_VECTORS: "nothing has a vector so far"}


def _coverage(leg: Leg, engine: Engine, resolved: ResolvedQuery) -> tuple[LegState, EmbeddedShare | None]:
    """The state of a leg that has answered, and the share of its rows with a vector."""
    if leg.way == Way.WORDS:
        return LegState.OK, None
    if leg.kind == ResultKind.MEMORY:
        share: EmbeddedShare | None = memory_share(resolved.revision, resolved.plan)
    else:
        share = embedded_share(TABLES[leg.kind], engine, resolved)
    if share is None:
        return LegState.PARTLY, None
    if share.is_complete:
        return LegState.OK, share if share.total else None
    return LegState.PARTLY if share.embedded else LegState.NO_VECTORS, share


def _late(leg: Leg, ms: float, timeout_ms: int) -> LegAnswer:
    return LegAnswer(leg.kind, leg.way, round(ms, 1), LegState.LATE, reason=f"it took longer than {timeout_ms:,} ms")
