"""The `tantivy` engine: match sets as masks over slots, counts from the columns, ranks from tantivy.

A mask has a byte for each slot. Filters, words and dates are masks; the match set is what all of them leave, and every
number is a count over it. Tantivy is asked which slots have a word, which is kept for the next time, and to rank.
"""

import heapq
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache, reduce
from itertools import chain

import numpy as np
from django.db import connection
from pyroaring import BitMap

from search.analysis import Pattern
from search.engines.base import (
    BUCKET_DAYS,
    Counts,
    EngineUnavailableError,
    FacetCounts,
    FacetRequest,
    Filter,
    Plan,
    Summary,
    Value,
    ValueCount,
)
from search.engines.tantivy import days, store, words
from search.engines.tantivy.parts import SCALARS, Array, Bitmaps, DamagedError, Mask, Part, bitmap_of
from search.engines.tantivy.store import NoIndexError, View
from search.facets import FACET, FACETS, Kind
from search.histogram import DayCount
from search.query import Sort
from search.words import Group, TextQuery

logger = logging.getLogger(__name__)

# What of words is kept between queries, in bytes: a bit for each slot, or the slots of a rare one.
_KEPT_BYTES = 48_000_000
_ENTRY_BYTES = 300
# So few slots are ranked by asking for them; of more, the best of all are asked for until enough of them match.
_FEW = 400
_FIRST_LOOK = 200
_DEEPEST_LOOK = 100_000
# Terms like another are taken from some of the memories that have one.
_NEAR_SLOTS = 1_000
_NEAR_MEMORIES = 50
# From so many memories on, up to all but so many, values are counted by bitmaps.
_WORTH_BITMAPS = 60_000


