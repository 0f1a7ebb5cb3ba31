"""Make or match categories, concepts and entities by name. `details` adds descriptions and the rest.

Names are compared by the database's own rules of case, and inserted with ON CONFLICT DO NOTHING and a second look-up,
so that two writers who add the same name at the same time end up with one row.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import connection

from access.viewer import Viewer
from categories.models import Category, FormerPath
from categories.paths import CategoryPath, parse_path, slug_of
from categories.queries import tags_now
from categories.searched_terms import CATEGORIES, CONCEPTS, ENTITIES, terms_refresh

EntityKey = tuple[str, str]
"""An entity's type and name."""

# Writers of memories share this lock; changes to the rows that links point to hold it exclusively.
VOCABULARY_LOCK = 0x766F636162


@dataclass(frozen=True, slots=True)
class ConceptKey:
    """A concept's name, and its type in case it has to be made."""

    name: str
    concept_type: str = ""


@dataclass(slots=True)
class Vocabulary:
    """The rows made or matched within one transaction, and the import batch that new rows belong to.

    The keys are names as records spell them. Discard it with its transaction: a rollback invalidates the ids.
    """

    viewer: Viewer
    batch_id: int | None = None
    categories: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Slug path -> the ids of the ancestors from the root, then its own."""
    lineages: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The same by category id."""
    concepts: dict[str, int] = field(default_factory=dict)
    entities: dict[EntityKey, int] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    """Tags looked up so far, and the current tag of each: mostly itself."""
    made: dict[str, int] = field(default_factory=dict)
    """The numbers of new rows by kind."""

    def add_category(self, path: str, lineage: tuple[int, ...]) -> None:
        self.categories[path] = lineage
        self.lineages[lineage[-1]] = lineage

    def count(self, kind: str, made: int) -> None:
        if made:
            self.made[kind] = self.made.get(kind, 0) + made

    def tags_of(self, tags: Sequence[str]) -> tuple[str, ...]:
        """The current names of tags, each once."""
        return tuple(dict.fromkeys(self.tags.get(tag, tag) for tag in tags))


def vocabulary_lock_shared() -> None:
    """Prevent changes to the vocabulary until the transaction ends. Call it before reading links."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [VOCABULARY_LOCK])


def tags_ensure(*, tags: Iterable[str], vocabulary: Vocabulary) -> None:
    """Look up the current names of tags."""
    unknown = set(tags) - vocabulary.tags.keys()
    vocabulary.tags.update({tag: tag for tag in unknown} | tags_now(unknown))


def categories_ensure(*, paths: Iterable[str], vocabulary: Vocabulary) -> None:
    """Make or match categories and their ancestors; adds every path to `vocabulary.categories` by slug path.

    A single name that is no path but an alias resolves to its category, and a former path to its current category.
    """
    parsed = filter(None, map(parse_path, paths))
    wanted = {path.path: path for path in parsed if path.path not in vocabulary.categories}
    if not wanted:
        return
    known = _category_ids(path for one in wanted.values() for path in one.paths)
    for path, now in _former_paths([one for path, one in wanted.items() if path not in known]).items():
        categories_ensure(paths=[now], vocabulary=vocabulary)
        vocabulary.add_category(path, vocabulary.categories[slug_of(now)])
        del wanted[path]
    names = _names_along(wanted.values())
    for path, category_id in _category_aliases(_single_names(wanted, known)).items():
        vocabulary.add_category(path, category_lineages([category_id])[category_id])
        del wanted[path]
        # The alias is not a node; paths that continue it are.
        if not any(other.startswith(f"{path}/") for other in names):
            del names[path]
    _categories_make(names, known, vocabulary)
    for one in wanted.values():
        vocabulary.add_category(one.path, tuple(known[path] for path in one.paths))


def _single_names(wanted: Mapping[str, CategoryPath], known: Collection[str]) -> list[tuple[str, str]]:
    """The name and slug path of each wanted root that does not exist: it may be an alias."""
    return [(one.names[0], path) for path, one in wanted.items() if len(one.names) == 1 and path not in known]


def _names_along(paths: Iterable[CategoryPath]) -> dict[str, tuple[str, str]]:
    """The parent's path and the name of each category along the paths, by its path, parents first."""
    names: dict[str, tuple[str, str]] = {}
    for parsed in paths:
        for parent, path, name in zip(("", *parsed.paths), parsed.paths, parsed.names, strict=False):
            names.setdefault(path, (parent, name))
    return names


