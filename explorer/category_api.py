"""Categories as JSON: one with all that is in it, all with their numbers, the concepts of one."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router

from access.keys import ApiRequest, allowed
from categories.vocabulary_cache import CachedCategory
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
from explorer.category_requests import CategoryListRequest, CategoryRequest, ConceptListRequest
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
from web.errors import GUARDED, errors
from web.params import pairs_of
from web.timing import Timings, timed, took_ms

router = Router()


@router.get(
    "/categories",
    response={200: CategoryListReply, **errors(*GUARDED, 422)},
    exclude_unset=True,
    operation_id="categories",
    openapi_extra={"parameters": CategoryListRequest.openapi_parameters()},
)
@timed
def categories(request: ApiRequest) -> tuple[Timings, CategoryListReply]:
    """Categories with their numbers, those of what is below them included."""
    viewer = allowed(request, "read")
    asked = CategoryListRequest.from_pairs(pairs_of(request.GET))
    found = category_list(asked, viewer)
    return found.timings, category_list_reply(found, with_hierarchy=asked.include_hierarchy)


# Ahead of the category alone, whose path may hold slashes.
@router.get(
    "/categories/{path:ref}/concepts",
    response={200: ConceptListReply, **errors(*GUARDED, 404, 422)},
    exclude_unset=True,
    operation_id="category_concepts",
    openapi_extra={"parameters": ConceptListRequest.openapi_parameters(without={"category"})},
)
@timed
def category_concepts(request: ApiRequest, ref: str) -> tuple[Timings, ConceptListReply]:
    """The concepts that the memories of a category have, with how many have each."""
    viewer = allowed(request, "read")
    found = concepts_in(ConceptListRequest.from_pairs(pairs_of(request.GET), name=ref), viewer)
    return found.timings, concept_list_reply(found)


@router.get(
    "/categories/{path:ref}",
    response={200: CategoryReply, **errors(*GUARDED, 404, 422)},
    exclude_unset=True,
    operation_id="category",
    openapi_extra={"parameters": CategoryRequest.openapi_parameters(without={"category"})},
)
@timed
def category(request: ApiRequest, ref: str) -> tuple[Timings, CategoryReply]:
    """A category by slug path, name, alias or id, whatever the case: its numbers, memories and concepts."""
    viewer = allowed(request, "read")
    found = category_overview(CategoryRequest.from_pairs(pairs_of(request.GET), name=ref), viewer)
    return found.timings, category_reply(found, request)


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
        took_ms=took_ms(found.timings),
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
        took_ms=took_ms(found.timings),
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
        took_ms=took_ms(found.timings),
        **({"message": found.message} if found.message else {}),
    )


def _head(category: Described) -> dict[str, Any]:
    return _node(category.node)


def _node(node: CachedCategory) -> dict[str, Any]:
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
