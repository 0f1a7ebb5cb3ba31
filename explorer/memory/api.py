"""Memories as JSON, and the health of the site. Records validate the input, services write."""

import hashlib
from collections.abc import Collection
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, Self

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import parse_etags
from ninja import Router
from ninja.responses import Status
from pydantic import BaseModel, ConfigDict, Field, model_validator

from access.idempotency import PARAMETER as IDEMPOTENCY_KEY
from access.keys import ApiRequest, allowed, callers, known_viewer
from access.viewer import Viewer
from explorer.status.reads import SiteStatus, site_status
from memories.history import rivals_of, superseded_by
from memories.marks import MARKS
from memories.models import Memory
from memories.queries import MemoryDetail, MemoryTitle, memory_details, memory_version
from memories.recalls import record_opening
from memories.records import MemoryChanges, MemoryId, Slug100, StrictMemoryRecord
from memories.refusals import MemoryNotFoundError
from memories.services import memory_create, memory_delete, memory_link, memory_restore, memory_update
from memories.supersession import ANY_VERSION
from memories.trust import TRUST, trust_of
from search.engines import index_health
from search.similar import near_duplicates
from web.errors import GUARDED, ApiError, errors
from web.outages import DatabaseUnavailableError, database_answers
from web.params import Params, Text, pairs_of
from web.validation import refuse
from web.version import VERSION

router = Router()
health_router = Router()


class ReasonRequest(Params):
    """Why something is changed."""

    reason: Text = Field("", max_length=1_000, description="Why, for the audit trail.")


