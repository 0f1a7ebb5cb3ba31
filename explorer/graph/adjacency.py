"""Graphs as arrays: co-occurrence pairs, adjacency, and the shortest path. Pure: no database."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# Pairs expanded at once: a memory with a thousand names yields a million pairs.
_MOST_PAIRS = 2_000_000
_NONE = np.empty(0, np.int64)


class SearchTooLongError(Exception):
    """The search for a path ran out of time."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Distinct ordered pairs of nodes, sorted by left, then right. `weight` is the strength of each link."""

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
    """The number of groups that contain both nodes of each pair, for pairs whose left node is in `lefts` (None: any).

    `groups` and `nodes` are parallel arrays; the rows of a group are adjacent.
    """
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
    """Keys `left * width + right` of the pairs that some rows form within their groups, and the count of each."""
    sizes = size_of[rows]
    left = np.repeat(rows, sizes)
    right = np.repeat(start_of[rows], sizes) + _offsets(sizes)
    left, right = index[left], index[right]
    keys, counts = np.unique((left * width + right)[left != right], return_counts=True)
    return keys, counts


def _offsets(sizes: Ints) -> Ints:
    """0, 1, … within each run of the given sizes."""
    ends = np.cumsum(sizes)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes)


@dataclass(frozen=True, slots=True)
class Network:
    """An adjacency list in CSR form: node `k` is linked with entries `begins[k]` to `begins[k + 1]` of `others`."""

    nodes: Ints
    begins: Ints
    others: Ints
    weights: Ints

    @classmethod
    def from_pairs(cls, nodes: Ints, pairs: Pairs) -> "Network":
        """Build from pairs given in both directions; weights of repeated pairs add up."""
        width = max(len(nodes), 1)
        keys = np.searchsorted(nodes, pairs.left) * width + np.searchsorted(nodes, pairs.right)
        unique, inverse = np.unique(keys, return_inverse=True)
        weights = np.bincount(inverse, pairs.weight, len(unique)).astype(np.int64)
        begins = np.searchsorted(unique, np.arange(len(nodes) + 1) * width)
        return cls(nodes, begins, unique % width, weights)

    @property
    def degrees(self) -> Ints:
        """The number of neighbours of each node."""
        return np.diff(self.begins)

    def index_of(self, node: int) -> int | None:
        at = int(np.searchsorted(self.nodes, node))
        return at if at < len(self.nodes) and self.nodes[at] == node else None

    def links_of(self, ids: Collection[int]) -> Pairs:
        """All links that start at the given node ids."""
        wanted = np.unique(np.array(list(ids), np.int64))
        indexes = np.searchsorted(self.nodes, wanted)
        known = indexes < len(self.nodes)
        indexes = indexes[known][self.nodes[indexes[known]] == wanted[known]]
        left, right, weight = self._links_from(indexes)
        return Pairs(self.nodes[left], self.nodes[right], weight)

    def _links_from(self, indexes: Ints) -> tuple[Ints, Ints, Ints]:
        """Sources, targets and weights of all links that start at the given indexes."""
        sizes = self.begins[indexes + 1] - self.begins[indexes]
        at = np.repeat(self.begins[indexes], sizes) + _offsets(sizes)
        return np.repeat(indexes, sizes), self.others[at], self.weights[at]

    def shortest_path(
        self, source: int, target: int, steps: int, is_over: Callable[[], bool]
    ) -> tuple[int, ...] | None:
        """Node ids of a shortest path of at most `steps` links, the heaviest of equally short ones; None without any.

        Raises SearchTooLongError as soon as `is_over()` is true.
        """
        begin, end = self.index_of(source), self.index_of(target)
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
            _, reached, _ = self._links_from(frontier)
            frontier = np.unique(reached[level[reached] < 0])
            level[frontier] = step
        return tuple(int(self.nodes[at]) for at in self._heaviest_path(level, end))

    def _heaviest_path(self, level: Ints, end: int) -> list[int]:
        """Backtrack from the target by BFS level, keeping the heaviest edge; then read the path forward."""
        best = np.zeros(len(level), np.int64)
        following = np.full(len(level), -1)
        current = np.array([end])
        for wanted in range(int(level[end]) - 1, -1, -1):
            later, earlier, weights = self._links_from(current)
            on_the_way = level[earlier] == wanted
            later, earlier, weights = later[on_the_way], earlier[on_the_way], weights[on_the_way]
            total = best[later] + weights
            order = np.lexsort((later, -total, earlier))
            current, firsts = np.unique(earlier[order], return_index=True)
            best[current] = total[order][firsts]
            following[current] = later[order][firsts]
        at = int(current[0])
        indexes = [at]
        while at != end:
            at = int(following[at])
            indexes.append(at)
        return indexes
