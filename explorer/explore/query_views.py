"""The pages around a query: as a text, the values of its facets and their arrangement, why a memory is missing."""

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from explorer.explore.arrangement import USUAL, ArrangementForm
from explorer.explore.page import build_verdict, problem_notices
from explorer.explore.sidebar import HiddenField
from explorer.explore.values_page import build_values_context
from explorer.http import (
    PageRequest,
    keep_arrangement,
    page_response,
    page_viewer,
    pairs_by_age,
    private,
    read_arrangement,
    read_query,
    read_with_query,
    request_pairs,
    return_url,
    wants_fragment,
)
from explorer.links import explore_url
from search.facets import FACET, FACETS
from search.listings import facet_page
from search.query import SearchQuery
from search.result import FacetListing
from search.typed import as_text
from search.why_not import WhyNotRequest, why_not
from web.params import QueryError


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def arrange_facets(request: HttpRequest) -> HttpResponse:
    """Choose the order of the facets, and which are open, closed or hidden."""
    back, usual = return_url(request) or reverse("explorer:explore"), "usual" in request.POST
    form = ArrangementForm(None if usual else request.POST or None, read_arrangement(request))
    if request.method != "POST" or not (usual or form.is_valid()):
        context = {"form": form, "back_url": back}
        return private(render(request, "explorer/arrange.html", context, status=422 if form.errors else 200))
    arrangement = USUAL if usual else form.arrangement()
    key, _, direction = request.POST.get("move", "").partition(" ")
    if moves := key in FACET:
        arrangement = arrangement.moved(key, -1 if direction == "up" else 1)
    here = f"{reverse('explorer:arrange')}?{urlencode({'next': back})}"
    # The focus stays at the facet that moves, so that it can be moved on.
    response = HttpResponseRedirect(f"{here}#{key}-{direction}" if moves else here if usual else back)
    keep_arrangement(request, response, arrangement)
    return response


@require_safe
@login_required
def edit_text(request: PageRequest) -> HttpResponse:
    """A query as a text with typed filters, in a form that explains them."""
    query, problems = read_query(request_pairs(request))
    shown = [pair for pair in query.parameters() if pair[0] not in SearchQuery.names()]
    context = {
        "text": as_text(query.search),
        "hidden": [HiddenField(key, value) for key, value in shown],
        "back_url": explore_url(query),
        "notices": problem_notices(problems),
        "facets": [spec for spec in FACETS if spec.key != "state"],
    }
    return private(render(request, "explorer/text.html", context))


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
    listing, query, problems = read_with_query(FacetListing, pairs_by_age(request))
    viewer = page_viewer(request)
    page = facet_page(query, key, listing, viewer, with_corpus=True)
    values = build_values_context(query, page, problem_notices(problems))
    # Unfolding a branch of the tree loads the rows below it; other fragments replace `main`.
    is_level = (request.htmx.target or "").startswith("below-")
    return page_response(
        request,
        "explorer/facet_values.html",
        {"values": values},
        partial="level" if is_level else "values",
        timings=page.timings,
        status=422 if problems and wants_fragment(request) else 200,
        address="" if is_level else values.here,
    )
