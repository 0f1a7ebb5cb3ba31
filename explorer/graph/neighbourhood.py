"""Reads of a node, and its neighbourhood, strongest links first: the part to draw, and the rest as a list."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from urllib.parse import urlencode

import numpy as np

from access.viewer import Viewer
from categories.queries import CategoryNode, Term
from explorer.graph.adjacency import Pairs, pairs_within
from explorer.graph.cache import cached_graph
from explorer.graph.labels import SAME_MEMORY, AroundRequest
from explorer.graph.queries import (
    CONCEPT,
    ENTITY,
    GraphContext,
    NodeKind,
    StatedEdge,
    description_of,
    find_node,
    in_any_state,
    named_in_memories,
    open_graph,
    stated_edges,
)
from memories.models import MemoryRead
from memories.recalls import record_passing
from search.engines import snapshot, with_engine
from search.engines.base import Counts, Engine, EngineQuery, EngineTimeoutError, FacetRequest, Filter
from search.facet_counts import TIED, by_count_and_name
from search.facets import DEFAULT_STATES, FACET
from search.histogram import Histogram, build_histogram, histogram_domain
from search.hits import load_hits
from search.query import Interval, Sort
from search.ranking import Ranked
from search.result import Hit, SearchWarning
from search.unified.rows import StoredRelationship, relationship_rows
from search.unified.vocabulary import evidence_of
from text.analysis import fold
from web.timing import Stopwatch


@dataclass(slots=True)
class Edge:
    """All links between two nodes: the number of memories that name both, and the stated edges."""

    memories: int = 0
    ties: tuple[StatedEdge, ...] = ()

    @property
    def strength(self) -> tuple[bool, int, int]:
        """A sort key: stated edges rank above shared memories."""
        return bool(self.ties), sum(tie.evidence for tie in self.ties), self.memories

    @property
    def evidence(self) -> int:
        return max(self.memories, *(tie.evidence for tie in self.ties), 0)


def edges_of(context: GraphContext, ids: Collection[int], *, between: bool = False) -> dict[tuple[int, int], Edge]:
    """Edges at some nodes (with `between`, only among them), keyed by (smaller id, larger id)."""
    edges: dict[tuple[int, int], Edge] = defaultdict(Edge)
    shared = _shared_pairs(context, ids)
    inside = np.isin(shared.right, list(ids)) if between else np.ones(len(shared.right), bool)
    columns = (column[inside].tolist() for column in (shared.left, shared.right, shared.weight))
    for left, right, weight in zip(*columns, strict=True):
        edges[min(left, right), max(left, right)].memories = weight
    for tie in stated_edges(context, ids, between=between):
        if tie.source != tie.target:
            edge = edges[min(tie.source, tie.target), max(tie.source, tie.target)]
            # Edges between concepts have no evidence of their own: the memories about both stand in for it.
            edge.ties = (*edge.ties, tie._replace(evidence=edge.memories) if tie.id is None else tie)
    return dict(edges)


def _shared_pairs(context: GraphContext, ids: Collection[int]) -> Pairs:
    """Pairs by shared memories, from the cached graph if there is one."""
    graph = cached_graph(context)
    if graph is not None:
        return graph.shared.links_of(ids)
    groups, nodes, _ = named_in_memories(context, ids)
    return pairs_within(groups, nodes, sorted(ids))


MOST_NODES = 60
MOST_LINES = 120
# Direct neighbours to draw when the depth is 2.
_FIRST_OF_TWO = 24
_MOST_LISTED = 200

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class NodeNeighbour:
    """A node at distance `level` from the center, and its edge to the node it is reached from, `parent`."""

    term: Term
    edge: Edge
    parent: int
    level: int = 1


@dataclass(frozen=True, slots=True)
class NodeLink:
    """An edge of the drawing."""

    source: int
    target: int
    edge: Edge


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The part of the graph around a node: at most 60 nodes to draw, including the center, and 120 lines.

    `more` are direct neighbours beyond those drawn, at most 200; `total` counts all direct neighbours.
    """

    center: Term
    params: AroundRequest
    drawn: tuple[NodeNeighbour, ...]
    lines: tuple[NodeLink, ...]
    more: tuple[NodeNeighbour, ...]
    total: int
    rels: tuple[tuple[str, int], ...]
    """The number of neighbours by type of link, ignoring the filters."""
    relationships: Mapping[int, StoredRelationship]
    warnings: tuple[SearchWarning, ...] = ()

    @property
    def unlisted(self) -> int:
        """The number of direct neighbours neither drawn nor listed."""
        return self.total - len(self.more) - sum(1 for one in self.drawn if one.level == 1)


