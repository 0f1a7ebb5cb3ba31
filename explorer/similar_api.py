"""Similar memories as JSON, with the values that both have."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from explorer.memory_api import CategoryPathReply, TermReply, storable_id
from explorer.timeline_api import QueryWarning, query_warning
from search.query import SearchQuery, pairs_of
from search.similar import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    OF_A_SEARCH,
    SharedTerms,
    SimilarMemory,
    SimilarRequest,
    SimilarResult,
    similar_memories,
)
from web.errors import GUARDED, errors
from web.timing import server_timing

router = Router()


class SharedReply(BaseModel):
    """What both memories have: at most three of each by name."""

    tags: list[str]
    entities: list[TermReply]
    categories: list[CategoryPathReply]
    more: int = Field(description="How many more tags, entities and categories they share.")


class SimilarRow(BaseModel):
    """A memory like the one asked about."""

    id: int
    title: str
    project: str
    memory_type: str
    state: str
    created_at: datetime
    similarity: float = Field(description="Of the two chunks that are nearest to each other; at most 1.")
    possible_duplicate: bool = Field(description="Whether the two say nearly the same as wholes.")
    shared: SharedReply
    url: str = Field(description="The page of the memory.")


class SimilarReply(BaseModel):
    """The memories like one, the nearest first."""

    memories: list[SimilarRow]
    reason: str = Field(description="Why there are none, where there are none.")
    min_similarity: float = Field(description="What is less similar is left out.")
    has_more: bool
    filters: dict[str, Any] = Field(description="The filters as they were understood, by canonical name.")
    warnings: list[QueryWarning]
    took_ms: float


_OWN: list[dict[str, Any]] = [
    {"name": name, "in": "query", "required": False, "schema": schema, "description": description}
    for name, schema, description in (
        (
            "limit",
            {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
            "How many memories.",
        ),
        ("same_project", {"type": "boolean", "default": False}, "Only those of the memory's own project."),
    )
]
_PARAMETERS = [*_OWN, *(p for p in SearchQuery.openapi_parameters() if p["name"] not in OF_A_SEARCH)]


@router.get(
    "/memories/{int:memory_id}/similar",
    response={200: SimilarReply, **errors(*GUARDED, 404, 422)},
    operation_id="memory_similar",
    openapi_extra={"parameters": _PARAMETERS},
)
def similar(request: ApiRequest, memory_id: int, response: HttpResponse) -> SimilarReply:
    """Memories like this one by meaning, among those that pass the filters."""
    viewer = allowed(request, "read")
    params, query = SimilarRequest.read(storable_id(memory_id), pairs_of(request.GET))
    found = similar_memories(params, query, viewer)
    response["Server-Timing"] = server_timing(found.timings)
    return _reply(found, request)


def _reply(found: SimilarResult, request: HttpRequest) -> SimilarReply:
    return SimilarReply(
        memories=[_row(one, request) for one in found.memories],
        reason=found.reason,
        min_similarity=found.min_similarity,
        has_more=found.has_more,
        filters=found.query.applied(),
        warnings=[query_warning(warning) for warning in found.warnings],
        took_ms=found.took_ms,
    )


def _row(one: SimilarMemory, request: HttpRequest) -> SimilarRow:
    hit = one.hit
    return SimilarRow(
        id=hit.id,
        title=hit.title_text,
        project=hit.project,
        memory_type=hit.memory_type,
        state=hit.state,
        created_at=hit.created_at,
        similarity=round(one.similarity, 4),
        possible_duplicate=one.is_duplicate,
        shared=_shared_reply(one.shared),
        url=request.build_absolute_uri(reverse("explorer:memory", args=[hit.id])),
    )


def _shared_reply(shared: SharedTerms) -> SharedReply:
    return SharedReply(
        tags=list(shared.tags),
        entities=[TermReply(value=term.value, name=term.label, type=term.type) for term in shared.entities],
        categories=[
            CategoryPathReply(path=category.path, names=list(category.names)) for category in shared.categories
        ],
        more=shared.more,
    )
