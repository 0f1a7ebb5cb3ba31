"""Reads of the vocabulary: names to ids, ids to labels, the part of the tree that a page shows.

Look-ups ignore case: by path or name first, then by id, then by alias. Each takes a fixed number of statements. They
take the projects of a viewer, None for all: local names are found in these alone, and a term that none of their
memories has does not hide another with the same name.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from django.contrib.postgres.search import TrigramSimilarity
from django.db.models import F

from categories.models import Category, Concept, Entity, TagAlias
from categories.paths import slug_path, spellings
from categories.texts import (
    HOLDS,
    READABLE_ALIASES,
    ROW_HOLDS,
    Projects,
    as_array,
    known_terms,
    local_tags,
    row_holds,
    texts_of,
)
from web.sql import fetch

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
    type = ""

    @property
    def value(self) -> str:
        return self.path

    @property
    def label(self) -> str:
        return self.path


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
    names = ()


# Postgres folds both sides: Python's lower case differs for some letters. Each statement gives the name, the rank of
# the kind of match, and the id. Names, through the index on lower(name), take precedence over ids, and both over
# aliases, through the index on them.
_TYPE_AND_NAME, _NAME, _ID, _LOCAL, _ALIAS = range(5)
_FORMS = "unnest(%(names)s::text[], %(forms)s::text[]) AS w(name, form)"
_BY_NAME = f"""
SELECT w.name, {_NAME}, v.id FROM {_FORMS} JOIN {{table}} v ON lower(v.name) = lower(w.form)
UNION ALL
SELECT v.id::text, {_ID}, v.id FROM {{table}} v WHERE v.id = ANY(%(ids)s::bigint[])"""
# The second part uses the index; the third one is of viewers who may not read every alias.
_HAS_ALIAS = (
    "v.aliases <> ARRAY[]::text[] AND categories_lower_all(v.aliases) @> ARRAY[lower({name})]"
    " AND (%(projects)s::bigint[] IS NULL OR v.alias_projects IS NULL"
    f" OR categories_lower_all({READABLE_ALIASES.format(row='v')}) @> ARRAY[lower({{name}})])"
)
_IS_LOCAL = "lower(t.text) = lower({name}) AND t.role = 'alias' AND " + HOLDS.format(alias="t")
_BY_ALIAS = f"""
SELECT w.name, {_ALIAS}, v.id FROM {_FORMS}
JOIN {{table}} v ON {_HAS_ALIAS.format(name="w.form")}
UNION ALL
SELECT w.name, {_LOCAL}, t.term_id FROM {_FORMS}
JOIN categories_localtext t ON t.kind = %(kind)s AND {_IS_LOCAL.format(name="w.form")}"""
_BY_PATH = f"""
SELECT path, 1, id FROM categories_category WHERE path = ANY(%(paths)s)
UNION ALL SELECT path, 2, category_id FROM categories_formerpath f
WHERE path = ANY(%(paths)s) AND {ROW_HOLDS.format(ids="f.project_ids")}
UNION ALL SELECT text, 3, term_id FROM categories_localtext t
WHERE kind = 'category' AND role = 'path' AND lower(text) = ANY(%(paths)s) AND {HOLDS.format(alias="t")}"""
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
    + [
        f"SELECT 'tag', tag FROM categories_tagalias v WHERE alias = %(tag)s AND {ROW_HOLDS.format(ids='project_ids')}",
        f"SELECT t.kind, t.term_id::text FROM categories_localtext t WHERE {_IS_LOCAL.format(name='%(name)s')}"
        " AND t.term_id IS NOT NULL",
        f"SELECT t.kind, t.tag FROM categories_localtext t WHERE {_IS_LOCAL.format(name='%(tag)s')} AND t.kind = 'tag'",
    ]
)
# Uses tagalias_alias_unique.
_PUBLIC_TAGS = f"""
SELECT alias, tag FROM categories_tagalias
WHERE alias = ANY(%(tags)s) AND {ROW_HOLDS.format(ids="project_ids")}"""
_WANTED = "unnest(%(wanted)s::text[], %(types)s::text[], %(names)s::text[]) AS w(wanted, type, name)"
_TYPED = f"""
SELECT w.wanted, {_TYPE_AND_NAME}, v.id FROM {_WANTED}
JOIN categories_entity v ON lower(v.name) = lower(w.name) AND lower(v.entity_type) = lower(w.type)
UNION ALL
SELECT w.wanted, {_ALIAS}, v.id FROM {_WANTED}
JOIN categories_entity v ON {_HAS_ALIAS.format(name="w.name")} AND lower(v.entity_type) = lower(w.type)
UNION ALL
SELECT w.wanted, {_LOCAL}, v.id FROM {_WANTED}
JOIN categories_localtext t ON t.kind = 'entity' AND {_IS_LOCAL.format(name="w.name")}
JOIN categories_entity v ON v.id = t.term_id AND lower(v.entity_type) = lower(w.type)"""


def _forms(names: Iterable[str]) -> dict[str, list[str]]:
    """The forms under which each name may be stored, as parallel arrays."""
    pairs = [(name, form) for name in names for form in spellings(name)]
    return {"names": [name for name, _ in pairs], "forms": [form for _, form in pairs]}


def _resolve(
    kind: str, table: str, names: Collection[str], projects: Projects, typed: Iterable[tuple[str, int, int]] = ()
) -> dict[str, list[int]]:
    """Ids by name; unknown names are left out. `typed` are rows of names with a type."""
    if not names:
        return {}
    # An id is a bigint; a longer number is no id.
    ids = [int(name) for name in names if name.isascii() and name.isdecimal() and len(name) <= 18]
    rows = [*typed, *fetch(_BY_NAME.format(table=table), {**_forms(names), "ids": ids})]
    found = {name for name, rank, _ in rows if rank <= _ID}
    # A viewer of some projects may not see the term of that name, but another with that alias.
    if left := [name for name in names if projects is not None or name not in found]:
        parameters = {**_forms(left), "kind": kind, "projects": as_array(projects)}
        rows += fetch(_BY_ALIAS.format(table=table), parameters)
    return _best(kind, names, rows, projects)


def _best(
    kind: str, names: Iterable[str], rows: Iterable[tuple[str, int, int]], projects: Projects
) -> dict[str, list[int]]:
    """The ids of the first rank of each name that has a visible one; visibility is read only where ranks compete."""
    ranked: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for name, rank, pk in sorted(rows):
        # Viewers of all projects find the public alias before names that hold in some projects only.
        ranked[name][_ALIAS + 1 if projects is None and rank == _LOCAL else rank].append(pk)
    competing = [ranks for ranks in ranked.values() if len(ranks) > 1]
    visible = known_terms(kind, {pk for ranks in competing for ids in ranks.values() for pk in ids}, projects)
    for ranks in competing:
        for rank in sorted(ranks):
            ranks[rank] = [pk for pk in ranks[rank] if pk in visible]
            if not ranks[rank] and len(ranks) > 1:
                del ranks[rank]
    best = {name: ranked[name][min(ranked[name])] for name in names if name in ranked}
    return {name: list(dict.fromkeys(ids)) for name, ids in best.items() if ids}


def terms_named(name: str, tag: str, projects: Projects) -> dict[str, tuple[int | str, ...]]:
    """The categories, concepts and entities with this name or alias, ignoring case, and the tag that `tag` is an alias
    of: ids and tags by `category`, `concept`, `entity` and `tag`. One statement, through indexes.
    """
    found: dict[str, tuple[int | str, ...]] = {}
    for kind, term in sorted(fetch(_NAMED, {"name": name, "tag": tag, "projects": as_array(projects)})):
        found[kind] = (*found.get(kind, ()), term if kind == "tag" else int(term))
    return found


# Terms of one name are in the order of their paths and types. That of their ids would show a viewer of some projects
# which of them others used first.
_path = attrgetter("path", "id")
_value = attrgetter("value", "id")


def resolve_categories(names: Collection[str], projects: Projects) -> dict[str, tuple[CategoryNode, ...]]:
    """Categories by slug path, else by name, id or alias; unknown names are left out."""
    if not names:
        return {}
    paths = {name: slug_path(name) for name in names}
    by_path = _paths_found(set(paths.values()), projects)
    found = {name: by_path[path] for name, path in paths.items() if path in by_path}
    hidden: set[str] = set()
    if projects is not None and found:
        visible = known_terms("category", {pk for ids in found.values() for pk in ids}, projects)
        hidden = {name for name, ids in found.items() if visible.isdisjoint(ids)}
    rest = [name for name in names if name not in found or name in hidden]
    found |= _resolve("category", Category._meta.db_table, rest, projects)
    nodes = category_nodes([pk for ids in found.values() for pk in ids])
    return {name: tuple(sorted((nodes[pk] for pk in ids), key=_path)) for name, ids in found.items()}


def resolve_concepts(names: Collection[str], projects: Projects) -> dict[str, tuple[Term, ...]]:
    """Concepts by name, else by id or alias; unknown names are left out."""
    found = _resolve("concept", Concept._meta.db_table, names, projects)
    terms = concept_terms([pk for ids in found.values() for pk in ids])
    return {name: tuple(sorted((terms[pk] for pk in ids if pk in terms), key=_value)) for name, ids in found.items()}


def resolve_entities(names: Collection[str], projects: Projects) -> dict[str, tuple[Term, ...]]:
    """Entities by `type:name` or name, else by id or alias, which may have a type too; unknown names are left out."""
    # Either side of the colon may contain another colon.
    splits = [
        (name, name[:at], form)
        for name in names
        for at, c in enumerate(name)
        if c == ":"
        for form in spellings(name[at + 1 :])
    ]
    typed: list[tuple[str, int, int]] = []
    if splits:
        wanted, types, rest = (list(column) for column in zip(*splits, strict=True))
        parameters = {"wanted": wanted, "types": types, "names": rest, "projects": as_array(projects)}
        typed = fetch(_TYPED, parameters)
    found = _resolve("entity", Entity._meta.db_table, names, projects, typed)
    terms = entity_terms([pk for ids in found.values() for pk in ids])
    return {name: tuple(sorted((terms[pk] for pk in ids if pk in terms), key=_value)) for name, ids in found.items()}


def tags_now(tags: Collection[str], projects: Projects) -> dict[str, str]:
    """The tags among the given ones that are aliases, and the tag of each. A tag of a visible memory is no alias."""
    public = dict(fetch(_PUBLIC_TAGS, {"tags": list(tags), "projects": as_array(projects)})) if tags else {}
    local = local_tags(tags, projects)
    found = {**local, **public} if projects is None else {**public, **local}
    used = known_terms("tag", found, projects)
    return {alias: tag for alias, tag in found.items() if alias not in used}


def aliases_of_tags(tags: Collection[str], projects: Projects) -> dict[str, list[str]]:
    """The aliases of tags; tags without any are left out."""
    found: dict[str, list[str]] = {}
    public = TagAlias.objects.filter(row_holds(projects), tag__in=tags).order_by("alias")
    for alias, tag in public.values_list("alias", "tag"):
        found.setdefault(tag, []).append(alias)
    for ref, texts in texts_of("tag", tags, projects).items():
        found[str(ref)] = sorted({*found.get(str(ref), ()), *texts.aliases})
    return found


def category_nodes(ids: Collection[int]) -> dict[int, CategoryNode]:
    """Categories by id, with the names along their paths: one statement for the nodes, one for their ancestors."""
    if not ids:
        return {}
    rows = list(Category.objects.filter(pk__in=set(ids)).values_list("id", "path", "name", "parent_id", "depth"))
    known = {path: name for _, path, name, _, _ in rows}
    above = {prefix for path in known for prefix in _ancestor_paths(path)} - set(known)
    if above:
        known.update(Category.objects.filter(path__in=above).values_list("path", "name"))
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
    rows = Category.objects.filter(parent_id__in=ids).order_by("id")
    for node in map(TreeNode._make, rows.values_list("id", "path", "name", "parent_id", "depth")):
        children.setdefault(node.parent_id or 0, []).append(node)
    return {parent: tuple(nodes) for parent, nodes in children.items()}


def ids_by_path(paths: Collection[str]) -> dict[str, int]:
    """Ids by slug path, current or public former."""
    found: dict[str, int] = {}
    for path, _, pk in sorted(fetch(_BY_PATH, {"paths": list(paths), "projects": []})) if paths else ():
        found.setdefault(path, pk)
    return found


def _paths_found(paths: Collection[str], projects: Projects) -> dict[str, list[int]]:
    """Ids by slug path, current or former."""
    rows = fetch(_BY_PATH, {"paths": list(paths), "projects": as_array(projects)})
    return _best("category", paths, rows, projects)


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
    rows = fetch(f"SELECT id, {columns} FROM {table} WHERE id = ANY(%(ids)s)", {"ids": list(ids)})
    return {row[0]: Term(*row) for row in rows}


# Columns that tell terms of one name apart.
_APART = {Category: ("path",), Entity: ("entity_type",)}


def similar_names(model: type[Category] | type[Concept] | type[Entity], name: str, limit: int) -> list[int]:
    """Ids of rows with a similar name, the most similar first. Callers show only what the viewer may see: the limit
    must leave room for that, or names that they may not see would replace others.
    """
    short = name.rsplit("/", 1)[-1] if model is Category else name.partition(":")[2] or name
    rows = (
        model._default_manager.filter(name__trigram_similar=short[:200])
        .annotate(similarity=TrigramSimilarity("name", short[:200]))
        .filter(similarity__gte=_SIMILAR)
        # Not by id alone: it shows who used a name first.
        .order_by(F("similarity").desc(), "name", *_APART.get(model, ()), "pk")
    )
    return list(rows.values_list("pk", flat=True)[:limit])
