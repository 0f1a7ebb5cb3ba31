"""The panel beside the results: the memory that `sel` names, its place in the result, and its neighbours there."""

from collections.abc import Sequence
from dataclasses import dataclass

from access.viewer import Viewer
from explorer.explore.answer import FIRST, LAST, PageAnswer, panel_url
from explorer.history.page import HistoryContext
from explorer.links import explore_url, memory_url
from explorer.memory.page import MemoryContext, build_memory
from explorer.memory.reads import fact_controls, read_history
from memories.queries import memory_details
from memories.recalls import opened
from search.query import SearchQuery
from text.formatting import number

_EVENTS = 5


@dataclass(frozen=True, slots=True)
class PanelContext:
    """A memory in the panel. Without a place it is not on this page of the result."""

    memory: MemoryContext
    history: HistoryContext
    place: str
    previous_url: str
    next_url: str
    close_url: str
    page_url: str
    same_page: tuple[bool, bool]
    """Whether the neighbours before and after are on the same page of the result."""

    @property
    def previous_is_here(self) -> bool:
        return self.same_page[0]

    @property
    def next_is_here(self) -> bool:
        return self.same_page[1]


def build_panel(
    query: SearchQuery, ids: Sequence[int], total: int, memory: MemoryContext, history: HistoryContext, *, counts: bool
) -> PanelContext:
    """The context of the panel. `ids` are the memories of the page; `counts`: whether they are all results."""
    at = ids.index(memory.id) if memory.id in ids else None
    before = after = ""
    if at is not None:
        before = panel_url(query, ids[at - 1]) if at else _other_page(query, query.page - 1, LAST)
        is_last = query.begin + len(ids) >= total
        after = panel_url(query, ids[at + 1]) if at + 1 < len(ids) else ""
        after = after or ("" if is_last else _other_page(query, query.page + 1, FIRST))
    return PanelContext(
        memory=memory,
        history=history,
        place="" if at is None or not counts else f"{number(query.begin + at + 1)} of {number(total)}",
        previous_url=before,
        next_url=after,
        close_url=explore_url(query),
        page_url=memory_url(memory.id, query),
        same_page=(bool(at), at is not None and at + 1 < len(ids)),
    )


def _other_page(query: SearchQuery, page: int, end: str) -> str:
    return panel_url(query.model_copy(update={"page": page}), end) if page > 0 else ""


def open_panel(query: SearchQuery, memory_id: int, found: PageAnswer, viewer: Viewer) -> PanelContext | None:
    """The panel of a memory, which is recorded as opened; None if the viewer may not open it."""
    detail = memory_details(viewer, [memory_id]).get(memory_id)
    if detail is None:
        return None
    opened(viewer, [memory_id])
    memory = build_memory(detail, query, viewer.timezone, fact_controls(detail, viewer))
    history = read_history(detail, viewer, _EVENTS)
    return build_panel(query, found.ids, found.total, memory, history, counts=not query.is_unified)
