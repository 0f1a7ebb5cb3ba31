"""Two reads of one category: all that is in it, and its concepts.

`category_overview` and `concepts_in` each answer one frozen request for one viewer. Names and numbers are of what the
viewer may open alone: a category that none of their memories is in is not there for them.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from django.db import connection

from access.viewer import Viewer
from categories.queries import Term
from categories.vocabulary_cache import CachedCategory, Tree
from explorer.category_requests import CategoryListRequest, CategoryRequest, ConceptListRequest
from explorer.visible_tree import Child, Described, VisibleTree, ambiguous, look
from search.category_counts import CategoryCounts, ConceptCounts, Totals
from search.engines import with_engine
from search.engines.array_files import Array, Mask
from search.engines.base import Engine, Ids
from search.result import SearchWarning
from search.run import engine_notices
from search.snapshots import snapshot
from text.analysis import Pattern, phrase_pattern, raw_tokens
from text.highlight import matched_spans, plain_text
from web.timing import Stopwatch

_WORD = re.compile(r"\w+")
# By the primary key, which is led by the memory. The index may not know yet of one that was deleted.
_CHUNKS = """
SELECT chunk.memory_id, chunk.ordinal, substr(memory.content, chunk.start + 1, chunk."end" - chunk.start),
       memory.title, memory.source_uri, memory.source, project.language, memory.concept_ids
FROM memories_chunk chunk JOIN memories_memory memory ON memory.id = chunk.memory_id
JOIN memories_project project ON project.id = memory.project_id
WHERE chunk.memory_id = ANY(%(ids)s) AND chunk.model_id = %(model)s
  AND memory.state <> 'deleted' AND (%(all)s OR memory.project_id = ANY(%(projects)s))
ORDER BY array_position(%(ids)s, chunk.memory_id), chunk.ordinal LIMIT %(limit)s"""
_NAMES = "SELECT id, name, aliases FROM categories_concept WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a memory. `density` is the share of its words that belong to the name of a concept of the memory."""

    memory_id: int
    ordinal: int
    text: str
    title: str
    source: str
    concepts: tuple[str, ...]
    density: float


def passages_of(looking: VisibleTree, slots: Array, limit: int) -> tuple[Passage, ...]:
    """The first chunks of the newest of some memories that have any."""
    figures = looking.figures
    ids = figures.filing.newest(slots[figures.chunks_at[slots] > 0], limit).tolist()
    if not ids:
        return ()
    projects = looking.viewer.project_ids
    with connection.cursor() as cursor:
        cursor.execute(
            _CHUNKS,
            {
                "ids": ids,
                "model": looking.moment.model_id,
                "all": projects is None,
                "projects": sorted(projects or ()),
                "limit": limit,
            },
        )
        rows = cursor.fetchall()
        cursor.execute(_NAMES, [sorted({pk for row in rows for pk in row[-1]})])
        names = {pk: (name, (name, *aliases)) for pk, name, aliases in cursor.fetchall()}
    return tuple(_passage(row, names) for row in rows)


def _passage(row: tuple[Any, ...], names: dict[int, tuple[str, tuple[str, ...]]]) -> Passage:
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
    return Passage(
        memory_id=memory_id,
        ordinal=ordinal,
        text=text,
        title=title,
        source=source_uri or source,
        concepts=tuple(sorted(found)),
        density=round(inside / len(words), 3) if words else 0.0,
    )


@lru_cache(maxsize=4_096)
def _pattern(name: str, language: str) -> Pattern | None:
    """A name as it is looked for in a text, stemmed as the text is."""
    pattern = phrase_pattern(list(raw_tokens(name, language)))
    return pattern if pattern.terms else None


_PREVIEW = 200
_RELATED_CONCEPTS = 3
# As `access.viewer.visible_to` has it. The index may not know yet of a memory that was deleted.
_DOCUMENTS = """
SELECT memory.id, memory.title, memory.summary, project.slug, memory.memory_type, memory.state, memory.created_at,
       memory.source, memory.source_uri, memory.category_ids, memory.concept_ids, left(memory.content, %(head)s)
FROM memories_memory memory JOIN memories_project project ON project.id = memory.project_id
WHERE memory.id = ANY(%(ids)s) AND memory.state <> 'deleted' AND (%(all)s OR memory.project_id = ANY(%(projects)s))"""
_BY_NAME = "lower(name), id"
_CONCEPT_ORDERS = {"name": _BY_NAME, "document_count": _BY_NAME, "weight": f"weight DESC NULLS LAST, {_BY_NAME}"}
_CONCEPTS = """
SELECT id, name, concept_type, weight, related_ids FROM categories_concept
WHERE id = ANY(%s) ORDER BY {order} LIMIT %s"""


