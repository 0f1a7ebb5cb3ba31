"""Similar memories as JSON, with the values that both have."""

from datetime import datetime
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from explorer.explore.timeline_api import QueryWarning, query_warning
from explorer.memory.api import CategoryPathReply, TermNameReply, storable_id
from search.similar import (
    SharedTerms,
    SimilarMemory,
    SimilarRequest,
    SimilarResult,
    similar_memories,
)
from web.errors import GUARDED, errors
from web.params import pairs_of
from web.timing import Timings, timed, took_ms

router = Router()


class SharedReply(BaseModel):
    """Values that both memories have: at most three of each kind."""

    tags: list[str]
    entities: list[TermNameReply]
    categories: list[CategoryPathReply]
    more: int = Field(description="Number of further shared tags, entities and categories.")


class SimilarRow(BaseModel):
    """A similar memory."""

    id: int
    title: str
    project: str
    memory_type: str
    state: str
    created_at: datetime
    similarity: float = Field(description="The similarity of their closest chunks; at most 1.")
    possible_duplicate: bool = Field(description="Whether the two have nearly the same text.")
    shared: SharedReply
    url: str = Field(description="The page of the memory.")


class SimilarReply(BaseModel):
    """Similar memories, nearest first."""

    memories: list[SimilarRow]
    reason: str = Field(description="Why there are none, if there are none.")
    min_similarity: float = Field(description="Less similar memories are not included.")
    has_more: bool
    filters: dict[str, Any] = Field(description="The parsed filters, by canonical name.")
    warnings: list[QueryWarning]
    took_ms: float


@router.get(
    "/memories/{int:memory_id}/similar",
    response={200: SimilarReply, **errors(*GUARDED, 404, 422)},
    operation_id="memory_similar",
    openapi_extra={"parameters": SimilarRequest.openapi_with_query()},
)
@timed
def similar(request: ApiRequest, memory_id: int) -> tuple[Timings, SimilarReply]:
    """Memories similar to this one, among those that pass the filters."""
    viewer = allowed(request, "read")
    found = similar_memories(storable_id(memory_id), *SimilarRequest.with_query(pairs_of(request.GET)), viewer)
    return found.timings, _reply(found, request)


def _reply(found: SimilarResult, request: HttpRequest) -> SimilarReply:
    return SimilarReply(
        memories=[_row(one, request) for one in found.memories],
        reason=found.reason,
        min_similarity=found.min_similarity,
        has_more=found.has_more,
        filters=found.query.applied(),
        warnings=[query_warning(warning) for warning in found.warnings],
        took_ms=took_ms(found.timings),
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
        entities=[TermNameReply(value=term.value, name=term.label, type=term.type) for term in shared.entities],
        categories=[
            CategoryPathReply(path=category.path, names=list(category.names)) for category in shared.categories
        ],
        more=shared.more,
    )
