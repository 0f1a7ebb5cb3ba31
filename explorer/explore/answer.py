"""The request of the page of results and its answer: memories alone, or memories with terms and facts."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from pydantic import Field

from access.viewer import Viewer
from explorer.http import (
    PageRequest,
    is_typing,
    opened_parts,
    pairs_by_age,
    read_with_query,
    request_pairs,
    wants_fragment,
)
from explorer.links import explore_url
from explorer.page_query import PageQuery, View
from search.query import SearchQuery
from search.result import HitDetail, SearchResult
from search.run import run
from search.typed import Understood, understand
from search.unified.rows import UnifiedHit
from search.unified.service import UnifiedResult, best_known, unified
from web.params import Params, Text
from web.validation import Problem

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


def panel_url(query: SearchQuery, sel: int | str) -> str:
    """The explore page with a memory in the panel."""
    querystring = "&".join(part for part in (query.querystring(), urlencode({"sel": sel}) if sel else "") if part)
    return f"{explore_url(SearchQuery())}?{querystring}" if querystring else explore_url(query)


@dataclass(frozen=True, slots=True)
class ExploreRequest:
    """A request for the page of results, or for a part of it."""

    query: PageQuery
    panel: PanelRequest
    problems: tuple[Problem, ...]
    understood: Understood[PageQuery]
    opened: frozenset[str]
    """The ids of the parts of the page that the reader has open."""
    is_fragment: bool
    is_typing: bool
    """Whether the reader is at it: the words are searched for, and the filters among them when they are done."""
    is_canonical: bool

    @classmethod
    def read(cls, request: PageRequest) -> "ExploreRequest":
        fragment, typing = wants_fragment(request), is_typing(request)
        pairs = pairs_by_age(request) if fragment else request_pairs(request)
        panel, query, problems = read_with_query(PanelRequest, pairs)
        understood = understand(query)
        if typing:
            query = query.with_(text=understood.query.text)
        else:
            query, problems = understood.query, (*problems, *understood.problems)
        return cls(
            query=query,
            panel=panel,
            problems=problems,
            understood=understood,
            opened=opened_parts(request),
            is_fragment=fragment,
            is_typing=typing,
            is_canonical=bool(problems) or fragment or pairs == [*query.parameters(), *panel.parameters()],
        )

    @property
    def address(self) -> str:
        return panel_url(self.query, self.panel.sel)

    @property
    def detail(self) -> HitDetail:
        """How much of each hit the page shows."""
        if self.query.view is View.MAP and not self.query.is_unified:
            return HitDetail.NONE
        return HitDetail.FULL if any(part.startswith("why-") for part in self.opened) else HitDetail.CARD


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The result of a query. Of a unified search, `result` is that of the memories alone, with all facets."""

    result: SearchResult
    unified: UnifiedResult | None = None

    @property
    def ids(self) -> list[int]:
        """The memories on this page of results, in order."""
        if self.unified is None:
            return [hit.id for hit in self.result.hits]
        return [hit.id for hit in self.unified.hits if hit.memory]

    @property
    def total(self) -> int:
        """The number of results of every kind."""
        return self.result.total if self.unified is None else self.unified.found

    @property
    def at_least(self) -> bool:
        """Whether the total is a lower bound."""
        return self.unified is None and self.result.at_least

    @property
    def pages(self) -> int:
        return self.result.pages if self.unified is None else self.unified.pages

    def best_known(self, viewer: Viewer) -> UnifiedHit | None:
        """The fact or term that the text fits best, for a search that shows memories alone."""
        return best_known(self.result, viewer)


def answer(query: PageQuery, viewer: Viewer, *, detail: HitDetail) -> PageAnswer:
    """The answer to a query with all that a page shows of it, memories alone unless it asks for all kinds."""
    if query.is_unified:
        found = unified(query, viewer, include_facets=True, with_corpus=True, lenient=True)
        return PageAnswer(found.answer, found)
    return PageAnswer(
        run(
            query,
            viewer,
            include_facets=True,
            with_corpus=True,
            split=query.split_by,
            detail=detail,
            drops_early=True,
            lenient=True,
        )
    )


def place_in_answer(query: PageQuery, viewer: Viewer) -> PageAnswer:
    """The answer with the ids of the results alone."""
    if query.is_unified:
        found = unified(query, viewer, lenient=True)
        return PageAnswer(found.answer, found)
    return PageAnswer(run(query, viewer, detail=HitDetail.INDEX, lenient=True))
