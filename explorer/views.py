"""The explorer's pages. They hold no SQL and no arithmetic: a view reads a query, runs it, and chooses the frame."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_safe

from explorer.http import (
    PageRequest,
    page_response,
    page_viewer,
    private,
    read_query,
    read_with_query,
    request_pairs,
    wants_fragment,
)
from explorer.links import explore_url
from explorer.page import build_context, build_values_context, build_verdict, problem_notices
from search.facets import FACET
from search.result import FacetListing
from search.run import facet_page, run
from search.unified.service import is_unified, unified
from search.why_not import WhyNotRequest, why_not
from web.params import QueryError


@require_safe
@login_required
def explore(request: PageRequest) -> HttpResponse:
    pairs = request_pairs(request)
    query, problems = read_query(pairs)
    if not (problems or wants_fragment(request)) and pairs != query.parameters():
        return private(HttpResponseRedirect(explore_url(query)))
    viewer = page_viewer(request)
    together = unified(query, viewer, include_facets=True, with_corpus=True) if is_unified(query) else None
    result = together.answer if together else run(query, viewer, include_facets=True, with_corpus=True)
    context = build_context(
        query,
        result,
        problem_notices(problems),
        together=together,
        may_curate="curate" in viewer.scopes,
        zone=viewer.timezone,
    )
    return page_response(
        request,
        "explorer/explore.html",
        {"explorer": context},
        partial="explorer",
        timings=result.timings,
        status=422 if problems and wants_fragment(request) else 200,
        address="" if problems else explore_url(query),
    )


@require_safe
@login_required
def explain_absence(request: PageRequest) -> HttpResponse:
    viewer = page_viewer(request)
    own, rest = WhyNotRequest.split(request_pairs(request))
    query, problems = read_query(rest)
    found = None
    try:
        memory_id = WhyNotRequest.from_pairs(own).id
    except QueryError as error:
        problems = (*error.problems, *problems)
    else:
        found = why_not(query, memory_id, viewer)
        if found is None:
            raise Http404(f"There is no memory {memory_id} that you can see.")
    notices = problem_notices(problems)
    context = build_verdict(query, found, notices)
    page = render(request, "explorer/why_not.html", {"verdict": context}, status=422 if notices else 200)
    return private(page)


@require_safe
@login_required
def facet_values(request: PageRequest, key: str) -> HttpResponse:
    if key not in FACET:
        raise Http404(f"{key} is not a facet")
    listing, query, problems = read_with_query(FacetListing, request_pairs(request))
    viewer = page_viewer(request)
    page = facet_page(query, key, listing, viewer)
    values = build_values_context(query, page, problem_notices(problems))
    # A branch of the tree asks for the rows below it; the page itself swaps its `main`.
    is_level = (request.htmx.target or "").startswith("below-")
    return page_response(
        request,
        "explorer/facet_values.html",
        {"values": values},
        partial="level" if is_level else "values",
        timings=page.timings,
        status=422 if problems and wants_fragment(request) else 200,
        address="" if is_level or problems else values.here,
    )
