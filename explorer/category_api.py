"""Categories as JSON: one with all that is in it, all with their numbers, the concepts of one."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Router

from access.keys import ApiRequest, allowed
from categories.vocabulary_cache import Node
from explorer.category_reads import (
    CategoryList,
    CategoryOverview,
    ConceptFigures,
    ConceptList,
    Document,
    Listed,
    Passage,
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
from explorer.timeline_api import query_warning
from explorer.visible_tree import Child, Described
from search.query import MAX_VALUE_LENGTH, pairs_of
from web.errors import GUARDED, errors
from web.timing import server_timing

router = Router()


def _parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _switch(name: str, description: str) -> dict[str, Any]:
    return _parameter(name, description, type="boolean", default=False)


def _limit(default: int, most: int, of: str) -> dict[str, Any]:
    told = f"{of}, 1 to {most}; what is out of these bounds is brought into them, with a warning."
    return _parameter("limit", told, type="integer", default=default)


_BELOW = _switch("include_children", "With all that is below the category (also `includeChildren`).")


@router.get(
    "/categories",
    response={200: CategoryListReply, **errors(*GUARDED, 422)},
    exclude_unset=True,
    operation_id="categories",
    openapi_extra={
        "parameters": [
            _parameter(
                "sort_by",
                "The order: most memories first, or by the named field (also `sortBy`).",
                type="string",
                enum=list(CATEGORY_SORTS),
                default=CATEGORY_SORTS[0],
            ),
            _limit(DEFAULT_LISTED, MOST_LISTED, "How many categories"),
            _switch("include_hierarchy", "With the parent and the children of each (also `includeHierarchy`)."),
            _parameter("filter", "Part of a name.", type="string", maxLength=MAX_VALUE_LENGTH, default=""),
        ]
    },
)
def categories(request: ApiRequest, response: HttpResponse) -> CategoryListReply:
    """Categories with their numbers, those of what is below them included."""
    viewer = allowed(request, "read")
    asked = CategoryListRequest.read(pairs_of(request.GET))
    found = category_list(asked, viewer)
    response["Server-Timing"] = server_timing(found.timings)
    return category_list_reply(found, with_hierarchy=asked.include_hierarchy)


# Ahead of the category alone, whose path may hold slashes.
@router.get(
    "/categories/{path:ref}/concepts",
    response={200: ConceptListReply, **errors(*GUARDED, 404, 422)},
    exclude_unset=True,
    operation_id="category_concepts",
    openapi_extra={
        "parameters": [
            _parameter(
                "sort_by",
                "The order: most memories first, or by the named field (also `sortBy`).",
                type="string",
                enum=list(CONCEPT_SORTS),
                default=CONCEPT_SORTS[0],
            ),
            _limit(DEFAULT_LISTED, MOST_LISTED, "How many concepts"),
            _BELOW,
        ]
    },
)
def category_concepts(request: ApiRequest, ref: str, response: HttpResponse) -> ConceptListReply:
    """The concepts that the memories of a category have, with how many have each."""
    viewer = allowed(request, "read")
    found = concepts_in(ConceptListRequest.read(pairs_of(request.GET), ref), viewer)
    response["Server-Timing"] = server_timing(found.timings)
    return concept_list_reply(found)


@router.get(
    "/categories/{path:ref}",
    response={200: CategoryReply, **errors(*GUARDED, 404, 422)},
    exclude_unset=True,
    operation_id="category",
    openapi_extra={
        "parameters": [
            _BELOW,
            _switch("include_chunks", "With chunks, their texts and their density (also `includeChunks`)."),
            _limit(DEFAULT_RESULTS, MOST_RESULTS, "How many of each"),
        ]
    },
)
def category(request: ApiRequest, ref: str, response: HttpResponse) -> CategoryReply:
    """A category by slug path, name, alias or id, whatever the case: its numbers, memories and concepts."""
    viewer = allowed(request, "read")
    found = category_overview(CategoryRequest.read(pairs_of(request.GET), ref), viewer)
    response["Server-Timing"] = server_timing(found.timings)
    return category_reply(found, request)


# --- from result to reply ----------------------------------------------------------------------------------------


def category_reply(found: CategoryOverview, request: HttpRequest) -> CategoryReply:
    site = request.build_absolute_uri("/").rstrip("/")
    parts: dict[str, Any] = {}
    if found.chunks is not None:
        parts["chunks"] = [_chunk(one) for one in found.chunks]
    if found.message:
        parts["message"] = found.message
    return CategoryReply(
        category=_about(found.category),
        statistics=CategoryStatistics(
            total_documents=found.numbers.memories,
            total_chunks=found.numbers.chunks,
            total_concepts=found.numbers.concepts,
            own_documents=found.own,
            documents_with_children=found.with_below,
            total_child_categories=found.children_total,
            child_categories=[_child(one) for one in found.children],
        ),
        documents=[_document(one, site) for one in found.documents],
        concepts=[_concept(one, found.category.node.name) for one in found.concepts],
        warnings=[query_warning(warning) for warning in found.warnings],
        took_ms=round(sum(found.timings.values()), 2),
        **parts,
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
        warnings=[query_warning(warning) for warning in found.warnings],
        took_ms=round(sum(found.timings.values()), 2),
    )


def concept_list_reply(found: ConceptList) -> ConceptListReply:
    return ConceptListReply(
        category=CategoryHead(**_head(found.category)),
        statistics=ConceptStatistics(
            total_documents=found.numbers.memories,
            total_concepts=found.numbers.concepts,
            average_concepts_per_document=found.average,
        ),
        concepts=[
            ConceptInCategory(
                id=one.id,
                name=one.name,
                type=one.type,
                document_count=one.memories,
                total_document_count=one.total,
                chunk_count=one.chunks,
                weight=one.weight,
                related_concepts=list(one.related),
            )
            for one in found.concepts
        ],
        warnings=[query_warning(warning) for warning in found.warnings],
        took_ms=round(sum(found.timings.values()), 2),
        **({"message": found.message} if found.message else {}),
    )


def _head(category: Described) -> dict[str, Any]:
    return _node(category.node)


def _node(node: Node) -> dict[str, Any]:
    return {"id": node.id, "name": node.name, "path": node.path, "description": node.description}


def _about(category: Described) -> CategoryAbout:
    return CategoryAbout(
        **_head(category),
        hierarchy=list(category.names),
        aliases=list(category.node.aliases),
        related_categories=list(category.related),
    )


def _child(child: Child) -> ChildCategory:
    return ChildCategory(
        id=child.node.id,
        name=child.node.name,
        path=child.node.path,
        document_count=child.numbers.memories,
        own_document_count=child.own,
        chunk_count=child.numbers.chunks,
        concept_count=child.numbers.concepts,
    )


def _document(document: Document, site: str) -> CategoryDocument:
    return CategoryDocument(
        id=document.id,
        source=document.source,
        title=document.title,
        preview=document.preview,
        project=document.project,
        memory_type=document.memory_type,
        state=document.state,
        created_at=document.created_at,
        concepts=list(document.concepts),
        categories=list(document.categories),
        chunk_count=document.chunks,
        url=site + reverse("explorer:memory", args=[document.id]),
    )


def _concept(concept: ConceptFigures, category: str) -> CategoryConcept:
    return CategoryConcept(
        id=concept.id,
        name=concept.name,
        type=concept.type,
        category=category,
        weight=concept.weight,
        document_count=concept.memories,
        chunk_count=concept.chunks,
        related_concepts=list(concept.related),
    )


def _chunk(passage: Passage) -> CategoryChunk:
    return CategoryChunk(
        id=f"{passage.memory_id}/{passage.ordinal}",
        document=passage.memory_id,
        text=passage.text,
        source=passage.source,
        concepts=list(passage.concepts),
        concept_density=passage.density,
    )


def _listed(one: Listed, with_hierarchy: bool) -> ListedCategory:
    node = one.node
    where = ListedHierarchy(parent=one.parent, children=list(one.children), depth=node.depth - 1)
    return ListedCategory(
        **_node(node),
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
