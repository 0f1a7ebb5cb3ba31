"""The order of hits: which slots of a match set a page has, by any sort. Every order is total."""

from collections.abc import Sequence

import numpy as np
from django.db import connection

from search.engines.arrays import Array, Mask
from search.engines.base import Ids, Plan
from search.engines.tantivy import words
from search.engines.tantivy.columns import ids_at, slots_of, values_at
from search.engines.tantivy.match import Matches
from search.engines.tantivy.store import View
from search.query import Sort

# So few slots are ranked by asking for them; of more, the best of all are asked for until enough of them match.
_FEW = 400
_FIRST_LOOK = 200
_DEEPEST_LOOK = 100_000


def by_date(view: View, slots: Array, limit: int, order: Sort = Sort.NEWEST) -> Array:
    """The first `limit` slots by a date; of those at the same moment, by id in the same direction."""
    if order != Sort.UPDATED:
        # Quarters of an hour are half as long as moments, and tell most apart.
        slots = slots[_foremost(values_at(view, "quarter", slots), limit, oldest=order == Sort.OLDEST)]
    keys = values_at(view, "updated" if order == Sort.UPDATED else "created", slots)
    slots = slots[kept := _foremost(keys, limit, oldest=order == Sort.OLDEST)]
    sign = 1 if order == Sort.OLDEST else -1
    found: Array = slots[np.lexsort((sign * values_at(view, "id", slots), sign * keys[kept]))[:limit]]
    return found


def _foremost(keys: Array, limit: int, *, oldest: bool) -> Array:
    """The places of the first `limit` keys, from the least or from the largest on, and of those equal to the last."""
    if limit >= len(keys):
        return np.arange(len(keys))
    if not limit:
        return np.arange(0)
    last = limit - 1 if oldest else len(keys) - limit
    edge = np.partition(keys, last)[last]
    return np.flatnonzero(keys <= edge if oldest else keys >= edge)


def word_scores(view: View, plan: Plan, ids: Ids) -> dict[int, float]:
    """How well some memories fit the words, of those that have any of them."""
    query = words.rank_query(plan.texts, matching=False)
    slots = slots_of(view, ids)
    slots = np.sort(slots[slots >= 0])
    if query is None or not len(slots):
        return {}
    scores, found = words.best(view.searcher, words.within_slots(query, slots.astype(np.uint32)), len(slots))
    return dict(zip(ids_at(view, found), scores.tolist(), strict=True))


def ranked(view: View, matches: Matches, plan: Plan, mask: Mask, limit: int) -> tuple[Array, Array]:
    """The best `limit` slots of the mask and their scores: by score, then the newest, then the highest id."""
    matched = matches.slots(mask)
    hits = len(matched)
    limit = min(limit, hits)
    query = words.rank_query(plan.texts)
    if query is None or not limit:
        newest = by_date(view, matched, limit)
        return newest, np.zeros(len(newest))
    whole, look = query, max(_FIRST_LOOK, 2 * limit)
    if few := hits <= _FEW:
        query, look = words.within_slots(whole, matched.astype(np.uint32)), hits
    while True:
        scores, slots = words.best(view.searcher, query, look)
        everything = len(slots) < look or few
        passed = mask[slots]
        if not everything:
            # Of the last score there may be more.
            passed &= scores > scores[-1]
        if everything or int(np.count_nonzero(passed)) >= limit:
            break
        look *= 8
        if look > _DEEPEST_LOOK and hits <= _DEEPEST_LOOK // 2:
            few, look = True, hits
            query = words.within_slots(whole, matched.astype(np.uint32))
    scores, slots = scores[passed], slots[passed]
    order = np.lexsort((-values_at(view, "id", slots), -values_at(view, "created", slots), -scores))[:limit]
    scores, slots = scores[order], slots[order]
    if len(slots) < limit:
        # Who matches by an exclusion alone, in a language in which nothing was looked for, has no score.
        rest = mask.copy()
        rest[slots] = False
        others = by_date(view, np.flatnonzero(rest), limit - len(slots))
        slots = np.concatenate([slots, others.astype(slots.dtype)])
        scores = np.concatenate([scores, np.zeros(len(others))])
    return slots, scores


def by_title(view: View, slots: Array, offset: int, limit: int) -> Array:
    """A page by title. The first bytes decide for most; titles that begin alike are read from the database."""
    wanted = min(offset + limit, len(slots))
    if offset >= wanted:
        return slots[:0]
    first, second = values_at(view, "title1", slots), values_at(view, "title2", slots)
    order = np.lexsort((second, first))
    slots, first, second = slots[order], first[order], second[order]
    # All that begin like the first or the last of the page: the database knows which of them come first.
    begin = int(np.argmax((first == first[offset]) & (second == second[offset])))
    like_last = (first == first[wanted - 1]) & (second == second[wanted - 1])
    end = len(slots) - int(np.argmax(like_last[::-1]))
    _, which = np.unique(np.stack([first[begin:end], second[begin:end]]), axis=1, return_inverse=True)
    ids = values_at(view, "id", slots[begin:end])
    page = _in_title_order(ids.tolist(), which.tolist(), offset - begin, wanted - offset)
    at = dict(zip(ids.tolist(), slots[begin:end].tolist(), strict=True))
    return np.array([at[memory_id] for memory_id in page], np.int64)


def _in_title_order(ids: Sequence[int], keys: Sequence[int], offset: int, limit: int) -> list[int]:
    """A page of memories by what their titles begin with, given as numbers, then by the whole title and the id."""
    with connection.cursor() as cursor:
        # By the primary key. A memory that is gone keeps its place, so that pages stay as they are.
        cursor.execute(
            "SELECT asked.id FROM unnest(%s::bigint[], %s::int[]) AS asked (id, key)"
            " LEFT JOIN memories_memory m ON m.id = asked.id"
            ' ORDER BY asked.key, lower(m.title) COLLATE "C", asked.id OFFSET %s LIMIT %s',
            [list(ids), list(keys), offset, limit],
        )
        return [memory_id for (memory_id,) in cursor.fetchall()]
