"""The match set: filters, words, vector and dates as masks over the docs, and their intersection.

A mask has one byte per doc.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import chain

import numpy as np

from search.area import INSIDE, OUTLINE, Area, Tile, cells_of
from search.engines.base import NO_NEIGHBOURS, EngineQuery, Filter, Ids, LanguageText, Neighbours, Value, VectorQuery
from search.engines.index import words
from search.engines.index.segments import SCALARS, microseconds_of
from search.engines.index.store import View, codes_of, column_of, docs_of, values_at
from search.engines.knn import Vectors, nearest_candidates, vectors_now
from search.engines.segment_files import Array, Mask
from search.engines.stored_columns import Coordinates, read_places, read_recalls
from text.analysis import Pattern
from text.query_syntax import Alternative, TextQuery
from web.cache import RevisionCache


class MatchMasks:
    """The match sets of one answer. Their parts are computed once and cached."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._masks: dict[object, Mask] = {}
        self._near: dict[tuple[EngineQuery, str], Neighbours] = {}
        self._vectors: dict[int, Vectors] = {}
        # Keyed by the id of a mask, which stays unique because the mask is stored too.
        self._docs: dict[int, tuple[Mask, Array]] = {}
        self._counts: dict[int, tuple[Mask, int]] = {}

    def total(self, plan: EngineQuery) -> int:
        """The size of a match set, without caching its mask: for many queries of which each is counted once."""
        key = ("match", plan, "")
        if (known := self._masks.get(key)) is not None:
            return int(np.count_nonzero(known))
        return int(np.count_nonzero(self._matched(plan, "")))

    def of(self, plan: EngineQuery, *, without_includes: str = "") -> Mask:
        """The docs that match the whole query, optionally without the inclusions of one facet."""
        without_includes = _dropped(plan, without_includes)
        return self.cached(("match", plan, without_includes), lambda: self._matched(plan, without_includes))

    def knn(self, plan: EngineQuery, *, without_includes: str = "") -> Neighbours:
        """The nearest memories of such a set."""
        if plan.meaning is None:
            return NO_NEIGHBOURS
        key = (plan, _dropped(plan, without_includes))
        if (known := self._near.get(key)) is None:
            passing = _MaskCandidates(self._view, self._passing(*key, always=True))
            known = self._near[key] = nearest_candidates(plan.meaning, passing, self._vectors_of(plan.meaning))
        return known

    def _vectors_of(self, meaning: VectorQuery) -> Vectors:
        """Asked for once: they are the same in all of an answer."""
        if (known := self._vectors.get(meaning.model_id)) is None:
            known = self._vectors[meaning.model_id] = vectors_now(meaning, replicated=True)
        return known

    def _matched(self, plan: EngineQuery, without_includes: str) -> Mask:
        passing = self._passing(plan, without_includes)
        if plan.meaning is None:
            return passing & self._by_text(plan) if plan.has_text else passing
        near = self.knn(plan, without_includes=without_includes)
        mask = np.zeros(self._view.manifest.size, np.bool_)
        mask[docs_of(self._view, near.ids)] = True
        if near.truncated and without_includes:
            # Without a filter other memories are the nearest; those of the whole query still match.
            mask[docs_of(self._view, self.knn(plan).ids)] = True
        return mask if plan.meaning.semantic_only else mask | (passing & self._by_text(plan))

    def _by_text(self, plan: EngineQuery) -> Mask:
        """The docs that match by words or by name."""
        masks = [self.by_words(plan)] if plan.texts else []
        masks += [self._having(column_of(key, plan), values) for key, values in plan.named]
        return reduce(np.logical_or, masks)

    def by_words(self, plan: EngineQuery) -> Mask:
        """The docs that have enough of the words, whether they pass the filters or not."""
        return self.cached(("texts", plan.texts), lambda: self._texts(plan.texts))

    def visible(self, plan: EngineQuery) -> Mask:
        """The docs in the projects of a query, in any state."""
        if plan.project_ids is None:
            return self._view.live
        own = self._having("project", plan.project_ids)
        return self.cached(("visible", plan.project_ids), lambda: self._view.live & own)

    def having_pattern(self, pattern: Pattern, project_ids: tuple[int, ...] | None) -> Mask:
        """The docs that have a pattern, of the projects whose language it belongs to."""
        mask = self._pattern(pattern)
        return mask if project_ids is None else mask & self._having("project", project_ids)

    def _passing(self, plan: EngineQuery, without_includes: str, *, always: bool = False) -> Mask:
        """The docs that pass the filters; with `always`, also what semantic matches must contain."""
        masks = [np.zeros_like(self._view.live) if plan.is_refused else self._view.live]
        if plan.project_ids is not None:
            masks.append(self._having("project", plan.project_ids))
        if always and any(not text.words.always.is_empty for text in plan.texts):
            masks.append(self.cached(("always", plan.texts), lambda: self._texts(plan.texts, always=True)))
        for chosen in plan.filters:
            if values := tuple(chain(*chosen.exclude)):
                masks.append(~self._having(column_of(chosen.key, plan), values))
            if chosen.any_value:
                masks.append(~self.without_value(chosen.key))
            if chosen.includes and chosen.key != without_includes:
                masks.append(self._included(chosen, plan))
        if (since := plan.updated_from) is not None:
            masks.append(self.cached(("updated", since), lambda: self._updated(microseconds_of(since))))
        if (then := plan.as_of) is not None:
            masks.append(self.cached(("as of", then), lambda: self._valid(microseconds_of(then))))
        if (area := plan.area) is not None:
            masks.append(self.cached(("area", area), lambda: self._in_area(area)))
        if plan.recalled_from is not None:
            masks.append(self._recalled(plan, plan.recalled_from))
        if plan.not_recalled_from is not None:
            masks.append(~self._recalled(plan, plan.not_recalled_from))
        if plan.start is not None or plan.end is not None:
            masks.append(self.cached(("dates", plan.start, plan.end), lambda: self._dated(plan)))
        return reduce(np.logical_and, masks) if len(masks) > 1 else masks[0]

    def _included(self, chosen: Filter, plan: EngineQuery) -> Mask:
        column = column_of(chosen.key, plan)
        if chosen.require_all:
            masks = [self._having(column, group) for group in chosen.include]
            # In AND mode a value and "no value" together can never both hold.
            if chosen.no_value:
                masks.append(self.without_value(chosen.key))
            return reduce(np.logical_and, masks)
        mask = self._having(column, tuple(chain(*chosen.include)))
        return mask | self.without_value(chosen.key) if chosen.no_value else mask

    def _having(self, column: str, values: Sequence[Value]) -> Mask:
        """The docs with any of the values."""
        return self.cached(("having", column, tuple(values)), lambda: self._found(column, values))

    def _found(self, column: str, values: Sequence[Value]) -> Mask:
        return self._coded(column, codes_of(self._view, column, values))

    def _coded(self, column: str, codes: Sequence[int]) -> Mask:
        """The docs with any of the codes."""
        mask = np.zeros(self._view.manifest.size, np.bool_)
        for segment in self._view.segments:
            stretch = mask[segment.span]
            for code in codes:
                if column in SCALARS:
                    stretch |= segment.arrays[column] == code
                else:
                    stretch[segment.rows_of(column, code)] = True
        return mask

    def docs_having(self, column: str, value: Value) -> Array:
        """The docs with a value, not cached: for many values of which each is asked for once."""
        found = [
            segment.first + segment.rows_of(column, code).astype(np.int64)
            for code in codes_of(self._view, column, (value,))
            for segment in self._view.segments
        ]
        return np.concatenate([np.empty(0, np.int64), *found])

    def without_value(self, key: str) -> Mask:
        """The docs without a value in a facet."""
        return self.cached(("none", key), lambda: self._coded(key, [0]))

    def _dated(self, plan: EngineQuery) -> Mask:
        mask = np.ones(self._view.manifest.size, np.bool_)
        for segment in self._view.segments:
            created, stretch = segment.arrays["created"], mask[segment.span]
            if plan.start is not None:
                stretch &= created >= microseconds_of(plan.start)
            if plan.end is not None:
                stretch &= created < microseconds_of(plan.end)
        return mask

    def _valid(self, then: int) -> Mask:
        mask = np.zeros(self._view.manifest.size, np.bool_)
        for segment in self._view.segments:
            mask[segment.span] = (segment.arrays["valid_since"] < then) & (segment.arrays["valid_until"] >= then)
        return mask

    def _in_area(self, area: Area) -> Mask:
        if not area.corners:
            return np.zeros(self._view.manifest.size, np.bool_)
        placed = places_by_doc(self._view, area.layout_id, area.revision)
        kinds = area.cells().take(placed.cells)
        mask: Mask = (kinds == INSIDE) & placed.mask
        near = np.flatnonzero((kinds == OUTLINE) & placed.mask)
        mask[near] = area.contains(placed.xs[near].astype(np.int64), placed.ys[near].astype(np.int64))
        return mask

    def _recalled(self, plan: EngineQuery, since: datetime) -> Mask:
        """The docs whose last recall is not before an instant."""
        # Recalls are stored by the second, so those of the second in which the instant is are before it.
        seconds = max(0, -(-microseconds_of(since) // 1_000_000))

        def find() -> Mask:
            recalled = recalls_by_doc(self._view, plan.recalls)
            mask: Mask = (recalled.seconds >= seconds) & (recalled.totals > 0)
            return mask

        return self.cached(("recalled", since, plan.recalls), find)

    def _updated(self, since: int) -> Mask:
        mask = np.zeros(self._view.manifest.size, np.bool_)
        for segment in self._view.segments:
            mask[segment.span] = segment.arrays["updated"] >= since
        return mask

    def _texts(self, texts: Sequence[LanguageText], *, always: bool = False) -> Mask:
        masks = []
        for text in texts:
            if always and text.words.always.is_empty:
                mask = np.ones(self._view.manifest.size, np.bool_)
            else:
                mask = self._words(text.words.always if always else text.words)
            if text.project_ids is not None:
                mask = mask & self._having("project", text.project_ids)
            masks.append(mask)
        return reduce(np.logical_or, masks)

    def _words(self, query: TextQuery) -> Mask:
        if query.is_empty:
            return np.zeros(self._view.manifest.size, np.bool_)
        masks = [self._pattern(pattern) for pattern in query.required]
        masks += [~self._pattern(pattern) for pattern in query.excluded]
        if query.groups:
            masks.append(reduce(np.logical_or, [self._group(group) for group in query.groups]))
        return reduce(np.logical_and, masks)

    def _group(self, group: Alternative) -> Mask:
        masks = [self._pattern(pattern) for pattern in group.phrases]
        found = [self._pattern(pattern) for pattern in group.words]
        if found and group.need == len(found):
            masks += found
        elif found:
            held: Array = np.zeros(self._view.manifest.size, np.uint8 if len(found) < 256 else np.uint16)
            for mask in found:
                np.add(held, mask, out=held)
            masks.append(held >= group.need)
        return reduce(np.logical_and, masks)

    def _pattern(self, pattern: Pattern) -> Mask:
        return self.cached(("pattern", pattern), lambda: postings_cache.mask(self._view, pattern))

    def cached(self, key: object, make: Callable[[], Mask]) -> Mask:
        """Cache the masks of this answer. They must not be written to."""
        if (found := self._masks.get(key)) is None:
            found = self._masks[key] = make()
        return found

    def count(self, mask: Mask) -> int:
        """The number of docs in a mask, cached."""
        if (known := self._counts.get(id(mask))) is None:
            known = self._counts[id(mask)] = (mask, int(np.count_nonzero(mask)))
        return known[1]

    def docs(self, mask: Mask) -> Array:
        """The docs of a mask, cached."""
        if (known := self._docs.get(id(mask))) is None:
            known = self._docs[id(mask)] = (mask, np.flatnonzero(mask))
        return known[1]


@dataclass(frozen=True, slots=True, eq=False)
class DocPlaces:
    """The places of the map by doc, the cells that they are in, and the docs that have one."""

    layout_id: int
    revision: int
    xs: Coordinates
    ys: Coordinates
    cells: Coordinates
    mask: Mask

    def in_tile(self, tile: Tile) -> Mask:
        """The docs with a place in a tile."""
        if not tile.zoom:
            return self.mask
        found: Mask = self.mask & (self.xs >> tile.bits == tile.column) & (self.ys >> tile.bits == tile.row)
        return found


def places_by_doc(view: View, layout_id: int, revision: int) -> DocPlaces:
    """The places at a revision, or at a newer one, cached with the view."""
    known = view.cache.get("places")
    if isinstance(known, DocPlaces) and known.layout_id == layout_id and known.revision >= revision:
        return known
    places = read_places(layout_id, revision)
    size = view.manifest.size
    xs, ys, mask = np.zeros(size, np.uint16), np.zeros(size, np.uint16), np.zeros(size, np.bool_)
    docs = docs_of(view, places.ids)
    found = docs >= 0
    docs = docs[found]
    xs[docs], ys[docs], mask[docs] = places.xs[found], places.ys[found], True
    cells = cells_of(xs.astype(np.int64), ys.astype(np.int64)).astype(np.uint16)
    made = DocPlaces(layout_id, places.revision, xs, ys, cells, mask)
    view.cache["places"] = made
    return made


@dataclass(frozen=True, slots=True, eq=False)
class DocRecalls:
    """How often each doc was recalled, and the second of the last time; zeros for never."""

    revision: int
    totals: Array
    seconds: Array


def recalls_by_doc(view: View, revision: int) -> DocRecalls:
    """The recalls at a revision, or at a newer one, cached with the view."""
    known = view.cache.get("recalls")
    if isinstance(known, DocRecalls) and known.revision >= revision:
        return known
    counts = read_recalls(revision)
    size = view.manifest.size
    totals, seconds = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
    docs = docs_of(view, counts.ids)
    found = docs >= 0
    docs = docs[found]
    totals[docs], seconds[docs] = counts.totals[found], counts.seconds[found]
    made = DocRecalls(counts.revision, totals, seconds)
    view.cache["recalls"] = made
    return made


class _MaskCandidates:
    """The memories of a mask; see `search.engines.knn.Candidates`."""

    def __init__(self, view: View, mask: Mask) -> None:
        self._view = view
        self._mask = mask

    def contains(self, ids: Ids) -> Mask:
        docs = docs_of(self._view, ids)
        found: Mask = (docs >= 0) & self._mask[docs]
        return found

    def count(self, most: int | None = None) -> int:
        return int(np.count_nonzero(self._mask))

    def ids(self) -> Ids:
        return values_at(self._view, "id", np.flatnonzero(self._mask))


def _dropped(plan: EngineQuery, key: str) -> str:
    """The facet, if leaving out its inclusions makes a difference; else ""."""
    return key if plan.drops_selection(key) else ""


# In bytes. An entry is a bit for each doc, or the docs of a rare pattern.
_MAX_BYTES = 48_000_000
_ENTRY_BYTES = 300


class PostingsCache:
    """Caches the docs that have a pattern. Docs never change their words, so only docs newer than an entry are looked
    up.
    """

    def __init__(self) -> None:
        # The number of the manifest, the number of docs, and the docs, with whether they are packed into bits.
        self.cache = RevisionCache[tuple[str, Pattern], tuple[int, int, Array, bool]](
            1_000_000, weight=_MAX_BYTES, weigh=lambda entry: entry[2].nbytes + _ENTRY_BYTES
        )

    def mask(self, view: View, pattern: Pattern) -> Mask:
        """The docs that have the pattern; deleted ones may be among them."""
        key = (view.generation.name, pattern)
        known = self.cache.get(key)
        # An entry of a newer view lacks docs that are still live in this one.
        if known and known[0] > view.manifest.number:
            known = None
        size = view.manifest.size
        mask = np.zeros(size, np.bool_)
        first = 0
        if known:
            _, first, stored, packed = known
            if packed:
                mask[:first] = np.unpackbits(stored, count=first)
            else:
                mask[stored] = True
        if first < size:
            found = words.docs_having(view.searcher, pattern, first, size - first)
            mask[found[found < size]] = True
            self._store(key, view.manifest.number, mask)
        return mask

    def _store(self, key: tuple[str, Pattern], number: int, mask: Mask) -> None:
        hits = int(np.count_nonzero(mask))
        packed = hits * 32 > len(mask)
        stored = np.packbits(mask) if packed else np.flatnonzero(mask).astype(np.uint32)
        newer = self.cache.get(key)
        if newer is None or newer[0] <= number:
            self.cache.put(key, (number, len(mask), stored, packed))


postings_cache = PostingsCache()
