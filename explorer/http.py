"""Requests and responses of pages: the viewer, the query, and whether htmx requests a fragment.

Besides views, only this module reads requests.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar, cast
from urllib.parse import parse_qsl, urlsplit
from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.cache import patch_vary_headers
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.timezone import get_default_timezone
from django_htmx.middleware import HtmxDetails

from access.viewer import Viewer, viewer_of_user
from categories.models import ConceptLink, EntityLink
from explorer.page_query import Arrangement, PageQuery
from memories.queries import visible_to
from search.query import ALIASES
from search.saved_views import default_view_id, openable_views
from text.formatting import number, zone_names
from web import command_line
from web.cache import RevisionCache
from web.params import Pair, Params, pairs_of
from web.templates import render_block
from web.timing import Stopwatch, server_timing
from web.validation import Problem

TIMEZONE_COOKIE = "timezone"
_FACETS_COOKIE = "facets"
_TRACKING = re.compile(r"utm_\w+|fbclid|gclid|msclkid|mc_[ce]id")
# The menu may be this late to show a page that has got its first content.
_analyses = RevisionCache[frozenset[int] | None, frozenset[str]](1_000, seconds=60)
_YEAR = 365 * 24 * 60 * 60

Extra = TypeVar("Extra", bound=Params)


class PageRequest(HttpRequest):
    """A request with the attribute of the htmx middleware, and its viewer once that was read."""

    htmx: HtmxDetails
    viewer_of_page: Viewer


def page_viewer(request: HttpRequest) -> Viewer:
    """The signed-in user, in the time zone from the browser's cookie. Read once per request."""
    known = cast("PageRequest", request)
    if hasattr(request, "viewer_of_page") and known.viewer_of_page.user_id == request.user.pk:
        return known.viewer_of_page
    name = request.COOKIES.get(TIMEZONE_COOKIE, "")
    zone = ZoneInfo(name) if name in zone_names() else get_default_timezone()
    known.viewer_of_page = viewer_of_user(request.user, timezone=zone)
    return known.viewer_of_page


def read_arrangement(request: HttpRequest) -> Arrangement:
    """How the reader arranges the facets, from the browser's cookie."""
    return Arrangement.read(request.COOKIES.get(_FACETS_COOKIE, ""))


def keep_arrangement(request: HttpRequest, response: HttpResponse, arrangement: Arrangement) -> None:
    """Store it in the browser; the usual one needs no cookie."""
    if stored := arrangement.stored:
        response.set_cookie(
            _FACETS_COOKIE, stored, max_age=_YEAR, secure=request.is_secure(), httponly=True, samesite="Lax"
        )
    else:
        response.delete_cookie(_FACETS_COOKIE, samesite="Lax")


def menu(request: HttpRequest) -> dict[str, Callable[[], object] | str]:
    """Context processor for the menu, and the program that runs commands. Pages without a menu query nothing."""
    viewer = cache(lambda: page_viewer(request))
    return {
        "may_curate": lambda: "curate" in viewer().scopes,
        "may_write": lambda: "write" in viewer().scopes,
        "may_administer": lambda: "admin" in viewer().scopes,
        "default_view": cache(lambda: _default_view(viewer())),
        "analyses": cache(lambda: _analyses.get_or_make(viewer().project_ids, lambda: _find_analyses(viewer()))),
        "command": command_line.command("").strip(),
    }


def _default_view(viewer: Viewer) -> int | None:
    """The saved view that a person begins with; None without one, or if they may no longer open it."""
    view_id = default_view_id(viewer.user_id) if viewer.user_id else None
    return view_id if view_id is not None and openable_views(viewer, only=view_id) else None


def _find_analyses(viewer: Viewer) -> frozenset[str]:
    """The pages of analyses that have something to show."""
    visible = visible_to(viewer)
    found = {"compare"} if visible.exists() else set()
    if any(links.objects.filter(memory__in=visible).exists() for links in (EntityLink, ConceptLink)):
        found.add("graph")
    if visible.filter(session__isnull=False).exists():
        found.add("sessions")
    return frozenset(found)


def request_pairs(request: HttpRequest) -> list[Pair]:
    """The parameters of a page, without those that mail and other sites add to links to follow their readers."""
    return [(key, value) for key, value in pairs_of(request.GET) if not _TRACKING.fullmatch(key)]


