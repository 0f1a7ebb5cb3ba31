"""How often memories were recalled, and when last, in this process: for an engine that counts in memory. 16 bytes for
each memory that ever was.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection

from search.engines.base import Ids
from search.engines.stored_columns import read_columns
from web.cache import RevisionCache

# recall_revision_idx. Three columns of all rows as bytes, in the same order; times are whole seconds.
_RECALLS = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(int4send(total), ''::bytea),
       string_agg(int8send(extract(epoch FROM last_at)::bigint), ''::bytea)
FROM memories_recall WHERE revision > %(after)s"""
_KINDS = ((">i8", np.int64), (">i4", np.uint32), (">i8", np.uint32))
_COUNT = "SELECT count(*) FROM memories_recall"
# recall_revision_idx
_REVISION = "SELECT coalesce(max(revision), 0) FROM memories_recall"


@dataclass(frozen=True, slots=True, eq=False)
class RecallCounts:
    """Memories that were recalled, ordered by id: how often, and the second of the last time, since 1970.

    Deleted memories may be among them until another memory is recalled.
    """

    revision: int
    ids: Ids
    totals: npt.NDArray[np.uint32]
    seconds: npt.NDArray[np.uint32]


_cache = RevisionCache[tuple[object, ...], RecallCounts](1)


def recalls_now() -> int:
    """The revision of the recalls, as the current transaction sees them; 0 without any."""
    with connection.cursor() as cursor:
        cursor.execute(_REVISION)
        return int(cursor.fetchone()[0])


def read_recalls(revision: int) -> RecallCounts:
    """The recalls at a revision, or at a newer one that this process has read already."""
    database = connection.settings_dict
    key = (database["HOST"], database["PORT"], database["NAME"])
    known = _cache.get(key)
    if known is not None and known.revision >= revision:
        return known
    columns = (known.ids, known.totals, known.seconds) if known else ()
    found = read_columns(_RECALLS, {"after": known.revision if known else 0}, _KINDS, columns)
    if known and len(found[0]) != _count():
        # Memories were deleted. A copy of an export may have the number of one of them.
        found = read_columns(_RECALLS, {"after": 0}, _KINDS, ())
    return _cache.put(key, RecallCounts(revision, *found))


def _count() -> int:
    with connection.cursor() as cursor:
        cursor.execute(_COUNT)
        return int(cursor.fetchone()[0])
