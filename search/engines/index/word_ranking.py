"""The order of matches by relevance: BM25 of tantivy for viewers of all projects, numbers of their own for others.

BM25 weighs a word by how many documents have it, and a document by its length compared to the average. In the index
these are numbers over all projects, so the order would change with memories that a viewer may not see. For viewers of
some projects a word is weighed by how many of their memories have it, and the best candidates by how often and where
each has it, which Postgres reads from the memory alone.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection

from search.engines.base import EngineQuery, Ids, Value
from search.engines.index import words
from search.engines.index.match import MatchMasks, recalls_by_doc
from search.engines.index.store import View, docs_of, ids_at, values_at
from search.engines.segment_files import Array, Mask
from search.engines.sql import RANK, tsquery
from search.query import Sort
from text.analysis import Pattern

Scores = npt.NDArray[np.float64]

# Up to this many docs, only those are ranked. Of more, the best of all are read until enough of them match.
_RANK_DIRECTLY = 400
_FIRST_LOOK = 200
_DEEPEST_LOOK = 100_000


def by_number(view: View, docs: Array, limit: int, order: Sort = Sort.NEWEST, recalls: int = 0) -> Array:
    """The first `limit` docs by a date or by recalls, whose revision is given; ties are broken by id in the same
    direction.
    """
    if order in {Sort.NEWEST, Sort.OLDEST}:
        # Quarters of an hour take half the memory of instants, and decide most comparisons.
        docs = docs[_top_positions(values_at(view, "quarter", docs), limit, oldest=order == Sort.OLDEST)]
    keys = numbers_of(view, docs, order, recalls)
    docs = docs[kept := _top_positions(keys, limit, oldest=order == Sort.OLDEST)]
    sign = 1 if order == Sort.OLDEST else -1
    found: Array = docs[np.lexsort((sign * values_at(view, "id", docs), sign * keys[kept]))[:limit]]
    return found


def numbers_of(view: View, docs: Array, order: Sort, recalls: int) -> Array:
    """The numbers by which docs are ordered: microseconds of a date, or recalls."""
    if order == Sort.RECALLED:
        return recalls_by_doc(view, recalls).totals.take(docs).astype(np.int64)
    return values_at(view, "updated" if order == Sort.UPDATED else "created", docs)


def _top_positions(keys: Array, limit: int, *, oldest: bool) -> Array:
    """The positions of the first `limit` keys, from the lowest or from the highest, and of all ties with the last."""
    if limit >= len(keys):
        return np.arange(len(keys))
    if not limit:
        return np.arange(0)
    last = limit - 1 if oldest else len(keys) - limit
    edge = np.partition(keys, last)[last]
    return np.flatnonzero(keys <= edge if oldest else keys >= edge)


def word_scores(view: View, matches: MatchMasks, plan: EngineQuery, ids: Ids) -> dict[int, float]:
    """The scores of memories that have any of the words."""
    if plan.project_ids is not None:
        docs = docs_of(view, ids)
        docs = np.sort(docs[docs >= 0])
        scores = _visible_scores(view, docs, _weighed(matches, plan))
        return {pk: score for pk, score in zip(ids_at(view, docs), scores.tolist(), strict=True) if score}
    query = words.rank_query(plan.texts, matching=False)
    docs = docs_of(view, ids)
    docs = np.sort(docs[docs >= 0])
    if query is None or not len(docs):
        return {}
    scores, found = words.best(view.searcher, words.within_docs(query, docs.astype(np.uint32)), len(docs))
    return dict(zip(ids_at(view, found), scores.tolist(), strict=True))


def ranked(view: View, matches: MatchMasks, plan: EngineQuery, mask: Mask, limit: int) -> tuple[Array, Array]:
    """The best `limit` docs of the mask and their scores: by score, then the newest, then the highest id.

    Matches by name alone have no score.
    """
    every, limit = mask, min(limit, matches.count(mask))
    if plan.named and plan.texts:
        mask = matches.cached(("words of", id(mask)), lambda: every & matches.by_words(plan))
    matched = matches.docs(mask)
    hits = len(matched)
    query = words.rank_query(plan.texts)
    if query is None or not limit or not hits:
        newest = by_number(view, matches.docs(every), limit)
        return newest, np.zeros(len(newest))
    if plan.project_ids is not None:
        docs, scores = _ranked_among_visible(view, matches, plan, matched, limit)
        return _and_newest(view, every, docs, scores, limit)
    whole, look = query, max(_FIRST_LOOK, 2 * limit)
    if few := hits <= _RANK_DIRECTLY:
        query, look = words.within_docs(whole, matched.astype(np.uint32)), hits
    while True:
        scores, docs = words.best(view.searcher, query, look)
        everything = len(docs) < look or few
        passed = mask[docs]
        if not everything:
            # More docs may have the last score.
            passed &= scores > scores[-1]
        if everything or int(np.count_nonzero(passed)) >= min(limit, hits):
            break
        look *= 8
        if look > _DEEPEST_LOOK and hits <= _DEEPEST_LOOK // 2:
            few, look = True, hits
            query = words.within_docs(whole, matched.astype(np.uint32))
    scores, docs = scores[passed], docs[passed]
    order = np.lexsort((-values_at(view, "id", docs), -values_at(view, "created", docs), -scores))[:limit]
    return _and_newest(view, every, docs[order], scores[order], limit)


def _and_newest(view: View, every: Mask, docs: Array, scores: Scores, limit: int) -> tuple[Array, Scores]:
    """The ranked docs, and after them the newest of the others up to the limit."""
    if len(docs) < limit:
        # Matches by name, or by an exclusion in a language without positive words, have no score.
        rest = every.copy()
        rest[docs] = False
        others = by_number(view, np.flatnonzero(rest), limit - len(docs))
        docs = np.concatenate([docs, others.astype(docs.dtype)])
        scores = np.concatenate([scores, np.zeros(len(others))])
    return docs, scores


# --- viewers of some projects ----------------------------------------------------------------------------------------

# As many as the caller fuses with the nearest by meaning.
_READ = 1_000
# Words whose frequency is read, those that distinguish best. The others of a long query count once for a memory.
_MOST_READ = 12
_PLAIN = 0.1
_LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class _Weighed:
    """A pattern with its weight among the visible memories, and the docs that have it, in the title or elsewhere."""

    pattern: Pattern
    weight: float
    docs: Mask
    project_ids: tuple[Value, ...] | None


def _weighed(matches: MatchMasks, plan: EngineQuery) -> list[_Weighed]:
    """The positive patterns of a query, the weightiest first."""
    visible = matches.visible(plan)
    number = matches.count(visible)
    found = []
    for text in plan.texts:
        times = dict(text.words.repeated)
        for pattern in dict.fromkeys(text.words.positive):
            mask = matches.having_pattern(pattern, text.project_ids) & visible
            having = int(np.count_nonzero(mask))
            rarity = float(np.log1p((number - having + 0.5) / (having + 0.5)))
            weight = words.query_weight(times.get(pattern, 1)) * rarity
            found.append(_Weighed(pattern, weight, mask, text.project_ids))
    return sorted(found, key=lambda one: -one.weight)


def _ranked_among_visible(
    view: View, matches: MatchMasks, plan: EngineQuery, docs: Array, limit: int
) -> tuple[Array, Scores]:
    """The best docs and their scores. Beyond the first thousand, only which words a memory has decides."""
    weighed = _weighed(matches, plan)
    rough = np.zeros(len(docs))
    for one in weighed:
        rough += one.weight * one.docs[docs]
    ids, created = values_at(view, "id", docs), values_at(view, "created", docs)
    order = np.lexsort((-ids, -created, -rough))
    first, rest = order[:_READ], order[_READ : max(limit, _READ)]
    # A match by words has a score, however little it weighs.
    scores = np.maximum(_visible_scores(view, docs[first], weighed), rough[first] * _LEAST)
    again = np.lexsort((-ids[first], -created[first], -scores))
    first, scores = first[again], scores[again]
    below = rough[rest] / (rough[order[0]] + 1.0) * (scores[-1] if len(scores) else 1.0)
    return docs[np.concatenate([first, rest])[:limit]], np.concatenate([scores, below])[:limit]


def _visible_scores(view: View, docs: Array, weighed: list[_Weighed]) -> Scores:
    """For each doc the sum over the words that it has: the word's weight times how often and where it has it."""
    if not len(docs) or not weighed:
        return np.zeros(len(docs))
    read, plain = weighed[:_MOST_READ], weighed[_MOST_READ:]
    ids = ids_at(view, docs)
    parameters: dict[str, Any] = {"ids": ids}
    terms = []
    for n, one in enumerate(read):
        parameters |= {f"weight{n}": one.weight, f"query{n}": tsquery(one.pattern)}
        rank = f"%(weight{n})s * {RANK % f'%(query{n})s'}"
        if one.project_ids is not None:
            parameters[f"projects{n}"] = list(one.project_ids)
            rank = f"CASE WHEN m.project_id = ANY(%(projects{n})s::bigint[]) THEN {rank} ELSE 0 END"
        terms.append(rank)
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT m.id, {' + '.join(terms)} FROM memories_memory m WHERE m.id = ANY(%(ids)s)", parameters)
        found = dict(cursor.fetchall())
    scores = np.array([found.get(pk, 0.0) for pk in ids], np.float64)
    for one in plain:
        scores += _PLAIN * one.weight * one.docs[docs]
    return scores
