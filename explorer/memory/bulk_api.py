"""Many memories in one request, read, or written each with the result of its single call; storing by `external_id`."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from django.db import OperationalError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Router
from ninja.responses import Status
from psycopg.errors import DeadlockDetected, LockNotAvailable
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation, ValidationError

from access.idempotency import PARAMETER as IDEMPOTENCY_KEY
from access.keys import ApiRequest, callers
from access.viewer import Viewer
from categories.services import LONGEST_WAIT, vocabulary_lock, vocabulary_lock_shared, writers_turn
from explorer.memory.api import (
    ChangeRequest,
    MemoryPatch,
    MemoryReply,
    Written,
    answer_written,
    memory_address,
    memory_reply,
)
from memories.models import Memory
from memories.queries import MemoryDetail, memory_details, memory_version
from memories.recalls import record_opening
from memories.records import MemoryId, Slug100, StrictMemoryRecord
from memories.refusals import ChangeRefusedError
from memories.services import memory_create, memory_delete, memory_link, memory_restore, memory_update, memory_upsert
from memories.storage import one_revision, outbox_stamp
from search.query import SORT_ALIASES
from text.formatting import legible
from web.errors import GUARDED, Error, errors
from web.params import Params, pairs_of
from web.responses import error_of, error_of_input
from web.validation import refuse

MOST_OPERATIONS = 1_000
# A deadlock is noticed after a second, and the other transaction goes on at once.
_ATTEMPTS = 3
# For other writers, in seconds.
_LONGEST_WAIT = 5.0

router = Router()

Reason = Annotated[str, Field(max_length=1_000, description="Why, for the audit trail.")]
Version = Annotated[str, Field(max_length=100, description="Change only this version.")]


class _Operation(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BulkCreate(_Operation):
    """Store a memory."""

    op: Literal["create"]
    memory: StrictMemoryRecord

    def apply(self, viewer: Viewer) -> tuple[Memory, int]:
        return memory_create(record=self.memory, viewer=viewer), 201


class BulkUpsert(_Operation):
    """Store a memory, or replace the one of the project that has its `external_id`."""

    op: Literal["upsert"]
    memory: StrictMemoryRecord
    reason: Reason = ""

    def apply(self, viewer: Viewer) -> tuple[Memory, int]:
        memory, is_new = memory_upsert(record=self.memory, viewer=viewer, reason=self.reason)
        return memory, 201 if is_new else 200


class _Change(_Operation):
    id: MemoryId
    reason: Reason = ""
    version: Version = ""

    @property
    def named(self) -> dict[str, Any]:
        return {"memory_id": self.id, "reason": self.reason, "if_version": self.version}


class BulkUpdate(_Change):
    """Change the fields that are given."""

    op: Literal["update"]
    memory: MemoryPatch

    def apply(self, viewer: Viewer) -> tuple[Memory, int]:
        return memory_update(changes=self.memory, viewer=viewer, **self.named), 200


class BulkDelete(_Change):
    """Delete a memory."""

    op: Literal["delete"]
    reason: Reason = "Deleted through the API."

    def apply(self, viewer: Viewer) -> tuple[Memory, int]:
        return memory_delete(viewer=viewer, **self.named), 200


class BulkRestore(_Change):
    """Restore a deleted or archived memory; a superseded one only with `despite_successor`."""

    op: Literal["restore"]
    despite_successor: bool = False

    def apply(self, viewer: Viewer) -> tuple[Memory, int]:
        return memory_restore(viewer=viewer, despite_successor=self.despite_successor, **self.named), 200


class BulkRelate(_Operation):
    """Link a memory to another one of its project."""

    op: Literal["relate"]
    id: MemoryId
    target: MemoryId
    rel: Slug100 = "relates-to"
    reason: Reason = ""

    def apply(self, viewer: Viewer) -> tuple[Memory, int]:
        memory = memory_link(memory_id=self.id, target_id=self.target, rel=self.rel, viewer=viewer, reason=self.reason)
        return memory, 200


Operation = BulkCreate | BulkUpsert | BulkUpdate | BulkDelete | BulkRestore | BulkRelate
_OPERATIONS: Mapping[str, type[Operation]] = {
    "create": BulkCreate,
    "upsert": BulkUpsert,
    "update": BulkUpdate,
    "delete": BulkDelete,
    "restore": BulkRestore,
    "relate": BulkRelate,
}


class _Kind(BaseModel):
    """The kind of an operation, read before its fields."""

    op: Literal["create", "upsert", "update", "delete", "restore", "relate"]


class BulkRequest(BaseModel):
    """Writes in their order."""

    model_config = ConfigDict(extra="forbid")

    # Each is validated by itself, so that one mistake spoils one result.
    operations: Annotated[
        list[SkipValidation[Annotated[Operation, Field(discriminator="op")]]],
        Field(min_length=1, max_length=MOST_OPERATIONS),
    ]
    atomic: bool = Field(False, description="Write all of them or, if one is refused, none.")


class BulkResult(BaseModel):
    """The result of one operation, as its single call would give it."""

    index: int
    op: str
    status: int = Field(description="200 or 201; that of the error; 424 if another one prevented it.")
    id: int | None = Field(description="The memory; null if it was refused.")
    version: str = ""
    url: str = ""
    error: Error | None = None


class BulkReply(BaseModel):
    """A result for each operation, in their order."""

    done: int
    failed: int = Field(description="Operations that were refused.")
    results: list[BulkResult]


@router.put(
    "/memories/by-external-id/{project}/{path:external_id}",
    response={200: Written, 201: Written, **errors(400, *GUARDED, 404, 409, 411, 412, 413, 415, 422)},
    auth=callers("write"),
    operation_id="memory_upsert",
    openapi_extra={"parameters": ChangeRequest.openapi_parameters()},
)
def upsert(
    request: ApiRequest, project: str, external_id: str, record: StrictMemoryRecord, response: HttpResponse
) -> Status[Written]:
    """Store a memory under its id elsewhere, or replace the one that has it. Sent again, it changes nothing."""
    viewer = request.viewer
    change = ChangeRequest.of(request)
    named = _named_in_address(record, project, external_id)
    memory, is_new = memory_upsert(record=named, viewer=viewer, reason=change.reason, if_version=change.version)
    response["Location"] = reverse("api:memory", args=[memory.pk])
    return Status(201 if is_new else 200, answer_written(memory, viewer, request, response))


def _named_in_address(record: StrictMemoryRecord, project: str, external_id: str) -> StrictMemoryRecord:
    """The record with the project and the id of the address; other ones in the body are a mistake."""
    try:
        address = StrictMemoryRecord.model_validate({"content": "-", "project": project, "id": external_id})
    except ValidationError as error:
        raise error_of_input(error, StrictMemoryRecord, below=0) from error
    for field, given, meant in (("project", record.project, address.project), ("external_id", record.id, address.id)):
        if given and given != meant:
            raise ChangeRefusedError(field, f"is {given!r} in the body and {meant!r} in the address")
    return record.model_copy(update={"project": address.project, "id": address.id})


class _RefusedError(Exception):
    """An operation was refused, and the others are not to be written."""


@router.post(
    "/memories/bulk",
    response={200: BulkReply, **errors(400, *GUARDED, 411, 413, 415, 422)},
    auth=callers("write"),
    operation_id="memory_bulk",
    openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
)
def bulk(request: ApiRequest, body: BulkRequest) -> BulkReply:
    """Up to 1,000 writes, each with its own result. The status is 200 also if some of them are refused."""
    Params.from_pairs(pairs_of(request.GET))
    results = _results(body, request)
    failed = sum(result.error is not None for result in results)
    if failed and body.atomic:
        results = [result if result.error else _prevented(result) for result in results]
    done = sum(result.status < 300 for result in results)
    return BulkReply(done=done, failed=failed, results=results)


def _results(body: BulkRequest, request: ApiRequest) -> list[BulkResult]:
    """Apply all operations in one transaction; again if it lost a deadlock.

    New names and changed memories stay locked until its end, and those of later operations are not known before: a
    writer with the same ones in another order would wait for it, and it for the writer, until Postgres ends one. So
    others wait until it is done, unless it would itself wait for long.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        results: list[BulkResult] = []
        try:
            with suppress(_RefusedError), one_revision():
                _others_wait()
                results += (_result(index, data, request.viewer, request) for index, data in enumerate(body.operations))
                if body.atomic and any(result.error for result in results):
                    raise _RefusedError
                # The next search waits for changes that are younger than a second.
                outbox_stamp()
        except OperationalError as error:
            if attempt == _ATTEMPTS or not isinstance(error.__cause__, DeadlockDetected):
                raise
            continue
        break
    return results


