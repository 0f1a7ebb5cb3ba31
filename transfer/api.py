"""Imports by the API: a file is uploaded in parts, previewed, imported in the background, and undone as a whole."""

from datetime import datetime
from functools import partial
from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field

from access.keys import ApiRequest, allowed, callers
from explorer.operations import read_operation
from memories.records import MAX_PROJECT
from search.query import import_query
from transfer.formats.csv_table import FIELDS
from transfer.jobs import (
    State,
    UploadInvalidError,
    job_cancel,
    job_import,
    job_named,
    job_remove,
    job_undo,
    jobs_of,
    jobs_recover,
)
from transfer.models import ImportJob
from transfer.previews import PreviewedFile, PreviewedRow, PreviewedSum, job_read_as, preview_of
from transfer.queries import ids_changed_by
from transfer.read_again import job_read_again
from transfer.uploads import MAX_FILES, MAX_PART, MAX_UPLOAD, FileToSend, upload_append, upload_begin
from web.errors import GUARDED, ApiError, errors
from web.params import Params, pairs_of

router = Router()
_get = partial(read_operation, router)
_post = partial(router.post, auth=callers("write"))
_REFUSALS = errors(400, *GUARDED, 404, 409, 411, 413, 422)
_LISTED = 50
_COLUMNS = 100
_CHANGED = 1_000


class FileRequest(BaseModel):
    """One of several files to upload."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=2_000, description="Its path, with slashes.")
    size: int = Field(ge=0, le=MAX_UPLOAD, description="In bytes.")
    modified: datetime | None = Field(None, description="When it was changed: the date of a note that names none.")


class UploadRequest(BaseModel):
    """A file to upload, or several that are imported as one."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=500, description="The name of the file, or of the upload of several.")
    size: int = Field(ge=1, le=MAX_UPLOAD, description="In bytes, of all files together.")
    modified: datetime | None = Field(None, description="When the file was changed: the date of a note without one.")
    files: list[FileRequest] = Field(
        default=[], max_length=MAX_FILES, description="Several files; their bytes are sent one after the other."
    )
    fingerprint: str = Field(
        "",
        max_length=200,
        pattern="^[!-~]*$",
        description="Any word that is the same for the same files, such as their SHA-256. An upload that has begun "
        "goes on only with the same one.",
    )

    def listed(self) -> list[FileToSend]:
        if not self.files:
            return [FileToSend(self.name, self.size, self.modified)]
        if (total := sum(file.size for file in self.files)) != self.size:
            raise UploadInvalidError(f"size: is {self.size:,}, and the files have {total:,} bytes together.")
        return [FileToSend(file.name, file.size, file.modified) for file in self.files]


class ReadAsRequest(BaseModel):
    """How the columns of tables are read."""

    model_config = ConfigDict(extra="forbid")

    columns: dict[str, str] | None = Field(
        None,
        max_length=1_000,
        description="The field for each column, by its name; an empty text stores the column as it is. Columns that "
        "are not named are read as guessed. What is left out of this request stays as it is.",
    )
    values: dict[str, str] | None = Field(
        None,
        max_length=50,
        description='Values of fields for all records that give none, such as `{"type": "decision"}`.',
    )
    types: dict[str, str] | None = Field(
        None,
        max_length=1_000,
        description="Types of notes by rules: a folder as `Decisions/`, a `#tag` or a `## Heading`. With an empty type "
        "the rule is off.",
    )
    dates: Literal["", "day-first", "month-first"] | None = Field(
        None, description="What comes first in dates such as 03/04/2026 that do not show it."
    )


class StartRequest(BaseModel):
    """How a file is imported."""

    model_config = ConfigDict(extra="forbid")

    project: str = Field(
        "",
        max_length=MAX_PROJECT,
        description="For memories that name none. A key for one project imports into that one by default.",
    )
    only_project: bool = Field(False, description="Whether memories that name another project are put there too.")


class PartRequest(Params):
    """The place of a part of an upload."""

    offset: int = Field(0, ge=0, le=MAX_UPLOAD, description="The bytes before this part: `received` of the last reply.")


class UndoRequest(Params):
    """How an import is undone."""

    force: bool = Field(
        False,
        description="Whether what was changed since is lost. Needs the rights to read, write and curate every project.",
    )


class RefusedRow(BaseModel):
    location: str
    reason: str


class NotedRow(BaseModel):
    """A row that is taken, with what is left out or cut of it."""

    location: str
    note: str


class PreviewedColumn(BaseModel):
    """A column of a table, and the field that it is read as."""

    name: str
    field: str = Field(description="Empty if the column is stored as it is.")
    examples: list[str]
    dates: str = Field("", description="What comes first in its dates: `day-first` or `month-first`; empty for others.")
    question: str = Field("", description="One of its dates that may be meant in two ways: choose `dates`.")


