"""Explanations and groups of hits, from hand-made hits without a database."""

from dataclasses import replace

import pytest

from search.hits import explain
from search.ranking import Boosts, Ranked, ScoreParts
from search.result import FieldMatch
from tests.explorer.contexts import hit, query_of

RANKED = Ranked(
    7,
    score=0.8,
    keyword_rank=2,
    word_score=6.1,
    semantic_rank=1,
    similarity=0.71,
    relevance=0.85,
    boosts=Boosts(0.5, 0.2, 1.0),
    score_parts=ScoreParts(0.739, 0.022, 0.009, 0.043),
)
FOUND = (FieldMatch("title", ("Kettle",)), FieldMatch("tags", ("tea", "hot")))


def reasons(querystring, why, least=0.3, found=FOUND):
    told = explain(replace(hit(), why=why, found=found), query_of(querystring), least)
    return {reason.label: reason.text for reason in told}


def test_ranks_similarity_and_words_are_told():
    assert reasons("q=kettle tea", RANKED) == {
        "Words": "2nd by words: “Kettle” in the title and “tea” and “hot” among the tags",
        "Meaning": "1st by meaning, similarity 0.71 (at least 0.30)",
        "Score": (
            "0.800 = 0.739 for words and meaning + 0.022 quality (importance, confidence, pinned) + 0.009 recency"
            " + 0.043 source"
        ),
    }


def test_who_may_not_know_the_score_is_told_what_was_added():
    told = reasons("q=kettle", RANKED.without_scores())
    assert told["Score"] == (
        "0.022 for quality (importance, confidence, pinned), 0.009 for recency and 0.043 for source,"
        " added to words and meaning"
    )


def test_by_words_alone_there_is_no_meaning():
    assert reasons("q=kettle&mode=keyword", Ranked(7, 6.1, 3, 6.1), None, FOUND[:1]) == {
        "Words": "3rd by words: “Kettle” in the title"
    }


@pytest.mark.parametrize(
    ("querystring", "why", "least", "found", "label", "text"),
    [
        pytest.param("q=x", Ranked(7), 0.3, (), "Meaning", "not embedded yet, so found by words only", id="no vector"),
        pytest.param(
            "q=x",
            Ranked(7, keyword_rank=1, similarity=0.21),
            0.3,
            (),
            "Meaning",
            "similarity 0.21, below the required 0.30: it matches by its words",
            id="too far in meaning",
        ),
        pytest.param(
            "q=x", Ranked(7, keyword_rank=4), 0.3, (), "Words", "4th by words: elsewhere in the memory", id="not shown"
        ),
        pytest.param(
            "q=x&mode=semantic",
            Ranked(7, semantic_rank=2, similarity=0.5),
            0.3,
            (),
            "Words",
            "none; ignored when matching by meaning only",
            id="words do not count",
        ),
        pytest.param(
            "q=x&sort=newest",
            Ranked(7, similarity=0.5),
            0.3,
            FOUND[:1],
            "Order",
            "newest, not by relevance",
            id="by date",
        ),
        pytest.param(
            "q=x",
            Ranked(7, relevance=0.31, similarity=0.5),
            0.3,
            (),
            "Score",
            "0.31 by words and meaning; only the first 200 are scored further",
            id="beyond the window",
        ),
        pytest.param(
            "q=x",
            replace(RANKED, fused_rank=5, neighbour_rank=2),
            0.3,
            (),
            "Neighbours",
            "5th by words and meaning, raised to 2nd by the results that it resembles",
            id="raised by its neighbours",
        ),
        pytest.param(
            "q=x",
            replace(RANKED, fused_rank=1, neighbour_rank=3).without_scores(),
            0.3,
            (),
            "Neighbours",
            "1st by words and meaning, lowered to 3rd by the results that it resembles",
            id="lowered by its neighbours, for who may not know the score",
        ),
        pytest.param(
            "q=x",
            replace(RANKED, fused_rank=4, neighbour_rank=4),
            0.3,
            (),
            "Neighbours",
            "4th by words and meaning, and still with the results that it resembles",
            id="its neighbours change nothing",
        ),
        pytest.param(
            "q=x",
            replace(RANKED, fused_rank=4, neighbour_rank=4, score_parts=None),
            0.3,
            (),
            "Score",
            "0.85 by words, meaning and neighbours; only the first 200 are scored further",
            id="score with neighbours",
        ),
        pytest.param(
            "q=x",
            replace(RANKED, similar_to=3),
            0.3,
            (),
            "Similar",
            "nearly the same as #3, grouped under it",
            id="near-duplicate",
        ),
        pytest.param(
            "q=x",
            replace(RANKED, moved_below=3),
            0.3,
            (),
            "Superseded",
            "by #3, so it was moved below it",
            id="superseded",
        ),
    ],
)
def test_every_way_to_be_here_has_its_words(querystring, why, least, found, label, text):
    assert reasons(querystring, why, least, found)[label] == text


# --- folding ------------------------------------------------------------------------------------------------------


# --- numbers and lists in words -----------------------------------------------------------------------------------
