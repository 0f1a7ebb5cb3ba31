"""Categories as JSON: one category, the list of all, and the concepts of one."""

from dataclasses import asdict
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router

from access.keys import ApiRequest, allowed
from categories.vocabulary_cache import CachedCategory
from explorer.categories.reads import (
    CategoryList,
    CategoryOverview,
    ChunkText,
    ConceptList,
    ListedNode,
    category_list,
    category_overview,
    concepts_in,
)
from explorer.categories.schemas import (
    AggregateStats,
    CategoryAbout,
    CategoryChunk,
    CategoryConcept,
    CategoryDocument,
    CategoryHead,
    CategoryListReply,
    CategoryListRequest,
    CategoryReply,
    CategoryRequest,
    CategoryStatistics,
    ChildCategory,
    ConceptInCategory,
    ConceptListReply,
    ConceptListRequest,
    ConceptStatistics,
    ListedCategory,
    ListedHierarchy,
    ListedStatistics,
)
from explorer.categories.visible_tree import CategoryChild, CategoryDescription
from explorer.explore.timeline_api import query_warning
from explorer.operations import read_operation
from web.params import pairs_of
from web.timing import Timings, timed, took_ms

router = Router()

_get = partial(read_operation, router, exclude_unset=True)


@_get("/categories", "categories", CategoryListReply, parameters=CategoryListRequest.openapi_parameters())
@timed
def categories(request: ApiRequest) -> tuple[Timings, CategoryListReply]:
    """Categories with their numbers, including those of descendants."""
    viewer = allowed(request, "read")
    params = CategoryListRequest.from_pairs(pairs_of(request.GET))
    found = category_list(params, viewer)
    return found.timings, category_list_reply(found, with_hierarchy=params.include_hierarchy)


# Ahead of the category alone, whose path may hold slashes.
@_get(
    "/categories/{path:ref}/concepts",
    "category_concepts",
    ConceptListReply,
    404,
    parameters=ConceptListRequest.openapi_parameters(without={"category"}),
)
@timed
def category_concepts(request: ApiRequest, ref: str) -> tuple[Timings, ConceptListReply]:
    """The concepts of the memories in a category, with the number of memories of each."""
    viewer = allowed(request, "read")
    found = concepts_in(ConceptListRequest.from_pairs(pairs_of(request.GET), name=ref), viewer)
    return found.timings, concept_list_reply(found)


@_get(
    "/categories/{path:ref}",
    "category",
    CategoryReply,
    404,
    parameters=CategoryRequest.openapi_parameters(without={"category"}),
)
@timed
def category(request: ApiRequest, ref: str) -> tuple[Timings, CategoryReply]:
    """A category by slug path, name, alias or id, ignoring case: its numbers, memories and concepts."""
    viewer = allowed(request, "read")
    found = category_overview(CategoryRequest.from_pairs(pairs_of(request.GET), name=ref), viewer)
    return found.timings, category_reply(found, request)


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
        has_more=found.has_more,
        **_message(found.message),
        **_closing(found),
    )


def category_list_reply(found: CategoryList, *, with_hierarchy: bool) -> CategoryListReply:
    aggregate = found.aggregate
    return CategoryListReply(
        total_categories=found.total,
        returned_categories=len(found.listed),
        has_more=found.has_more,
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
        "took_ms": took_ms(found.timings),
    }


def _head(node: CachedCategory) -> dict[str, Any]:
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
