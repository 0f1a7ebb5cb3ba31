"""Reads one entity, concept or relationship, with what its memories have in common."""

from dataclasses import dataclass, field
from datetime import date

from access.viewer import Viewer
from categories.queries import CategoryNode, Term
from explorer.graph.neighbourhood import Neighbourhood, neighbourhood_of
from explorer.graph.params import AroundRequest
from explorer.graph.queries import (
    CONCEPT,
    ENTITY,
    GraphContext,
    NodeKind,
    description_of,
    find_node,
    in_any_state,
    open_graph,
)
from search.engines import snapshot, with_engine
from search.engines.base import Counts, Engine, EngineQuery, EngineTimeoutError, FacetRequest, Filter
from search.facet_counts import TIED, by_count_and_name
from search.facets import DEFAULT_STATES, FACET
from search.histogram import Histogram, build_histogram, histogram_domain
from search.hits import load_hits
from search.query import Interval, Sort
from search.ranking import Ranked
from search.result import Hit
from search.unified.rows import StoredRelationship, relationship_rows
from search.unified.vocabulary import evidence_of
from web.timing import Stopwatch

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
    return RelationshipDetail(
        rows[relationship_id],
        tuple(hit for hit in ordered if hit.state in DEFAULT_STATES),
        tuple(hit for hit in ordered if hit.state not in DEFAULT_STATES),
        watch.timings,
    )
