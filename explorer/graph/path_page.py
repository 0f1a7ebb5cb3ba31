"""Finds the path between two entities; contexts of a path, of the pages of relationships and of unknown names."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from django.db import OperationalError
from django.urls import reverse
from psycopg.errors import QueryCanceled

from access.viewer import Viewer
from categories.queries import Term
from explorer.explore.page import Notice
from explorer.graph.adjacency import SearchTooLongError
from explorer.graph.cache import load_graph
from explorer.graph.labels import PathRequest, TableRequest, graph_tabs, path_url, table_url
from explorer.graph.neighbourhood import Edge, edges_of, records_of
from explorer.graph.queries import (
    ENTITY,
    GraphContext,
    NameAmbiguousError,
    NameUnknownError,
    find_node,
    memory_titles,
    open_graph,
)
from explorer.links import Link
from memories.queries import MemoryTitle
from search.engines import snapshot, with_engine
from search.engines.base import Engine, Filter
from search.query import Sort
from search.unified.rows import StoredRelationship
from web.errors import Refusal
from web.timing import Stopwatch

# For the whole search, and for each statement.
MOST_TIME = timedelta(seconds=3)
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class PathStep:
    """Two consecutive entities and the edge between them. `memories` are at most three as evidence."""

    source: Term
    target: Term
    edge: Edge
    relationships: tuple[StoredRelationship, ...]
    memories: tuple[MemoryTitle, ...]


@dataclass(frozen=True, slots=True)
class NodePath:
    """A path, or the reason why there is none. Both are empty if source and target are the same."""

    params: PathRequest
    source: Term
    target: Term
    steps: tuple[PathStep, ...]
    reason: str
    timings: dict[str, float]


class PathEndError(Refusal):
    """The name at one end of a path does not mean one entity. `parameter` says which end, `cause` why."""

    def __init__(self, parameter: str, cause: NameUnknownError | NameAmbiguousError) -> None:
        self.parameter, self.cause = parameter, cause
        self.status, self.code, self.suggestion = cause.status, cause.code, cause.suggestion
        self.did_you_mean = cause.did_you_mean
        super().__init__(f"{parameter}: {cause}")


def find_path(params: PathRequest, viewer: Viewer) -> NodePath:
    """The shortest path between two visible entities. Raises PathEndError."""
    return with_engine(lambda engine: _path(params, viewer, engine), viewer)


def _path(params: PathRequest, viewer: Viewer, engine: Engine) -> NodePath:
    watch = Stopwatch(engine.waited_ms)
    over = time.monotonic() + MOST_TIME.total_seconds()
    with watch.stage("search"), snapshot():
        context = open_graph(ENTITY, engine, viewer)
        source, target = _end(context, "from", params.begin), _end(context, "to", params.end)
    steps: tuple[PathStep, ...] = ()
    reason = ""
    try:
        with watch.stage("graph"), snapshot(int(MOST_TIME.total_seconds() * 1000)):
            context = open_graph(ENTITY, engine, viewer)
            graph = load_graph(context)
            network = graph.linked if params.together else graph.stated
            chain = network.shortest_path(source.id, target.id, params.steps, lambda: time.monotonic() > over)
            if chain is None and source.id != target.id:
                reason = _none(params, source, target)
            steps = _steps(context, chain or ())
    except SearchTooLongError:
        reason = _late()
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        reason = _late()
    return NodePath(params, source, target, steps, reason, watch.timings)


def _end(context: GraphContext, parameter: str, name: str) -> Term:
    try:
        return find_node(context, name)
    except (NameUnknownError, NameAmbiguousError) as error:
        raise PathEndError(parameter, error) from error


def _none(params: PathRequest, source: Term, target: Term) -> str:
    by = "relationships and shared memories" if params.together else "relationships"
    steps = "1 step" if params.steps == 1 else f"{params.steps} steps"
    return f"No path by {by} leads from {source.label} to {target.label} within {steps}."


def _late() -> str:
    return f"The search stopped after {MOST_TIME.total_seconds():g} s. Ask for fewer steps, or try again later."


def _steps(context: GraphContext, chain: Sequence[int]) -> tuple[PathStep, ...]:
    if len(chain) < 2:
        return ()
    terms = context.terms(chain)
    edges = edges_of(context, chain, between=True)
    links = {(a, b): edges[min(a, b), max(a, b)] for a, b in pairwise(chain)}
    records = records_of(context, (tie for edge in links.values() for tie in edge.ties))
    stated = {pair: _stated(edge, records) for pair, edge in links.items()}
    shown = {pair: _evidence(context, pair, stated[pair]) for pair in links}
    titles = memory_titles(context.viewer, [pk for ids in shown.values() for pk in ids])
    return tuple(
        PathStep(terms[a], terms[b], edge, stated[a, b], tuple(titles[pk] for pk in shown[a, b] if pk in titles))
        for (a, b), edge in links.items()
    )


def _stated(edge: Edge, records: Mapping[int, StoredRelationship]) -> tuple[StoredRelationship, ...]:
    return tuple(records[tie.id] for tie in edge.ties if tie.id is not None)


def _evidence(context: GraphContext, pair: tuple[int, int], stated: Sequence[StoredRelationship]) -> list[int]:
    """Memories for a step: evidence of its relationships, else the newest that name both entities."""
    ids = sorted({pk for record in stated for pk in record.evidence}, reverse=True)[:_SHOWN]
    if ids or stated:
        return ids
    both = Filter(context.kind.key, include=tuple((pk,) for pk in pair), require_all=True)
    found = context.engine.hits(context.resolved.plan.with_filter(both), Sort.NEWEST, limit=_SHOWN, offset=0)
    return [pk for pk, _ in found]


# --- a path, on the page of an entity ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PathForm:
    """The form for a path on the page of an entity; `found` is the path, if an end is asked for."""

    start: Term
    params: PathRequest
    found: NodePath | None
    notices: tuple[Notice, ...]

    @property
    def reason(self) -> str:
        """Why there is no path."""
        if self.found is None:
            return ""
        return "These two are the same." if self.found.source.id == self.found.target.id else self.found.reason

    @property
    def wider_url(self) -> str:
        """The same search through shared memories too."""
        return path_url(self.start, self.params.replace(together=True))


# --- unknown and ambiguous names ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LostContext:
    """The page for an unknown or ambiguous name, with suggestions."""

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
        choices = tuple(Link(name, reverse(f"graph:{kind.key}", args=[name])) for name in error.did_you_mean)
        label = "Did you mean"
    search = TableRequest(search=(error.name.partition(":")[2] or error.name)[:200])
    return LostContext(
        title=f"Several {kind.plural} with this name" if label == "Which one?" else f"No such {kind.key}",
        message=str(error),
        tabs=graph_tabs(kind),
        label=label if choices else "",
        choices=choices,
        search_url=table_url(kind, search),
    )


def end_notice(error: PathEndError, start: Term, params: PathRequest) -> Notice:
    """A notice about an unknown or ambiguous end, with links that correct it."""
    cause = error.cause
    if isinstance(cause, NameAmbiguousError):
        label, values = "Which one?", [(f"{term.label} ({term.type})", str(term.id)) for term in cause.choices]
    else:
        label, values = "Did you mean", [(name, name) for name in cause.did_you_mean]
    links = tuple(Link(name, path_url(start, params.replace(end=value)), f"Use {name}") for name, value in values)
    return Notice(str(cause), parameter=error.parameter, suggestion=label if links else "", links=links)
