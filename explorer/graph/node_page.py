"""NodeContext: all that the page of an entity or of a concept may read. No database and no request."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo

from access.viewer import Viewer
from categories.queries import CategoryNode, Term
from explorer.graph.labels import (
    Sample,
    both_url,
    evidence_link,
    graph_tabs,
    names_or_name,
    path_url,
    relationship_notes,
    sample_of,
    term_url,
    toggled,
    verb_text,
    warning_notices,
)
from explorer.graph.neighbourhood import Edge, Neighbour, Neighbourhood, neighbourhood_of
from explorer.graph.params import SAME_MEMORY, AroundRequest, PathRequest
from explorer.graph.queries import (
    CONCEPT,
    ENTITY,
    KINDS,
    GraphContext,
    Kind,
    StatedEdge,
    find,
    in_any_state,
    open_graph,
    said_of,
)
from explorer.graph.svg import Drawing, build_drawing
from explorer.histogram_plot import Option, Plot, build_plot
from explorer.links import Link, explore_url
from explorer.page import Notice
from search.engines import with_engine
from search.engines.base import Counts, Engine, EngineQuery, EngineTimeoutError, FacetRequest, Filter
from search.facets import DEFAULT_STATES
from search.histogram import Histogram, build_histogram, histogram_domain
from search.hits import load_hits
from search.query import Interval, SearchQuery, Sort
from search.ranking import Ranked
from search.result import Hit
from search.snapshots import snapshot
from search.unified.rows import RelationshipRecord, relationship_rows
from search.unified.vocabulary import evidence_of
from text.formatting import day_text, memories
from web.timing import Stopwatch

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
    return with_engine(lambda engine: _node(kind, ref, asked, viewer, engine), viewer)


def around_of(kind: Kind, ref: str, asked: AroundRequest, viewer: Viewer) -> tuple[Neighbourhood, dict[str, float]]:
    """The neighbourhood alone. Raises as `node_of` does."""

    def ask(engine: Engine) -> tuple[Neighbourhood, dict[str, float]]:
        watch = Stopwatch(engine.waited_ms)
        with snapshot(), watch.stage("graph"):
            look = open_graph(kind, engine, viewer)
            return neighbourhood_of(look, find(look, ref), asked), watch.timings

    return with_engine(ask, viewer)


def fact_of(relationship_id: int, viewer: Viewer) -> Fact | None:
    """None where there is no such relationship, or none that the viewer may know of."""
    return with_engine(lambda engine: _fact(relationship_id, viewer, engine), viewer)


def _node(kind: Kind, ref: str, asked: AroundRequest, viewer: Viewer, engine: Engine) -> Node:
    watch = Stopwatch(engine.waited_ms)
    with snapshot():
        with watch.stage("facets"):
            look = open_graph(kind, engine, viewer)
            term = find(look, ref)
            plan = look.resolved.plan.with_filter(Filter(kind.key, include=((term.id,),)))
            profile = _profile(look, plan)
        with watch.stage("hits"):
            newest = engine.hits(plan, Sort.NEWEST, limit=_SAMPLES, offset=0)
            samples = load_hits([Ranked(pk) for pk, _ in newest], look.resolved, viewer)
            aliases, description = said_of(kind, term.id)
        with watch.stage("graph"):
            around = neighbourhood_of(look, term, asked)
    return Node(kind, term, aliases, description, profile, samples, around, watch.timings)


def _profile(look: GraphContext, plan: EngineQuery) -> Profile:
    other = CONCEPT if look.kind is ENTITY else ENTITY
    requests = [FacetRequest("category", _CATEGORIES), FacetRequest("tag", _TAGS), FacetRequest(other.key, _OTHERS)]
    try:
        counts = look.engine.counts(plan, requests, zone=look.resolved.zone, now=look.resolved.now)
    except EngineTimeoutError:
        return Profile(unavailable="Counting took too long.")
    domain = histogram_domain(counts.days, None, None)
    categories = _counted(counts, "category")
    nodes = look.resolved.names.category_nodes([pk for pk, _ in categories])
    others = _counted(counts, other.key)
    terms = other.terms(look.resolved.names, [pk for pk, _ in others])
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
        resolved = open_graph(ENTITY, engine, viewer).resolved
        # An id is a bigint; a larger number is that of nothing.
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
    return Fact(
        rows[relationship_id],
        tuple(hit for hit in ordered if hit.state in DEFAULT_STATES),
        tuple(hit for hit in ordered if hit.state not in DEFAULT_STATES),
        watch.timings,
    )


_MIN_OFFERED = (0, 2, 3, 5, 10, 20)


@dataclass(frozen=True, slots=True)
class Item:
    """A neighbour in a list: how it is linked, in words, and where that is borne out."""

    name: str
    url: str
    type: str
    note: str
    fact: str
    evidence: Link | None


@dataclass(frozen=True, slots=True)
class Group:
    label: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class NodeContext:
    kind: str
    name: str
    value: str
    type: str
    aliases: tuple[str, ...]
    description: str
    tabs: tuple[Link, ...]
    facts: tuple[Link, ...]
    explore_url: str
    path_url: str
    plot: Plot | None
    unavailable: str
    categories: tuple[Link, ...]
    tags: tuple[Link, ...]
    others: tuple[Link, ...]
    others_label: str
    samples: tuple[Sample, ...]
    # The neighbourhood.
    heading: str
    drawing: Drawing | None
    groups: tuple[Group, ...]
    more: Group | None
    unlisted: str
    depths: tuple[Link, ...]
    rels: tuple[Link, ...]
    leasts: tuple[Option, ...]
    hidden: tuple[tuple[str, str], ...]
    notices: tuple[Notice, ...]


def build_node(node: Node, notices: Iterable[Notice], zone: tzinfo = UTC, now: datetime | None = None) -> NodeContext:
    kind, term, profile, around = node.kind, node.term, node.profile, node.around
    query = SearchQuery().only(kind.key, term.value)
    other = next(one for one in KINDS.values() if one is not kind)
    listed = [one for one in around.drawn if one.level == 1]
    return NodeContext(
        kind=kind.key,
        name=term.label,
        value=term.value,
        type=term.type,
        aliases=node.aliases,
        description=node.description,
        tabs=graph_tabs(kind),
        facts=tuple(_facts(node, query)),
        explore_url=explore_url(query),
        path_url=path_url(PathRequest(begin=term.value)) if kind is ENTITY else "",
        plot=build_plot(query, profile.histogram, None, zone, now or datetime.now(UTC))
        if len(profile.histogram.bars) > 1
        else None,
        unavailable=profile.unavailable,
        categories=tuple(
            Link(" / ".join(at.names), explore_url(query.only("category", at.path)), count=f"{count:,}")
            for at, count in profile.categories
        ),
        tags=tuple(Link(tag, explore_url(query.only("tag", tag)), count=f"{count:,}") for tag, count in profile.tags),
        others=tuple(
            Link(one.label, term_url(other, one), one.type, count=f"{count:,}") for one, count in profile.others
        ),
        others_label=other.many.capitalize(),
        samples=tuple(sample_of(hit, zone, query) for hit in node.samples),
        heading=_heading(around),
        drawing=build_drawing(around, _told_nodes(kind, around)) if around.drawn else None,
        groups=(*_groups(kind, around, listed), *_further(kind, around)),
        more=Group(f"{len(around.more):,} more", tuple(_flat(kind, around, one) for one in around.more))
        if around.more
        else None,
        unlisted=f"and {around.unlisted:,} more with fewer memories" if around.unlisted else "",
        depths=tuple(
            Link(label, term_url(kind, term, around.asked.replace(depth=depth)), current=around.asked.depth == depth)
            for depth, label in ((1, "Neighbours"), (2, "Two steps"))
        ),
        rels=_rels(kind, around),
        leasts=tuple(
            Option(str(least) if least else "", "0" if not least else f"{least}",
                   around.asked.least == least)
            for least in sorted({*_MIN_OFFERED, around.asked.least})
        ),
        hidden=tuple(pair for pair in around.asked.parameters() if pair[0] != "min"),
        notices=(*notices, *warning_notices(around.warnings)),
    )  # fmt: skip


def _facts(node: Node, query: SearchQuery) -> Iterable[Link]:
    profile = node.profile
    if not profile.unavailable:
        yield Link("Memories", explore_url(query) if profile.memories else "", count=f"{profile.memories:,}")
    yield Link("Linked with", "", count=f"{node.around.total:,}")
    if profile.first and profile.last:
        yield Link("First seen", "", count=day_text(profile.first))
        yield Link("Last seen", "", count=day_text(profile.last))


def _heading(around: Neighbourhood) -> str:
    if not around.total:
        return "No links" if around.asked == AroundRequest() else "No links of this type"
    shown = sum(1 for one in around.drawn if one.level == 1)
    return f"Linked with {around.total:,}" + (f", the {shown} strongest drawn" if shown < around.total else "")


def _rels(kind: Kind, around: Neighbourhood) -> tuple[Link, ...]:
    """The types of links as switches, and all of them."""
    asked, center = around.asked, around.center
    every = Link("All links", term_url(kind, center, asked.replace(rel=())), current=not asked.rel)
    return (
        every,
        *(
            Link(
                rel_label(name),
                term_url(kind, center, asked.replace(rel=toggled(asked.rel, name))),
                count=f"{count:,}",
                current=name in asked.rel,
            )
            for name, count in around.rels
        ),
    )


def rel_label(name: str) -> str:
    if name == SAME_MEMORY:
        return "in the same memory"
    return "broader or narrower" if name == "broader" else verb_text(name)


# --- neighbours in words -----------------------------------------------------------------------------------------


def _groups(kind: Kind, around: Neighbourhood, neighbours: Iterable[Neighbour]) -> tuple[Group, ...]:
    """By type and direction, what is stated first; a neighbour stands under everything that is stated of it."""
    found: dict[tuple[bool, str], list[Item]] = {}
    for one in neighbours:
        for tie in one.bond.ties:
            found.setdefault((False, _tie_label(kind, around.center, tie)), []).append(_tied(kind, around, one, tie))
        if not one.bond.ties:
            found.setdefault((True, "Mentioned in the same memories"), []).append(_together(kind, around.center, one))
    return tuple(Group(label, tuple(items)) for (_, label), items in sorted(found.items(), key=lambda pair: pair[0][0]))


def _tie_label(kind: Kind, center: Term, tie: StatedEdge) -> str:
    is_out = tie.source == center.id
    if kind is not ENTITY:
        return "Related" if tie.type == "related" else "Broader" if is_out else "Narrower"
    return f"{center.label} {verb_text(tie.type)} …" if is_out else f"… {verb_text(tie.type)} {center.label}"


def _tied(kind: Kind, around: Neighbourhood, one: Neighbour, tie: StatedEdge) -> Item:
    record = around.relationships.get(tie.id or 0)
    if record is None:
        together = _together(kind, around.center, one)
        return together if one.bond.together else _item(kind, one.term, "", "", None)
    also = f"{memories(one.bond.together)} {names_or_name(one.bond.together)} both" if one.bond.together else ""
    note = " · ".join(part for part in (*relationship_notes(record), also) if part)
    return _item(kind, one.term, note, record.fact, evidence_link(record))


def _together(kind: Kind, center: Term, one: Neighbour) -> Item:
    count = one.bond.together
    link = (
        Link(memories(count), both_url(kind, center, one.term), f"{memories(count)} that mention both")
        if count
        else None
    )
    return _item(kind, one.term, "", "", link)


def _further(kind: Kind, around: Neighbourhood) -> tuple[Group, ...]:
    terms = {one.term.id: one.term for one in around.drawn}
    items = [
        _item(kind, one.term, f"by {terms[one.parent].label}: {_bond_text(one.bond)}", "", None)
        for one in around.drawn
        if one.level == 2 and one.parent in terms
    ]
    return (Group("Two steps away", tuple(items)),) if items else ()


def _flat(kind: Kind, around: Neighbourhood, one: Neighbour) -> Item:
    """A neighbour in one line, whatever links it."""
    if one.bond.ties:
        return _item(kind, one.term, _bond_text(one.bond), "", None)
    return _together(kind, around.center, one)


def _item(kind: Kind, term: Term, note: str, fact: str, evidence: Link | None) -> Item:
    return Item(term.label, term_url(kind, term), term.type, note, fact, evidence)


def _bond_text(bond: Edge) -> str:
    parts = list(dict.fromkeys(rel_label(tie.type) for tie in bond.ties))
    if bond.together:
        parts.append(f"{memories(bond.together)} {names_or_name(bond.together)} both")
    return "; ".join(parts)


def _told_nodes(kind: Kind, around: Neighbourhood) -> dict[int, tuple[str, str]]:
    return {
        one.term.id: (
            term_url(kind, one.term),
            ", ".join(part for part in (one.term.label, one.term.type) if part) + f": {_bond_text(one.bond)}",
        )
        for one in around.drawn
    }
