"""Searches the vocabulary by words and by meaning, restricted to what is visible to a viewer.

They belong to no project and are visible only through memories. Those without a memory that passes the filters are
removed before ranking and counting, so that not even a rank reveals them.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from django.db import connection

from categories.searched_terms import CATEGORIES, CONCEPTS, ENTITIES, RELATIONSHIPS, SearchableTable
from categories.texts import READABLE_TERMS, READABLE_TEXTS
from memories.embedding.vectors import EmbeddedShare, vocabulary_progress
from memories.embedding.vocabulary import literal
from memories.models import Project
from search.engines.base import Engine, EngineQuery, FacetRequest, VectorQuery
from search.engines.sql import tsquery, words_sql
from search.facet_counts import value_terms
from search.facets import DEFAULT_STATES, FACET
from search.plan import ResolvedQuery
from search.unified.questions import NO_FIT, Fit, Statement, fits, is_question
from text.analysis import fold, quote_term, raw_tokens
from text.query_syntax import TextQuery, parse_text
from web.cache import RepeatedReads, RevisionCache

# Rows to read before the check of visibility.
_MAX_ROWS = 2_000

# Relationships that are compared with the text, the best by words or meaning.
_MAX_READ = 500
_MAX_KNOWN = 100
# A text of more words that is no question is hardly about a relationship that lacks some of them.
_FEW_WORDS = 3
_STATEMENTS = """
SELECT own.id, source.name, source.entity_type, own.relationship_type, target.name, target.entity_type
FROM categories_relationship own
JOIN categories_entity source ON source.id = own.source_id JOIN categories_entity target ON target.id = own.target_id
WHERE own.id = ANY(%s)"""
# The joints of the words of a relation that is written as a name: `depends_on`, `dependsOn`.
_JOINT = re.compile(r"(?<=[^\W_])_+(?=[^\W_])|(?<=[a-z])(?=[A-Z])")

# Names fully contained in the text: `mintbrook webhooks` finds Mintbrook. The index narrows by any word.
_NAMED = """
(m.terms @@ %(any)s::tsquery AND tsvector_to_array(ts_filter(m.terms, '{{a}}')) <@ %(said)s::text[] AND {always})"""
# Relationships with such a name at an end.
_ENDS_NAMED = """
(({{always}}) AND (m.source_id IN ({named}) OR m.target_id IN ({named})))""".format(
    named="SELECT e.id FROM categories_entity e WHERE e.terms @@ %(any)s::tsquery"
    " AND tsvector_to_array(ts_filter(e.terms, '{{a}}')) <@ %(said)s::text[]"
)
# Uses the index on the terms, such as entity_terms_gin. Rows whose name is the whole text come first.
_BY_WORDS = """
SELECT m.id, {rank} AS rank FROM {rows} WHERE {condition} OR m.id = ANY(%(named)s::bigint[])
ORDER BY m.id = ANY(%(named)s::bigint[]) DESC, rank DESC, m.id LIMIT %(most)s"""
# Without an order, which takes longer to plan than the rows to read.
_EVERY_WORD = "SELECT '{kind}', m.id, {every}, {rank} FROM {rows} WHERE {condition}"
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
    fit: Fit = NO_FIT


def rows_by_words(searched: SearchableTable, engine: Engine, resolved: ResolvedQuery, limit: int) -> list[LegHit]:
    found = _visible(searched, engine, resolved, _by_words(searched, resolved))
    found = _equal_by_name(searched, resolved, found, named_ids(resolved.plan, searched.kind))
    return by_fit(searched, resolved, found)[:limit]


def rows_by_meaning(searched: SearchableTable, engine: Engine, resolved: ResolvedQuery, limit: int) -> list[LegHit]:
    found = _visible(searched, engine, resolved, _by_meaning(searched, resolved.plan))
    return by_fit(searched, resolved, _equal_by_name(searched, resolved, found))[:limit]


def rows_found(
    searched: SearchableTable, engine: Engine, resolved: ResolvedQuery, found: Mapping[int, float]
) -> list[LegHit]:
    """The visible ones of some rows, in the order of their scores or as they answer a question."""
    return by_fit(searched, resolved, _equal_by_name(searched, resolved, _visible(searched, engine, resolved, found)))


def every_word(resolved: ResolvedQuery) -> dict[str, dict[int, bool]]:
    """The rows of the vocabulary by kind, best first, that have every word of a text: two or more. Relationships may
    lack some of them, and then have False.

    One statement, as it belongs to each search. Whether a memory makes them visible is not checked.
    """
    key = (resolved.plan.texts, resolved.plain_text, resolved.plan.project_ids)
    revision = resolved.revision.cache_key
    if revision is None:
        return _read_every_word(resolved)
    return _every_word.get_or_make(key, lambda: _read_every_word(resolved), revision)


# A text is asked for again with filters, on the next page and by Back.
_every_word = RevisionCache[tuple[object, ...], dict[str, dict[int, bool]]](256, seconds=60)


def _read_every_word(resolved: ResolvedQuery) -> dict[str, dict[int, bool]]:
    texts = [text.words for text in resolved.plan.texts if text.words.positive]
    every = [TextQuery(required=own.positive, excluded=own.excluded) for own in texts if len(own.positive) > 1]
    facts = [own for own in (*texts, *spoken_texts(resolved)) if len(own.positive) > 1]
    if not facts:
        return {}
    if every and not is_question(resolved.plain_text) and min(len(own.positive) for own in facts) > _FEW_WORDS:
        facts = every
    has_every, _, parameters = words_sql(every, always=False)
    fits_some, rank, parameters = words_sql(facts, always=False, beside=parameters)
    parameters |= {"projects": list(resolved.plan.project_ids or ())}
    parts = [
        _EVERY_WORD.format(
            kind=RELATIONSHIPS.kind, rows=f"{RELATIONSHIPS.table} m", every=has_every, condition=fits_some, rank=rank
        )
    ]
    if every:
        for searched in (ENTITIES, CONCEPTS, CATEGORIES):
            condition = has_every
            if _has_unreadable(searched, resolved.plan):
                condition = _NARROWED.format(condition=has_every)
                parameters |= {"positive": _any_word(texts)}
            rows = rows_read(searched, resolved.plan)
            parts.append(
                _EVERY_WORD.format(kind=searched.kind, rows=rows, every="true", condition=condition, rank=rank)
            )
    with connection.cursor() as cursor:
        cursor.execute(f"{' UNION ALL '.join(parts)} LIMIT {_MAX_ROWS}", parameters)
        rows = cursor.fetchall()
    found: dict[str, dict[int, bool]] = {}
    for kind, pk, has_all, _ in sorted(rows, key=lambda row: (not row[2], -row[3], row[1])):
        own = found.setdefault(kind, {})
        if len(own) < _MAX_KNOWN:
            own[pk] = has_all
    return found


def by_fit(searched: SearchableTable, resolved: ResolvedQuery, found: Sequence[LegHit]) -> list[LegHit]:
    """The hits, with the relationships that answer the text as a question first."""
    if searched is not RELATIONSHIPS or not found or not resolved.plan.texts:
        return list(found)
    with connection.cursor() as cursor:
        cursor.execute(_STATEMENTS, [[hit.id for hit in found[:_MAX_READ]]])
        statements = {pk: Statement(*row) for pk, *row in cursor.fetchall()}
    own = fits(resolved.plain_text, resolved.plan.texts[0].language, statements)
    return sorted((replace(hit, fit=own.get(hit.id, NO_FIT)) for hit in found), key=lambda hit: -hit.fit.score)


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
    if searched is RELATIONSHIPS:
        texts += spoken_texts(resolved)
    named = named_ids(resolved.plan, searched.kind)
    if not texts and not named:
        return {}
    condition, rank, parameters = words_sql(texts, always=False)
    # A question finds every relationship of a name, whatever its type.
    finds_names = searched is not RELATIONSHIPS or is_question(resolved.plain_text)
    terms = _all_terms(resolved.plain_text) if texts and finds_names else []
    if terms:
        named_sql = _ENDS_NAMED if searched is RELATIONSHIPS else _NAMED
        always, _, parameters = words_sql(texts, always=True, beside=parameters)
        condition = f"({condition} OR {named_sql.format(always=always)})"
        parameters |= {"any": " | ".join(map(quote_term, terms)), "said": terms}
    if _has_unreadable(searched, resolved.plan):
        parameters |= {"projects": list(resolved.plan.project_ids or ())}
        if texts:
            condition = _NARROWED.format(condition=condition)
            parameters |= {"positive": " | ".join([_any_word(texts), *map(quote_term, terms)])}
    statement = _BY_WORDS.format(rows=rows_read(searched, resolved.plan), rank=rank, condition=condition)
    return _read(statement, {**parameters, "named": named})


def _any_word(texts: Sequence[TextQuery]) -> str:
    return " | ".join(f"({tsquery(pattern)})" for text in texts for pattern in text.positive)


def rows_read(searched: SearchableTable, plan: EngineQuery) -> str:
    """The rows as a table `m` in SQL, with the search terms that the viewer may read; `projects` is a parameter."""
    return (_READABLE_ROWS if _has_unreadable(searched, plan) else "{table} m").format(table=searched.table)


def _has_unreadable(searched: SearchableTable, plan: EngineQuery) -> bool:
    """Whether the viewer may be unable to read a text of some rows. Relationships have names alone, and their fact."""
    return searched is not RELATIONSHIPS and plan.project_ids is not None


def spoken_texts(resolved: ResolvedQuery) -> Iterator[TextQuery]:
    """The text with the words of names such as `depends_on` apart, as relationships have them."""
    text = _JOINT.sub(" ", resolved.plain_text)
    for own in resolved.plan.texts if text != resolved.plain_text else ():
        if not (own.words.required or own.words.excluded or any(group.phrases for group in own.words.groups)):
            yield parse_text(text, own.language)


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
