"""Local texts: names and descriptions of terms that hold in some projects only. See docs/decisions/7-local-names.md."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from cluster import is_distributed

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
    with connection.cursor() as cursor:
        cursor.execute(statement, {"refs": list(wanted), "projects": as_array(projects)})
        return {row[0] for row in cursor.fetchall()}


def local_tags(tags: Collection[str], projects: Projects) -> dict[str, str]:
    """The tags among the given ones, which are in lower case, that are local names, and the tag of each."""
    if not tags or projects == NO_PROJECT:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(_TAGS, {"tags": list(tags), "projects": as_array(projects)})
        return dict(cursor.fetchall())


def texts_of(kind: str, refs: Collection[int | str], projects: Projects) -> dict[int | str, TermTexts]:
    """The local texts of terms, as far as they hold in the projects; terms without any are left out."""
    if not refs or projects == NO_PROJECT:
        return {}
    is_tag = kind == "tag"
    with connection.cursor() as cursor:
        parameters = {"ids": [] if is_tag else list(refs), "tags": list(refs) if is_tag else []}
        cursor.execute(_OF_TERMS, {"kind": kind, "projects": as_array(projects), **parameters})
        rows = cursor.fetchall()
    return _by_term(rows, is_tag=is_tag)


def category_texts(projects: Projects) -> dict[int | str, TermTexts]:
    """The local texts of all categories."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT term_id, role, text FROM categories_localtext own WHERE kind = 'category' AND"
            f" {HOLDS.format(alias='own')} ORDER BY id",
            {"projects": as_array(projects)},
        )
        return _by_term(cursor.fetchall(), is_tag=False)


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
        with connection.cursor() as cursor:
            cursor.execute(_FOR_WRITING, {"texts": list(texts), "project": project_id})
            for text, kind, role, term_id, tag, entity_type in cursor.fetchall():
                found.setdefault(text, []).append(LocalName(kind, role, term_id or 0, tag, entity_type or ""))
    return found