def pairs_by_age(request: HttpRequest) -> list[Pair]:
    """The pairs of a request, those of the address that htmx sent it from first: a facet that takes no more choices
    keeps them, and leaves out what was chosen last.
    """
    shown = set(parse_qsl(urlsplit(request.headers.get("HX-Current-URL", "")).query))
    return sorted(request_pairs(request), key=lambda pair: pair not in shown)


def read_query(pairs: list[Pair]) -> tuple[PageQuery, tuple[Problem, ...]]:
    """The query of a page, and the parameters that are invalid."""
    query, problems = PageQuery.read(pairs)
    # After a change of mode the form still sends parameters that have no meaning in the new mode.
    meaningless = {"sort"} if query.is_unified else set()
    if not query.mode.looks_by_meaning:
        meaningless.add("min_similarity")
    if any(ALIASES.get(key, key) in meaningless for key, _ in pairs):
        query, problems = PageQuery.read((k, v) for k, v in pairs if ALIASES.get(k, k) not in meaningless)
    # Pages always count facets, so the switch must not appear in their links.
    return query.model_copy(update={"include_facets": False}), problems


def read_with_query(extra: type[Extra], pairs: list[Pair]) -> tuple[Extra, PageQuery, tuple[Problem, ...]]:
    """Read the parameters of a page that also shows a search query, and the query."""
    own, rest = extra.split(pairs)
    params, misread = extra.read(own)
    query, problems = read_query(rest)
    return params, query, (*misread, *problems)


def return_url(request: HttpRequest) -> str:
    """The page of this site to return to after a change, from the parameter or the form's field `next`; or empty."""
    url = request.GET.get("next", "") or request.POST.get("next", "")
    is_here = url_has_allowed_host_and_scheme(url, allowed_hosts=None, require_https=request.is_secure())
    return url if is_here else ""


def comes_from_work(request: HttpRequest, memory_id: int) -> bool:
    """Whether somebody opens a memory while tidying: from the pages of curation, or after changing it."""
    before = urlsplit(request.headers.get("Referer", "")).path
    tidying = (reverse("curation:log"), reverse("suggestions:review"), reverse("admin:index"))
    return before.startswith((*tidying, reverse("explorer:memory", args=[memory_id])))


def wants_fragment(request: PageRequest) -> bool:
    """Whether htmx swaps a fragment. Boosted links and history restores are htmx requests for the whole page."""
    htmx = request.htmx
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request


def is_typing(request: PageRequest) -> bool:
    """Whether the search box sent this while typing."""
    return "X-Typing" in request.headers


def opened_parts(request: PageRequest) -> frozenset[str]:
    """The ids of the parts of the page that the reader has open. A fragment leaves out most of the others."""
    return frozenset(request.headers.get("X-Open", "").split())


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
    """The page, or its partial if htmx requests a fragment. `address` is the URL for the address bar."""
    watch = Stopwatch()
    fragment = wants_fragment(request)
    with watch.stage("render"):
        if fragment:
            html = render_block(request, template, partial, {**context, "is_fragment": True})
        else:
            html = render_to_string(template, {**context}, request)
        response = HttpResponse(html, status=status)
    if fragment and address:
        here = request.htmx.current_url_abs_path
        # Only the first search of a run of typing has a history entry of its own.
        replaces = request.headers.get("X-Typing") == "1" or here == address
        response["HX-Replace-Url" if replaces else "HX-Push-Url"] = address
    response["Server-Timing"] = server_timing({**timings, **watch.timings})
    return private(response)


def private(response: HttpResponse) -> HttpResponse:
    """Mark a response as private, to be revalidated, and different for htmx."""
    response["Cache-Control"] = "private, no-cache"
    patch_vary_headers(response, ["HX-Request", "HX-Target", "X-Open", "Cookie"])
    return response


_AROUND = 2


@dataclass(frozen=True, slots=True)
class Page:
    """An item of the pager; a gap if it has no URL."""

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
    """Links to the first, the last and the surrounding pages. With `at_least`, `total` is a lower bound."""
    near = {1, pages, *range(page - _AROUND, page + _AROUND + 1)} & set(range(1, pages + 1))
    row: list[Page] = []
    before = 0
    for place in sorted(near):
        if place == before + 2:
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
