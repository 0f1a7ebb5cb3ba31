"""What is linked with one node, the strongest first: what of it is drawn, and what is only listed."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from categories.queries import Term
from explorer.graph.adjacency import Pairs, pairs_within
from explorer.graph.cache import cached_graph
from explorer.graph.params import SAME_MEMORY, AroundRequest
from explorer.graph.queries import GraphContext, StatedEdge, named_in_memories, ties_of
from search.result import SearchWarning
from search.unified.rows import RelationshipRecord, relationship_rows
from search.unified.vocabulary import evidence_of


@dataclass(slots=True)
class Edge:
    """All that links two nodes: how many memories name both, and what has been stated."""

    together: int = 0
    ties: tuple[StatedEdge, ...] = ()

    @property
    def strength(self) -> tuple[bool, int, int]:
        """What is stated comes before what only stands together."""
        return bool(self.ties), sum(tie.evidence for tie in self.ties), self.together

    @property
    def evidence(self) -> int:
        return max(self.together, *(tie.evidence for tie in self.ties), 0)


def bonds_of(look: GraphContext, ids: Collection[int], *, between: bool = False) -> dict[tuple[int, int], Edge]:
    """What links some nodes with others, or with each other alone. The smaller id of two comes first."""
    bonds: dict[tuple[int, int], Edge] = defaultdict(Edge)
    together = _together(look, ids)
    inside = np.isin(together.right, list(ids)) if between else np.ones(len(together.right), bool)
    columns = (column[inside].tolist() for column in (together.left, together.right, together.weight))
    for left, right, weight in zip(*columns, strict=True):
        bonds[min(left, right), max(left, right)].together = weight
    for tie in ties_of(look, ids, between=between):
        if tie.source != tie.target:
            bond = bonds[min(tie.source, tie.target), max(tie.source, tie.target)]
            # Nobody bears out that one concept is broader than another: what there is for it are memories about both.
            bond.ties = (*bond.ties, tie._replace(evidence=bond.together) if tie.id is None else tie)
    return dict(bonds)


def _together(look: GraphContext, ids: Collection[int]) -> Pairs:
    """From what is kept of this revision, where it is; else from the memories that name any of the nodes."""
    whole = cached_graph(look)
    if whole is not None:
        return whole.together.links_of(ids)
    groups, nodes, _ = named_in_memories(look, ids)
    return pairs_within(groups, nodes, sorted(ids))


MOST_NODES = 60
MOST_LINES = 120
# Of the nodes drawn, so many are next to the middle where the neighbours of neighbours are asked for.
_FIRST_OF_TWO = 24
_MOST_LISTED = 200

_Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A node, how it is linked with the one it hangs on, and how many steps it is from the middle."""

    term: Term
    bond: Edge
    parent: int
    level: int = 1


