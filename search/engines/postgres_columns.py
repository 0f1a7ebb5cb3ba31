"""The columns of all memories, read from Postgres in one pass: for the engine without an index.

A pass over 200,000 memories takes about a second, so the snapshot is cached by the revision of the corpus. Above a
million memories the latest snapshot is served while the next one is read.
"""

import itertools
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from django.db import connection
from django.utils import timezone

from search.engines.array_files import Array
from search.engines.column_snapshot import ColumnSnapshot
from search.engines.index.segments import Dictionary, Segment, multiple_column
from search.engines.large_corpus import is_large
from search.facets import STATES
from web.cache import RepeatedReads

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
