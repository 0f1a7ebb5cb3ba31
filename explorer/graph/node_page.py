"""The page of an entity or a concept. No database and no request."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from categories.queries import Term
from explorer.explore.histogram_plot import Plot, build_plot
from explorer.explore.page import Notice
from explorer.graph.labels import (
    SAME_MEMORY,
    AroundRequest,
    both_url,
    evidence_link,
    names_or_name,
    relationship_notes,
    term_url,
    toggled,
    warning_notices,
)
from explorer.graph.neighbourhood import Edge, Neighbourhood, NodeDetail, NodeNeighbour
from explorer.graph.queries import ENTITY, KINDS, NodeKind, StatedEdge
from explorer.graph.svg import Drawing, build_drawing, strongest
from explorer.links import Link
from search.query import SearchQuery
from text.formatting import memories, verb_text

# The page stays light; the API gives more.
_MORE_LISTED = 80
# Neighbours of a group that are listed at once.
_LISTED = 12
_SHARED = "Mentioned in the same memories"


_MIN_OFFERED = (0, 2, 3, 5, 10, 20)


@dataclass(frozen=True, slots=True)
class NeighbourItem:
    """A neighbour in a list, with its link in words and the evidence for it."""

    name: str
    url: str
    type: str
    note: str
    fact: str
    evidence: Link | None


@dataclass(frozen=True, slots=True)
class NeighbourGroup:
    label: str
    items: tuple[NeighbourItem, ...]

    is_all: bool = True
    """Whether no more of them are folded away."""


@dataclass(frozen=True)
class GraphNodePage:
    """The page of a node: the template reads `node` itself, and here what has to be put together."""

    node: NodeDetail
    plot: Plot | None
    drawing: Drawing | None
    groups: tuple[NeighbourGroup, ...]
    more: NeighbourGroup | None
    rels: tuple[Link, ...]
    notices: tuple[Notice, ...]

    @property
    def query(self) -> SearchQuery:
        """The memories that name the node."""
        return SearchQuery().only(self.node.kind.key, self.node.term.value)

    @property
    def other(self) -> NodeKind:
        """Concepts for an entity, entities for a concept."""
        return next(one for one in KINDS.values() if one is not self.node.kind)

    @property
    def left_out(self) -> int:
        """How many neighbours are not in the list."""
        return _left_out(self.node.around)

    @property
    def drawn(self) -> int:
        """How many direct neighbours are drawn."""
        return sum(1 for one in strongest(self.node.around).drawn if one.level == 1)

    @property
    def is_narrowed(self) -> bool:
        return self.node.around.params != AroundRequest()

    @property
    def minimums(self) -> list[int]:
        """The numbers of supporting memories to choose from."""
        return sorted({*_MIN_OFFERED, self.node.around.params.least})


def build_node(
    node: NodeDetail, notices: Iterable[Notice], zone: tzinfo = UTC, now: datetime | None = None
) -> GraphNodePage:
    kind, around, histogram = node.kind, node.around, node.profile.histogram
    query = SearchQuery().only(kind.key, node.term.value)
    groups, more = _listed(kind, around)
    has_months = len(histogram.bars) > 1
    return GraphNodePage(
        node,
        plot=build_plot(query, histogram, None, zone, now or datetime.now(UTC)) if has_months else None,
        drawing=build_drawing(around, _node_links(kind, around)) if around.drawn else None,
        groups=groups,
        more=more,
        rels=_rels(kind, around),
        notices=(*notices, *warning_notices(around.warnings)),
    )


def _rels(kind: NodeKind, around: Neighbourhood) -> tuple[Link, ...]:
    """Links that toggle each type of link, after one that clears the selection."""
    params, center = around.params, around.center
    every = Link("All links", term_url(kind, center, params.replace(rel=())), current=not params.rel)
    return (
        every,
        *(
            Link(
                rel_label(name),
                term_url(kind, center, params.replace(rel=toggled(params.rel, name))),
                count=f"{count:,}",
                current=name in params.rel,
            )
            for name, count in around.rels
        ),
    )


def rel_label(name: str) -> str:
    if name == SAME_MEMORY:
        return "in the same memory"
    return "broader or narrower" if name == "broader" else verb_text(name)


# --- neighbours in words -----------------------------------------------------------------------------------------


def _groups(kind: NodeKind, around: Neighbourhood) -> tuple[NeighbourGroup, ...]:
    """Neighbours by type and direction, stated edges first; a neighbour appears in the group of each of its edges."""
    found: dict[tuple[bool, str], list[NeighbourItem]] = {}
    for one in (one for one in around.drawn if one.level == 1):
        for tie in one.edge.ties:
            found.setdefault((False, _tie_label(kind, around.center, tie)), []).append(_tied(kind, around, one, tie))
        if not one.edge.ties:
            found.setdefault((True, _SHARED), []).append(_shared_item(kind, around.center, one))
    return tuple(
        NeighbourGroup(label, tuple(items)) for (_, label), items in sorted(found.items(), key=lambda pair: pair[0][0])
    )


def _tie_label(kind: NodeKind, center: Term, tie: StatedEdge) -> str:
    is_out = tie.source == center.id
    if kind is not ENTITY:
        return "Related" if tie.type == "related" else "Broader" if is_out else "Narrower"
    return f"{center.label} {verb_text(tie.type)} …" if is_out else f"… {verb_text(tie.type)} {center.label}"


def _tied(kind: NodeKind, around: Neighbourhood, one: NodeNeighbour, tie: StatedEdge) -> NeighbourItem:
    record = around.relationships.get(tie.id or 0)
    if record is None:
        shared = _shared_item(kind, around.center, one)
        return shared if one.edge.memories else _item(kind, one.term, "", "", None)
    also = f"{memories(one.edge.memories)} {names_or_name(one.edge.memories)} both" if one.edge.memories else ""
    note = " · ".join(part for part in (*relationship_notes(record), also) if part)
    return _item(kind, one.term, note, record.fact, evidence_link(record))


def _shared_item(kind: NodeKind, center: Term, one: NodeNeighbour) -> NeighbourItem:
    count = one.edge.memories
    link = (
        Link(memories(count), both_url(kind, center, one.term), f"{memories(count)} that mention both")
        if count
        else None
    )
    return _item(kind, one.term, "", "", link)


def _further(kind: NodeKind, around: Neighbourhood) -> tuple[NeighbourGroup, ...]:
    terms = {one.term.id: one.term for one in around.drawn}
    items = [
        _item(kind, one.term, f"by {terms[one.parent].label}: {_edge_text(one.edge)}", "", None)
        for one in around.drawn
        if one.level == 2 and one.parent in terms
    ]
    return (NeighbourGroup("Two steps away", tuple(items)),) if items else ()


def _listed(kind: NodeKind, around: Neighbourhood) -> tuple[tuple[NeighbourGroup, ...], NeighbourGroup | None]:
    """The groups that are listed at once, and what is folded away: the weaker ones of shared memories and the rest."""
    groups = list(_groups(kind, around))
    folded = [_flat(kind, around, one) for one in around.more[:_MORE_LISTED]]
    # The label of a stated group says what its items are: none is taken out of it.
    if groups and groups[-1].label == _SHARED and len(groups[-1].items) > _LISTED + 2:
        items = groups[-1].items
        groups[-1] = NeighbourGroup(_SHARED, items[:_LISTED], is_all=False)
        folded = [*items[_LISTED:], *folded]
    more = NeighbourGroup(f"{len(folded):,} more", tuple(folded)) if folded else None
    return (*groups, *_further(kind, around)), more


def _left_out(around: Neighbourhood) -> int:
    """How many neighbours are not in the list."""
    return around.unlisted + max(0, len(around.more) - _MORE_LISTED)


def _flat(kind: NodeKind, around: Neighbourhood, one: NodeNeighbour) -> NeighbourItem:
    """A neighbour on one line, with all of its links."""
    if one.edge.ties:
        return _item(kind, one.term, _edge_text(one.edge), "", None)
    return _shared_item(kind, around.center, one)


def _item(kind: NodeKind, term: Term, note: str, fact: str, evidence: Link | None) -> NeighbourItem:
    return NeighbourItem(term.label, term_url(kind, term), term.type, note, fact, evidence)


def _edge_text(edge: Edge) -> str:
    parts = list(dict.fromkeys(rel_label(tie.type) for tie in edge.ties))
    if edge.memories:
        parts.append(f"{memories(edge.memories)} {names_or_name(edge.memories)} both")
    return "; ".join(parts)


def _node_links(kind: NodeKind, around: Neighbourhood) -> dict[int, tuple[str, str]]:
    return {
        one.term.id: (
            term_url(kind, one.term),
            ", ".join(part for part in (one.term.label, one.term.type) if part) + f": {_edge_text(one.edge)}",
        )
        for one in around.drawn
    }
