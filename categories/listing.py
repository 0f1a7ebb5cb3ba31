"""All categories with their numbers: `category_list` answers one frozen request for one viewer."""

from dataclasses import dataclass, replace

import numpy as np

from access.viewer import Viewer
from categories.figures import Figures, Numbers
from categories.looking import Looking, look
from categories.requests import CategoryListRequest
from categories.tree import Node, Tree
from search.engines import answered
from search.engines.arrays import Array, Mask
from search.engines.base import Engine
from search.result import SearchWarning
from search.run import engine_notices
from search.snapshots import snapshot
from search.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True)
class Listed:
    """A category of a list, with its numbers and those of what is below it; where it stands only if that was asked."""

    node: Node
    related: tuple[str, ...]
    numbers: Numbers
    own: int
    parent: str | None = None
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """All that a list is of, whether it is shown or not. A memory in several of the categories counts once."""

    numbers: Numbers
    average_memories: float = 0.0
    average_chunks: float = 0.0
    most: str | None = None
    least: str | None = None


@dataclass(frozen=True, slots=True)
class CategoryList:
    total: int
    listed: tuple[Listed, ...]
    aggregate: Aggregate
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]


def category_list(request: CategoryListRequest, viewer: Viewer) -> CategoryList:
    """Categories with their numbers, and what all of them come to."""
    return answered(lambda engine: _list(engine, request, viewer), viewer)


def _list(engine: Engine, request: CategoryListRequest, viewer: Viewer) -> CategoryList:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("categories"):
        looking = look(engine, viewer)
        tree, figures = looking.tree, looking.figures
        codes = figures.codes(tree)
        wanted = _wanted(tree, request.filter) & looking.seen(codes)
        chosen = np.flatnonzero(wanted)
        ranked = chosen[_order(tree, figures, chosen, codes[chosen], request.sort_by)]
        return CategoryList(
            total=len(chosen),
            listed=tuple(
                _listed(looking, tree.ordered[at], request.include_hierarchy) for at in ranked[: request.limit].tolist()
            ),
            aggregate=_aggregate(looking, wanted, codes),
            warnings=(*request.notices, *_nothing(request.filter, len(chosen)), *engine_notices(engine, viewer)),
            timings=watch.timings,
        )


def _nothing(part: str, found: int) -> list[SearchWarning]:
    """Why a list is empty."""
    if found:
        return []
    if not part:
        return [SearchWarning("There is no category that you may see.")]
    where = "path" if "/" in part else "name"
    return [SearchWarning(f"No category has “{part}” in its {where}. Leave filter out to list all of them.", "filter")]


def _wanted(tree: Tree, part: str) -> Array:
    """Which categories have it in their names, or in their paths where it is a part of one, in the tree's order."""
    if not part:
        return np.ones(len(tree.ordered), np.bool_)
    wanted = part.casefold()
    texts = tree.folded_paths if "/" in wanted else tree.folded_names
    return np.fromiter((wanted in text for text in texts), np.bool_, len(texts))


def _order(tree: Tree, figures: Figures, chosen: Array, codes: Array, sort_by: str) -> Array:
    """Places in the order asked for; what is equal by path, which is the order of the tree."""
    if sort_by == "name":
        return np.argsort(tree.name_ranks[chosen])
    by = {"chunk_count": figures.chunk_totals, "concept_count": figures.concepts}.get(sort_by, figures.memories)
    return np.argsort(-by[codes], kind="stable")


def _listed(looking: Looking, node: Node, with_place: bool) -> Listed:
    tree, figures = looking.tree, looking.figures
    listed = Listed(node, looking.related(node), figures.numbers(node.id), figures.own_memories(node.id))
    if not with_place:
        return listed
    parent = tree.nodes.get(node.parent_id or 0)
    children = tree.some(tree.children.get(node.id, ()), looking.sees)
    return replace(listed, parent=parent.path if parent else None, children=tuple(child.path for child in children))


def _aggregate(looking: Looking, wanted: Mask, codes: Array) -> Aggregate:
    tree, figures = looking.tree, looking.figures
    places = np.flatnonzero(wanted)
    if not len(places):
        return Aggregate(Numbers())
    memories, chunks = figures.memories[codes[places]], figures.chunk_totals[codes[places]]
    return Aggregate(
        # What is in a category is in those above it too: only the uppermost need be looked through.
        numbers=figures.numbers_of_any(tree.uppermost(wanted)),
        average_memories=round(float(memories.mean()), 1),
        average_chunks=round(float(chunks.mean()), 1),
        # Of equal ones the first by path.
        most=tree.ordered[places[int(memories.argmax())]].path,
        least=tree.ordered[places[int(memories.argmin())]].path,
    )
