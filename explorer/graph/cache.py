"""All that a viewer may know of a vocabulary at once, for tables and for chains, kept while nothing has changed.

It takes a pass over the links of all visible memories: docs/graph.md says how long. What is kept is arrays of numbers,
and no names; the pages of single nodes do without it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection

from explorer.graph.adjacency import Ints, Network, Pairs, pairs_within
from explorer.graph.queries import GraphContext, Kind, named_in_memories, ties_of
from web.cache import RevisionCache

# Of each vocabulary and each set of projects.
_KEPT = 8
# A change made by hand in the database, past the services, is seen after so many seconds.
_KEPT_SECONDS = 60

_BY_NAME = "SELECT id, {type} FROM {table} ORDER BY lower(name), id"
_NAMED = """
SELECT id FROM {table} WHERE name ILIKE %(part)s
UNION ALL SELECT id FROM {table} WHERE aliases <> '{{}}' AND array_to_string(aliases, E'\\n') ILIKE %(part)s"""


@dataclass(frozen=True, slots=True)
class VocabularyGraph:
    """The nodes of a vocabulary by id, and of each what a table says. `first` and `last` are seconds since 1970."""

    nodes: Ints
    memories: Ints
    first: npt.NDArray[np.float64]
    last: npt.NDArray[np.float64]
    # Their places by name, and their types as places in `types`.
    places: Ints
    type_places: Ints
    types: tuple[str, ...]
    # By memories in common, by what is stated, and by both.
    together: Network
    stated: Network
    linked: Network


def whole_of(look: GraphContext) -> VocabularyGraph:
    """The graph of the look's revision and projects, from the cache or read."""
    if look.under is None:
        return _read(look)
    return _cache.get_or_make(_key(look), lambda: _read(look), _revision(look))


def cached_graph(look: GraphContext) -> VocabularyGraph | None:
    """The graph, if it need not be read."""
    return None if look.under is None else _cache.get(_key(look), _revision(look))


def _key(look: GraphContext) -> tuple[object, ...]:
    return (look.kind.key, look.resolved.plan.project_ids, look.engine.name)


def _revision(look: GraphContext) -> tuple[object, ...]:
    # The index follows the database with a delay, and answers for evidence.
    return (look.engine.revision, *(look.under or ()))


_cache = RevisionCache[tuple[object, ...], VocabularyGraph](_KEPT, seconds=_KEPT_SECONDS)


def _read(look: GraphContext) -> VocabularyGraph:
    groups, named, moments = named_in_memories(look)
    ties = ties_of(look)
    stated = Pairs(
        np.array([tie.source for tie in ties], np.int64),
        np.array([tie.target for tie in ties], np.int64),
        np.array([tie.evidence for tie in ties], np.int64),
    )
    apart = stated.left != stated.right
    stated = Pairs(stated.left[apart], stated.right[apart], stated.weight[apart]).both_ways()
    places, kinds, types = _names(look.kind)
    together = pairs_within(groups, named)
    every_node = np.union1d(named, stated.left)
    nodes = np.intersect1d(every_node, places[0], assume_unique=True)
    if len(nodes) < len(every_node):
        # What has no name is gone: a memory may hold its number still, where that was done by hand.
        together, stated = _among(nodes, together), _among(nodes, stated)
    at = np.searchsorted(places[0], nodes)
    first, last = _seen(nodes, named, moments)
    every = Pairs(*(np.concatenate(both) for both in zip(_columns(together), _columns(stated), strict=True)))
    by_memories = Network.of(nodes, together)
    return VocabularyGraph(
        nodes=nodes,
        memories=np.bincount(np.searchsorted(nodes, named[np.isin(named, nodes)]), minlength=len(nodes)),
        first=first,
        last=last,
        places=places[1][at],
        type_places=kinds[at],
        types=types,
        together=by_memories,
        stated=Network.of(nodes, stated),
        linked=Network.of(nodes, every) if len(stated.left) else by_memories,
    )


def _columns(pairs: Pairs) -> tuple[Ints, Ints, Ints]:
    return pairs.left, pairs.right, pairs.weight


def _among(nodes: Ints, pairs: Pairs) -> Pairs:
    inside = np.isin(pairs.left, nodes) & np.isin(pairs.right, nodes)
    return Pairs(*(column[inside] for column in _columns(pairs)))


def _names(kind: Kind) -> tuple[tuple[Ints, Ints], Ints, tuple[str, ...]]:
    """All ids in order with their places by name, the places of their types, and the types."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_NAME.format(type=kind.type_column, table=kind.table))
        rows = cursor.fetchall()
    ids = np.array([pk for pk, _ in rows], np.int64)
    types = tuple(sorted({name for _, name in rows}))
    at = {name: place for place, name in enumerate(types)}
    type_places = np.array([at[name] for _, name in rows], np.int64)
    order = np.argsort(ids)
    return (ids[order], order), type_places[order], types


def _seen(
    nodes: Ints, named: Ints, moments: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """When the first and the last memory that names each node is from; not a number where there is none."""
    first, last = np.full(len(nodes), np.nan), np.full(len(nodes), np.nan)
    order = np.lexsort((moments, named))
    values, begins = np.unique(named[order], return_index=True)
    ends = np.r_[begins[1:], len(named)]
    kept = np.isin(values, nodes)
    at = np.searchsorted(nodes, values[kept])
    if len(named):
        first[at] = moments[order][begins[kept]]
        last[at] = moments[order][ends[kept] - 1]
    return first, last


def ids_named_like(kind: Kind, part: str) -> Ints:
    """Nodes that have a text in their name or in an alias, whoever may know of them."""
    escaped = part.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    with connection.cursor() as cursor:
        cursor.execute(_NAMED.format(table=kind.table), {"part": f"%{escaped}%"})
        return np.array([pk for (pk,) in cursor.fetchall()], np.int64)
