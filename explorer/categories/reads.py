"""Reads of categories: the content of one category, the concepts in it, and the list of all.

`category_overview`, `concepts_in` and `category_list` each answer one frozen request for one viewer. Categories without
visible memories do not exist for the viewer.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np
from django.db import connection

from access.viewer import Viewer
from categories.queries import Term
from categories.texts import READABLE_ALIASES, as_array
from categories.vocabulary_cache import CachedCategory, Tree
from explorer.categories.schemas import CategoryListRequest, CategoryRequest, ConceptListRequest
from explorer.categories.visible_tree import (
    CategoryChild,
    CategoryDescription,
    VisibleTree,
    ambiguity_warning,
    chunk_warnings,
    visible_tree,
)
from memories.models import MemoryRead
from memories.recalls import record_passing
from search.baseline_counts import CategoryCounts, ConceptCounts, Totals
from search.engines import snapshot, with_engine
from search.engines.base import Engine, Ids
from search.engines.segment_files import Array, Mask
from search.result import SearchWarning, older_warnings
from search.run import engine_notices
from text.analysis import Pattern, phrase_pattern, raw_tokens
from text.highlight import matched_spans, plain_text
from web.timing import Stopwatch

_WORD = re.compile(r"\w+")
# Uses the primary key, which starts with the memory. The index may still list a memory that was deleted.
_CHUNKS = """
SELECT chunk.memory_id, chunk.ordinal, substr(memory.content, chunk.start + 1, chunk."end" - chunk.start),
       memory.title, memory.source_uri, memory.source, project.language, memory.concept_ids
FROM memories_chunk chunk JOIN memories_memory memory ON memory.id = chunk.memory_id
JOIN memories_project project ON project.id = memory.project_id
WHERE chunk.memory_id = ANY(%(ids)s) AND chunk.model_id = %(model)s
  AND memory.state <> 'deleted' AND (%(all)s OR memory.project_id = ANY(%(projects)s))
ORDER BY array_position(%(ids)s, chunk.memory_id), chunk.ordinal LIMIT %(limit)s"""
_NAMES = f"""
SELECT id, name, {READABLE_ALIASES.format(row="own")} FROM categories_concept own WHERE id = ANY(%(ids)s)"""


@dataclass(frozen=True, slots=True)
class ChunkText:
    """A chunk of a memory. `concept_density` is the share, 0 to 1, of its words inside names of its concepts."""

    memory_id: int
    ordinal: int
    text: str
    title: str
    source: str
    concepts: tuple[str, ...]
    concept_density: float


def chunks_of(visible: VisibleTree, slots: Array, limit: int) -> tuple[ChunkText, ...]:
    """The first `limit` chunks of the newest embedded memories among those at `slots`."""
    counts = visible.counts
    ids = counts.filing.newest(slots[counts.chunks_at[slots] > 0], limit).tolist()
    if not ids:
        return ()
    projects = visible.viewer.project_ids
    with connection.cursor() as cursor:
        cursor.execute(
            _CHUNKS,
            {
                "ids": ids,
                "model": visible.revision.model_id,
                "all": projects is None,
                "projects": sorted(projects or ()),
                "limit": limit,
            },
        )
        rows = cursor.fetchall()
        named = sorted({pk for row in rows for pk in row[-1]})
        cursor.execute(_NAMES, {"ids": named, "projects": as_array(projects)})
        names = {pk: (name, (name, *aliases)) for pk, name, aliases in cursor.fetchall()}
    return tuple(_chunk(row, names) for row in rows)


def _chunk(row: tuple[Any, ...], names: dict[int, tuple[str, tuple[str, ...]]]) -> ChunkText:
    memory_id, ordinal, text, title, source_uri, source, language, concept_ids = row
    found: list[str] = []
    covered: list[tuple[int, int]] = []
    for name, spellings in (names[pk] for pk in concept_ids if pk in names):
        patterns = tuple(pattern for spelling in spellings if (pattern := _pattern(spelling, language)))
        if spans := matched_spans(text, patterns, language):
            found.append(name)
            covered += spans
    words = [match.start() for match in _WORD.finditer(text)]
    inside = sum(any(begin <= at < end for begin, end in covered) for at in words)
    return ChunkText(
        memory_id=memory_id,
        ordinal=ordinal,
        text=text,
        title=title,
        source=source_uri or source,
        concepts=tuple(sorted(found)),
        concept_density=round(inside / len(words), 3) if words else 0.0,
    )


@lru_cache(maxsize=4_096)
def _pattern(name: str, language: str) -> Pattern | None:
    """The stemmed pattern of a name; None if it has no words."""
    pattern = phrase_pattern(list(raw_tokens(name, language)))
    return pattern if pattern.terms else None


_PREVIEW = 200
_RELATED_CONCEPTS = 3
# The same condition as `memories.queries.visible_to`. The index may still list a memory that was deleted.
_MEMORIES = """
SELECT memory.id, memory.title, memory.summary, project.slug, memory.memory_type, memory.state, memory.created_at,
       memory.source, memory.source_uri, memory.category_ids, memory.concept_ids, left(memory.content, %(head)s)
