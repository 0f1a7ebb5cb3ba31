"""The page of one memory, that of those like it, and that of the site's state."""

from urllib.parse import parse_qsl

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from explorer.http import PageRequest, page_response, page_viewer, private, read_query, wants_fragment
from explorer.memory_page import build_detail, build_similar
from explorer.status import build_status, site_status
from memories.queries import memory_detail, timeline_around
from memories.services import MemoryNotFoundError
from search.query import SearchQuery
from search.similar import SimilarRequest, similar_memories

# How many memories like one its page shows, and how many the page of them.
IN_SECTION = 8
ON_PAGE = 50


@require_safe
@login_required
def detail(request: HttpRequest, memory_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    found = memory_detail(viewer, memory_id)
    if found is None:
        raise Http404(f"There is no memory {memory_id} that you can see.")
    around = timeline_around(viewer, found.memory)
    context = build_detail(found, around, _query_behind(request), viewer.timezone)
    return private(render(request, "memories/detail.html", {"memory": context}))


@require_safe
@login_required
def similar(request: PageRequest, memory_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    limit = IN_SECTION if wants_fragment(request) else ON_PAGE
    try:
        found = similar_memories(memory_id, SimilarRequest(limit=limit), SearchQuery(), viewer)
    except MemoryNotFoundError as error:
        raise Http404(f"There is no memory {memory_id} that you can see.") from error
    context = build_similar(memory_id, found, _query_behind(request), viewer.timezone)
    return page_response(
        request, "memories/similar.html", {"similar": context}, partial="similar", timings=found.timings
    )


@require_safe
@login_required
def status(request: PageRequest) -> HttpResponse:
    page = build_status(site_status(page_viewer(request)))
    return page_response(request, "memories/status.html", {"status": page}, partial="status", timings={})


def _query_behind(request: HttpRequest) -> SearchQuery | None:
    """The search that led here. Only what can be read as one is followed, so `ctx` can lead nowhere else."""
    pairs = parse_qsl(request.GET.get("ctx", ""), keep_blank_values=True)
    return read_query(pairs)[0] if pairs else None
