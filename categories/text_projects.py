"""The readers of the texts in the columns of a term: its aliases and its description.

A text holds in the projects that used the term when a curator of all projects wrote it; their members alone read it and
resolve it. Without such projects it is public. Viewers of all projects read every text. See
docs/decisions/7-local-names.md.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from django.db.models import Q

from categories.local_texts import COLUMNS, Projects, as_array
from web.sql import fetch, fetch_column

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