FROM memories_memory memory JOIN memories_project project ON project.id = memory.project_id
WHERE memory.id = ANY(%(ids)s) AND memory.state <> 'deleted' AND (%(all)s OR memory.project_id = ANY(%(projects)s))"""
_BY_NAME = "lower(name), id"
_BY_COUNT = f"memories DESC, {_BY_NAME}"
_CONCEPT_ORDERS = {"name": _BY_NAME, "document_count": _BY_COUNT, "weight": f"weight DESC NULLS LAST, {_BY_COUNT}"}
_CONCEPTS = """
SELECT id, name, concept_type, weight, related_ids FROM categories_concept
JOIN unnest(%s::bigint[], %s::bigint[]) AS counted (concept_id, memories) ON concept_id = id
ORDER BY {order} LIMIT %s"""


@dataclass(frozen=True, slots=True)
class CategoryMemory:
    """A memory in the list of a category."""

    id: int
    title: str
    preview: str
    project: str
    memory_type: str
    state: str
    created_at: datetime
    source: str
    concepts: tuple[str, ...]
    categories: tuple[str, ...]
    chunk_count: int


@dataclass(frozen=True, slots=True)
class ConceptCount:
    """A concept with the numbers of its memories in the category and their chunks. The total ignores the category."""

    id: int
    name: str
    type: str
    weight: float | None
    document_count: int
    chunk_count: int
    total_document_count: int
    related_concepts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CategoryOverview:
    """A category and its content, with or without its descendants, as requested.

    `own` and `with_below` are the numbers of memories without and with descendants. `others` are paths of other
    categories with the same name.
    """

    category: CategoryDescription
    numbers: Totals
    own: int
    with_below: int
    children: tuple[CategoryChild, ...]
    children_total: int
    documents: tuple[CategoryMemory, ...]
    concepts: tuple[ConceptCount, ...]
    chunks: tuple[ChunkText, ...] | None
    has_more: bool
    """Whether further pages have memories."""
    message: str
    others: tuple[str, ...]
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]


@dataclass(frozen=True, slots=True)
class ConceptList:
    """The concepts in a category. `message` explains an empty list."""

    category: CategoryDescription
    numbers: Totals
    concepts: tuple[ConceptCount, ...]
    message: str
    others: tuple[str, ...]
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]

    @property
    def average(self) -> float:
        """Distinct concepts per memory."""
        return round(self.numbers.concepts / self.numbers.memories, 1) if self.numbers.memories else 0.0


def category_overview(request: CategoryRequest, viewer: Viewer) -> CategoryOverview:
    """A category: numbers, newest memories, most frequent concepts. Raises CategoryNotFoundError."""
    found = with_engine(lambda engine: _overview(engine, request, viewer), viewer)
    shown = [document.id for document in found.documents]
    record_passing(viewer, shown, MemoryRead.Kind.LIST, urlencode({"category": request.name}))
    return found


def _overview(engine: Engine, request: CategoryRequest, viewer: Viewer) -> CategoryOverview:
    watch = Stopwatch(engine.waited_ms)
    with snapshot():
        with watch.stage("categories"):
            visible = visible_tree(engine, viewer)
            counts = visible.counts
            node, others = visible.find(request.name)
            slots = counts.slots(node.id, below=request.include_children)
            concept_counts = counts.concept_counts(slots)
            numbers = counts.numbers_with(slots, concept_counts)
            children = visible.children(node.id) if request.include_children else []
            children.sort(key=lambda child: -child.numbers.memories)
        with watch.stage("hits"):
            newest = counts.filing.newest(slots, request.begin + request.limit)
            documents = memories_of(visible, newest[request.begin :])
            concepts = _concepts(visible, concept_counts, "document_count", request.limit)
            chunks = chunks_of(visible, slots, request.limit) if request.include_chunks else None
        own, with_below = counts.own_memories(node.id), counts.numbers(node.id).memories
        return CategoryOverview(
            category=visible.describe(node),
            numbers=numbers,
            own=own,
            with_below=with_below,
            children=tuple(children[: request.limit]),
            children_total=len(children),
            documents=documents,
            concepts=concepts,
            chunks=chunks,
            has_more=request.begin + request.limit < numbers.memories,
            message=_message(numbers, with_below),
            others=others,
            warnings=(
                *request.notices,
                *ambiguity_warning(node, others),
                *_past_the_end(request, numbers.memories),
                *chunk_warnings(counts, slots),
                *older_warnings(visible.as_of, viewer.timezone),
                *engine_notices(engine, viewer),
            ),
            timings=watch.timings,
        )


def concepts_in(request: ConceptListRequest, viewer: Viewer) -> ConceptList:
    """The concepts of the memories in a category. Raises CategoryNotFoundError."""
    return with_engine(lambda engine: _concepts_in(engine, request, viewer), viewer)


def _concepts_in(engine: Engine, request: ConceptListRequest, viewer: Viewer) -> ConceptList:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("categories"):
        visible = visible_tree(engine, viewer)
        node, others = visible.find(request.name)
        slots = visible.counts.slots(node.id, below=request.include_children)
        concept_counts = visible.counts.concept_counts(slots)
        numbers = visible.counts.numbers_with(slots, concept_counts)
        concepts = _concepts(visible, concept_counts, request.sort_by, request.limit)
        return ConceptList(
            category=visible.describe(node),
            numbers=numbers,
            concepts=concepts,
            message=_message(numbers, visible.counts.numbers(node.id).memories)
            or ("" if concepts else _without_concepts(numbers, visible.describe(node).node.path)),
            others=others,
            warnings=(
                *request.notices,
                *ambiguity_warning(node, others),
                *_weight_warnings(request.sort_by, concepts),
                *chunk_warnings(visible.counts, slots),
                *older_warnings(visible.as_of, viewer.timezone),
                *engine_notices(engine, viewer),
            ),
            timings=watch.timings,
        )


def _weight_warnings(sort_by: str, concepts: Sequence[ConceptCount]) -> list[SearchWarning]:
    """A warning if an order by weight has concepts without one."""
    missing = sum(concept.weight is None for concept in concepts)
    if sort_by != "weight" or not missing:
        return []
    which = "None" if missing == len(concepts) else "Not every one"
    text = f"{which} of these concepts has a weight: those without one follow by their number of memories."
    return [SearchWarning(text, "sort_by")]


def _message(numbers: Totals, with_below: int) -> str:
    if numbers.memories:
        return ""
    if with_below:
        return f"No memory is directly in it; its subcategories have {with_below:,}: ask with include_children."
    return (
        "No documents, chunks, or concepts found in this category. This category may have been assigned but content"
        " hasn't been indexed yet."
    )


def _without_concepts(numbers: Totals, path: str) -> str:
    return (
        f"None of its {numbers.memories:,} memories has a concept. What is typical there are its tags and entities: the"
        f" tool list_values(facet=tag, category={path}, sort=typical), or"
        f" /api/facets/tag?{urlencode({'category': path, 'sort': 'typical'})}."
    )


class _MemoryRow(NamedTuple):
    """Columns of a memory. `head` is the beginning of its text."""

    id: int
    title: str
    summary: str
    project: str
    memory_type: str
    state: str
    created_at: datetime
    source: str
    source_uri: str
    category_ids: list[int]
    concept_ids: list[int]
    head: str


def memories_of(visible: VisibleTree, ids: Ids) -> tuple[CategoryMemory, ...]:
    """Visible memories by id, in the given order."""
    if not len(ids):
        return ()
    projects = visible.viewer.project_ids
    parameters = {
        "ids": ids.tolist(),
        "all": projects is None,
        "projects": sorted(projects or ()),
        "head": 4 * _PREVIEW,
    }
    with connection.cursor() as cursor:
        # Plain SQL: building the statement from a queryset takes longer than running it.
        cursor.execute(_MEMORIES, parameters)
        rows = {row[0]: _MemoryRow(*row) for row in cursor.fetchall()}
    named = {pk for row in rows.values() for pk in row.concept_ids}
    terms = visible.names.concept_terms(named) if named else {}
    chunks = dict(zip(ids.tolist(), visible.counts.chunks.of(ids).tolist(), strict=True))
    return tuple(_memory(rows[pk], visible, terms, chunks[pk]) for pk in ids.tolist() if pk in rows)


def _memory(row: _MemoryRow, visible: VisibleTree, terms: dict[int, Term], chunks: int) -> CategoryMemory:
    text = row.summary or plain_text(row.head)
    return CategoryMemory(
        id=row.id,
        title=row.title,
        preview=text if len(text) <= _PREVIEW else f"{text[: _PREVIEW - 1].rstrip()}…",
        project=row.project,
        memory_type=row.memory_type,
        state=row.state,
        created_at=row.created_at,
        source=row.source_uri or row.source,
        concepts=tuple(sorted(terms[pk].label for pk in row.concept_ids if pk in terms)),
        categories=tuple(sorted(node.path for node in visible.tree.get_many(row.category_ids, lambda _: True))),
        chunk_count=chunks,
    )


def _concepts(
    visible: VisibleTree, concept_counts: ConceptCounts, sort_by: str, limit: int
) -> tuple[ConceptCount, ...]:
    """The first `limit` concepts in the requested order, with their counts."""
    if not len(concept_counts.ids):
        return ()
    counts = visible.counts
    ids, memories = concept_counts.ids, concept_counts.memories
    if sort_by == "document_count" and len(ids) > limit:
        # Those with at least as many memories as the last one.
        most = memories >= np.partition(memories, -limit)[-limit]
        ids, memories = ids[most], memories[most]
    with connection.cursor() as cursor:
        statement = _CONCEPTS.format(order=_CONCEPT_ORDERS[sort_by])
        cursor.execute(statement, [ids.tolist(), memories.tolist(), limit])
        rows = cursor.fetchall()
    pairs = zip(concept_counts.memories.tolist(), concept_counts.chunks.tolist(), strict=True)
    numbers = dict(zip(concept_counts.ids.tolist(), pairs, strict=True))
    related = _related(visible, rows)
    totals = counts.concept_totals()
    return tuple(
        ConceptCount(
            id=pk,
            name=name,
            type=kind,
            weight=weight,
            document_count=numbers[pk][0],
            chunk_count=numbers[pk][1],
            total_document_count=int(totals[counts.filing.code("concept", pk)]),
            related_concepts=related(related_ids),
        )
        for pk, name, kind, weight, related_ids in rows
    )


def _related(visible: VisibleTree, rows: Sequence[Sequence[Any]]) -> Callable[[Sequence[int]], tuple[str, ...]]:
    """A function from concept ids to the names of the visible ones, at most three."""
    parameters = {pk for row in rows for pk in row[4] if visible.is_concept_visible(pk)}
    terms = visible.names.concept_terms(parameters) if parameters else {}
    return lambda ids: tuple(sorted(terms[pk].label for pk in ids if pk in terms)[:_RELATED_CONCEPTS])


@dataclass(frozen=True, slots=True)
class ListedNode:
    """A category of a list. `numbers` include descendants; `parent` and `children` are set only if requested."""

    node: CachedCategory
    related: tuple[str, ...]
    numbers: Totals
    own: int
    parent: str | None = None
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Numbers over all categories that pass the filter. A memory in several of them counts once."""

    numbers: Totals
    average_memories: float = 0.0
    average_chunks: float = 0.0
    most: str | None = None
    least: str | None = None