class PreviewReply(BaseModel):
    """The first rows of an upload as they will be; of several files, those of the first ones."""

    format: str
    files: list[PreviewedFile] = Field(description="The first of several files.")
    columns: list[PreviewedColumn] = Field(description="The columns of tables, and how they are read.")
    fields: list[str] = Field(description="What columns may be read as; empty if there are none.")
    rows: list[PreviewedRow]
    refused: list[RefusedRow]
    notes: list[NotedRow] = Field(description="What is left out or cut of the first rows.")
    found: PreviewedSum | None = Field(description="All that was read, in numbers; null if nothing could be.")
    problem: str = Field(description="Why nothing can be imported; empty if it can.")


class ImportReply(BaseModel):
    """An import: its upload, its progress and its report."""

    id: int
    name: str
    state: str = Field(
        description="`uploading`, `ready`, `waiting`, `running`, `cancelling`, `done`, `failed`, "
        "`undo_waiting`, `undoing`, `undone`."
    )
    files: int = Field(description="The number of files; 0 if it was not uploaded.")
    fingerprint: str
    size: int = Field(description="In bytes; 0 if it was not uploaded.")
    received: int
    part_size: int = Field(description="The largest part, in bytes.")
    project: str
    only_project: bool
    read: int = Field(description="Records read so far.")
    share: float | None = Field(description="The share of the source read so far, 0 to 1; null if unknown.")
    problem: str = Field(description="Why it failed, or was not undone; empty otherwise.")
    batch: int | None
    rows_of: int | None = Field(description="The batch whose rows it reads again; null for other imports.")
    created: int
    updated: int
    unchanged: int
    refused: int
    refusals: list[RefusedRow] = Field(description="The first 1,000 rows that were not taken, and why.")
    notes: list[NotedRow] = Field(description="The first 1,000 notes on rows that were taken.")
    created_at: datetime
    url: str
    brought_url: str = Field(description="Lists the memories that it brought; empty without any.")


class ImportDetail(ImportReply):
    updated_ids: list[int] = Field(
        description=f"The first {_CHANGED:,} memories that it updated, of those that you see."
    )
    preview: PreviewReply | None = Field(
        description="Of an upload that is ready; null while it is being made, for some seconds."
    )


class ImportsReply(BaseModel):
    """The last 50 imports of the pages and the API, the newest first."""

    imports: list[ImportReply]


def brought_address(name: str, request: HttpRequest) -> str:
    """The address by which the API lists what an import, or a followed source, brought."""
    return request.build_absolute_uri(f"{reverse('api:search')}?{import_query(name).querystring()}")


def _fields(job: ImportJob, request: HttpRequest, *, report: bool = True) -> dict[str, Any]:
    batch = job.own_batch
    stored = (batch.report or {}) if batch and report else {}
    return {
        **{
            name: getattr(job, name)
            for name in ("id", "name", "state", "fingerprint", "size", "received", "project", "read", "share")
        },
        "only_project": job.is_only_project,
        "files": (len(job.files) or 1) if job.is_upload else 0,
        "problem": job.error,
        "part_size": MAX_PART,
        "batch": batch.pk if batch else None,
        "rows_of": job.batch_id if job.reads_again else None,
        **{name: getattr(batch, name) if batch else 0 for name in ("created", "updated", "unchanged", "refused")},
        "refusals": stored.get("refused", []),
        "notes": stored.get("notes", []),
        "created_at": job.created_at,
        "url": request.build_absolute_uri(reverse("imports:job", args=[job.pk])),
        "brought_url": brought_address(str(batch.pk), request) if batch and batch.created else "",
    }


def _reply(job: ImportJob, request: HttpRequest) -> ImportReply:
    return ImportReply(**_fields(job, request))


@_get("/imports", "imports", ImportsReply)
def imports(request: ApiRequest) -> ImportsReply:
    """The imports of the pages and the API; your own, if you may not write everything. Reports are in each one."""
    jobs = jobs_of(allowed(request, "write"))
    Params.from_pairs(pairs_of(request.GET))
    jobs_recover()
    jobs = jobs.select_related("batch").defer("batch__report")[:_LISTED]
    return ImportsReply(imports=[ImportReply(**_fields(job, request, report=False)) for job in jobs])


@_post("/imports", response={201: ImportReply, **_REFUSALS}, operation_id="import_begin")
def begin(request: ApiRequest, body: UploadRequest, response: HttpResponse) -> Status[ImportReply]:
    """Begin an upload, or go on with the one of the same names, sizes and fingerprint: it continues at `received`."""
    Params.from_pairs(pairs_of(request.GET))
    name = body.name if body.files else ""
    job = upload_begin(files=body.listed(), viewer=request.viewer, fingerprint=body.fingerprint, name=name)
    response["Location"] = reverse("api:import_one", args=[job.pk])
    return Status(201, _reply(job, request))


@_get("/imports/{int:import_id}", "import_job", ImportDetail, 404)
def import_one(request: ApiRequest, import_id: int) -> ImportDetail:
    """One import, with the first rows of an upload that is ready."""
    job = job_named(allowed(request, "write"), import_id)
    Params.from_pairs(pairs_of(request.GET))
    return _detail(job, request)


