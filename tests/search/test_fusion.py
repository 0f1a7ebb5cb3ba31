"""Fusion and deduplication of hand-made answers, without a database."""

import pytest

from search.ranking import Boosts, RankWeights
from search.unified.legs import Candidate, LegAnswer, LegState, Origin, ResultKind, Terms, Way, fold, fuse, rerank
from search.unified.vocabulary import LegHit

MEMORY, ENTITY, RELATIONSHIP = ResultKind.MEMORY, ResultKind.ENTITY, ResultKind.RELATIONSHIP
WEIGHTS = {"memory": 1.0, "entity": 0.8, "relationship": 0.7}


def leg(kind, way, *ids, state=LegState.OK, scores=None):
    found = tuple(LegHit(pk, (scores or {}).get(pk, 1.0), 1) for pk in ids)
    return LegAnswer(kind, way, 1.0, state, found)


def order(candidates):
    return [(one.kind.value, one.id) for one in candidates]


def by_both(kind, *ids):
    return [leg(kind, Way.WORDS, *ids), leg(kind, Way.MEANING, *ids)]


def test_the_first_of_each_kind_stand_in_the_order_of_their_weights():
    found = fuse([*by_both(RELATIONSHIP, 1), *by_both(ENTITY, 1), *by_both(MEMORY, 1)], WEIGHTS)
    assert order(found) == [("memory", 1), ("entity", 1), ("relationship", 1)]
    assert [one.relevance for one in found] == [1.0, 0.8, 0.7]


def test_places_count_and_raw_scores_do_not():
    loud = [leg(ENTITY, Way.WORDS, 1, scores={1: 99.0}), leg(ENTITY, Way.MEANING, 1, scores={1: 99.0})]
    quiet = [leg(MEMORY, Way.WORDS, 1, scores={1: 0.01}), leg(MEMORY, Way.MEANING, 1, scores={1: 0.01})]
    assert order(fuse([*loud, *quiet], WEIGHTS)) == [("memory", 1), ("entity", 1)]


def test_the_best_entity_stands_before_the_fifth_memory():
    found = fuse([*by_both(MEMORY, 1, 2, 3, 4, 5), *by_both(ENTITY, 9)], WEIGHTS)
    assert order(found)[3:5] == [("entity", 9), ("memory", 4)]


def test_what_both_ways_found_stands_before_what_one_found():
    found = fuse([leg(MEMORY, Way.WORDS, 1, 2), leg(MEMORY, Way.MEANING, 2, 3)], WEIGHTS)
    assert order(found) == [("memory", 2), ("memory", 1), ("memory", 3)]
    assert found[0].places == {Way.WORDS: 2, Way.MEANING: 1}


def test_a_leg_that_is_left_out_costs_its_kind_nothing():
    late = leg(ENTITY, Way.MEANING, state=LegState.LATE)
    found = fuse([leg(ENTITY, Way.WORDS, 1), late], WEIGHTS)
    assert [one.relevance for one in found] == [0.8]


def test_what_a_late_leg_found_in_the_end_is_not_used():
    assert fuse([leg(ENTITY, Way.MEANING, 1, state=LegState.LATE)], WEIGHTS) == []


def test_rerank_weighs_what_speaks_for_a_result_itself():
    found = fuse(by_both(MEMORY, 1, 2), WEIGHTS)
    boosts = {(MEMORY, 1): Boosts(0.0, 0.0), (MEMORY, 2): Boosts(1.0, 1.0)}
    assert order(rerank(found, boosts, RankWeights(1.0, 0.0, 0.0, 0.0))) == [("memory", 1), ("memory", 2)]
    assert order(rerank(found, boosts, RankWeights(1.0, 0.5, 0.5, 0.0))) == [("memory", 2), ("memory", 1)]


# --- folding ------------------------------------------------------------------------------------------------------


def words(text, own=""):
    return Terms(frozenset(text.split()), frozenset(own.split()))


def candidate(kind, pk, score):
    return Candidate(kind, pk, score, {Way.WORDS: 1}, score)


def groups(candidates, terms=None, origins=None, least=0.85):
    found = fold(candidates, terms or {}, origins or {}, least)
    return [(g.lead.key, [(one.candidate.key, one.reason) for one in g.folded]) for g in found]


TWENTY = "a b c d e f g h i j k l m n o p q r s t"


@pytest.mark.parametrize(
    ("other", "is_folded"),
    [
        pytest.param(TWENTY, True, id="the same"),
        pytest.param(TWENTY[:-6], True, id="17 of 20, which is 85 %"),
        pytest.param(TWENTY[:-8], False, id="16 of 20"),
        pytest.param(f"{TWENTY} u v w x", False, id="20 of 24"),
        pytest.param("z", False, id="nothing in common"),
        pytest.param("", False, id="nothing at all"),
    ],
)
def test_texts_are_one_from_85_percent_of_their_terms_on(other, is_folded):
    found = groups(
        [candidate(MEMORY, 1, 0.9), candidate(MEMORY, 2, 0.8)], {(MEMORY, 1): words(TWENTY), (MEMORY, 2): words(other)}
    )
    one = [((MEMORY, 1), [((MEMORY, 2), "nearly the same text")])]
    assert found == (one if is_folded else [((MEMORY, 1), []), ((MEMORY, 2), [])])


