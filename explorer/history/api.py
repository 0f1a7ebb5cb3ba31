"""The past of memories as JSON: the history of one, the restoring of a version, and the feed of all changes."""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Annotated, Any, ClassVar, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from access.keys import ApiRequest, allowed
from access.models import MemoryChange
from access.viewer import Viewer
from explorer.listings import visible_project_ids
from explorer.memory.api import RestoreRequest, Written, answer_written, memory_address, storable_id
from explorer.operations import read_operation
from memories.changes import ChangedMemory, ChangeFeed, changes, newest_changes
from memories.history import History, maker_of, memory_history
from memories.models import MemoryRead
from memories.queries import visible_to
from memories.recalls import DAYS_KEPT, Recalls, recalls_of, record_opening, record_passing
from memories.refusals import MemoryNotFoundError
from memories.services import memory_version_restore
from text.formatting import check_start, legible, start_of
from web.errors import GUARDED, close_to, errors
from web.params import Params, Text, Value, Values, pairs_of
from web.validation import Problem

KINDS = tuple(kind.value for kind in MemoryChange.Kind)

router = Router()


class HistoryRequest(Params):
    """Which events of a history are wanted."""

    limit: int = Field(50, ge=1, le=200, description="Maximum number of events.")
    before: Annotated[Text, Field(max_length=100)] = Field("", description="`next` of the previous reply.")


class ChangesRequest(Params):
    """Which changes are wanted."""

    aliases: ClassVar = {"projects": "project", "kinds": "kind", "cursor": "after"}

    after: Annotated[Text, Field(max_length=200)] = Field("", description="`cursor` of the previous reply.")
    since: Annotated[Value, AfterValidator(check_start)] = Field(
        "", description="Where to begin without a cursor: a span up to now (`7d`), or a date or time."
    )
    project: Values = Field((), description="Slug of a project; by default all that the key may see.")
    kind: Values = Field((), description=f"One of {', '.join(KINDS)}.")
    order: Literal["oldest", "newest"] = Field("oldest", description="Which changes come first.")
    limit: int = Field(100, ge=1, le=500, description="Maximum number of changes.")

    def conflicts(self) -> Iterable[Problem]:
        for kind in self.kind:
            if kind not in KINDS:
                yield Problem(
                    "kind",
                    f"'{legible(kind, 40)}' is not a kind of change",
                    f"write one of {', '.join(KINDS)}",
                    close_to(kind, KINDS),
                )

    def begin(self, now: datetime) -> datetime | None:
        """The instant to begin at."""
        return start_of(self.since, UTC, now)


class FieldChangeReply(BaseModel):
    """A field before and after. Terms are lists of names, of a category its path."""

    model_config = ConfigDict(from_attributes=True)

    field: str
    before: Any
    after: Any
    is_partial: bool = Field(description="Whether the lists have only the terms that the memory lost and got.")


class EventReply(BaseModel):
    """A change of a memory: when, by whom, through which interface, and the values before and after."""

    model_config = ConfigDict(from_attributes=True)

    id: str = Field(description="For restoring the memory as it was after this event.")
    at: datetime
    kind: str = Field(description=f"One of {', '.join(KINDS)}.")
    by: str = Field(description="The person or the key; empty for a command.")
    door: str = Field(description="`page`, `api`, `mcp`, `admin` or `command`.")
    reason: str
    batch_id: int | None = Field(description="The import that made the change.")
    curation_id: int | None = Field(description="The curation that made it, with many memories at once.")
    changes: list[FieldChangeReply]


class HistoryReply(BaseModel):
    """The history of a memory, the newest event first."""

    model_config = ConfigDict(from_attributes=True)

    memory_id: int
    events: list[EventReply]
    next: str = Field(description="`before` of the request for further events; empty if there are none.")


class RecallDayReply(BaseModel):
    """The recalls of a memory on a day."""

    model_config = ConfigDict(from_attributes=True)

    day: date = Field(description="In UTC.")
    total: int
    by_agents: int
    by_people: int


class RecallsReply(BaseModel):
    """How often a memory was recalled. Both dates are null if it never was."""

    model_config = ConfigDict(from_attributes=True)

    total: int
    by_agents: int
    by_people: int
    first_at: datetime | None
    last_at: datetime | None
    days: list[RecallDayReply] = Field(description=f"Those of the last {DAYS_KEPT} days, the latest first.")