@dataclass(frozen=True, slots=True)
class CategoryList:
    """A page of categories; `begin` of the `total` are before it."""

    total: int
    begin: int
    listed: tuple[ListedNode, ...]
    aggregate: Aggregate
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]

    @property
    def has_more(self) -> bool:
        return self.begin + len(self.listed) < self.total


def category_list(request: CategoryListRequest, viewer: Viewer) -> CategoryList:
    """Categories with their numbers, and the totals over all of them."""
    return with_engine(lambda engine: _list(engine, request, viewer), viewer)


def _list(engine: Engine, request: CategoryListRequest, viewer: Viewer) -> CategoryList:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("categories"):
        visible = visible_tree(engine, viewer)
        tree, counts = visible.tree, visible.counts
        codes = counts.codes(tree)
        wanted = _wanted(tree, request.filter) & visible.visible_mask(codes)
        chosen = np.flatnonzero(wanted)
        ranked = chosen[_order(tree, counts, chosen, codes[chosen], request.sort_by)]
        return CategoryList(
            total=len(chosen),
            begin=request.begin,
            listed=tuple(
                _listed(visible, tree.ordered[at], request.include_hierarchy)
                for at in ranked[request.begin : request.begin + request.limit].tolist()
            ),
            aggregate=_aggregate(visible, wanted, codes),
            warnings=(
                *request.notices,
                *_nothing(request.filter, len(chosen)),
                *_past_the_end(request, len(chosen)),
                *(chunk_warnings(counts, counts.shown) if len(chosen) else ()),
                *older_warnings(visible.as_of, viewer.timezone),
                *engine_notices(engine, viewer),
            ),
            timings=watch.timings,
        )