@dataclass(frozen=True, slots=True)
class Document:
    """A memory as a category lists it."""

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
    chunks: int


@dataclass(frozen=True, slots=True)
class ConceptFigures:
    """A concept, in how many memories of the category it is, and how many chunks these have. `total` is everywhere."""

    id: int
    name: str
    type: str
    weight: float | None
    memories: int
    chunks: int
    total: int
    related: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CategoryOverview:
    """A category with what is in it: of it alone, or with all that is below it, as was asked.

    `own` and `with_below` are the memories either way. `others` are the paths of other categories that the name means.
    """

    category: Described
    numbers: Totals
    own: int
    with_below: int
    children: tuple[Child, ...]
    children_total: int
    documents: tuple[Document, ...]
    concepts: tuple[ConceptFigures, ...]
    chunks: tuple[Passage, ...] | None
    message: str
    others: tuple[str, ...]
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]


@dataclass(frozen=True, slots=True)
class ConceptList:
    """The concepts in a category; with `message` where there is something to know about them being few."""

    category: Described
    numbers: Totals
    concepts: tuple[ConceptFigures, ...]
    message: str
    others: tuple[str, ...]
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]

    @property
    def average(self) -> float:
        """Concepts for each memory."""
        return round(self.numbers.concepts / self.numbers.memories, 1) if self.numbers.memories else 0.0


def category_overview(request: CategoryRequest, viewer: Viewer) -> CategoryOverview:
    """A category by name: its numbers, newest memories, most frequent concepts. Raises CategoryNotFoundError."""
    return with_engine(lambda engine: _overview(engine, request, viewer), viewer)


def _overview(engine: Engine, request: CategoryRequest, viewer: Viewer) -> CategoryOverview:
    watch = Stopwatch(engine.waited_ms)
    with snapshot():
        with watch.stage("categories"):
            looking = look(engine, viewer)
            figures = looking.figures
            node, others = looking.meant(request.name)
            slots = figures.slots(node.id, below=request.include_children)
            counted = figures.concept_counts(slots)
            numbers = figures.numbers_with(slots, counted)
            children = looking.children(node.id) if request.include_children else []
            children.sort(key=lambda child: -child.numbers.memories)
        with watch.stage("hits"):
            documents = documents_of(looking, figures.filing.newest(slots, request.limit))
            concepts = _concepts(looking, counted, "document_count", request.limit)
            chunks = passages_of(looking, slots, request.limit) if request.include_chunks else None
        own, with_below = figures.own_memories(node.id), figures.numbers(node.id).memories
        return CategoryOverview(
            category=looking.described(node),
            numbers=numbers,
            own=own,
            with_below=with_below,
            children=tuple(children[: CategoryListRequest.most]),
            children_total=len(children),
            documents=documents,
            concepts=concepts,
            chunks=chunks,
            message=_message(numbers, with_below),
            others=others,
            warnings=(*request.notices, *ambiguous(node, others), *engine_notices(engine, viewer)),
            timings=watch.timings,
        )


def concepts_in(request: ConceptListRequest, viewer: Viewer) -> ConceptList:
    """The concepts that the memories of a category have. Raises CategoryNotFoundError."""
    return with_engine(lambda engine: _concepts_in(engine, request, viewer), viewer)


def _concepts_in(engine: Engine, request: ConceptListRequest, viewer: Viewer) -> ConceptList:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("categories"):
        looking = look(engine, viewer)
        node, others = looking.meant(request.name)
        slots = looking.figures.slots(node.id, below=request.include_children)
        counted = looking.figures.concept_counts(slots)
        numbers = looking.figures.numbers_with(slots, counted)
        return ConceptList(
            category=looking.described(node),
            numbers=numbers,
            concepts=_concepts(looking, counted, request.sort_by, request.limit),
            message=_message(numbers, looking.figures.numbers(node.id).memories),
            others=others,
            warnings=(*request.notices, *ambiguous(node, others), *engine_notices(engine, viewer)),
            timings=watch.timings,
        )


