"""Reads for curation: terms that were named, the rows that a verb works on, who uses a term, what a query matches.

Of what none of a viewer's memories has, not even the name is told.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from django.apps import apps
from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from access.viewer import Viewer
from categories.models import Relationship
from categories.queries import (
    Term,
    category_nodes,
    concept_terms,
    entity_terms,
    resolve_categories,
    resolve_concepts,
    resolve_entities,
    tags_now,
)
from curation.models import Curation
from curation.tables import LINKS, rows_read
from curation.term_edits import clean_tag
from curation.working_copy import KINDS, CurationRefusedError, Ref, WorkingCopy
from memories.models import Memory
from memories.queries import visible_to
from memories.records import unstorable
from search.engines.postgres import PostgresEngine
from search.plan import resolve_query
from search.query import SearchQuery, Sort
from search.result import HitDetail
from search.run import run
from text.formatting import legible
from web.errors import Refusal
from web.params import QueryError

_SEVERAL = 5
OTHERS_USE_IT = (
    "Memories that you cannot write also use it, and all projects share the vocabulary. Ask a curator of all projects."
)


# Where the names of each kind are listed.
_LISTED = {
    "category": "/api/categories?filter=…",
    "concept": "/api/concepts?search=…",
    "entity": "/api/entities?search=…",
    "tag": "/api/facets/tag?search=…",
    "curation": "/api/curation",
}


class TermNotFoundError(Refusal):
    """There is no such term, or none that the viewer may see: the answer is the same."""

    status = 404
    code = "not_found"

    def __init__(self, kind: str, name: str, field: str = "") -> None:
        self.kind, self.name, self.field = kind, name, field
        self.suggestion = f"Look for it: GET {_LISTED[kind]}"
        super().__init__(f"There is no {kind} “{legible(name, 80)}” that you can see.")


# --- terms by name --------------------------------------------------------------------------------------------------


def term_named(kind: str, name: str, viewer: Viewer, field: str = "term") -> Ref:
    """The one term that a name means to a viewer."""
    if unstorable(name):
        raise TermNotFoundError(kind, name, field)
    if kind == "tag":
        return tag_named(name, viewer, field)
    if name[:1] == "#" and name[1:].isascii() and name[1:].isdecimal() and len(name) < 19:
        found = [int(name[1:])] if labels(kind, [int(name[1:])]) else []
    else:
        found = _resolved(kind, name)
    seen = [one for one in found if one in terms_seen(kind, found, viewer)]
    if not seen:
        raise TermNotFoundError(kind, name, field)
    if len(seen) > 1:
        shown = labels(kind, seen[:_SEVERAL])
        named = ", ".join(f"#{one} {shown[one]}" for one in seen[:_SEVERAL])
        raise CurationRefusedError(f"“{name}” may be any of several: {named}. Write one of them by its #id.", field)
    return seen[0]


def names_like(error: TermNotFoundError, viewer: Viewer) -> tuple[str, ...]:
    """What may have been meant by a name that means nothing: of what the viewer sees, as a search by it says."""
    if error.kind not in KINDS or unstorable(error.name):
        return ()
    answer = run(SearchQuery().only(error.kind, error.name), viewer, detail=HitDetail.NONE)
    return next((warning.did_you_mean for warning in answer.warnings if warning.parameter == error.kind), ())


def told(error: TermNotFoundError, viewer: Viewer) -> str:
    """The error in a sentence, with what may have been meant."""
    near = names_like(error, viewer)
    return f"{error} Did you mean {' or '.join(near)}?" if near else str(error)


def _resolved(kind: str, name: str) -> list[int]:
    found: Mapping[str, tuple[Any, ...]]
    if kind == "category":
        found = resolve_categories([name])
    else:
        found = (resolve_concepts if kind == "concept" else resolve_entities)([name])
    return [one.id for one in found.get(name, ())]


def tag_named(name: str, viewer: Viewer, field: str = "term") -> str:
    """The tag of a name or an alias, which some memory of the viewer's has."""
    tag = clean_tag(name, field)
    tag = tags_now([tag]).get(tag, tag)
    if not visible_to(viewer).filter(tags__contains=[tag]).exists():
        raise TermNotFoundError("tag", name, field)
    return tag


def labels(kind: str, ids: Collection[int]) -> dict[int, str]:
    """What terms are called, by id."""
    if kind == "category":
        return {pk: node.path for pk, node in category_nodes(ids).items()}
    terms: dict[int, Term] = (concept_terms if kind == "concept" else entity_terms)(ids)
    return {pk: term.value for pk, term in terms.items()}


