"""The texts of terms, and who reads them: docs/decisions/7-local-names.md.

Local texts are names and descriptions that hold in some projects only. A text in the columns of a term, an alias or its
description, holds in the projects that used the term when a curator of all projects wrote it; their members alone read
it and resolve it. Without such projects it is public. Viewers of all projects read every text.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from django.db.models import Q

from categories.models import LocalText
from cluster import is_distributed
from web.sql import fetch, fetch_column

Projects = frozenset[int] | None
"""The projects whose local texts are read: those of a viewer, or None for all."""
NO_PROJECT: frozenset[int] = frozenset()
"""For reads of public text only."""

# The column of memories with the terms of each kind, those of descendants included, and the type of an element.
COLUMNS = {
    "category": ("category_path_ids", "integer"),
    "concept": ("concept_ids", "integer"),
    "entity": ("entity_ids", "integer"),
    "tag": ("tags", "text"),
}
HOLDS = "(%(projects)s::bigint[] IS NULL OR {alias}.project_ids && %(projects)s::bigint[])"
"""The condition that a local text may be read; its parameter is `as_array` of the projects."""
_TAGS = f"""
SELECT text, tag FROM categories_localtext own WHERE kind = 'tag' AND role <> 'description'
AND lower(text) = ANY(%(tags)s) AND {HOLDS.format(alias="own")} ORDER BY id DESC"""
_OF_TERMS = f"""
SELECT coalesce(term_id::text, tag), role, text FROM categories_localtext own
WHERE kind = %(kind)s AND (term_id = ANY(%(ids)s::bigint[]) OR (tag <> '' AND tag = ANY(%(tags)s)))
AND {HOLDS.format(alias="own")} ORDER BY id"""
# Uses the lower-case index on names.
_FOR_WRITING = """
SELECT wanted.text, own.kind, own.role, own.term_id, own.tag, entity.entity_type
FROM unnest(%(texts)s::text[]) AS wanted (text)
JOIN categories_localtext own ON lower(own.text) = lower(wanted.text) AND own.role <> 'description'
LEFT JOIN categories_entity entity ON own.kind = 'entity' AND entity.id = own.term_id
WHERE own.project_ids @> ARRAY[%(project)s]::bigint[] AND CASE own.kind
  WHEN 'entity' THEN entity.id IS NOT NULL
  WHEN 'concept' THEN EXISTS (SELECT FROM categories_concept term WHERE term.id = own.term_id)
  WHEN 'category' THEN EXISTS (SELECT FROM categories_category term WHERE term.id = own.term_id)
  ELSE true END ORDER BY own.id DESC"""

# One look-up in the index of the facet for each term.
_KNOWN = """
SELECT wanted.ref FROM unnest(%(refs)s::{element}[]) AS wanted (ref) WHERE EXISTS (
  SELECT FROM memories_memory memory WHERE memory.{column} @> ARRAY[wanted.ref]
  AND (%(projects)s::bigint[] IS NULL OR memory.project_id = ANY(%(projects)s::bigint[])))"""
# Shards look up no row of an outer query: each finds all its memories that have any of the terms.
_KNOWN_ON_SHARDS = """
SELECT used.ref FROM (SELECT unnest(memory.{column}) AS ref FROM memories_memory memory
  WHERE memory.{column} && %(refs)s::{element}[]
  AND (%(projects)s::bigint[] IS NULL OR memory.project_id = ANY(%(projects)s::bigint[]))) used
