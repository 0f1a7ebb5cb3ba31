import numpy as np
import pytest

from search.ranking import (
    COMPARED,
    NAMED_RELEVANCE,
    NEIGHBOURS,
    Boosts,
    Ranked,
    RankWeights,
    below_successors,
    demote,
    fold,
    fuse,
    rerank,
)
from text.query_syntax import parse_text, plain_text_of


def ids(ranked):
    return [one.id for one in ranked]


def test_fusion_adds_the_shares_of_both_legs():
    fused = fuse({1: 10.0, 2: 5.0, 3: 0.0, 4: 0.0}, {1: 0.3, 2: 0.9, 3: 0.6, 4: 0.3}, 0.6)
    assert [(one.id, round(one.relevance, 3)) for one in fused] == [(2, 0.8), (1, 0.4), (3, 0.3), (4, 0.0)]


def test_what_has_no_vector_yet_is_as_near_as_its_words_are_good():
    fused = fuse({1: 10.0, 2: 8.0, 3: 5.0, 4: 0.0}, {2: 0.9, 4: 0.3}, 0.6)
    assert [(one.id, round(one.relevance, 3)) for one in fused] == [(1, 1.0), (2, 0.92), (3, 0.5), (4, 0.0)]


@pytest.mark.parametrize(
    ("words", "similarities", "order"),
    [
        pytest.param({}, {}, [], id="nothing"),
        pytest.param({7: 2.0}, {}, [7], id="one by words"),
        pytest.param({}, {7: 0.5, 8: 0.5}, [8, 7], id="equal ones by id"),
        pytest.param({1: 3.0, 2: 3.0}, {1: 0.4}, [1, 2], id="equal words, one near"),
    ],
)
def test_fusion_orders_totally(words, similarities, order):
    assert ids(fuse(words, similarities, 0.6)) == order


# --- neighbours ---------------------------------------------------------------------------------------------------


def of_groups(count, first, second):
    """Candidates 1 to `count`, ever less relevant, with vectors in two directions by whether they are even."""
    fused = fuse({pk: float(count - pk) for pk in range(1, count + 1)}, {}, 0.6)
    return fused, {pk: second if pk % 2 == 0 else first for pk in range(1, count + 1)}


def test_candidates_that_resemble_relevant_ones_rise_above_those_that_do_not():
    fused = fuse({pk: float(60 - pk) for pk in range(1, 41)}, {}, 0.6)
    # The 20th resembles the first ten and the last of those that are compared, the others each other.
    vectors = {pk: unit(1, 0) if pk <= 12 or pk == 20 else unit(0, 1) for pk in range(1, 41)}
    compared = fused.with_neighbours(vectors, 0.6)
    assert {one.id: (one.fused_rank, one.neighbour_rank) for one in compared}[20] == (20, ids(compared).index(20) + 1)
    assert ids(compared).index(20) < 13
    assert ids(compared)[0] == 1


def test_the_first_candidates_are_compared_and_stay_the_first_in_the_range_that_they_had():
    fused, vectors = of_groups(50, unit(1, 0), unit(0, 1))
    compared = fused.with_neighbours(vectors, 0.6)
    assert set(ids(compared)[:COMPARED]) == set(range(1, COMPARED + 1))
    assert ids(compared)[COMPARED:] == list(range(COMPARED + 1, 51))
    relevances = [one.relevance for one in compared]
    assert relevances == sorted(relevances, reverse=True)
    assert (relevances[0], relevances[COMPARED - 1]) == (fused[0].relevance, fused[COMPARED - 1].relevance)
    assert [one.fused_rank is None for one in compared] == [n >= COMPARED for n in range(50)]


@pytest.mark.parametrize(
    ("count", "with_vectors", "weight"),
    [
        pytest.param(50, 50, 0.0, id="no weight"),
        pytest.param(2 * NEIGHBOURS - 1, 50, 0.6, id="few candidates"),
        pytest.param(50, 2 * NEIGHBOURS - 1, 0.6, id="few vectors"),
        pytest.param(0, 0, 0.6, id="nothing"),
    ],
)
def test_nothing_is_compared_without_enough_candidates_and_vectors(count, with_vectors, weight):
    fused, vectors = of_groups(count, unit(1, 0), unit(0, 1))
    assert fused.with_neighbours({pk: vectors[pk] for pk in vectors if pk <= with_vectors}, weight) is fused


def test_what_has_no_vector_keeps_its_relevance_among_those_that_are_compared():
    fused, vectors = of_groups(50, unit(1, 0), unit(1, 0))
    del vectors[1]
    compared = fused.with_neighbours(vectors, 0.6)
    assert ids(compared)[0] == 1
    assert len(compared) == 50


def test_a_memory_that_the_text_names_keeps_its_least_relevance_among_its_neighbours():
    words = {pk: float(100 - pk) for pk in range(1, 26)} | dict.fromkeys(range(26, 61), 0.0)
    fused = fuse(words, {}, 0.6, {40})
    vectors = {pk: unit(0, 1) if pk == 40 else unit(1, 0) for pk in range(1, 61)}
    named = {one.id: one.relevance for one in fused.with_neighbours(vectors, 0.6, {40})}
    assert named[40] >= NAMED_RELEVANCE


