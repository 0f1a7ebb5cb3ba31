"""One entity or concept with all that its page says, and one relationship with its evidence."""

from dataclasses import dataclass, field
from datetime import date

from access.viewer import Viewer
from categories.graph.asking import AroundRequest
from categories.graph.kinds import CONCEPT, ENTITY, Kind
from categories.graph.neighbourhood import Neighbourhood, neighbourhood_of
from categories.graph.reads import Look, find, in_any_state, look_at, said_of
from categories.queries import CategoryNode, Term
from search.engines import answered
from search.engines.base import Counts, Engine, EngineTimeoutError, FacetRequest, Filter, Plan
from search.facets import DEFAULT_STATES
from search.histogram import Histogram, build_histogram, histogram_domain
from search.hits import hydrate
from search.query import Interval, Sort
from search.ranking import Ranked
from search.result import Hit
from search.snapshots import snapshot
from search.stopwatch import Stopwatch
from search.unified_rows import RelationshipRecord, relationship_rows
from search.vocabulary import evidence_of

_CATEGORIES, _TAGS, _OTHERS = 6, 12, 8
_SAMPLES = 5
_MOST_EVIDENCE = 100


@dataclass(frozen=True, slots=True)
class Profile:
    """What the memories that name a node have in common. Empty, with the reason, where counting took too long."""

    memories: int = 0
    first: date | None = None
    last: date | None = None
    histogram: Histogram = field(default_factory=Histogram)
    categories: tuple[tuple[CategoryNode, int], ...] = ()
    tags: tuple[tuple[str, int], ...] = ()
    # Of the other vocabulary.
    others: tuple[tuple[Term, int], ...] = ()
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """An entity or a concept. `samples` are the newest memories that name it."""

    kind: Kind
    term: Term
    aliases: tuple[str, ...]
    description: str
    profile: Profile
    samples: tuple[Hit, ...]
    around: Neighbourhood
    timings: dict[str, float]


@dataclass(frozen=True, slots=True)
class Fact:
    """A relationship, and the memories that bear it out, as far as the viewer may open them: at most 100."""

    record: RelationshipRecord
    evidence: tuple[Hit, ...]
    # What is archived, superseded or deleted.
    put_away: tuple[Hit, ...]
    timings: dict[str, float]


def node_of(kind: Kind, ref: str, asked: AroundRequest, viewer: Viewer) -> Node:
    """Raises NameUnknownError and NameAmbiguousError. A fixed number of statements."""
    return answered(lambda engine: _node(kind, ref, asked, viewer, engine), viewer)


def around_of(kind: Kind, ref: str, asked: AroundRequest, viewer: Viewer) -> tuple[Neighbourhood, dict[str, float]]:
    """The neighbourhood alone. Raises as `node_of` does."""

    def ask(engine: Engine) -> tuple[Neighbourhood, dict[str, float]]:
        watch = Stopwatch(engine.waited_ms)
        with snapshot(), watch.stage("graph"):
            look = look_at(kind, engine, viewer)
            return neighbourhood_of(look, find(look, ref), asked), watch.timings

    return answered(ask, viewer)


def fact_of(relationship_id: int, viewer: Viewer) -> Fact | None:
    """None where there is no such relationship, or none that the viewer may know of."""
    return answered(lambda engine: _fact(relationship_id, viewer, engine), viewer)


def _node(kind: Kind, ref: str, asked: AroundRequest, viewer: Viewer, engine: Engine) -> Node:
    watch = Stopwatch(engine.waited_ms)
    with snapshot():
        with watch.stage("facets"):
            look = look_at(kind, engine, viewer)
            term = find(look, ref)
            plan = look.planned.plan.with_filter(Filter(kind.key, include=((term.id,),)))
            profile = _profile(look, plan)
        with watch.stage("hits"):
            newest = engine.hits(plan, Sort.NEWEST, limit=_SAMPLES, offset=0)
            samples = hydrate([Ranked(pk) for pk, _ in newest], look.planned, viewer)
            aliases, description = said_of(kind, term.id)
        with watch.stage("graph"):
            around = neighbourhood_of(look, term, asked)
    return Node(kind, term, aliases, description, profile, samples, around, watch.timings)


def _profile(look: Look, plan: Plan) -> Profile:
    other = CONCEPT if look.kind is ENTITY else ENTITY
    requests = [FacetRequest("category", _CATEGORIES), FacetRequest("tag", _TAGS), FacetRequest(other.key, _OTHERS)]
    try:
        counts = look.engine.counts(plan, requests, zone=look.planned.zone, now=look.planned.now)
    except EngineTimeoutError:
        return Profile(unavailable="Counting took too long.")
    domain = histogram_domain(counts.days, None, None)
    categories = _counted(counts, "category")
    nodes = look.planned.names.category_nodes([pk for pk, _ in categories])
    others = _counted(counts, other.key)
    terms = other.terms(look.planned.names, [pk for pk, _ in others])
    return Profile(
        memories=counts.summary.total,
        first=domain[0] if domain else None,
        last=domain[1] if domain else None,
        histogram=build_histogram(counts.days, domain, Interval.MONTH) if domain else Histogram(),
        categories=tuple((nodes[pk], count) for pk, count in categories if pk in nodes),
        tags=tuple((str(v.value), v.count) for v in counts.facets["tag"].values if v.count),
        others=tuple((terms[pk], count) for pk, count in others if pk in terms),
    )


def _counted(counts: Counts, key: str) -> list[tuple[int, int]]:
    return [(int(value.value), value.count) for value in counts.facets[key].values if value.count]


def _fact(relationship_id: int, viewer: Viewer, engine: Engine) -> Fact | None:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("graph"):
        planned = look_at(ENTITY, engine, viewer).planned
        # An id is a bigint; a larger number is that of nothing.
        ids = [relationship_id] if relationship_id < 2**63 else []
        anywhere = in_any_state(planned)
        every = evidence_of(engine, anywhere, ids)
        if not every:
            return None
        now = {relationship_id: (), **evidence_of(engine, planned, ids)}
        rows = relationship_rows("own.id = ANY(%(ids)s)", {"ids": ids}, now)
        first = [*now[relationship_id], *sorted(set(every[relationship_id]) - set(now[relationship_id]))]
        hits = hydrate([Ranked(pk) for pk in first[:_MOST_EVIDENCE]], anywhere, viewer)
    ordered = sorted(hits, key=lambda hit: (hit.created_at, hit.id), reverse=True)
    return Fact(
        rows[relationship_id],
        tuple(hit for hit in ordered if hit.state in DEFAULT_STATES),
        tuple(hit for hit in ordered if hit.state not in DEFAULT_STATES),
        watch.timings,
    )