def _categories_make(names: dict[str, tuple[str, str]], known: dict[str, int], vocabulary: Vocabulary) -> None:
    """Make missing categories level by level, since a child needs its parent's id."""
    missing = sorted((path.count("/"), path) for path in names if path not in known)
    for level in sorted({depth for depth, _ in missing}):
        rows = [path for depth, path in missing if depth == level]
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO categories_category"
                " (parent_id, name, path, depth, aliases, description, related_ids, batch_id, created_at)"
                " SELECT parent, name, path, %s, '{}', '', '{}', %s, now()"
                " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (parent, name, path)"
                " ON CONFLICT (path) DO NOTHING",
                [
                    level + 1,
                    vocabulary.batch_id,
                    [known[names[path][0]] if names[path][0] else None for path in rows],
                    [names[path][1] for path in rows],
                    rows,
                ],
            )
            vocabulary.count("categories", cursor.rowcount)
        made = _category_ids(rows)
        terms_refresh(CATEGORIES, made.values())
        known.update(made)


def _former_paths(paths: Sequence[CategoryPath]) -> dict[str, str]:
    """Written paths for unknown paths that lead through the former path of a category."""
    if not paths:
        return {}
    steps = {step for path in paths for step in path.paths}
    now = dict(FormerPath.objects.filter(path__in=steps).values_list("path", "category__path"))
    current: dict[str, str] = {}
    for path in paths:
        for depth in range(len(path.paths), 0, -1):
            if (there := now.get(path.paths[depth - 1])) is not None:
                current[path.path] = "/".join((there, *path.names[depth:]))
                break
    return current


def _category_ids(paths: Iterable[str]) -> dict[str, int]:
    """Look up `category_path_unique`."""
    with connection.cursor() as cursor:
        # One array: thousands of parameters would take longer to bind than to look up.
        cursor.execute("SELECT path, id FROM categories_category WHERE path = ANY(%s)", [list(paths)])
        return dict(cursor.fetchall())


