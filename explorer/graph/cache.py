"""The whole visible graph of a vocabulary, for tables and paths, cached until the data changes.

Building it reads the links of all visible memories (docs/graph.md has timings). It holds arrays of numbers, no names;
pages of single nodes do not need it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection

from categories.texts import READABLE_ALIASES, Projects, as_array
from explorer.graph.adjacency import Ints, Network, Pairs, pairs_within
from explorer.graph.queries import GraphContext, NodeKind, named_in_memories, stated_edges
from web.cache import RevisionCache

# An entry per vocabulary and set of projects.
_CACHED_GRAPHS = 8
# Bounds how long a change made directly in the database, bypassing the services, stays invisible.
_CACHE_SECONDS = 60

_BY_NAME = "SELECT id, {type} FROM {table} ORDER BY lower(name), {type}, id"
_NAMED = f"""
SELECT id FROM {{table}} WHERE name ILIKE %(part)s
UNION ALL SELECT id FROM {{table}} own
WHERE aliases <> '{{{{}}}}' AND array_to_string({READABLE_ALIASES.format(row="own")}, E'\\n') ILIKE %(part)s"""


@dataclass(frozen=True, slots=True)
class VocabularyGraph:
    """The nodes of a vocabulary by id, with parallel arrays. `first` and `last` are seconds since 1970, or NaN."""

    nodes: Ints
    memories: Ints
    first: npt.NDArray[np.float64]
    last: npt.NDArray[np.float64]
    places: Ints
    """The rank of each node by name."""
    type_places: Ints
    """The type of each node, as an index into `types`."""
    types: tuple[str, ...]
    shared: Network
    """Links by shared memories; `stated` by relationships; `linked` by both."""
    stated: Network
    linked: Network


def load_graph(context: GraphContext) -> VocabularyGraph:
    """The graph of the look's revision and projects, from the cache or read."""
    if context.cache_key is None:
        return _read(context)
    return _cache.get_or_make(_key(context), lambda: _read(context), _revision(context))


def cached_graph(context: GraphContext) -> VocabularyGraph | None:
    """The graph, if it need not be read."""
    return None if context.cache_key is None else _cache.get(_key(context), _revision(context))


def _key(context: GraphContext) -> tuple[object, ...]:
    return (context.kind.key, context.resolved.plan.project_ids, context.engine.name)


def _revision(context: GraphContext) -> tuple[object, ...]:
    # The index follows the database with a delay, and answers for evidence.
    return (context.engine.revision, *(context.cache_key or ()))


_cache = RevisionCache[tuple[object, ...], VocabularyGraph](_CACHED_GRAPHS, seconds=_CACHE_SECONDS)


def _read(context: GraphContext) -> VocabularyGraph:
    groups, named, moments = named_in_memories(context)
    ties = stated_edges(context)
    stated = Pairs(
        np.array([tie.source for tie in ties], np.int64),
        np.array([tie.target for tie in ties], np.int64),
        np.array([tie.evidence for tie in ties], np.int64),
    )
    apart = stated.left != stated.right
    stated = Pairs(stated.left[apart], stated.right[apart], stated.weight[apart]).both_ways()
    places, kinds, types = _names(context.kind)
    shared = pairs_within(groups, named)
    every_node = np.union1d(named, stated.left)
    nodes = np.intersect1d(every_node, places[0], assume_unique=True)
    if len(nodes) < len(every_node):
        # A memory may still hold the id of a node that was deleted directly in the database.
        shared, stated = _within(nodes, shared), _within(nodes, stated)
    at = np.searchsorted(places[0], nodes)
    first, last = _first_and_last(nodes, named, moments)
    every = Pairs(*(np.concatenate(both) for both in zip(_columns(shared), _columns(stated), strict=True)))
    by_memories = Network.from_pairs(nodes, shared)
    return VocabularyGraph(
        nodes=nodes,
        memories=np.bincount(np.searchsorted(nodes, named[np.isin(named, nodes)]), minlength=len(nodes)),
        first=first,
        last=last,
        places=places[1][at],
        type_places=kinds[at],
        types=types,
        shared=by_memories,
        stated=Network.from_pairs(nodes, stated),
        linked=Network.from_pairs(nodes, every) if len(stated.left) else by_memories,
    )


def _columns(pairs: Pairs) -> tuple[Ints, Ints, Ints]:
    return pairs.left, pairs.right, pairs.weight


def _within(nodes: Ints, pairs: Pairs) -> Pairs:
    inside = np.isin(pairs.left, nodes) & np.isin(pairs.right, nodes)
    return Pairs(*(column[inside] for column in _columns(pairs)))


def _names(kind: NodeKind) -> tuple[tuple[Ints, Ints], Ints, tuple[str, ...]]:
    """((ids in order, their ranks by name), indexes of their types, all types)."""
    with connection.cursor() as cursor:
        cursor.execute(_BY_NAME.format(type=kind.type_column, table=kind.table))
        rows = cursor.fetchall()
    ids = np.array([pk for pk, _ in rows], np.int64)
    types = tuple(sorted({name for _, name in rows}))
    at = {name: place for place, name in enumerate(types)}
    type_places = np.array([at[name] for _, name in rows], np.int64)
    order = np.argsort(ids)
    return (ids[order], order), type_places[order], types


def _first_and_last(
    nodes: Ints, named: Ints, moments: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """When the first and the last memory of each node were created; NaN without any."""
    first, last = np.full(len(nodes), np.nan), np.full(len(nodes), np.nan)
    order = np.lexsort((moments, named))
    values, begins = np.unique(named[order], return_index=True)
    ends = np.r_[begins[1:], len(named)]
    known_values = np.isin(values, nodes)
    at = np.searchsorted(nodes, values[known_values])
    if len(named):
        first[at] = moments[order][begins[known_values]]
        last[at] = moments[order][ends[known_values] - 1]
    return first, last


def ids_named_like(kind: NodeKind, part: str, projects: Projects) -> Ints:
    """Ids of nodes with the text in their name, or in an alias that holds in the projects, whether visible or not."""
    escaped = part.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
    with connection.cursor() as cursor:
        cursor.execute(_NAMED.format(table=kind.table), {"part": f"%{escaped}%", "projects": as_array(projects)})
        return np.array([pk for (pk,) in cursor.fetchall()], np.int64)
