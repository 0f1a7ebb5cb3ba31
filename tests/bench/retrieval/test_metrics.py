"""The measures, compared with those of pytrec_eval (the code of trec_eval) for the same judgements and rankings."""

import pytest

from bench.retrieval.metrics import LABELS, mean_scores, scores_of

# (judgements, ranking, and ndcg_cut_10, recall_10, recall_100 and, of the first ten alone, recip_rank of pytrec_eval)
CASES = [
    pytest.param(
        {"a": 3, "b": 2, "c": 1, "d": 0, "e": 2},
        ["b", "z", "a", "d", "c"],
        (0.682798, 0.75, 0.75, 1.0),
        id="graded: gains are linear",
    ),
    pytest.param({"a": -1, "b": 1}, ["a", "b"], (0.63093, 1.0, 1.0, 0.5), id="a grade below 0 takes nothing away"),
    pytest.param({"a": 0, "b": 0}, ["a", "b"], (0.0, 0.0, 0.0, 0.0), id="nothing is relevant"),
    pytest.param({"a": 1}, ["q", "r"], (0.0, 0.0, 0.0, 0.0), id="nothing relevant is found"),
    pytest.param({"a": 1}, [], (0.0, 0.0, 0.0, 0.0), id="nothing is found"),
    pytest.param({"a": 1, "gone": 2}, ["b", "a"], (0.239812, 0.5, 0.5, 0.5), id="a relevant document is not there"),
    pytest.param(
        {f"d{n}": 1 for n in range(0, 300, 2)},
        [f"d{n}" for n in range(120)],
        (0.554899, 0.033333, 0.333333, 1.0),
        id="more are relevant than a ranking holds",
    ),
    pytest.param(
        {"x": 1, "y": 2},
        [*(f"n{n}" for n in range(10)), "x", *(f"m{n}" for n in range(88)), "y"],
        (0.0, 0.0, 1.0, 0.0),
        id="the eleventh and the hundredth",
    ),
]


@pytest.mark.parametrize(("judged", "ranking", "expected"), CASES)
def test_measures_are_those_of_trec_eval(judged, ranking, expected):
    found = scores_of(ranking, judged)
    assert tuple(found[name] for name in ("ndcg_10", "recall_10", "recall_100", "mrr_10")) == pytest.approx(
        expected, abs=1e-6
    )


def test_a_query_without_an_answer_counts_in_the_mean():
    answered = scores_of(["a"], {"a": 1})
    assert mean_scores([answered, scores_of([], {"b": 1})]) == dict.fromkeys(LABELS, 0.5)


def test_the_mean_of_nothing_is_0():
    assert mean_scores([]) == dict.fromkeys(LABELS, 0.0)
