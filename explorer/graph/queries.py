"""Entities, concepts and their links, as far as they are visible to a viewer.

Applies visibility and defines none of its own: memories come from `visible_to`, names from `search.plan.visible_ids`,
and relationships from `search.unified.vocabulary.evidence_of`, as in unified search.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from django.core.exceptions import EmptyResultSet
from django.db import connection
from django.db.models import BigIntegerField, F, Func

from access.viewer import Viewer
from categories.names import Names
from categories.queries import Term, resolve_concepts, resolve_entities
from categories.texts import READABLE_ALIASES, READABLE_DESCRIPTION, Projects, TermTexts, as_array, texts_of
from explorer.graph.adjacency import Ints
from memories.queries import MemoryTitle, visible_to
from memories.records import unstorable
from search.engines.base import Engine, EngineQuery
from search.facets import DEFAULT_STATES
from search.plan import ResolvedQuery, explain_unknown, resolve_query, visible_ids
from search.query import SearchQuery
from search.unified.vocabulary import evidence_of
from text.formatting import legible
from web.errors import Refusal


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Entities or concepts. `key` names them in facets, parameters and URLs; `column` is their array in memories."""

    key: str
    plural: str
    table: str
    type_column: str
    column: str

    def terms(self, names: Names, ids: Iterable[int]) -> dict[int, Term]:
        return names.entity_terms(ids) if self.key == "entity" else names.concept_terms(ids)


ENTITY = NodeKind("entity", "entities", "categories_entity", "entity_type", "entity_ids")
CONCEPT = NodeKind("concept", "concepts", "categories_concept", "concept_type", "concept_ids")
KINDS = {kind.key: kind for kind in (ENTITY, CONCEPT)}


# One row with packed arrays: fetching hundreds of thousands of rows takes longer than finding them.
_PACKED = """
SELECT string_agg(int8send(named.id), ''::bytea), string_agg(int8send(named.node::bigint), ''::bytea),
       string_agg(float8send(extract(epoch FROM named.created_at)::float8), ''::bytea)
FROM ({rows}) AS named (id, node, created_at)"""
# Uses relationship_unique, which starts with the source, and the index on target_id.
_RELATIONSHIPS = "SELECT id, source_id, relationship_type, target_id FROM categories_relationship WHERE {condition}"
_CONCEPTS = "SELECT id, broader_ids, narrower_ids, related_ids FROM categories_concept WHERE {condition}"
_DESCRIPTION = (
    f"SELECT {READABLE_ALIASES.format(row='own')}, {READABLE_DESCRIPTION.format(row='own')}"
    " FROM {table} own WHERE own.id = %(id)s"
)


class _Unnest(Func):
    function = "unnest"
    set_returning = True
    output_field = BigIntegerField()


@dataclass(frozen=True, slots=True)
class GraphContext:
    """A viewer, a vocabulary, and an engine opened for an empty query."""

    engine: Engine
    resolved: ResolvedQuery
    viewer: Viewer
    kind: NodeKind
    cache_key: tuple[object, ...] | None
    """The key for caches of this data revision; None if nothing may be cached. See `categories.names`."""

    def terms(self, ids: Iterable[int]) -> dict[int, Term]:
        return self.kind.terms(self.resolved.names, ids)


class StatedEdge(NamedTuple):
    """A stated link between two nodes. `id` is that of the relationship, None between concepts.

    `evidence` is the number of visible memories that are evidence for it.
    """

    id: int | None
    source: int
    type: str
    target: int
    evidence: int


class NameUnknownError(Refusal):
    """No node of this name is visible to the viewer. `did_you_mean` are some with a similar name."""

    status = 404
    code = "not_found"

    def __init__(self, kind: NodeKind, name: str, did_you_mean: tuple[str, ...] = ()) -> None:
        self.kind, self.name, self.did_you_mean = kind, name, did_you_mean
        self.suggestion = f"Look for it: GET /api/{kind.plural}?search=…"
        super().__init__(f"There is no {kind.key} named “{name[:200]}” that you can see.")


class NameAmbiguousError(Refusal):
    """A name that several nodes have. `did_you_mean` are their values, or their ids where values are the same."""

    code = "ambiguous_name"
    suggestion = "Write type:name, or an id."

    def __init__(self, kind: NodeKind, name: str, choices: tuple[Term, ...]) -> None:
        self.kind, self.name, self.choices = kind, name, choices
        values = tuple(term.value for term in choices)
        self.did_you_mean = values if len(set(values)) == len(values) else tuple(str(term.id) for term in choices)
        super().__init__(f"{len(choices)} {kind.plural} are named “{name[:200]}”.")


def open_graph(kind: NodeKind, engine: Engine, viewer: Viewer) -> GraphContext:
    """A context over all visible memories in the default states."""
    resolved = resolve_query(engine, SearchQuery(), viewer, datetime.now(UTC))
    return GraphContext(engine, resolved, viewer, kind, resolved.revision.cache_key)


def in_any_state(resolved: ResolvedQuery) -> ResolvedQuery:
    """The query without the restriction to the default states."""
    return replace(resolved, plan=EngineQuery(project_ids=resolved.plan.project_ids))


# --- nodes -------------------------------------------------------------------------------------------------------


