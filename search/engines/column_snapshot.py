"""The columns of all memories at one moment, for counts that no query narrows.

The columns are those of the derived index (`search.engines.index.segments`), mapped from it where it answers, and read
from Postgres in one pass otherwise. Counts of one snapshot agree with each other.

A pass over 200,000 memories takes about a second, so it is cached by the revision of the corpus. Above a million
memories the latest snapshot is served while the next one is read.
"""

import itertools
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from django.db import connection
from django.utils import timezone

from search.engines.base import Ids, Value, is_large
from search.engines.index.segments import Dictionary, Segment, multiple_column
from search.engines.segment_files import Array, Mask
from search.facets import DEFAULT_STATES, STATES
from web.cache import RepeatedReads

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


_MULTIPLE = {"category": "category_path_ids", "category_own": "category_ids", "concept": "concept_ids"}
# Clamped to what datetime can represent, as in the Postgres engine.
_CREATED = "extract(epoch FROM least(greatest(m.created_at, '0001-01-08Z'), '9999-12-24Z'))"
# Each column of all rows as one bytes or text value: reading row by row takes ten times as long.
_STATEMENT = (
    "SELECT string_agg(int8send(m.id), ''::bytea), string_agg(int8send(({created} * 1000000)::bigint), ''::bytea),"
    " string_agg(int4send(m.project_id::int), ''::bytea),"
    " string_agg(int4send(array_position(%s::text[], m.state::text)), ''::bytea), {multiple} FROM memories_memory m"
).format(
    created=_CREATED,
    multiple=", ".join(
        f"string_agg(int4send(cardinality(m.{column})), ''::bytea),"
        f" string_agg(array_to_string(m.{column}, ','), ',') FILTER (WHERE m.{column} <> '{{}}')"
        for column in _MULTIPLE.values()
    ),
)

_series_numbers = itertools.count(1)


class _Pass(NamedTuple):
    """A snapshot, with the revision and the time that it was read for."""

    snapshot: ColumnSnapshot
    revision: int
    at: datetime


_passes = RepeatedReads[tuple[object, ...], _Pass](limit=1, may_be_older=lambda found: is_large(found.snapshot.size))


def postgres_snapshot() -> ColumnSnapshot:
    """The snapshot of the database that the current transaction sees, from the cache if it has the current revision, or
    is large.

    A transaction that has written something itself may see what no other one sees yet, and reads its own snapshot.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT revision, pg_current_xact_id_if_assigned() IS NULL FROM memories_corpus WHERE id = 1")
        revision, is_shared = cursor.fetchone() or (None, False)
    if revision is None or not is_shared:
        return _read()
    database = connection.settings_dict
    key = (database["HOST"], database["PORT"], database["NAME"])
    found = _passes.get(key, revision, lambda: _Pass(_read(), revision, timezone.now()))
    return found.snapshot if found.revision == revision else replace(found.snapshot, as_of=found.at)


def _read() -> ColumnSnapshot:
    with connection.cursor() as cursor:
        cursor.execute(_STATEMENT, [list(STATES)])
        ids, created, projects, states, *multiple = cursor.fetchone()
    dictionary = Dictionary()
    for state in STATES:
        dictionary.code("state", state)
    arrays: dict[str, Array] = {
        "id": _numbers(ids, ">i8"),
        "created": _numbers(created, ">i8"),
        "state": _numbers(states, ">i4"),
        "project": _codes(_numbers(projects, ">i4"), "project", dictionary),
    }
    for name, lengths, values in zip(_MULTIPLE, multiple[::2], multiple[1::2], strict=True):
        arrays |= _column(name, _numbers(lengths, ">i4"), values, dictionary)
    segment = Segment(0, arrays)
    # Docs and codes are assigned again by each pass.
    series = f"pass {next(_series_numbers)}"
    return ColumnSnapshot(series, 0, (segment,), np.ones(segment.size, np.bool_), dictionary, dictionary.sizes())


def _column(name: str, lengths: Array, values: str | None, dictionary: Dictionary) -> dict[str, Array]:
    numbers = np.fromstring(values, np.int64, sep=",") if values else np.empty(0, np.int64)
    # A memory without a value has code 0, as in the index.
    codes = np.zeros(int(np.maximum(lengths, 1).sum()), np.int64)
    codes[np.repeat(lengths > 0, np.maximum(lengths, 1))] = _codes(numbers, name, dictionary)
    return multiple_column(name, codes, np.maximum(lengths, 1).astype(np.uint32))


def _codes(values: Array, name: str, dictionary: Dictionary) -> Array:
    """Map ids to codes by a table; ids come from sequences, so the table is small."""
    present = np.flatnonzero(np.bincount(values)) if len(values) else values
    table = np.zeros(int(present.max(initial=0)) + 1, np.int64)
    table[present] = [dictionary.code(name, value) for value in present.tolist()]
    found: Array = table.take(values)
    return found


def _numbers(packed: Any, kind: str) -> Array:
    return np.frombuffer(packed or b"", kind).astype(np.int64)
