"""The pages of a memory and of those similar to it; writing, editing, archiving and restoring memories on pages."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.viewer import Viewer
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
from explorer.memory.edit import (
    EVERY,
    NEW_PROJECT,
    REPLACES,
    STATES,
    TERMS,
    TEXTS,
    EditForm,
    Undoing,
    fact_controls,
    memory_set_state,
    memory_write,
    memory_write_new,
)
from explorer.memory.page import MemoryPage, shared_values, similar_groups
from memories.models import Memory, Project
from memories.queries import MemoryDetail, memory_details
from memories.recalls import record_opening
from memories.refusals import EventNotFoundError, MemoryNotFoundError, NotAllowedError
from memories.services import memory_version_restore
from search.query import SearchQuery
from search.similar import SimilarRequest, near_duplicates, similar_memories
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
    record_opening(viewer, [memory_id], recalls=not comes_from_work(request, memory_id))
    try:
        history = read_history(found.memory, viewer, before=request.GET.get("before", ""))
    except EventNotFoundError as error:
        raise Http404(str(error)) from error
    page = MemoryPage.read(found, _origin_query(request), viewer, fact_controls(found, viewer))
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


_NEW = (*TEXTS, "project", NEW_PROJECT, *TERMS, REPLACES)
_DONE = {"archived": "Archived", "active": "Restored", "deleted": "Deleted"}


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def edit(request: HttpRequest, memory_id: int) -> HttpResponse:
    """Edit a memory, or those of its fields that `field` names."""
    viewer = page_viewer(request)
    detail = _writable(memory_id, viewer)
    data = request.POST if request.method == "POST" else None
    only = [name for name in (data or request.GET).getlist("field") if name in EVERY]
    form = EditForm(data, viewer, detail, only=only or _sent(data))
    page = reverse("explorer:memory", args=[memory_id])
    if form.is_valid():
        if not form.changed_fields:
            messages.info(request, "Nothing was changed.")
            return HttpResponseRedirect(return_url(request) or page)
        if edited := memory_write(form, request.POST.get("version", "")):
            text = f"Saved #{memory_id}: {', '.join(form[name].label.lower() for name in edited.fields)}."
            messages.success(request, text, extra_tags=undo_url(edited.undo))
            _tell_secrets(request, edited.memory)
            return HttpResponseRedirect(return_url(request) or page)
    context = {"form": form, "memory_id": memory_id, "fields": only, "cancel_url": return_url(request) or page}
    return _form_page(request, context)


def _sent(data: QueryDict | None) -> list[str]:
    """The fields of the whole form, without those that it was sent without: they stay as they are."""
    if data is None:
        return list(EVERY)
    # A box that is not ticked is not sent.
    return [name for name in EVERY if name in data or (name == "pinned" and "importance" in data)]


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def new(request: HttpRequest) -> HttpResponse:
    """Write a memory; with `replaces` in place of an existing one, whose values it starts with."""
    viewer = page_viewer(request)
    if "write" not in viewer.scopes:
        raise PermissionDenied("You may read, but not write memories.")
    data = request.POST if request.method == "POST" else None
    form = EditForm(data, viewer, only=_NEW, initial=_start(request, viewer))
    if form.is_valid() and (edited := memory_write_new(form)):
        memory = edited.memory
        undo = f"{reverse('explorer:set_state', args=[memory.pk])}?{urlencode({'state': 'deleted'})}"
        messages.success(request, f"Stored as #{memory.pk}.", extra_tags="" if form.cleaned_data[REPLACES] else undo)
        _tell_secrets(request, memory)
        for near in near_duplicates(memory, viewer).memories:
            if near.is_duplicate:
                messages.warning(request, f"#{near.id} says nearly the same: {near.title}")
        return HttpResponseRedirect(reverse("explorer:memory", args=[memory.pk]))
    return _form_page(request, {"form": form, "cancel_url": reverse("explorer:explore")})


def _tell_secrets(request: HttpRequest, memory: Memory) -> None:
    if memory.masked_secrets:
        messages.warning(request, f"Secrets are not stored. In their place: {', '.join(memory.masked_secrets)}")


def _start(request: HttpRequest, viewer: Viewer) -> Mapping[str, Any]:
    """The values that a new memory starts with."""
    start: dict[str, Any] = {"project": request.GET.get("project", "")}
    number = request.GET.get("replaces", "")
    if number.isascii() and number.isdecimal() and len(number) < 19:
        older = EditForm(None, viewer, _writable(int(number), viewer), only=_NEW)
        start |= {**older.initial, REPLACES: [f"#{number}"]}
    return start


def _form_page(request: HttpRequest, context: Mapping[str, Any]) -> HttpResponse:
    form: EditForm = context["form"]
    shown = {**context, "differences": form.differences() if form.is_conflict else ()}
    return private(render(request, "memories/edit.html", shown, status=422 if form.is_bound else 200))


@require_POST
@login_required
def set_state(request: HttpRequest, memory_id: int) -> HttpResponse:
    """Archive, restore or delete a memory."""
    state = request.POST.get("state") or request.GET.get("state", "")
    if state not in STATES:
        raise Http404(f"{state} is not a state to set here")
    page = reverse("explorer:memory", args=[memory_id])
    try:
        edited = memory_set_state(memory_id, state, page_viewer(request), request.POST.get("reason", "")[:1_000])
        messages.success(request, f"{_DONE[state]} #{memory_id}.", extra_tags=undo_url(edited.undo))
    except MemoryNotFoundError as error:
        raise Http404(str(error)) from error
    except NotAllowedError as error:
        raise PermissionDenied(str(error)) from error
    except Refusal as error:
        messages.error(request, f"Not changed. {error}")
    return HttpResponseRedirect(return_url(request) or page)


def undo_url(undo: Undoing | None) -> str:
    """The address that takes a change back; empty if one step cannot."""
    if undo is None:
        return ""
    restore = reverse("explorer:restore_version", args=[undo.memory_id, undo.event])
    return f"{restore}?{urlencode({'version': undo.version})}"


def _writable(memory_id: int, viewer: Viewer) -> MemoryDetail:
    """A memory that the viewer may change."""
    detail = memory_details(viewer, [memory_id]).get(memory_id)
    if detail is None:
        raise Http404(f"There is no memory {memory_id} that you can see.")
    if not viewer.may_write(detail.memory.project_id):
        raise PermissionDenied(f"You can read #{memory_id} but not change it.")
    return detail