def _message(numbers: Totals, with_below: int) -> str:
    if numbers.memories:
        return ""
    if with_below:
        return f"No memory is directly in it; its subcategories have {with_below:,}: ask with include_children."
    return (
        "No documents, chunks, or concepts found in this category. This category may have been assigned but content"
        " hasn't been indexed yet."
    )


class _Row(NamedTuple):
    """What of a memory a category shows, by the names of its columns. `head` is the beginning of its text."""

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


def documents_of(looking: VisibleTree, ids: Ids) -> tuple[Document, ...]:
    """Memories by id, in that order: a statement for them, and the names of their concepts."""
    if not len(ids):
        return ()
    projects = looking.viewer.project_ids
    asked = {"ids": ids.tolist(), "all": projects is None, "projects": sorted(projects or ()), "head": 4 * _PREVIEW}
    with connection.cursor() as cursor:
        # Written out: to put the statement together takes longer than to run it.
        cursor.execute(_DOCUMENTS, asked)
        rows = {row[0]: _Row(*row) for row in cursor.fetchall()}
    named = {pk for row in rows.values() for pk in row.concept_ids}
    terms = looking.names.concept_terms(named) if named else {}
    chunks = dict(zip(ids.tolist(), looking.figures.chunks.of(ids).tolist(), strict=True))
    return tuple(_document(rows[pk], looking, terms, chunks[pk]) for pk in ids.tolist() if pk in rows)


def _document(row: _Row, looking: VisibleTree, terms: dict[int, Term], chunks: int) -> Document:
    text = row.summary or plain_text(row.head)
    return Document(
        id=row.id,
        title=row.title,
        preview=text if len(text) <= _PREVIEW else f"{text[: _PREVIEW - 1].rstrip()}…",
        project=row.project,
        memory_type=row.memory_type,
        state=row.state,
        created_at=row.created_at,
        source=row.source_uri or row.source,
        concepts=tuple(sorted(terms[pk].label for pk in row.concept_ids if pk in terms)),
        categories=tuple(sorted(node.path for node in looking.tree.get_many(row.category_ids, lambda _: True))),
        chunks=chunks,
    )


def _concepts(looking: VisibleTree, counted: ConceptCounts, sort_by: str, limit: int) -> tuple[ConceptFigures, ...]:
    """The first of some concepts in an order, each with how often it is there."""
    if not len(counted.ids):
        return ()
    figures = looking.figures
    ids, most = counted.ids, limit
    if sort_by == "document_count":
        # Those that are as frequent as the last of them too, for their names to decide.
        ids = ids[counted.memories >= np.partition(counted.memories, -min(limit, len(ids)))[-min(limit, len(ids))]]
        most = len(ids)
    with connection.cursor() as cursor:
        cursor.execute(_CONCEPTS.format(order=_CONCEPT_ORDERS[sort_by]), [ids.tolist(), most])
        rows = cursor.fetchall()
    pairs = zip(counted.memories.tolist(), counted.chunks.tolist(), strict=True)
    numbers = dict(zip(counted.ids.tolist(), pairs, strict=True))
    if sort_by == "document_count":
        rows = sorted(rows, key=lambda row: -numbers[row[0]][0])[:limit]
    related = _related(looking, rows)
    totals = figures.concept_totals()
    return tuple(
        ConceptFigures(
            id=pk,
            name=name,
            type=kind,
            weight=weight,
            memories=numbers[pk][0],
            chunks=numbers[pk][1],
            total=int(totals[figures.filing.code("concept", pk)]),
            related=related(related_ids),
        )
        for pk, name, kind, weight, related_ids in rows
    )


def _related(looking: VisibleTree, rows: Sequence[Sequence[Any]]) -> Callable[[Sequence[int]], tuple[str, ...]]:
    """Gives the names of related concepts, of those that may be seen."""
    asked = {pk for row in rows for pk in row[4] if looking.sees_concept(pk)}
    terms = looking.names.concept_terms(asked) if asked else {}
    return lambda ids: tuple(sorted(terms[pk].label for pk in ids if pk in terms)[:_RELATED_CONCEPTS])


