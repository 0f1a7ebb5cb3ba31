"""Reads for curation: terms by name, the rows that an operation works on, the users of a term, matches of a query.

Names that none of a viewer's memories has are never disclosed.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain

from django.db.models import Max, Q, QuerySet
from django.db.models.expressions import RawSQL

from access.viewer import Viewer
from categories.kinds import TERM_KINDS, VOCABULARIES
from categories.models import FormerPath, LocalText, Relationship
from categories.queries import tags_now
from categories.texts import known_terms
from curation.models import Curation
from curation.tag_edits import clean_tag
from curation.working_copy import CurationRefusedError, TermRef
from memories.models import ImportBatch, Memory
from memories.queries import visible_to
from memories.records import unstorable
from search.facets import DEFAULT_STATES
from search.query import SearchQuery
from search.result import HitDetail
from search.run import run
from text.formatting import legible
from web.errors import Refusal
from web.sql import fetch, fetch_column

_SEVERAL = 5
OTHERS_USE_IT = (
    "Memories that you cannot write also use it, and all projects share the vocabulary. Ask a curator of all projects."
)


# Endpoints that list the names of each kind.
_LISTED = {
    "category": "/api/categories?filter=…",
    "concept": "/api/concepts?search=…",
    "entity": "/api/entities?search=…",
    "tag": "/api/facets/tag?search=…",
    "curation": "/api/curation",
}


class TermNotFoundError(Refusal):
    """The term does not exist or the viewer may not see it: both give the same error."""

    status = 404
    code = "not_found"

    def __init__(self, kind: str, name: str, field: str = "") -> None:
        self.kind, self.name, self.field = kind, name, field
        self.suggestion = f"Look for it: GET {_LISTED[kind]}"
        super().__init__(f"There is no {kind} “{legible(name, 80)}” that you can see.")


# --- terms by name --------------------------------------------------------------------------------------------------


def find_term(kind: str, name: str, viewer: Viewer, field: str = "term") -> TermRef:
    """The visible term that a name refers to. Raises TermNotFoundError, or CurationRefusedError for several."""
    if unstorable(name):
        raise TermNotFoundError(kind, name, field)
    if kind == "tag":
        return find_tag(name, viewer, field)
    if name[:1] == "#" and name[1:].isascii() and name[1:].isdecimal() and len(name) < 19:
        found = list(labels(kind, [int(name[1:])]))
    else:
        found = [term.id for term in VOCABULARIES[kind].resolve([name], viewer.project_ids).get(name, ())]
    allowed = visible_terms(kind, found, viewer) if found else set()
    visible = [term_id for term_id in found if term_id in allowed]
    if not visible:
        raise TermNotFoundError(kind, name, field)
    if len(visible) > 1:
        shown = labels(kind, visible[:_SEVERAL])
        named = ", ".join(f"#{term_id} {shown[term_id]}" for term_id in visible[:_SEVERAL])
        raise CurationRefusedError(f"“{name}” may be any of several: {named}. Write one of them by its #id.", field)
    return visible[0]


def similar_names(error: TermNotFoundError, viewer: Viewer) -> tuple[str, ...]:
    """Visible names similar to an unknown name, as a search by it suggests them."""
    if error.kind not in TERM_KINDS or unstorable(error.name):
        return ()
    result = run(SearchQuery().only(error.kind, error.name), viewer, detail=HitDetail.NONE)
    return next((warning.did_you_mean for warning in result.warnings if warning.parameter == error.kind), ())


def not_found_message(error: TermNotFoundError, viewer: Viewer) -> str:
    """The error as a sentence, with similar names."""
    names = similar_names(error, viewer)
    return f"{error} Did you mean {' or '.join(names)}?" if names else str(error)


def find_tag(name: str, viewer: Viewer, field: str = "term") -> str:
    """The tag with a name or an alias, if a visible memory has it. Raises TermNotFoundError."""
    tag = clean_tag(name, field)
    tag = tags_now([tag], viewer.project_ids).get(tag, tag)
    if not visible_to(viewer).filter(tags__contains=[tag]).exists():
        raise TermNotFoundError("tag", name, field)
    return tag


def labels(kind: str, ids: Collection[int]) -> dict[int, str]:
    """The labels of categories, concepts or entities, by id."""
    return VOCABULARIES[kind].labels(ids)


def visible_terms(kind: str, ids: Collection[int], viewer: Viewer) -> set[int]:
    """The ids of terms that a visible memory has; for a category, a memory in a descendant counts too."""
    if viewer.project_ids is None:
        return set(ids)
    return known_terms(kind, ids, viewer.project_ids)


def visible_relationships(viewer: Viewer) -> QuerySet[Relationship]:
    """The relationships with a visible memory as evidence; all of them for viewers of every project."""
    relationships = Relationship.objects.all()
    if viewer.project_ids is None:
        return relationships
    evident = (
        "SELECT fact.id FROM categories_relationship fact JOIN memories_memory memory"
        " ON memory.id = ANY(fact.evidence_ids) WHERE memory.project_id = ANY(%s)"
    )
    return relationships.filter(pk__in=RawSQL(evident, [list(viewer.project_ids)]))  # noqa: S611 - the text is constant


# --- users of a term --------------------------------------------------------------------------------------------------


def memories_with(kind: str, refs: Collection[TermRef]) -> QuerySet[Memory]:
    """The memories that have any of the terms, in any state; for a category also those of its descendants."""
    column = "tags" if kind == "tag" else VOCABULARIES[kind].memory_path_column
    return Memory.objects.filter(**{f"{column}__overlap": list(refs)})


def used_by_others(kind: str, refs: Collection[TermRef], viewer: Viewer) -> bool:
    """Whether a memory that the viewer may not curate has one of the terms or is evidence of their relationships."""
    curated = viewer.curated_project_ids
    if curated is None:
        return False
    if memories_with(kind, refs).exclude(project_id__in=curated).exists():
        return True
    # A local name or description of others depends on the term.
    local = LocalText.objects.filter(kind=kind, **{"tag__in" if kind == "tag" else "term_id__in": list(refs)})
    if local.exclude(project_ids__contained_by=list(curated)).exists() or _texts_of_others(kind, refs, curated):
        return True
    if kind != "entity":
        return False
    (used,) = fetch_column(
        "SELECT EXISTS (SELECT 1 FROM categories_relationship fact JOIN memories_memory memory"
        " ON memory.id = ANY(fact.evidence_ids)"
        " WHERE (fact.source_id = ANY(%(ids)s) OR fact.target_id = ANY(%(ids)s))"
        " AND NOT memory.project_id = ANY(%(curated)s))",
        {"ids": list(refs), "curated": list(curated)},
    )
    return bool(used)


def _texts_of_others(kind: str, refs: Collection[TermRef], curated: Collection[int]) -> bool:
    """Whether a term has a public text that holds in other projects than the curated ones."""
    if kind == "tag":
        return False
    if kind == "category":
        paths = FormerPath.objects.filter(category_id__in=[int(ref) for ref in refs], project_ids__isnull=False)
        if paths.exclude(project_ids__contained_by=list(curated)).exists():
            return True
    rows = VOCABULARIES[kind].model._default_manager.filter(pk__in=list(refs))
    texts = rows.exclude(alias_projects=None, description_projects=None)
    return any(
        not {*(term.description_projects or ()), *map(int, chain(*(term.alias_projects or {}).values()))} <= {*curated}
        for term in texts.only("alias_projects", "description_projects")
    )


def projects_with(kind: str, ref: TermRef, among: Collection[int]) -> list[int]:
    """The projects among the given ones that have a memory with a term, in any state."""
    rows = memories_with(kind, [ref])
    return [project_id for project_id in sorted(among) if rows.filter(project_id=project_id).exists()]


def projects_of(memory_ids: Collection[int]) -> list[int]:
    """The ids of the projects of memories, in order."""
    statement = "SELECT DISTINCT project_id FROM memories_memory WHERE id = ANY(%s) ORDER BY 1"
    return fetch_column(statement, [list(memory_ids)])


def linked_ids(kind: str, refs: Collection[TermRef], among: Collection[int] | None = None) -> list[int]:
    """Ids of the memories linked to one of the terms directly, in order; `among` restricts them to these memories."""
    column, cast = _own_column(kind)
    among_these = "" if among is None else " AND id = ANY(%(among)s::bigint[])"
    return fetch_column(
        f"SELECT id FROM memories_memory WHERE {column} && %(refs)s::{cast}{among_these} ORDER BY id",
        {"refs": list(refs), "among": None if among is None else list(among)},
    )


def counts_among(kind: str, refs: Collection[TermRef], among: Collection[int]) -> list[tuple[TermRef, int]]:
    """The number of given memories linked to each term directly, the largest first, without zeros."""
    column, cast = _own_column(kind)
    return fetch(
        f"SELECT term, count(*) FROM memories_memory, unnest({column}) AS term"
        f" WHERE id = ANY(%s::bigint[]) AND term = ANY(%s::{cast}) GROUP BY 1 ORDER BY 2 DESC, 1",
        [list(among), list(refs)],
    )


def counts_of(kind: str, refs: Collection[TermRef], viewer: Viewer) -> dict[TermRef, int]:
    """The number of visible memories with each term, in any state; of a category also those of its descendants."""
    column, cast = _own_column(kind)
    if kind == "category":
        column = VOCABULARIES[kind].memory_path_column
    visible = "" if viewer.project_ids is None else " AND project_id = ANY(%(projects)s::bigint[])"
    counted = fetch(
        f"SELECT term, count(*) FROM memories_memory, unnest({column}) AS term"
        f" WHERE {column} && %(refs)s::{cast} AND term = ANY(%(refs)s::{cast}){visible} GROUP BY 1",
        {"refs": list(refs), "projects": list(viewer.project_ids or ())},
    )
    return dict.fromkeys(refs, 0) | dict(counted)


def hidden_among(memory_ids: Collection[int]) -> int:
    """The number of given memories whose state keeps them out of a search that selects no state."""
    statement = "SELECT count(*) FROM memories_memory WHERE id = ANY(%s::bigint[]) AND state <> ALL(%s)"
    return int(fetch_column(statement, [list(memory_ids), list(DEFAULT_STATES)])[0])


def newest_of(memory_ids: Collection[int], viewer: Viewer, limit: int) -> list[int]:
    """Ids of the newest of given memories that the viewer may see.

    One parameter for all of them: Django would write one for each, which takes longer than the query.
    """
    visible = "" if viewer.project_ids is None else " AND project_id = ANY(%(projects)s::bigint[])"
    return fetch_column(
        f"SELECT id FROM memories_memory WHERE id = ANY(%(ids)s::bigint[]){visible}"
        " ORDER BY created_at DESC, id DESC LIMIT %(limit)s",
        {"ids": list(memory_ids), "projects": list(viewer.project_ids or ()), "limit": limit},
    )


def _own_column(kind: str) -> tuple[str, str]:
    """The column of a memory with its own terms of a kind, and the column's type."""
    return ("tags", "text[]") if kind == "tag" else (VOCABULARIES[kind].memory_column, "integer[]")