def _others_wait() -> None:
    """Exclude other writers until the transaction ends; but not if one of them takes long, such as an import.

    Whoever waits for this keeps all others waiting too. In a cluster there is one writer at a time anyway.
    """
    if writers_turn(seconds=LONGEST_WAIT):
        return
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{_LONGEST_WAIT * 1000:.0f}"])
            vocabulary_lock(seconds=_LONGEST_WAIT)
            cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
    except OperationalError as error:
        if not isinstance(error.__cause__, LockNotAvailable):
            raise
        vocabulary_lock_shared()


def _prevented(result: BulkResult) -> BulkResult:
    return BulkResult(index=result.index, op=result.op, status=424, id=None)


def _result(index: int, data: Any, viewer: Viewer, request: HttpRequest) -> BulkResult:
    """Apply an operation in a savepoint of its own."""
    op = str(data.get("op", ""))[:20] if isinstance(data, dict) else ""
    try:
        with transaction.atomic():
            memory, status = _read(data).apply(viewer)
    except Exception as error:
        failure = error_of(error)
        if failure.status >= 500:
            raise
        return BulkResult(index=index, op=op, status=failure.status, id=None, error=failure.body)
    url = memory_address(memory.pk, request)
    return BulkResult(index=index, op=op, status=status, id=memory.pk, version=memory_version(memory), url=url)


def _read(data: Any) -> Operation:
    """Raises ApiError, with the invalid fields in sentences."""
    model: type[BaseModel] = _Kind
    try:
        model = _OPERATIONS[_Kind.model_validate(data).op]
        return model.model_validate(data)
    except ValidationError as error:
        raise error_of_input(error, model, below=0) from error


MOST_IDS = 100
# `given` is the order of the ids, and the default.
ORDERS = ("given", "newest", "oldest")


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
    record_opening(viewer, [detail.memory.pk for detail in found[: batch.limit]])
    return found[: batch.limit], missing, [detail.memory.pk for detail in found[batch.limit :]]


def _batch_reply(batch: Batch, viewer: Viewer, request: HttpRequest) -> BatchReply:
    Params.from_pairs(pairs_of(request.GET))
    found, missing, left_out = batch_of(batch, viewer)
    return BatchReply(memories=[memory_reply(d, request) for d in found], missing=missing, left_out=left_out)
