"""Make or match categories, concepts and entities by name. `details` adds descriptions and the rest.

Names are compared by the database's own rules of case, and inserted with ON CONFLICT DO NOTHING and a second look-up,
so that two writers who add the same name at the same time end up with one row.
"""

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from categories.models import Category, FormerPath, TagAlias
from categories.paths import CategoryPath, fold_name, parse_path, slug_of, spellings
from categories.searched_terms import CATEGORIES, CONCEPTS, ENTITIES, SearchableTable, terms_refresh
from categories.texts import READABLE_ALIASES, LocalName, Projects, as_array, known_terms, local_names, row_holds
from cluster import is_distributed, take_turn
from web.errors import Refusal
from web.sql import execute, fetch

EntityKey = tuple[str, str]
"""An entity's type and name."""

# Writers of memories share this lock; changes to the rows that links point to hold it exclusively.
VOCABULARY_LOCK = 0x766F636162
# For a writer in a cluster, in seconds.
LONGEST_WAIT = 10.0


class VocabularyBusyError(Refusal):
    """Another writer in the cluster took too long, usually an import."""

    status = 503
    code = "busy"
    message = "Memories are being written, perhaps by an import. Nothing was changed."
    suggestion = "Try again in a moment."
    headers = {"Retry-After": "5"}


class TooManyNewNamesError(Refusal):
    """A memory would add too many names to the vocabulary. The number does not show: hidden names would count."""

    code = "too_many_new_names"
    suggestion = (
        "Use names that exist, or fewer. The setting MAX_NEW_NAMES is the limit. Imports with all rights have none."
    )

    def __init__(self, most: int) -> None:
        super().__init__(f"More than {most} of its tags, categories, concepts and entities would be new.")


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
    spelled: dict[str, str] = field(default_factory=dict)
    """The spelling of each tag by the key of its equals."""
    made: dict[str, int] = field(default_factory=dict)
    """The numbers of new rows by kind."""
    most_new: int | None = None
    """The number of names that may be new; None for any number."""
    project_id: int | None = None
    """The project of the memories whose names are resolved; None for records that belong to no project."""
    local: dict[tuple[str, int, Hashable], Any] = field(default_factory=dict)
    """Terms that a project has under other names: kind, project and name as above -> the values as above."""

    def add_category(self, path: str, lineage: tuple[int, ...]) -> None:
        self.categories[path] = lineage
        self.lineages[lineage[-1]] = lineage

    def count(self, kind: str, made: int) -> None:
        """Add new rows. They are counted by RETURNING: a cluster's row count of an INSERT ... SELECT into a table that
        every server has includes the rows left out by ON CONFLICT.
        """
        if made:
            self.made[kind] = self.made.get(kind, 0) + made

    def category_of(self, path: str, project_id: int) -> int:
        """The category of a slug path in a project."""
        lineage = self.local.get(("category", project_id, path)) or self.categories[path]
        return int(lineage[-1])

    def concept_of(self, name: str, project_id: int) -> int:
        return self.local.get(("concept", project_id, name)) or self.concepts[name]

    def entity_of(self, key: EntityKey, project_id: int) -> int:
        return self.local.get(("entity", project_id, key)) or self.entities[key]

    def tags_of(self, tags: Sequence[str], project_id: int) -> tuple[str, ...]:
        """The current names of tags in a project, each once."""
        return tuple(dict.fromkeys(self.local.get(("tag", project_id, tag)) or self.tags.get(tag, tag) for tag in tags))

    def refuse_many(self, new: int) -> None:
        """Raise TooManyNewNamesError if more names are new than may be."""
        if self.most_new is not None and new > self.most_new:
            raise TooManyNewNamesError(self.most_new)

    @property
    def is_limited(self) -> bool:
        """Whether the writer sees some projects only: a name may then belong to a term that they may not have."""
        return self.viewer.project_ids is not None

    def known(self, kind: str, refs: Iterable[int | str]) -> set[Any]:
        """The terms that the writer may have from the vocabulary: those of a memory that they see, or of the project
        that they write to. All of them for viewers of all projects.
        """
        if not self.is_limited:
            return set(refs)
        return known_terms(kind, refs, self.readers or frozenset())

    @property
    def readers(self) -> Projects:
        """The projects whose texts the writer may use: those that they see, and the one that they write to."""
        visible = self.viewer.project_ids
        return None if visible is None else visible | ({self.project_id} if self.project_id is not None else set())


