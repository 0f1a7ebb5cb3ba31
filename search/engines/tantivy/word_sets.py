"""Which slots have a word, kept between questions: asking tantivy for them is what a common word costs most."""

import threading
from collections import OrderedDict

import numpy as np

from search.analysis import Pattern
from search.engines.arrays import Array, Mask
from search.engines.tantivy import words
from search.engines.tantivy.store import View

# In bytes: a bit for each slot, or the slots of a rare one.
_KEPT_BYTES = 48_000_000
_ENTRY_BYTES = 300


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

    def forget(self) -> None:
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


word_sets = WordSets()
