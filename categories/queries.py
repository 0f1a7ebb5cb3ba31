"""Reads of the vocabulary: names to ids, ids to labels, the part of the tree that a page shows.

Look-ups ignore case: by path or name first, then by id, then by alias. Each takes a fixed number of statements.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.contrib.postgres.search import TrigramSimilarity
from django.db import connection
from django.db.models import F

from categories.models import Category, Concept, Entity, TagAlias
from categories.paths import slug_path

_SIMILAR = 0.3


@dataclass(frozen=True, slots=True)
class CategoryNode:
    """A category for lists and trees. `names` are those along its path, the root first."""

    id: int
    path: str
    name: str
    names: tuple[str, ...]
    parent_id: int | None
    depth: int


class TreeNode(NamedTuple):
    """A category for a sidebar. A tuple is cheap to make: a sidebar reads hundreds to show dozens."""

    id: int
    path: str
    name: str
    parent_id: int | None
    depth: int


@dataclass(frozen=True, slots=True)
class Term:
    """A concept or entity for lists. `value` is its value in URLs."""

    id: int
    value: str
    label: str
    type: str = ""


# Postgres folds both sides: Python's lower case differs for some letters. Names, through the index on lower(name), take
# precedence over ids, and both over aliases, through the index on them; names and ids are read in one statement.
_BY_NAME = """
SELECT w.name, 1, v.id FROM unnest(%(names)s::text[]) AS w(name) JOIN {table} v ON lower(v.name) = lower(w.name)
UNION ALL
SELECT v.id::text, 2, v.id FROM {table} v WHERE v.id = ANY(%(ids)s::bigint[])"""
_HAS_ALIAS = "v.aliases <> ARRAY[]::text[] AND categories_lower_all(v.aliases) @> ARRAY[lower({name})]"
_BY_ALIAS = f"""
SELECT w.name, v.id FROM unnest(%(names)s::text[]) AS w(name) JOIN {{table}} v ON {_HAS_ALIAS.format(name="w.name")}"""
_NAMED = " UNION ".join(
    [
        f"SELECT '{kind}', v.id::text FROM {table} v WHERE {condition}"
        for kind, table in (
            ("category", Category._meta.db_table),
            ("concept", Concept._meta.db_table),
            ("entity", Entity._meta.db_table),
        )
        for condition in ("lower(v.name) = lower(%(name)s)", _HAS_ALIAS.format(name="%(name)s"))
    ]
    + ["SELECT 'tag', tag FROM categories_tagalias WHERE alias = %(tag)s"]
)
_TYPED = """
SELECT w.wanted, v.id FROM unnest(%(wanted)s::text[], %(types)s::text[], %(names)s::text[]) AS w(wanted, type, name)
JOIN categories_entity v ON lower(v.name) = lower(w.name) AND lower(v.entity_type) = lower(w.type)"""


def _rows(statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def _resolve(table: str, names: Collection[str]) -> dict[str, list[int]]:
    """Ids by name; unknown names are left out."""
    if not names:
        return {}
    # An id is a bigint; a longer number is no id.
    ids = [int(name) for name in names if name.isascii() and name.isdecimal() and len(name) <= 18]
    found: dict[str, list[int]] = {}
    ranks: dict[str, int] = {}
    rows = _rows(_BY_NAME.format(table=table), {"names": list(names), "ids": ids})
    for name, rank, pk in sorted(rows, key=lambda row: row[1:]):
        if ranks.setdefault(name, rank) == rank:
            found.setdefault(name, []).append(pk)
    left = [name for name in names if name not in found]
    if left:
        for name, pk in sorted(_rows(_BY_ALIAS.format(table=table), {"names": left})):
            found.setdefault(name, []).append(pk)
    return {name: found[name] for name in names if name in found}


def terms_named(name: str, tag: str) -> dict[str, tuple[int | str, ...]]:
    """The categories, concepts and entities with this name or alias, ignoring case, and the tag that `tag` is an alias
    of: ids and tags by `category`, `concept`, `entity` and `tag`. One statement, through indexes.
    """
    found: dict[str, tuple[int | str, ...]] = {}
    for kind, term in sorted(_rows(_NAMED, {"name": name, "tag": tag})):
        found[kind] = (*found.get(kind, ()), term if kind == "tag" else int(term))
    return found


def resolve_categories(names: Collection[str]) -> dict[str, tuple[CategoryNode, ...]]:
    """Categories by slug path, else by name, id or alias; unknown names are left out."""
    if not names:
        return {}
    paths = {name: slug_path(name) for name in names}
    by_path = ids_by_path(set(paths.values()))
    found = {name: [by_path[path]] for name, path in paths.items() if path in by_path}
    found |= _resolve(Category._meta.db_table, [name for name in names if name not in found])
    nodes = category_nodes([pk for ids in found.values() for pk in ids])
    return {name: tuple(nodes[pk] for pk in ids) for name, ids in found.items()}


def resolve_concepts(names: Collection[str]) -> dict[str, tuple[Term, ...]]:
    """Concepts by name, else by id or alias; unknown names are left out."""
    found = _resolve(Concept._meta.db_table, names)
    terms = concept_terms([pk for ids in found.values() for pk in ids])
    return {name: tuple(terms[pk] for pk in ids) for name, ids in found.items()}


def resolve_entities(names: Collection[str]) -> dict[str, tuple[Term, ...]]:
    """Entities by `type:name` or name, else by id or alias; unknown names are left out."""
    # Either side of the colon may contain another colon.
    splits = [(name, name[:at], name[at + 1 :]) for name in names for at, c in enumerate(name) if c == ":"]
    found: dict[str, list[int]] = {}
    if splits:
        wanted, types, rest = zip(*splits, strict=True)
        for name, pk in sorted(_rows(_TYPED, {"wanted": list(wanted), "types": list(types), "names": list(rest)})):
            found.setdefault(name, []).append(pk)
    found |= _resolve(Entity._meta.db_table, [name for name in names if name not in found])
    terms = entity_terms([pk for ids in found.values() for pk in ids])
    return {name: tuple(terms[pk] for pk in ids) for name, ids in found.items()}


def tags_now(tags: Collection[str]) -> dict[str, str]:
    """The tags among the given ones that are aliases, and the tag of each."""
    return dict(TagAlias.objects.filter(alias__in=tags).values_list("alias", "tag"))


def aliases_of_tags(tags: Collection[str]) -> dict[str, list[str]]:
    """The aliases of tags; tags without any are left out."""
    found: dict[str, list[str]] = {}
    for alias, tag in TagAlias.objects.filter(tag__in=tags).order_by("alias").values_list("alias", "tag"):
        found.setdefault(tag, []).append(alias)
    return found


def category_nodes(ids: Collection[int]) -> dict[int, CategoryNode]:
    """Categories by id, with the names along their paths: one statement for the nodes, one for their ancestors."""
    if not ids:
        return {}
    # Written out, since every page of results runs this: the ORM takes longer to compile it than it takes to run.
    rows = _rows(
        "SELECT id, path, name, parent_id, depth FROM categories_category WHERE id = ANY(%(ids)s)",
        {"ids": list(set(ids))},
    )
    known = {path: name for _, path, name, _, _ in rows}
    above = {prefix for path in known for prefix in _ancestor_paths(path)} - set(known)
    if above:
        names = _rows("SELECT path, name FROM categories_category WHERE path = ANY(%(paths)s)", {"paths": list(above)})
        known.update(names)
    return {
        pk: CategoryNode(
            id=pk,
            path=path,
            name=name,
            names=(*(known.get(prefix, prefix) for prefix in _ancestor_paths(path)), name),
            parent_id=parent_id,
            depth=depth,
        )
        for pk, path, name, parent_id, depth in rows
    }


def category_roots() -> list[TreeNode]:
    """The upper two levels of the tree."""
    rows = Category.objects.filter(depth__lte=2).order_by("id").values_list("id", "path", "name", "parent_id", "depth")
    return [TreeNode(*row) for row in rows]


def category_children(ids: Collection[int]) -> dict[int, tuple[TreeNode, ...]]:
    """The children of each category that has any."""
    children: dict[int, list[TreeNode]] = {}
    if ids:
        statement = "SELECT id, path, name, parent_id, depth FROM categories_category WHERE parent_id = ANY(%(ids)s)"
        for node in map(TreeNode._make, _rows(statement + " ORDER BY id", {"ids": list(ids)})):
            children.setdefault(node.parent_id or 0, []).append(node)
    return {parent: tuple(nodes) for parent, nodes in children.items()}


def ids_by_path(paths: Collection[str]) -> dict[str, int]:
    """Ids by slug path, current or former."""
    statement = (
        "SELECT path, id FROM categories_category WHERE path = ANY(%(paths)s)"
        " UNION ALL SELECT path, category_id FROM categories_formerpath WHERE path = ANY(%(paths)s)"
    )
    return dict(_rows(statement, {"paths": list(paths)})) if paths else {}


def _ancestor_paths(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def concept_terms(ids: Collection[int]) -> dict[int, Term]:
    return _terms("categories_concept", "name, name, concept_type", ids)


def entity_terms(ids: Collection[int]) -> dict[int, Term]:
    return _terms("categories_entity", "entity_type || ':' || name, name, entity_type", ids)


def _terms(table: str, columns: str, ids: Collection[int]) -> dict[int, Term]:
    if not ids:
        return {}
    rows = _rows(f"SELECT id, {columns} FROM {table} WHERE id = ANY(%(ids)s)", {"ids": list(ids)})
    return {row[0]: Term(*row) for row in rows}


def similar_names(model: type[Category] | type[Concept] | type[Entity], name: str, limit: int = 10) -> list[int]:
    """Ids of rows with a similar name, the most similar first. Callers show only what the viewer may see."""
    short = name.rsplit("/", 1)[-1] if model is Category else name.partition(":")[2] or name
    rows = (
        model._default_manager.filter(name__trigram_similar=short[:200])
        .annotate(similarity=TrigramSimilarity("name", short[:200]))
        .filter(similarity__gte=_SIMILAR)
        .order_by(F("similarity").desc(), "pk")
    )
    return list(rows.values_list("pk", flat=True)[:limit])