def neighbourhood_of(context: GraphContext, center: Term, params: AroundRequest) -> Neighbourhood:
    """The neighbourhood of a node. The number of statements does not depend on the number of neighbours."""
    every = edges_of(context, [center.id])
    rels = _rels(every.values())
    around = {_other(pair, center.id): edge for pair, edge in narrowed(every, params).items()}
    place = _place(context, around)
    order = sorted(around, key=lambda pk: _rank(around[pk], place(pk)))
    first = order[: _FIRST_OF_TWO if params.depth == 2 else MOST_NODES - 1]
    hung = _second(context, center, first, set(around), params) if params.depth == 2 else {}
    listed = order[len(first) : len(first) + _MOST_LISTED]
    terms = context.terms([*first, *hung, *listed])
    drawn = [NodeNeighbour(terms[pk], around[pk], center.id) for pk in first if pk in terms]
    drawn += [NodeNeighbour(terms[pk], edge, parent, 2) for pk, (parent, edge) in hung.items() if pk in terms]
    more = tuple(NodeNeighbour(terms[pk], around[pk], center.id) for pk in listed if pk in terms)
    return Neighbourhood(
        center=center,
        params=params,
        drawn=tuple(drawn),
        lines=_lines(context, center, drawn, params),
        more=more,
        total=len(around),
        rels=rels,
        relationships=records_of(context, (tie for one in (*drawn, *more) for tie in one.edge.ties)),
        warnings=tuple(_warnings(params, rels)),
    )


def narrowed(edges: Mapping[_Pair, Edge], params: AroundRequest) -> dict[_Pair, Edge]:
    """The edges of the requested types with enough memories as evidence."""
    found: dict[_Pair, Edge] = {}
    for pair, edge in edges.items():
        ties = tuple(tie for tie in edge.ties if tie.evidence >= params.least and _is_wanted(tie.type, params))
        memories = edge.memories if edge.memories >= params.least and _is_wanted(SAME_MEMORY, params) else 0
        if ties or memories:
            found[pair] = Edge(memories, ties)
    return found


def records_of(context: GraphContext, ties: Iterable[StatedEdge]) -> dict[int, StoredRelationship]:
    """The stored relationships of some edges, with the evidence visible to the viewer."""
    ids = sorted({tie.id for tie in ties if tie.id is not None})
    evidence = evidence_of(context.engine, context.resolved, ids)
    return relationship_rows("own.id = ANY(%(ids)s)", {"ids": list(evidence)}, evidence, len(ids)) if evidence else {}


def _is_wanted(name: str, params: AroundRequest) -> bool:
    return not params.rel or name in params.rel


def _other(pair: _Pair, pk: int) -> int:
    return pair[1] if pair[0] == pk else pair[0]


def _rank(edge: Edge, *places: object) -> tuple[object, ...]:
    stated, evidence, memories = edge.strength
    return (not stated, -evidence, -memories, *places)


def _place(context: GraphContext, ids: Iterable[int]) -> Callable[[int], tuple[str, int]]:
    """The order of nodes with equal edges. For viewers of some projects that is by name: the order of ids would show
    which of them others used first.
    """
    names = {} if context.viewer.project_ids is None else context.terms(ids)
    values = {pk: fold(term.value) for pk, term in names.items()}
    return lambda pk: (values.get(pk, ""), pk)


