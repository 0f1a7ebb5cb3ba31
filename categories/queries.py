"""Reads of the vocabulary: names to ids, ids to labels, the part of the tree that a page shows.

Names are looked up without regard to case, by path or name first, then by id, then by alias. A fixed number of
statements each, whatever the number of names.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from django.contrib.postgres.search import TrigramSimilarity
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from categories.models import Category, Concept, Entity
from categories.paths import PathError, parse_path

_SIMILAR = 0.3


@dataclass(frozen=True, slots=True)
class CategoryNode:
    """A category as lists and trees show it. `names` are those along the path, the root first."""

    id: int
    path: str
    name: str
    names: tuple[str, ...]
    parent_id: int | None
    depth: int


class TreeNode(NamedTuple):
    """A category as a tree draws it. Cheap to make: a sidebar reads hundreds to show dozens."""

    id: int
    path: str
    name: str
    parent_id: int | None
    depth: int


@dataclass(frozen=True, slots=True)
class Term:
    """A concept or entity as lists show it: `value` is what a URL says."""

    id: int
    value: str
    label: str
    type: str = ""


class _LowerAliases(models.Func):
    """The aliases of a row in lower case, as an array to overlap with."""

    template = "ARRAY(SELECT lower(alias) FROM unnest(%(expressions)s) AS alias)"
    output_field = models.JSONField()


def _folded(names: Iterable[str]) -> dict[str, list[str]]:
    folded: dict[str, list[str]] = {}
    for name in names:
        folded.setdefault(name.lower(), []).append(name)
    return folded


def _ids(names: Iterable[str]) -> list[int]:
    # An id is a bigint; a longer number is a name that nobody has.
    return [int(name) for name in names if name.isascii() and name.isdecimal() and len(name) <= 18]


def _aliased(queryset: models.QuerySet[models.Model], lowered: list[str]) -> models.QuerySet[models.Model]:
    return queryset.extra(where=["ARRAY(SELECT lower(a) FROM unnest(aliases) AS a) && %s::text[]"], params=[lowered])


def _slug_path(name: str) -> str:
    """The slug path of a written path; empty, which no category has, for what cannot be one."""
    try:
        parsed = parse_path(name)
    except PathError:
        return ""
    return parsed.path if parsed else ""


def resolve_categories(names: Collection[str]) -> dict[str, tuple[CategoryNode, ...]]:
    """The categories that each name means: by slug path, else by name, id or alias. A name unknown is left out."""
    if not names:
        return {}
    paths = {name: _slug_path(name) for name in names}
    found: dict[str, tuple[Category, ...]] = {}
    by_path = {category.path: category for category in Category.objects.filter(path__in=set(paths.values()))}
    for name, path in paths.items():
        if path in by_path:
            found[name] = (by_path[path],)
    left = [name for name in names if name not in found]
    if left:
        lowered = _folded(left)
        ids = _ids(left)
        candidates: list[Category] = list(
            Category.objects.annotate(lower=Lower("name")).filter(Q(lower__in=lowered) | Q(pk__in=ids))
        )
        aliased = list(_aliased(Category.objects.all(), list(lowered)))
        for name in left:
            matches = [c for c in candidates if c.name.lower() == name.lower()]
            matches = matches or [c for c in candidates if str(c.pk) == name]
            matches = matches or [
                c for c in aliased if isinstance(c, Category) and name.lower() in map(str.lower, c.aliases)
            ]
            if matches:
                found[name] = tuple(matches)
    nodes = category_nodes([category.pk for categories in found.values() for category in categories])
    return {name: tuple(nodes[category.pk] for category in categories) for name, categories in found.items()}


def resolve_concepts(names: Collection[str]) -> dict[str, tuple[Term, ...]]:
    """The concepts that each name means: by name, else by id or alias."""
    if not names:
        return {}
    lowered = _folded(names)
    rows: list[Concept] = list(
        Concept.objects.annotate(lower=Lower("name")).filter(Q(lower__in=lowered) | Q(pk__in=_ids(names)))
    )
    found = {name: [c for c in rows if c.name.lower() == name.lower()] for name in names}
    found = {name: hits or [c for c in rows if str(c.pk) == name] for name, hits in found.items()}
    left = [name for name, hits in found.items() if not hits]
    if left:
        aliased = list(_aliased(Concept.objects.all(), [name.lower() for name in left]))
        for name in left:
            found[name] = [c for c in aliased if isinstance(c, Concept) and name.lower() in map(str.lower, c.aliases)]
    return {name: tuple(map(_concept_term, hits)) for name, hits in found.items() if hits}


def resolve_entities(names: Collection[str]) -> dict[str, tuple[Term, ...]]:
    """The entities that each name means: `type:name`, or a name whatever its type, else an id or an alias."""
    if not names:
        return {}
    split = {name: name.partition(":") for name in names}
    lowered = [*_folded(names), *(rest.lower() for _, colon, rest in split.values() if colon)]
    rows: list[Entity] = list(
        Entity.objects.annotate(lower=Lower("name")).filter(Q(lower__in=lowered) | Q(pk__in=_ids(names)))
    )
    found: dict[str, list[Entity]] = {}
    for name in names:
        kind, colon, rest = split[name]
        hits = [e for e in rows if colon and e.entity_type == kind.lower() and e.name.lower() == rest.lower()]
        hits = hits or [e for e in rows if e.name.lower() == name.lower()]
        found[name] = hits or [e for e in rows if str(e.pk) == name]
    left = [name for name, hits in found.items() if not hits]
    if left:
        aliased = list(_aliased(Entity.objects.all(), [name.lower() for name in left]))
        for name in left:
            found[name] = [e for e in aliased if isinstance(e, Entity) and name.lower() in map(str.lower, e.aliases)]
    return {name: tuple(map(_entity_term, hits)) for name, hits in found.items() if hits}


def category_nodes(ids: Collection[int]) -> dict[int, CategoryNode]:
    """Categories by id, with the names along their paths: one statement for the nodes, one for their ancestors."""
    if not ids:
        return {}
    rows = list(Category.objects.filter(pk__in=set(ids)).only("id", "path", "name", "parent_id", "depth"))
    return {node.id: node for node in _with_names(rows)}


def category_tree_nodes(open_ids: Collection[int], parent_id: int | None = None) -> list[TreeNode]:
    """The part of the tree that a page draws: two levels and the children of open nodes; or one node's children."""
    if parent_id is not None:
        wanted = Q(parent_id=parent_id)
    else:
        wanted = Q(depth__lte=2) | Q(parent_id__in=list(open_ids)) | Q(pk__in=list(open_ids))
    rows = Category.objects.filter(wanted).order_by().values_list("id", "path", "name", "parent_id", "depth")
    return [TreeNode(*row) for row in rows]


