"""All that links two nodes: what is stated of them, and the memories that name both."""

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from categories.graph.network import Pairs, pairs_within
from categories.graph.reads import Look, Tie, named_in_memories, ties_of
from categories.graph.whole import kept_whole


@dataclass(slots=True)
class Bond:
    """All that links two nodes: how many memories name both, and what has been stated."""

    together: int = 0
    ties: tuple[Tie, ...] = ()

    @property
    def strength(self) -> tuple[bool, int, int]:
        """What is stated comes before what only stands together."""
        return bool(self.ties), sum(tie.evidence for tie in self.ties), self.together

    @property
    def evidence(self) -> int:
        return max(self.together, *(tie.evidence for tie in self.ties), 0)


def bonds_of(look: Look, ids: Collection[int], *, between: bool = False) -> dict[tuple[int, int], Bond]:
    """What links some nodes with others, or with each other alone. The smaller id of two comes first."""
    bonds: dict[tuple[int, int], Bond] = defaultdict(Bond)
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


def _together(look: Look, ids: Collection[int]) -> Pairs:
    """From what is kept of this revision, where it is; else from the memories that name any of the nodes."""
    whole = kept_whole(look)
    if whole is not None:
        return whole.together.links_of(ids)
    groups, nodes, _ = named_in_memories(look, ids)
    return pairs_within(groups, nodes, sorted(ids))
