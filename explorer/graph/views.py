"""Pages of entities, concepts and relationships."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from explorer.explore.page import problem_notices
from explorer.graph.node_page import build_node, node_detail, relationship_detail
from explorer.graph.params import AroundRequest, PathRequest, TableRequest
from explorer.graph.path_page import (
    PathEndError,
    build_fact,
    build_lost,
    build_path,
    end_notice,
    example_ends,
    find_path,
)
from explorer.graph.queries import NameAmbiguousError, NameUnknownError, NodeKind
from explorer.graph.table_page import build_table, node_table
from explorer.http import PageRequest, page_viewer, private, request_pairs
from web.timing import server_timing


@require_safe
@login_required
def table(request: PageRequest, kind: NodeKind) -> HttpResponse:
    viewer = page_viewer(request)
    params, problems = TableRequest.read(request_pairs(request))
    found = node_table(kind, params, viewer, with_trends=True)
    context = build_table(found, problem_notices(problems), viewer.timezone)
    return _page(request, "graph/table.html", {"table": context}, found.timings)


@require_safe
@login_required
def node(request: PageRequest, kind: NodeKind, ref: str) -> HttpResponse:
    viewer = page_viewer(request)
    params, problems = AroundRequest.read(request_pairs(request))
    try:
        found = node_detail(kind, ref, params, viewer)
    except NameUnknownError as error:
        return _page(request, "graph/lost.html", {"lost": build_lost(error)}, {}, status=404)
    except NameAmbiguousError as error:
        return _page(request, "graph/lost.html", {"lost": build_lost(error)}, {}, status=300)
    context = build_node(found, problem_notices(problems), viewer.timezone)
    curated = found.term.id if "curate" in viewer.scopes else None
    return _page(request, "graph/node.html", {"node": context, "curated": curated}, found.timings)


@require_safe
@login_required
def relationship(request: PageRequest, relationship_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    found = relationship_detail(relationship_id, viewer)
    if found is None:
        raise Http404(f"There is no relationship {relationship_id} that you can see.")
    return _page(request, "graph/relationship.html", {"fact": build_fact(found, viewer.timezone)}, found.timings)


@require_safe
@login_required
def path_between(request: PageRequest) -> HttpResponse:
    viewer = page_viewer(request)
    params, problems = PathRequest.read(request_pairs(request))
    notices, found = problem_notices(problems), None
    try:
        found = find_path(params, viewer) if params.begin and params.end else None
    except PathEndError as error:
        notices = (*notices, end_notice(error, params))
    examples = () if params.begin or params.end else example_ends(viewer)
    context = build_path(params, found, notices, viewer.timezone, examples)
    return _page(request, "graph/path.html", {"path": context}, found.timings if found else {})


def _page(
    request: PageRequest, template: str, context: dict[str, object], timings: dict[str, float], status: int = 200
) -> HttpResponse:
    response = render(request, template, context, status=status)
    if timings:
        response["Server-Timing"] = server_timing(timings)
    return private(response)
