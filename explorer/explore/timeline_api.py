"""The index of a search and the timeline around a memory as JSON: the first two of three layers.

Rows have only the fields needed to choose; `explorer/memory/bulk_api.py` has whole memories, the third layer.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal, Self

from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from search.query import ALIASES, ExtraParams, SearchQuery
from search.result import Hit, SearchWarning
from search.timeline import Timeline, TimelineRequest, timeline
from text.highlight import TITLE_LENGTH, cut_title
from web.errors import GUARDED, errors
from web.params import Pair, Text, pairs_of
from web.timing import Timings, timed, took_ms
from web.validation import Problem

INDEX_PAGE_SIZE = 20

router = Router()


class ViewRequest(ExtraParams):
    """How much a search shows of each memory."""

    view: Literal["full", "index"] = Field(
        "full",
        description="index: of each memory id, title, date, type and project alone, 50 to 100 tokens a hit; a page"
        f" then has {INDEX_PAGE_SIZE} by default.",
    )
    # A cursor in the order of titles holds a title.
    cursor: Text = Field(
        "", max_length=8_000, description="`next_cursor` of the page before, with the same parameters."
    )

    @classmethod
    def with_query(cls, pairs: Iterable[Pair]) -> tuple[Self, SearchQuery]:
        pairs = list(pairs)
        if ("view", "index") in pairs and not any(ALIASES.get(key, key) == "page_size" for key, _ in pairs):
            pairs.append(("page_size", str(INDEX_PAGE_SIZE)))
        return super().with_query(pairs)

    def conflicts_with(self, query: SearchQuery) -> Iterator[Problem]:
        if self.cursor and query.is_unified:
            yield Problem("cursor", "mode unified has none", "use page and page_size")


class IndexRow(BaseModel):
    """A memory in an index, with the fields needed to choose."""

    id: int
    title: str = Field(description=f"Cut to {TITLE_LENGTH} characters.")
    created_at: datetime
    memory_type: str
    project: str


class QueryWarning(BaseModel):
    """A message about a valid reply."""

    message: str
    parameter: str
    did_you_mean: list[str]


class TimelineReply(BaseModel):
    """A memory and its neighbours, oldest first. `anchor` is null if none was found."""

    before: list[IndexRow]
    anchor: IndexRow | None
    after: list[IndexRow]
    earlier: int = Field(description="Number of memories before the first.")
    later: int = Field(description="Number of memories after the last.")
    filters: dict[str, Any] = Field(description="The parsed query, by canonical name.")
    warnings: list[QueryWarning]
    took_ms: float


@router.get(
    "/timeline",
    response={200: TimelineReply, **errors(*GUARDED, 404, 422)},
    operation_id="timeline",
    openapi_extra={"parameters": TimelineRequest.openapi_with_query()},
)
@timed
def timeline_of(request: ApiRequest) -> tuple[Timings, TimelineReply]:
    """Memories before and after a memory, or the best hit of a query, among those that pass the filters."""
    viewer = allowed(request, "read")
    found = timeline(*TimelineRequest.with_query(pairs_of(request.GET)), viewer)
    return found.timings, timeline_reply(found)


def index_row(hit: Hit) -> IndexRow:
    title = cut_title(hit.title_text)
    return IndexRow(id=hit.id, title=title, created_at=hit.created_at, memory_type=hit.memory_type, project=hit.project)


def query_warning(warning: SearchWarning) -> QueryWarning:
    return QueryWarning(message=warning.message, parameter=warning.parameter, did_you_mean=list(warning.did_you_mean))


def timeline_reply(found: Timeline) -> TimelineReply:
    return TimelineReply(
        before=[index_row(hit) for hit in found.before],
        anchor=found.anchor and index_row(found.anchor),
        after=[index_row(hit) for hit in found.after],
        earlier=found.earlier,
        later=found.later,
        filters=found.query.applied(),
        warnings=[query_warning(warning) for warning in found.warnings],
        took_ms=took_ms(found.timings),
    )
