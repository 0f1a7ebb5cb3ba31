"""Searches the vocabulary by words and by meaning, restricted to what is visible to a viewer.

They belong to no project and are visible only through memories. Those without a memory that passes the filters are
removed before ranking and counting, so that not even a rank reveals them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.db import connection

from categories.searched_terms import RELATIONSHIPS, SearchableTable
from categories.text_projects import READABLE_TERMS, READABLE_TEXTS
from memories.embedding.progress import EmbeddedShare, vocabulary_progress
from memories.embedding.vocabulary import literal
from memories.models import Project
from search.engines.base import Engine, EngineQuery, FacetRequest, VectorQuery
from search.engines.sql import tsquery, words_sql
from search.facet_counts import value_terms
from search.facets import DEFAULT_STATES, FACET
from search.plan import ResolvedQuery
from text.analysis import fold, quote_term, raw_tokens
from web.cache import RepeatedReads

# Rows to read before the check of visibility.
_MAX_ROWS = 2_000

# Names fully contained in the text: `mintbrook webhooks` finds Mintbrook. The index narrows by any word.
_NAMED = """
(m.terms @@ %(any)s::tsquery AND tsvector_to_array(ts_filter(m.terms, '{{a}}')) <@ %(said)s::text[] AND {always})"""
# Uses the index on the terms, such as entity_terms_gin. Rows whose name is the whole text come first.
_BY_WORDS = """
SELECT m.id, {rank} AS rank FROM {rows} WHERE {condition} OR m.id = ANY(%(named)s::bigint[])
ORDER BY m.id = ANY(%(named)s::bigint[]) DESC, rank DESC, m.id LIMIT %(most)s"""
_BY_MEANING = """
SELECT id, similarity FROM (
  SELECT m.id, (1 - (vector.embedding <=> %(vector)s::halfvec))::real AS similarity
  FROM {vectors} vector JOIN {table} m ON m.id = vector.{owner}
  WHERE vector.model_id = %(model)s AND {condition} AND {readable}
) near WHERE similarity >= %(least)s ORDER BY similarity DESC, id LIMIT %(most)s"""
# Rows as `m` for viewers of some projects: without the terms of texts that they may not read. Their whole terms, which
# have an index, narrow them.
_READABLE_ROWS = f"{{table}} own, LATERAL (SELECT own.id, {READABLE_TERMS.format(row='own')} AS terms) m"
_NARROWED = "(own.terms @@ %(positive)s::tsquery AND {condition})"


@dataclass(frozen=True, slots=True)
class LegHit:
    """A hit of a leg, and the number of memories that make it visible; for a relationship also their ids."""

    id: int
    score: float
    memories: int
    evidence: tuple[int, ...] = ()


def rows_by_words(searched: SearchableTable, engine: Engine, resolved: ResolvedQuery, limit: int) -> list[LegHit]:
    found = _visible(searched, engine, resolved, _by_words(searched, resolved))
    return _equal_by_name(searched, resolved, found, named_ids(resolved.plan, searched.kind))[:limit]


def rows_by_meaning(searched: SearchableTable, engine: Engine, resolved: ResolvedQuery, limit: int) -> list[LegHit]:
    found = _visible(searched, engine, resolved, _by_meaning(searched, resolved.plan))
    return _equal_by_name(searched, resolved, found)[:limit]


def _equal_by_name(
    searched: SearchableTable, resolved: ResolvedQuery, found: list[LegHit], first: Collection[int] = ()
) -> list[LegHit]:
    """For a viewer of some projects, rows of equal scores by name, and relationships by their visible evidence: ids
    show which of them others stated first. The rows `first` stay before the others.
    """
    if resolved.plan.project_ids is None:
        return found
    if searched is RELATIONSHIPS:
        return sorted(found, key=lambda hit: (-hit.score, -hit.memories, hit.evidence))
    terms = value_terms(FACET[searched.kind], [hit.id for hit in found], resolved)
    names = {pk: (fold(term.label), term.value) for pk, term in terms.items()}
    return sorted(found, key=lambda hit: (hit.id not in first, -hit.score, names.get(hit.id, ("", ""))))


def embedded_share(searched: SearchableTable, engine: Engine, resolved: ResolvedQuery) -> EmbeddedShare | None:
    """The share of the rows that have a vector. None if it is unknown.

    For a viewer of some projects it is that of the rows that they see: a number must not count what others alone see.
    """
    revision, project_ids = resolved.revision, resolved.plan.project_ids
    progress = vocabulary_progress(revision, searched)
    if project_ids is None or progress.share.is_complete:
        return progress.share
    if not progress.lists_all_pending:
        return None

    def read() -> EmbeddedShare | None:
        everything = replace(resolved, plan=EngineQuery(project_ids=project_ids))
        pending = len(_visible(searched, engine, everything, dict.fromkeys(progress.pending_ids, 0.0)))
        if not pending:
            return EmbeddedShare(1, 1)
        if searched is RELATIONSHIPS:
            return None
        request = FacetRequest(searched.kind, limit=1)
        counts = engine.counts(everything.plan, [request], zone=resolved.zone, now=resolved.now, days=False)
        total = counts.facets[searched.kind].distinct
        return EmbeddedShare(total - pending, total)

    if not revision.is_shared:
        return read()
    key = (*revision.database, searched.kind, revision.model_id, project_ids)
    return _shares.get(key, (revision.revision, progress), read)


# For viewers of some projects: the check of thousands of rows must not take the time of each search.
_shares = RepeatedReads[tuple[object, ...], EmbeddedShare | None]()


def named_ids(plan: EngineQuery, kind: str) -> list[int]:
    """The rows of a kind whose name or alias is the whole text."""
    return [int(value) for key, values in plan.named if key == kind for value in values]


def filtered(plan: EngineQuery) -> EngineQuery:
    """The plan with its filters only."""
    return plan.without_text


def memories_of_terms(engine: Engine, resolved: ResolvedQuery, kind: str, ids: Sequence[int]) -> dict[int, int]:
    """The number of memories per term of a kind that pass the filters, without zeros."""
    if not ids:
        return {}
    # With the selection in the facet itself, which its counts leave out otherwise.
    plan = replace(filtered(resolved.plan), counts_results=True)
    request = FacetRequest(kind, only=tuple(ids))
    counts = engine.counts(plan, [request], zone=resolved.zone, now=resolved.now, days=False)
    return {int(value.value): value.count for value in counts.facets[kind].values if value.count}


def evidence_of(engine: Engine, resolved: ResolvedQuery, ids: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """The evidence of each relationship that passes the filters; relationships without any are missing.

    A relationship without stated evidence is included for viewers of all projects in unrestricted queries.
    """
    if not ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, evidence_ids FROM categories_relationship WHERE id = ANY(%s)", [list(ids)])
        stated: dict[int, list[int]] = dict(cursor.fetchall())
    passing = engine.filter_ids(filtered(resolved.plan), sorted({pk for given in stated.values() for pk in given}))
    visible = {pk: tuple(one for one in given if one in passing) for pk, given in stated.items()}
    return {pk: own for pk, own in visible.items() if own or (not stated[pk] and _is_unrestricted(resolved.plan))}


def _is_unrestricted(plan: EngineQuery) -> bool:
    """Whether a plan includes all memories in the default states."""
    narrowing = [f for f in plan.filters if f.key != "state" or _values(f.include) != set(DEFAULT_STATES) or f.exclude]
    ranges = (
        plan.start,
        plan.end,
        plan.updated_from,
        plan.as_of,
        plan.area,
        plan.recalled_from,
        plan.not_recalled_from,
    )
    return plan.project_ids is None and not plan.is_refused and not narrowing and all(one is None for one in ranges)


def _values(groups: Sequence[Sequence[int | str]]) -> set[int | str]:
    return {value for group in groups for value in group}


def _visible(
    searched: SearchableTable, engine: Engine, resolved: ResolvedQuery, found: Mapping[int, float]
) -> list[LegHit]:
    """The rows, with those left out that no memory makes visible."""
    if searched is RELATIONSHIPS:
        evidence = evidence_of(engine, resolved, list(found))
        return [LegHit(pk, score, len(evidence[pk]), evidence[pk]) for pk, score in found.items() if pk in evidence]
    memories = memories_of_terms(engine, resolved, searched.kind, list(found))
    return [LegHit(pk, score, memories[pk]) for pk, score in found.items() if pk in memories]


def _by_words(searched: SearchableTable, resolved: ResolvedQuery) -> dict[int, float]:
    """Scores of rows that match the words or are named by the whole text, best first.

    An entity, a concept or a category also matches if the text contains its whole name.
    """
    texts = [text.words for text in resolved.plan.texts if text.words.positive]
    named = named_ids(resolved.plan, searched.kind)
    if not texts and not named:
        return {}
    condition, rank, parameters = words_sql(texts, always=False)
    terms = _all_terms(resolved.plain_text) if texts and searched is not RELATIONSHIPS else []
    if terms:
        always, _, parameters = words_sql(texts, always=True, beside=parameters)
        condition = f"({condition} OR {_NAMED.format(always=always)})"
        parameters |= {"any": " | ".join(map(quote_term, terms)), "said": terms}
    if _has_unreadable(searched, resolved.plan):
        parameters |= {"projects": list(resolved.plan.project_ids or ())}
        if texts:
            words = [f"({tsquery(pattern)})" for text in texts for pattern in text.positive]
            condition = _NARROWED.format(condition=condition)
            parameters |= {"positive": " | ".join([*words, *map(quote_term, terms)])}
    statement = _BY_WORDS.format(rows=rows_read(searched, resolved.plan), rank=rank, condition=condition)
    return _read(statement, {**parameters, "named": named})


def rows_read(searched: SearchableTable, plan: EngineQuery) -> str:
    """The rows as a table `m` in SQL, with the search terms that the viewer may read; `projects` is a parameter."""
    return (_READABLE_ROWS if _has_unreadable(searched, plan) else "{table} m").format(table=searched.table)


def _has_unreadable(searched: SearchableTable, plan: EngineQuery) -> bool:
    """Whether the viewer may be unable to read a text of some rows. Relationships have names alone, and their fact."""
    return searched is not RELATIONSHIPS and plan.project_ids is not None


def _all_terms(text: str) -> list[str]:
    """All terms of a text in the languages of all projects."""
    languages = Project.objects.order_by("language").values_list("language", flat=True).distinct()
    return sorted({term for language in languages for raw in raw_tokens(text, language) for term, _ in raw.terms})


def _by_meaning(searched: SearchableTable, plan: EngineQuery) -> dict[int, float]:
    """Similarities of the nearest rows that contain the required words."""
    meaning = plan.meaning
    if meaning is None:
        return {}
    texts = [text.words for text in plan.texts]
    condition, _, parameters = words_sql(texts, always=True)
    # The vector is of the whole text: where a part may not be read, it would tell what that is about.
    readable = READABLE_TEXTS.format(row="m") if _has_unreadable(searched, plan) else "true"
    statement = _BY_MEANING.format(
        vectors=searched.vectors, owner=searched.owner, table=searched.table, condition=condition, readable=readable
    )
    projects = {"projects": list(plan.project_ids or ())}
    return _read(statement, {**parameters, **projects, **_vector_parameters(meaning)})


def _vector_parameters(meaning: VectorQuery) -> dict[str, Any]:
    vector = literal(np.frombuffer(meaning.vector, np.float32))
    return {"vector": vector, "model": meaning.model_id, "least": meaning.min_similarity}


def _read(statement: str, parameters: Mapping[str, Any]) -> dict[int, float]:
    with connection.cursor() as cursor:
        cursor.execute(statement, {**parameters, "most": _MAX_ROWS})
        return dict(cursor.fetchall())