def _detail(job: ImportJob, request: ApiRequest) -> ImportDetail:
    preview = None
    if job.state == State.READY and (found := preview_of(job)):
        preview = PreviewReply(
            format=found.format,
            files=list(found.files),
            columns=[
                PreviewedColumn.model_validate(column, from_attributes=True) for column in found.columns[:_COLUMNS]
            ],
            fields=list(FIELDS) if found.columns else [],
            rows=list(found.rows),
            refused=[RefusedRow(location=location, reason=reason) for location, reason in found.refused],
            notes=[NotedRow(location=location, note=note) for location, note in found.notes],
            found=found.found,
            problem=found.error,
        )
    changed = ids_changed_by(job.batch, request.viewer, _CHANGED) if job.state == State.DONE else []
    return ImportDetail(**_fields(job, request), updated_ids=changed, preview=preview)


@router.patch(
    "/imports/{int:import_id}",
    response={200: ImportDetail, **_REFUSALS},
    auth=callers("write"),
    operation_id="import_read_as",
)
def read_as(request: ApiRequest, import_id: int, body: ReadAsRequest) -> ImportDetail:
    """Choose how an upload is read: its columns, values, types and dates. The preview is made again."""
    job = job_named(request.viewer, import_id)
    Params.from_pairs(pairs_of(request.GET))
    return _detail(job_read_as(job=job, **dict(body)), request)


@router.put(
    "/imports/{int:import_id}/data",
    response={200: ImportReply, **_REFUSALS},
    auth=callers("write"),
    operation_id="import_append",
    openapi_extra={
        "parameters": PartRequest.openapi_parameters(),
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
    },
)
def append(request: ApiRequest, import_id: int) -> ImportReply:
    """Append a part of the file. Sent to another offset than the next, it is refused with 409 and that offset."""
    job = job_named(request.viewer, import_id)
    asked = PartRequest.from_pairs(pairs_of(request.GET))
    if len(request.body) > MAX_PART:
        raise ApiError(413, "too_large", f"The part has {len(request.body):,} bytes.", f"Send up to {MAX_PART:,}.")
    return _reply(upload_append(job=job, offset=asked.offset, part=request.body), request)


@_post("/imports/{int:import_id}/start", response={202: ImportReply, **_REFUSALS}, operation_id="import_start")
def start(request: ApiRequest, import_id: int, body: StartRequest) -> Status[ImportReply]:
    """Import an upload that is complete, in the background; or try a failed import again."""
    job = job_named(request.viewer, import_id)
    Params.from_pairs(pairs_of(request.GET))
    return Status(202, _reply(_started(job, request, body), request))


def _started(job: ImportJob, request: ApiRequest, body: StartRequest) -> ImportJob:
    return job_import(job=job, project=body.project, viewer=request.viewer, is_only_project=body.only_project)


@_post("/imports/{int:import_id}/again", response={201: ImportDetail, **_REFUSALS}, operation_id="import_read_again")
def read_again(request: ApiRequest, import_id: int, response: HttpResponse) -> Status[ImportDetail]:
    """Begin to read the rows of a table that was imported again, in another way: its memories change in place.

    The reply is an import that is ready, like an upload, and reads as the other did: choose its columns, values and
    dates with PATCH, and start it. What was edited here in between stays, and its undo takes all of it back.
    """
    job = job_named(request.viewer, import_id)
    Params.from_pairs(pairs_of(request.GET))
    again = job_read_again(job=job, viewer=request.viewer)
    response["Location"] = reverse("api:import_one", args=[again.pk])
    return Status(201, _detail(again, request))


@_post("/imports/{int:import_id}/cancel", response={200: ImportReply, **_REFUSALS}, operation_id="import_cancel")
def cancel(request: ApiRequest, import_id: int) -> ImportReply:
    """Cancel an import that waits or runs, or an undo that waits. A running import ends soon, and writes nothing."""
    job = job_named(request.viewer, import_id)
    Params.from_pairs(pairs_of(request.GET))
    return _reply(job_cancel(job=job), request)


@_post(
    "/imports/{int:import_id}/undo",
    response={202: ImportReply, **_REFUSALS},
    operation_id="import_undo",
    openapi_extra={"parameters": UndoRequest.openapi_parameters()},
)
def undo(request: ApiRequest, import_id: int) -> Status[ImportReply]:
    """Undo an import, in the background: what it added is removed, and what it changed is restored."""
    job = job_named(request.viewer, import_id)
    asked = UndoRequest.from_pairs(pairs_of(request.GET))
    return Status(202, _reply(job_undo(job=job, viewer=request.viewer, force=asked.force), request))


@router.delete(
    "/imports/{int:import_id}",
    response={204: None, **_REFUSALS},
    auth=callers("write"),
    operation_id="import_remove",
)
def remove(request: ApiRequest, import_id: int) -> Status[None]:
    """Remove an upload that was not imported, or the entry of an import that is finished."""
    job = job_named(request.viewer, import_id)
    Params.from_pairs(pairs_of(request.GET))
    job_remove(job=job)
    return Status(204, None)
