"""What a viewer may know of entities and concepts, and of what links them. Every rule about who sees what is used here.

Nothing here decides anew: memories come through `visible_to`, names through `search.planning.visible_ids`, and
relationships through `search.vocabulary.evidence_of`, as in unified search.
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
class Kind:
    """A vocabulary. `key` is what facets, parameters and addresses call one of it, `column` where memories hold it."""

    key: str
    many: str
    table: str
    type_column: str
    column: str

    def terms(self, names: Names, ids: Iterable[int]) -> dict[int, Term]:
        return names.entity_terms(ids) if self.key == "entity" else names.concept_terms(ids)


ENTITY = Kind("entity", "entities", "categories_entity", "entity_type", "entity_ids")
CONCEPT = Kind("concept", "concepts", "categories_concept", "concept_type", "concept_ids")
KINDS = {kind.key: kind for kind in (ENTITY, CONCEPT)}


# All of it in one row: to fetch hundreds of thousands one by one takes longer than to find them.
_PACKED = """
SELECT string_agg(int8send(named.id), ''::bytea), string_agg(int8send(named.node::bigint), ''::bytea),
       string_agg(float8send(extract(epoch FROM named.created_at)::float8), ''::bytea)
FROM ({rows}) AS named (id, node, created_at)"""
# By relationship_unique, which is led by the source, and the index on target_id.
_RELATIONSHIPS = "SELECT id, source_id, relationship_type, target_id FROM categories_relationship WHERE {condition}"
_CONCEPTS = "SELECT id, broader_ids, narrower_ids, related_ids FROM categories_concept WHERE {condition}"
_SAID = "SELECT aliases, description FROM {table} WHERE id = %s"


class _Unnest(Func):
    function = "unnest"
    set_returning = True
    output_field = BigIntegerField()


@dataclass(frozen=True, slots=True)
class GraphContext:
    """Who looks at which vocabulary, and with what."""

    engine: Engine
    resolved: ResolvedQuery
    viewer: Viewer
    kind: Kind
    # What may be kept of this moment, and under what; see `categories.moment`.
    under: tuple[object, ...] | None

    def terms(self, ids: Iterable[int]) -> dict[int, Term]:
        return self.kind.terms(self.resolved.names, ids)


class StatedEdge(NamedTuple):
    """What somebody has stated of two nodes. `id` is that of a relationship, None between concepts.

    `evidence` counts the memories that bear it out, as far as the viewer may know of them.
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

    def __init__(self, kind: Kind, name: str, near: tuple[str, ...] = ()) -> None:
        self.kind, self.name, self.did_you_mean = kind, name, near
        self.suggestion = f"Look for it: GET /api/{kind.many}?search=…"
        super().__init__(f"There is no {kind.key} named “{name[:200]}” that you can see.")


class NameAmbiguousError(Refusal):
    """A name that several nodes have. `did_you_mean` are their values, or their ids where values are the same."""

    code = "ambiguous_name"
    suggestion = "Write type:name, or an id."

    def __init__(self, kind: Kind, name: str, choices: tuple[Term, ...]) -> None:
        self.kind, self.name, self.choices = kind, name, choices
        values = tuple(term.value for term in choices)
        self.did_you_mean = values if len(set(values)) == len(values) else tuple(str(term.id) for term in choices)
        super().__init__(f"{len(choices)} {kind.many} are named “{name[:200]}”.")


def open_graph(kind: Kind, engine: Engine, viewer: Viewer) -> GraphContext:
    """With nothing asked for but what the default states leave."""
    resolved = resolve_query(engine, SearchQuery(), viewer, datetime.now(UTC))
    return GraphContext(engine, resolved, viewer, kind, resolved.revision.cache_key)


def in_any_state(resolved: ResolvedQuery) -> ResolvedQuery:
    """What is there though nothing names it any more but what was put away."""
    return replace(resolved, plan=EngineQuery(project_ids=resolved.plan.project_ids))


# --- nodes -------------------------------------------------------------------------------------------------------


def find(look: GraphContext, ref: str) -> Term:
    """The node that a reference means: an id, else a name, an alias, or of entities `type:name`."""
    kind, ref = look.kind, ref.strip()
    if not ref or unstorable(ref):
        raise NameUnknownError(kind, legible(ref, 200))
    is_id = ref.isascii() and ref.isdecimal() and len(ref) <= 18
    meant = _known(look, look.terms([int(ref)]).values()) if is_id else ()
    if not meant:
        resolve = resolve_entities if kind is ENTITY else resolve_concepts
        meant = _known(look, resolve([ref]).get(ref, ()))
    # Who writes all of a name means it, though another one differs from it in case alone.
    exact = [term for term in meant if term.value == ref]
    if len(meant) == 1 or len(exact) == 1:
        return exact[0] if exact else meant[0]
    if meant:
        raise NameAmbiguousError(kind, ref, meant)
    (warning,) = explain_unknown(look.resolved, look.engine, [(kind.key, ref)])
    raise NameUnknownError(kind, ref, warning.did_you_mean)


