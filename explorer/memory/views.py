"""The pages of a memory, and of those that are similar to it."""

from urllib.parse import parse_qsl

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from explorer.history.page import read_history
from explorer.http import (
    PageRequest,
    comes_from_work,
    page_response,
    page_viewer,
    private,
    read_query,
    return_url,
    wants_fragment,
)
from explorer.links import filter_url, memory_url, similar_url
from explorer.memory.edit import fact_controls
from explorer.memory.page import MemoryPage, shared_values, similar_groups
from memories.models import Project
from memories.queries import memory_details
from memories.recalls import opened
from memories.refusals import EventNotFoundError, MemoryNotFoundError
from memories.services import memory_version_restore
from search.query import SearchQuery
from search.similar import SimilarRequest, similar_memories
from web.errors import Refusal

# Similar memories in a section of another page, and on a page of their own.
_SIMILAR_IN_SECTION = 8
_SIMILAR_ON_PAGE = 50
# Neighbours in time, before the memory and after it.
_AROUND = 5


@require_safe
@login_required
def detail(request: HttpRequest, memory_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    found = memory_details(viewer, [memory_id], around=_AROUND).get(memory_id)
    if found is None:
        raise Http404(f"There is no memory {memory_id} that you can see.")
    if not comes_from_work(request, memory_id):
        opened(viewer, [memory_id])
    try:
        history = read_history(found.memory, viewer, before=request.GET.get("before", ""))
    except EventNotFoundError as error:
        raise Http404(str(error)) from error
    page = MemoryPage(found, _origin_query(request), viewer.timezone, fact_controls(found, viewer))
    context = {"page": page, "detail": found, "memory": found.memory, "history": history}
    return private(render(request, "memories/detail.html", context))


@require_POST
@login_required
def restore_version(request: HttpRequest, memory_id: int, event: str) -> HttpResponse:
    version = request.POST.get("version") or request.GET.get("version", "")
    try:
        memory_version_restore(
            memory_id=memory_id,
            event_id=event,
            viewer=page_viewer(request),
            if_version=version,
            # The history says what superseded it, and the page what it is afterwards.
            despite_successor=True,
        )
        messages.success(request, "Restored as it was at that time. The version before is in the history.")
    except MemoryNotFoundError as error:
        raise Http404(str(error)) from error
    except Refusal as error:
        messages.error(request, f"Not restored. {error}")
    return HttpResponseRedirect(return_url(request) or reverse("explorer:memory", args=[memory_id]))


@require_safe
@login_required
def similar(request: PageRequest, memory_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    limit = _SIMILAR_IN_SECTION if wants_fragment(request) else _SIMILAR_ON_PAGE
    try:
        found = similar_memories(memory_id, SimilarRequest(limit=limit), SearchQuery(), viewer)
    except MemoryNotFoundError as error:
        raise Http404(f"There is no memory {memory_id} that you can see.") from error
    has_duplicates = any(one.is_duplicate for one in found.memories)
    project = Project.objects.filter(memories=memory_id).first() if has_duplicates else None
    writes_to = project.slug if project and viewer.may_write(project.pk) else ""
    context = {
        "found": found,
        "memory_id": memory_id,
        "groups": similar_groups(memory_id, found, writes_to),
        "query": _origin_query(request),
        "zone": viewer.timezone,
        "shared_values": shared_values,
        "filter_url": filter_url,
        "memory_url": memory_url,
        "similar_url": similar_url,
    }
    return page_response(request, "memories/similar.html", context, partial="similar", timings=found.timings)


def _origin_query(request: HttpRequest) -> SearchQuery | None:
    """The search that led here, from `ctx`. It is parsed as a query, so that it cannot link anywhere else."""
    pairs = parse_qsl(request.GET.get("ctx", ""), keep_blank_values=True)
    query, problems = read_query(pairs)
    return query if pairs and not problems else None
