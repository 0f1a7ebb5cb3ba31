"""The measures, compared with those of pytrec_eval (the code of trec_eval) for the same judgements and rankings."""

import pytest

from lab.evaluate.metrics import LABELS, mean_scores, ratio, report_lines, scores_of

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


def row(kind, gains):
    by_query = {name: dict.fromkeys(LABELS, gain) for name, gain in gains.items()}
    return {
        "name": kind,
        "kind": kind,
        "mode": "",
        "variation": None,
        "scores": mean_scores(list(by_query.values())),
        "by_query": by_query,
        "ids": {name: ["a"] for name in gains},
        "latency": None,
        "warnings": {},
        "errors": {},
    }


def test_a_ratio_has_an_interval_over_the_queries():
    doubled = row("hybrid", {f"q{n}": 0.5 for n in range(20)}), row("fusion", {f"q{n}": 0.25 for n in range(20)})
    assert ratio(*doubled) == pytest.approx((2, 2, 2))
    mixed = row("hybrid", {f"q{n}": n % 2 for n in range(20)}), row("fusion", {f"q{n}": 0.5 for n in range(20)})
    whole, low, high = ratio(*mixed)
    assert (whole, low < 0.8, high > 1.2) == (pytest.approx(1), True, True)


def test_queries_of_several_kinds_have_a_table_of_them():
    rows = [row("fusion", {"q1": 0.5, "q2": 0.25}), row("hybrid", {"q1": 1.0, "q2": 0.0})]
    report = {
        "collection": "tea",
        "documents": 3,
        "queries": 2,
        "judgements": 2,
        "notes": [],
        "kinds": {"title": ["q1"], "link": ["q2"]},
        "machine": {"cpu": "c", "cores": 1, "date": "2026-11-23"},
        "rows": rows,
    }
    lines = [" ".join(line.split()) for line in report_lines(report)]
    assert lines[-4:] == [
        "| nDCG@10 | title (1) | link (1) |",
        "| :------ | --------: | -------: |",
        "| fusion | 0.5000 | 0.2500 |",
        "| hybrid | 1.0000 | 0.0000 |",
    ]
    assert any("1.333 (0.000–2.000)" in line for line in lines)
