"""Nodes and the links between them as arrays: who is together with whom, and the shortest chain. Pure."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# Pairs that are laid out at once: one memory may name a thousand, which are a million pairs.
_MOST_PAIRS = 2_000_000
_NONE = np.empty(0, np.int64)


class SearchTooLongError(Exception):
    """The time for a search was over before it was."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Ordered pairs of nodes, each once, by the left one and then the right. `weight` is how much links them."""

    left: Ints
    right: Ints
    weight: Ints

    def both_ways(self) -> "Pairs":
        return Pairs(
            np.concatenate([self.left, self.right]),
            np.concatenate([self.right, self.left]),
            np.concatenate([self.weight, self.weight]),
        )


NO_PAIRS = Pairs(_NONE, _NONE, _NONE)


def pairs_within(groups: Ints, nodes: Ints, lefts: Sequence[int] | None = None) -> Pairs:
    """How many groups each two nodes are in together, seen from those of `lefts`. A group's rows are side by side."""
    if not len(nodes):
        return NO_PAIRS
    values, index = np.unique(nodes, return_inverse=True)
    starts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
    sizes = np.diff(np.r_[starts, len(groups)])
    start_of, size_of = np.repeat(starts, sizes), np.repeat(sizes, sizes)
    rows = np.arange(len(nodes)) if lefts is None else np.flatnonzero(np.isin(nodes, list(lefts)))
    if not len(rows):
        return NO_PAIRS
    ends = np.cumsum(size_of[rows])
    cuts = np.searchsorted(ends, np.arange(_MOST_PAIRS, ends[-1], _MOST_PAIRS))
    found = [_counted(chunk, start_of, size_of, index, len(values)) for chunk in np.split(rows, cuts) if len(chunk)]
    keys, inverse = np.unique(np.concatenate([keys for keys, _ in found]), return_inverse=True)
    weight = np.bincount(inverse, np.concatenate([counts for _, counts in found]), len(keys)).astype(np.int64)
    return Pairs(values[keys // len(values)], values[keys % len(values)], weight)


def _counted(rows: Ints, start_of: Ints, size_of: Ints, index: Ints, width: int) -> tuple[Ints, Ints]:
    """The pairs of each row with the others of its group, as one number each, and how often there is each."""
    sizes = size_of[rows]
    left = np.repeat(rows, sizes)
    right = np.repeat(start_of[rows], sizes) + _places(sizes)
    left, right = index[left], index[right]
    keys, counts = np.unique((left * width + right)[left != right], return_counts=True)
    return keys, counts


def _places(sizes: Ints) -> Ints:
    """0, 1, … within each run of the given sizes."""
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes)


@dataclass(frozen=True, slots=True)
class Network:
    """Nodes in order, and those that each is linked with: of node `k` the entries `begins[k]` to `begins[k + 1]`."""

    nodes: Ints
    begins: Ints
    others: Ints
    weights: Ints

    @classmethod
    def of(cls, nodes: Ints, pairs: Pairs) -> "Network":
        """Of pairs given both ways among the nodes; what links the same two adds up."""
        width = max(len(nodes), 1)
        keys = np.searchsorted(nodes, pairs.left) * width + np.searchsorted(nodes, pairs.right)
        unique, inverse = np.unique(keys, return_inverse=True)
        weights = np.bincount(inverse, pairs.weight, len(unique)).astype(np.int64)
        begins = np.searchsorted(unique, np.arange(len(nodes) + 1) * width)
        return cls(nodes, begins, unique % width, weights)

    @property
    def degrees(self) -> Ints:
        """How many others each node is linked with."""
        return np.diff(self.begins)

    def place(self, node: int) -> int | None:
        at = int(np.searchsorted(self.nodes, node))
        return at if at < len(self.nodes) and self.nodes[at] == node else None

    def links_of(self, ids: Collection[int]) -> Pairs:
        """All links of some nodes."""
        wanted = np.unique(np.array(list(ids), np.int64))
        places = np.searchsorted(self.nodes, wanted)
        known = places < len(self.nodes)
        places = places[known][self.nodes[places[known]] == wanted[known]]
        left, right, weight = self._around(places)
        return Pairs(self.nodes[left], self.nodes[right], weight)

    def _around(self, places: Ints) -> tuple[Ints, Ints, Ints]:
        """All links of some nodes: from where, to where, how strong."""
        sizes = self.begins[places + 1] - self.begins[places]
        at = np.repeat(self.begins[places], sizes) + _places(sizes)
        return np.repeat(places, sizes), self.others[at], self.weights[at]

    def chain(self, source: int, target: int, steps: int, is_over: Callable[[], bool]) -> tuple[int, ...] | None:
        """The nodes of a shortest chain of at most so many steps: of several, one with the most weight in sum.

        Raises SearchTooLongError where `is_over` says so before it is found.
        """
        begin, end = self.place(source), self.place(target)
        if begin is None or end is None:
            return None
        level = np.full(len(self.nodes), -1)
        level[begin] = 0
        frontier = np.array([begin])
        step = 0
        while level[end] < 0:
            if step == steps or not len(frontier):
                return None
            if is_over():
                raise SearchTooLongError
            step += 1
            _, reached, _ = self._around(frontier)
            frontier = np.unique(reached[level[reached] < 0])
            level[frontier] = step
        return tuple(int(self.nodes[at]) for at in self._strongest(level, end))

    def _strongest(self, level: Ints, end: int) -> list[int]:
        """Back from the end, level by level, what is best to go on to from each node on the way; then forth by that."""
        best = np.zeros(len(level), np.int64)
        onward = np.full(len(level), -1)
        current = np.array([end])
        for wanted in range(int(level[end]) - 1, -1, -1):
            later, earlier, weights = self._around(current)
            on_the_way = level[earlier] == wanted
            later, earlier, weights = later[on_the_way], earlier[on_the_way], weights[on_the_way]
            worth = best[later] + weights
            order = np.lexsort((later, -worth, earlier))
            current, firsts = np.unique(earlier[order], return_index=True)
            best[current] = worth[order][firsts]
            onward[current] = later[order][firsts]
        at = int(current[0])
        places = [at]
        while at != end:
            at = int(onward[at])
            places.append(at)
        return places
