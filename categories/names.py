"""The data revision that a snapshot reads, the key of every cache; and names of the vocabulary for pages, cached
in the process, since consecutive pages show the same few.

A cache belongs to one revision of the corpus, which every change of the services raises in its own transaction. The
snapshot of the page reads that revision, so its names always fit its other rows.
"""

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import connection

from categories.queries import (
    CategoryNode,
    Term,
    TreeNode,
    category_children,
    category_nodes,
    category_roots,
    concept_terms,
    entity_terms,
    ids_by_path,
    terms_named,
)
from categories.texts import Projects
from web.cache import RevisionCache

_NOW = """
SELECT corpus.revision, corpus.vectors, coalesce(model.id, 0), pg_current_xact_id_if_assigned() IS NULL
FROM memories_corpus corpus LEFT JOIN memories_embeddingmodel model ON model.state = 'serving' WHERE corpus.id = 1"""


@dataclass(frozen=True, slots=True)
class DataRevision:
    """A database, the revisions of its memories and of their vectors, and the id of the serving model (0 if none).

    A transaction that has written data may see uncommitted rows: then `is_shared` is False, and nothing read in it may
    be cached.
    """

    database: tuple[object, ...]
    revision: int = 0
    vectors: int = 0
    model_id: int = 0
    is_shared: bool = False

    @property
    def cache_key(self) -> tuple[object, ...] | None:
        """The key for caches of memories and names; None if nothing may be cached."""
        return (*self.database, self.revision) if self.is_shared else None


def data_revision() -> DataRevision:
    """The data revision of the current snapshot."""
    with connection.cursor() as cursor:
        cursor.execute(_NOW)
        return _revision(cursor.fetchone())


def data_revision_with(statement: str) -> tuple[DataRevision, list[tuple[Any, ...]]]:
    """The data revision, and the rows of a statement without parameters and percent signs, in one round trip."""
    with connection.cursor() as cursor:
        cursor.execute(f"{statement};{_NOW}")
        rows = cursor.fetchall()
        cursor.nextset()
        return _revision(cursor.fetchone()), rows


def _revision(found: tuple[int, int, int, bool] | None) -> DataRevision:
    settings = connection.settings_dict
    return DataRevision((settings["HOST"], settings["PORT"], settings["NAME"]), *(found or (0, 0, 0, False)))


# The limit of each kind: at this size its cache is cleared. A page needs a few dozen.
_LIMIT = 10_000
# Seconds until a name that was changed without the services is read again.
_KEPT_SECONDS = 60

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Names:
    """Names by id, each read when first requested; unknown ids are left out. Threads may share an instance."""

    def __init__(self) -> None:
        self._nodes: dict[int, CategoryNode | None] = {}
        self._ids: dict[str, int | None] = {}
        self._children: dict[int, tuple[TreeNode, ...] | None] = {}
        self._concepts: dict[int, Term | None] = {}
        self._entities: dict[int, Term | None] = {}
        self._named: dict[tuple[str, str, Projects], dict[str, tuple[int | str, ...]] | None] = {}
        self._roots: list[TreeNode] | None = None

    def named(self, name: str, tag: str, projects: Projects) -> dict[str, tuple[int | str, ...]]:
        """The terms of a name; see `terms_named`."""
        key = (name, tag, projects)
        return _known(self._named, [key], lambda keys: {one: terms_named(*one) for one in keys})[key]

    def category_nodes(self, ids: Iterable[int]) -> dict[int, CategoryNode]:
        """Categories by id, with the names along their paths."""
        return _known(self._nodes, ids, category_nodes)

    def concept_terms(self, ids: Iterable[int]) -> dict[int, Term]:
        return _known(self._concepts, ids, concept_terms)

    def entity_terms(self, ids: Iterable[int]) -> dict[int, Term]:
        return _known(self._entities, ids, entity_terms)

    def ancestor_ids(self, nodes: Iterable[CategoryNode]) -> set[int]:
        """The ids of the nodes' ancestors."""
        steps = [node.path.split("/") for node in nodes]
        return set(_known(self._ids, ["/".join(s[:n]) for s in steps for n in range(1, len(s))], ids_by_path).values())

    def children(self, ids: Iterable[int]) -> dict[int, tuple[TreeNode, ...]]:
        """The children of each of the given categories that has any."""
        return _known(self._children, ids, category_children)

    def tree(self, open_ids: Collection[int]) -> list[TreeNode]:
        """The part of the tree for a sidebar: two levels, the open nodes, and their children."""
        if self._roots is None:
            self._roots = category_roots()
        if not open_ids:
            return self._roots
        drawn = {node.id: node for node in self._roots}
        for node in self.category_nodes(open_ids).values():
            drawn[node.id] = TreeNode(node.id, node.path, node.name, node.parent_id, node.depth)
        drawn.update({node.id: node for below in self.children(open_ids).values() for node in below})
        return list(drawn.values())


def _known(
    cached: dict[Key, Value | None], keys: Iterable[Key], read: Callable[[Collection[Key]], dict[Key, Value]]
) -> dict[Key, Value]:
    """The cached values of the keys; missing ones are read with one call."""
    found = {key: cached.get(key) for key in keys}
    if missing := [key for key, value in found.items() if value is None and key not in cached]:
        new = read(missing)
        if len(cached) + len(missing) > _LIMIT:
            cached.clear()
        cached.update((key, new.get(key)) for key in missing)
        found.update(new)
    return {key: value for key, value in found.items() if value is not None}


cache = RevisionCache[tuple[()], Names](1, seconds=_KEPT_SECONDS)


def names_at(revision: DataRevision) -> Names:
    """The names of a data revision, from the cache if it may be shared."""
    key = revision.cache_key
    return Names() if key is None else cache.get_or_make((), Names, key)
