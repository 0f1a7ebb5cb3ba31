"""How good a ranking is, by the judgements of its query: the measures of trec_eval. Pure.

Gains are the judgements as they are (linear), and what was not judged counts as not relevant. A document that is judged
relevant and is nowhere in the collection still counts among those to be found.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass

# What a ranking needs to hold for all measures.
DEPTH = 100


@dataclass(frozen=True, slots=True)
class Scores:
    """Of one query, or the mean of several."""

    ndcg_10: float = 0.0
    recall_10: float = 0.0
    recall_100: float = 0.0
    mrr_10: float = 0.0


LABELS = {"ndcg_10": "nDCG@10", "recall_10": "recall@10", "recall_100": "recall@100", "mrr_10": "MRR@10"}


def scores_of(ranking: Sequence[str], judged: Mapping[str, int]) -> Scores:
    """The measures of one ranking of distinct documents, the best first."""
    return Scores(
        ndcg(ranking, judged, 10), recall(ranking, judged, 10), recall(ranking, judged, 100), mrr(ranking, judged, 10)
    )


def mean_scores(all_scores: Iterable[Scores]) -> Scores:
    """The mean over every query that was asked; one without an answer is among them, with zeros."""
    rows = [astuple(scores) for scores in all_scores]
    if not rows:
        return Scores()
    return Scores(*(math.fsum(column) / len(rows) for column in zip(*rows, strict=True)))


def ndcg(ranking: Sequence[str], judged: Mapping[str, int], cut: int) -> float:
    ideal = _discounted(sorted(judged.values(), reverse=True)[:cut])
    return _discounted([judged.get(document, 0) for document in ranking[:cut]]) / ideal if ideal else 0.0


def recall(ranking: Sequence[str], judged: Mapping[str, int], cut: int) -> float:
    relevant = {document for document, grade in judged.items() if grade > 0}
    return len(relevant.intersection(ranking[:cut])) / len(relevant) if relevant else 0.0


def mrr(ranking: Sequence[str], judged: Mapping[str, int], cut: int) -> float:
    """1 over the place of the first relevant document, 0 where there is none down to the cut."""
    return next((1 / place for place, found in enumerate(ranking[:cut], 1) if judged.get(found, 0) > 0), 0.0)


def _discounted(grades: Sequence[int]) -> float:
    # A grade below 0 marks what is harmful in some collections; it takes nothing away.
    return math.fsum(max(grade, 0) / math.log2(place + 1) for place, grade in enumerate(grades, 1))