def vocabulary_lock_shared(*, seconds: float = LONGEST_WAIT) -> None:
    """Prevent changes to the vocabulary until the transaction ends. Call it before reading links.

    In a cluster writers go one at a time, and a wait of more than some seconds raises VocabularyBusyError: each server
    has the vocabulary, lets one writer change a table of it, and knows no limit for the wait of others.
    """
    if not writers_turn(seconds=seconds):
        execute("SELECT pg_advisory_xact_lock_shared(%s)", [VOCABULARY_LOCK])


def vocabulary_lock(*, seconds: float = math.inf) -> None:
    """Exclude all other writers of the vocabulary and of memories until the transaction ends.

    In a cluster a wait of more than some seconds raises VocabularyBusyError; elsewhere set a `lock_timeout`.
    """
    if not writers_turn(seconds=seconds):
        execute("SELECT pg_advisory_xact_lock(%s)", [VOCABULARY_LOCK])


def writers_turn(*, seconds: float = math.inf) -> bool:
    """In a cluster, wait until no other writer is at work, until the transaction ends, and return True; on one machine,
    do nothing.

    Call it before the first statement that writes rows of memories besides their services: vectors, places on maps,
    recalls. Such a statement locks the memories and all tables that they refer to, one server after the other, and
    would meet a writer that has locked the next one.
    """
    if not is_distributed():
        return False
    if not take_turn(VOCABULARY_LOCK, seconds):
        raise VocabularyBusyError
    return True


def local_names_match(
    *,
    tags: Collection[str],
    paths: Collection[str],
    concepts: Collection[str],
    entities: Collection[EntityKey],
    vocabulary: Vocabulary,
) -> None:
    """Look up the names that the project of the vocabulary has for other terms; adds these to `vocabulary.local`."""
    project_id = vocabulary.project_id
    if project_id is None:
        return
    parsed = [path for path in map(parse_path, paths) if path]
    texts = {
        *tags,
        *concepts,
        *(text for kind, name in entities for text in (name, f"{kind}:{name}")),
        *(step for path in parsed for step in (*path.paths, *path.names[:1])),
    }
    names = local_names(texts, project_id)
    if not names:
        return
    for kind, own in (("tag", tags), ("concept", concepts)):
        for name in own:
            for one in names.get(name, ()):
                if one.kind == kind:
                    vocabulary.local[kind, project_id, name] = one.tag or one.term_id
    for key in entities:
        exact = [one for one in names.get(key[1], ()) if one.kind == "entity" and one.entity_type == key[0]]
        # An entity that was merged into another type is an alias `type:name` there.
        for one in (*(one for one in names.get(":".join(key), ()) if one.kind == "entity"), *exact):
            vocabulary.local["entity", project_id, key] = one.term_id
    for path in parsed:
        _local_path_match(path, names, vocabulary, project_id)


def _local_path_match(
    path: CategoryPath, names: Mapping[str, Sequence[LocalName]], vocabulary: Vocabulary, project_id: int
) -> None:
    """Match a path that is a local former path, or continues one, or is a single name that is a local alias."""
    key = ("category", project_id, path.path)
    for depth in range(len(path.paths), 0, -1):
        former = [one for one in names.get(path.paths[depth - 1], ()) if one.role == "path"]
        if former and (now := Category.objects.filter(pk=former[-1].term_id).values_list("path", flat=True).first()):
            written = "/".join((now, *path.names[depth:]))
            categories_ensure(paths=[written], vocabulary=vocabulary)
            vocabulary.local[key] = vocabulary.categories[slug_of(written)]
            return
    aliases = [one for one in names.get(path.names[0], ()) if one.kind == "category" and one.role == "alias"]
    if len(path.names) == 1 and aliases and (lineage := category_lineages([aliases[-1].term_id])):
        vocabulary.local[key] = lineage[aliases[-1].term_id]
        vocabulary.lineages.update(lineage)


