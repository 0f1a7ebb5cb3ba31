"""The ten concurrent legs of unified search, memories and the four kinds of vocabulary by words and by meaning, and one
order for what they find.

Each leg has its own thread, connection and deadline. A leg that fails or is late is left out with a warning. Raw scores
of different legs are not comparable, so only the ranks in the legs and the weight of the kind count in the fusion.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LegTimeout
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from django.conf import settings
from django.db import OperationalError, connection
from psycopg.errors import QueryCanceled

from access.viewer import Viewer
from categories.searched_terms import CATEGORIES, CONCEPTS, ENTITIES, RELATIONSHIPS
from memories.embedding.vectors import EmbeddedShare
from search.engines import snapshot, with_engine
from search.engines.base import Engine, EngineTimeoutError
from search.plan import ResolvedQuery, memory_share
from search.query import Sort
from search.ranking import Boosts, RankWeights, ScoreParts
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


# The k of (k + 1) / (k + rank). It is small so that the best of a kind rank among the first of a kind with a greater
# weight.
_RANK_CONSTANT = 10
# The number of best candidates that are deduplicated.
WINDOW = 100
# A term that more memories have is useful beyond the results, and is not folded.
_FEW_MEMORIES = 3
# A result is folded only if its memories lack at most this share of its own terms.
_OWN_SHARE = 1 / 3

Key = tuple[ResultKind, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ranked result with its signals. `places` are its ranks in the legs that found it, from 1."""

    kind: ResultKind
    id: int
    relevance: float
    places: Mapping[Way, int]
    score: float = 0.0
    boosts: Boosts = field(default_factory=Boosts)
    score_parts: ScoreParts | None = None

    @property
    def key(self) -> Key:
        return (self.kind, self.id)


@dataclass(frozen=True, slots=True)
class Origin:
    """The memories of a term or a relationship: candidates, best first, and the number of all."""

    memories: tuple[int, ...] = ()
    count: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a result, and those of its own description, which need not occur in its memories."""

    all: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Folded:
    """A result folded into another, with the reason."""

    candidate: Candidate
    reason: str


@dataclass(frozen=True, slots=True)
class FoldedGroup:
    """A result and its duplicates, ranked by the best of them."""

    lead: Candidate
    folded: tuple[Folded, ...] = ()

    @property
    def score(self) -> float:
        return max([self.lead.score, *(one.candidate.score for one in self.folded)])


def fuse(answers: Iterable[LegAnswer], weights: Mapping[str, float]) -> list[Candidate]:
    """Fuse the answers of legs. A result that is first in all legs of its kind has the weight of the kind."""
    places: dict[Key, dict[Way, int]] = {}
    leg_counts: dict[ResultKind, int] = {}
    for answer in answers:
        if not answer.is_included:
            continue
        leg_counts[answer.kind] = leg_counts.get(answer.kind, 0) + 1
        for place, hit in enumerate(answer.found, 1):
            places.setdefault((answer.kind, hit.id), {})[answer.way] = place
    candidates = []
    for (kind, pk), own in places.items():
        shares = sum((_RANK_CONSTANT + 1) / (_RANK_CONSTANT + place) for place in own.values())
        candidates.append(Candidate(kind, pk, weights[kind] * shares / leg_counts[kind], own))
    return sorted(candidates, key=_order)


def rerank(candidates: Sequence[Candidate], boosts: Mapping[Key, Boosts], weights: RankWeights) -> list[Candidate]:
    """Sort candidates by their weighted score."""
    scored = []
    for one in candidates:
        own = boosts.get(one.key, Boosts())
        score, score_parts = weights.score_parts(one.relevance, own)
        scored.append(replace(one, score=score, boosts=own, score_parts=score_parts))
    return sorted(scored, key=_order)


def fold(
    candidates: Sequence[Candidate],
    terms: Mapping[Key, Terms],
    origins: Mapping[Key, Origin],
    min_similarity: float,
    named: Mapping[Key, tuple[bool, int]] = MappingProxyType({}),
) -> list[FoldedGroup]:
    """Fold duplicates into groups, each led by a result of the earliest kind.

    The rank of a group is the best of its members. The groups of results that are `named` by the whole text of the
    query come first, in the order of these values; such a result is folded only into another one with nearly the same
    text.
    """
    window, rest = candidates[:WINDOW], candidates[WINDOW:]
    place = {one.key: n for n, one in enumerate(window)}
    leads: list[Candidate] = []
    folded: dict[Key, list[Folded]] = {}
    for kind in ResultKind:
        for one in (c for c in window if c.kind == kind):
            if one.key in named:
                found = _fold_target(one, [lead for lead in leads if lead.key in named], {}, terms, {}, min_similarity)
            else:
                found = _fold_target(one, leads, place, terms, origins, min_similarity)
            if found is None:
                leads.append(one)
            else:
                target, reason = found
                folded.setdefault(target, []).append(Folded(one, reason))
    groups = []
    for lead in leads:
        members = folded.get(lead.key, [])
        best = min([lead.key, *(m.candidate.key for m in members)], key=lambda key: place[key])
        rank = (lead.key not in named, named.get(lead.key, ()), place[best])
        groups.append((rank, FoldedGroup(lead, tuple(members))))
    groups.sort(key=lambda found: found[0])
    return [*(group for _, group in groups), *(FoldedGroup(one) for one in rest)]


def _fold_target(
    one: Candidate,
    leads: Sequence[Candidate],
    place: Mapping[Key, int],
    terms: Mapping[Key, Terms],
    origins: Mapping[Key, Origin],
    min_similarity: float,
) -> tuple[Key, str] | None:
    """The leader to fold a candidate into, with the reason; None to keep it."""
    own = terms.get(one.key, Terms())
    for lead in leads:
        if _alike(own.all, terms.get(lead.key, Terms()).all, min_similarity):
            return lead.key, "nearly the same text"
    origin = origins.get(one.key)
    if origin is None:
        return None
    lead_keys = {lead.key for lead in leads}
    keys = [(ResultKind.MEMORY, pk) for pk in origin.memories]
    # A folded memory still counts here, since its leader has nearly the same terms.
    keys = [key for key in keys if key in place]
    leading = [key for key in keys if key in lead_keys]
    if not leading or (one.kind in TERM_KINDS and not len(keys) == origin.count <= _FEW_MEMORIES):
        return None
    origin_terms = frozenset[str]().union(*(terms.get(key, Terms()).all for key in keys))
    if len(own.own - origin_terms) > _OWN_SHARE * len(own.own):
        return None
    return leading[0], "taken from it" if one.kind == ResultKind.RELATIONSHIP else "supported by it only"


def _alike(one: frozenset[str], other: frozenset[str], min_similarity: float) -> bool:
    """Whether the Jaccard similarity of two sets is at least `min_similarity`."""
    fewer, more = sorted((len(one), len(other)))
    if not fewer or fewer < min_similarity * more:
        return False
    common = len(one & other)
    return common >= min_similarity * (fewer + more - common)


def _order(one: Candidate) -> tuple[float, float, str, tuple[tuple[str, int], ...], int]:
    kinds = list(ResultKind)
    # Equal terms are in the order of their legs: ids would show a viewer of some projects which others used first.
    places = () if one.kind is ResultKind.MEMORY else tuple(sorted(one.places.items(), reverse=True))
    return (-one.score, -one.relevance, str(kinds.index(one.kind)), places, -one.id)