def _nothing(part: str, found: int) -> list[SearchWarning]:
    """A warning that explains an empty list."""
    if found:
        return []
    if not part:
        return [SearchWarning("There is no category that you can see.")]
    where = "path" if "/" in part else "name"
    return [SearchWarning(f"No category has “{part}” in its {where}. Leave filter out to list all of them.", "filter")]


def _past_the_end(request: CategoryRequest | CategoryListRequest, found: int) -> list[SearchWarning]:
    if not found or request.begin < found:
        return []
    if isinstance(request, CategoryListRequest) and request.offset:
        return [SearchWarning(f"Offset {request.offset:,} is past the last category, {found - 1:,}.", "offset")]
    return [SearchWarning(f"Page {request.page:,} is past the last page, {-(-found // request.limit):,}.", "page")]


def _wanted(tree: Tree, part: str) -> Array:
    """A mask over categories in tree order: those with the text in their name, or with a slash, in their path."""
    if not part:
        return np.ones(len(tree.ordered), np.bool_)
    wanted = part.casefold()
    texts = tree.folded_paths if "/" in wanted else tree.folded_names
    return np.fromiter((wanted in text for text in texts), np.bool_, len(texts))


def _order(tree: Tree, counts: CategoryCounts, chosen: Array, codes: Array, sort_by: str) -> Array:
    """Indexes in the requested order; ties in the order of paths, which is that of the tree."""
    if sort_by == "name":
        return np.argsort(tree.name_ranks[chosen])
    by = {"chunk_count": counts.chunk_totals, "concept_count": counts.concepts}.get(sort_by, counts.memories)
    return np.argsort(-by[codes], kind="stable")


