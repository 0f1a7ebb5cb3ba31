"""NodeContext: all that the page of an entity or of a concept may read. No database and no request."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from categories.graph.asking import SAME_MEMORY, AroundRequest, PathRequest
from categories.graph.bonds import Bond
from categories.graph.drawing import Drawing, build_drawing
from categories.graph.kinds import ENTITY, KINDS, Kind
from categories.graph.neighbourhood import Neighbour, Neighbourhood
from categories.graph.node import Node
from categories.graph.reads import Tie
from categories.graph.wording import (
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
from categories.queries import Term
from search.chart import Option, Plot, build_plot
from search.context import Notice
from search.labels import day_text, memories
from search.links import Link, explore_url
from search.query import SearchQuery

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
            Link(label, term_url(kind, term, around.asked.but(depth=depth)), current=around.asked.depth == depth)
            for depth, label in ((1, "Neighbours"), (2, "Two steps"))
        ),
        rels=_rels(kind, around),
        leasts=tuple(
            Option(str(least) if least else "", "any number of" if not least else f"at least {least}",
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
        return "Linked with nothing" if around.asked == AroundRequest() else "Nothing is linked in this way"
    shown = sum(1 for one in around.drawn if one.level == 1)
    return f"Linked with {around.total:,}" + (
        f", of which the {shown} strongest are drawn" if shown < around.total else ""
    )


def _rels(kind: Kind, around: Neighbourhood) -> tuple[Link, ...]:
    """The types of links as switches, and all of them."""
    asked, center = around.asked, around.center
    every = Link("All links", term_url(kind, center, asked.but(rel=())), current=not asked.rel)
    return (
        every,
        *(
            Link(
                rel_label(name),
                term_url(kind, center, asked.but(rel=toggled(asked.rel, name))),
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
            found.setdefault((True, "Named in the same memories"), []).append(_together(kind, around.center, one))
    return tuple(Group(label, tuple(items)) for (_, label), items in sorted(found.items(), key=lambda pair: pair[0][0]))


def _tie_label(kind: Kind, center: Term, tie: Tie) -> str:
    is_out = tie.source == center.id
    if kind is not ENTITY:
        return "Related" if tie.type == "related" else "Broader" if is_out else "Narrower"
    return f"{center.label} {verb_text(tie.type)} …" if is_out else f"… {verb_text(tie.type)} {center.label}"


def _tied(kind: Kind, around: Neighbourhood, one: Neighbour, tie: Tie) -> Item:
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
        Link(memories(count), both_url(kind, center, one.term), f"{memories(count)} that name both") if count else None
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


def _bond_text(bond: Bond) -> str:
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