def category_ids_of(memory_ids: Collection[int]) -> set[int]:
    """Ids of the categories that memories are linked to directly."""
    statement = "SELECT DISTINCT category_id FROM categories_categorylink WHERE memory_id = ANY(%s)"
    return set(fetch_column(statement, [list(memory_ids)]))


# --- the log ----------------------------------------------------------------------------------------------------------


def visible_curations(viewer: Viewer) -> QuerySet[Curation]:
    """The viewer's own curations, and those that changed only memories they may see."""
    curations = Curation.objects.select_related("user", "api_key", "undone_by")
    if viewer.project_ids is None:
        return curations
    visible = ~Q(project_ids=[]) & Q(project_ids__contained_by=list(viewer.project_ids))
    if viewer.user_id is not None:
        visible |= Q(user_id=viewer.user_id)
    if viewer.api_key_id is not None:
        visible |= Q(api_key_id=viewer.api_key_id)
    return curations.filter(visible)


def read_log(viewer: Viewer, limit: int, before: int | None = None, search: str = "") -> tuple[list[Curation], bool]:
    """A page of visible curations, the newest first, and whether there are more. `before` is the id to start below.

    `search` is a part of their titles.
    """
    curations = visible_curations(viewer)
    if search:
        curations = curations.filter(title__icontains=search)
    if before is not None:
        curations = curations.filter(pk__lt=before)
    page = list(curations[: limit + 1])
    return page[:limit], len(page) > limit


