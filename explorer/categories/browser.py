"""Reads for the category browser: a part of the tree, one node of it, and indicators for curators.

With a query, only matching memories are counted. The query's own selection of categories is ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from access.viewer import Viewer
from categories.vocabulary_cache import CachedCategory
from explorer.categories.visible_tree import (
    CategoryChild,
    CategoryDescription,
    VisibleTree,
    chunk_warnings,
    visible_tree,
)
from memories.invented_team import categories_of_sample, sample_projects
from memories.models import Project
from search.baseline_counts import Totals
from search.engines import snapshot, with_engine
from search.engines.base import Engine, FacetRequest
from search.listings import NO_TRENDS, Trends, trends
from search.plan import resolve_query
from search.query import Interval, SearchQuery
from search.result import SearchWarning, older_warnings
from search.run import engine_notices
from web.params import Params, Value

# Children of a node shown in the tree, and in a table. A separate page lists all of them.
MOST_BRANCHES = 60
MOST_ROWS = 100
# They come with a chart each.
MOST_CHILDREN = 50
# A node is large if it has at least this many memories of its own, and this share of all memories.
_LARGE = 100
_LARGE_SHARE = 0.02


class BrowseRequest(Params):
    """Which part of the tree the browser shows, in addition to the node that its address names."""

    part: Value = Field("", alias="filter", description="Part of a name.")
    show: Literal["single", "large", "empty", ""] = Field("", description="Only the nodes of this sort.")
    below: Value = Field("", description="The category whose children are shown, and nothing else.")


@dataclass(frozen=True, slots=True)
class Branch:
    """A node of the tree with the children to draw; `left_out` counts the other children."""

    child: CategoryChild
    is_here: bool = False
    is_open: bool = False
    children: tuple["Branch", ...] = ()
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Indicators:
    """Numbers that tell a curator where the tree needs work."""

    categories: int
    memories: int
    uncategorised: int
    single: int
    large: int
    empty: int


@dataclass(frozen=True, slots=True)
class BrowserView:
    """A part of the tree, open at `node`. Without a node, `children` are the roots.

    `listed` are the results of a search by name, or of `show`.
    """

    query: SearchQuery
    is_narrowed: bool
    """Whether the query restricts memories; if so, chunks and concepts are not counted."""
    request: BrowseRequest
    node: CategoryDescription | None
    lineage: tuple[CachedCategory, ...]
    numbers: Totals
    own: int
    children: tuple[CategoryChild, ...]
    children_total: int
    branches: tuple[Branch, ...]
    branches_left_out: int
    listed: tuple[CategoryChild, ...]
    listed_total: int
    indicators: Indicators | None
    related: tuple[CachedCategory, ...]
    warnings: tuple[SearchWarning, ...] = ()
    sample: tuple[str, ...] = ()
    """The projects of the sample, if its categories are left out."""
    trends: Trends = NO_TRENDS
    """How the memories of each row of the table are spread over time."""


def browse(name: str, request: BrowseRequest, query: SearchQuery, viewer: Viewer) -> BrowserView:
    """The browser at a category, or at the top level if the name is empty. Raises CategoryNotFoundError."""
    # Order and page of the results do not apply here.
    query = query.without("category").with_(sort=None, page_size=25, subcategories=True, bucket=Interval.AUTO)
    return with_engine(lambda engine: _browse(engine, name, request, query, viewer), viewer)


def _browse(engine: Engine, name: str, request: BrowseRequest, query: SearchQuery, viewer: Viewer) -> BrowserView:
    with snapshot():
        visible = visible_tree(engine, viewer)
        node = visible.find(name)[0] if name else None
        of_sample = categories_of_sample(viewer)
        if not query.selection("project").restricts and not (node and node.id in of_sample):
            visible = replace(visible, of_sample=of_sample)
        counted = _counted(visible, query)
        lineage = tuple(visible.tree.lineage(node.id)) if node else ()
        children = _largest(counted.children(node.id if node else None))
        if request.below:
            branches, left_out = _level(counted, visible.find(request.below)[0].id, ())
        else:
            branches, left_out = _level(counted, None, tuple(one.id for one in lineage))
        listed = _largest(_listed(counted, request))
        here = counted.child(node) if node else None
        shown = () if request.below or request.show else children[:MOST_CHILDREN]
        return BrowserView(
            query=query,
            is_narrowed=counted.matching is not None,
            request=request,
            node=visible.describe(node) if node else None,
            lineage=lineage,
            numbers=here.numbers if here else Totals(),
            own=here.own if here else 0,
            children=tuple(children[:MOST_CHILDREN]),
            children_total=len(children),
            branches=branches,
            branches_left_out=left_out,
            listed=tuple(listed[:MOST_ROWS]),
            listed_total=len(listed),
            # Indicators are of all memories, and would be misread next to numbers of a query.
            indicators=None if node or request.below or counted.matching is not None else _indicators(visible),
            related=tuple(visible.tree.get_many(node.related_ids, visible.is_visible)) if node else (),
            sample=_sample_slugs(visible) if visible.of_sample else (),
            trends=trends(engine, query, "category", [one.node.id for one in shown], viewer),
            warnings=(
                *_chunk_warnings(visible, counted, node),
                *older_warnings(visible.as_of, viewer.timezone),
                *engine_notices(engine, viewer),
            ),
        )


def _sample_slugs(visible: VisibleTree) -> tuple[str, ...]:
    named = Project.objects.filter(pk__in=sample_projects()).order_by("slug").values_list("pk", "slug")
    return tuple(slug for pk, slug in named if visible.viewer.may_see(pk))


def _chunk_warnings(
    visible: VisibleTree, counted: "_BrowserCounts", node: CachedCategory | None
) -> tuple[SearchWarning, ...]:
    """Numbers of chunks are shown unless a query restricts the memories."""
    if counted.matching is not None:
        return ()
    counts = visible.counts
    return chunk_warnings(counts, counts.slots(node.id, below=True) if node else counts.shown)


@dataclass(frozen=True, slots=True)
class _BrowserCounts:
    """Numbers of memories per category: of all, or of those that match a query, as (memories, own) in `matching`."""

    visible: VisibleTree
    matching: dict[int, tuple[int, int]] | None

    def child(self, node: CachedCategory) -> CategoryChild:
        child = self.visible.child(node)
        if self.matching is None:
            return child
        memories, own = self.matching.get(node.id, (0, 0))
        return replace(child, numbers=Totals(memories), own=own)

    def children(self, category_id: int | None, kept_id: int | None = None) -> list[CategoryChild]:
        """Children by name. Under a query, without those that have no match, except `kept_id`."""
        visible = self.visible
        nodes = visible.tree.get_many(visible.tree.children.get(category_id, ()), visible.is_listed)
        found = [self.child(node) for node in nodes]
        if self.matching is None:
            return found
        return [child for child in found if child.numbers.memories or child.node.id == kept_id]


def _counted(visible: VisibleTree, query: SearchQuery) -> _BrowserCounts:
    if not query.text and query == query.without_filters():
        return _BrowserCounts(visible, None)
    resolved = resolve_query(visible.engine, query, visible.viewer, datetime.now(UTC))
    counts = visible.engine.counts(
        resolved.plan, [FacetRequest("category")], zone=resolved.zone, now=resolved.now, days=False
    )
    return _BrowserCounts(visible, {int(v.value): (v.count, v.own) for v in counts.facets["category"].values})


def _largest(children: list[CategoryChild]) -> list[CategoryChild]:
    """Sort by number of memories, descending; ties by name."""
    return sorted(children, key=lambda child: -child.numbers.memories)


def _level(counted: _BrowserCounts, category_id: int | None, way: Sequence[int]) -> tuple[tuple[Branch, ...], int]:
    """The children of a node as branches by name, open along `way`, and the number of those left out.

    Of too many children the largest are kept.
    """
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


def _listed(counted: _BrowserCounts, request: BrowseRequest) -> list[CategoryChild]:
    visible = counted.visible
    nodes = [node for node in visible.tree.ordered if visible.is_listed(node.id)]
    if request.part:
        part = request.part.casefold()
        return [counted.child(node) for node in nodes if part in (node.path if "/" in part else node.name).casefold()]
    if request.show:
        wanted_ids = _sorts(visible)[request.show]
        return [counted.child(node) for node in nodes if node.id in wanted_ids]
    return []


def _indicators(visible: VisibleTree) -> Indicators:
    sorts = _sorts(visible)
    return Indicators(
        categories=sum(1 for pk in visible.tree.nodes if visible.is_listed(pk)),
        memories=visible.counts.shown_total(),
        uncategorised=visible.counts.uncategorised(),
        single=len(sorts["single"]),
        large=len(sorts["large"]),
        empty=len(sorts["empty"]),
    )


def _sorts(visible: VisibleTree) -> dict[str, set[int]]:
    """Ids of the nodes of each of SHOWS: leaves with one memory, large nodes, and empty ones."""
    counts = visible.counts
    most = max(_LARGE, _LARGE_SHARE * counts.shown_total())
    single, large, empty = set(), set(), set()
    for node in visible.tree.ordered:
        if not visible.is_listed(node.id):
            continue
        memories = counts.memories[counts.code(node.id)]
        if memories == 0:
            empty.add(node.id)
        elif memories == 1 and not any(map(visible.is_visible, visible.tree.children.get(node.id, ()))):
            single.add(node.id)
        if counts.own_memories(node.id) >= most:
            large.add(node.id)
    return {"single": single, "large": large, "empty": empty}