def test_a_memory_is_told_before_an_entity_before_a_relationship_in_the_best_place():
    said = {(kind, 1): words(TWENTY) for kind in ResultKind}
    found = groups(
        [
            candidate(RELATIONSHIP, 1, 0.9),
            candidate(MEMORY, 7, 0.8),
            candidate(ENTITY, 1, 0.7),
            candidate(MEMORY, 1, 0.6),
        ],
        said,
    )
    assert [lead for lead, _ in found] == [(MEMORY, 1), (MEMORY, 7)]
    assert [key for key, _ in found[0][1]] == [(ENTITY, 1), (RELATIONSHIP, 1)]


def test_the_place_of_a_group_is_its_best_and_so_is_its_score():
    found = fold(
        [candidate(ENTITY, 1, 0.9), candidate(MEMORY, 2, 0.8), candidate(MEMORY, 1, 0.1)],
        {},
        {(ENTITY, 1): Origin((1,), 1)},
        0.85,
    )
    assert [(group.lead.key, group.score) for group in found] == [((MEMORY, 1), 0.9), ((MEMORY, 2), 0.8)]


@pytest.mark.parametrize(
    ("origin", "own", "is_folded"),
    [
        pytest.param(Origin((1,), 1), "", True, id="its only memory is there"),
        pytest.param(Origin((1, 2), 2), "", True, id="both its memories are there"),
        pytest.param(Origin((1,), 2), "", False, id="another memory of it is not"),
        pytest.param(Origin((1, 2, 3, 4), 4), "", False, id="it leads to many"),
        pytest.param(Origin((1,), 1), "wheel stone", True, id="its description is in the memory"),
        pytest.param(Origin((1,), 1), "larch spokes stone", False, id="its description says more"),
        pytest.param(Origin((), 5), "", False, id="none of its memories is there"),
    ],
)
def test_an_entity_is_folded_where_its_memories_are_all_there_is_of_it(origin, own, is_folded):
    terms = {(MEMORY, pk): words(f"wheel stone m{pk}") for pk in (1, 2, 3, 4)}
    candidates = [*(candidate(MEMORY, pk, 0.9 - pk / 10) for pk in (1, 2, 3, 4)), candidate(ENTITY, 1, 0.3)]
    found = dict(groups(candidates, {**terms, (ENTITY, 1): words("name", own)}, {(ENTITY, 1): origin}))
    assert found[MEMORY, 1] == ([((ENTITY, 1), "supported by it only")] if is_folded else [])


@pytest.mark.parametrize(
    ("fact", "is_folded"),
    [
        pytest.param("", True, id="no fact"),
        pytest.param("wheel turns stone", True, id="the memory says it"),
        pytest.param("wheel turns axle lantern", False, id="half of it is its own"),
    ],
)
def test_a_relationship_is_folded_into_its_evidence_unless_its_fact_says_more(fact, is_folded):
    terms = {(MEMORY, 1): words("wheel turns stone"), (RELATIONSHIP, 1): words("x y", fact)}
    found = dict(
        groups(
            [candidate(MEMORY, 1, 0.9), candidate(RELATIONSHIP, 1, 0.8)], terms, {(RELATIONSHIP, 1): Origin((1,), 9)}
        )
    )
    assert found[MEMORY, 1] == ([((RELATIONSHIP, 1), "taken from it")] if is_folded else [])


def test_what_is_beyond_the_window_stays_as_it_is(monkeypatch):
    monkeypatch.setattr("search.unified.legs.WINDOW", 1)
    said = {(MEMORY, pk): words(TWENTY) for pk in (1, 2)}
    assert groups([candidate(MEMORY, 1, 0.9), candidate(MEMORY, 2, 0.8)], said) == [
        ((MEMORY, 1), []),
        ((MEMORY, 2), []),
    ]


def test_a_name_comes_before_an_alias_and_the_term_of_more_memories_first():
    found = [candidate(ENTITY, 1, 0.9), candidate(ENTITY, 2, 0.5), candidate(ENTITY, 3, 0.4), candidate(MEMORY, 4, 1.0)]
    named = {(ENTITY, 1): (True, -6), (ENTITY, 2): (False, -56), (ENTITY, 3): (False, -214)}
    order_ = [group.lead.id for group in fold(found, {}, {}, 0.85, named)]
    assert order_ == [3, 2, 1, 4]
