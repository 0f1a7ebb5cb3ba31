"""The hashes of the records of an import, for millions of them."""

from bisect import bisect_left

import numpy as np

# Recent ones are in a dictionary, which takes 106 bytes for each instead of 16.
_RECENT = 65_536


class RecordHashes:
    """The hash of each record, by the hash of its identity. Both are 64 bits wide."""

    def __init__(self) -> None:
        self._recent: dict[int, int] = {}
        self._keys = np.empty(0, np.int64).data
        self._hashes = np.empty(0, np.int64).data

    def get(self, key: int) -> int | None:
        if (recent := self._recent.get(key)) is not None:
            return recent
        # Not by numpy, which lets other threads run meanwhile: the answer would wait for its turn.
        at = bisect_left(self._keys, key)
        return self._hashes[at] if at < len(self._keys) and self._keys[at] == key else None

    def add(self, key: int, record_hash: int) -> None:
        """Add a record whose identity is new."""
        self._recent[key] = record_hash
        if len(self._recent) == _RECENT:
            keys = np.concatenate([self._keys, np.fromiter(self._recent, np.int64, _RECENT)])
            hashes = np.concatenate([self._hashes, np.fromiter(self._recent.values(), np.int64, _RECENT)])
            self._recent.clear()
            # Mostly in order already, which a stable sort makes use of.
            order = np.argsort(keys, kind="stable")
            self._keys, self._hashes = keys[order].data, hashes[order].data
