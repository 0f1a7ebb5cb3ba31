"""What one viewer may know of the categories at one moment: the tree, the numbers, and which of them may be named."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from access.viewer import Viewer
from categories.names import Names, names_at
from categories.revision import DataRevision, data_revision
from categories.vocabulary_cache import CachedCategory, Tree, similar_paths, tree_at
from search.category_counts import CategoryCounts, Totals, figures_at
from search.engines import read_columns
from search.engines.array_files import Array, Mask
from search.engines.base import Engine
from search.result import SearchWarning
from text.formatting import legible
from web.errors import Refusal

_NEAR_NAMES = 5
_OTHERS_TOLD = 10


class CategoryNotFoundError(Refusal):
    """No category of this name is visible to the viewer. `did_you_mean` are the paths of some with a similar name."""

    status = 404
    code = "not_found"
    suggestion = "See what there is: GET /api/categories"

    def __init__(self, name: str, did_you_mean: Sequence[str] = ()) -> None:
        self.did_you_mean = tuple(did_you_mean)
        super().__init__(f"Category not found: {legible(name, 100)}")


@dataclass(frozen=True, slots=True)
class Described:
    """A category and what is said of it. `names` are those along its path; `related` are paths."""

    node: CachedCategory
    names: tuple[str, ...]
    related: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a category, and what there is in it and below it."""

    node: CachedCategory
    numbers: Totals
    own: int = 0
    has_children: bool = False


@dataclass(frozen=True, slots=True)
class VisibleTree:
    """What one viewer may know of at one moment."""

    engine: Engine
    viewer: Viewer
    moment: DataRevision
    tree: Tree
    figures: CategoryCounts
    names: Names

    def seen(self, codes: Array) -> Mask:
        """Which of some categories may be named, by their codes."""
        return np.ones(len(codes), np.bool_) if self.viewer.project_ids is None else self.figures.known[codes]

    def sees(self, category_id: int) -> bool:
        return self.viewer.project_ids is None or bool(self.figures.known[self.figures.code(category_id)])

    def sees_concept(self, concept_id: int) -> bool:
        return self.viewer.project_ids is None or self.figures.knows_concept(concept_id)

    def meant(self, name: str) -> tuple[CachedCategory, tuple[str, ...]]:
        """The category that a name means, of several that with the most memories; and the paths of the others."""
        found = self.tree.resolve(name, self.sees)
        if not found:
            seen = [pk for pk in self.tree.nodes if self.sees(pk)]
            raise CategoryNotFoundError(name, similar_paths(name, seen, _NEAR_NAMES))
        found.sort(key=lambda pk: (-self.figures.numbers(pk).memories, self.tree.nodes[pk].path))
        nodes = [self.tree.nodes[pk] for pk in found]
        return nodes[0], tuple(node.path for node in nodes[1:])

    def described(self, node: CachedCategory) -> Described:
        return Described(node, tuple(one.name for one in self.tree.lineage(node.id)), self.related(node))

    def related(self, node: CachedCategory) -> tuple[str, ...]:
        return tuple(sorted(one.path for one in self.tree.get_many(node.related_ids, self.sees)))

    def children(self, category_id: int | None) -> list[Child]:
        """The children that may be seen, in the order of their names."""
        return [self.child(node) for node in self.tree.get_many(self.tree.children.get(category_id, ()), self.sees)]

    def child(self, node: CachedCategory) -> Child:
        figures = self.figures
        has_children = any(map(self.sees, self.tree.children.get(node.id, ())))
        return Child(node, figures.numbers(node.id), figures.own_memories(node.id), has_children)


def look(engine: Engine, viewer: Viewer) -> VisibleTree:
    """To be called within a snapshot, as all that follows from it."""
    moment = data_revision()
    figures = figures_at(moment, read_columns(engine), viewer.project_ids)
    return VisibleTree(engine, viewer, moment, tree_at(moment), figures, names_at(moment))


def ambiguous(node: CachedCategory, others: Sequence[str]) -> tuple[SearchWarning, ...]:
    """Answered with the largest, and told: most who say a bare name mean that one, and the others can be asked for."""
    if not others:
        return ()
    shown = others[:_OTHERS_TOLD]
    more = f", of {len(others)}" if len(others) > len(shown) else ""
    text = f"{len(others) + 1} categories have this name; this is {node.path}. Others: {', '.join(shown)}{more}."
    return (SearchWarning(text, "category", tuple(shown)),)
