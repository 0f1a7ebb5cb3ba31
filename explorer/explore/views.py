"""The explorer's pages. Views hold no SQL and no arithmetic: they read a request, run it, and choose the frame."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.forms import BoundField
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.viewer import Viewer, may_write_everything
from explorer.categories.browser import BrowseRequest, browse
from explorer.categories.page import build_browser, build_lost, category_url
from explorer.categories.visible_tree import CategoryNotFoundError
from explorer.compare.matrix_page import MatrixPageRequest, build_matrix
from explorer.explore.arrangement import USUAL, ArrangementForm
from explorer.explore.calendar_page import CalendarRequest, build_calendar
from explorer.explore.page import (
    Notice,
    build_context,
    build_verdict,
    problem_notices,
    typed_notices,
)
from explorer.explore.panel import PanelContext, PanelRequest, build_panel, panel_url
from explorer.explore.sidebar import HiddenField
from explorer.explore.take_out import build_take_out
from explorer.explore.values_page import build_values_context
from explorer.history.page import HistoryContext, build_history
from explorer.http import (
    PageRequest,
    comes_from_work,
    is_typing,
    keep_arrangement,
    opened_parts,
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
from explorer.map.views import map_of
from explorer.memory.edit import REPLACED_BY, REPLACES, TERMS, EditForm
from explorer.memory.page import build_memory, build_similar
from explorer.page_query import View
from explorer.status.measures import backup_is_running, backup_start, measure_groups, to_watch
from explorer.status.reads import build_status, site_status
from explorer.views.page import ViewBar, build_bar, new_view_url, stored_page
from memories.history import EventNotFoundError, History, memory_history
from memories.models import Project
from memories.queries import MemoryDetail, memory_details, memory_version, timeline_around
from memories.recalls import opened, recalls_of
from memories.refusals import MemoryNotFoundError
from memories.services import memory_version_restore
from search.calendar_days import calendar_days
from search.facets import FACET, FACETS
from search.matrix import matrix
from search.query import SearchQuery
from search.result import FacetListing, HitDetail, SearchResult
from search.run import facet_page, run
from search.saved_views import ViewNotFoundError, openable_view
from search.similar import SimilarRequest, similar_memories
from search.typed import as_text, understand
from search.unified.service import UnifiedResult, best_known, unified
from search.why_not import WhyNotRequest, why_not
from web.errors import Refusal
from web.params import QueryError
from web.timing import server_timing

# Similar memories in a section of another page, and on a page of their own.
_SIMILAR_IN_SECTION = 8
_SIMILAR_ON_PAGE = 50
# Values of a facet that are compared to find the distinctive ones of a category.
_COMPARED_VALUES = 400
_CATEGORY_SAMPLES = 5
_EVENTS_SHOWN, _EVENTS_IN_PANEL = 20, 5


@require_safe
@login_required
def explore(request: PageRequest) -> HttpResponse:
    pairs = pairs_by_age(request) if wants_fragment(request) else request_pairs(request)
    asked, query, problems = read_with_query(PanelRequest, pairs)
    understood = understand(query)
    if is_typing(request):
        # The words are searched for while the reader types; the filters among them when they are done.
        query = query.with_(text=understood.query.text)
    else:
        query, problems = understood.query, (*problems, *understood.problems)
    if not (problems or wants_fragment(request)) and pairs != [*query.parameters(), *asked.parameters()]:
        return private(HttpResponseRedirect(panel_url(query, asked.sel)))
    viewer = page_viewer(request)
    if wants_fragment(request) and request.htmx.target == "panel":
        return _panel(request, query, asked, viewer)
    shown_at = datetime.now(UTC)
    unified_result = (
        unified(query, viewer, include_facets=True, with_corpus=True, lenient=True) if query.is_unified else None
    )
    is_map = query.view is View.MAP and unified_result is None
    opened = opened_parts(request)
    explains = any(part.startswith("why-") for part in opened)
    detail = HitDetail.NONE if is_map else HitDetail.FULL if explains else HitDetail.CARD
    if unified_result is None:
        result = run(
            query,
            viewer,
            include_facets=True,
            with_corpus=True,
            split=query.split_by,
            detail=detail,
            drops_early=True,
            lenient=True,
        )
    else:
        result = unified_result.answer
    ids, total = _listed(result, unified_result)
    chosen = asked.chosen(ids)
    if chosen is not None and asked.number is None and not wants_fragment(request):
        return private(HttpResponseRedirect(panel_url(query, chosen)))
    panel = _panel_of(request, query, chosen, ids, total) if chosen and not wants_fragment(request) else None
    is_missing = bool(asked.sel) and panel is None and not wants_fragment(request)
    missing = [Notice(f"There is no memory {asked.sel} that you can see.")] if is_missing else []
    bar: ViewBar | None = None
    if query.saved_view:
        try:
            bar = build_bar(query, openable_view(viewer, query.saved_view), result.labels)
        except ViewNotFoundError as error:
            missing.append(Notice(str(error)))
    context = build_context(
        query,
        result,
        (*problem_notices(problems), *missing),
        notes=typed_notices(understood),
        pending=understood.typed if is_typing(request) else (),
        unified=unified_result,
        known=None if is_map or is_typing(request) else best_known(result, viewer),
        may_write="write" in viewer.scopes,
        zone=viewer.timezone,
        opened=opened,
        arrangement=read_arrangement(request),
    )
    return page_response(
        request,
        "explorer/map.html" if is_map else "explorer/explore.html",
        {
            "explorer": context,
            "map": map_of(query, result, viewer, opened) if is_map else None,
            "panel": panel,
            "bar": bar,
            "shown_at": shown_at.isoformat(),
            "save_url": "" if problems else new_view_url(query),
            "stored_query": stored_page(query).querystring(),
            "take_out": None if problems else build_take_out(query, result, _site(request)),
        },
        partial="explorer",
        timings=result.timings,
        status=422 if problems and wants_fragment(request) else 200,
        address=panel_url(query, asked.sel),
    )


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


def _site(request: HttpRequest) -> str:
    """The address of the server, as the browser knows it."""
    return request.build_absolute_uri("/").rstrip("/")


def _listed(result: SearchResult, unified_result: UnifiedResult | None) -> tuple[list[int], int]:
    """The memories on a page of results in order, and the number of all results."""
    if unified_result is None:
        return [hit.id for hit in result.hits], result.total
    return [hit.id for hit in unified_result.hits if hit.memory], unified_result.found


def _panel(request: PageRequest, query: SearchQuery, asked: PanelRequest, viewer: Viewer) -> HttpResponse:
    """The panel alone; empty without a memory."""
    panel = None
    if asked.number is not None:
        unified_result = unified(query, viewer, lenient=True) if query.is_unified else None
        result = unified_result.answer if unified_result else run(query, viewer, detail=HitDetail.INDEX, lenient=True)
        panel = _panel_of(request, query, asked.number, *_listed(result, unified_result))
        if panel is None:
            raise Http404(f"There is no memory {asked.number} that you can see.")
    address = panel_url(query, asked.sel)
    return page_response(
        request, "explorer/explore.html", {"panel": panel}, partial="panel", timings={}, address=address
    )


def _panel_of(
    request: PageRequest, query: SearchQuery, memory_id: int, ids: list[int], total: int
) -> PanelContext | None:
    """The panel of a memory; None if the viewer may not open it."""
    viewer = page_viewer(request)
    found = memory_details(viewer, [memory_id]).get(memory_id)
    if found is None:
        return None
    opened(viewer, [memory_id])
    memory = build_memory(found, None, query, viewer.timezone, _controls(found, viewer))
    return build_panel(
        query, ids, total, memory, _history_of(found, viewer, _EVENTS_IN_PANEL), counts=not query.is_unified
    )


def _history_of(found: MemoryDetail, viewer: Viewer, limit: int = _EVENTS_SHOWN, before: str = "") -> HistoryContext:
    """The events of a memory, before one of them if that is named."""
    memory = found.memory
    events = memory_history(viewer, memory.pk, limit=limit, before=before) or History(memory.pk, ())
    may_write, version = viewer.may_write(memory.project_id), memory_version(memory)
    return build_history(
        memory,
        events,
        version,
        viewer.timezone,
        may_write=may_write,
        has_newer=bool(before),
        recalls=recalls_of(viewer, memory.pk),
        today=datetime.now(UTC).date(),
    )


def _controls(found: MemoryDetail, viewer: Viewer) -> Mapping[str, BoundField]:
    """The fields that edit facts of a memory in place, by name; none if the viewer may not write it."""
    if not viewer.may_write(found.memory.project_id):
        return {}
    return {field.name: field for field in EditForm(None, viewer, found, only=(*TERMS, REPLACES, REPLACED_BY))}


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
def matrix_page(request: PageRequest) -> HttpResponse:
    asked, query, problems = read_with_query(MatrixPageRequest, request_pairs(request))
    if any(problem.parameter == "columns" for problem in problems):
        asked = asked.replace(columns="date")
    found = matrix(query, asked, page_viewer(request))
    context = build_matrix(query, asked, found, problem_notices(problems))
    response = private(render(request, "explorer/matrix.html", {"matrix": context}))
    response["Server-Timing"] = server_timing(found.timings)
    return response


@require_safe
@login_required
def calendar_page(request: PageRequest) -> HttpResponse:
    asked, query, problems = read_with_query(CalendarRequest, request_pairs(request))
    found = calendar_days(query, asked.year, page_viewer(request))
    context = build_calendar(query, found, problem_notices(problems))
    return private(render(request, "explorer/calendar.html", {"calendar": context}))


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


@require_safe
@login_required
def detail(request: HttpRequest, memory_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    found = memory_details(viewer, [memory_id]).get(memory_id)
    if found is None:
        raise Http404(f"There is no memory {memory_id} that you can see.")
    around = timeline_around(viewer, found.memory)
    if not comes_from_work(request, memory_id):
        opened(viewer, [memory_id])
    controls = _controls(found, viewer)
    context = build_memory(found, around, _origin_query(request), viewer.timezone, controls)
    try:
        history = _history_of(found, viewer, before=request.GET.get("before", ""))
    except EventNotFoundError as error:
        raise Http404(str(error)) from error
    return private(render(request, "memories/detail.html", {"memory": context, "history": history}))


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
    context = build_similar(memory_id, found, _origin_query(request), viewer.timezone, writes_to=writes_to)
    return page_response(
        request, "memories/similar.html", {"similar": context}, partial="similar", timings=found.timings
    )


@require_safe
@login_required
def status(request: PageRequest) -> HttpResponse:
    viewer = page_viewer(request)
    state = site_status(viewer)
    context: dict[str, Any] = {"status": build_status(state)}
    if not wants_fragment(request):
        groups = measure_groups(viewer, state)
        context |= {
            "to_watch": to_watch(groups),
            "may_act": may_write_everything(viewer),
            "backup_runs": viewer.project_ids is None and backup_is_running(),
            "groups": groups,
        }
    return page_response(request, "memories/status.html", context, partial="status", timings={})


@require_POST
@login_required
def back_up(request: HttpRequest) -> HttpResponse:
    """Start a backup in the background; the page looks for its end."""
    if not may_write_everything(page_viewer(request)):
        raise PermissionDenied("Only who may write to all projects makes backups.")
    backup_start()
    messages.info(request, "A backup has been started.")
    return HttpResponseRedirect(reverse("explorer:status"))


@require_safe
@login_required
def category_browser(request: PageRequest, path: str = "") -> HttpResponse:
    viewer = page_viewer(request)
    params, query, problems = read_with_query(BrowseRequest, request_pairs(request))
    try:
        found = browse(path, params, query, viewer)
    except CategoryNotFoundError as error:
        return private(render(request, "categories/lost.html", {"lost": build_lost(error)}, status=404))
    if found.node and found.node.node.path != path:
        return private(HttpResponseRedirect(category_url(found.node.node.path, found.query)))
    result: SearchResult | None = None
    partial = "level" if (request.htmx.target or "").startswith("below-") else "tree"
    if found.node and not wants_fragment(request):
        inside = found.query.only("category", path).with_(page_size=_CATEGORY_SAMPLES)
        result = run(inside, viewer, include_facets=True, facet_limit=_COMPARED_VALUES, with_corpus=True)
    notices = problem_notices(problems)
    context = build_browser(found, result, viewer, datetime.now(UTC), notices)
    timings = result.timings if result else {}
    return page_response(request, "categories/browse.html", {"page": context}, partial=partial, timings=timings)


def _origin_query(request: HttpRequest) -> SearchQuery | None:
    """The search that led here, from `ctx`. It is parsed as a query, so that it cannot link anywhere else."""
    pairs = parse_qsl(request.GET.get("ctx", ""), keep_blank_values=True)
    query, problems = read_query(pairs)
    return query if pairs and not problems else None
