"""The tree of categories and its numbers, as far as they are visible to a viewer at one data revision."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from access.viewer import Viewer
from categories.names import DataRevision, Names, data_revision, names_at
from categories.vocabulary_cache import CachedCategory, Tree, similar_paths, tree_at
from memories.embedding.vectors import EmbeddedShare
from search.baseline_counts import CategoryCounts, Totals, category_counts_at
from search.engines import read_columns
from search.engines.base import Engine
from search.engines.segment_files import Array, Mask
from search.result import SearchWarning
from text.formatting import legible
from web.errors import Refusal

_SUGGESTIONS = 5
_OTHERS_SHOWN = 10


class CategoryNotFoundError(Refusal):
    """No category of this name is visible to the viewer. `did_you_mean` are the paths of some with a similar name."""

    status = 404
    code = "not_found"
    suggestion = "See what there is: GET /api/categories"

    def __init__(self, name: str, did_you_mean: Sequence[str] = ()) -> None:
        self.name, self.did_you_mean = name, tuple(did_you_mean)
        super().__init__(f"Category not found: {legible(name, 100)}")


@dataclass(frozen=True, slots=True)
class CategoryDescription:
    """A category, the names along its path, and the paths of visible related categories."""

    node: CachedCategory
    names: tuple[str, ...]
    related: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CategoryChild:
    """A child of a category. `numbers` include its descendants, `own` does not."""

    node: CachedCategory
    numbers: Totals
    own: int = 0
    has_children: bool = False


@dataclass(frozen=True, slots=True)
class VisibleTree:
    """A snapshot of the categories for a viewer."""

    engine: Engine
    viewer: Viewer
    revision: DataRevision
    tree: Tree
    counts: CategoryCounts
    names: Names
    as_of: datetime | None = None
    """The time of the counts, if memories have changed since."""
    of_sample: frozenset[int] = frozenset()
    """Categories of the sample, which are not listed among those of others."""

    def visible_mask(self, codes: Array) -> Mask:
        """A mask over categories, given by their codes: the visible ones."""
        return np.ones(len(codes), np.bool_) if self.viewer.project_ids is None else self.counts.known[codes]

    def is_visible(self, category_id: int) -> bool:
        return self.viewer.project_ids is None or bool(self.counts.known[self.counts.code(category_id)])

    def is_listed(self, category_id: int) -> bool:
        return self.is_visible(category_id) and category_id not in self.of_sample

    def is_concept_visible(self, concept_id: int) -> bool:
        return self.viewer.project_ids is None or self.counts.knows_concept(concept_id)

    def find(self, name: str) -> tuple[CachedCategory, tuple[str, ...]]:
        """The category with this name, slug path, alias or id, and the paths of others that match it too.

        Of several the one with the most memories wins. Raises CategoryNotFoundError.
        """
        found = self.tree.resolve(name, self.is_visible)
        if not found:
            visible = [pk for pk in self.tree.nodes if self.is_visible(pk)]
            raise CategoryNotFoundError(name, similar_paths(name, visible, _SUGGESTIONS))
        found.sort(key=lambda pk: (-self.counts.numbers(pk).memories, self.tree.nodes[pk].path))
        nodes = [self.tree.nodes[pk] for pk in found]
        return nodes[0], tuple(node.path for node in nodes[1:])

    def describe(self, node: CachedCategory) -> CategoryDescription:
        return CategoryDescription(node, tuple(one.name for one in self.tree.lineage(node.id)), self.related(node))

    def related(self, node: CachedCategory) -> tuple[str, ...]:
        return tuple(sorted(one.path for one in self.tree.get_many(node.related_ids, self.is_visible)))

    def children(self, category_id: int | None) -> list[CategoryChild]:
        """Visible children by name; the roots for None."""
        return [
            self.child(node) for node in self.tree.get_many(self.tree.children.get(category_id, ()), self.is_visible)
        ]

    def child(self, node: CachedCategory) -> CategoryChild:
        counts = self.counts
        has_children = any(map(self.is_visible, self.tree.children.get(node.id, ())))
        return CategoryChild(node, counts.numbers(node.id), counts.own_memories(node.id), has_children)


def visible_tree(engine: Engine, viewer: Viewer) -> VisibleTree:
    """Call this and everything that uses the result within one snapshot."""
    revision = data_revision()
    filing = read_columns(engine)
    counts = category_counts_at(revision, filing, viewer.project_ids)
    tree, names = tree_at(revision, viewer.project_ids), names_at(revision)
    return VisibleTree(engine, viewer, revision, tree, counts, names, filing.as_of)


def ambiguity_warning(node: CachedCategory, others: Sequence[str]) -> tuple[SearchWarning, ...]:
    """A warning if other categories match the same name, with their paths."""
    if not others:
        return ()
    shown = others[:_OTHERS_SHOWN]
    more = f", of {len(others)}" if len(others) > len(shown) else ""
    text = f"{len(others) + 1} categories have this name; this is {node.path}. Others: {', '.join(shown)}{more}."
    return (SearchWarning(text, "category", tuple(shown)),)


def chunk_warnings(counts: CategoryCounts, memories: Array) -> tuple[SearchWarning, ...]:
    """A warning if some of these memories, given by their places or as a mask, have not been split into chunks yet."""
    chunks = counts.chunks_at[memories]
    share = EmbeddedShare(int(np.count_nonzero(chunks)), len(chunks))
    if share.is_complete:
        return ()
    text = f"{share.text} of these memories have been split into chunks so far: the numbers of chunks are short."
    return (SearchWarning(text.capitalize(), "chunks"),)