def _listed(visible: VisibleTree, node: CachedCategory, with_place: bool) -> ListedNode:
    tree, counts = visible.tree, visible.counts
    listed = ListedNode(node, visible.related(node), counts.numbers(node.id), counts.own_memories(node.id))
    if not with_place:
        return listed
    parent = tree.nodes.get(node.parent_id or 0)
    children = tree.get_many(tree.children.get(node.id, ()), visible.is_visible)
    return replace(listed, parent=parent.path if parent else None, children=tuple(child.path for child in children))


def _aggregate(visible: VisibleTree, wanted: Mask, codes: Array) -> Aggregate:
    tree, counts = visible.tree, visible.counts
    places = np.flatnonzero(wanted)
    if not len(places):
        return Aggregate(Totals())
    memories, chunks = counts.memories[codes[places]], counts.chunk_totals[codes[places]]
    return Aggregate(
        # Memories of a category count in its ancestors too, so the topmost categories are enough.
        numbers=counts.numbers_of_any(tree.uppermost(wanted)),
        # Each memory where it is filed, so that deep trees do not raise it.
        average_memories=round(float(counts.own[codes[places]].mean()), 1),
        average_chunks=round(float(chunks.mean()), 1),
        # The first by path in case of a tie.
        most=tree.ordered[places[int(memories.argmax())]].path,
        least=tree.ordered[places[int(memories.argmin())]].path,
    )