def terms_seen(kind: str, ids: Collection[int], viewer: Viewer) -> set[int]:
    """Those of some terms that a memory of the viewer's has; a category also by what is below it."""
    if viewer.project_ids is None:
        return set(ids)
    with connection.cursor() as cursor:
        # Through the facet's index, once for each term.
        cursor.execute(
            "SELECT asked.id FROM unnest(%(ids)s::integer[]) AS asked (id) WHERE EXISTS ("
            f"SELECT FROM memories_memory WHERE {LINKS[kind].facet_below} @> ARRAY[asked.id]"
            " AND project_id = ANY(%(projects)s))",
            {"ids": list(ids), "projects": list(viewer.project_ids)},
        )
        return {row[0] for row in cursor.fetchall()}


def relationships_seen(viewer: Viewer) -> QuerySet[Relationship]:
    """The relationships that a memory of the viewer's bears out; all of them, for who sees everything."""
    facts = Relationship.objects.all()
    if viewer.project_ids is None:
        return facts
    borne_out = (
        "SELECT fact.id FROM categories_relationship fact JOIN memories_memory memory"
        " ON memory.id = ANY(fact.evidence_ids) WHERE memory.project_id = ANY(%s)"
    )
    return facts.filter(pk__in=RawSQL(borne_out, [list(viewer.project_ids)]))  # noqa: S611 - the text is constant


# --- who uses what --------------------------------------------------------------------------------------------------


def memories_of(kind: str, refs: Collection[Ref]) -> QuerySet[Memory]:
    """The memories that have any of some terms, in any state; of a category, those below it too."""
    column = "tags" if kind == "tag" else LINKS[kind].facet_below
    return Memory.objects.filter(**{f"{column}__overlap": list(refs)})


def are_used_by_others(kind: str, refs: Collection[Ref], viewer: Viewer) -> bool:
    """Whether a memory that the viewer may not write has one of some terms, or bears out a fact about an entity."""
    writable = viewer.writable_project_ids
    if writable is None:
        return False
    if memories_of(kind, refs).exclude(project_id__in=writable).exists():
        return True
    if kind != "entity":
        return False
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM categories_relationship fact JOIN memories_memory memory"
            " ON memory.id = ANY(fact.evidence_ids)"
            " WHERE (fact.source_id = ANY(%(ids)s) OR fact.target_id = ANY(%(ids)s))"
            " AND NOT memory.project_id = ANY(%(writable)s))",
            {"ids": list(refs), "writable": list(writable)},
        )
        return bool(cursor.fetchone()[0])


def projects_of(memory_ids: Collection[int]) -> list[int]:
    """The projects that some memories are in."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT project_id FROM memories_memory WHERE id = ANY(%s) ORDER BY 1", [list(memory_ids)]
        )
        return [row[0] for row in cursor.fetchall()]


def linked_ids(kind: str, refs: Collection[Ref], among: Collection[int] | None = None) -> list[int]:
    """The memories that have one of some terms themselves, in the order of their ids."""
    column, cast = ("tags", "text[]") if kind == "tag" else (LINKS[kind].facet, "integer[]")
    among_these = "" if among is None else " AND id = ANY(%(among)s::bigint[])"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id FROM memories_memory WHERE {column} && %(refs)s::{cast}{among_these} ORDER BY id",
            {"refs": list(refs), "among": None if among is None else list(among)},
        )
        return [row[0] for row in cursor.fetchall()]


def counts_among(kind: str, refs: Collection[Ref], among: Collection[int]) -> list[tuple[Ref, int]]:
    """How many of some memories have each of some terms themselves, the most first; terms without any are left out."""
    column, cast = ("tags", "text[]") if kind == "tag" else (LINKS[kind].facet, "integer[]")
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT term, count(*) FROM memories_memory, unnest({column}) AS term"
            f" WHERE id = ANY(%s::bigint[]) AND term = ANY(%s::{cast}) GROUP BY 1 ORDER BY 2 DESC, 1",
            [list(among), list(refs)],
        )
        return list(cursor.fetchall())


def filed_under(memory_ids: Collection[int]) -> set[int]:
    """The categories that some memories are filed under themselves."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT DISTINCT category_id FROM categories_categorylink WHERE memory_id = ANY(%s)", [list(memory_ids)]
        )
        return {row[0] for row in cursor.fetchall()}


# --- the rows that a verb works on ------------------------------------------------------------------------------------


def tree_desk() -> WorkingCopy:
    """The whole tree: a path is only right among all others."""
    return WorkingCopy({"category": rows_read("category"), "former_path": rows_read("former_path")})


def concepts_desk(ids: Iterable[int]) -> WorkingCopy:
    """Some concepts, and those that name them."""
    condition = (
        "id = ANY(%(ids)s) OR broader_ids && %(ids)s::integer[] OR narrower_ids && %(ids)s::integer[]"
        " OR related_ids && %(ids)s::integer[]"
    )
    return WorkingCopy({"concept": rows_read("concept", condition, {"ids": list(ids)})})


