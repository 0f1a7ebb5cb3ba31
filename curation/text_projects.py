"""Records for each text that an operation writes for all projects the projects in which it holds.

They are those that use the term that the text comes from: its members knew the name, or may know what is written of it.
Pure but for the reading of those projects, which is done before links move.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any

from categories.kinds import VOCABULARIES
from categories.texts import projects_using, stored_alias_projects, stored_description_projects
from curation.working_copy import TableRow, TermRef, WorkingCopy

_NO_TEXTS: TableRow = {"aliases": [], "description": ""}


def text_projects_record(copy: WorkingCopy, linked_projects: Collection[int] = ()) -> None:
    """Set the projects of the public texts that the operation wrote.

    New terms that get memories are used by `linked_projects`.
    """
    if copy.scope is not None:
        return
    for kind in VOCABULARIES:
        _record_terms(copy, kind, sorted(linked_projects) or None)
    _record_rows(copy, "former_path", "path", "category", "category_id")
    _record_rows(copy, "tag_alias", "alias", "tag", "tag")


def _record_terms(copy: WorkingCopy, kind: str, linked_projects: list[int] | None) -> None:
    originals = copy.originals(kind)
    changed = [
        row
        for row in copy.table(kind).values()
        if any(row[name] != originals.get(row["id"], _NO_TEXTS)[name] for name in _NO_TEXTS)
    ]
    if not changed:
        return
    sources = {row["id"]: [originals[pk] for pk in copy.merged if copy.kept(pk) == row["id"]] for row in changed}
    refs = {row["id"] for row in changed if row["id"] > 0} | {one["id"] for ones in sources.values() for one in ones}
    used: dict[int, list[int] | None] = {**projects_using(kind, refs)}
    for row in changed:
        before = originals.get(row["id"], _NO_TEXTS)
        own = used.get(row["id"]) if row["id"] > 0 else linked_projects
        origin = _origin(sources[row["id"]], used, own)
        row["alias_projects"] = stored_alias_projects(before, row["aliases"], origin)
        row["description_projects"] = stored_description_projects(before, row["description"], origin)


def _origin(
    sources: Iterable[TableRow], used: dict[int, list[int] | None], own: list[int] | None
) -> Callable[[str], list[int] | None]:
    """Gives the projects of a new text of a term: those of the merged term that had it, else those of the term."""

    def of_alias(source: TableRow, text: str) -> list[int] | None:
        stored: dict[str, list[str]] = source.get("alias_projects") or {}
        return [int(project) for project in stored[text]] if text in stored else None

    def origin(text: str) -> list[int] | None:
        for source in sources:
            # An alias of another type of entity is `type:name`.
            for name in (text, text.partition(":")[2]):
                if name and name in source["aliases"]:
                    return of_alias(source, name)
                if name and name == source["name"]:
                    return used.get(source["id"])
            if text == source["description"]:
                return source.get("description_projects")
        return own

    return origin


def _record_rows(copy: WorkingCopy, table: str, text: str, kind: str, reference: str) -> None:
    """Set the projects of new former paths or aliases of tags: those of the term that had the name before."""
    new = [row for row_id, row in copy.table(table).items() if row_id not in copy.originals(table)]
    if not new:
        return
    paths = {row["path"]: pk for pk, row in copy.originals("category").items()}

    def refs_of(row: TableRow) -> list[TermRef]:
        owner: TermRef = row[reference]
        return [row[text], owner] if kind == "tag" else [paths.get(row[text]) or owner]

    terms = {row["id"]: refs_of(row) for row in new}
    used: dict[Any, list[int]] = projects_using(kind, {ref for refs in terms.values() for ref in refs})
    for row in new:
        row["project_ids"] = next((used[ref] for ref in terms[row["id"]] if ref in used), None)
