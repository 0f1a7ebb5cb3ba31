"""Writes of many memories in one request, each with the result of its single call; and storing by `external_id`."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from django.db import OperationalError, connection, transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Router
from ninja.responses import Status
from psycopg.errors import DeadlockDetected, LockNotAvailable
from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError

from access.idempotency import PARAMETER as IDEMPOTENCY_KEY
from access.keys import ApiRequest, callers
from access.viewer import Viewer
from categories.services import LONGEST_WAIT, vocabulary_lock, vocabulary_lock_shared, writers_turn
from explorer.memory.api import ChangeRequest, MemoryPatch, Written, answer_written, memory_address
from memories.models import Memory
from memories.queries import memory_version
from memories.records import MemoryId, Slug100, StrictMemoryRecord
from memories.refusals import ChangeRefusedError
from memories.services import memory_create, memory_delete, memory_link, memory_restore, memory_update, memory_upsert
from memories.storage import one_revision, outbox_stamp
from web.errors import GUARDED, Error, errors
from web.params import Params, pairs_of
from web.responses import error_of, error_of_input

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
