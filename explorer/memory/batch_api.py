"""Whole memories as JSON, several at a time by id: the third layer after index and timeline."""

import re
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from access.keys import ApiRequest, callers
from access.viewer import Viewer
from explorer.memory.api import MemoryReply, memory_reply
from memories.queries import MemoryDetail, memory_details
from memories.recalls import opened
from memories.records import MemoryId
from search.query import SORT_ALIASES
from text.formatting import legible
from web.errors import GUARDED, errors
from web.params import Params, pairs_of
from web.validation import refuse

MOST_IDS = 100
# `given` is the order of the ids, and the default.
ORDERS = ("given", "newest", "oldest")

router = Router()


def _read_ids(value: Any) -> Any:
    if isinstance(value, int | str):
        value = [value]
    for item in value if isinstance(value, list | tuple) else ():
        if isinstance(item, str) and len(several := re.findall(r"\d+", item)) > 1:
            raise refuse(f"{legible(item, 60)!r} is one text: write a list, as [{', '.join(several[:3])}]")
    if isinstance(value, list | tuple) and len(value) > MOST_IDS:
        raise refuse(f"has {len(value):,} ids; give at most {MOST_IDS} at a time")
    return value


def _read_order(value: Any) -> Any:
    order = SORT_ALIASES.get(value, value) if isinstance(value, str) else value
    if order not in ORDERS:
        known = ", ".join((*ORDERS, *SORT_ALIASES))
        raise refuse(f"{ascii(value)[:40]} is not a sort order: write one of {known}")
    return order


def _read_projects(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Batch(BaseModel):
    """A request for memories by id."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    ids: Annotated[
        list[MemoryId],
        BeforeValidator(_read_ids),
        Field(min_length=1, max_length=MOST_IDS, description="Ids from a search."),
    ]
    order: Annotated[
        str,
        BeforeValidator(_read_order),
        Field(
            alias="orderBy",
            description="`given` (as the ids are), `newest` or `oldest`, which are `date_desc` and `date_asc` too.",
        ),
    ] = "given"
    limit: int = Field(MOST_IDS, ge=1, le=MOST_IDS, description="Maximum number of memories, in this order.")
    project: Annotated[list[str], BeforeValidator(_read_projects)] = Field(
        default_factory=list, description="Only memories of these projects, by slug."
    )


class BatchReply(BaseModel):
    """The memories found. Ids without a visible memory in the projects are in `missing`."""

    memories: list[MemoryReply]
    missing: list[int]
    left_out: list[int] = Field(description="Number of memories found beyond the limit.")


@router.post(
    "/memories/batch",
    response={200: BatchReply, **errors(400, *GUARDED, 411, 413, 415, 422)},
    auth=callers("read"),
    operation_id="memory_batch",
)
def memories(request: ApiRequest, batch: Batch) -> BatchReply:
    """Whole memories by id: choose them from the index of a search first."""
    return _batch_reply(batch, request.viewer, request)


@router.post(
    "/observations/batch",
    response={200: BatchReply, **errors(400, *GUARDED, 411, 413, 415, 422)},
    auth=callers("read"),
    operation_id="observation_batch",
)
def observations(request: ApiRequest, batch: Batch) -> BatchReply:
    """The same as `POST /api/memories/batch`, under its name in claude-mem."""
    return _batch_reply(batch, request.viewer, request)


def batch_of(batch: Batch, viewer: Viewer) -> tuple[list[MemoryDetail], list[int], list[int]]:
    """(memories in the requested order, missing ids, ids past the limit)."""
    ids = list(dict.fromkeys(batch.ids))
    details = memory_details(viewer, ids)
    if batch.project:
        wanted = {slug.strip().lower() for slug in batch.project}
        details = {pk: detail for pk, detail in details.items() if detail.memory.project.slug in wanted}
    found = [details[pk] for pk in ids if pk in details]
    if batch.order != "given":
        found.sort(key=lambda d: (d.memory.created_at, d.memory.pk), reverse=batch.order == "newest")
    missing = [pk for pk in ids if pk not in details]
    opened(viewer, [detail.memory.pk for detail in found[: batch.limit]])
    return found[: batch.limit], missing, [detail.memory.pk for detail in found[batch.limit :]]


def _batch_reply(batch: Batch, viewer: Viewer, request: HttpRequest) -> BatchReply:
    Params.from_pairs(pairs_of(request.GET))
    found, missing, left_out = batch_of(batch, viewer)
    return BatchReply(memories=[memory_reply(d, request) for d in found], missing=missing, left_out=left_out)
