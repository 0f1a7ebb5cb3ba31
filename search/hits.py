"""Loads the hits of a page by id in rank order, with highlighted titles and snippets, and explains their ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import psycopg
from django.db import connection

from access.viewer import Viewer
from categories.queries import CategoryNode
from memories.trust import trust_of
from search.engines.base import EngineQuery
from search.plan import ResolvedQuery
from search.query import Mode, SearchQuery, Sort
from search.ranking import WINDOW, Ranked, ScoreParts
from search.result import CategoryRef, FieldMatch, Hit, HitDetail, NamedTerm
from text.analysis import Pattern, fold
from text.formatting import listed, ordinal
from text.highlight import MarkedText, matched_spans, plain_text, segments, snippet

# Characters of a memory that are searched for a snippet.
_SNIPPET_SCOPE = 20_000
_SNIPPET_LENGTH = 260
_WORDS_SHOWN = 8
# Titles that come from a text are its first sentence: longer than the name of a file that a text may begin with.
_CUT_TITLE = 30

_Spans = list[tuple[int, int]]


class _HitRow(NamedTuple):
    """Columns of a memory. `head` is the beginning of its text."""

    id: int
    project_id: int
    memory_type: str
    title: str
    summary: str
    state: str
    tags: list[str]
    category_ids: list[int]
    authors: list[str]
    agent: str
    source: str
    source_uri: str
    external_id: str
    created_at: datetime
    updated_at: datetime
    pinned: bool
    importance: float | None
    superseded_by_id: int | None
    trust: int | None
    recalls: int
    marks: list[str]
    head: str


# Uses the primary keys. The same rows as `visible_to`, in plain SQL: building a queryset takes longer than reading.
_ROWS = f"""
SELECT {", ".join(f"memory.{column}" for column in _HitRow._fields[:-3])}, coalesce(recall.total, 0),
       coalesce(mark.marks, '{{}}'), left(memory.content, %(scope)s)
