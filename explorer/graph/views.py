"""Pages of entities, concepts and relationships."""

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from access.viewer import Viewer
from categories.queries import Term
from explorer.explore.page import problem_notices
from explorer.graph import labels
from explorer.graph.labels import MOST_STEPS, AroundRequest, PathRequest, TableRequest, graph_tabs, term_url
from explorer.graph.memory_page import memory_graph
from explorer.graph.neighbourhood import node_detail, relationship_detail
from explorer.graph.node_page import build_node
from explorer.graph.path_page import PathEndError, PathForm, build_lost, end_notice, find_path
from explorer.graph.queries import ENTITY, NameAmbiguousError, NameUnknownError, NodeKind
from explorer.graph.table_page import build_table, node_table
from explorer.http import PageRequest, page_viewer, private, request_pairs
from explorer.links import explore_url, filter_url, memory_url, merge_url
from memories.queries import memory_details
from web.params import Pair
from web.timing import server_timing


@require_safe
@login_required
def table(request: PageRequest, kind: NodeKind) -> HttpResponse:
    viewer = page_viewer(request)
    params, problems = TableRequest.read(request_pairs(request))
    found = node_table(kind, params, viewer, with_trends=True)
    context = {
        "page": build_table(found, problem_notices(problems), viewer.timezone),
        "table": found,
        "tabs": graph_tabs(kind),
        "term_url": term_url,
        "filter_url": filter_url,
        "merge_url": merge_url(kind.key),
    }
    return _page(request, "graph/table.html", context, found.timings)


@require_safe
@login_required
def node(request: PageRequest, kind: NodeKind, ref: str) -> HttpResponse:
    viewer = page_viewer(request)
    own, rest = _path_pairs(request_pairs(request)) if kind is ENTITY else ([], request_pairs(request))
    params, problems = AroundRequest.read(rest)
    try:
        found = node_detail(kind, ref, params, viewer)
    except NameUnknownError as error:
        return _page(request, "graph/lost.html", {"lost": build_lost(error)}, {}, status=404)
    except NameAmbiguousError as error:
        return _page(request, "graph/lost.html", {"lost": build_lost(error)}, {}, status=300)
    context: dict[str, object] = {
        "page": build_node(found, problem_notices(problems), viewer.timezone),
        "node": found,
        "tabs": graph_tabs(kind),
        "explore_url": explore_url,
        "term_url": term_url,
        "labels": labels,
        "memory_url": memory_url,
        "most_steps": MOST_STEPS,
        "zone": viewer.timezone,
        "path": _path_from(found.term, own, viewer) if kind is ENTITY else None,
        "curated": found.term.id if "curate" in viewer.scopes else None,
    }
    return _page(request, "graph/node.html", context, found.timings)


@require_safe
@login_required
def memory(request: PageRequest, memory_id: int) -> HttpResponse:
    detail = memory_details(page_viewer(request), [memory_id]).get(memory_id)
    if detail is None:
        raise Http404(f"There is no memory {memory_id} that you can see.")
    context = {"page": memory_graph(detail), "tabs": graph_tabs(None), "memory_url": memory_url}
    return _page(request, "graph/memory.html", context, {})


def _path_pairs(pairs: list[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The parameters of a path from the entity of a page, and the others."""
    names = {"to", "steps", "together"}
    return [pair for pair in pairs if pair[0] in names], [pair for pair in pairs if pair[0] not in names]


def _path_from(start: Term, pairs: list[Pair], viewer: Viewer) -> PathForm:
    params, problems = PathRequest.read([*pairs, ("from", str(start.id))])
    notices, found = problem_notices(problems), None
    try:
        found = find_path(params, viewer) if params.end else None
    except PathEndError as error:
        notices = (*notices, end_notice(error, start, params))
    return PathForm(start, params, found, notices)


@require_safe
@login_required
def relationship(request: PageRequest, relationship_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    found = relationship_detail(relationship_id, viewer)
    if found is None:
        raise Http404(f"There is no relationship {relationship_id} that you can see.")
    context = {
        "found": found,
        "record": found.record,
        "evidence": found.evidence,
        "put_away": found.put_away,
        "entity": ENTITY,
        "labels": labels,
        "tabs": graph_tabs(ENTITY),
        "memory_url": memory_url,
        "query": None,
        "zone": viewer.timezone,
    }
    return _page(request, "graph/relationship.html", context, found.timings)


@require_safe
@login_required
def path_between(request: PageRequest) -> HttpResponse:
    """A saved address of the path that was a page: the page of its first end shows it."""
    pairs = dict(request_pairs(request))
    begin = pairs.pop("from", "")
    # A name that no path can hold has no page of its own.
    if not begin.isprintable() or {"", ".", ".."} & set(begin.split("/")):
        return private(HttpResponseRedirect(reverse("graph:entities")))
    return private(HttpResponseRedirect(f"{reverse('graph:entity', args=[begin])}?{urlencode(pairs)}#path"))


def _page(
    request: PageRequest, template: str, context: dict[str, object], timings: dict[str, float], status: int = 200
) -> HttpResponse:
    response = render(request, template, context, status=status)
    if timings:
        response["Server-Timing"] = server_timing(timings)
    return private(response)
