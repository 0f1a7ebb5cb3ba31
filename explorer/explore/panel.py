"""The panel beside the results: the memory that `sel` names, its place in the result, and its neighbours there."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from pydantic import Field

from explorer.history.page import HistoryContext
from explorer.links import explore_url, memory_url
from explorer.memory.page import MemoryContext
from search.query import SearchQuery
from text.formatting import number
from web.params import Params, Text

FIRST, LAST = "first", "last"


class PanelRequest(Params):
    """The memory in the panel."""

    sel: Text = Field("", max_length=20, description="Its number; `first` or `last` for that of the page.")

    @property
    def number(self) -> int | None:
        return int(self.sel) if self.sel.isascii() and self.sel.isdecimal() and len(self.sel) < 19 else None

    def chosen(self, ids: Sequence[int]) -> int | None:
        """The number of the memory, given those of the page."""
        ends = {FIRST: ids[:1], LAST: ids[-1:]}.get(self.sel)
        return self.number if ends is None else next(iter(ends), None)


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


def panel_url(query: SearchQuery, sel: int | str) -> str:
    """The explore page with a memory in the panel."""
    querystring = "&".join(part for part in (query.querystring(), urlencode({"sel": sel}) if sel else "") if part)
    return f"{explore_url(SearchQuery())}?{querystring}" if querystring else explore_url(query)


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
