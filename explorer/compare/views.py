"""The page that compares two slices, and that of a table of counts."""

from django.contrib.auth.decorators import login_required
from django.http import HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_safe

from explorer.compare.matrix_page import MatrixPage, MatrixPageRequest
from explorer.compare.page import ComparePage, comparison_url, percent, signed_points
from explorer.explore.page import problem_notices
from explorer.http import PageRequest, page_viewer, private, read_query, read_with_query, request_pairs
from explorer.links import explore_url, memory_url
from explorer.page_query import PageQuery
from search.compare import compare
from search.matrix import matrix
from search.query import plain
from search.slices import Asked, CompareRequest, split_slices
from web.timing import server_timing


@require_safe
@login_required
def compare_slices(request: PageRequest) -> HttpResponse:
    pairs = request_pairs(request)
    shared, owns, misread = split_slices(pairs, PageQuery)
    own, rest = CompareRequest.split(shared)
    params, unread = CompareRequest.read(own)
    query, problems = read_query(rest)
    asked = Asked(params, plain(query), owns["a"], owns["b"])
    problems = (*unread, *problems, *misread)
    if not problems and pairs != asked.parameters():
        return private(HttpResponseRedirect(comparison_url(asked)))
    viewer = page_viewer(request)
    found = compare(asked, viewer)
    site = request.build_absolute_uri("/").rstrip("/")
    context = {
        "page": ComparePage(found, site, problem_notices(problems)),
        "found": found,
        "zone": viewer.timezone,
        "explore_url": explore_url,
        "memory_url": memory_url,
        "percent": percent,
        "points": signed_points,
    }
    response = private(render(request, "explorer/compare.html", context))
    response["Server-Timing"] = server_timing(found.timings)
    return response


@require_safe
@login_required
def matrix_page(request: PageRequest) -> HttpResponse:
    asked, query, problems = read_with_query(MatrixPageRequest, request_pairs(request))
    if any(problem.parameter == "columns" for problem in problems):
        asked = asked.replace(columns="date")
    found = matrix(query, asked, page_viewer(request))
    page = MatrixPage(query, asked, found, problem_notices(problems))
    response = private(
        render(
            request,
            "explorer/matrix.html",
            {"page": page, "asked": asked, "found": found, "back_url": explore_url(query)},
        )
    )
    response["Server-Timing"] = server_timing(found.timings)
    return response