def tags_ensure(*, tags: Iterable[str], vocabulary: Vocabulary) -> None:
    """Look up the current names of tags. A new tag takes the spelling of an equal one."""
    unknown = set(tags) - vocabulary.tags.keys()
    spelled = {tag: spellings(tag) for tag in unknown}
    several = {form for forms in spelled.values() if len(forms) > 1 for form in forms}
    used = known_terms("tag", several, vocabulary.readers)
    for tag in sorted(unknown):
        used_form = next((form for form in spelled[tag] if form in used), tag)
        vocabulary.spelled.setdefault(fold_name(tag), used_form)
    same = {tag: tag if tag in used else vocabulary.spelled[fold_name(tag)] for tag in unknown}
    aliases = TagAlias.objects.filter(row_holds(vocabulary.readers), alias__in={*unknown, *same.values()})
    now = dict(aliases.values_list("alias", "tag"))
    known = vocabulary.known("tag", now.values()) if now else set()
    current = {alias: tag for alias, tag in now.items() if tag in known}
    vocabulary.tags.update({tag: current.get(tag) or current.get(same[tag], same[tag]) for tag in unknown})


def tags_written(tags: Sequence[str], project_id: int, viewer: Viewer) -> tuple[str, ...]:
    """Tags as a write of this viewer to a project stores them, each once."""
    vocabulary = Vocabulary(viewer, project_id=project_id)
    local_names_match(tags=tags, paths=(), concepts=(), entities=(), vocabulary=vocabulary)
    tags_ensure(tags=tags, vocabulary=vocabulary)
    return vocabulary.tags_of(tags, project_id)


def categories_ensure(*, paths: Iterable[str], vocabulary: Vocabulary) -> None:
    """Make or match categories and their ancestors; adds every path to `vocabulary.categories` by slug path.

    A single name that is no path but an alias resolves to its category, and a former path to its current category.
    """
    parsed = filter(None, map(parse_path, paths))
    wanted = {path.path: path for path in parsed if path.path not in vocabulary.categories}
    if not wanted:
        return
    known = _category_ids(path for one in wanted.values() for path in one.paths)
    others = wanted.values() if vocabulary.is_limited else [one for path, one in wanted.items() if path not in known]
    former = _former_paths(list(others), vocabulary)
    aliases = _category_aliases(_single_names(others), vocabulary)
    settled = vocabulary.known("category", {known[path] for path in {**former, **aliases} if path in known})
    for path, now in former.items():
        if known.get(path) in settled:
            continue
        categories_ensure(paths=[now], vocabulary=vocabulary)
        vocabulary.add_category(path, vocabulary.categories[slug_of(now)])
        del wanted[path]
    names = _names_along(wanted.values())
    for path, category_id in aliases.items():
        if path not in wanted or known.get(path) in settled:
            continue
        vocabulary.add_category(path, category_lineages([category_id])[category_id])
        del wanted[path]
        # The alias is not a node; paths that continue it are.
        if not any(other.startswith(f"{path}/") for other in names):
            del names[path]
    _categories_make(names, known, vocabulary)
    for one in wanted.values():
        vocabulary.add_category(one.path, tuple(known[path] for path in one.paths))


def _single_names(paths: Iterable[CategoryPath]) -> list[tuple[str, str]]:
    """The name and slug path of each root: it may be an alias."""
    return [(one.names[0], one.path) for one in paths if len(one.names) == 1]


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
    vocabulary.refuse_many(len(missing))
    for level in sorted({depth for depth, _ in missing}):
        rows = [path for depth, path in missing if depth == level]
        made_rows = fetch(
            "INSERT INTO categories_category"
            " (parent_id, name, path, depth, aliases, description, related_ids, batch_id, created_at)"
            " SELECT parent, name, path, %s, '{}', '', '{}', %s, now()"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (parent, name, path)"
            " ON CONFLICT (path) DO NOTHING RETURNING id",
            [
                level + 1,
                vocabulary.batch_id,
                [known[names[path][0]] if names[path][0] else None for path in rows],
                [names[path][1] for path in rows],
                rows,
            ],
        )
        vocabulary.count("categories", len(made_rows))
        made = _category_ids(rows)
        terms_refresh(CATEGORIES, made.values())
        known.update(made)