# Their numbers with those of the curations that changed them.
_REMOVED = """
SELECT DISTINCT change.curation_id, changed.id FROM curation_curationchange change,
  LATERAL unnest(change.memory_ids) AS changed (id)
WHERE change.curation_id = ANY(%s) AND NOT EXISTS (SELECT 1 FROM memories_memory memory WHERE memory.id = changed.id)"""


def removed_memories(curation_ids: Collection[int]) -> list[int]:
    """The memories that curations changed and that are not there any more, since their import was undone."""
    return sorted({memory_id for _, memory_id in fetch(_REMOVED, [list(curation_ids)])})


def without_undo(curations: Sequence[Curation]) -> frozenset[int]:
    """The curations that cannot be undone, since memories that they changed were removed."""
    open_ones = [one for one in curations if one.undone_at is None]
    # Only the undo of an import removes memories.
    last = ImportBatch.objects.filter(state=ImportBatch.State.UNDONE).aggregate(last=Max("finished_at"))["last"]
    older = [one.pk for one in open_ones if last and one.at < last]
    return frozenset(curation_id for curation_id, _ in fetch(_REMOVED, [older])) if older else frozenset()


def visible_curation(curation_id: int, viewer: Viewer) -> Curation:
    """Raises TermNotFoundError."""
    curation = visible_curations(viewer).filter(pk=curation_id).first() if curation_id < 2**63 else None
    if curation is None:
        raise TermNotFoundError("curation", f"#{curation_id}")
    return curation


def merged_ids(kind: str, ids: Iterable[int]) -> dict[int, int]:
    """Each id with that of the existing term: its own, that of the term it was merged into, or 0."""
    wanted = set(ids)
    if not wanted:
        return {}
    terms = VOCABULARIES[kind].model._default_manager
    existing = set(terms.filter(pk__in=wanted).values_list("pk", flat=True))
    if wanted <= existing:
        return {term_id: term_id for term_id in wanted}
    targets: dict[int, int] = {}
    for merged in Curation.objects.filter(kind=kind, verb="merge", undone_at=None).values_list("merged", flat=True):
        targets.update({int(source): target for source, target in merged.items()})
    found = {}
    for term_id in wanted:
        now = term_id
        while now in targets and now not in existing:
            now = targets[now]
        found[term_id] = now
    existing = set(terms.filter(pk__in=found.values()).values_list("pk", flat=True))
    return {term_id: now if now in existing else 0 for term_id, now in found.items()}
