"""The page of results, with the panel of a memory beside them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_safe

from access.viewer import Viewer
from explorer.explore.answer import FIRST, LAST, ExploreRequest, PageAnswer, answer, panel_url, place_in_answer
from explorer.explore.page import ExplorerContext, Notice, problem_notices, typed_notices
from explorer.history.page import HistoryPage, read_history
from explorer.http import (
    PageRequest,
    page_response,
    page_viewer,
    private,
    read_arrangement,
    read_query,
    request_pairs,
)
from explorer.links import build_take_out, explore_url
from explorer.map.views import map_of
from explorer.memory.edit import fact_controls
from explorer.memory.page import MemoryPage
from explorer.page_query import PageQuery, View
from explorer.views.page import ViewBar, build_bar
from memories.queries import memory_details
from memories.recalls import record_list, record_opening
from search.plain_words import offer_filters
from search.query import SearchQuery
from search.saved_views import ViewNotFoundError, openable_view
from text.formatting import number

_EVENTS = 5


@dataclass(frozen=True)
class MemoryPanel:
    """A memory in the panel. `ids` are the memories of the page of results, `counts`: whether they are all results."""

    page: MemoryPage
    history: HistoryPage
    query: SearchQuery
    ids: Sequence[int]
    total: int
    counts: bool

    @property
    def memory_id(self) -> int:
        return self.page.detail.memory.pk

    @property
    def at(self) -> int | None:
        """Its index in the page of results."""
        return self.ids.index(self.memory_id) if self.memory_id in self.ids else None

    @property
    def place(self) -> str:
        if self.at is None or not self.counts:
            return ""
        return f"{number(self.query.begin + self.at + 1)} of {number(self.total)}"

    @property
    def previous(self) -> tuple[str, bool]:
        """The address of the memory before, and whether it is on the same page of the result."""
        if not self.at:
            return _other_page(self.query, self.query.page - 1, LAST) if self.at == 0 else "", False
        return panel_url(self.query, self.ids[self.at - 1]), True

    @property
    def following(self) -> tuple[str, bool]:
        """The address of the next memory, and whether it is on the same page of the result."""
        if self.at is None:
            return "", False
        if self.at + 1 < len(self.ids):
            return panel_url(self.query, self.ids[self.at + 1]), True
        is_last = self.query.begin + len(self.ids) >= self.total
        return "" if is_last else _other_page(self.query, self.query.page + 1, FIRST), False


def _other_page(query: SearchQuery, page: int, end: str) -> str:
    return panel_url(query.model_copy(update={"page": page}), end) if page > 0 else ""


def open_panel(query: SearchQuery, memory_id: int, found: PageAnswer, viewer: Viewer) -> MemoryPanel | None:
    """The panel of a memory, which is recorded as opened; None if the viewer may not open it."""
    detail = memory_details(viewer, [memory_id]).get(memory_id)
    if detail is None:
        return None
    record_opening(viewer, [memory_id])
    page = MemoryPage.read(detail, query, viewer, fact_controls(detail, viewer))
    history = read_history(detail.memory, viewer, _EVENTS)
    return MemoryPanel(page, history, query, found.ids, found.total, counts=not query.is_unified)


@require_safe
@login_required
def explore(request: PageRequest) -> HttpResponse:
    asked, viewer, shown_at = ExploreRequest.read(request), page_viewer(request), datetime.now(UTC)
    if not asked.is_canonical:
        return private(HttpResponseRedirect(asked.address))
    if asked.is_fragment and request.htmx.target == "panel":
        return _panel(request, asked, viewer)
    found = answer(asked.query, viewer, detail=asked.detail)
    record_list(viewer, found.ids, asked.query.querystring())
    panel, missing = None, list[Notice]()
    if asked.panel.sel and not asked.is_fragment:
        chosen = asked.panel.chosen(found.ids)
        if chosen is not None and asked.panel.number is None:
            return private(HttpResponseRedirect(panel_url(asked.query, chosen)))
        panel = open_panel(asked.query, chosen, found, viewer) if chosen else None
        missing += [] if panel else [Notice(f"There is no memory {asked.panel.sel} that you can see.")]
    bar = _bar(asked.query, found, viewer, missing)
    is_map = asked.query.view is View.MAP and not asked.query.is_unified
    context = ExplorerContext(
        asked.query,
        found,
        (*problem_notices(asked.problems), *missing),
        notes=typed_notices(asked.understood),
        offers=offer_filters(asked.query, viewer),
        typed=asked.understood.typed if asked.is_typing else (),
        best=None if is_map or asked.is_typing else found.best_known(viewer),
        may_write="write" in viewer.scopes,
        reader_zone=viewer.timezone,
        opened=asked.opened,
        arrangement=read_arrangement(request),
    )
    site = request.build_absolute_uri("/").rstrip("/")
    return page_response(
        request,
        "explorer/map.html" if is_map else "explorer/explore.html",
        {
            "explorer": context,
            "map": map_of(asked.query, found.result, viewer, asked.opened) if is_map else None,
            "panel": panel,
            "bar": bar,
            "shown_at": shown_at.isoformat(),
            "may_save": not asked.problems,
            "stored_query": asked.query.stored.querystring(),
            "take_out": None if asked.problems else build_take_out(asked.query, found.result, site),
        },
        partial="explorer",
        timings=found.result.timings,
        status=422 if asked.problems and asked.is_fragment else 200,
        address=asked.address,
    )


def _bar(query: PageQuery, found: PageAnswer, viewer: Viewer, missing: list[Notice]) -> ViewBar | None:
    """The bar of the saved view that the reader is in; a notice among the `missing` ones if it is not there."""
    if query.saved_view:
        try:
            return build_bar(query, openable_view(viewer, query.saved_view), found.result.labels)
        except ViewNotFoundError as error:
            missing.append(Notice(str(error)))
    return None


def _panel(request: PageRequest, asked: ExploreRequest, viewer: Viewer) -> HttpResponse:
    """The panel alone; empty without a memory."""
    number, panel = asked.panel.number, None
    if number is not None:
        panel = open_panel(asked.query, number, place_in_answer(asked.query, viewer), viewer)
        if panel is None:
            raise Http404(f"There is no memory {number} that you can see.")
    context, page = {"panel": panel}, "explorer/explore.html"
    return page_response(request, page, context, partial="panel", timings={}, address=asked.address)


@require_safe
@login_required
def calendar(request: PageRequest) -> HttpResponse:
    """A saved address of the calendar that was a page: the days of its year are among the results."""
    pairs = request_pairs(request)
    query, _ = read_query([pair for pair in pairs if pair[0] != "year"])
    year = dict(pairs).get("year", "")
    if re.fullmatch(r"\d{1,4}", year) and int(year):
        query = query.between(f"{int(year):04}-01-01", f"{int(year):04}-12-31")
    return private(HttpResponseRedirect(explore_url(query)))