def find_node(context: GraphContext, ref: str) -> Term:
    """The node with this id, name or alias, or `type:name` of an entity.

    Raises NameUnknownError and NameAmbiguousError.
    """
    kind, ref = context.kind, ref.strip()
    if not ref or unstorable(ref):
        raise NameUnknownError(kind, legible(ref, 200))
    is_id = ref.isascii() and ref.isdecimal() and len(ref) <= 18
    matches = _known(context, context.terms([int(ref)]).values()) if is_id else ()
    if not matches:
        resolve = resolve_entities if kind is ENTITY else resolve_concepts
        matches = _known(context, resolve([ref], context.viewer.project_ids).get(ref, ()))
    # An exact match wins over names that differ in case only.
    exact = [term for term in matches if term.value == ref]
    if len(matches) == 1 or len(exact) == 1:
        return exact[0] if exact else matches[0]
    if matches:
        raise NameAmbiguousError(kind, ref, matches)
    (warning,) = explain_unknown(context.resolved, context.engine, [(kind.key, ref)])
    raise NameUnknownError(kind, ref, warning.did_you_mean)


def _known(context: GraphContext, terms: Iterable[Term]) -> tuple[Term, ...]:
    """The visible terms: those of a visible memory in any state, or of a relationship with visible evidence."""
    by_id = {term.id: term for term in terms}
    visible = visible_ids(context.engine, context.resolved.plan.project_ids, context.kind.key, by_id)
    if context.kind is ENTITY and (others := by_id.keys() - visible):
        for tie in stated_edges(replace(context, resolved=in_any_state(context.resolved)), others):
            visible |= {tie.source, tie.target}
    return tuple(term for pk, term in by_id.items() if pk in visible)


def description_of(kind: NodeKind, term: Term, projects: Projects) -> tuple[tuple[str, ...], str]:
    """The aliases and the description of a node, with the local ones of the projects."""
    with connection.cursor() as cursor:
        cursor.execute(_DESCRIPTION.format(table=kind.table), {"id": term.id, "projects": as_array(projects)})
        aliases, description = cursor.fetchone() or ((), "")
    local = texts_of(kind.key, [term.id], projects).get(term.id, TermTexts())
    return local.named(term.label, aliases), local.described(description, projects)


# --- links -------------------------------------------------------------------------------------------------------


def named_in_memories(
    context: GraphContext, ids: Collection[int] | None = None
) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """Parallel arrays (memory, node, creation time in seconds since 1970) of visible memories in the default states.

    With `ids`, only of memories that name any of them. Rows of a memory are adjacent.
    """
    memories = visible_to(context.viewer).filter(state__in=DEFAULT_STATES).order_by()
    if ids is not None:
        memories = memories.filter(**{f"{context.kind.column}__overlap": sorted(ids)})
    named = memories.annotate(node=_Unnest(F(context.kind.column))).values_list("id", "node", "created_at")
    try:
        rows, parameters = named.query.sql_with_params()
    except EmptyResultSet:
        # Django raises this for a viewer without projects.
        rows, parameters = "SELECT NULL::bigint, NULL::bigint, NULL::timestamptz WHERE false", ()
    with connection.cursor() as cursor:
        cursor.execute(_PACKED.format(rows=rows), parameters)
        groups, nodes, moments = cursor.fetchone() or (None, None, None)
    return (
        np.frombuffer(groups or b"", ">i8").astype(np.int64),
        np.frombuffer(nodes or b"", ">i8").astype(np.int64),
        np.frombuffer(moments or b"", ">f8").astype(np.float64),
    )


def stated_edges(
    context: GraphContext, ids: Collection[int] | None = None, *, between: bool = False
) -> list[StatedEdge]:
    """Visible stated edges at some nodes (with `between`, only among them); of all nodes if `ids` is None."""
    if context.kind is CONCEPT:
        return _concept_edges(context, ids, between=between)
    word = "AND" if between else "OR"
    condition = "true" if ids is None else f"source_id = ANY(%(ids)s) {word} target_id = ANY(%(ids)s)"
    with connection.cursor() as cursor:
        cursor.execute(_RELATIONSHIPS.format(condition=condition), {"ids": list(ids or ())})
        rows = cursor.fetchall()
    evidence = evidence_of(context.engine, context.resolved, [row[0] for row in rows])
    return [StatedEdge(pk, a, kind, b, len(evidence[pk])) for pk, a, kind, b in sorted(rows) if pk in evidence]


def _concept_edges(context: GraphContext, ids: Collection[int] | None, *, between: bool) -> list[StatedEdge]:
    """Broader and related concepts with both ends visible. A narrower one is a broader one in the other direction."""
    condition = "cardinality(broader_ids || narrower_ids || related_ids) > 0" if ids is None else "id = ANY(%(ids)s)"
    with connection.cursor() as cursor:
        cursor.execute(_CONCEPTS.format(condition=condition), {"ids": list(ids or ())})
        rows = cursor.fetchall()
    stated: set[tuple[int, str, int]] = set()
    for pk, broader, narrower, related in rows:
        stated |= {(pk, "broader", other) for other in broader} | {(other, "broader", pk) for other in narrower}
        stated |= {(min(pk, other), "related", max(pk, other)) for other in related}
    ends = {end for source, _, target in stated for end in (source, target)}
    visible = visible_ids(context.engine, context.resolved.plan.project_ids, context.kind.key, ends)
    visible &= context.terms(ends).keys()
    if between:
        visible &= set(ids or ())
    return [
        StatedEdge(None, *one, 0)
        for one in sorted(stated)
        if one[0] in visible and one[2] in visible and one[0] != one[2]
    ]


def memory_titles(viewer: Viewer, ids: Collection[int]) -> dict[int, MemoryTitle]:
    """Visible memories in the default states, by id."""
    rows = visible_to(viewer).filter(pk__in=ids, state__in=DEFAULT_STATES)
    found = rows.values_list("id", "title", "memory_type", "state", "created_at")
    return {row[0]: MemoryTitle(*row) for row in found}
