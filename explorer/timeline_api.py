"""The index of a search and the timeline around a memory as JSON: the first two of three layers.

Rows have only the fields needed to choose; `explorer/batch_api.py` has whole memories, the third layer.
"""

from datetime import datetime
from typing import Any

from django.http import HttpResponse
from ninja import Router
from pydantic import BaseModel, Field

from access.keys import ApiRequest, allowed
from search.query import Problem, QueryError, SearchQuery, pairs_of
from search.result import Hit, SearchWarning
from search.timeline import DEFAULT_DEPTH, MAX_DEPTH, OF_A_SEARCH, Timeline, TimelineRequest, timeline
from web.errors import GUARDED, errors
from web.timing import server_timing

TITLE_LENGTH = 120
VIEWS = ("full", "index")
VIEW_PARAMETER = {
    "name": "view",
    "in": "query",
    "required": False,
    "schema": {"type": "string", "enum": list(VIEWS), "default": "full"},
    "description": "index: of each memory id, title, date, type and project alone, 50 to 100 tokens a hit.",
}

router = Router()


class IndexRow(BaseModel):
    """A memory in an index: what is needed to choose."""

    id: int
    title: str = Field(description=f"Cut to {TITLE_LENGTH} characters.")
    created_at: datetime
    memory_type: str
    project: str


class QueryWarning(BaseModel):
    """Something to know about the answer, though it is right as it stands."""

    message: str
    parameter: str
    did_you_mean: list[str]


class TimelineReply(BaseModel):
    """A memory and its neighbours, the oldest first. Without one to stand at, `anchor` is null."""

    before: list[IndexRow]
    anchor: IndexRow | None
    after: list[IndexRow]
    earlier: int = Field(description="How many more there are before the first one.")
    later: int = Field(description="How many more there are after the last one.")
    filters: dict[str, Any] = Field(description="The query as it was understood, by canonical name.")
    warnings: list[QueryWarning]
    took_ms: float


_DEPTH: dict[str, Any] = {"type": "integer", "minimum": 0, "maximum": MAX_DEPTH, "default": DEFAULT_DEPTH}
_OWN: list[dict[str, Any]] = [
    {"name": name, "in": "query", "required": False, "schema": schema, "description": description}
    for name, schema, description in (
        ("anchor", {"type": "integer", "minimum": 1}, "The id of the memory to stand at; or give words in `q`."),
        ("depth_before", _DEPTH, "How many memories before it."),
        ("depth_after", _DEPTH, "How many memories after it."),
    )
]
_TIMELINE_PARAMETERS = [*_OWN, *(p for p in SearchQuery.openapi_parameters() if p["name"] not in OF_A_SEARCH)]


@router.get(
    "/timeline",
    response={200: TimelineReply, **errors(*GUARDED, 404, 422)},
    operation_id="timeline",
    openapi_extra={"parameters": _TIMELINE_PARAMETERS},
)
def timeline_of(request: ApiRequest, response: HttpResponse) -> TimelineReply:
    """What was remembered before and after a memory, or the best hit of a query, among what passes the filters."""
    viewer = allowed(request, "read")
    found = timeline(*TimelineRequest.read(pairs_of(request.GET)), viewer)
    response["Server-Timing"] = server_timing(found.timings)
    return timeline_reply(found)


def read_view(pairs: list[tuple[str, str]]) -> tuple[str, SearchQuery]:
    """How a search is to be shown, and the query. Raises QueryError, which names every parameter at fault."""
    views = {value.strip() or VIEWS[0] for key, value in pairs if key == "view"} or {VIEWS[0]}
    query, problems = SearchQuery.read((key, value) for key, value in pairs if key != "view")
    if len(views) > 1:
        problems = (Problem("view", "is given twice with different values", "give it once"), *problems)
    (view, *_) = views
    if view not in VIEWS:
        shown = ascii(view[:40])
        problems = (
            Problem("view", f"{shown} is not one of the choices", f"write one of {', '.join(VIEWS)}"),
            *problems,
        )
    if problems:
        raise QueryError(problems)
    return view, query


def index_row(hit: Hit) -> IndexRow:
    title = hit.title_text if len(hit.title_text) <= TITLE_LENGTH else hit.title_text[: TITLE_LENGTH - 1].rstrip() + "…"
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
        took_ms=found.took_ms,
    )
