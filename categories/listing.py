"""All categories with their numbers: `category_list` answers one frozen request for one viewer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from access.viewer import Viewer
from categories.figures import Figures, Numbers
from categories.looking import Described, Looking, look
from categories.requests import CategoryListRequest
from categories.tree import Node, Tree
from search.engines import answered
from search.engines.base import Engine
from search.engines.tantivy.parts import Array
from search.result import SearchWarning
from search.run import engine_notices
from search.snapshots import snapshot
from search.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True)
class Listed:
    """A category of a list, with its numbers and those of what is below it."""

    category: Described
    numbers: Numbers
    own: int
    parent: str | None
    children: tuple[str, ...]


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
    watch = Stopwatch()
    with snapshot(), watch.stage("categories"):
        looking = look(engine, viewer)
        tree, figures = looking.tree, looking.figures
        codes = figures.codes(tree.nodes)
        chosen = np.flatnonzero(_wanted(tree, request.filter) & looking.seen(codes))
        ranked = chosen[_order(tree, figures, chosen, codes[chosen], request.sort_by)]
        return CategoryList(
            total=len(chosen),
            listed=tuple(_listed(looking, tree.ordered[at]) for at in ranked[: request.limit].tolist()),
            aggregate=_aggregate([tree.ordered[at] for at in chosen.tolist()], codes[chosen], looking),
            warnings=(*request.notices, *engine_notices(engine, viewer)),
            timings=watch.timings,
        )


def _wanted(tree: Tree, part: str) -> Array:
    """Which categories have it in their names, or in their paths where it is a part of one, in the tree's order."""
    wanted = part.casefold()
    texts = tree.folded_paths if "/" in wanted else tree.folded_names
    return np.fromiter((wanted in text for text in texts), np.bool_, len(texts))


def _order(tree: Tree, figures: Figures, chosen: Array, codes: Array, sort_by: str) -> Array:
    """Places in the order asked for; what is equal by path, which is the order of the tree."""
    if sort_by == "name":
        return np.argsort(tree.name_ranks[chosen])
    by = {"chunk_count": figures.chunk_totals, "concept_count": figures.concepts}.get(sort_by, figures.memories)
    return np.argsort(-by[codes], kind="stable")


def _listed(looking: Looking, node: Node) -> Listed:
    tree, figures = looking.tree, looking.figures
    parent = tree.nodes.get(node.parent_id or 0)
    children = tree.some(tree.children.get(node.id, ()), looking.sees)
    return Listed(
        category=looking.described(node),
        numbers=figures.numbers(node.id),
        own=figures.own_memories(node.id),
        parent=parent.path if parent else None,
        children=tuple(child.path for child in children),
    )


def _aggregate(nodes: Sequence[Node], codes: Array, looking: Looking) -> Aggregate:
    if not nodes:
        return Aggregate(Numbers())
    figures = looking.figures
    memories, chunks = figures.memories[codes], figures.chunk_totals[codes]
    return Aggregate(
        numbers=figures.numbers_of_any(looking.tree.uppermost(node.id for node in nodes)),
        average_memories=round(float(memories.mean()), 1),
        average_chunks=round(float(chunks.mean()), 1),
        # Of equal ones the first by path.
        most=nodes[int(memories.argmax())].path,
        least=nodes[int(memories.argmin())].path,
    )