def _category_aliases(names: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Slug path -> the category with the name as an alias; the oldest if there are several."""
    if not names:
        return {}
    with connection.cursor() as cursor:
        # Few categories have aliases, so a scan of all is fast.
        cursor.execute(
            "SELECT wanted.path, min(category.id)"
            " FROM categories_category category, unnest(category.aliases) alias,"
            " unnest(%s::text[], %s::text[]) AS wanted (name, path)"
            " WHERE category.aliases <> '{}' AND lower(alias) = lower(wanted.name) GROUP BY 1",
            [[name for name, _ in names], [path for _, path in names]],
        )
        return dict(cursor.fetchall())


def category_lineages(category_ids: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Category id -> the ids of its ancestors from the root, then its own."""
    paths = dict(Category.objects.filter(pk__in=set(category_ids)).values_list("id", "path"))
    if not paths:
        return {}
    steps = {path: [path[:at] for at in _joints(path)] for path in paths.values()}
    ids = _category_ids({step for chain in steps.values() for step in chain})
    return {category_id: tuple(ids[step] for step in steps[path]) for category_id, path in paths.items()}


def _joints(path: str) -> list[int]:
    return [at for at, character in enumerate(path) if character == "/"] + [len(path)]


def concepts_ensure(*, concepts: Iterable[ConceptKey], vocabulary: Vocabulary) -> None:
    """Make or match concepts by name or alias; adds every name to `vocabulary.concepts`."""
    wanted = {concept.name: concept for concept in concepts if concept.name not in vocabulary.concepts}
    if not wanted:
        return
    vocabulary.concepts.update(_concept_ids(list(wanted)))
    if not (missing := sorted((name for name in wanted if name not in vocabulary.concepts), key=_lock_order)):
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO categories_concept (name, concept_type, aliases, description, broader_ids, narrower_ids,"
            " related_ids, weight, batch_id, created_at)"
            " SELECT name, type, '{}', '', '{}', '{}', '{}', NULL, %s, now()"
            " FROM unnest(%s::text[], %s::text[]) AS made (name, type) ON CONFLICT (lower(name)) DO NOTHING",
            [vocabulary.batch_id, missing, [wanted[name].concept_type for name in missing]],
        )
        vocabulary.count("concepts", cursor.rowcount)
    made = _concept_ids(missing)
    terms_refresh(CONCEPTS, made.values())
    vocabulary.concepts.update(made)


def _concept_ids(names: list[str]) -> dict[str, int]:
    """Look up `concept_name_unique`, then the few aliases."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT wanted.name, concept.id FROM unnest(%s::text[]) AS wanted (name)"
            " JOIN categories_concept concept ON lower(concept.name) = lower(wanted.name)",
            [names],
        )
        found: dict[str, int] = dict(cursor.fetchall())
        if rest := [name for name in names if name not in found]:
            cursor.execute(
                "SELECT wanted.name, min(concept.id)"
                " FROM categories_concept concept, unnest(concept.aliases) alias, unnest(%s::text[]) AS wanted (name)"
                " WHERE concept.aliases <> '{}' AND lower(alias) = lower(wanted.name) GROUP BY 1",
                [rest],
            )
            found.update(cursor.fetchall())
    return found


def entities_ensure(*, entities: Iterable[EntityKey], vocabulary: Vocabulary) -> None:
    """Make or match entities by name or alias within their type; adds every key to `vocabulary.entities`."""
    wanted = {entity for entity in entities if entity not in vocabulary.entities}
    if not wanted:
        return
    vocabulary.entities.update(_entity_ids(list(wanted)))
    missing = sorted(
        (entity for entity in wanted if entity not in vocabulary.entities),
        key=lambda entity: (entity[0], _lock_order(entity[1])),
    )
    if not missing:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO categories_entity (name, entity_type, aliases, description, batch_id, created_at)"
            " SELECT name, type, '{}', '', %s, now() FROM unnest(%s::text[], %s::text[]) AS made (type, name)"
            " ON CONFLICT (lower(name), entity_type) DO NOTHING",
            [vocabulary.batch_id, [kind for kind, _ in missing], [name for _, name in missing]],
        )
        vocabulary.count("entities", cursor.rowcount)
    made = _entity_ids(missing)
    terms_refresh(ENTITIES, made.values())
    vocabulary.entities.update(made)


def _entity_ids(entities: list[EntityKey]) -> dict[EntityKey, int]:
    """Look up `entity_name_type_unique`, then the few aliases."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT wanted.type, wanted.name, entity.id FROM unnest(%s::text[], %s::text[]) AS wanted (type, name)"
            " JOIN categories_entity entity"
            " ON lower(entity.name) = lower(wanted.name) AND entity.entity_type = wanted.type",
            [[kind for kind, _ in entities], [name for _, name in entities]],
        )
        found: dict[EntityKey, int] = {(kind, name): entity_id for kind, name, entity_id in cursor.fetchall()}
        if rest := [entity for entity in entities if entity not in found]:
            cursor.execute(
                "SELECT wanted.type, wanted.name, min(entity.id)"
                " FROM categories_entity entity, unnest(entity.aliases) alias,"
                " unnest(%s::text[], %s::text[]) AS wanted (type, name)"
                # An entity that was merged into another type is an alias `type:name` there.
                " WHERE entity.aliases <> '{}'"
                " AND (lower(alias) = lower(wanted.name) AND entity.entity_type = wanted.type"
                " OR lower(alias) = lower(wanted.type || ':' || wanted.name)) GROUP BY 1, 2",
                [[kind for kind, _ in rest], [name for _, name in rest]],
            )
            found.update({(kind, name): entity_id for kind, name, entity_id in cursor.fetchall()})
    return found


def _lock_order(name: str) -> tuple[str, str]:
    """The order of inserts: two writers of the same names lock in one order and cannot deadlock."""
    return (name.lower(), name)
