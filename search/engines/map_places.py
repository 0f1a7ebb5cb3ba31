"""The places of the map in this process, for the engine that counts in memory: 12 bytes a memory, read once and then
only what is new.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection

from search.engines.base import Ids
from search.engines.stored_columns import read_columns
from web.cache import RevisionCache

Coordinates = npt.NDArray[np.uint16]

# mapplace_revision_idx. Three columns of all rows as bytes, in the same order.
_PLACES = """
SELECT string_agg(int8send(memory_id), ''::bytea), string_agg(int4send(x), ''::bytea),
       string_agg(int4send(y), ''::bytea)
FROM memories_mapplace WHERE layout_id = %(layout)s AND revision > %(after)s"""
_KINDS = ((">i8", np.int64), (">i4", np.uint16), (">i4", np.uint16))
_LAYOUT = "SELECT id, revision FROM memories_maplayout ORDER BY id DESC LIMIT 1"


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Memories, ordered by id, and their places on a map at one revision. Deleted memories may be among them."""

    layout_id: int
    revision: int
    ids: Ids
    xs: Coordinates
    ys: Coordinates


_cache = RevisionCache[tuple[object, ...], Places](1)


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
    known = _cache.get(key)
    if known is not None and known.revision >= revision:
        return known
    parameters = {"layout": layout_id, "after": known.revision if known else 0}
    columns = (known.ids, known.xs, known.ys) if known else ()
    found = read_columns(_PLACES, parameters, _KINDS, columns)
    return _cache.put(key, Places(layout_id, revision, *found))
