"""Followed sources by the API: what was read of them, their conflicts, and stop."""

from datetime import datetime
from functools import partial
from typing import Any, Literal

from django.http import HttpRequest
from django.urls import reverse
from ninja import Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field

from access.keys import ApiRequest, allowed, callers
from explorer.operations import read_operation
from memories.models import FollowedSource
from transfer.api import brought_address
from transfer.follow.process import is_followed_now
from transfer.follow.queries import conflicts_read
from transfer.follow.services import conflict_settle, source_gone_settle, source_stop
from transfer.follow.sources import SourceRefusedError, source_named, sources_of
from transfer.follow.write_back import write_back_set
from transfer.formats.base import ImportFailedError
from web.errors import GUARDED, errors
from web.params import Params, pairs_of

router = Router()
_get = partial(read_operation, router)
_REFUSALS = errors(400, *GUARDED, 404, 422)
_CONFLICTS = 50


class GoneRequest(BaseModel):
    """The decision about many memories that are gone at once."""

    model_config = ConfigDict(extra="forbid")

    answer: Literal["delete", "keep"] = Field(
        description="`delete` deletes them here too; `keep` keeps them, no longer followed."
    )


class ConflictRequest(BaseModel):
    """Which side of a conflict holds."""

    model_config = ConfigDict(extra="forbid")

    take: Literal["source", "here"]


class WriteBackRequest(BaseModel):
    """Whether edits made here are written into the notes of a source."""

    model_config = ConfigDict(extra="forbid")

    on: bool


class FollowReply(BaseModel):
    """A followed source."""

    id: int
    path: str
    format: str
    project: str
    memories: int = Field(description="Those that it has.")
    refused: int = Field(description="Its records that could not be taken.")
    conflicts: int = Field(description="Memories that were edited here and changed, or are gone, there.")
    gone_waiting: int = Field(description="Memories that are gone at once, and wait for a decision.")
    writes_back: bool = Field(description="Whether edits made here are written into its notes.")
    problem: str = Field(description="Why it cannot be read at present; empty otherwise.")
    looked_at: datetime | None
    read_at: datetime | None = Field(description="When it was last read because it had changed.")
    changed_at: datetime | None = Field(description="When something last came of that.")
    created_at: datetime
    url: str
    brought_url: str = Field(description="Lists the memories that it brought.")


class FollowsReply(BaseModel):
    """The followed sources, and whether a process follows them at present."""

    is_running: bool
    follows: list[FollowReply]


class Difference(BaseModel):
    field: str
    here: Any
    source: Any


class ConflictReply(BaseModel):
    """A memory that was edited here, and the fields in which its record in the source differs."""

    memory: int
    title: str
    is_gone: bool = Field(description="Whether the source has no such record any more.")
    is_deleted: bool = Field(description="Whether the memory is deleted here.")
    edit: str = Field(description="Who edited it here, and when.")
    noticed_at: datetime
    differences: list[Difference]


class FollowDetail(FollowReply):
    open: list[ConflictReply] = Field(description=f"The first {_CONFLICTS} conflicts.")


def _fields(source: FollowedSource, request: HttpRequest) -> dict[str, Any]:
    names = ("id", "path", "format", "project", "memories", "refused", "gone_waiting", "writes_back")
    times = ("looked_at", "read_at", "changed_at", "created_at")
    return {
        **{name: getattr(source, name) for name in (*names, *times)},
        "conflicts": getattr(source, "open_conflicts", 0),
        "problem": source.error,
        "url": request.build_absolute_uri(reverse("imports:follow", args=[source.pk])),
        "brought_url": brought_address(f"followed:{source.pk}", request),
    }


def _detail(source: FollowedSource, request: HttpRequest) -> FollowDetail:
    conflicts = [
        ConflictReply(
            memory=one.memory_id,
            differences=[Difference(field=name, here=here, source=there) for name, here, there in one.differences],
            **{name: getattr(one, name) for name in ("title", "is_gone", "is_deleted", "edit", "noticed_at")},
        )
        for one in conflicts_read(source, _CONFLICTS)
    ]
    return FollowDetail(**_fields(source, request), open=conflicts)


@_get("/follows", "follows", FollowsReply)
def follows(request: ApiRequest) -> FollowsReply:
    """The sources on the server's machine that are followed. For those who may write everything."""
    sources = sources_of(allowed(request, "write"))
    Params.from_pairs(pairs_of(request.GET))
    return FollowsReply(
        is_running=is_followed_now(), follows=[FollowReply(**_fields(source, request)) for source in sources]
    )


@_get("/follows/{int:source_id}", "follow", FollowDetail, 404)
def follow(request: ApiRequest, source_id: int) -> FollowDetail:
    """One followed source, with its conflicts."""
    source = source_named(allowed(request, "write"), source_id)
    Params.from_pairs(pairs_of(request.GET))
    return _detail(source, request)


@router.delete(
    "/follows/{int:source_id}",
    response={204: None, **_REFUSALS},
    auth=callers("write"),
    operation_id="follow_stop",
)
def stop(request: ApiRequest, source_id: int) -> Status[None]:
    """Follow a source no longer. Its memories stay as they are, and its open conflicts are dropped."""
    source = source_named(request.viewer, source_id)
    Params.from_pairs(pairs_of(request.GET))
    source_stop(source)
    return Status(204, None)


@router.post(
    "/follows/{int:source_id}/write_back",
    response={200: FollowDetail, **_REFUSALS},
    auth=callers("write"),
    operation_id="follow_write_back",
)
def write_back(request: ApiRequest, source_id: int, body: WriteBackRequest) -> FollowDetail:
    """Begin or cease to write edits made here into the notes of a source. Those made before are written too."""
    source = source_named(request.viewer, source_id)
    Params.from_pairs(pairs_of(request.GET))
    try:
        write_back_set(source, on=body.on)
    except ImportFailedError as error:
        raise SourceRefusedError(str(error)) from None
    return _detail(source_named(request.viewer, source_id), request)


@router.post(
    "/follows/{int:source_id}/gone",
    response={200: FollowDetail, **_REFUSALS},
    auth=callers("write"),
    operation_id="follow_gone",
)
def gone(request: ApiRequest, source_id: int, body: GoneRequest) -> FollowDetail:
    """Decide about many memories that are gone at once. The next reading does it."""
    source = source_named(request.viewer, source_id)
    Params.from_pairs(pairs_of(request.GET))
    source_gone_settle(source, delete=body.answer == "delete")
    return _detail(source_named(request.viewer, source_id), request)


@router.post(
    "/follows/{int:source_id}/conflicts/{int:memory_id}",
    response={200: FollowDetail, **_REFUSALS},
    auth=callers("write"),
    operation_id="follow_settle",
)
def settle(request: ApiRequest, source_id: int, memory_id: int, body: ConflictRequest) -> FollowDetail:
    """Decide a conflict: take the record of the source, or keep the memory as it is here."""
    source_named(request.viewer, source_id)
    Params.from_pairs(pairs_of(request.GET))
    try:
        conflict_settle(source_id=source_id, memory_id=memory_id, take=body.take == "source", viewer=request.viewer)
    except ImportFailedError as error:
        raise SourceRefusedError(str(error)) from None
    return _detail(source_named(request.viewer, source_id), request)