def test_rerank_prefers_what_is_better_in_itself_among_equals():
    candidates = [Ranked(1, relevance=0.5), Ranked(2, relevance=0.5)]
    boosts = {1: Boosts(quality=0.2, recency=0.5), 2: Boosts(quality=0.9, recency=0.5)}
    assert ids(rerank(candidates, boosts, RankWeights())) == [2, 1]


def test_rerank_lets_relevance_decide_where_it_differs_much():
    candidates = [Ranked(1, relevance=0.9), Ranked(2, relevance=0.5)]
    boosts = {1: Boosts(quality=0.0, recency=0.0), 2: Boosts(quality=1.0, recency=1.0)}
    assert ids(rerank(candidates, boosts, RankWeights())) == [1, 2]


def test_rerank_without_other_weights_keeps_the_order_of_relevance():
    candidates = [Ranked(n, relevance=1 - n / 10) for n in range(5)]
    boosts = {n: Boosts(quality=n / 10) for n in range(5)}
    assert ids(rerank(candidates, boosts, RankWeights(quality=0, recency=0, source=0))) == [0, 1, 2, 3, 4]


def unit(*values):
    vector = np.array(values, np.float32)
    return vector / np.linalg.norm(vector)


def test_near_duplicates_stand_behind_the_first_of_them():
    vectors = {1: unit(1, 0), 2: unit(0, 1), 3: unit(1, 0.01), 4: unit(0.01, 1), 5: unit(1, 0.02)}
    folded = fold([Ranked(n) for n in range(1, 6)], vectors, 0.95)
    assert [(one.id, one.similar_to) for one in folded] == [(1, None), (3, 1), (5, 1), (2, None), (4, 2)]
    between = fold([Ranked(n) for n in (1, 2, 3)], {1: unit(1, 0), 2: unit(1, 1), 3: unit(1, 0.414)}, 0.9)
    assert [(one.id, one.similar_to) for one in between] == [(1, None), (3, 1), (2, None)]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        pytest.param("green tea", "green tea", id="words"),
        pytest.param('"green tea" -milk +sugar', "green tea sugar", id="signs"),
        pytest.param("title:tea", "tea", id="field"),
        pytest.param('-"with milk"', "", id="only left out"),
        pytest.param("rm -rf", "rm -rf", id="flag"),
        pytest.param("   ", "", id="blank"),
    ],
)
def test_text_to_look_by_meaning_for(typed, said):
    assert plain_text_of(typed) == said


@pytest.mark.parametrize(
    ("typed", "described"),
    [
        pytest.param("green tea", "", id="words"),
        pytest.param('"green tea" cup', "the phrase", id="phrase"),
        pytest.param('"green tea" or coffee', "", id="phrase on one side"),
        pytest.param("tea +cup -milk", "every required word, and no excluded word", id="signs"),
    ],
)
def test_what_a_match_by_meaning_must_have_too(typed, described):
    always = parse_text(typed).always
    assert always.describe() == described
    assert always.is_empty == (not described)


def test_none_of_the_words_is_no_rank_by_words():
    fused = {one.id: one.keyword_rank for one in fuse({1: 4.0, 2: 0.0, 3: 1.0}, {2: 0.9}, 0.6)}
    assert fused == {1: 1, 2: None, 3: 2}


def test_score_is_the_sum_of_its_parts():
    (one,) = rerank([Ranked(1, relevance=0.8)], {1: Boosts(0.5, 0.2, 1.0)}, RankWeights(1.0, 0.5, 0.25, 0.25))
    assert one.score_parts.relevance == pytest.approx(0.4)
    assert (one.score_parts.quality, one.score_parts.recency, one.score_parts.source) == pytest.approx(
        (0.125, 0.025, 0.125)
    )
    assert one.score == pytest.approx(0.675)
    assert one.without_scores().score_parts.relevance is None
    assert one.without_scores().score_parts.quality == one.score_parts.quality


def test_what_carries_the_name_is_at_least_in_the_middle():
    fused = fuse({1: 10.0, 2: 0.0, 3: 0.0, 4: 9.0}, {1: 0.9, 2: 0.3, 3: 0.5, 4: 0.8}, 0.6, {2, 4})
    assert [(one.id, round(one.relevance, 2)) for one in fused] == [(1, 1.0), (4, 0.86), (2, 0.5), (3, 0.2)]


@pytest.mark.parametrize(
    ("order", "successors", "expected"),
    [
        pytest.param("abc", {}, "abc", id="nothing is superseded"),
        pytest.param("abcd", {"a": "c"}, "bcad", id="it follows its successor at once"),
        pytest.param("cab", {"a": "c"}, "cab", id="it is below already"),
        pytest.param("abcd", {"a": "b", "b": "c"}, "cbad", id="a chain, the newest first"),
        pytest.param("bacd", {"a": "b", "b": "c"}, "cbad", id="a chain that was half in order"),
        pytest.param("abc", {"a": "c", "b": "c"}, "cab", id="two that the third replaced"),
        pytest.param("abc", {"a": "z"}, "abc", id="its successor is not there"),
        pytest.param("abc", {"a": "b", "b": "a"}, "cab", id="a circle loses nothing"),
    ],
)
def test_superseded_memories_come_after_those_that_superseded_them(order, successors, expected):
    assert "".join(below_successors(order, successors)) == expected


def test_only_what_was_moved_names_the_memory_above_it():
    moved = demote([Ranked(1), Ranked(2), Ranked(3)], {1: 2, 3: 2})
    assert [(one.id, one.moved_below) for one in moved] == [(2, None), (1, 2), (3, None)]
