"""The contexts of a relationship, of a chain, and of a name that means nothing. No database and no request."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta, tzinfo
from itertools import pairwise

from django.db import OperationalError
from django.urls import reverse
from psycopg.errors import QueryCanceled

from access.viewer import Viewer
from categories.queries import Term
from explorer.graph.adjacency import SearchTooLongError
from explorer.graph.cache import whole_of
from explorer.graph.labels import (
    Sample,
    both_url,
    evidence_link,
    graph_tabs,
    names_or_name,
    path_url,
    relationship_notes,
    sample_of,
    table_url,
    term_url,
    verb_text,
)
from explorer.graph.neighbourhood import Edge, bonds_of, records_of
from explorer.graph.node_page import Fact
from explorer.graph.params import MOST_STEPS, PathRequest, TableRequest
from explorer.graph.queries import (
    ENTITY,
    GraphContext,
    NameAmbiguousError,
    NameUnknownError,
    find,
    memory_titles,
    open_graph,
)
from explorer.histogram_plot import Option
from explorer.links import Link
from explorer.memory_page import Mention, mention
from explorer.page import Notice
from memories.queries import MemoryTitle
from search.engines import with_engine
from search.engines.base import Engine, Filter
from search.query import Sort
from search.snapshots import snapshot
from search.unified.rows import RelationshipRecord
from text.formatting import memories, plural
from web.errors import Refusal
from web.timing import Stopwatch

# In all, and of each statement.
MOST_TIME = timedelta(seconds=3)
# Memories shown for a step.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Step:
    """Two entities in a row, and what links them. `memories` are some that bear it out."""

    source: Term
    target: Term
    bond: Edge
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


class PathEndError(Refusal):
    """The name at one end of a path does not mean one entity. `parameter` says which end, `cause` why."""

    def __init__(self, parameter: str, cause: NameUnknownError | NameAmbiguousError) -> None:
        self.parameter, self.cause = parameter, cause
        self.status, self.code, self.suggestion = cause.status, cause.code, cause.suggestion
        self.did_you_mean = cause.did_you_mean
        super().__init__(f"{parameter}: {cause}")


def path_of(asked: PathRequest, viewer: Viewer) -> Path:
    """Between two entities that the viewer may know of. Raises PathEndError."""
    return with_engine(lambda engine: _path(asked, viewer, engine), viewer)


def _path(asked: PathRequest, viewer: Viewer, engine: Engine) -> Path:
    watch = Stopwatch(engine.waited_ms)
    over = time.monotonic() + MOST_TIME.total_seconds()
    with watch.stage("search"), snapshot():
        look = open_graph(ENTITY, engine, viewer)
        source, target = _end(look, "from", asked.begin), _end(look, "to", asked.end)
    steps: tuple[Step, ...] = ()
    reason = ""
    try:
        with watch.stage("graph"), snapshot(int(MOST_TIME.total_seconds() * 1000)):
            look = open_graph(ENTITY, engine, viewer)
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


def _end(look: GraphContext, parameter: str, name: str) -> Term:
    try:
        return find(look, name)
    except (NameUnknownError, NameAmbiguousError) as error:
        raise PathEndError(parameter, error) from error


def _none(asked: PathRequest, source: Term, target: Term) -> str:
    by = "relationships and shared memories" if asked.together else "relationships"
    steps = "1 step" if asked.steps == 1 else f"{asked.steps} steps"
    return f"No path by {by} leads from {source.label} to {target.label} within {steps}."


def _late() -> str:
    return f"The search stopped after {MOST_TIME.total_seconds():g} s. Ask for fewer steps, or try again later."


def _steps(look: GraphContext, chain: Sequence[int], asked: PathRequest) -> tuple[Step, ...]:
    if len(chain) < 2:
        return ()
    terms = look.terms(chain)
    bonds = bonds_of(look, chain, between=True)
    links = {(a, b): bonds[min(a, b), max(a, b)] for a, b in pairwise(chain)}
    if not asked.together:
        links = {pair: Edge(0, bond.ties) for pair, bond in links.items()}
    records = records_of(look, (tie for bond in links.values() for tie in bond.ties))
    stated = {pair: tuple(records[tie.id] for tie in bond.ties if tie.id is not None) for pair, bond in links.items()}
    shown = {pair: _evidence(look, pair, stated[pair]) for pair in links}
    titles = memory_titles(look.viewer, [pk for ids in shown.values() for pk in ids])
    return tuple(
        Step(terms[a], terms[b], bond, stated[a, b], tuple(titles[pk] for pk in shown[a, b] if pk in titles))
        for (a, b), bond in links.items()
    )


def _evidence(look: GraphContext, pair: tuple[int, int], stated: Sequence[RelationshipRecord]) -> list[int]:
    """Some memories for a step: what bears its relationships out, else the newest that name both."""
    ids = sorted({pk for record in stated for pk in record.evidence}, reverse=True)[:_SHOWN]
    if ids or stated:
        return ids
    both = Filter(look.kind.key, include=tuple((pk,) for pk in pair), require_all=True)
    found = look.engine.hits(look.resolved.plan.with_filter(both), Sort.NEWEST, limit=_SHOWN, offset=0)
    return [pk for pk, _ in found]


# --- one relationship --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FactContext:
    title: str
    tabs: tuple[Link, ...]
    source: Link
    verb: str
    target: Link
    fact: str
    notes: tuple[str, ...]
    summary: str
    evidence: tuple[Sample, ...]
    put_away: tuple[Sample, ...]
    both_url: str


def build_fact(fact: Fact, zone: tzinfo = UTC) -> FactContext:
    record = fact.record
    ends = [Term(end.id, end.value, end.name, end.type) for end in (record.source, record.target)]
    source, target = (Link(end.label, term_url(ENTITY, end), end.type) for end in ends)
    shown, every = len(fact.evidence), len(record.evidence)
    return FactContext(
        title=record.title,
        tabs=graph_tabs(ENTITY),
        source=source,
        verb=verb_text(record.type),
        target=target,
        fact=record.fact,
        notes=relationship_notes(record),
        summary=f"{memories(every)}{f', {shown} shown' if shown < every else ''}",
        evidence=tuple(sample_of(hit, zone) for hit in fact.evidence),
        put_away=tuple(sample_of(hit, zone) for hit in fact.put_away),
        both_url=both_url(ENTITY, *ends),
    )


# --- a chain -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShownLink:
    """What links two in a row: of a relationship `leads_on` where it points along the chain."""

    verb: str
    leads_on: bool
    fact: str
    notes: tuple[str, ...]
    evidence: Link


@dataclass(frozen=True, slots=True)
class ShownStep:
    source: Link
    target: Link
    links: tuple[ShownLink, ...]
    together: Link | None
    memories: tuple[Mention, ...]


@dataclass(frozen=True, slots=True)
class PathContext:
    tabs: tuple[Link, ...]
    begin: str
    end: str
    steps_asked: tuple[Option, ...]
    together: bool
    notices: tuple[Notice, ...]
    summary: str
    reason: str
    # Where the search takes in memories in common, where that was not asked for.
    wider: Link | None
    start: Link | None
    steps: tuple[ShownStep, ...]


def build_path(asked: PathRequest, path: Path | None, notices: Iterable[Notice], zone: tzinfo = UTC) -> PathContext:
    steps = tuple(_step(step, zone) for step in path.steps) if path else ()
    is_same = path is not None and path.source.id == path.target.id
    return PathContext(
        tabs=graph_tabs(None),
        begin=asked.begin,
        end=asked.end,
        steps_asked=tuple(Option(str(n), str(n), n == asked.steps) for n in range(1, MOST_STEPS + 1)),
        together=asked.together,
        notices=tuple(notices),
        summary=f"{plural(len(steps), 'step')} from {path.source.label} to {path.target.label}"
        if path and steps
        else "",
        reason="These two are the same." if is_same else path.reason if path else "",
        wider=Link("Also link entities mentioned in the same memory", path_url(asked.replace(together=True)))
        if path and path.reason and not asked.together
        else None,
        start=Link(path.source.label, term_url(ENTITY, path.source), path.source.type) if path and steps else None,
        steps=steps,
    )


def _step(step: Step, zone: tzinfo) -> ShownStep:
    both = both_url(ENTITY, step.source, step.target)
    count = step.bond.together
    return ShownStep(
        source=Link(step.source.label, term_url(ENTITY, step.source), step.source.type),
        target=Link(step.target.label, term_url(ENTITY, step.target), step.target.type),
        links=tuple(
            ShownLink(
                verb_text(record.type),
                record.source.id == step.source.id,
                record.fact,
                relationship_notes(record),
                evidence_link(record),
            )
            for record in step.relationships
        ),
        together=Link(f"{memories(count)} {names_or_name(count)} both", both) if count else None,
        memories=tuple(mention(memory, None, zone) for memory in step.memories),
    )


# --- names that mean nothing, or several -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LostContext:
    """In place of a node: what was asked for, and what may have been meant."""

    title: str
    message: str
    tabs: tuple[Link, ...]
    label: str
    choices: tuple[Link, ...]
    search_url: str


def build_lost(error: NameUnknownError | NameAmbiguousError) -> LostContext:
    kind = error.kind
    if isinstance(error, NameAmbiguousError):
        choices = tuple(
            Link(term.label, reverse(f"graph:{kind.key}", args=[term.id]), term.type) for term in error.choices
        )
        label = "Which one?"
    else:
        choices = tuple(Link(near, reverse(f"graph:{kind.key}", args=[near])) for near in error.did_you_mean)
        label = "Did you mean"
    search = TableRequest(search=(error.name.partition(":")[2] or error.name)[:200])
    return LostContext(
        title=f"Several {kind.many} with this name" if label == "Which one?" else f"No such {kind.key}",
        message=str(error),
        tabs=graph_tabs(kind),
        label=label if choices else "",
        choices=choices,
        search_url=table_url(kind, search),
    )


def end_notice(error: PathEndError, asked: PathRequest) -> Notice:
    """What is wrong with one of two names, with links that put it right."""
    field = "begin" if error.parameter == "from" else "end"
    cause = error.cause
    if isinstance(cause, NameAmbiguousError):
        meant, values = "Which one?", [(f"{term.label} ({term.type})", str(term.id)) for term in cause.choices]
    else:
        meant, values = "Did you mean", [(near, near) for near in cause.did_you_mean]
    links = tuple(Link(label, path_url(asked.replace(**{field: value})), f"Use {label}") for label, value in values)
    return Notice(str(cause), parameter=error.parameter, suggestion=meant if links else "", links=links)