FROM memories_memory memory LEFT JOIN memories_recall recall ON recall.memory_id = memory.id
LEFT JOIN memories_memorymark mark ON mark.memory_id = memory.id AND mark.harmless_at IS NULL
WHERE memory.id = ANY(%(ids)s::bigint[]) AND (%(all)s OR memory.project_id = ANY(%(projects)s::bigint[]))"""


# Uses the primary key.
_CARRIED = """
SELECT id, tags, concept_ids, entity_ids, CASE WHEN %s THEN category_path_ids ELSE category_ids END
FROM memories_memory WHERE id = ANY(%s)"""
_CARRIED_KEYS = ("tag", "concept", "entity", "category")


def load_hits(
    found: Sequence[Ranked],
    resolved: ResolvedQuery,
    viewer: Viewer,
    detail: HitDetail = HitDetail.FULL,
    named: Sequence[NamedTerm] = (),
) -> tuple[Hit, ...]:
    """The visible memories in the order of `found`, in detail: see HitDetail.

    `named` are the terms that the text names; each hit lists those that it carries.
    """
    if not found:
        return ()
    scope = _SNIPPET_SCOPE if resolved.plan.has_text else 4 * _SNIPPET_LENGTH
    loaded = _rows([one.id for one in found], viewer, scope if detail.has_text else 0)
    rows = {row.id: row for row in loaded if _in_state(row, resolved.plan)}
    nodes = resolved.names.category_nodes([pk for row in rows.values() for pk in row.category_ids])
    hits = tuple(_hit(rows[one.id], one, resolved, nodes, detail) for one in found if one.id in rows)
    if not named or detail != HitDetail.FULL:
        return hits
    names = _names_of([hit.id for hit in hits], named, resolved.plan)
    return tuple(replace(hit, named=names.get(hit.id, ())) for hit in hits)


def _names_of(ids: list[int], named: Sequence[NamedTerm], plan: EngineQuery) -> dict[int, tuple[str, ...]]:
    """The terms among `named` that each memory carries."""
    with connection.cursor() as cursor:
        cursor.execute(_CARRIED, [plan.subcategories, ids])
        carried = {pk: dict(zip(_CARRIED_KEYS, values, strict=True)) for pk, *values in cursor.fetchall()}
    return {pk: tuple(term.text for term in named if term.ref in values[term.facet]) for pk, values in carried.items()}


def _rows(ids: list[int], viewer: Viewer, scope: int) -> list[_HitRow]:
    """Visible memories, with `scope` characters of their texts."""
    visible = viewer.project_ids
    parameters = {"ids": ids, "scope": scope, "all": visible is None, "projects": list(visible or ())}
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    with connection.wrap_database_errors, psycopg.Cursor(raw) as cursor:
        # Binary, unlike Django's cursors: timestamps and arrays are parsed three times as fast.
        return [_HitRow._make(row) for row in cursor.execute(_ROWS, parameters, binary=True)]


def _in_state(row: _HitRow, plan: EngineQuery) -> bool:
    """Whether the state matches the query: the index may still list a deleted memory."""
    chosen = plan.filter("state")
    if chosen is None or not chosen.includes or chosen.no_value:
        return True
    return any(row.state in group for group in chosen.include)


def _hit(row: _HitRow, why: Ranked, resolved: ResolvedQuery, nodes: dict[int, CategoryNode], detail: HitDetail) -> Hit:
    project = resolved.projects[row.project_id]
    patterns = _patterns(resolved.plan, row.project_id) if detail.has_text else ()
    # Words restricted to the title are only highlighted there.
    anywhere = tuple(p for p in patterns if not p.field)
    text = _text(row)
    title_spans = matched_spans(row.title, patterns, project.language)
    text_spans = matched_spans(text, anywhere, project.language)
    categories = sorted((nodes[pk] for pk in row.category_ids if pk in nodes), key=lambda node: node.path)
    return Hit(
        id=row.id,
        project=project.slug,
        project_name=project.name or project.slug,
        memory_type=row.memory_type,
        title=segments(row.title, title_spans),
        snippet=_snippet(row, text, text_spans, anywhere, project.language) if detail.has_text else (),
        created_at=row.created_at,
        updated_at=row.updated_at,
        state=row.state,
        tags=tuple(row.tags),
        categories=tuple(CategoryRef(node.path, node.names) for node in categories),
        authors=tuple(row.authors),
        agent=row.agent,
        source=row.source,
        source_uri=row.source_uri,
        external_id=row.external_id,
        pinned=row.pinned,
        importance=row.importance,
        superseded_by=row.superseded_by_id,
        recalls=row.recalls,
        trust=trust_of(row),
        marks=tuple(row.marks),
        score=why.score,
        why=why,
        found=_found(row, text, title_spans, text_spans, anywhere, project.language)
        if patterns and detail == HitDetail.FULL
        else (),
    )


def _found(
    row: _HitRow, text: str, title_spans: _Spans, text_spans: _Spans, patterns: tuple[Pattern, ...], language: str
) -> tuple[FieldMatch, ...]:
    tags = ", ".join(row.tags)
    return tuple(
        FieldMatch(field, words)
        for field, written, spans in (
            ("title", row.title, title_spans),
            ("tags", tags, matched_spans(tags, patterns, language)),
            ("summary", row.summary, matched_spans(row.summary, patterns, language)),
            ("text", text, text_spans),
        )
        if (words := _words(written, spans))
    )


def _words(text: str, spans: _Spans) -> tuple[str, ...]:
    """The distinct words at the spans, in their first spelling."""
    found: dict[str, str] = {}
    for start, end in spans:
        found.setdefault(fold(text[start:end]), text[start:end])
    return tuple(found.values())[:_WORDS_SHOWN]


def _patterns(plan: EngineQuery, project_id: int) -> tuple[Pattern, ...]:
    for text in plan.texts:
        if text.project_ids is None or project_id in text.project_ids:
            return text.words.positive
    return ()


def _text(row: _HitRow) -> str:
    text = plain_text(row.head)
    # Do not repeat a title that is the first line of the text, or the beginning of a long one.
    first = plain_text(row.head.lstrip().partition("\n")[0])
    if row.title and text.startswith(row.title) and (first == row.title or len(row.title) > _CUT_TITLE):
        text = text[len(row.title) :].lstrip(" .…:;,-–—")
    return text


def _snippet(
    row: _HitRow, text: str, spans: _Spans, patterns: tuple[Pattern, ...], language: str
) -> tuple[MarkedText, ...]:
    if row.summary and not spans:
        text = row.summary
        spans = matched_spans(text, patterns, language)
    return snippet(text, spans, _SNIPPET_LENGTH)


@dataclass(frozen=True, slots=True)
class Reason:
    """A signal that contributed to the rank of a memory."""

    label: str
    text: str


def explain(hit: Hit, query: SearchQuery, threshold: float | None) -> tuple[Reason, ...]:
    """The reasons for a hit; empty without a query text. `threshold` is the minimum similarity of a match."""
    if not query.text:
        return ()
    reasons = [Reason("Words", _words_reason(hit, query, threshold))]
    if hit.named:
        reasons.append(Reason("Name", f"carries {listed(hit.named)}"))
    if threshold is not None:
        reasons.append(Reason("Meaning", _meaning(hit, threshold)))
    if hit.why.fused_rank is not None and hit.why.neighbour_rank is not None:
        reasons.append(Reason("Neighbours", _neighbours(hit.why.fused_rank, hit.why.neighbour_rank)))
    if hit.why.cross_encoder_rank is not None:
        read = f"{ordinal(hit.why.cross_encoder_rank)} by the cross-encoder, score {hit.why.cross_encoder_score:.2f}"
        reasons.append(Reason("Reranked", read))
    if query.order != Sort.RELEVANCE:
        reasons.append(Reason("Order", f"{query.order.value}, not by relevance"))
    elif standing := _standing(hit.why):
        reasons.append(Reason("Score", standing))
    if hit.why.moved_below is not None:
        reasons.append(Reason("Superseded", f"by #{hit.why.moved_below}, so it was moved below it"))
    if hit.why.similar_to is not None:
        reasons.append(Reason("Similar", f"nearly the same as #{hit.why.similar_to}, grouped under it"))
    return tuple(reasons)


def _words_reason(hit: Hit, query: SearchQuery, threshold: float | None) -> str:
    found = listed([_place(one) for one in hit.found])
    if threshold is not None and query.mode == Mode.SEMANTIC:
        return f"{found or 'none'}; ignored when matching by meaning only"
    if hit.why.keyword_rank is not None:
        # The match is in the target of a link, in an id, or beyond the searched part of a long text.
        return f"{ordinal(hit.why.keyword_rank)} by words: {found or 'elsewhere in the memory'}"
    return found or ("elsewhere in the memory" if threshold is None else "none, or elsewhere in the memory")


def _place(found: FieldMatch) -> str:
    where = "among the tags" if found.field == "tags" else f"in the {found.field}"
    return f"{listed([f'“{word}”' for word in found.words])} {where}"


def _meaning(hit: Hit, threshold: float) -> str:
    why, by = hit.why, "words or by name" if hit.named else "words"
    if why.similarity is None:
        return f"not embedded yet, so found by {by} only"
    if why.similarity < threshold:
        return f"similarity {why.similarity:.2f}, below the required {threshold:.2f}: it matches by its {by}"
    rank = "" if why.semantic_rank is None else f"{ordinal(why.semantic_rank)} by meaning, "
    return f"{rank}similarity {why.similarity:.2f} (at least {threshold:.2f})"


def _neighbours(before: int, after: int) -> str:
    if before == after:
        return f"{ordinal(after)} by words and meaning, and still with the results that it resembles"
    moved = "raised" if after < before else "lowered"
    return f"{ordinal(before)} by words and meaning, {moved} to {ordinal(after)} by the results that it resembles"


def _standing(why: Ranked) -> str:
    by = "words" if why.similarity is None else "words and meaning"
    if why.fused_rank is not None:
        by = by.replace(" and ", ", ") + " and neighbours"
    if why.score_parts is not None:
        return _sum(why.score, why.score_parts, by)
    if why.relevance is not None:
        return f"{why.relevance:.2f} by {by}; only the first {WINDOW} are scored further"
    return ""


def _sum(score: float | None, score_parts: ScoreParts, by: str) -> str:
    """The parts of the score; without the total for viewers who may not see it."""
    added = [
        (score_parts.quality, "quality (importance, confidence, pinned)"),
        (score_parts.recency, "recency"),
        (score_parts.source, "source"),
    ]
    if score is None or score_parts.relevance is None:
        return f"{listed([f'{value:.3f} for {name}' for value, name in added])}, added to {by}"
    return " + ".join(
        [
            f"{score:.3f} = {score_parts.relevance:.3f} for {by}",
            *(f"{value:.3f} {name}" for value, name in added),
        ]
    )
