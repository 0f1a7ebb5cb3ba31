"""Tags, sessions and the viewer as JSON: the facts that a client needs before it searches."""

from datetime import datetime
from functools import partial
from typing import Any, Literal

from django.http import HttpRequest
from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowance_of, allowed
from categories.queries import aliases_of_tags
from explorer.explore.api import facet_listing
from explorer.explore.schemas import LOWER_BOUNDS
from explorer.explore.timeline_api import IndexRow, QueryWarning, query_warning
from explorer.listings import (
    Listed,
    PageRequest,
    SessionsRequest,
    list_sessions,
    whoami,
)
from explorer.operations import read_operation
from explorer.sessions.reads import SessionDetail, SessionRequest, session_detail
from search.facets import FACET
from search.listings import facet_page
from search.result import FacetListing
from text.highlight import cut_title
from web.params import Params, pairs_of
from web.timing import Timings, timed, took_ms
from web.version import API_VERSION, VERSION

router = Router()
_get = partial(read_operation, router)

_TAGS = [parameter for parameter in FacetListing.openapi_with_query() if parameter["name"] != "parent"]


class ListReply(BaseModel):
    """A page of a list. `total` is the number of rows on all pages."""

    total: int
    page: int
    page_size: int
    pages: int
    has_more: bool
    took_ms: float


class TagReply(BaseModel):
    """A tag with the number of memories that have it."""

    tag: str
    count: int
    aliases: list[str]


class TagsReply(ListReply):
    """A page of the tags of a query. `memories` is the number of memories that the query finds."""

    tags: list[TagReply]
    memories: int
    lower_bounds: list[str] = Field(description=LOWER_BOUNDS)
    unavailable: str = Field(description="Why the tags could not be counted; empty if they could.")
    warnings: list[QueryWarning]


class SessionReply(BaseModel):
    """A session, and its memories but for deleted ones."""

    id: int
    session: str = Field(description="Its id, as given by its agent.")
    project: str
    agent: str
    title: str
    started_at: datetime | None
    ended_at: datetime | None
    memories: int
    first: datetime | None = Field(description="When the first of its memories was created.")
    last: datetime | None = Field(description="When the last of its memories was created.")


class SessionsReply(ListReply):
    sessions: list[SessionReply]


class ReplacedMemory(BaseModel):
    """A memory that another superseded."""

    id: int
    title: str


class SessionMemoryReply(IndexRow):
    """A memory that a session stored."""

    state: str
    tags: list[str]
    replaced: list[ReplacedMemory] = Field(description="The memories that it superseded.")


class SessionDetailReply(ListReply):
    """A session and a page of its memories in the order in which they were created, without deleted ones."""

    id: int
    session: str = Field(description="Its id, as given by its agent.")
    project: str
    agent: str
    title: str
    started_at: datetime | None
    ended_at: datetime | None
    first: datetime | None = Field(description="When the first of its memories was created.")
    last: datetime | None = Field(description="When the last of its memories was created.")
    retired: int = Field(description="How many of its memories are archived or superseded now.")
    types: dict[str, int]
    memories: list[SessionMemoryReply]


class AllowanceReply(BaseModel):
    """The requests that a key may make, as the headers `X-RateLimit-…` have them."""

    limit: int = Field(description="Per minute.")
    remaining: int = Field(description="Now, after this one.")
    reset: int = Field(description="Seconds until all of them may be made again.")


class WhoamiReply(BaseModel):
    """The viewer: a key, or a person who is signed in."""

    kind: Literal["key", "session"]
    name: str = Field(description="Of the key, or of the person.")
    key: str = Field(description="The first characters of the key; empty for a session.")
    scopes: list[str]
    projects: list[str] | None = Field(description="Slugs of those that it may read; null for every project.")
    writable: list[str] | None = Field(description="Slugs of those that it may store in; null for every project.")
    expires_at: datetime | None
    allowance: AllowanceReply | None = Field(description="Null for a session, which has no limit.")
    version: str
    api_version: str


