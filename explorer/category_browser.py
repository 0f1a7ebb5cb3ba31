"""What the category browser shows: a part of the tree, one node of it, and what may be amiss with the tree.

With a query, the memories counted are those that match it; what it asks of categories is left out of account, because
the tree is the answer to that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from access.viewer import Viewer
from categories.vocabulary_cache import CachedCategory
from explorer.visible_tree import Child, Described, VisibleTree, look
from search.category_counts import Totals
from search.engines import with_engine
from search.engines.base import Engine, FacetRequest
from search.plan import resolve_query
from search.query import Interval, SearchQuery
from search.result import SearchWarning
from search.run import engine_notices
from search.snapshots import snapshot
from web.params import Params, Value

# So many children of a node are drawn in the tree, and in a table; a page of their own lists all of them.
MOST_BRANCHES = 60
MOST_ROWS = 100
# From so many memories filed right there, and such a share of all, a node holds too much to find anything by.
_LARGE = 100
_LARGE_SHARE = 0.02


class BrowseRequest(Params):
    """Which part of the tree the browser shows, in addition to the node that its address names."""

    part: Value = Field("", alias="filter", description="Part of a name.")
    show: Literal["single", "large", "empty", ""] = Field("", description="Only the nodes of this sort.")
    below: Value = Field("", description="The category whose children are shown, and nothing else.")


@dataclass(frozen=True, slots=True)
class Branch:
    """A node as the tree draws it, with those of its children that are drawn; `left_out` counts the others."""

    child: Child
    is_here: bool = False
    is_open: bool = False
    children: tuple["Branch", ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Indicators:
    """What a curator looks at first."""

    categories: int
    memories: int
    uncategorised: int
    single: int
    large: int
    empty: int


@dataclass(frozen=True, slots=True)
class Browsed:
    """A part of the tree, and the node that it is opened at. Without one, `children` are the roots.

    `listed` are the nodes of one sort, or those whose names were looked for.
    """

    query: SearchQuery
    is_narrowed: bool
    """Whether the query leaves anything out: then memories alone are counted."""
    request: BrowseRequest
    node: Described | None
    lineage: tuple[CachedCategory, ...]
    numbers: Totals
    own: int
    children: tuple[Child, ...]
    children_total: int
    branches: tuple[Branch, ...]
    branches_left_out: int
    listed: tuple[Child, ...]
    listed_total: int
    indicators: Indicators | None
    related: tuple[CachedCategory, ...]
    warnings: tuple[SearchWarning, ...] = ()


def browse(name: str, request: BrowseRequest, query: SearchQuery, viewer: Viewer) -> Browsed:
    """The browser at a category, or above all of them where there is no name. Raises CategoryNotFoundError."""
    # How its results were to be ordered and paged says nothing here.
    query = query.without("category").with_(sort=None, page_size=25, subcategories=True, bucket=Interval.AUTO)
    return with_engine(lambda engine: _browse(engine, name, request, query, viewer), viewer)


def _browse(engine: Engine, name: str, request: BrowseRequest, query: SearchQuery, viewer: Viewer) -> Browsed:
    with snapshot():
        looking = look(engine, viewer)
        counted = _counted(looking, query)
        node = looking.meant(name)[0] if name else None
        lineage = tuple(looking.tree.lineage(node.id)) if node else ()
        children = _largest(counted.children(node.id if node else None))
        if request.below:
            branches, left_out = _level(counted, looking.meant(request.below)[0].id, ())
        else:
            branches, left_out = _level(counted, None, tuple(one.id for one in lineage))
        listed = _largest(_listed(counted, request))
        here = counted.child(node) if node else None
        return Browsed(
            query=query,
            is_narrowed=counted.matching is not None,
            request=request,
            node=looking.described(node) if node else None,
            lineage=lineage,
            numbers=here.numbers if here else Totals(),
            own=here.own if here else 0,
            children=tuple(children[:MOST_ROWS]),
            children_total=len(children),
            branches=branches,
            branches_left_out=left_out,
            listed=tuple(listed[:MOST_ROWS]),
            listed_total=len(listed),
            # They are of all memories: beside numbers of a query they would be taken for its own.
            indicators=None if node or request.below or counted.matching is not None else _indicators(looking),
            related=tuple(looking.tree.get_many(node.related_ids, looking.sees)) if node else (),
            warnings=tuple(engine_notices(engine, viewer)),
        )


@dataclass(frozen=True, slots=True)
class _Counted:
    """The numbers that are shown: those of all memories, or of the memories that match a query."""

    looking: VisibleTree
    matching: dict[int, tuple[int, int]] | None

    def child(self, node: CachedCategory) -> Child:
        child = self.looking.child(node)
        if self.matching is None:
            return child
        memories, own = self.matching.get(node.id, (0, 0))
        return replace(child, numbers=Totals(memories), own=own)

    def children(self, category_id: int | None, kept: int | None = None) -> list[Child]:
        """By name. Under a query those that nothing in matches are left out, but for one."""
        looking = self.looking
        nodes = looking.tree.get_many(looking.tree.children.get(category_id, ()), looking.sees)
        found = [self.child(node) for node in nodes]
        if self.matching is None:
            return found
        return [child for child in found if child.numbers.memories or child.node.id == kept]


def _counted(looking: VisibleTree, query: SearchQuery) -> _Counted:
    if not (query.text or query.selections() or query.has_dates):
        return _Counted(looking, None)
    resolved = resolve_query(looking.engine, query, looking.viewer, datetime.now(UTC))
    counts = looking.engine.counts(
        resolved.plan, [FacetRequest("category")], zone=resolved.zone, now=resolved.now, days=False
    )
    return _Counted(looking, {int(v.value): (v.count, v.own) for v in counts.facets["category"].values})


def _largest(children: list[Child]) -> list[Child]:
    """The largest first; what is equal stays in the order of the names."""
    return sorted(children, key=lambda child: -child.numbers.memories)


def _level(counted: _Counted, category_id: int | None, way: Sequence[int]) -> tuple[tuple[Branch, ...], int]:
    """The children of a node as branches by name, the largest where there are too many; open along the way."""
    on_the_way = way[0] if way else None
    every = counted.children(category_id, on_the_way)
    drawn = {child.node.id for child in _largest(every)[:MOST_BRANCHES]} | {on_the_way}
    branches = []
    for child in every:
        if child.node.id not in drawn:
            continue
        if child.node.id != on_the_way:
            branches.append(Branch(child))
            continue
        below, left_out = _level(counted, child.node.id, way[1:]) if child.has_children else ((), 0)
        branches.append(Branch(child, len(way) == 1, True, below, left_out))
    return tuple(branches), len(every) - len(branches)


def _listed(counted: _Counted, request: BrowseRequest) -> list[Child]:
    looking = counted.looking
    seen = [node for node in looking.tree.ordered if looking.sees(node.id)]
    if request.part:
        wanted = request.part.casefold()
        return [
            counted.child(node) for node in seen if wanted in (node.path if "/" in wanted else node.name).casefold()
        ]
    if request.show:
        wanted_ids = _sorts(looking)[request.show]
        return [counted.child(node) for node in seen if node.id in wanted_ids]
    return []


def _indicators(looking: VisibleTree) -> Indicators:
    sorts = _sorts(looking)
    return Indicators(
        categories=sum(1 for pk in looking.tree.nodes if looking.sees(pk)),
        memories=looking.figures.shown_total(),
        uncategorised=looking.figures.uncategorised(),
        single=len(sorts["single"]),
        large=len(sorts["large"]),
        empty=len(sorts["empty"]),
    )


def _sorts(looking: VisibleTree) -> dict[str, set[int]]:
    """The nodes that may be worth a look: leaves of one memory, nodes that hold very many, and those that hold none."""
    figures = looking.figures
    most = max(_LARGE, _LARGE_SHARE * figures.shown_total())
    single, large, empty = set(), set(), set()
    for node in looking.tree.ordered:
        if not looking.sees(node.id):
            continue
        memories = figures.memories[figures.code(node.id)]
        if memories == 0:
            empty.add(node.id)
        elif memories == 1 and not any(map(looking.sees, looking.tree.children.get(node.id, ()))):
            single.add(node.id)
        if figures.own_memories(node.id) >= most:
            large.add(node.id)
    return {"single": single, "large": large, "empty": empty}