def _former_paths(paths: Sequence[CategoryPath], vocabulary: Vocabulary) -> dict[str, str]:
    """Written paths for unknown paths that lead through the former path of a category."""
    if not paths:
        return {}
    steps = {step for path in paths for step in path.paths}
    former = FormerPath.objects.filter(row_holds(vocabulary.readers), path__in=steps)
    rows = list(former.values_list("path", "category_id", "category__path"))
    known = vocabulary.known("category", {category_id for _, category_id, _ in rows})
    now = {path: there for path, category_id, there in rows if category_id in known}
    current: dict[str, str] = {}
    for path in paths:
        for depth in range(len(path.paths), 0, -1):
            if (there := now.get(path.paths[depth - 1])) is not None:
                current[path.path] = "/".join((there, *path.names[depth:]))
                break
    return current


def _category_ids(paths: Iterable[str]) -> dict[str, int]:
    """Look up `category_path_unique`."""
    # One array: thousands of parameters would take longer to bind than to look up.
    return dict(fetch("SELECT path, id FROM categories_category WHERE path = ANY(%s)", [list(paths)]))


def _category_aliases(names: Sequence[tuple[str, str]], vocabulary: Vocabulary) -> dict[str, int]:
    """Slug path -> the category with the name as an alias; the oldest if there are several."""
    if not names:
        return {}
    # Few categories have aliases, so a scan of all is fast.
    wanted = {"names": [name for name, _ in names], "paths": [path for _, path in names]}
    rows = fetch(
        "SELECT wanted.path, category.id"
        f" FROM categories_category category, unnest({_aliases('category', vocabulary)}) alias,"
        " unnest(%(names)s::text[], %(paths)s::text[]) AS wanted (name, path)"
        " WHERE category.aliases <> '{}' AND lower(alias) = lower(wanted.name) ORDER BY 2 DESC",
        {**wanted, "projects": as_array(vocabulary.readers)},
    )
    return _of_known("category", rows, vocabulary, {})


def _aliases(row: str, vocabulary: Vocabulary) -> str:
    """SQL of the aliases of a row that the writer may use."""
    return READABLE_ALIASES.format(row=row) if vocabulary.is_limited else f"{row}.aliases"


def _of_known(
    kind: str, rows: Sequence[tuple[Any, int]], vocabulary: Vocabulary, exact: Mapping[Any, int]
) -> dict[Any, int]:
    """The term of each alias that the writer may have, unless they may have the one of this name; the last row wins."""
    known = (
        vocabulary.known(kind, {ref for name, pk in rows for ref in (pk, exact.get(name)) if ref}) if rows else set()
    )
    return {name: pk for name, pk in rows if pk in known and exact.get(name) not in known}


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
    wanted = {("", key.name): key.concept_type for key in concepts if key.name not in vocabulary.concepts}
    found = _terms_ensure(_CONCEPTS, wanted, vocabulary)
    vocabulary.concepts.update({name: concept_id for (_, name), concept_id in found.items()})


def entities_ensure(*, entities: Iterable[EntityKey], vocabulary: Vocabulary) -> None:
    """Make or match entities by name or alias within their type; adds every key to `vocabulary.entities`."""
    wanted = {key: key[0] for key in entities if key not in vocabulary.entities}
    vocabulary.entities.update(_terms_ensure(_ENTITIES, wanted, vocabulary))


@dataclass(frozen=True, slots=True)
class _NamedTerms:
    """How terms with a unique name are found and made. Where types do not count, that of a key is empty."""

    terms: SearchableTable
    same_name: str
    same_alias: str
    make: str
    """Takes the batch, the types and the names. The names that another writer has made meanwhile are left out."""


