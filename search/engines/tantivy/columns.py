"""The columns of a view, over all its parts."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from search.engines.arrays import Array
from search.engines.base import Ids, Plan, Value
from search.engines.tantivy.parts import Part
from search.engines.tantivy.store import View
from search.facets import FACET, Kind


def values_at(view: View, name: str, slots: Array) -> Array:
    """What a column has in these slots. Each part is read by itself: put together they would be there twice."""
    if len(view.parts) == 1:
        only: Array = view.parts[0].arrays[name].take(slots)
        return only
    if not len(slots):
        return np.empty(0, np.int64)
    if bool(np.all(slots[1:] >= slots[:-1])):
        return np.concatenate([part.arrays[name].take(places) for part, places in stretches(view, slots)])
    order = np.argsort(slots)
    found = np.empty_like(sorted_values := values_at(view, name, slots[order]))
    found[order] = sorted_values
    return found


def ids_at(view: View, slots: Array) -> list[int]:
    """The memories that stand in these slots."""
    found: list[int] = values_at(view, "id", slots).tolist()
    return found


def slots_of(view: View, ids: Ids) -> Array:
    """The slots that memories stand in; -1 for those that have none."""
    found = np.full(len(ids), -1, np.int64)
    for n, part in enumerate(view.parts):
        column = part.arrays["id"]
        if not len(column):
            continue
        # Parts are written in the order of ids; should one not be, its order is worked out once.
        key = f"order of ids in part {n}"
        if key not in view.kept:
            view.kept[key] = None if bool(np.all(column[1:] > column[:-1])) else np.argsort(column, kind="stable")
        order: Array | None = view.kept[key]  # type: ignore[assignment]
        # Of a memory that was changed the older slots are dead, and parts that became one hold them too.
        at = np.maximum(np.searchsorted(column, ids, side="right", sorter=order) - 1, 0)
        at = at if order is None else order[at]
        slots = part.first + at
        here = (column[at] == ids) & view.live[slots]
        found[here] = slots[here]
    return found


def stretches(view: View, slots: Array) -> Iterator[tuple[Part, Array]]:
    """The parts that slots, in order, lie in, each with its places."""
    cuts = np.searchsorted(slots, [part.first for part in view.parts] + [view.manifest.slots])
    for part, low, high in zip(view.parts, cuts, cuts[1:], strict=False):
        if high > low:
            yield part, slots[low:high] - part.first


def codes_of(view: View, column: str, values: Iterable[Value]) -> list[int]:
    """The codes of values, of those that this view has."""
    known, length = view.dictionary.codes[column], view.sizes[column]
    return [code for value in values if value != "" and 0 < (code := known.get(value, 0)) < length]


@lru_cache(maxsize=64)
def _column_name(key: str, subcategories: bool) -> str:
    return "category_own" if FACET[key].kind == Kind.TREE and not subcategories else key


def column_of(key: str, plan: Plan) -> str:
    """Without subcategories a tick means the node alone, and so must its number."""
    return _column_name(key, plan.subcategories)