class ChangeReply(BaseModel):
    """A change of a memory, in the feed."""

    at: datetime
    kind: str = Field(description=f"One of {', '.join(KINDS)}.")
    id: int = Field(description="The memory.")
    title: str | None = Field(description="Its title today; null if it no longer exists.")
    project: str = Field(description="Empty if it no longer exists.")
    by: str = Field(description="The person or the key; empty for a command.")
    door: str = Field(description="`page`, `api`, `mcp`, `admin` or `command`.")
    reason: str
    url: str = Field(description="The page of the memory.")


class ChangesReply(BaseModel):
    """Changes in the order of their commits, the oldest first unless `order` says otherwise."""

    changes: list[ChangeReply]
    cursor: str = Field(description="`after` of the next request. It stays valid.")
    has_more: bool = Field(description="Whether to ask again at once; a page may be short although there are more.")


@read_operation(
    router,
    "/memories/{int:memory_id}/history",
    "memory_history",
    HistoryReply,
    404,
    parameters=HistoryRequest.openapi_parameters(),
)
def history(request: ApiRequest, memory_id: int) -> History:
    """The changes of a memory, the newest first, with the values before and after."""
    viewer = allowed(request, "read")
    asked = HistoryRequest.from_pairs(pairs_of(request.GET))
    found = memory_history(viewer, storable_id(memory_id), before=asked.before, limit=asked.limit)
    if found is None:
        raise MemoryNotFoundError(memory_id)
    record_opening(viewer, [memory_id], recalls=False)
    return found


@read_operation(router, "/memories/{int:memory_id}/recalls", "memory_recalls", RecallsReply, 404)
def recalls(request: ApiRequest, memory_id: int) -> Recalls:
    """How often a memory was recalled, by agents and by people, in all and on each of the last days."""
    viewer = allowed(request, "read")
    Params.from_pairs(pairs_of(request.GET))
    if not visible_to(viewer).filter(pk=storable_id(memory_id)).exists():
        raise MemoryNotFoundError(memory_id)
    return recalls_of(viewer, memory_id)


@router.post(
    "/memories/{int:memory_id}/history/{event}/restore",
    response={200: Written, **errors(*GUARDED, 404, 409, 411, 412, 422)},
    operation_id="memory_version_restore",
    openapi_extra={"parameters": RestoreRequest.openapi_parameters()},
)
def restore_version(request: ApiRequest, memory_id: int, event: str, response: HttpResponse) -> Written:
    """Give a memory all the values that it had after an event of its history; nothing of the history is lost."""
    viewer = allowed(request, "write")
    asked = RestoreRequest.of(request)
    memory = memory_version_restore(memory_id=storable_id(memory_id), event_id=event, viewer=viewer, **asked.arguments)
    return answer_written(memory, viewer, request, response)


@read_operation(router, "/changes", "changes", ChangesReply, parameters=ChangesRequest.openapi_parameters())
def feed(request: ApiRequest) -> ChangesReply:
    """Memories that were created, edited, superseded, archived, deleted, restored, retagged or merged."""
    viewer = allowed(request, "read")
    asked = ChangesRequest.from_pairs(pairs_of(request.GET))
    read = newest_changes if asked.order == "newest" else changes
    found = read(
        viewer,
        after=asked.after,
        since=asked.begin(datetime.now(UTC)),
        project_ids=visible_project_ids(asked.project, viewer) if asked.project else None,
        kinds=asked.kind,
        limit=asked.limit,
    )
    record_changes(viewer, asked, found)
    return changes_reply(found, request)


def record_changes(viewer: Viewer, asked: ChangesRequest, found: ChangeFeed) -> None:
    """Record that a viewer was given the titles in a part of the feed."""
    ids = list(dict.fromkeys(change.memory_id for change in found.changes))
    if ids:
        record_passing(viewer, ids, MemoryRead.Kind.LIST, asked.querystring())


def changes_reply(found: ChangeFeed, request: HttpRequest) -> ChangesReply:
    listed = [_change_reply(change, request) for change in found.changes]
    return ChangesReply(changes=listed, cursor=found.cursor, has_more=found.has_more)


def _change_reply(change: ChangedMemory, request: HttpRequest) -> ChangeReply:
    return ChangeReply(
        at=change.at,
        kind=change.kind,
        id=change.memory_id,
        title=change.title,
        project=change.project,
        by=maker_of(change.event),
        door=change.event.door,
        reason=change.event.note,
        url=memory_address(change.memory_id, request),
    )