def _known(look: GraphContext, terms: Iterable[Term]) -> tuple[Term, ...]:
    """Those that the viewer may know of: a memory of theirs has them, in any state, or a relationship that memories of
    theirs bear out begins or ends at them.
    """
    by_id = {term.id: term for term in terms}
    seen = visible_ids(look.engine, look.resolved.plan.project_ids, look.kind.key, by_id)
    if look.kind is ENTITY and (others := by_id.keys() - seen):
        for tie in ties_of(replace(look, resolved=in_any_state(look.resolved)), others):
            seen |= {tie.source, tie.target}
    return tuple(term for pk, term in by_id.items() if pk in seen)


def said_of(kind: Kind, pk: int) -> tuple[tuple[str, ...], str]:
    """The aliases and the description of a node."""
    with connection.cursor() as cursor:
        cursor.execute(_SAID.format(table=kind.table), [pk])
        aliases, description = cursor.fetchone() or ((), "")
    return tuple(aliases), description


# --- links -------------------------------------------------------------------------------------------------------


def named_in_memories(
    look: GraphContext, ids: Collection[int] | None = None
) -> tuple[Ints, Ints, npt.NDArray[np.float64]]:
    """Which memory names which node, and when it is from: in the default states, and only memories that name one of
    the given. Rows of a memory stand side by side.
    """
    memories = visible_to(look.viewer).filter(state__in=DEFAULT_STATES).order_by()
    if ids is not None:
        memories = memories.filter(**{f"{look.kind.column}__overlap": sorted(ids)})
    named = memories.annotate(node=_Unnest(F(look.kind.column))).values_list("id", "node", "created_at")
    try:
        rows, parameters = named.query.sql_with_params()
    except EmptyResultSet:
        # A viewer without projects: Django knows without asking.
        rows, parameters = "SELECT NULL::bigint, NULL::bigint, NULL::timestamptz WHERE false", ()
    with connection.cursor() as cursor:
        cursor.execute(_PACKED.format(rows=rows), parameters)
        groups, nodes, moments = cursor.fetchone() or (None, None, None)
    return (
        np.frombuffer(groups or b"", ">i8").astype(np.int64),
        np.frombuffer(nodes or b"", ">i8").astype(np.int64),
        np.frombuffer(moments or b"", ">f8").astype(np.float64),
    )


def ties_of(look: GraphContext, ids: Collection[int] | None = None, *, between: bool = False) -> list[StatedEdge]:
    """What is stated of some nodes, or between them, or all that is stated, as far as the viewer may know of it."""
    if look.kind is CONCEPT:
        return _concept_ties(look, ids, between=between)
    word = "AND" if between else "OR"
    condition = "true" if ids is None else f"source_id = ANY(%(ids)s) {word} target_id = ANY(%(ids)s)"
    with connection.cursor() as cursor:
        cursor.execute(_RELATIONSHIPS.format(condition=condition), {"ids": list(ids or ())})
        rows = cursor.fetchall()
    evidence = evidence_of(look.engine, look.resolved, [row[0] for row in rows])
    return [StatedEdge(pk, a, kind, b, len(evidence[pk])) for pk, a, kind, b in sorted(rows) if pk in evidence]


def _concept_ties(look: GraphContext, ids: Collection[int] | None, *, between: bool) -> list[StatedEdge]:
    """Broader and related concepts, both ends of which the viewer may know of. What is narrower is one of the first,
    the other way round: the services keep both.
    """
    condition = "cardinality(broader_ids || narrower_ids || related_ids) > 0" if ids is None else "id = ANY(%(ids)s)"
    with connection.cursor() as cursor:
        cursor.execute(_CONCEPTS.format(condition=condition), {"ids": list(ids or ())})
        rows = cursor.fetchall()
    stated: set[tuple[int, str, int]] = set()
    for pk, broader, narrower, related in rows:
        stated |= {(pk, "broader", other) for other in broader} | {(other, "broader", pk) for other in narrower}
        stated |= {(min(pk, other), "related", max(pk, other)) for other in related}
    ends = {end for source, _, target in stated for end in (source, target)}
    seen = visible_ids(look.engine, look.resolved.plan.project_ids, look.kind.key, ends)
    seen &= look.terms(ends).keys()
    if between:
        seen &= set(ids or ())
    return [
        StatedEdge(None, *one, 0) for one in sorted(stated) if one[0] in seen and one[2] in seen and one[0] != one[2]
    ]


def memory_titles(viewer: Viewer, ids: Collection[int]) -> dict[int, MemoryTitle]:
    """Memories by id as other pages name them, in the default states."""
    rows = visible_to(viewer).filter(pk__in=ids, state__in=DEFAULT_STATES)
    found = rows.values_list("id", "title", "memory_type", "state", "created_at")
    return {row[0]: MemoryTitle(*row) for row in found}
