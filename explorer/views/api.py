"""Saved views as JSON: what the page of views lists, with the parameters that search for the same."""

from datetime import datetime
from functools import partial
from typing import Any

from django.http import HttpRequest
from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from explorer.links import explore_url
from explorer.listings import PageRequest
from explorer.listings_api import ListReply
from explorer.operations import read_operation
from explorer.views.page import view_url
from search.saved_views import OpenableView, ViewCount, count_views, openable_view, openable_views
from web.params import pairs_of
from web.timing import Stopwatch, Timings, timed, took_ms

router = Router()
_get = partial(read_operation, router)


class ViewReply(BaseModel):
    """A saved view. The numbers are null if they could not be counted in time."""

    id: int
    name: str
    slug: str
    description: str
    owner: str
    visibility: str = Field(description="`private`, or `team`: everybody who may see its projects.")
    query: str = Field(description="The query string of the same search: GET /api/search?…")
    filters: dict[str, Any] = Field(description="The same as the arguments of a search.")
    total: int | None = Field(description="The memories that it finds now.")
    lower_bound: bool = Field(description="Whether the numbers may be larger, as in a search.")
    new: int | None = Field(description="Stored or changed since you opened it last; null if you never have.")
    pinned: bool
    default: bool = Field(description="Whether your Explore page begins with it.")
    opened_at: datetime | None
    updated_at: datetime
    url: str = Field(description="Its page, to share.")


class ViewsReply(ListReply):
    views: list[ViewReply]


@_get("/views", "views", ViewsReply, parameters=PageRequest.openapi_parameters())
@timed
def views(request: ApiRequest) -> tuple[Timings, ViewsReply]:
    """The saved views that you may open, pinned ones first, each with the number of memories that it finds."""
    viewer = allowed(request, "read")
    asked = PageRequest.from_pairs(pairs_of(request.GET))
    watch = Stopwatch()
    with watch.stage("views"):
        found = openable_views(viewer)
        page = found[asked.slice]
        counts = count_views(page, viewer)
    return watch.timings, ViewsReply(
        total=len(found),
        page=asked.page,
        page_size=asked.page_size,
        pages=asked.pages(len(found)),
        has_more=asked.page < asked.pages(len(found)),
        took_ms=took_ms(watch.timings),
        views=[_reply(one, counts.get(one.id), request) for one in page],
    )


@_get("/views/{int:view_id}", "view", ViewReply, 404)
def view(request: ApiRequest, view_id: int) -> ViewReply:
    """A saved view. Reading it does not count as opening it."""
    viewer = allowed(request, "read")
    one = openable_view(viewer, view_id)
    return _reply(one, count_views([one], viewer).get(one.id), request)


def _reply(one: OpenableView, count: ViewCount | None, request: HttpRequest) -> ViewReply:
    return ViewReply(
        id=one.id,
        name=one.view.name,
        slug=one.view.slug,
        description=one.view.description,
        owner=one.view.owner.get_username(),
        visibility=one.view.visibility,
        query=explore_url(one.query).partition("?")[2],
        filters=one.query.applied(),
        total=count.total if count else None,
        lower_bound=bool(count and count.at_least),
        new=count.new if count else None,
        pinned=one.pinned,
        default=one.is_default,
        opened_at=one.opened_at,
        updated_at=one.view.updated_at,
        url=request.build_absolute_uri(view_url(one.id)),
    )
