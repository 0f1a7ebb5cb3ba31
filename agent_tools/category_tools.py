"""The three tools for categories: rows as tables for a model."""

from collections.abc import Iterable, Sequence
from typing import Any

from access.viewer import Viewer
from agent_tools.calls import Arguments, pairs_of_arguments, split_output_options
from agent_tools.rendering import OneLine, TableRow, date_cell, render_rows, render_tables
from explorer.categories.reads import (
    CategoryMemory,
    ChunkText,
    ConceptCount,
    ListedNode,
    category_list,
    category_overview,
    concepts_in,
)
from explorer.categories.schemas import CategoryListRequest, CategoryRequest, ConceptListRequest
from explorer.categories.visible_tree import CategoryChild, CategoryDescription
from search.result import SearchWarning
from text.highlight import cut_title

# Characters of a chunk.
_CHUNK = 300


def category_search(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    found = category_overview(CategoryRequest.from_pairs(pairs_of_arguments(rest)), viewer)
    statistics = OneLine(
        {
            "total_documents": found.numbers.memories,
            "total_chunks": found.numbers.chunks,
            "total_concepts": found.numbers.concepts,
            "own_documents": found.own,
            "documents_with_children": found.with_below,
        }
    )
    head: dict[str, Any] = {"category": _about(found.category), "statistics": statistics, "has_more": found.has_more}
    head |= _notes(found.message, found.warnings)
    tables: dict[str, Sequence[TableRow]] = {
        "documents": [_document(one) for one in found.documents],
        "concepts": [_concept(one) for one in found.concepts],
    }
    if found.children:
        statistics["total_child_categories"] = found.children_total
        tables["child_categories"] = [_child(one) for one in found.children]
    if found.chunks is not None:
        tables["chunks"] = [_chunk(one) for one in found.chunks]
    return render_tables(head, tables, options, "raise it, or ask for a smaller limit and further pages")


def list_categories(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    request = CategoryListRequest.from_pairs(pairs_of_arguments(rest))
    found = category_list(request, viewer)
    aggregate = found.aggregate
    head: dict[str, Any] = {
        "total_categories": found.total,
        "returned_categories": len(found.listed),
        "has_more": found.has_more,
        "aggregate_stats": OneLine(
            {
                "total_documents": aggregate.numbers.memories,
                "total_chunks": aggregate.numbers.chunks,
                "total_concepts": aggregate.numbers.concepts,
                "average_docs_per_category": aggregate.average_memories,
                "average_chunks_per_category": aggregate.average_chunks,
                "most_popular_category": aggregate.most,
                "least_popular_category": aggregate.least,
            }
        ),
        **_notes("", found.warnings),
    }
    rows = [_listed(one, request.include_hierarchy) for one in found.listed]
    return render_rows(
        head,
        "categories",
        rows,
        options,
        lambda n: f"raise it, narrow by filter, or continue with offset={found.begin + n}",
    )


def list_concepts_in_category(arguments: Arguments, viewer: Viewer) -> str:
    options, rest = split_output_options(arguments)
    found = concepts_in(ConceptListRequest.from_pairs(pairs_of_arguments(rest)), viewer)
    head: dict[str, Any] = {
        "category": _head(found.category),
        "statistics": OneLine(
            {
                "total_documents": found.numbers.memories,
                "total_concepts": found.numbers.concepts,
                "average_concepts_per_document": found.average,
            }
        ),
        **_notes(found.message, found.warnings),
    }
    rows = [{**_concept(one), "total_document_count": one.total_document_count} for one in found.concepts]
    return render_rows(head, "concepts", rows, options, lambda n: "raise it, or ask for a smaller limit")


def _notes(message: str, warnings: Iterable[SearchWarning]) -> dict[str, Any]:
    messages = [warning.message for warning in warnings]
    return ({"message": message} if message else {}) | ({"warnings": messages} if messages else {})


def _head(category: CategoryDescription) -> dict[str, Any]:
    node = category.node
    head = {"id": node.id, "name": node.name, "path": node.path, "description": node.description}
    return {key: value for key, value in head.items() if value}


def _about(category: CategoryDescription) -> dict[str, Any]:
    lists = {"hierarchy": category.names, "aliases": category.node.aliases, "related_categories": category.related}
    return _head(category) | {key: list(names) for key, names in lists.items() if names}


def _document(document: CategoryMemory) -> TableRow:
    """A row as that of a search."""
    return {
        "id": document.id,
        "title": cut_title(document.title),
        "date": date_cell(document.created_at),
        "type": document.memory_type,
        "project": document.project,
    }


def _concept(concept: ConceptCount) -> dict[str, Any]:
    return {
        "id": concept.id,
        "name": concept.name,
        "type": concept.type,
        "weight": concept.weight,
        "document_count": concept.document_count,
        "chunk_count": concept.chunk_count,
        "related_concepts": list(concept.related_concepts),
    }


def _child(child: CategoryChild) -> TableRow:
    numbers = child.numbers
    return {"path": child.node.path, "document_count": numbers.memories, "chunk_count": numbers.chunks}


def _chunk(chunk: ChunkText) -> TableRow:
    return {
        "id": f"{chunk.memory_id}/{chunk.ordinal}",
        "text": chunk.text if len(chunk.text) <= _CHUNK else f"{chunk.text[:_CHUNK].rstrip()}…",
        "source": chunk.source,
        "concepts": list(chunk.concepts),
        "concept_density": chunk.concept_density,
    }


def _listed(one: ListedNode, with_hierarchy: bool) -> TableRow:
    node = one.node
    row: dict[str, Any] = {
        "id": node.id,
        "path": node.path,
        "name": node.name,
        "parent": node.path.rpartition("/")[0],
        "depth": node.depth - 1,
        "description": node.description,
        "document_count": one.numbers.memories,
        "own_document_count": one.own,
        "chunk_count": one.numbers.chunks,
        "concept_count": one.numbers.concepts,
        "aliases": list(node.aliases),
        "related_categories": list(one.related),
    }
    if with_hierarchy:
        row |= {"children": list(one.children)}
    return row