@dataclass(frozen=True, slots=True)
class Line:
    """Two nodes that are linked, as a drawing shows it."""

    source: int
    target: int
    bond: Edge


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Around a node: `drawn` and `lines` are at most 60 nodes, the middle one of them, and 120 lines.

    `more` are those of the first step that are not drawn, at most 200 of them; `total` counts all that pass.
    """

    center: Term
    asked: AroundRequest
    drawn: tuple[Neighbour, ...]
    lines: tuple[Line, ...]
    more: tuple[Neighbour, ...]
    total: int
    # How many neighbours there are by each type of link, whatever was asked for.
    rels: tuple[tuple[str, int], ...]
    relationships: Mapping[int, RelationshipRecord]
    warnings: tuple[SearchWarning, ...] = ()

    @property
    def unlisted(self) -> int:
        """How many of the first step are neither drawn nor listed."""
        return self.total - len(self.more) - sum(1 for one in self.drawn if one.level == 1)


def neighbourhood_of(look: GraphContext, center: Term, asked: AroundRequest) -> Neighbourhood:
    """A fixed number of statements, whatever the number of neighbours."""
    every = bonds_of(look, [center.id])
    rels = _rels(every.values())
    around = {_other(pair, center.id): bond for pair, bond in narrowed(every, asked).items()}
    order = sorted(around, key=lambda pk: _rank(around[pk], pk))
    first = order[: _FIRST_OF_TWO if asked.depth == 2 else MOST_NODES - 1]
    hung = _second(look, center, first, set(around), asked) if asked.depth == 2 else {}
    listed = order[len(first) : len(first) + _MOST_LISTED]
    terms = look.terms([*first, *hung, *listed])
    drawn = [Neighbour(terms[pk], around[pk], center.id) for pk in first if pk in terms]
    drawn += [Neighbour(terms[pk], bond, parent, 2) for pk, (parent, bond) in hung.items() if pk in terms]
    more = tuple(Neighbour(terms[pk], around[pk], center.id) for pk in listed if pk in terms)
    return Neighbourhood(
        center=center,
        asked=asked,
        drawn=tuple(drawn),
        lines=_lines(look, center, drawn, asked),
        more=more,
        total=len(around),
        rels=rels,
        relationships=records_of(look, (tie for one in (*drawn, *more) for tie in one.bond.ties)),
        warnings=tuple(_warnings(asked, rels)),
    )


def narrowed(bonds: Mapping[_Pair, Edge], asked: AroundRequest) -> dict[_Pair, Edge]:
    """What of the bonds is of the types asked for and is borne out by enough memories."""
    found: dict[_Pair, Edge] = {}
    for pair, bond in bonds.items():
        ties = tuple(tie for tie in bond.ties if tie.evidence >= asked.least and _is_wanted(tie.type, asked))
        together = bond.together if bond.together >= asked.least and _is_wanted(SAME_MEMORY, asked) else 0
        if ties or together:
            found[pair] = Edge(together, ties)
    return found


def records_of(look: GraphContext, ties: Iterable[StatedEdge]) -> dict[int, RelationshipRecord]:
    """The relationships of some ties as they are stored, with the evidence that the viewer may know of."""
    ids = sorted({tie.id for tie in ties if tie.id is not None})
    evidence = evidence_of(look.engine, look.resolved, ids)
    return relationship_rows("own.id = ANY(%(ids)s)", {"ids": list(evidence)}, evidence, len(ids)) if evidence else {}


def _is_wanted(name: str, asked: AroundRequest) -> bool:
    return not asked.rel or name in asked.rel


def _other(pair: _Pair, pk: int) -> int:
    return pair[1] if pair[0] == pk else pair[0]


def _rank(bond: Edge, *ids: int) -> tuple[object, ...]:
    stated, evidence, together = bond.strength
    return (not stated, -evidence, -together, *ids)


def _rels(bonds: Iterable[Edge]) -> tuple[tuple[str, int], ...]:
    counts: dict[str, int] = {}
    for bond in bonds:
        for name in {tie.type for tie in bond.ties} | ({SAME_MEMORY} if bond.together else set()):
            counts[name] = counts.get(name, 0) + 1
    return tuple(sorted(counts.items(), key=lambda pair: (pair[0] == SAME_MEMORY, -pair[1], pair[0])))


def _second(
    look: GraphContext, center: Term, first: list[int], nearer: set[int], asked: AroundRequest
) -> dict[int, tuple[int, Edge]]:
    """What hangs on the neighbours and is no neighbour itself: each with the one it is linked with most."""
    best: dict[int, tuple[int, Edge]] = {}
    among = set(first)
    for pair, bond in sorted(narrowed(bonds_of(look, first), asked).items()):
        for parent, pk in (pair, pair[::-1]):
            if parent in among and pk not in nearer and pk != center.id:
                known = best.get(pk)
                if known is None or _rank(bond, parent) < _rank(known[1], known[0]):
                    best[pk] = (parent, bond)
    order = sorted(best, key=lambda pk: _rank(best[pk][1], pk))
    return {pk: best[pk] for pk in order[: MOST_NODES - 1 - len(first)]}


def _lines(look: GraphContext, center: Term, drawn: list[Neighbour], asked: AroundRequest) -> tuple[Line, ...]:
    """From each node to the one it hangs on, and then the strongest of those between the others."""
    lines = {_pair(one.parent, one.term.id): Line(one.parent, one.term.id, one.bond) for one in drawn}
    between = narrowed(bonds_of(look, [one.term.id for one in drawn], between=True), asked)
    others = sorted((pair for pair in between if pair not in lines), key=lambda pair: _rank(between[pair], *pair))
    lines |= {pair: Line(*pair, between[pair]) for pair in others[: MOST_LINES - len(lines)]}
    return tuple(lines.values())


def _pair(one: int, other: int) -> _Pair:
    return min(one, other), max(one, other)


def _warnings(asked: AroundRequest, rels: tuple[tuple[str, int], ...]) -> Iterable[SearchWarning]:
    known = [name for name, _ in rels]
    for name in asked.rel:
        if name not in known:
            there_are = f" The types are: {', '.join(known)}." if known else ""
            yield SearchWarning(f"No link here has the type “{name}”.{there_are}", "rel")
