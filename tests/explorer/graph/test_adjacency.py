"""Pairs, networks and shortest paths compared to plain Python."""

from collections import Counter, deque
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.graph import adjacency
from explorer.graph.adjacency import Network, Pairs, SearchTooLongError, pairs_within

GROUPS = st.lists(st.sets(st.integers(1, 12), max_size=6), max_size=8)
LINKS = st.dictionaries(
    st.tuples(st.integers(1, 14), st.integers(1, 14)).filter(lambda pair: pair[0] < pair[1]),
    st.integers(1, 5),
    max_size=40,
)


def laid_out(groups):
    rows = [(number, node) for number, group in enumerate(groups) for node in group]
    return np.array([row[0] for row in rows], np.int64), np.array([row[1] for row in rows], np.int64)


def as_counts(pairs):
    return dict(zip(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True), pairs.weight.tolist(), strict=True))


def network_of(links, nodes=range(1, 15)):
    left, right = [pair[0] for pair in links], [pair[1] for pair in links]
    pairs = Pairs(np.array(left, np.int64), np.array(right, np.int64), np.array(list(links.values()), np.int64))
    return Network.from_pairs(np.array(nodes, np.int64), pairs.both_ways())


def distance(links, source, target):
    """The distance between two nodes by breadth-first search; None without a path."""
    around = {}
    for one, other in links:
        around.setdefault(one, set()).add(other)
        around.setdefault(other, set()).add(one)
    steps, queue = {source: 0}, deque([source])
    while queue:
        node = queue.popleft()
        for other in around.get(node, ()):
            if other not in steps:
                steps[other] = steps[node] + 1
                queue.append(other)
    return steps.get(target)


def never():
    return False


@given(GROUPS, st.sets(st.integers(1, 12)))
def test_pairs_are_counted_as_a_loop_counts_them(groups, lefts):
    expected = Counter((a, b) for group in groups for a in group for b in group if a != b)
    assert as_counts(pairs_within(*laid_out(groups))) == expected
    of_some = {pair: count for pair, count in expected.items() if pair[0] in lefts}
    assert as_counts(pairs_within(*laid_out(groups), sorted(lefts))) == of_some


@given(GROUPS)
def test_pairs_laid_out_a_few_at_a_time_are_the_same(groups):
    at_once = as_counts(pairs_within(*laid_out(groups)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacency, "_MOST_PAIRS", 7)
        assert as_counts(pairs_within(*laid_out(groups))) == at_once


@given(LINKS, st.integers(1, 14), st.integers(1, 14), st.integers(1, 8))
def test_chain_is_as_short_as_a_plain_search_says(links, source, target, steps):
    expected = distance(links, source, target)
    chain = network_of(links).shortest_path(source, target, steps, never)
    if expected is None or expected > steps:
        assert chain is None
        return
    assert (chain[0], chain[-1], len(chain) - 1) == (source, target, expected)
    for one, other in pairwise(chain):
        assert (min(one, other), max(one, other)) in links


def test_of_chains_as_short_the_one_with_most_evidence_is_taken():
    links = {(1, 2): 5, (2, 4): 1, (1, 3): 3, (3, 4): 4}
    assert network_of(links).shortest_path(1, 4, 8, never) == (1, 3, 4)


def test_of_chains_that_weigh_the_same_the_smaller_numbers_are_taken():
    assert network_of({(1, 3): 1, (3, 4): 1, (1, 2): 1, (2, 4): 1}).shortest_path(1, 4, 8, never) == (1, 2, 4)


def test_degrees_count_others_and_not_links():
    pairs = Pairs(np.array([1, 1]), np.array([2, 2]), np.array([3, 4])).both_ways()
    linked = Network.from_pairs(np.array([1, 2, 3]), pairs)
    assert linked.degrees.tolist() == [1, 1, 0]
    assert linked.weights.tolist() == [7, 7]


def test_search_ends_with_its_time():
    with pytest.raises(SearchTooLongError):
        network_of({(1, 2): 1, (2, 3): 1}).shortest_path(1, 3, 8, lambda: True)