def _with_names(rows: list[Category]) -> list[CategoryNode]:
    known = {category.path: category.name for category in rows}
    prefixes = {prefix for category in rows for prefix in _ancestor_paths(category.path)} - set(known)
    if prefixes:
        known |= dict(Category.objects.filter(path__in=prefixes).values_list("path", "name"))
    return [
        CategoryNode(
            id=category.pk,
            path=category.path,
            name=category.name,
            names=(*(known.get(path, path) for path in _ancestor_paths(category.path)), category.name),
            parent_id=category.parent_id,
            depth=category.depth,
        )
        for category in rows
    ]


def _ancestor_paths(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:n]) for n in range(1, len(parts))]


def ancestor_ids(nodes: Iterable[CategoryNode]) -> set[int]:
    """The ids above the given nodes."""
    paths = {path for node in nodes for path in _ancestor_paths(node.path)}
    return set(Category.objects.filter(path__in=paths).values_list("pk", flat=True)) if paths else set()


def children_exist(ids: Collection[int]) -> set[int]:
    """Those of the given categories that have children."""
    if not ids:
        return set()
    parents = Category.objects.filter(parent_id__in=list(ids)).order_by().values_list("parent_id", flat=True)
    return {pk for pk in parents.distinct() if pk is not None}


def concept_terms(ids: Collection[int]) -> dict[int, Term]:
    """Concepts by id."""
    return {c.pk: _concept_term(c) for c in Concept.objects.filter(pk__in=list(ids))} if ids else {}


def entity_terms(ids: Collection[int]) -> dict[int, Term]:
    """Entities by id."""
    return {e.pk: _entity_term(e) for e in Entity.objects.filter(pk__in=list(ids))} if ids else {}


def _concept_term(concept: Concept) -> Term:
    return Term(concept.pk, concept.name, concept.name, concept.concept_type)


def _entity_term(entity: Entity) -> Term:
    return Term(entity.pk, f"{entity.entity_type}:{entity.name}", entity.name, entity.entity_type)


def similar_names(model: type[Category] | type[Concept] | type[Entity], name: str, limit: int = 10) -> list[int]:
    """Ids of what is spelt much like a name, the nearest first. Callers show only what the viewer may see."""
    short = name.rsplit("/", 1)[-1] if model is Category else name.partition(":")[2] or name
    rows = (
        model._default_manager.filter(name__trigram_similar=short[:200])
        .annotate(similarity=TrigramSimilarity("name", short[:200]))
        .filter(similarity__gte=_SIMILAR)
        .order_by(F("similarity").desc(), "pk")
    )
    return list(rows.values_list("pk", flat=True)[:limit])
