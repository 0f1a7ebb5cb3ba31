"""The match set: filters, words, meaning and dates as masks over the docs, and what all of them leave.

A mask has a byte for each doc.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain

import numpy as np

from search.engines.array_files import Array, Mask
from search.engines.base import NO_NEIGHBOURS, EngineQuery, Filter, Ids, LanguageText, Neighbours, Value
from search.engines.index import days, words
from search.engines.index.segments import SCALARS
from search.engines.index.store import View, codes_of, column_of, docs_of, values_at
from search.engines.knn import nearest_candidates
from text.analysis import Pattern
from text.query_syntax import Group, TextQuery


class MatchMasks:
    """The match sets of one answer. What they are made of is kept for it, and made once."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._masks: dict[object, Mask] = {}
        self._near: dict[tuple[EngineQuery, str], Neighbours] = {}
        # By the id of a mask, which stays its own because the mask is kept too.
        self._docs: dict[int, tuple[Mask, Array]] = {}
        self._counts: dict[int, tuple[Mask, int]] = {}

    def total(self, plan: EngineQuery) -> int:
        """Of many plans each is asked for once: what they are made of is kept, they themselves are not."""
        key = ("match", plan, "")
        if (known := self._masks.get(key)) is not None:
            return int(np.count_nonzero(known))
        return int(np.count_nonzero(self._matched(plan, "")))

    def of(self, plan: EngineQuery, *, without_includes: str = "") -> Mask:
        """The docs that pass the whole plan, but for what one facet includes."""
        without_includes = _dropped(plan, without_includes)
        return self.known(("match", plan, without_includes), lambda: self._matched(plan, without_includes))

    def knn(self, plan: EngineQuery, *, without_includes: str = "") -> Neighbours:
        """What such a set has by meaning."""
        if plan.meaning is None:
            return NO_NEIGHBOURS
        key = (plan, _dropped(plan, without_includes))
        if (known := self._near.get(key)) is None:
            passing = _MaskCandidates(self._view, self._passing(*key, always=True))
            known = self._near[key] = nearest_candidates(plan.meaning, passing, replicated=True)
        return known

    def _matched(self, plan: EngineQuery, without_includes: str) -> Mask:
        passing = self._passing(plan, without_includes)
        if plan.meaning is None:
            return passing & self._by_words(plan) if plan.has_text else passing
        near = self.knn(plan, without_includes=without_includes)
        mask = np.zeros(self._view.manifest.docs, np.bool_)
        mask[docs_of(self._view, near.ids)] = True
        if near.truncated and without_includes:
            # With fewer filters others are the nearest; those of the whole plan match here too.
            mask[docs_of(self._view, self.knn(plan).ids)] = True
        return mask if plan.meaning.semantic_only else mask | (passing & self._by_words(plan))

    def _by_words(self, plan: EngineQuery) -> Mask:
        return self.known(("texts", plan.texts), lambda: self._texts(plan.texts))

    def _passing(self, plan: EngineQuery, without_includes: str, *, always: bool = False) -> Mask:
        """What passes the filters; with `always`, what has all that is asked of a match by meaning too."""
        masks = [self._view.live]
        if plan.project_ids is not None:
            masks.append(self._having("project", plan.project_ids))
        if always and any(not text.words.always.is_empty for text in plan.texts):
            masks.append(self.known(("always", plan.texts), lambda: self._texts(plan.texts, always=True)))
        for chosen in plan.filters:
            if values := tuple(chain(*chosen.exclude)):
                masks.append(~self._having(column_of(chosen.key, plan), values))
            if chosen.any_value:
                masks.append(~self.none(chosen.key))
            if chosen.includes and chosen.key != without_includes:
                masks.append(self._included(chosen, plan))
        if plan.start is not None or plan.end is not None:
            masks.append(self.known(("dates", plan.start, plan.end), lambda: self._dated(plan)))
        return reduce(np.logical_and, masks) if len(masks) > 1 else masks[0]

    def _included(self, chosen: Filter, plan: EngineQuery) -> Mask:
        column = column_of(chosen.key, plan)
        if chosen.require_all:
            masks = [self._having(column, group) for group in chosen.include]
            # In AND mode a value and "no value" together can never both hold.
            if chosen.no_value:
                masks.append(self.none(chosen.key))
            return reduce(np.logical_and, masks)
        mask = self._having(column, tuple(chain(*chosen.include)))
        return mask | self.none(chosen.key) if chosen.no_value else mask

    def _having(self, column: str, values: Sequence[Value]) -> Mask:
        """The docs with any of the values."""
        return self.known(("having", column, tuple(values)), lambda: self._found(column, values))

    def _found(self, column: str, values: Sequence[Value]) -> Mask:
        return self._coded(column, codes_of(self._view, column, values))

    def _coded(self, column: str, codes: Sequence[int]) -> Mask:
        """The docs with any of the codes."""
        mask = np.zeros(self._view.manifest.docs, np.bool_)
        for segment in self._view.segments:
            stretch = mask[segment.span]
            for code in codes:
                if column in SCALARS:
                    stretch |= segment.arrays[column] == code
                else:
                    stretch[segment.rows_of(column, code)] = True
        return mask

    def none(self, key: str) -> Mask:
        """The docs without a value in a facet."""
        return self.known(("none", key), lambda: self._coded(key, [0]))

    def _dated(self, plan: EngineQuery) -> Mask:
        mask = np.ones(self._view.manifest.docs, np.bool_)
        for segment in self._view.segments:
            created, stretch = segment.arrays["created"], mask[segment.span]
            if plan.start is not None:
                stretch &= created >= days.microseconds_of(plan.start)
            if plan.end is not None:
                stretch &= created < days.microseconds_of(plan.end)
        return mask

    def _texts(self, texts: Sequence[LanguageText], *, always: bool = False) -> Mask:
        masks = []
        for text in texts:
            if always and text.words.always.is_empty:
                mask = np.ones(self._view.manifest.docs, np.bool_)
            else:
                mask = self._words(text.words.always if always else text.words)
            if text.project_ids is not None:
                mask = mask & self._having("project", text.project_ids)
            masks.append(mask)
        return reduce(np.logical_or, masks)

    def _words(self, query: TextQuery) -> Mask:
        if query.is_empty:
            return np.zeros(self._view.manifest.docs, np.bool_)
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
            held: Array = np.zeros(self._view.manifest.docs, np.uint8 if len(found) < 256 else np.uint16)
            for mask in found:
                np.add(held, mask, out=held)
            masks.append(held >= group.need)
        return reduce(np.logical_and, masks)

    def _pattern(self, pattern: Pattern) -> Mask:
        return self.known(("pattern", pattern), lambda: postings_cache.mask(self._view, pattern))

    def known(self, key: object, make: Callable[[], Mask]) -> Mask:
        """Masks of this answer, each made once. Nobody writes into one."""
        if (found := self._masks.get(key)) is None:
            found = self._masks[key] = make()
        return found

    def count(self, mask: Mask) -> int:
        """How many docs a mask has, counted once."""
        if (known := self._counts.get(id(mask))) is None:
            known = self._counts[id(mask)] = (mask, int(np.count_nonzero(mask)))
        return known[1]

    def docs(self, mask: Mask) -> Array:
        """The docs of a mask, found once."""
        if (known := self._docs.get(id(mask))) is None:
            known = self._docs[id(mask)] = (mask, np.flatnonzero(mask))
        return known[1]