class WordSets:
    """The slots that have a pattern, kept as long as they are asked for. Slots never change what they hold, so what is
    known of the first ones stays true, and only newer ones are looked up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, Pattern], tuple[int, int, Array, bool]] = OrderedDict()
        self._bytes = 0

    def mask(self, view: View, pattern: Pattern) -> Mask:
        """Which slots have the pattern; dead ones may be among them."""
        key = (view.generation.name, pattern)
        with self._lock:
            known = self._kept.get(key)
            # A newer view lacks slots that this one still has.
            if known and known[0] > view.manifest.number:
                known = None
            elif known:
                self._kept.move_to_end(key)
        size = view.manifest.slots
        mask = np.zeros(size, np.bool_)
        first = 0
        if known:
            _, first, stored, packed = known
            if packed:
                mask[:first] = np.unpackbits(stored, count=first)
            else:
                mask[stored] = True
        if first < size:
            found = words.slots_having(view.searcher, pattern, first, size - first)
            mask[found[found < size]] = True
            self._keep(key, view.manifest.number, mask)
        return mask

    def _keep(self, key: tuple[str, Pattern], number: int, mask: Mask) -> None:
        hits = int(np.count_nonzero(mask))
        packed = hits * 32 > len(mask)
        stored = np.packbits(mask) if packed else np.flatnonzero(mask).astype(np.uint32)
        with self._lock:
            if key in self._kept:
                if self._kept[key][0] > number:
                    return
                self._bytes -= self._kept.pop(key)[2].nbytes + _ENTRY_BYTES
            self._kept[key] = (number, len(mask), stored, packed)
            self._bytes += stored.nbytes + _ENTRY_BYTES
            while self._bytes > _KEPT_BYTES and len(self._kept) > 1:
                _, (_, _, gone, _) = self._kept.popitem(last=False)
                self._bytes -= gone.nbytes + _ENTRY_BYTES


_word_sets = WordSets()


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
        except NoIndexError as error:
            raise EngineUnavailableError(f"the search index cannot be read: {error}") from error
        except DamagedError as error:
            store.report_damage(str(error))
            raise EngineUnavailableError(f"the search index is damaged: {error}") from error
        if not store.is_of_this_database(self._view.generation, self._view.manifest):
            raise EngineUnavailableError("the search index is not the one that follows this database")
        self._masks: dict[object, Mask] = {}
        # By the id of a mask, which stays its own because the mask is kept too.
        self._slots: dict[int, tuple[Mask, Array]] = {}
        self._chosen: dict[tuple[int, int], BitMap] = {}
        self._no_values: dict[tuple[int, str], int] = {}

    @property
    def revision(self) -> str:
        return self._view.revision

    def summary(self, plan: Plan, *, no_values: bool) -> Summary:
        with _failures_told(self._view):
            total = len(self._places(self._match(plan)))
            return Summary(total, {spec.key: self._no_value(plan, spec.key) for spec in FACETS} if no_values else {})

    def totals(self, plans: Sequence[Plan]) -> list[int]:
        with _failures_told(self._view):
            return [self._total(plan) for plan in plans]

    def present(self, plan: Plan, key: str, values: Sequence[Value]) -> set[Value]:
        request = FacetRequest(key, only=tuple(values))
        with _failures_told(self._view):
            return {found.value for found in self._facet(plan, request).values}

    def hits(self, plan: Plan, order: Sort, *, limit: int, offset: int) -> list[tuple[int, float | None]]:
        with _failures_told(self._view):
            mask = self._match(plan)
            if order == Sort.RELEVANCE:
                slots, scores = self._ranked(plan, mask, offset + limit)
                found = zip(self._ids(slots[offset:]), scores[offset:].tolist(), strict=True)
                # How rare a word is among all memories shows in the score: it is for who may see them all.
                told = plan.project_ids is None
                return [(memory_id, score if told else None) for memory_id, score in found]
            slots = self._places(mask)
            if order == Sort.TITLE:
                slots = self._by_title(slots, offset, limit)
            else:
                name = "updated" if order == Sort.UPDATED else "created"
                sign = 1 if order == Sort.OLDEST else -1
                slots = _first(
                    slots, sign * self._column(name, slots), sign * self._column("id", slots), offset + limit
                )
                slots = slots[offset:]
            return [(memory_id, None) for memory_id in self._ids(slots)]

    def counts(
        self, plan: Plan, requests: Sequence[FacetRequest], *, zone: tzinfo, now: datetime, days: bool = True
    ) -> Counts:
        with _failures_told(self._view):
            facets = {request.key: self._facet(plan, request) for request in requests}
            if not days:
                return Counts(Summary(0), facets, (), (), ())
            # After the facets, which count who has no value by the way.
            summary = self.summary(plan, no_values=True)
            without = self._match(replace(plan, start=None, end=None))
            inside = self._match(plan) if plan.start is not None or plan.end is not None else None
            spans = self._spans(without, inside, zone)
            ever = self._buckets(without, now)
            return Counts(summary, facets, spans, ever if inside is None else self._buckets(inside, now), ever)

    def hours(self, plan: Plan, *, zone: tzinfo) -> tuple[DayCount, ...]:
        with _failures_told(self._view):
            near = replace(
                plan,
                start=None if plan.start is None else _shifted(plan.start, -timedelta(days=3)),
                end=None if plan.end is None else _shifted(plan.end, timedelta(days=3)),
            )
            inside = self._match(plan) if plan.start is not None or plan.end is not None else None
            return self._spans(self._match(near), inside, zone, hours=True)

    def near_terms(self, plan: Plan, term: str) -> list[str]:
        with _failures_told(self._view):
            mask = self._match(plan)
            found: dict[str, None] = {}
            for distance in (1, 2):
                query = words.near_query(term, distance)
                if len(self._places(mask)) <= _NEAR_SLOTS:
                    # Others, which may not be seen, would take the places of these few.
                    query = words.within_slots(query, self._places(mask).astype(np.uint32))
                slots = words.best(self._view.searcher, query, _NEAR_SLOTS)[1]
                near = self._ids(slots[mask[slots]])[:_NEAR_MEMORIES]
                found.update(dict.fromkeys(_terms_of(near, plan.project_ids)))
                if found:
                    break
            return [other for other in found if abs(len(other) - len(term)) <= 2]

    # The match set.

    def _total(self, plan: Plan) -> int:
        """Of many plans each is asked for once: what they are made of is kept, they themselves are not."""
        key = ("match", plan, "")
        if (known := self._masks.get(key)) is not None:
            return int(np.count_nonzero(known))
        return int(np.count_nonzero(self._matched(plan, "")))

    def _match(self, plan: Plan, *, without_includes: str = "") -> Mask:
        """The slots that pass the whole plan, but for what one facet includes."""
        if without_includes:
            chosen = plan.filter(without_includes)
            if chosen is None or not chosen.includes or chosen.narrows_own_counts:
                without_includes = ""
        return self._known(("match", plan, without_includes), lambda: self._matched(plan, without_includes))

    def _matched(self, plan: Plan, without_includes: str) -> Mask:
        masks = [self._view.live]
        if plan.project_ids is not None:
            masks.append(self._having("project", plan.project_ids))
        if plan.has_text:
            masks.append(self._known(("texts", plan.texts), lambda: self._texts(plan)))
        for chosen in plan.filters:
            if values := tuple(chain(*chosen.exclude)):
                masks.append(~self._having(_column_of(chosen.key, plan), values))
            if chosen.any_value:
                masks.append(~self._none(chosen.key))
            if chosen.includes and chosen.key != without_includes:
                masks.append(self._included(chosen, plan))
        if plan.start is not None or plan.end is not None:
            masks.append(self._known(("dates", plan.start, plan.end), lambda: self._dated(plan)))
        return reduce(np.logical_and, masks) if len(masks) > 1 else masks[0]

    def _included(self, chosen: Filter, plan: Plan) -> Mask:
        column = _column_of(chosen.key, plan)
        if chosen.require_all:
            masks = [self._having(column, group) for group in chosen.include]
            # In AND mode a value and "no value" together can never both hold.
            if chosen.no_value:
                masks.append(self._none(chosen.key))
            return reduce(np.logical_and, masks)
        mask = self._having(column, tuple(chain(*chosen.include)))
        return mask | self._none(chosen.key) if chosen.no_value else mask

    def _having(self, column: str, values: Sequence[Value]) -> Mask:
        """The slots with any of the values."""
        return self._known(("having", column, tuple(values)), lambda: self._found(column, values))

    def _found(self, column: str, values: Sequence[Value]) -> Mask:
        return self._coded(column, self._codes(column, values))

    def _coded(self, column: str, codes: Sequence[int]) -> Mask:
        """The slots with any of the codes."""
        mask = np.zeros(self._view.manifest.slots, np.bool_)
        for part in self._view.parts:
            stretch = mask[part.slots]
            for code in codes:
                if column in SCALARS:
                    stretch |= part.arrays[column] == code
                else:
                    stretch[part.rows_of(column, code)] = True
        return mask

    def _none(self, key: str) -> Mask:
        """The slots without a value in a facet."""
        return self._known(("none", key), lambda: self._coded(key, [0]))

    def _dated(self, plan: Plan) -> Mask:
        created = self._whole("created")
        mask = np.ones(self._view.manifest.slots, np.bool_)
        if plan.start is not None:
            mask &= created >= days.microseconds_of(plan.start)
        if plan.end is not None:
            mask &= created < days.microseconds_of(plan.end)
        return mask

    def _texts(self, plan: Plan) -> Mask:
        masks = []
        for text in plan.texts:
            mask = self._words(text.words)
            if text.project_ids is not None:
                mask = mask & self._having("project", text.project_ids)
            masks.append(mask)
        return reduce(np.logical_or, masks)

    def _words(self, query: TextQuery) -> Mask:
        if query.is_empty:
            return np.zeros(self._view.manifest.slots, np.bool_)
        masks = [self._pattern(pattern) for pattern in query.required]
        masks += [~self._pattern(pattern) for pattern in query.excluded]
        if query.groups:
            masks.append(reduce(np.logical_or, [self._group(group) for group in query.groups]))
        return reduce(np.logical_and, masks)

    def _group(self, group: Group) -> Mask:
        masks = [self._pattern(pattern) for pattern in group.phrases]
        found = [self._pattern(pattern) for pattern in group.words]
        if found and group.need == len(found):
            masks += found
        elif found:
            held: Array = np.zeros(self._view.manifest.slots, np.uint8 if len(found) < 256 else np.uint16)
            for mask in found:
                np.add(held, mask, out=held)
            masks.append(held >= group.need)
        return reduce(np.logical_and, masks)

    def _pattern(self, pattern: Pattern) -> Mask:
        return self._known(("pattern", pattern), lambda: _word_sets.mask(self._view, pattern))

    def _known(self, key: object, make: Callable[[], Mask]) -> Mask:
        """Masks of this answer, each made once. Nobody writes into one."""
        if (found := self._masks.get(key)) is None:
            found = self._masks[key] = make()
        return found

    # Columns.

    def _joined(self, read: Callable[[Part], Array], kind: type) -> Array:
        parts = [read(part) for part in self._view.parts]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, kind)

    def _whole(self, name: str) -> Array:
        """A column over all slots. One part is the file itself; several are put together once for a view."""
        kept = self._view.kept
        if name not in kept:
            kept[name] = self._joined(lambda part: part.arrays[name], np.int64)
        found: Array = kept[name]  # type: ignore[assignment]
        return found

    def _column(self, name: str, slots: Array) -> Array:
        found: Array = self._whole(name).take(slots)
        return found

    def _ids(self, slots: Array) -> list[int]:
        found: list[int] = self._column("id", slots).tolist()
        return found

    # Counts.

    def _no_value(self, plan: Plan, key: str) -> int:
        if FACET[key].kind == Kind.PROJECT:
            return 0
        mask = self._match(plan, without_includes=key)
        if (counted := self._no_values.get((id(mask), key))) is not None:
            return counted
        return int(np.count_nonzero(self._none(key).take(self._places(mask))))

    def _facet(self, plan: Plan, request: FacetRequest) -> FacetCounts:
        mask = self._match(plan, without_includes=request.key)
        column = _column_of(request.key, plan)
        hits = len(self._places(mask))
        large = _WORTH_BITMAPS < hits < self._view.manifest.memories - _WORTH_BITMAPS
        if large and (bitmaps := self._largest_part.bitmaps(column)) is not None:
            return self._facet_of_bitmaps(request, column, mask, bitmaps)
        counts = self._count(column, mask)
        if column == request.key:
            self._no_values[id(mask), request.key] = int(counts[0])
        counts[0] = 0
        codes = self._wanted(request, column, counts)
        own = self._own(codes, column, mask) if FACET[request.key].kind == Kind.TREE else [0] * len(codes)
        return self._facet_counts(column, codes, counts[codes].tolist(), own, int(np.count_nonzero(counts)))

    def _facet_counts(
        self, column: str, codes: Sequence[int], counts: Sequence[int], own: Sequence[int], distinct: int
    ) -> FacetCounts:
        values = self._view.dictionary.values[column]
        rows = [ValueCount(values[code], n, within) for code, n, within in zip(codes, counts, own, strict=True) if n]
        return FacetCounts(tuple(sorted(rows, key=lambda row: (-row.count, row.value))), distinct)

    def _facet_of_bitmaps(self, request: FacetRequest, column: str, mask: Mask, bitmaps: Bitmaps) -> FacetCounts:
        """A facet of a large set: only what may be shown is counted; of the rest, whether there is any."""
        count = self._counter(column, mask, bitmaps)
        if column == request.key:
            self._no_values[id(mask), request.key] = count.of(0)
        if request.only is not None:
            wanted = self._codes(column, request.only)
        elif request.limit is None:
            wanted = [code for code in range(1, len(count.most)) if count.most[code]]
        else:
            wanted = count.largest(request.limit, self._view.dictionary.values[column])
            wanted += [code for code in self._codes(column, request.always) if code not in set(wanted)]
        counts = [count.of(code) for code in wanted]
        own = [0] * len(wanted)
        if FACET[request.key].kind == Kind.TREE:
            own = self._own(wanted, column, mask)
        return self._facet_counts(column, wanted, counts, own, count.distinct())

    def _counter(self, column: str, mask: Mask, bitmaps: Bitmaps) -> "_Counter":
        """Counts within a mask: by bitmaps in the largest part, all at once in the others, which are small."""
        large = self._largest_part
        key = (id(mask), large.first)
        if (chosen := self._chosen.get(key)) is None:
            chosen = self._chosen[key] = bitmap_of(mask[large.slots])
        length = self._view.sizes[column]
        rest = np.zeros(length, np.int64)
        places = self._places(mask)
        for part, within in self._stretches(places):
            if part is not large:
                rest += part.count(column, mask[part.slots], within, length)
        return _Counter(chosen, bitmaps, rest)

    @property
    def _largest_part(self) -> Part:
        return max(self._view.parts, key=lambda part: part.size)

    def _stretches(self, places: Array) -> Iterator[tuple[Part, Array]]:
        """The parts that slots lie in, each with its places."""
        cuts = np.searchsorted(places, [part.first for part in self._view.parts] + [self._view.manifest.slots])
        for part, low, high in zip(self._view.parts, cuts, cuts[1:], strict=False):
            if high > low:
                yield part, places[low:high] - part.first

    def _own(self, codes: Sequence[int], column: str, mask: Mask) -> list[int]:
        """How many of the mask are filed in each category itself."""
        values = self._view.dictionary.values[column]
        known = self._view.dictionary.codes["category_own"]
        length = self._view.sizes["category_own"]
        at = [found if (found := known.get(values[code], -1)) < length else -1 for code in codes]
        hits = len(self._places(mask))
        if hits > _WORTH_BITMAPS and (bitmaps := self._largest_part.bitmaps("category_own")) is not None:
            count = self._counter("category_own", mask, bitmaps)
            return [count.of(code) if code >= 0 else 0 for code in at]
        counts = self._count("category_own", mask)
        return [int(counts[code]) if code >= 0 else 0 for code in at]

    def _count(self, column: str, mask: Mask) -> Array:
        """Counts by code. Of more than half of all memories, the others are counted and taken away."""
        if len(self._places(mask)) * 2 > self._view.manifest.memories:
            rest = self._known(("not", id(mask)), lambda: self._view.live & ~mask)
            return self._all_counts(column) - self._counted(column, rest)
        return self._counted(column, mask)

    def _places(self, mask: Mask) -> Array:
        """The slots of a mask, found once."""
        if (known := self._slots.get(id(mask))) is None:
            known = self._slots[id(mask)] = (mask, np.flatnonzero(mask))
        return known[1]

    def _all_counts(self, column: str) -> Array:
        kept, name = self._view.kept, f"counts of {column}"
        if name not in kept:
            kept[name] = self._counted(column, self._view.live)
        found: Array = kept[name]  # type: ignore[assignment]
        return found

    def _counted(self, column: str, mask: Mask) -> Array:
        length = self._view.sizes[column]
        counts = np.zeros(length, np.int64)
        for part, places in self._stretches(self._places(mask)):
            counts += part.count(column, mask[part.slots], places, length)
        return counts

    def _wanted(self, request: FacetRequest, column: str, counts: Array) -> list[int]:
        """The codes that a request is for, among those that count anything."""
        if request.only is not None:
            return [code for code in self._codes(column, request.only) if counts[code]]
        if request.limit is None:
            return np.flatnonzero(counts).tolist()
        chosen = [code for code in self._codes(column, request.always) if counts[code]]
        return list(dict.fromkeys([*self._largest(request.limit, column, counts), *chosen]))

    def _codes(self, column: str, values: Iterable[Value]) -> list[int]:
        """The codes of values, of those that this view has."""
        known, length = self._view.dictionary.codes[column], self._view.sizes[column]
        return [code for value in values if value != "" and 0 < (code := known.get(value, 0)) < length]

    def _largest(self, limit: int, column: str, counts: Array) -> list[int]:
        """The codes of the largest counts, the first by value among equal ones."""
        nonzero = np.flatnonzero(counts)
        if len(nonzero) <= limit:
            return nonzero.tolist()
        if not limit:
            return []
        found = counts[nonzero]
        least = np.partition(found, len(found) - limit)[len(found) - limit]
        above = nonzero[found > least].tolist()
        equal = nonzero[found == least].tolist()
        values = self._view.dictionary.values[column]
        equal.sort(key=values.__getitem__)
        return [*above, *equal[: limit - len(above)]]

    def _spans(self, mask: Mask, inside: Mask | None, zone: tzinfo, *, hours: bool = False) -> tuple[DayCount, ...]:
        slots = self._places(mask)
        marked = None if inside is None else inside[slots]
        return days.count_spans(
            self._column("quarter", slots), lambda some: self._column("created", slots[some]), marked, zone, hours=hours
        )

    def _buckets(self, mask: Mask, now: datetime) -> tuple[int, ...]:
        created = self._whole("created")
        moments = [days.microseconds_of(now - timedelta(days=n)) for n in BUCKET_DAYS]
        # Most memories are older than the longest bucket.
        slots = self._places(mask)
        if len(slots) * 8 < len(mask):
            found = created.take(slots)
            found = found[found >= moments[-1]]
        else:
            found = created[(created >= moments[-1]) & mask]
        since = [int(np.count_nonzero(found >= moment)) for moment in moments]
        return (*since, len(slots) - since[-1])

    # Orders.

    def _ranked(self, plan: Plan, mask: Mask, limit: int) -> tuple[Array, Array]:
        """The best `limit` slots of the mask and their scores: by score, then the newest, then the highest id."""
        hits = len(self._places(mask))
        limit = min(limit, hits)
        query = words.rank_query(plan.texts)
        if query is None or not limit:
            matched = self._places(mask)
            newest = _first(matched, -self._column("created", matched), -self._column("id", matched), limit)
            return newest, np.zeros(len(newest))
        whole, look = query, max(_FIRST_LOOK, 2 * limit)
        if few := hits <= _FEW:
            query, look = words.within_slots(whole, self._places(mask).astype(np.uint32)), hits
        while True:
            scores, slots = words.best(self._view.searcher, query, look)
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
                query = words.within_slots(whole, self._places(mask).astype(np.uint32))
        scores, slots = scores[passed], slots[passed]
        order = np.lexsort((-self._column("id", slots), -self._column("created", slots), -scores))[:limit]
        scores, slots = scores[order], slots[order]
        if len(slots) < limit:
            # Who matches by an exclusion alone, in a language in which nothing was looked for, has no score.
            rest = mask.copy()
            rest[slots] = False
            others = np.flatnonzero(rest)
            others = _first(others, -self._column("created", others), -self._column("id", others), limit - len(slots))
            slots = np.concatenate([slots, others.astype(slots.dtype)])
            scores = np.concatenate([scores, np.zeros(len(others))])
        return slots, scores

    def _by_title(self, slots: Array, offset: int, limit: int) -> Array:
        """A page by title. The first bytes decide for most; titles that begin alike are read from the database."""
        wanted = min(offset + limit, len(slots))
        if offset >= wanted:
            return slots[:0]
        first, second = self._column("title1", slots), self._column("title2", slots)
        order = np.lexsort((second, first))
        slots, first, second = slots[order], first[order], second[order]
        # All that begin like the first or the last of the page: the database knows which of them come first.
        begin = int(np.argmax((first == first[offset]) & (second == second[offset])))
        like_last = (first == first[wanted - 1]) & (second == second[wanted - 1])
        end = len(slots) - int(np.argmax(like_last[::-1]))
        _, which = np.unique(np.stack([first[begin:end], second[begin:end]]), axis=1, return_inverse=True)
        ids = self._column("id", slots[begin:end])
        page = _in_title_order(ids.tolist(), which.tolist(), offset - begin, wanted - offset)
        at = dict(zip(ids.tolist(), slots[begin:end].tolist(), strict=True))
        return np.array([at[memory_id] for memory_id in page], np.int64)


class _Counter:
    """Counts of one column within one set: each code when it is asked for, and never twice."""

    def __init__(self, chosen: BitMap, bitmaps: Bitmaps, rest: Array) -> None:
        self._chosen = chosen
        self._bitmaps = bitmaps
        self._rest = rest
        self._known: dict[int, int] = {}
        self.most: Array = rest.copy()
        self.most[bitmaps.codes] += bitmaps.sizes
        """By code, how many there can be at most."""

    def of(self, code: int) -> int:
        if (known := self._known.get(code)) is None:
            places = self._bitmaps.by_code.get(code)
            within = 0 if places is None else self._chosen.intersection_cardinality(places)
            known = self._known[code] = int(self._rest[code]) + within
        return known

    def largest(self, limit: int, values: Sequence[Value]) -> list[int]:
        """The codes of the largest counts, the first by value among equal ones: those that can be large come first,
        until none is left that could be among them.
        """
        best: list[int] = []
        candidates = []
        for code in np.argsort(-self.most, kind="stable").tolist():
            if not self.most[code] or (len(best) == limit and (not limit or self.most[code] < best[0])):
                break
            if not code or not (n := self.of(code)):
                continue
            candidates.append(code)
            (heapq.heappush if len(best) < limit else heapq.heappushpop)(best, n)
        candidates.sort(key=lambda code: (-self.of(code), values[code]))
        return candidates[:limit]

    def distinct(self) -> int:
        """How many codes have any."""
        some = self._rest > 0
        touched = map(self._chosen.intersect, self._bitmaps.by_code.values())
        some[self._bitmaps.codes] |= np.fromiter(touched, np.bool_, len(self._bitmaps.codes))
        some[0] = False
        return int(np.count_nonzero(some))


def _terms_of(ids: Sequence[int], project_ids: Sequence[int] | None) -> list[str]:
    """The terms of memories, of those that are in the projects by now."""
    seen = "" if project_ids is None else " AND project_id = ANY(%(projects)s)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT DISTINCT unnest(tsvector_to_array(terms)) FROM memories_memory WHERE id = ANY(%(ids)s){seen}",
            {"ids": list(ids), "projects": list(project_ids or ())},
        )
        return [term for (term,) in cursor.fetchall()]


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


def _first(slots: Array, keys: Array, ties: Array, limit: int) -> Array:
    """The `limit` slots with the smallest keys, the smallest tie first among equals."""
    if limit < len(slots):
        least = np.partition(keys, limit - 1)[limit - 1] if limit else 0
        kept = keys <= least
        slots, keys, ties = slots[kept], keys[kept], ties[kept]
    order = np.lexsort((ties, keys))[:limit]
    found: Array = slots[order]
    return found


def _shifted(moment: datetime, by: timedelta) -> datetime:
    try:
        return moment + by
    except OverflowError:
        return moment


@lru_cache(maxsize=64)
def _column_name(key: str, subcategories: bool) -> str:
    return "category_own" if FACET[key].kind == Kind.TREE and not subcategories else key


def _column_of(key: str, plan: Plan) -> str:
    """Without subcategories a tick means the node alone, and so must its number."""
    return _column_name(key, plan.subcategories)