def entities_desk(ids: Iterable[int]) -> WorkingCopy:
    """Some entities, and the relationships that any of them is in."""
    parameters = {"ids": list(ids)}
    facts = rows_read("relationship", "source_id = ANY(%(ids)s) OR target_id = ANY(%(ids)s)", parameters)
    return WorkingCopy({"entity": rows_read("entity", "id = ANY(%(ids)s)", parameters), "relationship": facts})


def tags_desk(tags: Iterable[str]) -> WorkingCopy:
    """The other names of some tags, and whatever any of them is another name of."""
    condition = "tag = ANY(%(tags)s) OR alias = ANY(%(tags)s)"
    return WorkingCopy({"tag_alias": rows_read("tag_alias", condition, {"tags": list(tags)})})


def hierarchy() -> dict[int, set[int]]:
    """The concepts right above each concept, whichever of the two says so."""
    above: dict[int, set[int]] = {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, unnest(broader_ids) FROM categories_concept WHERE broader_ids <> '{}'"
            " UNION SELECT unnest(narrower_ids), id FROM categories_concept WHERE narrower_ids <> '{}'"
        )
        for below, up in cursor.fetchall():
            above.setdefault(below, set()).add(up)
    return above


# --- what a query matches ---------------------------------------------------------------------------------------------


def query_read(text: str) -> SearchQuery:
    """A query string as the explorer reads it; what it cannot read is refused."""
    try:
        return SearchQuery.from_pairs(parse_qsl(text.removeprefix("?"), keep_blank_values=True, max_num_fields=1_000))
    except QueryError as error:
        raise CurationRefusedError(str(error), "query") from error
    except ValueError as error:
        raise CurationRefusedError("That is no query string.", "query") from error


def matching_ids(query: SearchQuery, viewer: Viewer) -> list[int]:
    """All memories that a query matches, asked of the database itself: what is about to be changed is as it is now."""
    engine = PostgresEngine()
    resolved = resolve_query(engine, query, viewer, datetime.now(UTC))
    if resolved.unknown:
        key, name = resolved.unknown[0]
        raise CurationRefusedError(f"{key}: nothing is named “{name}”. Correct the query first.", "query")
    if resolved.without_meaning:
        raise CurationRefusedError(
            f"The query looks by meaning, and {resolved.without_meaning}. Add mode=keyword to it.", "query"
        )
    summary = engine.match([resolved.plan])[0]
    if summary.truncated:
        raise CurationRefusedError(
            "More may match than are looked at by meaning: add a filter, or mode=keyword, so that it is clear which.",
            "query",
        )
    if not summary.total:
        return []
    return sorted(pk for pk, _ in engine.hits(resolved.plan, Sort.NEWEST, limit=summary.total, offset=0))


def curations_seen(viewer: Viewer) -> QuerySet[Curation]:
    """Curations of the viewer's own, and those that changed memories of theirs alone; all, for who sees everything."""
    curations = Curation.objects.select_related("user", "api_key", "undone_by")
    if viewer.project_ids is None:
        return curations
    seen = ~Q(project_ids=[]) & Q(project_ids__contained_by=list(viewer.project_ids))
    if viewer.user_id is not None:
        seen |= Q(user_id=viewer.user_id)
    if viewer.api_key_id is not None:
        seen |= Q(api_key_id=viewer.api_key_id)
    return curations.filter(seen)


def curation_seen(curation_id: int, viewer: Viewer) -> Curation | None:
    return curations_seen(viewer).filter(pk=curation_id).first() if curation_id < 2**63 else None


def who(curation: Curation) -> str:
    """Who did it, for people."""
    if curation.user is not None:
        return str(curation.user)
    if curation.api_key is not None:
        return f"key {curation.api_key.name}"
    return "a command" if curation.door == "command" else "a deleted user"


def ids_now(kind: str, ids: Iterable[int]) -> dict[int, int]:
    """For each id its own where the term is there, else that of the one it was merged into; 0 where neither is."""
    wanted = set(ids)
    if not wanted:
        return {}
    model = apps.get_model("categories", kind)
    there = set(model._default_manager.filter(pk__in=wanted).values_list("pk", flat=True))
    if wanted <= there:
        return {one: one for one in wanted}
    taken: dict[int, int] = {}
    for merged in Curation.objects.filter(kind=kind, verb="merge", undone_at=None).values_list("merged", flat=True):
        taken.update({int(gone): kept for gone, kept in merged.items()})
    found = {}
    for one in wanted:
        now = one
        while now in taken and now not in there:
            now = taken[now]
        found[one] = now
    alive = set(model._default_manager.filter(pk__in=found.values()).values_list("pk", flat=True))
    return {one: now if now in alive else 0 for one, now in found.items()}
