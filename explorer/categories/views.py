"""The category browser."""

from datetime import UTC, datetime

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_safe

from explorer.categories.browser import BrowseRequest, browse
from explorer.categories.page import BrowserPage, category_url
from explorer.categories.visible_tree import CategoryNotFoundError
from explorer.explore.page import problem_notices
from explorer.http import (
    PageRequest,
    page_response,
    page_viewer,
    private,
    read_with_query,
    request_pairs,
    wants_fragment,
)
from explorer.links import explore_url
from memories.recalls import record_list
from search.result import SearchResult
from search.run import run

# Values of a facet that are compared to find the distinctive ones of a category.
_COMPARED_VALUES = 400
_CATEGORY_SAMPLES = 5


@require_safe
@login_required
def category_browser(request: PageRequest, path: str = "") -> HttpResponse:
    viewer = page_viewer(request)
    params, query, problems = read_with_query(BrowseRequest, request_pairs(request))
    try:
        found = browse(path, params, query, viewer)
    except CategoryNotFoundError as error:
        return private(render(request, "categories/lost.html", {"error": error}, status=404))
    if found.node and found.node.node.path != path:
        return private(HttpResponseRedirect(category_url(found.node.node.path, found.query)))
    result: SearchResult | None = None
    partial = "level" if (request.htmx.target or "").startswith("below-") else "tree"
    if found.node and not wants_fragment(request):
        inside = found.query.only("category", path).with_(page_size=_CATEGORY_SAMPLES)
        result = run(inside, viewer, include_facets=True, facet_limit=_COMPARED_VALUES, with_corpus=True)
        record_list(viewer, [hit.id for hit in result.hits], inside.querystring())
    page = BrowserPage(found, result, viewer, datetime.now(UTC), problem_notices(problems))
    context = {"page": page, "found": found, "result": result, "explore_url": explore_url}
    timings = result.timings if result else {}
    return page_response(request, "categories/browse.html", context, partial=partial, timings=timings)