def _header(name: str, description: str) -> dict[str, Any]:
    """A header as an OpenAPI document lists it."""
    return {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": description}


class ChangeRequest(ReasonRequest):
    """Why something is changed, and the version that it must have for that."""

    version: Text = Field(
        "",
        max_length=100,
        description="Change only this version, as a reply gives it; an `If-Match` header says the same.",
    )

    @classmethod
    def openapi_parameters(cls, without: Collection[str] = ()) -> list[dict[str, Any]]:
        return [*super().openapi_parameters(without), _header("If-Match", "The version or ETag that is to be changed.")]

    @classmethod
    def of(cls, request: HttpRequest) -> Self:
        """The parameters of a request, with the version that its headers name."""
        change = cls.from_pairs(pairs_of(request.GET))
        return change if change.version else change.replace(version=version_asked(request))


class RestoreRequest(ChangeRequest):
    """Why something is restored, and whether beside the memory that superseded it."""

    despite_successor: bool = Field(
        False, description="Restore a superseded memory although its successor is there: both are active then."
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """The request as the services take it."""
        return {
            "reason": self.reason,
            "if_version": self.version,
            "despite_successor": self.despite_successor,
        }


class DeletionRequest(ChangeRequest):
    """Why a memory is deleted."""

    reason: Text = Field("Deleted through the API.", max_length=1_000, description="Why, for the audit trail.")


class MemoryPatch(MemoryChanges):
    """Changes of a memory. Omitted fields stay unchanged; lists are replaced."""

    @model_validator(mode="before")
    @classmethod
    def _keeps_its_number(cls, data: Any) -> Any:
        # `id` of a record is the external id, but clients that send a GET reply back mean the number.
        if isinstance(data, dict) and "id" in data:
            raise refuse("id: cannot be changed; external_id is its id in the system it came from")
        return data


VERSION_OF_MEMORY = "Differs after every change; send it as `If-Match` to change exactly this version."


# --- replies -----------------------------------------------------------------------------------------------------


class CategoryPathReply(BaseModel):
    path: str = Field(description="The slug path, the value of filters.")
    names: list[str] = Field(description="The names along the path.")


class TermNameReply(BaseModel):
    value: str = Field(description="The value of filters.")
    name: str
    type: str


class MemoryName(BaseModel):
    """A reference to a memory."""

    id: int
    title: str
    memory_type: str
    state: str
    created_at: datetime


class LinkReply(BaseModel):
    """A link of the memory's record; `memory` is null for external and invisible targets."""

    rel: str
    target: str
    url: str
    memory: MemoryName | None


class BacklinkReply(BaseModel):
    """A link of another memory to this one."""

    rel: str = Field(description="As that memory states it: with `caused-by`, this one caused it.")
    memory: MemoryName


class MemoryRelationshipReply(BaseModel):
    """A relationship between two entities that the memory supports."""

    source: str
    type: str
    target: str
    fact: str
    confidence: float | None


class MemoryReply(BaseModel):
    """A memory with all of its data."""

    id: int
    url: str = Field(description="The page of the memory.")
    version: str = Field(description=VERSION_OF_MEMORY)
    project: str
    memory_type: str
    title: str
    summary: str
    content: str
    tags: list[str]
    categories: list[CategoryPathReply]
    concepts: list[TermNameReply]
    entities: list[TermNameReply]
    state: str
    state_reason: str
    pinned: bool
    pinned_for: str = Field(
        description="The agent for which alone it is pinned, which pinned it without the scope `curate`; else empty."
    )
    importance: float | None
    confidence: float | None
    authors: list[str]
    agent: str
    session: str = Field(description="The id of its session, as given by its agent.")
    source: str
    source_uri: str
    external_id: str
    trust: str = Field(description=TRUST)
    marks: list[str] = Field(description=MARKS)
    batch_id: int | None = Field(description="The import that brought it (`import=`); null if it was written here.")
    created_at: datetime
    happened_at: datetime | None
    updated_at: datetime
    valid_from: datetime | None
    valid_to: datetime | None
    superseded_by: MemoryName | None
    supersedes: list[MemoryName]
    properties: dict[str, list[str]] = Field(
        description="What its record says besides these fields, by name: own properties of a note, columns of a table."
    )
    links: list[LinkReply]
    backlinks: list[BacklinkReply]
    relationships: list[MemoryRelationshipReply]


class Written(BaseModel):
    """The result of a write. `memory` is null for keys without the scope `read`."""

    id: int
    project: str
    state: str
    version: str = Field(description=VERSION_OF_MEMORY)
    updated_at: datetime
    url: str
    memory: MemoryReply | None
    masked_secrets: list[str] = Field(description="What stands in place of secrets, such as `[AWS key id …7Q]`.")
    also_active: list[MemoryName] = Field(
        description="What superseded the same memories before and is still active: supersede it too if this does."
    )


class NearDuplicateReply(BaseModel):
    """A memory that says nearly the same as the stored one."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    title: str
    project: str
    state: str
    similarity: float
    by: Literal["text", "meaning", "words"] = Field(
        description="`text`: title and text are equal. `words`: the similarity is the share of common runs of words."
    )
    is_duplicate: bool = Field(description="Whether search results would be grouped for it.")


class Stored(Written):
    """The result of storing a memory, with those that say nearly the same."""

    near_duplicates: list[NearDuplicateReply] = Field(description="The most similar first; at most 3.")
    not_by_meaning: str = Field(
        description="Why they were looked for by words alone, or not at all; empty if by meaning as well."
    )


class RelationRequest(BaseModel):
    """A link from a memory to another one of its project."""

    model_config = ConfigDict(extra="forbid")

    target: MemoryId
    rel: Slug100 = Field("relates-to", description="`supersedes` and `superseded-by` also set the state.")


class IndexState(BaseModel):
    """State of the search index."""

    state: Literal["ready", "missing", "off"] = Field(
        description="`missing`: the database answers instead. `off`: SEARCH_ENGINE does not use one."
    )
    lag_seconds: float = Field(0, description="With a key: the age of the oldest pending change.")
    waiting: int = Field(0, description="With a key that sees every project: how many changes wait.")
    left_out: list[int] = Field(
        default_factory=list,
        description="With a key that sees every project: memories that no search finds, because a date of theirs is "
        "infinite, which only SQL by hand can make it. Give them a real one.",
    )


class ModelState(BaseModel):
    """An embedding model."""

    name: str
    state: Literal["serving", "building"] = Field(
        description="`serving`: searches use it. `building`: it replaces the other when all memories are embedded."
    )
    embedded: int = Field(description="Memories whose current text is embedded by it.")


class EmbeddingState(BaseModel):
    """State of search by meaning."""

    ready: bool = Field(description="Whether searches use meaning now.")
    reason: str = Field("", description="Why they do not.")
    models: list[ModelState] = Field(description="The model that serves, and one that is building.")


class Health(BaseModel):
    """Health of the site; with a key also its parts, and numbers of what is visible to the key."""

    status: str
    database: str = Field("", description="With a key: `ok`.")
    engine: str = Field("", description="With a key: the engine that would answer a search now.")
    index: IndexState | None = Field(None, description="With a key: the search index.")
    version: str = Field("", description="With a key: the version of Mnemoscope.")
    memories: int = Field(0, description="With a key: memories that it can see.")
    revision: int = Field(0, description="With a key that sees every project: it rises with every change.")
    pending_embeddings: int = Field(0, description="With a key: memories that are yet to be made findable by meaning.")
    pending_vocabulary: int = Field(
        0,
        description="With a key that sees every project: rows of the vocabulary that are yet to be made so.",
    )
    embeddings: EmbeddingState | None = Field(None, description="With a key: search by meaning.")


# --- operations --------------------------------------------------------------------------------------------------


@health_router.get(
    "/health", auth=None, response={200: Health, **errors(401, 422, 429)}, exclude_unset=True, operation_id="health"
)
def health(request: HttpRequest) -> Health:
    """Whether the site is well, for anybody; with a key also its version, its index and numbers of its content."""
    Params.from_pairs(pairs_of(request.GET))
    if not database_answers():
        raise DatabaseUnavailableError
    viewer = known_viewer(request)
    if viewer is None:
        return Health(status="ok")
    known = _site_fields(site_status(viewer))
    index = {name: value for name, value in asdict(index_health(viewer)).items() if value is not None}
    engine = "postgres" if index["state"] != "ready" else settings.SEARCH_ENGINE
    return Health(status="ok", database="ok", engine=engine, index=IndexState(**index), version=VERSION, **known)


def _site_fields(status: SiteStatus) -> dict[str, Any]:
    models = [ModelState(name=one.name, state=one.state, embedded=one.embedded) for one in status.models]
    meaning = EmbeddingState(ready=not status.not_ready, reason=status.not_ready, models=models)
    of_all_projects = {"revision": status.revision, "pending_vocabulary": status.pending_vocabulary}
    return {
        "memories": status.memories,
        "pending_embeddings": status.pending,
        "embeddings": meaning,
        **{name: value for name, value in of_all_projects.items() if value is not None},
    }


@router.post(
    "/memories",
    response={201: Stored, **errors(400, *GUARDED, 409, 411, 413, 415, 422)},
    auth=callers("write"),
    operation_id="memory_create",
    openapi_extra={"parameters": [IDEMPOTENCY_KEY]},
)
def create(request: ApiRequest, record: StrictMemoryRecord, response: HttpResponse) -> Status[Stored]:
    """Create a memory. Only `content` is required; new categories, concepts and entities are created."""
    viewer = request.viewer
    Params.from_pairs(pairs_of(request.GET))
    memory = memory_create(record=record, viewer=viewer)
    near = near_duplicates(memory, viewer)
    response["Location"] = reverse("api:memory", args=[memory.pk])
    return Status(
        201,
        Stored(
            **dict(answer_written(memory, viewer, request, response)),
            near_duplicates=[NearDuplicateReply.model_validate(one) for one in near.memories],
            not_by_meaning=near.reason,
        ),
    )


@router.get(
    "/memories/{int:memory_id}",
    response={200: MemoryReply, 304: None, **errors(*GUARDED, 404, 422)},
    operation_id="memory",
    url_name="memory",
    openapi_extra={"parameters": [_header("If-None-Match", "ETags of replies that the client still has.")]},
)
def read(request: ApiRequest, memory_id: int, response: HttpResponse) -> MemoryReply | Status[None]:
    """A memory with all of its data: content, relationships, links, provenance, validity."""
    viewer = allowed(request, "read")
    Params.from_pairs(pairs_of(request.GET))
    detail = memory_details(viewer, [storable_id(memory_id)]).get(memory_id)
    if detail is None:
        raise MemoryNotFoundError(memory_id)
    record_opening(viewer, [memory_id])
    reply = memory_reply(detail, request)
    response["ETag"] = etag = _etag(reply)
    if viewer.api_key_id is not None:
        # A program may keep the reply if it asks each time whether that is still right; a browser should not.
        response["Cache-Control"] = "private, no-cache"
    known = parse_etags(request.headers.get("If-None-Match", ""))
    return Status(304, None) if "*" in known or etag in {tag.removeprefix("W/") for tag in known} else reply


@router.patch(
    "/memories/{int:memory_id}",
    response={200: Written, **errors(400, *GUARDED, 404, 409, 411, 412, 413, 415, 422)},
    auth=callers("write"),
    operation_id="memory_update",
    openapi_extra={"parameters": ChangeRequest.openapi_parameters()},
)
def update(
    request: ApiRequest,
    memory_id: int,
    changes: MemoryPatch,
    response: HttpResponse,
) -> Written:
    """Change the fields in the body and leave the others. Lists are replaced."""
    viewer = request.viewer
    change = ChangeRequest.of(request)
    memory = memory_update(
        memory_id=storable_id(memory_id),
        changes=changes,
        viewer=viewer,
        reason=change.reason,
        if_version=change.version,
    )
    return answer_written(memory, viewer, request, response)


@router.delete(
    "/memories/{int:memory_id}",
    response={200: Written, **errors(*GUARDED, 404, 412, 422)},
    operation_id="memory_delete",
    openapi_extra={"parameters": DeletionRequest.openapi_parameters()},
)
def delete(request: ApiRequest, memory_id: int, response: HttpResponse) -> Written:
    """Delete a memory: its state becomes `deleted`, it is found only by that state, and it can be restored."""
    viewer = allowed(request, "write")
    change = DeletionRequest.of(request)
    memory = memory_delete(
        memory_id=storable_id(memory_id), viewer=viewer, reason=change.reason, if_version=change.version
    )
    return answer_written(memory, viewer, request, response)


@router.post(
    "/memories/{int:memory_id}/restore",
    response={200: Written, **errors(*GUARDED, 404, 409, 411, 412, 422)},
    operation_id="memory_restore",
    openapi_extra={"parameters": RestoreRequest.openapi_parameters()},
)
def restore(request: ApiRequest, memory_id: int, response: HttpResponse) -> Written:
    """Make a deleted or archived memory active again; a superseded one only with `despite_successor`."""
    viewer = allowed(request, "write")
    asked = RestoreRequest.of(request)
    memory = memory_restore(memory_id=storable_id(memory_id), viewer=viewer, **asked.arguments)
    return answer_written(memory, viewer, request, response)


@router.post(
    "/memories/{int:memory_id}/relations",
    response={200: Written, **errors(400, *GUARDED, 404, 411, 413, 415, 422)},
    auth=callers("write"),
    operation_id="memory_relate",
    openapi_extra={"parameters": [*ReasonRequest.openapi_parameters(), IDEMPOTENCY_KEY]},
)
def relate(request: ApiRequest, memory_id: int, relation: RelationRequest, response: HttpResponse) -> Written:
    """Link a memory to another one of its project. `supersedes` and `superseded-by` also set the state."""
    viewer = request.viewer
    reason = ReasonRequest.from_pairs(pairs_of(request.GET)).reason
    memory = memory_link(
        memory_id=storable_id(memory_id), target_id=relation.target, rel=relation.rel, viewer=viewer, reason=reason
    )
    return answer_written(memory, viewer, request, response)


def storable_id(memory_id: int) -> int:
    """Return the id if it fits into a bigint. Raises MemoryNotFound."""
    if memory_id >= 2**63:
        raise MemoryNotFoundError(memory_id)
    return memory_id


# --- from memory to reply ----------------------------------------------------------------------------------------


_MARK = "-"


def _etag(reply: MemoryReply) -> str:
    """The version of the memory, by which writers know it, and a hash of the reply, which may change without it.

    Links to the memory and names of its terms are in the reply, and are not the memory's own.
    """
    return f'"{reply.version}{_MARK}{hashlib.sha256(reply.model_dump_json().encode()).hexdigest()[:16]}"'


def version_asked(request: HttpRequest) -> str:
    """The version that `If-Match` names, as an ETag or alone; empty without it."""
    given = request.headers.get("If-Match", "").strip()
    tags = [tag for tag in given.split(",") if tag.strip()]
    if not tags or given == ANY_VERSION:
        return given
    if len(tags) > 1:
        raise ApiError(422, "invalid_request", "If-Match: must be one ETag", "Send the ETag or the version of a reply.")
    return given.removeprefix("W/").strip('"').partition(_MARK)[0] or "none"


def answer_written(memory: Memory, viewer: Viewer, request: HttpRequest, response: HttpResponse) -> Written:
    """The reply to a write, with the ETag of what is stored."""
    written = written_reply(memory, viewer, request)
    if written.memory is not None:
        response["ETag"] = _etag(written.memory)
    return written


def written_reply(memory: Memory, viewer: Viewer, request: HttpRequest) -> Written:
    detail = memory_details(viewer, [memory.pk]).get(memory.pk) if "read" in viewer.scopes else None
    replaces = detail is not None and detail.supersedes
    return Written(
        id=memory.pk,
        project=memory.project.slug,
        state=memory.state,
        version=memory_version(memory),
        updated_at=memory.updated_at,
        url=memory_address(memory.pk, request),
        memory=detail and memory_reply(detail, request),
        masked_secrets=list(memory.masked_secrets),
        also_active=list(map(_named, rivals_of(superseded_by(memory.pk, viewer), viewer))) if replaces else [],
    )


# Columns of a memory that its reply has under the same name.
_COLUMNS = [
    f.name
    for f in Memory._meta.concrete_fields
    if f.name in MemoryReply.model_fields and not f.is_relation and f.name != "trust"
]


def memory_reply(detail: MemoryDetail, request: HttpRequest) -> MemoryReply:
    memory = detail.memory
    return MemoryReply(
        **{name: getattr(memory, name) for name in _COLUMNS},
        batch_id=memory.batch_id,
        trust=trust_of(memory).name.lower(),
        marks=list(detail.marks),
        pinned_for=detail.pinned_for,
        url=memory_address(memory.pk, request),
        version=memory_version(memory),
        project=memory.project.slug,
        categories=[CategoryPathReply(path=node.path, names=list(node.names)) for node in detail.categories],
        concepts=[TermNameReply(value=term.value, name=term.label, type=term.type) for term in detail.concepts],
        entities=[TermNameReply(value=term.value, name=term.label, type=term.type) for term in detail.entities],
        session=memory.session.external_id if memory.session else "",
        superseded_by=detail.superseded_by and _named(detail.superseded_by),
        supersedes=[_named(title) for title in detail.supersedes],
        properties={name: list(values) for name, values in detail.properties.items()},
        links=[
            LinkReply(rel=x.rel, target=x.target, url=x.url, memory=x.memory and _named(x.memory)) for x in detail.links
        ],
        backlinks=[BacklinkReply(rel=rel, memory=_named(title)) for rel, title in detail.backlinks],
        relationships=[
            MemoryRelationshipReply(
                source=str(fact.source),
                type=fact.relationship_type,
                target=str(fact.target),
                fact=fact.fact,
                confidence=fact.confidence,
            )
            for fact in detail.relationships
        ],
    )


def _named(title: MemoryTitle) -> MemoryName:
    return MemoryName.model_validate(title, from_attributes=True)


def memory_address(memory_id: int, request: HttpRequest) -> str:
    return request.build_absolute_uri(reverse("explorer:memory", args=[memory_id]))