_CONCEPTS = _NamedTerms(
    terms=CONCEPTS,
    same_name="lower(term.name) = lower(wanted.form)",
    same_alias="lower(alias) = lower(wanted.form)",
    make=(
        "INSERT INTO categories_concept (name, concept_type, aliases, description, broader_ids, narrower_ids,"
        " related_ids, weight, batch_id, created_at)"
        " SELECT name, type, '{}', '', '{}', '{}', '{}', NULL, %s, now()"
        " FROM unnest(%s::text[], %s::text[]) AS made (type, name) ON CONFLICT (lower(name)) DO NOTHING RETURNING id"
    ),
)
_ENTITIES = _NamedTerms(
    terms=ENTITIES,
    same_name="lower(term.name) = lower(wanted.form) AND term.entity_type = wanted.type",
    # An entity that was merged into another type is an alias `type:name` there.
    same_alias=(
        "(lower(alias) = lower(wanted.form) AND term.entity_type = wanted.type"
        " OR lower(alias) = lower(wanted.type || ':' || wanted.form))"
    ),
    make=(
        "INSERT INTO categories_entity (name, entity_type, aliases, description, batch_id, created_at)"
        " SELECT name, type, '{}', '', %s, now() FROM unnest(%s::text[], %s::text[]) AS made (type, name)"
        " ON CONFLICT (lower(name), entity_type) DO NOTHING RETURNING id"
    ),
)


def _terms_ensure(named: _NamedTerms, wanted: Mapping[EntityKey, str], vocabulary: Vocabulary) -> dict[EntityKey, int]:
    """The ids of keys; those that are missing are made, each with its type in `wanted`."""
    if not wanted:
        return {}
    found = _term_ids(named, wanted, vocabulary)
    # Two writers of the same names lock in one order and cannot deadlock.
    missing = sorted(wanted.keys() - found.keys(), key=lambda key: (key[0], key[1].lower(), key[1]))
    if not missing:
        return found
    first: dict[EntityKey, EntityKey] = {}
    equals = {key: first.setdefault((key[0], fold_name(key[1])), key) for key in missing}
    new = list(first.values())
    vocabulary.refuse_many(len(new))
    made_rows = fetch(named.make, [vocabulary.batch_id, [wanted[key] for key in new], [name for _, name in new]])
    vocabulary.count(VOCABULARIES[named.terms.kind].plural, len(made_rows))
    made = _term_ids(named, new, None)
    terms_refresh(named.terms, made.values())
    return found | {key: made[equal] for key, equal in equals.items()}


# The forms under which a name may be stored; the first has the place 0.
_FORMS = (
    "unnest(%(types)s::text[], %(names)s::text[], %(forms)s::text[], %(places)s::int[])"
    " AS wanted (type, name, form, place)"
)


def _term_ids(named: _NamedTerms, keys: Iterable[EntityKey], vocabulary: Vocabulary | None) -> dict[EntityKey, int]:
    """Look up the unique index on the names, then, with a vocabulary, the few aliases."""
    table = named.terms.table
    rows = fetch(
        f"SELECT wanted.type, wanted.name, term.id FROM {_FORMS} JOIN {table} term ON {named.same_name}"
        " ORDER BY wanted.place DESC",
        _forms(keys),
    )
    found: dict[EntityKey, int] = {(kind, name): term_id for kind, name, term_id in rows}
    if vocabulary is None:
        return found
    if rest := [key for key in keys if vocabulary.is_limited or key not in found]:
        rows = fetch(
            f"SELECT wanted.type, wanted.name, term.id FROM {table} term,"
            f" unnest({_aliases('term', vocabulary)}) alias, {_FORMS}"
            f" WHERE term.aliases <> '{{}}' AND {named.same_alias} ORDER BY 3 DESC",
            {**_forms(rest), "projects": as_array(vocabulary.readers)},
        )
        aliased = [((kind, name), term_id) for kind, name, term_id in rows]
        found |= _of_known(named.terms.kind, aliased, vocabulary, found)
    return found


def _forms(keys: Iterable[EntityKey]) -> dict[str, list[Any]]:
    """The parameters of `_FORMS`."""
    rows = [(kind, name, form, at) for kind, name in keys for at, form in enumerate(spellings(name))]
    return {key: [row[at] for row in rows] for at, key in enumerate(("types", "names", "forms", "places"))}
