"""The `tantivy` engine: match sets as masks over slots, counts from the columns, ranks from tantivy.

Filters, words and dates are masks; the match set is what all of them leave (`match.py`), and every number is a count
over it (`counting.py`). Tantivy is asked which slots have a word, which is kept for the next time (`word_sets.py`), and
to rank (`orders.py`).
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo

import numpy as np
from django.db import connection

from search.engines.arrays import DamagedError
from search.engines.base import Counts, EngineUnavailableError, FacetRequest, Meaning, Near, Plan, Summary, Value
from search.engines.filing import Filing
from search.engines.nearest import similarities_of
from search.engines.tantivy import orders, outbox, store, words
from search.engines.tantivy.columns import ids_at, slots_of
from search.engines.tantivy.counting import Counting
from search.engines.tantivy.match import Matches
from search.engines.tantivy.store import NoIndexError, View
from search.facets import FACETS
from search.histogram import NO_DAYS, HourCount
from search.query import Sort

logger = logging.getLogger(__name__)

# In seconds: behind, by too little to tell.
_A_MOMENT = 1e-6
# Terms like another are taken from some of the memories that have one.
_NEAR_SLOTS = 1_000
_NEAR_MEMORIES = 50

# What numpy and tantivy raise over numbers that make no sense, be it by damage or by a mistake of ours.
_FAILURES = (ValueError, OSError, DamagedError, SystemError, IndexError, KeyError, MemoryError, OverflowError)


@contextmanager
def _failures_told(view: View) -> Iterator[None]:
    """What cannot be answered is answered by another engine; if it is for damage, the writer is told of it."""
    try:
        yield
    except _FAILURES as error:
        if reason := store.verify(view):
            store.report_damage(reason, view.generation)
        else:
            logger.exception("The search index is whole, but could not answer.")
        raise EngineUnavailableError(f"the search index could not answer ({error!r})") from error


class TantivyEngine:
    """The protocol of `search.engines.base` over the derived index, as it was when the engine was made."""

    name = "tantivy"

    def __init__(self) -> None:
        """Raises EngineUnavailableError where there is no index, or none that can be read."""
        try:
            self._view = store.read_view()
            following = outbox.following()
        except NoIndexError as error:
            raise EngineUnavailableError(f"the search index cannot be read: {error}") from error
        except DamagedError as error:
            store.report_damage(str(error))
            raise EngineUnavailableError(f"the search index is damaged: {error}") from error
        if not store.is_of_this_database(self._view.generation, self._view.manifest, following):
            raise EngineUnavailableError("the search index is not the one that follows this database")
        # What was taken in between the two is in neither.
        self.seconds_behind = following.seconds or (0.0 if store.is_newest(self._view) else _A_MOMENT)
        self.waited_ms = 0.0
        self._matches = Matches(self._view)
        self._counting = Counting(self._view, self._matches)

    @property
    def revision(self) -> str:
        return self._view.revision

    def make_ready(self) -> None:
        with _failures_told(self._view):
            self._counting.make_ready()

    def filing(self) -> Filing:
        view = self._view
        return Filing(view.generation.name, view.manifest.number, view.parts, view.live, view.dictionary, view.sizes)

    def near(self, plan: Plan) -> Near:
        with _failures_told(self._view):
            return self._matches.near(plan)

    def similarities(self, meaning: Meaning, ids: Sequence[int]) -> dict[int, float]:
        with _failures_told(self._view):
            return similarities_of(meaning, ids, replicated=True)

    def among(self, plan: Plan, ids: Sequence[int]) -> set[int]:
        with _failures_told(self._view):
            asked = np.array(ids, np.int64)
            slots = slots_of(self._view, asked)
            return set(asked[(slots >= 0) & self._matches.of(plan)[slots]].tolist())

    def word_scores(self, plan: Plan, ids: Sequence[int]) -> dict[int, float]:
        with _failures_told(self._view):
            return orders.word_scores(self._view, plan, np.array(ids, np.int64))

    def summary(self, plan: Plan, *, no_values: bool) -> Summary:
        with _failures_told(self._view):
            total = len(self._matches.slots(self._matches.of(plan)))
            capped = self._matches.near(plan).capped
            if not no_values:
                return Summary(total, capped=capped)
            return Summary(total, {spec.key: self._counting.no_value(plan, spec.key) for spec in FACETS}, capped)

    def totals(self, plans: Sequence[Plan]) -> list[int]:
        with _failures_told(self._view):
            return [self._matches.total(plan) for plan in plans]

    def present(self, plan: Plan, key: str, values: Sequence[Value]) -> set[Value]:
        request = FacetRequest(key, only=tuple(values))
        with _failures_told(self._view):
            return {found.value for found in self._counting.facet(plan, request).values}

    def hits(self, plan: Plan, order: Sort, *, limit: int, offset: int) -> list[tuple[int, float | None]]:
        with _failures_told(self._view):
            mask = self._matches.of(plan)
            if order == Sort.RELEVANCE:
                slots, scores = orders.ranked(self._view, self._matches, plan, mask, offset + limit)
                found = zip(ids_at(self._view, slots[offset:]), scores[offset:].tolist(), strict=True)
                # How rare a word is among all memories shows in the score: it is for who may see them all.
                told = plan.project_ids is None
                return [(memory_id, score if told else None) for memory_id, score in found]
            slots = self._matches.slots(mask)
            if order == Sort.TITLE:
                slots = orders.by_title(self._view, slots, offset, limit)
            else:
                slots = orders.by_date(self._view, slots, offset + limit, order)[offset:]
            return [(memory_id, None) for memory_id in ids_at(self._view, slots)]

    def counts(
        self, plan: Plan, requests: Sequence[FacetRequest], *, zone: tzinfo, now: datetime, days: bool = True
    ) -> Counts:
        with _failures_told(self._view):
            matches, counting = self._matches, self._counting
            facets = {request.key: counting.facet(plan, request) for request in requests}
            if not days:
                return Counts(Summary(0), facets, NO_DAYS, (), ())
            # After the facets, which count who has no value by the way.
            summary = self.summary(plan, no_values=True)
            dateless = replace(plan, start=None, end=None)
            inside = matches.of(plan) if plan.start is not None or plan.end is not None else None
            without, capped = matches.of(dateless), matches.near(dateless).capped
            if capped and inside is not None:
                # With the dates others are the nearest, and they match without them too.
                without = without | inside
            if inside is None or plan.meaning is not None:
                by_day = counting.days(without, inside, zone)
            else:
                by_day = counting.days_around(dateless, inside, zone)
            ever = counting.buckets(without, now)
            within = ever if inside is None else counting.buckets(inside, now)
            return Counts(summary, facets, by_day, within, ever, capped)

    def hours(self, plan: Plan, *, zone: tzinfo) -> tuple[HourCount, ...]:
        with _failures_told(self._view):
            near = replace(
                plan,
                start=None if plan.start is None else _shifted(plan.start, -timedelta(days=3)),
                end=None if plan.end is None else _shifted(plan.end, timedelta(days=3)),
            )
            inside = self._matches.of(plan) if plan.start is not None or plan.end is not None else None
            around = self._matches.of(near)
            return self._counting.hours(around if inside is None else around | inside, inside, zone)

    def near_terms(self, plan: Plan, term: str) -> list[str]:
        with _failures_told(self._view):
            mask = self._matches.of(plan)
            matched = self._matches.slots(mask)
            found: dict[str, None] = {}
            for distance in (1, 2):
                query = words.near_query(term, distance)
                if len(matched) <= _NEAR_SLOTS:
                    # Others, which may not be seen, would take the places of these few.
                    query = words.within_slots(query, matched.astype(np.uint32))
                slots = words.best(self._view.searcher, query, _NEAR_SLOTS)[1]
                near = ids_at(self._view, slots[mask[slots]])[:_NEAR_MEMORIES]
                found.update(dict.fromkeys(_terms_of(near, plan.project_ids)))
                if found:
                    break
            return [other for other in found if abs(len(other) - len(term)) <= 2]


def _terms_of(ids: Sequence[int], project_ids: Sequence[int] | None) -> list[str]:
    """The terms of memories, of those that are in the projects by now."""
    seen = "" if project_ids is None else " AND project_id = ANY(%(projects)s)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT DISTINCT unnest(tsvector_to_array(terms)) FROM memories_memory WHERE id = ANY(%(ids)s){seen}",
            {"ids": list(ids), "projects": list(project_ids or ())},
        )
        return [term for (term,) in cursor.fetchall()]


def _shifted(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return moment