WHERE used.ref = ANY(%(refs)s::{element}[]) GROUP BY used.ref"""


@dataclass(frozen=True, slots=True)
class LocalName:
    """A local name that matched a text, and its term: an id, or a tag."""

    kind: str
    role: str
    term_id: int
    tag: str
    entity_type: str


@dataclass(slots=True)
class TermTexts:
    """The local texts of a term."""

    description: str = ""
    aliases: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()

    def described(self, public: str, projects: Projects) -> str:
        """The description to show: the local one first, but the public one for viewers of all projects."""
        return (public or self.description) if projects is None else (self.description or public)

    def named(self, name: str, public: Sequence[str]) -> tuple[str, ...]:
        """All aliases, each once ignoring case, without the name itself."""
        known = {name.casefold(): ""}
        for alias in (*public, *self.aliases):
            known.setdefault(alias.casefold(), alias)
        return tuple(alias for alias in known.values() if alias)


def as_projects(ids: Iterable[int] | None) -> Projects:
    return None if ids is None else frozenset(ids)


def as_array(projects: Projects) -> list[int] | None:
    return None if projects is None else sorted(projects)


def known_terms(kind: str, refs: Iterable[int | str], projects: Projects) -> set[Any]:
    """The terms that a memory of the projects has, in any state; of a category also one in a descendant.

    One look-up in the facet's index for each.
    """
    wanted = set(refs)
    if not wanted or (projects is None and kind != "tag"):
        return wanted
    column, element = COLUMNS[kind]
    statement = (_KNOWN_ON_SHARDS if is_distributed() else _KNOWN).format(column=column, element=element)
    return set(fetch_column(statement, {"refs": list(wanted), "projects": as_array(projects)}))


def local_tags(tags: Collection[str], projects: Projects) -> dict[str, str]:
    """The tags among the given ones, which are in lower case, that are local names, and the tag of each."""
    if not tags or projects == NO_PROJECT:
        return {}
    return dict(fetch(_TAGS, {"tags": list(tags), "projects": as_array(projects)}))


def texts_of(kind: str, refs: Collection[int | str], projects: Projects) -> dict[int | str, TermTexts]:
    """The local texts of terms, as far as they hold in the projects; terms without any are left out."""
    if not refs or projects == NO_PROJECT:
        return {}
    is_tag = kind == "tag"
    parameters = {"ids": [] if is_tag else list(refs), "tags": list(refs) if is_tag else []}
    rows = fetch(_OF_TERMS, {"kind": kind, "projects": as_array(projects), **parameters})
    return _by_term(rows, is_tag=is_tag)


def category_texts(projects: Projects) -> dict[int | str, TermTexts]:
    """The local texts of all categories."""
    texts = LocalText.objects.filter(kind="category").order_by("id").values_list("term_id", "role", "text")
    return _by_term(texts if projects is None else texts.filter(project_ids__overlap=as_array(projects)), is_tag=False)


def _by_term(rows: Iterable[tuple[Any, str, str]], *, is_tag: bool) -> dict[int | str, TermTexts]:
    found: dict[int | str, TermTexts] = {}
    for ref, role, text in rows:
        texts = found.setdefault(ref if is_tag else int(ref), TermTexts())
        match role:
            case "alias":
                texts.aliases = (*texts.aliases, text)
            case "path":
                texts.paths = (*texts.paths, text)
            case _:
                texts.description = texts.description or text
    return found


def local_names(texts: Collection[str], project_id: int) -> dict[str, list[LocalName]]:
    """The local names of one project that are equal to the texts, ignoring case; the oldest last."""
    found: dict[str, list[LocalName]] = {}
    if texts:
        for text, kind, role, term_id, tag, entity_type in fetch(
            _FOR_WRITING, {"texts": list(texts), "project": project_id}
        ):
            found.setdefault(text, []).append(LocalName(kind, role, term_id or 0, tag, entity_type or ""))
    return found


AliasProjects = Mapping[str, Sequence[str]]
"""The projects of each alias that is not public, by its spelling. Their ids are texts, as Postgres looks for them."""

# The condition for a description, a former path or the alias of a tag.
ROW_HOLDS = "(%(projects)s::bigint[] IS NULL OR {ids} IS NULL OR {ids} && %(projects)s::bigint[])"
READABLE_ALIASES = "categories_readable({row}.aliases, {row}.alias_projects, %(projects)s::bigint[])"
READABLE_DESCRIPTION = (
    f"CASE WHEN {ROW_HOLDS.format(ids='{row}.description_projects')} THEN {{row}}.description ELSE '' END"
)
# Every text of a term.
READABLE_TEXTS = (
    f"({ROW_HOLDS.format(ids='{row}.description_projects')} AND ({{row}}.alias_projects IS NULL"
    f" OR cardinality({READABLE_ALIASES}) = cardinality({{row}}.aliases)))"
)
# The search terms of a term without those of its aliases (weight B) or its description (D), unless all may be read.
READABLE_TERMS = (
    "CASE WHEN %(projects)s::bigint[] IS NULL OR {row}.alias_projects IS NULL AND {row}.description_projects IS NULL"
    " THEN {row}.terms ELSE ts_filter({row}.terms, (ARRAY['a', 'c']"
    f" || CASE WHEN cardinality({READABLE_ALIASES}) = cardinality({{row}}.aliases) THEN ARRAY['b'] END"
    f" || CASE WHEN {ROW_HOLDS.format(ids='{row}.description_projects')} THEN ARRAY['d'] END"
    ')::"char"[]) END'
)


class Described(Protocol):
    """A category, a concept or an entity."""

    aliases: Any
    alias_projects: Any
    description: Any
    description_projects: Any


def readable(aliases: Sequence[str], stored: AliasProjects | None, projects: Projects) -> list[str]:
    """The aliases that hold in one of the projects, or are public."""
    if projects is None or not stored:
        return list(aliases)
    return [alias for alias in aliases if alias not in stored or not projects.isdisjoint(map(int, stored[alias]))]


def holds(project_ids: Collection[int] | None, projects: Projects) -> bool:
    """Whether a description, a former path or the alias of a tag may be read."""
    return projects is None or project_ids is None or not projects.isdisjoint(project_ids)


def readable_aliases(term: Described, projects: Projects) -> list[str]:
    return readable(term.aliases, term.alias_projects, projects)


def readable_description(term: Described, projects: Projects) -> str:
    return str(term.description) if holds(term.description_projects, projects) else ""


def row_holds(projects: Projects) -> Q:
    """The condition `holds` of former paths and aliases of tags."""
    return Q() if projects is None else Q(project_ids=None) | Q(project_ids__overlap=as_array(projects))


def projects_using(kind: str, refs: Collection[int | str]) -> dict[Any, list[int]]:
    """The projects with a memory of each term, in any state; for a category also of its descendants.

    Terms that no memory has are left out.
    """
    if not refs:
        return {}
    column, element = COLUMNS[kind]
    if len(refs) == 1:
        having = f"SELECT DISTINCT project_id FROM memories_memory WHERE {column} @> %s::{element}[] ORDER BY 1"
        projects = fetch_column(having, [[*refs]])
        return {ref: projects for ref in refs if projects}
    rows = fetch(
        f"SELECT used.term, array_agg(DISTINCT used.project_id) FROM (SELECT unnest(memory.{column}) AS term,"
        f" memory.project_id FROM memories_memory memory WHERE memory.{column} && %(refs)s::{element}[]) used"
        f" WHERE used.term = ANY(%(refs)s::{element}[]) GROUP BY used.term",
        {"refs": list(refs)},
    )
    return {term: sorted(projects) for term, projects in rows}


def stored_alias_projects(
    before: Mapping[str, Any], aliases: Sequence[str], origin: Callable[[str], Sequence[int] | None]
) -> dict[str, list[str]] | None:
    """The projects of aliases after an edit, as stored. Those that stay keep theirs; new ones have their `origin`'s."""
    known: AliasProjects = before.get("alias_projects") or {}
    found: dict[str, list[str]] = {}
    for alias in aliases:
        projects = known.get(alias) if alias in before["aliases"] else origin(alias)
        if projects is not None:
            found[alias] = [str(project) for project in projects]
    return found or None


def stored_description_projects(
    before: Mapping[str, Any], description: str, origin: Callable[[str], Sequence[int] | None]
) -> list[int] | None:
    """The projects of a description after an edit, as stored.

    One that replaces another, while no memory has the term, keeps the projects of the other.
    """
    known: list[int] | None = before.get("description_projects")
    if not description:
        return None
    if description == before["description"]:
        return known
    projects = origin(description)
    return known if projects is None else list(projects)