@dataclass(frozen=True, slots=True)
class Listed:
    """A category of a list, with its numbers and those of what is below it; where it stands only if that was asked."""

    node: CachedCategory
    related: tuple[str, ...]
    numbers: Totals
    own: int
    parent: str | None = None
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """All that a list is of, whether it is shown or not. A memory in several of the categories counts once."""

    numbers: Totals
    average_memories: float = 0.0
    average_chunks: float = 0.0
    most: str | None = None
    least: str | None = None


@dataclass(frozen=True, slots=True)
class CategoryList:
    total: int
    listed: tuple[Listed, ...]
    aggregate: Aggregate
    warnings: tuple[SearchWarning, ...]
    timings: dict[str, float]


def category_list(request: CategoryListRequest, viewer: Viewer) -> CategoryList:
    """Categories with their numbers, and what all of them come to."""
    return with_engine(lambda engine: _list(engine, request, viewer), viewer)


def _list(engine: Engine, request: CategoryListRequest, viewer: Viewer) -> CategoryList:
    watch = Stopwatch(engine.waited_ms)
    with snapshot(), watch.stage("categories"):
        looking = look(engine, viewer)
        tree, figures = looking.tree, looking.figures
        codes = figures.codes(tree)
        wanted = _wanted(tree, request.filter) & looking.seen(codes)
        chosen = np.flatnonzero(wanted)
        ranked = chosen[_order(tree, figures, chosen, codes[chosen], request.sort_by)]
        return CategoryList(
            total=len(chosen),
            listed=tuple(
                _listed(looking, tree.ordered[at], request.include_hierarchy) for at in ranked[: request.limit].tolist()
            ),
            aggregate=_aggregate(looking, wanted, codes),
            warnings=(*request.notices, *_nothing(request.filter, len(chosen)), *engine_notices(engine, viewer)),
            timings=watch.timings,
        )


def _nothing(part: str, found: int) -> list[SearchWarning]:
    """Why a list is empty."""
    if found:
        return []
    if not part:
        return [SearchWarning("There is no category that you can see.")]
    where = "path" if "/" in part else "name"
    return [SearchWarning(f"No category has “{part}” in its {where}. Leave filter out to list all of them.", "filter")]


def _wanted(tree: Tree, part: str) -> Array:
    """Which categories have it in their names, or in their paths where it is a part of one, in the tree's order."""
    if not part:
        return np.ones(len(tree.ordered), np.bool_)
    wanted = part.casefold()
    texts = tree.folded_paths if "/" in wanted else tree.folded_names
    return np.fromiter((wanted in text for text in texts), np.bool_, len(texts))


def _order(tree: Tree, figures: CategoryCounts, chosen: Array, codes: Array, sort_by: str) -> Array:
    """Places in the order asked for; what is equal by path, which is the order of the tree."""
    if sort_by == "name":
        return np.argsort(tree.name_ranks[chosen])
    by = {"chunk_count": figures.chunk_totals, "concept_count": figures.concepts}.get(sort_by, figures.memories)
    return np.argsort(-by[codes], kind="stable")


def _listed(looking: VisibleTree, node: CachedCategory, with_place: bool) -> Listed:
    tree, figures = looking.tree, looking.figures
    listed = Listed(node, looking.related(node), figures.numbers(node.id), figures.own_memories(node.id))
    if not with_place:
        return listed
    parent = tree.nodes.get(node.parent_id or 0)
    children = tree.get_many(tree.children.get(node.id, ()), looking.sees)
    return replace(listed, parent=parent.path if parent else None, children=tuple(child.path for child in children))


def _aggregate(looking: VisibleTree, wanted: Mask, codes: Array) -> Aggregate:
    tree, figures = looking.tree, looking.figures
    places = np.flatnonzero(wanted)
    if not len(places):
        return Aggregate(Totals())
    memories, chunks = figures.memories[codes[places]], figures.chunk_totals[codes[places]]
    return Aggregate(
        # What is in a category is in those above it too: only the uppermost need be looked through.
        numbers=figures.numbers_of_any(tree.uppermost(wanted)),
        average_memories=round(float(memories.mean()), 1),
        average_chunks=round(float(chunks.mean()), 1),
        # Of equal ones the first by path.
        most=tree.ordered[places[int(memories.argmax())]].path,
        least=tree.ordered[places[int(memories.argmin())]].path,
    )
