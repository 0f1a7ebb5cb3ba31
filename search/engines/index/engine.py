"""The engine over the derived index: match sets as masks over docs, counts from the columns, ranks from tantivy.

Filters, words and dates are masks; the match set is their intersection (`match.py`), and every number is a count over
it (`counts.py`). Tantivy finds the docs that have a word, which are cached (`PostingsCache`), and ranks.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection

from search.area import Tile
from search.engines.base import (
    COARSE_BITS,
    TILE_BITS,
    Counts,
    EngineQuery,
    EngineUnavailableError,
    FacetRequest,
    FacetValues,
    Ids,
    MapTile,
    MatchSet,
    Neighbours,
    Place,
    Spans,
    Value,
    VectorQuery,
)
from search.engines.column_snapshot import ColumnSnapshot
from search.engines.index import outbox, store, words
from search.engines.index.counts import FacetCounter
from search.engines.index.match import MatchMasks, places_by_doc, recalls_by_doc
from search.engines.index.segments import instant_of, microseconds_of, title_keys
from search.engines.index.store import View, column_of, docs_of, ids_at, values_at
from search.engines.knn import similarities_of
from search.engines.segment_files import Array, DamagedError, Mask, NotReadableError
from search.engines.sql import RANK, tsquery
from search.facets import FACETS
from search.histogram import NO_DAYS, Numbers
from search.query import Sort
from text.analysis import Pattern

logger = logging.getLogger(__name__)

# In seconds: a lag too short to measure.
_NEGLIGIBLE_LAG = 1e-6
# Similar terms are taken from some of the memories that have one.
_SIMILAR_TERM_DOCS = 1_000
_SIMILAR_TERM_MEMORIES = 50

# The errors that numpy and tantivy raise over inconsistent numbers, due to damage or to a bug.
_FAILURES = (ValueError, OSError, DamagedError, SystemError, IndexError, KeyError, MemoryError, OverflowError)


@contextmanager
def reporting_failures(view: View) -> Iterator[None]:
    """Raise EngineUnavailableError if anything inside fails, and report damage to the writer."""
    try:
        yield
    except _FAILURES as error:
        if reason := store.verify(view):
            store.report_damage(reason, view.generation)
        else:
            logger.exception("The search index is whole, but could not answer.")
        raise EngineUnavailableError(f"the search index could not answer ({error!r})") from error


class IndexEngine:
    """Implements `search.engines.base.Engine` over the derived index as it was when the engine was made."""

    name = "tantivy"

    def __init__(self) -> None:
        """Raise EngineUnavailableError if there is no index to read."""
        try:
            self._view = store.read_view()
            following = outbox.follow_state()
        except NotReadableError as error:
            raise EngineUnavailableError(f"the search index cannot be read: {error}") from error
        except DamagedError as error:
            store.report_damage(str(error))
            raise EngineUnavailableError(f"the search index is damaged: {error}") from error
        if not store.belongs_to_database(self._view.generation, self._view.manifest, following):
            raise EngineUnavailableError("the search index is not the one that follows this database")
        # Changes applied between the two reads are in neither.
        self.seconds_behind = following.seconds or (0.0 if store.is_newest(self._view) else _NEGLIGIBLE_LAG)
        self.waited_ms = 0.0
        self._matches = MatchMasks(self._view)
        self._counter = FacetCounter(self._view, self._matches)

    @property
    def revision(self) -> str:
        return self._view.revision

    def warm_up(self) -> None:
        with reporting_failures(self._view):
            self._counter.warm_up()

    def column_snapshot(self) -> ColumnSnapshot:
        view = self._view
        return ColumnSnapshot(
            view.generation.name, view.manifest.number, view.segments, view.live, view.dictionary, view.sizes
        )

    def knn(self, plan: EngineQuery) -> Neighbours:
        with reporting_failures(self._view):
            return self._matches.knn(plan)

    def similarities(self, meaning: VectorQuery, ids: Sequence[int]) -> dict[int, float]:
        with reporting_failures(self._view):
            return similarities_of(meaning, ids, replicated=True)

    def filter_ids(self, plan: EngineQuery, ids: Sequence[int]) -> set[int]:
        with reporting_failures(self._view):
            asked = np.array(ids, np.int64)
            docs = docs_of(self._view, asked)
            return set(asked[(docs >= 0) & self._matches.of(plan)[docs]].tolist())

    def word_scores(self, plan: EngineQuery, ids: Sequence[int]) -> dict[int, float]:
        with reporting_failures(self._view):
            return word_scores(self._view, self._matches, plan, np.array(ids, np.int64))

    def match(self, plans: Sequence[EngineQuery], *, no_values: bool = False, reuse: bool = False) -> list[MatchSet]:
        with reporting_failures(self._view):
            return [self._match_set(plan, no_values, reuse) for plan in plans]

    def any_match(self, plans: Sequence[EngineQuery]) -> list[bool]:
        with reporting_failures(self._view):
            return [self._matches.total(plan) > 0 for plan in plans]

    def _match_set(self, plan: EngineQuery, no_values: bool, reuse: bool) -> MatchSet:
        # The masks of many queries would take too much memory.
        total = len(self._matches.docs(self._matches.of(plan))) if reuse else self._matches.total(plan)
        empty = {spec.key: self._counter.no_value(plan, spec.key) for spec in FACETS} if no_values else {}
        return MatchSet(total, empty, self._matches.knn(plan).truncated)

    def values_present(self, plan: EngineQuery, key: str, values: Sequence[Value]) -> set[Value]:
        request = FacetRequest(key, only=tuple(values))
        with reporting_failures(self._view):
            return {found.value for found in self._counter.facet(plan, request).values}

    def hits(self, plan: EngineQuery, order: Sort, *, limit: int, offset: int) -> list[tuple[int, float | None]]:
        with reporting_failures(self._view):
            mask = self._matches.of(plan)
            if order == Sort.RELEVANCE:
                docs, scores = ranked(self._view, self._matches, plan, mask, offset + limit)
                found = zip(ids_at(self._view, docs[offset:]), scores[offset:].tolist(), strict=True)
                # A score reveals how rare a word is among all memories, so it is only for viewers who may see all of
                # them.
                show_scores = plan.project_ids is None
                return [(memory_id, score if show_scores else None) for memory_id, score in found]
            docs = self._matches.docs(mask)
            if order == Sort.TITLE:
                return [(place.id, None) for place in by_title(self._view, docs, offset, limit)]
            # Without their dates, since these may be all memories.
            docs = by_number(self._view, docs, offset + limit, order, plan.recalls)[offset:]
            return [(memory_id, None) for memory_id in ids_at(self._view, docs)]

    def places(
        self, plan: EngineQuery, order: Sort, *, limit: int, offset: int = 0, after: Place | None = None
    ) -> list[Place]:
        with reporting_failures(self._view):
            docs = self._matches.docs(self._matches.of(plan))
            if order == Sort.TITLE:
                return by_title(self._view, docs, offset, limit, after)
            if after is not None:
                docs = _after(self._view, docs, order, after, plan.recalls)
            docs = by_number(self._view, docs, offset + limit, order, plan.recalls)[offset:]
            numbers = numbers_of(self._view, docs, order, plan.recalls).tolist()
            keys = numbers if order == Sort.RECALLED else map(instant_of, numbers)
            return [Place(*one) for one in zip(keys, ids_at(self._view, docs), strict=True)]

    def counts(
        self, plan: EngineQuery, requests: Sequence[FacetRequest], *, zone: tzinfo, now: datetime, days: bool = True
    ) -> Counts:
        with reporting_failures(self._view):
            matches, counter = self._matches, self._counter
            facets = {request.key: counter.facet(plan, request) for request in requests}
            if not days:
                return Counts(MatchSet(0), facets, NO_DAYS, (), ())
            # After the facets, which also count what has no value.
            summary = self._match_set(plan, no_values=True, reuse=True)
            dateless = replace(plan, start=None, end=None)
            without, inside = self._without_dates(plan)
            if inside is None or plan.meaning is not None:
                by_day = counter.days(without, inside, zone)
            else:
                by_day = counter.days_around(dateless, inside, zone)
            ever = counter.buckets(without, now)
            within = ever if inside is None else counter.buckets(inside, now)
            return Counts(summary, facets, by_day, within, ever, matches.knn(dateless).truncated)

    def span_counts(self, plan: EngineQuery, spans: Spans) -> tuple[Numbers, Numbers]:
        with reporting_failures(self._view):
            without, inside = self._without_dates(plan)
            every = self._counter.spans(without, spans)
            return every, every if inside is None else self._counter.spans(inside, spans)

    def _without_dates(self, plan: EngineQuery) -> tuple[Mask, Mask | None]:
        """The matches without the dates of the query, and those inside them; None if it has no dates."""
        dateless = replace(plan, start=None, end=None)
        without = self._matches.of(dateless)
        if plan.start is None and plan.end is None:
            return without, None
        inside = self._matches.of(plan)
        # If meaning reaches its limit, other memories are the nearest within the dates; they match without these too.
        return (without | inside if self._matches.knn(dateless).truncated else without), inside

    def cross(self, plan: EngineQuery, rows: FacetValues, columns: FacetValues | Spans) -> Numbers:
        with reporting_failures(self._view):
            return self._counter.cross(plan, rows, columns)

    def map_tile(
        self, plan: EngineQuery, layout: tuple[int, int], tile: Tile, groups: Sequence[EngineQuery], *, limit: int
    ) -> MapTile:
        with reporting_failures(self._view):
            placed = places_by_doc(self._view, *layout)
            docs = self._matches.docs(self._matches.of(plan))
            docs = docs[placed.in_tile(tile)[docs]]
            xs, ys = placed.xs[docs], placed.ys[docs]
            codes = np.zeros(len(docs), np.uint8)
            for number, group in reversed(list(enumerate(groups, 1))):
                codes[self._matches.of(group)[docs]] = number
            if len(docs) <= limit:
                return MapTile(len(docs), xs, ys, codes, np.ones(len(docs), np.int64))
            shift, last = tile.bits - TILE_BITS, (1 << TILE_BITS) - 1
            # Few bits for the group: all possible squares are counted, which takes memory for each of them.
            bits = len(groups).bit_length()
            squares = ((xs >> shift & last).astype(np.int64) << TILE_BITS | (ys >> shift & last)) << bits | codes
            counts = np.bincount(squares)
            found = np.flatnonzero(counts)
            columns, rows = found >> (bits + TILE_BITS), found >> bits & last
            return MapTile(
                len(docs),
                columns.astype(np.uint16),
                rows.astype(np.uint16),
                (found & (1 << bits) - 1).astype(np.uint8),
                counts[found],
                is_grid=True,
            )

    def map_cells(
        self, plan: EngineQuery, layout: tuple[int, int], key: str, values: Sequence[Value]
    ) -> dict[Value, npt.NDArray[np.int64]]:
        with reporting_failures(self._view):
            placed = places_by_doc(self._view, *layout)
            mask = self._matches.of(plan) & placed.mask
            squares = (placed.xs >> 16 - COARSE_BITS).astype(np.int64) << COARSE_BITS | placed.ys >> 16 - COARSE_BITS
            found = {}
            for value in values:
                docs = self._matches.docs_having(column_of(key, plan), value)
                if len(docs := docs[mask[docs]]):
                    found[value] = np.bincount(squares[docs], minlength=1 << 2 * COARSE_BITS)
            return found

    def similar_terms(self, plan: EngineQuery, term: str) -> list[str]:
        with reporting_failures(self._view):
            mask = self._matches.of(plan)
            matched = self._matches.docs(mask)
            found: dict[str, None] = {}
            for distance in (1, 2):
                query = words.fuzzy_query(term, distance)
                if len(matched) <= _SIMILAR_TERM_DOCS:
                    # Restrict the query itself: docs outside of the match set would take their places among the best.
                    query = words.within_docs(query, matched.astype(np.uint32))
                docs = words.best(self._view.searcher, query, _SIMILAR_TERM_DOCS)[1]
                near = ids_at(self._view, docs[mask[docs]])[:_SIMILAR_TERM_MEMORIES]
                found.update(dict.fromkeys(_terms_of(near, plan.project_ids)))
                if found:
                    break
            return [other for other in found if abs(len(other) - len(term)) <= 2]


def _terms_of(ids: Sequence[int], project_ids: Sequence[int] | None) -> list[str]:
    """The distinct terms of memories, of those that are still in the projects."""
    seen = "" if project_ids is None else " AND project_id = ANY(%(projects)s)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT DISTINCT unnest(tsvector_to_array(terms)) FROM memories_memory WHERE id = ANY(%(ids)s){seen}",
            {"ids": list(ids), "projects": list(project_ids or ())},
        )
        return [term for (term,) in cursor.fetchall()]


def _after(view: View, docs: Array, order: Sort, place: Place, recalls: int) -> Array:
    """The docs after a place in an order by date or recalls."""
    sign = 1 if order == Sort.OLDEST else -1
    beyond = sign * numbers_of(view, docs, order, recalls)
    edge = sign * (microseconds_of(place.key) if isinstance(place.key, datetime) else int(place.key))
    tied = np.flatnonzero(beyond == edge)
    mask = beyond > edge
    mask[tied] = sign * values_at(view, "id", docs[tied]) > sign * place.id
    found: Array = docs[mask]
    return found


def by_title(view: View, docs: Array, offset: int, limit: int, after: Place | None = None) -> list[Place]:
    """A page by title. The first bytes decide most comparisons; titles that begin alike are read from the database."""
    first, second = values_at(view, "title1", docs), values_at(view, "title2", docs)
    undecided = 0
    if after is not None:
        edge1, edge2 = (keys[0] for keys in title_keys([str(after.key)]).values())
        like_edge = (first == edge1) & (second == edge2)
        remaining = like_edge | (first > edge1) | ((first == edge1) & (second > edge2))
        docs, first, second = docs[remaining], first[remaining], second[remaining]
        # The database leaves out some of these.
        undecided = int(np.count_nonzero(like_edge))
    wanted = min(offset + limit + undecided, len(docs))
    if offset >= wanted:
        return []
    order = np.lexsort((second, first))
    docs, first, second = docs[order], first[order], second[order]
    # All that begin like the first or the last of the page: the database orders them.
    begin = int(np.argmax((first == first[offset]) & (second == second[offset])))
    like_last = (first == first[wanted - 1]) & (second == second[wanted - 1])
    end = len(docs) - int(np.argmax(like_last[::-1]))
    _, which = np.unique(np.stack([first[begin:end], second[begin:end]]), axis=1, return_inverse=True)
    ids = values_at(view, "id", docs[begin:end])
    return _in_title_order(ids.tolist(), which.tolist(), offset - begin, limit, after)


def _in_title_order(
    ids: Sequence[int], keys: Sequence[int], offset: int, limit: int, after: Place | None
) -> list[Place]:
    """A page of memories by the keys of their titles, then by the whole title and the id."""
    parameters: dict[str, Any] = {"ids": list(ids), "keys": list(keys), "offset": offset, "limit": limit}
    beyond = ""
    if after is not None:
        beyond = 'WHERE (lower(m.title) COLLATE "C", asked.id) > (%(title)s, %(id)s)'
        parameters |= {"title": after.key, "id": after.id}
    with connection.cursor() as cursor:
        # By the primary key. Without a place, a deleted memory keeps its own, so that pages stay the same.
        cursor.execute(
            "SELECT lower(m.title), asked.id FROM unnest(%(ids)s::bigint[], %(keys)s::int[]) AS asked (id, key)"
            f" LEFT JOIN memories_memory m ON m.id = asked.id {beyond}"
            ' ORDER BY asked.key, lower(m.title) COLLATE "C", asked.id OFFSET %(offset)s LIMIT %(limit)s',
            parameters,
        )
        return [Place(title, memory_id) for title, memory_id in cursor.fetchall() if title is not None]


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
