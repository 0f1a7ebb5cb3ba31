"""The whole category tree in the process: every node with what is said of it, found by path, name, id or alias, and by
a path that it had.

It is read again when it has changed, which its hash tells: every memory that is written raises the revision of the
corpus, and few of them bring a category.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection

from categories.paths import clean_name, slug_path
from categories.revision import DataRevision
from web.cache import RevisionCache

Mask = npt.NDArray[np.bool_]

_COLUMNS = "id, path, name, parent_id, depth, description, aliases, related_ids"
_HASH = f"""
SELECT * FROM (SELECT count(*), sum(hash_record_extended(row({_COLUMNS}), 0)) FROM categories_category) AS category,
(SELECT count(*), sum(hash_record_extended(row(path, category_id), 0)) FROM categories_formerpath) AS former"""


@dataclass(frozen=True, slots=True)
class Node:
    """A category with all that is said of it, but for its numbers."""

    id: int
    path: str
    name: str
    parent_id: int | None
    depth: int
    description: str
    aliases: tuple[str, ...]
    related_ids: tuple[int, ...]


class Tree:
    """All categories at one moment. Whoever may not see all of them says which: `seen` narrows every look-up."""

    def __init__(self, nodes: Iterable[Node], former: Mapping[str, int] | None = None) -> None:
        self.ordered = tuple(nodes)
        """In the order of their paths, and so none before what it is below."""
        self.nodes = {node.id: node for node in self.ordered}
        self.folded_names = [node.name.casefold() for node in self.ordered]
        self.folded_paths = [node.path.casefold() for node in self.ordered]
        by_name = sorted(range(len(self.ordered)), key=lambda at: (self.folded_names[at], self.ordered[at].path))
        self.name_ranks = np.argsort(np.array(by_name, np.int64))
        places = {node.path: at for at, node in enumerate(self.ordered)}
        # By place: that of the category above, by their paths, which cannot run in a ring.
        self._above = np.array([places.get(node.path.rpartition("/")[0], -1) for node in self.ordered], np.int64)
        self.children: dict[int | None, list[int]] = defaultdict(list)
        """By the id of the parent, in the order of their names; under None those that have none."""
        # A path that a category had once leads to it, before a name that another one has by chance.
        self._by_path: dict[str, list[int]] = {path: [pk] for path, pk in (former or {}).items() if pk in self.nodes}
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_alias: dict[str, list[int]] = defaultdict(list)
        for node in (self.ordered[at] for at in by_name):
            parent = node.parent_id if node.parent_id in self.nodes else None
            self.children[parent].append(node.id)
            self._by_path[node.path] = [node.id]
            self._by_name[_folded(node.name)].append(node.id)
            for alias in {_folded(alias) for alias in node.aliases}:
                self._by_alias[alias].append(node.id)

    def resolve(self, name: str, seen: Callable[[int], bool]) -> list[int]:
        """The categories that a name means: by slug path, else by name, id or alias, whatever the case."""
        wanted = _folded(name)
        for found in (
            self._by_path.get(slug_path(name), ()),
            self._by_name.get(wanted, ()),
            self._by_id(wanted),
            self._by_alias.get(wanted, ()),
        ):
            if known := [pk for pk in found if seen(pk)]:
                return known
        return []

    def _by_id(self, text: str) -> list[int]:
        number = int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else 0
        return [number] if number in self.nodes else []

    def lineage(self, category_id: int) -> list[Node]:
        """A category and all above it, the root first."""
        above: dict[int, Node] = {}
        at: int | None = category_id
        # A parent that is below its own child, written by hand, ends the walk.
        while at is not None and at not in above and (node := self.nodes.get(at)):
            above[at] = node
            at = node.parent_id
        return list(reversed(above.values()))

    def below(self, category_id: int) -> Iterator[Node]:
        """All that is below a category, each once."""
        met = {category_id}
        waiting = list(self.children.get(category_id, ()))
        while waiting:
            if (at := waiting.pop()) not in met:
                met.add(at)
                yield self.nodes[at]
                waiting.extend(self.children.get(at, ()))

    def uppermost(self, chosen: Mask) -> list[int]:
        """The ids of those of some categories, given by their places, that are below none of the others."""
        # A place more, for what is above the roots.
        covered = np.append(chosen, False)
        while True:
            grown = covered.copy()
            grown[:-1] |= covered[self._above]
            if bool((grown == covered).all()):
                break
            covered = grown
        found = np.flatnonzero(chosen & ~covered[self._above])
        return [self.ordered[at].id for at in found.tolist()]

    def some(self, ids: Iterable[int], seen: Callable[[int], bool]) -> list[Node]:
        """Those of the nodes that there are and may be seen, in the order of the ids."""
        return [self.nodes[pk] for pk in ids if pk in self.nodes and seen(pk)]


def _folded(name: str) -> str:
    return clean_name(name).casefold()


# By the revision of the corpus, which is cheap to ask for, and by the hash of all categories, which few changes alter.
_by_revision = RevisionCache[tuple[object, ...], Tree](1)
_by_hash = RevisionCache[tuple[object, ...], Tree](1)


def tree_at(moment: DataRevision) -> Tree:
    """The tree at the moment that the database is read at."""
    if not moment.is_shared:
        return _read()
    return _by_revision.get_or_make((moment.database, moment.revision), lambda: _tree_of_hash(moment))


def _tree_of_hash(moment: DataRevision) -> Tree:
    with connection.cursor() as cursor:
        cursor.execute(_HASH)
        key = (moment.database, *cursor.fetchone())
    return _by_hash.get_or_make(key, _read)


def _read() -> Tree:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {_COLUMNS} FROM categories_category ORDER BY path")
        rows = cursor.fetchall()
        cursor.execute("SELECT path, category_id FROM categories_formerpath")
        former = dict(cursor.fetchall())
    nodes = (
        Node(pk, path, name, parent_id, depth, description, tuple(aliases), tuple(related))
        for pk, path, name, parent_id, depth, description, aliases, related in rows
    )
    return Tree(nodes, former)


def similar_paths(name: str, seen: Collection[int], limit: int) -> list[str]:
    """The paths of the categories, of those seen, whose names are spelt much like a name, the nearest first."""
    short = clean_name(name.rsplit("/", 1)[-1])[:200]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT path FROM categories_category WHERE id = ANY(%(seen)s) AND"
            " (similarity(name, %(name)s) >= 0.3 OR (%(name)s <> '' AND strpos(lower(name), lower(%(name)s)) > 0))"
            " ORDER BY similarity(name, %(name)s) DESC, path LIMIT %(limit)s",
            {"seen": list(seen), "name": short, "limit": limit},
        )
        return [path for (path,) in cursor.fetchall()]