@_get("/tags", "tags", TagsReply, parameters=_TAGS)
@timed
def tags(request: ApiRequest) -> tuple[Timings, TagsReply]:
    """The tags of all memories, or of those that a query finds, with counts and aliases."""
    viewer = allowed(request, "read")
    listing, query = facet_listing(request, FACET["tag"])
    page = facet_page(query, "tag", listing, viewer)
    aliases = aliases_of_tags([value.value for value in page.facet.values], viewer.project_ids)
    return page.timings, TagsReply(
        tags=[
            TagReply(tag=value.value, count=value.count, aliases=aliases.get(value.value, []))
            for value in page.facet.values
        ],
        memories=page.total,
        lower_bounds=list(page.lower_bounds),
        unavailable=page.facet.unavailable,
        warnings=[query_warning(warning) for warning in page.warnings],
        total=page.facet.distinct,
        page=listing.page,
        page_size=listing.page_size,
        pages=page.pages,
        has_more=page.has_more,
        took_ms=took_ms(page.timings),
    )


@_get("/sessions", "sessions", SessionsReply, parameters=SessionsRequest.openapi_parameters())
@timed
def sessions(request: ApiRequest) -> tuple[Timings, SessionsReply]:
    """The sessions that memories come from; those that began last, or have the latest first memory, come first."""
    viewer = allowed(request, "read")
    asked = SessionsRequest.from_pairs(pairs_of(request.GET))
    found = list_sessions(asked, viewer)
    rows = [
        SessionReply(
            **{name: getattr(row.session, name) for name in ("agent", "title", "started_at", "ended_at")},
            id=row.session.pk,
            session=row.session.external_id,
            project=row.session.project.slug,
            memories=row.memories,
            first=row.first,
            last=row.last,
        )
        for row in found.rows
    ]
    return found.timings, SessionsReply(sessions=rows, **list_fields(found, asked))


@_get("/sessions/{session_id}", "session", SessionDetailReply, 404, parameters=SessionRequest.openapi_parameters())
@timed
def session(request: ApiRequest, session_id: int) -> tuple[Timings, SessionDetailReply]:
    """A session with its memories in order, and those that they replaced."""
    viewer = allowed(request, "read")
    asked = SessionRequest.from_pairs(pairs_of(request.GET))
    found = session_detail(session_id, asked, viewer)
    own = found.session
    return found.timings, SessionDetailReply(
        **{name: getattr(own, name) for name in ("id", "agent", "title", "started_at", "ended_at")},
        **{name: getattr(found, name) for name in ("first", "last", "retired")},
        session=own.external_id,
        project=own.project.slug,
        types=dict(found.types),
        memories=[
            SessionMemoryReply(
                **{name: getattr(one.memory, name) for name in ("id", "created_at", "memory_type", "state", "tags")},
                title=cut_title(one.memory.title),
                project=own.project.slug,
                replaced=[ReplacedMemory(id=old.id, title=old.title) for old in one.replaced],
            )
            for one in found.memories
        ],
        **list_fields(found, asked),
    )


@_get("/whoami", "whoami", WhoamiReply)
def who(request: ApiRequest) -> WhoamiReply:
    """The name, the rights and the allowance of the key."""
    Params.from_pairs(pairs_of(request.GET))
    found = whoami(request.viewer)
    allowance = allowance_of(request)
    return WhoamiReply(
        kind="session" if found.key is None else "key",
        name=_person(request) if found.key is None else found.key.name,
        key="" if found.key is None else found.key.prefix,
        scopes=sorted(request.viewer.scopes),
        projects=None if found.projects is None else list(found.projects),
        writable=None if found.writable is None else list(found.writable),
        expires_at=found.key and found.key.expires_at,
        allowance=allowance and AllowanceReply.model_validate(allowance, from_attributes=True),
        version=VERSION,
        api_version=API_VERSION,
    )


def _person(request: HttpRequest) -> str:
    return request.user.get_username()


def list_fields(found: Listed[Any] | SessionDetail, asked: PageRequest) -> dict[str, Any]:
    pages = asked.pages(found.total)
    return {
        "total": found.total,
        "page": asked.page,
        "page_size": asked.page_size,
        "pages": pages,
        "has_more": asked.page < pages,
        "took_ms": took_ms(found.timings),
    }
