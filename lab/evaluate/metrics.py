"""The measures of trec_eval for rankings, and the table of an evaluation.

Gains are the judgements themselves (linear), and documents without a judgement are not relevant. A relevant document
that is missing from the collection lowers recall like any other that is not found.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from lab.report import Cell, Row, cells, table

# The length of a ranking that all measures need.
DEPTH = 100
LABELS = {"ndcg_10": "nDCG@10", "recall_10": "recall@10", "recall_100": "recall@100", "mrr_10": "MRR@10"}
Scores = dict[str, float]
_MAX_MESSAGES = 5
# Samples of the queries, drawn with replacement, for the interval of a ratio.
_SAMPLES = 2_000
# Smaller differences are rounding.
_ROUNDING = 1e-9


def scores_of(ranking: Sequence[str], judged: Mapping[str, int]) -> Scores:
    """The measures of one ranking of distinct documents, the best first."""
    values = (
        ndcg(ranking, judged, 10),
        recall(ranking, judged, 10),
        recall(ranking, judged, 100),
        mrr(ranking, judged, 10),
    )
    return dict(zip(LABELS, values, strict=True))


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """The mean over all queries. A query without an answer counts with zeros."""
    return {name: math.fsum(of_query[name] for of_query in scores) / max(1, len(scores)) for name in LABELS}


def ndcg(ranking: Sequence[str], judged: Mapping[str, int], cut: int) -> float:
    ideal = _discounted(sorted(judged.values(), reverse=True)[:cut])
    return _discounted([judged.get(document, 0) for document in ranking[:cut]]) / ideal if ideal else 0.0


def recall(ranking: Sequence[str], judged: Mapping[str, int], cut: int) -> float:
    relevant = {document for document, grade in judged.items() if grade > 0}
    return len(relevant.intersection(ranking[:cut])) / len(relevant) if relevant else 0.0


def mrr(ranking: Sequence[str], judged: Mapping[str, int], cut: int) -> float:
    """The reciprocal rank of the first relevant document; 0 if it is below the cut."""
    return next((1 / rank for rank, found in enumerate(ranking[:cut], 1) if judged.get(found, 0) > 0), 0.0)


def _discounted(grades: Sequence[int]) -> float:
    # Some collections mark harmful documents with a grade below 0; it does not reduce the gain.
    return math.fsum(max(grade, 0) / math.log2(rank + 1) for rank, grade in enumerate(grades, 1))


def report_lines(report: Row) -> list[str]:
    """The report of an evaluation as Markdown."""
    machine = report["machine"]
    lines = [
        f"{report['collection']}: {report['documents']:,} documents, {report['queries']:,} queries,"
        f" {report['judgements']:,} judgements; {machine['cpu']}, {machine['cores']} cores, {machine['date']}",
        "",
        *_table(report["rows"]),
        *_table_of_kinds(report),
    ]
    for row in report["rows"]:
        for kind, key in (("refused", "errors"), ("warned", "warnings")):
            lines += [f"- {row['name']}, {kind}: {line}" for line in _messages(row[key])]
    return [*lines, *(f"- {note}." for note in report["notes"])]


def _table(rows: Sequence[Row]) -> list[str]:
    bm25 = next((row for row in rows if row["kind"] == "bm25"), None)
    fusion = next((row for row in rows if row["kind"] == "fusion"), None)
    unchanged = {row["mode"]: row for row in rows if not row["variation"]}
    has_variations = any(row["variation"] for row in rows)
    headings = [
        "",
        *LABELS.values(),
        "better / worse than BM25",
        "of the fusion (95 %)",
        "nothing found",
        "warned",
        "refused",
    ]
    headings += ["p50 ms", "p95 ms", *(["Δ nDCG@10"] if has_variations else [])]
    lines: list[list[Cell]] = []
    for row in rows:
        better_worse = " / ".join(map(str, compare(row, bm25))) if bm25 and row is not bm25 else ""
        share = "{:.3f} ({:.3f}–{:.3f})".format(*ratio(row, fusion)) if fusion and row is not fusion else ""
        line = [*_scores_and_failures(row, better_worse, share), *cells(row["latency"], ("p50", "p95"))]
        if has_variations:
            of = unchanged.get(row["mode"], row) if row["variation"] else row
            change = row["scores"]["ndcg_10"] - of["scores"]["ndcg_10"]
            line.append(f"{change:+.4f}" if row["variation"] else "")
        lines.append(line)
    return table(headings, lines)


def _scores_and_failures(row: Row, *compared: str) -> list[Cell]:
    """The cells of a row up to its times: its scores, and how many queries found nothing, were warned or refused."""
    messages = (row["warnings"], row["errors"]) if row["mode"] else ()
    line: list[Cell] = [row["name"], *(f"{row['scores'][name]:.4f}" for name in LABELS), *compared]
    line.append(sum(1 for ids in row["ids"].values() if not ids))
    line += [len({query for queries in of.values() for query in queries}) for of in messages] or ["", ""]
    return line


def compare(row: Row, other: Row) -> tuple[int, int]:
    """The numbers of queries for which a row has a higher nDCG@10 than another, and a lower one."""
    pairs = [(scores["ndcg_10"], other["by_query"][name]["ndcg_10"]) for name, scores in row["by_query"].items()]
    return sum(a > b + _ROUNDING for a, b in pairs), sum(a < b - _ROUNDING for a, b in pairs)


def ratio(row: Row, other: Row) -> tuple[float, float, float]:
    """The nDCG@10 of a row as a share of another's, and the interval that holds 95 % of it (paired bootstrap)."""
    pairs = [(scores["ndcg_10"], other["by_query"][name]["ndcg_10"]) for name, scores in row["by_query"].items()]
    values = np.array(pairs, np.float64)
    sampled = np.random.default_rng(0).integers(len(values), size=(_SAMPLES, len(values)))
    sums = values[sampled].sum(axis=1)
    low, high = np.percentile(sums[:, 0] / np.maximum(sums[:, 1], _ROUNDING), (2.5, 97.5))
    whole = values.sum(axis=0)
    return float(whole[0] / max(whole[1], _ROUNDING)), float(low), float(high)


def _table_of_kinds(report: Row) -> list[str]:
    """nDCG@10 for each kind of query, if they are of several."""
    kinds: dict[str, list[str]] = report["kinds"]
    if len(kinds) < 2:
        return []
    lines: list[list[Cell]] = [
        [row["name"], *(f"{_mean_gain(row, names):.4f}" for names in kinds.values())] for row in report["rows"]
    ]
    return ["", *table(["nDCG@10", *(f"{kind} ({len(names)})" for kind, names in kinds.items())], lines)]


def _mean_gain(row: Row, names: Sequence[str]) -> float:
    return math.fsum(row["by_query"][name]["ndcg_10"] for name in names) / len(names)


def _messages(queries_by_message: Mapping[str, list[str]]) -> list[str]:
    """The most frequent messages, with the queries that got them."""
    ordered = sorted(queries_by_message.items(), key=lambda item: -len(item[1]))
    lines = []
    for message, queries in ordered[:_MAX_MESSAGES]:
        first = ", ".join([*queries[:_MAX_MESSAGES], *(["…"] if len(queries) > _MAX_MESSAGES else [])])
        lines.append(f"{message} ({len(queries):,}: {first})")
    if rest := len(ordered) - len(lines):
        lines.append(f"{rest:,} other messages, in the JSON")
    return lines