class _MaskCandidates:
    """The memories of a mask; see `search.engines.nearest.Candidates`."""

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
    """The facet whose inclusions are left out, if leaving them out changes anything."""
    chosen = plan.filter(key)
    return "" if chosen is None or not chosen.includes or chosen.narrows_own_counts else key


# In bytes: a bit for each doc, or the docs of a rare one.
_KEPT_BYTES = 48_000_000
_ENTRY_BYTES = 300


class PostingsCache:
    """The docs that have a pattern, kept as long as they are asked for. Slots never change what they hold, so what is
    known of the first ones stays true, and only newer ones are looked up.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, Pattern], tuple[int, int, Array, bool]] = OrderedDict()
        self._bytes = 0

    def mask(self, view: View, pattern: Pattern) -> Mask:
        """Which docs have the pattern; deleted ones may be among them."""
        key = (view.generation.name, pattern)
        with self._lock:
            known = self._kept.get(key)
            # A newer view lacks docs that this one still has.
            if known and known[0] > view.manifest.number:
                known = None
            elif known:
                self._kept.move_to_end(key)
        size = view.manifest.docs
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
            self._keep(key, view.manifest.number, mask)
        return mask

    def clear(self) -> None:
        """Drop what is kept. For whoever makes a generation under a name that was there before."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

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


postings_cache = PostingsCache()
