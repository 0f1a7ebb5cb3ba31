"""Numbers of memories that are stored next to them, in this process: for an engine that counts in memory. They are read
once, and then only what is new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection

from search.engines.base import Ids
from web.cache import RevisionCache

Column = npt.NDArray[Any]


def _read_columns(
    statement: str,
    parameters: Mapping[str, int],
    kinds: Sequence[tuple[str, npt.DTypeLike]],
    known: Sequence[Column],
) -> tuple[Column, ...]:
    """The known columns with the rows that a statement finds, ordered by the first column, which has ids.

    The statement aggregates each column to the bytes of its values. `kinds` are how these are sent and how they are
    held. A row takes the place of that with the same id.
    """
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        packed = cursor.fetchone()
    new = [np.frombuffer(column or b"", sent).astype(held) for column, (sent, held) in zip(packed, kinds, strict=True)]
    if known:
        kept = ~np.isin(known[0], new[0])
        new = [np.concatenate([before[kept], after]) for before, after in zip(known, new, strict=True)]
    order = np.argsort(new[0], kind="stable")
    return tuple(column[order] for column in new)


Coordinates = npt.NDArray[np.uint16]

# mapplace_revision_idx. Three columns of all rows as bytes, in the same order.
_PLACES = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(int4send(x), ''::bytea),
       string_agg(int4send(y), ''::bytea)
FROM memories_mapplace WHERE layout_id = %(layout)s AND revision > %(after)s"""
_PLACE_KINDS = ((">i8", np.int64), (">i4", np.uint16), (">i4", np.uint16))
_LAYOUT = "SELECT id, revision FROM memories_maplayout ORDER BY id DESC LIMIT 1"


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Memories, ordered by id, and their places on a map at one revision. Deleted memories may be among them."""

    layout_id: int
    revision: int
    ids: Ids
    xs: Coordinates
    ys: Coordinates


_place_cache = RevisionCache[tuple[object, ...], Places](1)


def layout_now() -> tuple[int, int] | None:
    """The number and the revision of the map in use, as the current transaction sees them; None without a map."""
    with connection.cursor() as cursor:
        cursor.execute(_LAYOUT)
        found: tuple[int, int] | None = cursor.fetchone()
    return found


def read_places(layout_id: int, revision: int) -> Places:
    """The places at a revision, or at a newer one that this process has read already."""
    database = connection.settings_dict
    key = (database["HOST"], database["PORT"], database["NAME"], layout_id)
    known = _place_cache.get(key)
    if known is not None and known.revision >= revision:
        return known
    parameters = {"layout": layout_id, "after": known.revision if known else 0}
    columns = (known.ids, known.xs, known.ys) if known else ()
    found = _read_columns(_PLACES, parameters, _PLACE_KINDS, columns)
    return _place_cache.put(key, Places(layout_id, revision, *found))


# recall_revision_idx. Three columns of all rows as bytes, in the same order; times are whole seconds.
_RECALLS = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(int4send(total), ''::bytea),
       string_agg(int8send(extract(epoch FROM last_at)::bigint), ''::bytea)
FROM memories_recall WHERE revision > %(after)s"""
_RECALL_KINDS = ((">i8", np.int64), (">i4", np.uint32), (">i8", np.uint32))
_COUNT_RECALLS = "SELECT count(*) FROM memories_recall"
# recall_revision_idx
_RECALL_REVISION = "SELECT coalesce(max(revision), 0) FROM memories_recall"


@dataclass(frozen=True, slots=True, eq=False)
class RecallCounts:
    """Memories that were recalled, ordered by id: how often, and the second of the last time, since 1970.

    Deleted memories may be among them until another memory is recalled.
    """

    revision: int
    ids: Ids
    totals: npt.NDArray[np.uint32]
    seconds: npt.NDArray[np.uint32]


_recall_cache = RevisionCache[tuple[object, ...], RecallCounts](1)


def recalls_now() -> int:
    """The revision of the recalls, as the current transaction sees them; 0 without any."""
    with connection.cursor() as cursor:
        cursor.execute(_RECALL_REVISION)
        return int(cursor.fetchone()[0])


def read_recalls(revision: int) -> RecallCounts:
    """The recalls at a revision, or at a newer one that this process has read already."""
    database = connection.settings_dict
    key = (database["HOST"], database["PORT"], database["NAME"])
    known = _recall_cache.get(key)
    if known is not None and known.revision >= revision:
        return known
    columns = (known.ids, known.totals, known.seconds) if known else ()
    found = _read_columns(_RECALLS, {"after": known.revision if known else 0}, _RECALL_KINDS, columns)
    if known and len(found[0]) != _count_recalls():
        # Memories were deleted. A copy of an export may have the number of one of them.
        found = _read_columns(_RECALLS, {"after": 0}, _RECALL_KINDS, ())
    return _recall_cache.put(key, RecallCounts(revision, *found))


def _count_recalls() -> int:
    with connection.cursor() as cursor:
        cursor.execute(_COUNT_RECALLS)
        return int(cursor.fetchone()[0])
