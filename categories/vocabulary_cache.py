"""The whole category tree, cached in the process: look-up by path, name, id, alias and former path.

The tree is read again when the hash of all categories changes: every write of a memory raises the revision of the
corpus, but few of them add a category.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from categories.models import Category, FormerPath
from categories.names import DataRevision
from categories.paths import clean_name, fold_name, slug_path
from categories.texts import AliasProjects, Projects, TermTexts, as_projects, category_texts, holds, readable
from web.cache import RevisionCache
from web.sql import fetch

Mask = npt.NDArray[np.bool_]

_COLUMNS = "id, path, name, parent_id, depth, description, aliases, related_ids, alias_projects, description_projects"
_HASH = f"""
SELECT * FROM (SELECT count(*), sum(hash_record_extended(row({_COLUMNS}), 0)) FROM categories_category) AS category,
(SELECT count(*), sum(hash_record_extended(row(path, category_id, project_ids), 0))
 FROM categories_formerpath) AS former"""


@dataclass(frozen=True, slots=True)
class CachedCategory:
    """A category without its counts."""

    id: int
    path: str
    name: str
    parent_id: int | None
    depth: int
    description: str
    aliases: tuple[str, ...]
    related_ids: tuple[int, ...]
    alias_projects: AliasProjects | None = None
    description_projects: frozenset[int] | None = None

    def readable(self, projects: Projects) -> "CachedCategory":
        """The category with the public texts that hold in the projects."""
        aliases = tuple(readable(self.aliases, self.alias_projects, projects))
        if not holds(self.description_projects, projects):
            return replace(self, aliases=aliases, description="")
        return self if aliases == self.aliases else replace(self, aliases=aliases)


class Tree:
    """All categories at one revision. Callers that may not see all of them pass `is_visible` to narrow a look-up."""

    def __init__(
        self,
        nodes: Iterable[CachedCategory],
        former: Mapping[str, Sequence[int]] | None = None,
        former_projects: Mapping[str, frozenset[int]] | None = None,
    ) -> None:
        self.ordered = tuple(nodes)
        """Ordered by path, so that a category follows its ancestors."""
        self.nodes = {node.id: node for node in self.ordered}
        self.folded_names = [node.name.casefold() for node in self.ordered]
        self.folded_paths = [node.path.casefold() for node in self.ordered]
        by_name = sorted(range(len(self.ordered)), key=lambda at: (self.folded_names[at], self.ordered[at].path))
        self.name_ranks = np.argsort(np.array(by_name, np.int64))
        places = {node.path: at for at, node in enumerate(self.ordered)}
        # The position of each parent, derived from the paths, which cannot form a cycle.
        self._above = np.array([places.get(node.path.rpartition("/")[0], -1) for node in self.ordered], np.int64)
        self.children: dict[int | None, list[int]] = defaultdict(list)
        """Ids of children by the id of their parent (None for roots), ordered by name."""
        self._by_path: dict[str, list[int]] = {}
        # A former path takes precedence over a name that another category happens to have.
        self._by_former = {path: [pk for pk in ids if pk in self.nodes] for path, ids in (former or {}).items()}
        self._former_projects = dict(former_projects or {})
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_alias: dict[str, list[int]] = defaultdict(list)
        for node in (self.ordered[at] for at in by_name):
            parent = node.parent_id if node.parent_id in self.nodes else None
            self.children[parent].append(node.id)
            self._by_path[node.path] = [node.id]
            self._by_name[fold_name(node.name)].append(node.id)
            for alias in {fold_name(alias) for alias in node.aliases}:
                self._by_alias[alias].append(node.id)

    def resolve(self, name: str, is_visible: Callable[[int], bool]) -> list[int]:
        """Categories by slug path, else by name, id or alias, ignoring case."""
        wanted = fold_name(name)
        for found in (
            self._by_path.get(slug_path(name), ()),
            self._by_former.get(slug_path(name), ()),
            self._by_name.get(wanted, ()),
            self._by_id(wanted),
            self._by_alias.get(wanted, ()),
        ):
            if known := [pk for pk in found if is_visible(pk)]:
                return known
        return []

    def _by_id(self, text: str) -> list[int]:
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else 0
        return [number] if number in self.nodes else []

    @cached_property
    def is_public(self) -> bool:
        """Whether everybody may read every alias, description and former path."""
        return not self._former_projects and all(
            node.alias_projects is None and node.description_projects is None for node in self.ordered
        )

    def with_texts(self, texts: Mapping[int | str, TermTexts], projects: Projects) -> "Tree":
        """The tree with local names and descriptions, and with those public ones that hold in the projects."""
        nodes = []
        for node in (node.readable(projects) for node in self.ordered):
            if (own := texts.get(node.id)) is not None:
                node = replace(
                    node,
                    description=own.described(node.description, projects),
                    aliases=own.named(node.name, node.aliases),
                )
            nodes.append(node)
        held = self._former_projects
        former = {path: ids for path, ids in self._by_former.items() if holds(held.get(path), projects)}
        for pk, own in texts.items():
            for path in own.paths:
                former[path] = [*former.get(path, ()), int(pk)]
        return Tree(nodes, former)

    def lineage(self, category_id: int) -> list[CachedCategory]:
        """A category and its ancestors, the root first."""
        above: dict[int, CachedCategory] = {}
        at: int | None = category_id
        # A cycle of parents, possible by manual edits of the database, ends the walk.
        while at is not None and at not in above and (node := self.nodes.get(at)):
            above[at] = node
            at = node.parent_id
        return list(reversed(above.values()))

    def uppermost(self, chosen: Mask) -> list[int]:
        """The ids of the chosen categories (a mask over `ordered`) that have no chosen ancestor."""
        # One extra position stands for the missing parent of roots.
        covered = np.append(chosen, False)
        while True:
            grown = covered.copy()
            grown[:-1] |= covered[self._above]
            if bool((grown == covered).all()):
                break
            covered = grown
        found = np.flatnonzero(chosen & ~covered[self._above])
        return [self.ordered[at].id for at in found.tolist()]

    def get_many(self, ids: Iterable[int], is_visible: Callable[[int], bool]) -> list[CachedCategory]:
        """The nodes that exist and are visible, in the order of the ids."""
        return [self.nodes[pk] for pk in ids if pk in self.nodes and is_visible(pk)]


# By the revision of the corpus, which is cheap to read, and by the hash of all categories, which changes seldom.
_by_revision = RevisionCache[tuple[object, ...], Tree](1)
_by_hash = RevisionCache[tuple[object, ...], Tree](1)
# The local texts of the projects of viewers, and the tree with these.
_texts = RevisionCache[Projects, dict[int | str, TermTexts]](8)
_by_projects = RevisionCache[Projects, Tree](8)


def tree_at(revision: DataRevision, projects: Projects) -> Tree:
    """The tree of a data revision, with the local names and descriptions of projects."""
    if not revision.is_shared:
        return _read().with_texts(category_texts(projects), projects)
    key = (revision.database, revision.revision)
    tree = _by_revision.get_or_make(key, lambda: _tree_of_hash(revision))
    texts = _texts.get_or_make(projects, lambda: category_texts(projects), key)
    if not texts and (projects is None or tree.is_public):
        return tree
    return _by_projects.get_or_make(projects, lambda: tree.with_texts(texts, projects), (tree, texts))


def _tree_of_hash(revision: DataRevision) -> Tree:
    key = (revision.database, *fetch(_HASH)[0])
    return _by_hash.get_or_make(key, _read)


def _read() -> Tree:
    nodes = Category.objects.order_by("path").values_list(*_COLUMNS.split(", "))
    former = list(FormerPath.objects.values_list("path", "category_id", "project_ids"))
    return Tree(
        (
            CachedCategory(*(*own, tuple(aliases), tuple(related), held, as_projects(described)))
            for *own, aliases, related, held, described in nodes
        ),
        {path: [pk] for path, pk, _ in former},
        {path: frozenset(held) for path, _, held in former if held is not None},
    )


def similar_paths(name: str, visible: Collection[int], limit: int) -> list[str]:
    """Paths of visible categories with a similar name, the most similar first."""
    short = clean_name(name.rsplit("/", 1)[-1])[:200]
    return [
        path
        for (path,) in fetch(
            "SELECT path FROM categories_category WHERE id = ANY(%(visible)s) AND"
            " (similarity(name, %(name)s) >= 0.3 OR (%(name)s <> '' AND strpos(lower(name), lower(%(name)s)) > 0))"
            " ORDER BY similarity(name, %(name)s) DESC, path LIMIT %(limit)s",
            {"visible": list(visible), "name": short, "limit": limit},
        )
    ]
