"""The shortest chain between two entities, and what bears out each of its steps."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from django.db import OperationalError
from psycopg.errors import QueryCanceled

from access.viewer import Viewer
from categories.graph.asking import PathRequest
from categories.graph.bonds import Bond, bonds_of
from categories.graph.kinds import ENTITY
from categories.graph.neighbourhood import records_of
from categories.graph.network import SearchTooLongError
from categories.graph.reads import Look, NameAmbiguousError, NameUnknownError, find, look_at, memory_titles
from categories.graph.whole import whole_of
from categories.queries import Term
from memories.queries import MemoryTitle
from search.engines import answered
from search.engines.base import Engine, Filter
from search.query import Sort
from search.snapshots import snapshot
from search.stopwatch import Stopwatch
from search.unified_rows import RelationshipRecord

# In all, and of each statement.
MOST_TIME = timedelta(seconds=3)
# Memories shown for a step.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Step:
    """Two entities in a row, and what links them. `memories` are some that bear it out."""

    source: Term
    target: Term
    bond: Bond
    relationships: tuple[RelationshipRecord, ...]
    memories: tuple[MemoryTitle, ...]


@dataclass(frozen=True, slots=True)
class Path:
    """A chain, or why there is none. Without steps and without a reason the two are the same."""

    asked: PathRequest
    source: Term
    target: Term
    steps: tuple[Step, ...]
    # What was not found, in a sentence; empty where a chain was.
    reason: str
    timings: dict[str, float]


class PathEndError(LookupError):
    """One end of a chain is not a name that means one entity. `parameter` says which, `cause` why."""

    def __init__(self, parameter: str, cause: NameUnknownError | NameAmbiguousError) -> None:
        self.parameter, self.cause = parameter, cause
        super().__init__(f"{parameter}: {cause}")


def path_of(asked: PathRequest, viewer: Viewer) -> Path:
    """Between two entities that the viewer may know of. Raises PathEndError."""
    return answered(lambda engine: _path(asked, viewer, engine), viewer)


def _path(asked: PathRequest, viewer: Viewer, engine: Engine) -> Path:
    watch = Stopwatch(engine.waited_ms)
    over = time.monotonic() + MOST_TIME.total_seconds()
    with watch.stage("search"), snapshot():
        look = look_at(ENTITY, engine, viewer)
        source, target = _end(look, "from", asked.begin), _end(look, "to", asked.end)
    steps: tuple[Step, ...] = ()
    reason = ""
    try:
        with watch.stage("graph"), snapshot(int(MOST_TIME.total_seconds() * 1000)):
            look = look_at(ENTITY, engine, viewer)
            whole = whole_of(look)
            network = whole.linked if asked.together else whole.stated
            chain = network.chain(source.id, target.id, asked.steps, lambda: time.monotonic() > over)
            if chain is None and source.id != target.id:
                reason = _none(asked, source, target)
            steps = _steps(look, chain or (), asked)
    except SearchTooLongError:
        reason = _late()
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        reason = _late()
    return Path(asked, source, target, steps, reason, watch.timings)


def _end(look: Look, parameter: str, name: str) -> Term:
    try:
        return find(look, name)
    except (NameUnknownError, NameAmbiguousError) as error:
        raise PathEndError(parameter, error) from error


def _none(asked: PathRequest, source: Term, target: Term) -> str:
    by = "relationships and memories in common" if asked.together else "relationships"
    steps = "1 step" if asked.steps == 1 else f"{asked.steps} steps"
    return f"No chain of {by} leads from {source.label} to {target.label} within {steps}."


def _late() -> str:
    return f"The search was given up after {MOST_TIME.total_seconds():g} s. Ask for fewer steps, or again later."


def _steps(look: Look, chain: Sequence[int], asked: PathRequest) -> tuple[Step, ...]:
    if len(chain) < 2:
        return ()
    terms = look.terms(chain)
    bonds = bonds_of(look, chain, between=True)
    links = {(a, b): bonds[min(a, b), max(a, b)] for a, b in pairwise(chain)}
    if not asked.together:
        links = {pair: Bond(0, bond.ties) for pair, bond in links.items()}
    records = records_of(look, (tie for bond in links.values() for tie in bond.ties))
    stated = {pair: tuple(records[tie.id] for tie in bond.ties if tie.id is not None) for pair, bond in links.items()}
    shown = {pair: _evidence(look, pair, stated[pair]) for pair in links}
    titles = memory_titles(look.viewer, [pk for ids in shown.values() for pk in ids])
    return tuple(
        Step(terms[a], terms[b], bond, stated[a, b], tuple(titles[pk] for pk in shown[a, b] if pk in titles))
        for (a, b), bond in links.items()
    )


def _evidence(look: Look, pair: tuple[int, int], stated: Sequence[RelationshipRecord]) -> list[int]:
    """Some memories for a step: what bears its relationships out, else the newest that name both."""
    ids = sorted({pk for record in stated for pk in record.evidence}, reverse=True)[:_SHOWN]
    if ids or stated:
        return ids
    both = Filter(look.kind.key, include=tuple((pk,) for pk in pair), require_all=True)
    found = look.engine.hits(look.planned.plan.with_filter(both), Sort.NEWEST, limit=_SHOWN, offset=0)
    return [pk for pk, _ in found]
