"""The page of one memory."""

from urllib.parse import parse_qsl

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from memories.context import build_detail
from memories.queries import memory_detail, timeline_around
from search.pages import page_viewer, private, read_query
from search.query import SearchQuery


@require_safe
@login_required
def detail(request: HttpRequest, memory_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    found = memory_detail(viewer, memory_id)
    if found is None:
        raise Http404(f"There is no memory {memory_id}, or none that you may open.")
    around = timeline_around(viewer, found.memory)
    context = build_detail(found, around, _query_behind(request), viewer.timezone)
    return private(render(request, "memories/detail.html", {"memory": context}))


def _query_behind(request: HttpRequest) -> SearchQuery | None:
    """The search that led here. Only what can be read as one is followed, so `ctx` can lead nowhere else."""
    pairs = parse_qsl(request.GET.get("ctx", ""), keep_blank_values=True)
    return read_query(pairs)[0] if pairs else None
