"""Categories as JSON: one category, the list of all, and the concepts of one."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Router

from access.keys import ApiRequest, allowed
from categories.vocabulary_cache import Node
from explorer.category_reads import (
    CategoryList,
    CategoryOverview,
    ChunkText,
    ConceptList,
    ListedNode,
    category_list,
    category_overview,
    concepts_in,
)
from explorer.category_requests import (
    CATEGORY_SORTS,
    CONCEPT_SORTS,
    DEFAULT_LISTED,
    DEFAULT_RESULTS,
    MOST_LISTED,
    MOST_RESULTS,
    CategoryListRequest,
    CategoryRequest,
    ConceptListRequest,
)
from explorer.category_schemas import (
    AggregateStats,
    CategoryAbout,
    CategoryChunk,
    CategoryConcept,
    CategoryDocument,
    CategoryHead,
    CategoryListReply,
    CategoryReply,
    CategoryStatistics,
    ChildCategory,
    ConceptInCategory,
    ConceptListReply,
    ConceptStatistics,
    ListedCategory,
    ListedHierarchy,
    ListedStatistics,
)
from explorer.operations import read_operation
from explorer.timeline_api import query_warning
from explorer.visible_tree import CategoryChild, CategoryDescription
from search.query import MAX_VALUE_LENGTH, pairs_of
from web.timing import server_timing

router = Router()


def _parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _switch(name: str, description: str) -> dict[str, Any]:
    return _parameter(name, description, type="boolean", default=False)


def _limit(default: int, most: int, of: str) -> dict[str, Any]:
    description = f"{of}, 1 to {most}; what is out of these bounds is brought into them, with a warning."
    return _parameter("limit", description, type="integer", default=default)


def _sort(orders: Sequence[str]) -> dict[str, Any]:
    description = "What comes first: the most memories, or whatever is named (also `sortBy`)."
    return _parameter("sort_by", description, type="string", enum=list(orders), default=orders[0])


_BELOW = _switch("include_children", "With all that is below the category (also `includeChildren`).")
_LIST_PARAMETERS = (
    _sort(CATEGORY_SORTS),
    _limit(DEFAULT_LISTED, MOST_LISTED, "How many categories"),
    _switch("include_hierarchy", "With the parent and the children of each (also `includeHierarchy`)."),
    _parameter("filter", "A part of the names wanted.", type="string", maxLength=MAX_VALUE_LENGTH, default=""),
)
_CONCEPT_PARAMETERS = (_sort(CONCEPT_SORTS), _limit(DEFAULT_LISTED, MOST_LISTED, "How many concepts"), _BELOW)
_CATEGORY_PARAMETERS = (
    _BELOW,
    _switch("include_chunks", "With chunks, their texts and their density (also `includeChunks`)."),
    _limit(DEFAULT_RESULTS, MOST_RESULTS, "How many of each"),
)

_get = partial(read_operation, router, exclude_unset=True)


@_get("/categories", "categories", CategoryListReply, parameters=_LIST_PARAMETERS)
def categories(request: ApiRequest, response: HttpResponse) -> CategoryListReply:
    """Categories with their numbers, those of what is below them included."""
    viewer = allowed(request, "read")
    params = CategoryListRequest.read(pairs_of(request.GET))
    found = category_list(params, viewer)
    response["Server-Timing"] = server_timing(found.timings)
    return category_list_reply(found, with_hierarchy=params.include_hierarchy)


# Before the operation on a category, whose path may contain slashes.
@_get("/categories/{path:ref}/concepts", "category_concepts", ConceptListReply, 404, parameters=_CONCEPT_PARAMETERS)
def category_concepts(request: ApiRequest, ref: str, response: HttpResponse) -> ConceptListReply:
    """The concepts that the memories of a category have, with how many have each."""
    viewer = allowed(request, "read")
    found = concepts_in(ConceptListRequest.read(pairs_of(request.GET), ref), viewer)
    response["Server-Timing"] = server_timing(found.timings)
    return concept_list_reply(found)


@_get("/categories/{path:ref}", "category", CategoryReply, 404, parameters=_CATEGORY_PARAMETERS)
def category(request: ApiRequest, ref: str, response: HttpResponse) -> CategoryReply:
    """A category by slug path, name, alias or id, whatever the case: its numbers, memories and concepts."""
    viewer = allowed(request, "read")
    found = category_overview(CategoryRequest.read(pairs_of(request.GET), ref), viewer)
    response["Server-Timing"] = server_timing(found.timings)
    return category_reply(found, request)


# --- from result to reply ----------------------------------------------------------------------------------------


def category_reply(found: CategoryOverview, request: HttpRequest) -> CategoryReply:
    site = request.build_absolute_uri("/").rstrip("/")
    chunks = {} if found.chunks is None else {"chunks": [_chunk(chunk) for chunk in found.chunks]}
    return CategoryReply(
        category=_about(found.category),
        statistics=CategoryStatistics(
            total_documents=found.numbers.memories,
            total_chunks=found.numbers.chunks,
            total_concepts=found.numbers.concepts,
            own_documents=found.own,
            documents_with_children=found.with_below,
            total_child_categories=found.children_total,
            child_categories=[_child(child) for child in found.children],
        ),
        documents=[
            CategoryDocument(**asdict(memory), url=site + reverse("explorer:memory", args=[memory.id]))
            for memory in found.documents
        ],
        concepts=[CategoryConcept(**asdict(concept), category=found.category.node.name) for concept in found.concepts],
        **chunks,
        **_message(found.message),
        **_closing(found),
    )


def category_list_reply(found: CategoryList, *, with_hierarchy: bool) -> CategoryListReply:
    aggregate = found.aggregate
    return CategoryListReply(
        total_categories=found.total,
        returned_categories=len(found.listed),
        categories=[_listed(one, with_hierarchy) for one in found.listed],
        aggregate_stats=AggregateStats(
            total_documents=aggregate.numbers.memories,
            total_chunks=aggregate.numbers.chunks,
            total_concepts=aggregate.numbers.concepts,
            average_docs_per_category=aggregate.average_memories,
            average_chunks_per_category=aggregate.average_chunks,
            most_popular_category=aggregate.most,
            least_popular_category=aggregate.least,
        ),
        **_closing(found),
    )


def concept_list_reply(found: ConceptList) -> ConceptListReply:
    return ConceptListReply(
        category=CategoryHead(**_head(found.category.node)),
        statistics=ConceptStatistics(
            total_documents=found.numbers.memories,
            total_concepts=found.numbers.concepts,
            average_concepts_per_document=found.average,
        ),
        concepts=[ConceptInCategory.model_validate(concept, from_attributes=True) for concept in found.concepts],
        **_message(found.message),
        **_closing(found),
    )


def _message(message: str) -> dict[str, str]:
    return {"message": message} if message else {}


def _closing(found: CategoryOverview | CategoryList | ConceptList) -> dict[str, Any]:
    return {
        "warnings": [query_warning(warning) for warning in found.warnings],
        "took_ms": round(sum(found.timings.values()), 2),
    }


def _head(node: Node) -> dict[str, Any]:
    return {"id": node.id, "name": node.name, "path": node.path, "description": node.description}


def _about(category: CategoryDescription) -> CategoryAbout:
    return CategoryAbout(
        **_head(category.node),
        hierarchy=list(category.names),
        aliases=list(category.node.aliases),
        related_categories=list(category.related),
    )


def _child(child: CategoryChild) -> ChildCategory:
    return ChildCategory(
        id=child.node.id,
        name=child.node.name,
        path=child.node.path,
        document_count=child.numbers.memories,
        own_document_count=child.own,
        chunk_count=child.numbers.chunks,
        concept_count=child.numbers.concepts,
    )


def _chunk(chunk: ChunkText) -> CategoryChunk:
    return CategoryChunk(**asdict(chunk), id=f"{chunk.memory_id}/{chunk.ordinal}", document=chunk.memory_id)


def _listed(one: ListedNode, with_hierarchy: bool) -> ListedCategory:
    node = one.node
    where = ListedHierarchy(parent=one.parent, children=list(one.children), depth=node.depth - 1)
    return ListedCategory(
        **_head(node),
        statistics=ListedStatistics(
            document_count=one.numbers.memories,
            own_document_count=one.own,
            chunk_count=one.numbers.chunks,
            concept_count=one.numbers.concepts,
        ),
        aliases=list(node.aliases),
        related_categories=list(one.related),
        **({"hierarchy": where} if with_hierarchy else {}),
    )
