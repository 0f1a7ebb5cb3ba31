"""The columns of all memories at one moment, for counts that no query narrows.

The columns are those of the derived index (`search.engines.index.segments`), mapped from it where it answers, and read
from Postgres in one pass otherwise. Counts of one snapshot agree with each other.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from search.engines.array_files import Array, Mask
from search.engines.base import Ids, Value
from search.engines.index.segments import Dictionary, Segment
from search.facets import DEFAULT_STATES

# The columns that every snapshot has.
COLUMNS = ("project", "state", "category", "category_own", "concept")


@dataclass(frozen=True, slots=True)
class ColumnSnapshot:
    """Columns by doc, the position of a memory in all of them.

    Docs and codes mean the same in all snapshots of one `series`; those with a higher `number` have more of them.
    """

    series: str
    number: int
    segments: tuple[Segment, ...]
    live: Mask
    dictionary: Dictionary
    """Shared with later snapshots, which only add to it."""
    sizes: Mapping[str, int]
    """The number of codes in each column of this snapshot."""
    as_of: datetime | None = None
    """The time of this snapshot, if memories have changed since."""

    @property
    def size(self) -> int:
        return len(self.live)

    def code(self, column: str, value: Value) -> int:
        """The code of a value; 0, the code of "no value", if no memory of this snapshot has it."""
        found = self.dictionary.codes[column].get(value, 0)
        return found if found < self.sizes[column] else 0

    def ids_of(self, column: str) -> Array:
        """The ids that the codes of a column stand for, by code; 0 is not an id."""
        return np.array([0, *self.dictionary.values[column][1 : self.sizes[column]]], np.int64)

    def within(self, project_ids: Collection[int] | None) -> Mask:
        """The docs in these projects, in any state; None means every project."""
        if project_ids is None:
            return self.live
        return self.live & self._having("project", project_ids)

    def shown(self, within: Mask) -> Mask:
        """The docs of a mask that are in the states shown by default."""
        return within & self._having("state", DEFAULT_STATES)

    def _having(self, column: str, values: Collection[Value]) -> Mask:
        wanted = np.zeros(self.sizes[column], np.bool_)
        wanted[[code for value in values if (code := self.code(column, value))]] = True
        return np.concatenate(
            [wanted.take(segment.arrays[column]) for segment in self.segments] or [np.empty(0, np.bool_)]
        )

    def having(self, column: str, code: int, among: Mask) -> Array:
        """The docs of the mask `among` that have a value of a multiple column, in ascending order."""
        found = [
            segment.first + rows.astype(np.int64)
            for segment in self.segments
            if len(rows := segment.rows_of(column, code))
        ]
        docs: Array = np.concatenate(found) if found else np.empty(0, np.int64)
        return docs[among.take(docs)]

    def values(self, column: str, docs: Array) -> tuple[Array, Array]:
        """The codes that docs, given in ascending order, have in a multiple column, concatenated; and the number of
        each doc.
        """
        codes, lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for segment, rows in self._stretches(docs):
            offsets = segment.arrays[f"{column}.offsets"]
            begins = offsets.take(rows).astype(np.int64)
            each = offsets.take(rows + 1) - begins
            ends = np.cumsum(each)
            at = np.arange(ends[-1]) + np.repeat(begins - ends + each, each)
            codes.append(segment.arrays[f"{column}.values"].take(at).astype(np.int64))
            lengths.append(each)
        return np.concatenate(codes), np.concatenate(lengths)

    def take(self, name: str, docs: Array) -> Array:
        """The values of a scalar column at docs given in ascending order."""
        found = [segment.arrays[name].take(rows).astype(np.int64) for segment, rows in self._stretches(docs)]
        return np.concatenate([np.empty(0, np.int64), *found])

    def newest(self, docs: Array, limit: int) -> Ids:
        """The ids of the newest memories among some docs; ties are broken by the higher id."""
        created = self.take("created", docs)
        if len(docs) > limit:
            # Keep all that tie with the last, for their ids to decide.
            among = created >= np.partition(created, len(created) - limit)[len(created) - limit]
            docs, created = docs[among], created[among]
        ids = self.take("id", docs)
        return ids[np.lexsort((-ids, -created))][:limit]

    def _stretches(self, docs: Array) -> list[tuple[Segment, Array]]:
        """The segments that contain the docs, given in ascending order, each with its rows."""
        cuts = np.searchsorted(docs, [segment.first for segment in self.segments] + [self.size])
        pairs = zip(self.segments, cuts, cuts[1:], strict=False)
        return [(segment, docs[low:high] - segment.first) for segment, low, high in pairs if high > low]
