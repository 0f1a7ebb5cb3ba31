"""The edge of every page: who is looking, what was asked, whether the page or its fragment is wanted.

The only place below a view that reads a request.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.utils.timezone import get_default_timezone
from django_htmx.middleware import HtmxDetails

from access.viewer import Viewer, viewer_of_user
from search.query import ALIASES, SearchQuery
from text.dates import zone_names
from text.formatting import number
from web.params import Pair, Params, pairs_of
from web.timing import Stopwatch, server_timing
from web.validation import Problem

TIMEZONE_COOKIE = "timezone"

Extra = TypeVar("Extra", bound=Params)


class PageRequest(HttpRequest):
    """A request that has been through the middleware of htmx."""

    htmx: HtmxDetails


def page_viewer(request: HttpRequest) -> Viewer:
    """The visitor, in the time zone that their browser named in a cookie."""
    name = request.COOKIES.get(TIMEZONE_COOKIE, "")
    zone = ZoneInfo(name) if name in zone_names() else get_default_timezone()
    return viewer_of_user(request.user, timezone=zone)


def menu(request: HttpRequest) -> dict[str, Callable[[], bool]]:
    """For the menu of every page: whether it leads to curation. Asked for once, and only where a menu is drawn."""
    return {"may_curate": cache(lambda: "curate" in viewer_of_user(request.user).scopes)}


def request_pairs(request: HttpRequest) -> list[Pair]:
    return pairs_of(request.GET)


def read_query(pairs: list[Pair]) -> tuple[SearchQuery, tuple[Problem, ...]]:
    """The search query of a page, and the parameters that are invalid."""
    query, problems = SearchQuery.read(pairs)
    if query.min_similarity is not None and not query.mode.looks_by_meaning:
        # The form still holds it when another mode is chosen, and there it says nothing.
        query, problems = SearchQuery.read((k, v) for k, v in pairs if ALIASES.get(k, k) != "min_similarity")
    if query.date_from or query.date_to:
        # The form still holds a span when dates are typed over it, and explicit dates win.
        query = query.model_copy(update={"since": ""})
    # Pages always count the facets: it is no part of what was asked.
    return query.model_copy(update={"include_facets": False}), problems


def read_with_query(extra: type[Extra], pairs: list[Pair]) -> tuple[Extra, SearchQuery, tuple[Problem, ...]]:
    """Read the parameters of a page that also shows a search query, and the query."""
    own, rest = extra.split(pairs)
    params, misread = extra.read(own)
    query, problems = read_query(rest)
    return params, query, (*misread, *problems)


def wants_fragment(request: PageRequest) -> bool:
    """Whether htmx swaps a part of the page. It also flags links it took over and Back, which need all of it."""
    htmx = request.htmx
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def is_typing(request: PageRequest) -> bool:
    """Whether the search box asks between keystrokes: Back must step through decisions, not through letters."""
    return request.headers.get("X-Typing") == "1"


def page_response(
    request: PageRequest,
    template: str,
    context: Mapping[str, object],
    *,
    partial: str,
    timings: Mapping[str, float],
    status: int = 200,
    address: str = "",
) -> HttpResponse:
    """The page, or the partial of it that htmx asked for. `address` is where the address bar is to point."""
    watch = Stopwatch()
    fragment = wants_fragment(request)
    with watch.stage("render"):
        name = f"{template}#{partial}" if fragment else template
        response = render(request, name, {**context, "is_fragment": fragment}, status=status)
    if fragment and address:
        here = request.htmx.current_url_abs_path
        replaces = is_typing(request) or here == address
        response["HX-Replace-Url" if replaces else "HX-Push-Url"] = address
    response["Server-Timing"] = server_timing({**timings, **watch.timings})
    return private(response)


def private(response: HttpResponse) -> HttpResponse:
    """An answer for one visitor, to be asked for again each time, and another one for htmx than for a browser."""
    response["Cache-Control"] = "private, no-cache"
    patch_vary_headers(response, ["HX-Request", "Cookie"])
    return response


_AROUND = 2


@dataclass(frozen=True, slots=True)
class Page:
    """A place in the row of pages; one without a URL is a gap."""

    label: str
    url: str = ""
    current: bool = False


@dataclass(frozen=True, slots=True)
class PageSize:
    label: str
    url: str
    current: bool


@dataclass(frozen=True, slots=True)
class Pager:
    pages: tuple[Page, ...]
    previous_url: str
    next_url: str
    span: str
    sizes: tuple[PageSize, ...] = ()


def build_pager(
    page: int,
    pages: int,
    page_size: int,
    total: int,
    at: Callable[[int], str],
    sizes: tuple[PageSize, ...] = (),
    *,
    at_least: bool = False,
) -> Pager:
    """The first page, the last, those around the one shown, and gaps between. With `at_least` there may be more than
    the total.
    """
    near = {1, pages, *range(page - _AROUND, page + _AROUND + 1)} & set(range(1, pages + 1))
    row: list[Page] = []
    before = 0
    for place in sorted(near):
        if place == before + 2:
            # A gap of one page is that page.
            row.append(Page(f"{before + 1:,}", at(before + 1)))
        elif place > before + 1:
            row.append(Page("…"))
        row.append(Page(f"{place:,}", at(place), place == page))
        before = place
    first, last = (page - 1) * page_size + 1, min(total, page * page_size)
    return Pager(
        pages=tuple(row),
        previous_url=at(page - 1) if 1 < page <= pages else "",
        next_url=at(page + 1) if page < pages else "",
        span=f"{first:,}–{last:,} of {number(total, at_least=at_least)}" if first <= last else "",
        sizes=sizes,
    )
