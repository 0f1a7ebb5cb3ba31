"""The panel beside the results: the memory that `sel` names, its place in the result, and its neighbours there."""

from collections.abc import Sequence
from dataclasses import dataclass

from access.viewer import Viewer
from explorer.explore.answer import FIRST, LAST, PageAnswer, panel_url
from explorer.history.page import HistoryPage, read_history
from explorer.memory.edit import fact_controls
from explorer.memory.page import MemoryPage
from memories.queries import memory_details
from memories.recalls import opened
from search.query import SearchQuery
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
    opened(viewer, [memory_id])
    page = MemoryPage(detail, query, viewer.timezone, fact_controls(detail, viewer))
    history = read_history(detail.memory, viewer, _EVENTS)
    return MemoryPanel(page, history, query, found.ids, found.total, counts=not query.is_unified)