def _rels(edges: Iterable[Edge]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for edge in edges:
        for name in {tie.type for tie in edge.ties} | ({SAME_MEMORY} if edge.memories else set()):
            counts[name] = counts.get(name, 0) + 1
    return tuple(sorted(counts.items(), key=lambda pair: (pair[0] == SAME_MEMORY, -pair[1], pair[0])))


def _second(
    context: GraphContext, center: Term, first: list[int], nearer: set[int], params: AroundRequest
) -> dict[int, tuple[int, Edge]]:
    """Nodes at distance 2, each with its most strongly linked direct neighbour as (parent, edge)."""
    best: dict[int, tuple[int, Edge]] = {}
    among = set(first)
    edges = narrowed(edges_of(context, first), params)
    place = _place(context, {pk for pair in edges for pk in pair})
    for pair, edge in sorted(edges.items()):
        for parent, pk in (pair, pair[::-1]):
            if parent in among and pk not in nearer and pk != center.id:
                known = best.get(pk)
                if known is None or _rank(edge, place(parent)) < _rank(known[1], place(known[0])):
                    best[pk] = (parent, edge)
    order = sorted(best, key=lambda pk: _rank(best[pk][1], place(pk)))
    return {pk: best[pk] for pk in order[: MOST_NODES - 1 - len(first)]}


def _lines(
    context: GraphContext, center: Term, drawn: list[NodeNeighbour], params: AroundRequest
) -> tuple[NodeLink, ...]:
    """The edge from each node to its parent, then the strongest of the other edges."""
    lines = {_pair(one.parent, one.term.id): NodeLink(one.parent, one.term.id, one.edge) for one in drawn}
    between = narrowed(edges_of(context, [one.term.id for one in drawn], between=True), params)
    place = _place(context, {pk for pair in between for pk in pair})
    others = sorted(
        (pair for pair in between if pair not in lines),
        key=lambda pair: _rank(between[pair], *sorted(map(place, pair))),
    )
    lines |= {pair: NodeLink(*pair, between[pair]) for pair in others[: MOST_LINES - len(lines)]}
    return tuple(lines.values())


def _pair(one: int, other: int) -> _Pair:
    return min(one, other), max(one, other)


def _warnings(params: AroundRequest, rels: tuple[tuple[str, int], ...]) -> Iterable[SearchWarning]:
    known = [name for name, _ in rels]
    for name in params.rel:
        if name not in known:
            there_are = f" The types are: {', '.join(known)}." if known else ""
            yield SearchWarning(f"No link here has the type “{name}”.{there_are}", "rel")


_CATEGORIES, _TAGS, _OTHERS = 6, 12, 8
_SAMPLES = 5
_MOST_EVIDENCE = 100


@dataclass(frozen=True, slots=True)
class Profile:
    """Facets and dates of the memories that name a node; empty, with `unavailable`, if counting took too long."""

    memories: int = 0
    first: date | None = None
    last: date | None = None
    histogram: Histogram = field(default_factory=Histogram)
    categories: tuple[tuple[CategoryNode, int], ...] = ()
    tags: tuple[tuple[str, int], ...] = ()
    others: tuple[tuple[Term, int], ...] = ()
    """Concepts of an entity, entities of a concept."""
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class NodeDetail:
    """An entity or a concept. `samples` are the newest memories that name it."""

    kind: NodeKind
    term: Term
    aliases: tuple[str, ...]
    description: str
    profile: Profile
    samples: tuple[Hit, ...]
    around: Neighbourhood
    timings: dict[str, float]


@dataclass(frozen=True, slots=True)
class RelationshipDetail:
    """A relationship and at most 100 visible memories that are evidence for it."""

    record: StoredRelationship
    evidence: tuple[Hit, ...]
    put_away: tuple[Hit, ...]
    """Evidence that is archived, superseded or deleted."""
    timings: dict[str, float]


def node_detail(kind: NodeKind, ref: str, params: AroundRequest, viewer: Viewer) -> NodeDetail:
    """A node by id, name or alias. Raises NameUnknownError and NameAmbiguousError."""
    return with_engine(lambda engine: _node(kind, ref, params, viewer, engine), viewer)


def node_neighbourhood(
    kind: NodeKind, ref: str, params: AroundRequest, viewer: Viewer
) -> tuple[Neighbourhood, dict[str, float]]:
    """The neighbourhood of a node, and the timings. Raises the errors of `node_detail`."""

    def ask(engine: Engine) -> tuple[Neighbourhood, dict[str, float]]:
        watch = Stopwatch(engine.waited_ms)
        with snapshot(), watch.stage("graph"):
            context = open_graph(kind, engine, viewer)
            return neighbourhood_of(context, find_node(context, ref), params), watch.timings

    return with_engine(ask, viewer)


def relationship_detail(relationship_id: int, viewer: Viewer) -> RelationshipDetail | None:
    """A relationship by id; None if it does not exist or is not visible."""
    return with_engine(lambda engine: _fact(relationship_id, viewer, engine), viewer)


def _node(kind: NodeKind, ref: str, params: AroundRequest, viewer: Viewer, engine: Engine) -> NodeDetail:
    watch = Stopwatch(engine.waited_ms)
    with snapshot():
        with watch.stage("facets"):
            context = open_graph(kind, engine, viewer)
            term = find_node(context, ref)
            plan = context.resolved.plan.with_filter(Filter(kind.key, include=((term.id,),)))
            profile = _profile(context, plan)
        with watch.stage("hits"):
            newest = engine.hits(plan, Sort.NEWEST, limit=_SAMPLES, offset=0)
            samples = load_hits([Ranked(pk) for pk, _ in newest], context.resolved, viewer)
            aliases, description = description_of(kind, term, viewer.project_ids)
        with watch.stage("graph"):
            around = neighbourhood_of(context, term, params)
    record_passing(viewer, [hit.id for hit in samples], MemoryRead.Kind.LIST, urlencode({kind.key: ref}))
    return NodeDetail(kind, term, aliases, description, profile, samples, around, watch.timings)


def _profile(context: GraphContext, plan: EngineQuery) -> Profile:
    other = CONCEPT if context.kind is ENTITY else ENTITY
    requests = [FacetRequest("category", TIED), FacetRequest("tag", _TAGS), FacetRequest(other.key, TIED)]
    try:
        counts = context.engine.counts(plan, requests, zone=context.resolved.zone, now=context.resolved.now)
    except EngineTimeoutError:
        return Profile(unavailable="Counting took too long.")
    domain = histogram_domain(counts.days, None, None)
    categories = _counted(context, counts, "category")[:_CATEGORIES]
    nodes = context.resolved.names.category_nodes([pk for pk, _ in categories])
    others = _counted(context, counts, other.key)[:_OTHERS]
    terms = other.terms(context.resolved.names, [pk for pk, _ in others])
    return Profile(
        memories=counts.summary.total,
        first=domain[0] if domain else None,
        last=domain[1] if domain else None,
        histogram=build_histogram(counts.days, domain, Interval.MONTH) if domain else Histogram(),
        categories=tuple((nodes[pk], count) for pk, count in categories if pk in nodes),
        tags=tuple((str(v.value), v.count) for v in counts.facets["tag"].values if v.count),
        others=tuple((terms[pk], count) for pk, count in others if pk in terms),
    )


def _counted(context: GraphContext, counts: Counts, key: str) -> list[tuple[int, int]]:
    """The ids of values with their counts, the largest first, equal ones by name."""
    values = [value for value in counts.facets[key].values if value.count]
    return [(int(v.value), v.count) for v in by_count_and_name(FACET[key], values, context.resolved)]


def _fact(relationship_id: int, viewer: Viewer, engine: Engine) -> RelationshipDetail | None:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("graph"):
        resolved = open_graph(ENTITY, engine, viewer).resolved
        # Ids are bigints.
        ids = [relationship_id] if relationship_id < 2**63 else []
        anywhere = in_any_state(resolved)
        every = evidence_of(engine, anywhere, ids)
        if not every:
            return None
        now = {relationship_id: (), **evidence_of(engine, resolved, ids)}
        rows = relationship_rows("own.id = ANY(%(ids)s)", {"ids": ids}, now)
        first = [*now[relationship_id], *sorted(set(every[relationship_id]) - set(now[relationship_id]))]
        hits = load_hits([Ranked(pk) for pk in first[:_MOST_EVIDENCE]], anywhere, viewer)
    ordered = sorted(hits, key=lambda hit: (hit.created_at, hit.id), reverse=True)
    record_passing(viewer, [hit.id for hit in ordered], MemoryRead.Kind.LIST, f"relationship={relationship_id}")
    return RelationshipDetail(
        rows[relationship_id],
        tuple(hit for hit in ordered if hit.state in DEFAULT_STATES),
        tuple(hit for hit in ordered if hit.state not in DEFAULT_STATES),
        watch.timings,
    )
