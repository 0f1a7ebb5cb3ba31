"""The pages of saved views: the list, opening one, and the forms that change them."""

from collections.abc import Iterable
from urllib.parse import parse_qsl

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.viewer import Viewer
from explorer.explore.page import problem_notices
from explorer.http import (
    PageRequest,
    page_response,
    page_viewer,
    private,
    read_query,
    request_pairs,
    return_url,
    wants_fragment,
)
from explorer.links import explore_url
from explorer.views.page import (
    ViewForm,
    build_rows,
    describe,
    found_now,
    in_view,
    page_query_of,
    presentation_of,
    ready_made,
    view_url,
)
from search.models import ViewMark
from search.saved_views import (
    MOST_COUNTED,
    OpenableView,
    ViewNotFoundError,
    ViewRefusedError,
    count_views,
    openable_view,
    openable_views,
    saved_view_change,
    saved_view_create,
    saved_view_delete,
    view_mark,
)
from web.params import Pair, QueryError

_MOST_OF_NAME = 80


@require_safe
@login_required
def views(request: PageRequest) -> HttpResponse:
    """The list. The page comes at once, and its counts after it, or with `counts` for readers without scripts."""
    viewer = page_viewer(request)
    found = openable_views(viewer)
    counted = wants_fragment(request) or "counts" in request.GET
    rows = build_rows(found, count_views(found, viewer) if counted else {})
    context = {
        "groups": [
            ("Pinned", [row for row in rows if row.pinned]),
            ("Mine", [row for row in rows if row.is_own and not row.pinned]),
            ("Of the team", [row for row in rows if not row.is_own and not row.pinned]),
        ],
        "total": len(rows),
        "counted": counted,
        "most_counted": MOST_COUNTED,
        "ready_made": ready_made(viewer if counted else None),
    }
    return page_response(request, "views/list.html", context, partial="views", timings={})


@require_safe
@login_required
def view(request: HttpRequest, view_id: int) -> HttpResponse:
    """Open a view: it leads to the query that it has now."""
    viewer = page_viewer(request)
    one = _openable(viewer, view_id)
    if request.method == "GET":
        view_mark(view=one.view, viewer=viewer, opened=True)
    return private(HttpResponseRedirect(explore_url(in_view(one))))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def new_view(request: HttpRequest) -> HttpResponse:
    """Save a query as a view: that of the address, or of the form."""
    viewer = page_viewer(request)
    is_post = request.method == "POST"
    named, pairs = _name_and_query(request)
    asked, problems = read_query(pairs)
    query = asked.stored
    parts = describe(query)
    form = ViewForm(request.POST if is_post else None, initial={"name": named or _name_of(parts)})
    if is_post and form.is_valid() and not problems:
        try:
            made = saved_view_create(
                query=query.search, presentation=presentation_of(query), viewer=viewer, **form.cleaned_data
            )
        except ViewRefusedError as error:
            form.refuse(error)
        else:
            if "pinned" in request.POST:
                view_mark(view=made, viewer=viewer, pinned=True)
            messages.success(request, f"Saved as “{made.name}”.")
            return redirect(view_url(made.pk))
    context = {
        "form": form,
        "view": None,
        "pinned_by": (),
        "query": query.querystring(),
        "notices": problem_notices(problems),
        "back_url": explore_url(query),
        "found": found_now(query, viewer),
    }
    return private(
        render(request, "views/form.html", context, status=422 if form.errors or (is_post and problems) else 200)
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def edit_view(request: HttpRequest, view_id: int) -> HttpResponse:
    """Rename a view, share it, or store another query in it."""
    viewer = page_viewer(request)
    one = _own(viewer, view_id)
    if request.method == "POST" and "query" in request.POST:
        query, problems = read_query(_pairs(request.POST["query"]))
        if problems:
            # Without what is wrong, it would find more than was meant.
            messages.error(request, f"“{one.view.name}” stays as it was. {QueryError(problems)}")
            return redirect(view_url(one.id))
        saved_view_change(view=one.view, viewer=viewer, query=query.search, presentation=presentation_of(query))
        messages.success(request, f"“{one.view.name}” is saved as it is now.")
        return redirect(view_url(one.id))
    stored = {name: getattr(one.view, name) for name in ViewForm.base_fields}
    form = ViewForm(request.POST if request.method == "POST" else None, initial=stored)
    if request.method == "POST" and form.is_valid():
        try:
            saved_view_change(view=one.view, viewer=viewer, **form.cleaned_data)
        except ViewRefusedError as error:
            form.refuse(error)
        else:
            messages.success(request, f"“{one.view.name}” is saved.")
            return redirect("explorer:views")
    others = ViewMark.objects.filter(view=one.view, pinned=True).exclude(user_id=one.view.owner_id)
    context = {
        "form": form,
        "view": one.view,
        "query": "",
        "notices": (),
        "back_url": "",
        "found": found_now(page_query_of(one), viewer),
        "pinned_by": sorted(others.values_list("user__username", flat=True)),
    }
    return private(render(request, "views/form.html", context, status=422 if form.errors else 200))


@require_POST
@login_required
def mark_view(request: HttpRequest, view_id: int) -> HttpResponse:
    """Pin a view or begin with it, or no longer, as the fields `pinned` and `default` say."""
    viewer = page_viewer(request)
    one = _openable(viewer, view_id)
    given = {name: request.POST[name] == "1" for name in ("pinned", "default") if name in request.POST}
    view_mark(view=one.view, viewer=viewer, pinned=given.get("pinned"), is_default=given.get("default"))
    return HttpResponseRedirect(return_url(request) or reverse("explorer:views"))


@require_POST
@login_required
def delete_view(request: HttpRequest, view_id: int) -> HttpResponse:
    one = _own(page_viewer(request), view_id)
    saved_view_delete(view=one.view, viewer=page_viewer(request))
    messages.success(request, f"The view “{one.view.name}” is deleted. Its memories are where they were.")
    return redirect("explorer:views")


def _name_of(parts: Iterable[str]) -> str:
    """The name that is proposed: the query in words."""
    text = ", ".join(parts)
    return f"{text[:1].upper()}{text[1:]}"[:_MOST_OF_NAME]


def _name_and_query(request: HttpRequest) -> tuple[str, list[Pair]]:
    """The name that is proposed for a new view, and the parameters of its query."""
    if request.method == "POST":
        return "", _pairs(request.POST.get("query", ""))
    pairs = request_pairs(request)
    return request.GET.get("name", ""), [(key, value) for key, value in pairs if key != "name"]


def _pairs(querystring: str) -> list[Pair]:
    return parse_qsl(querystring.lstrip("?"), keep_blank_values=True)


def _openable(viewer: Viewer, view_id: int) -> OpenableView:
    try:
        return openable_view(viewer, view_id)
    except ViewNotFoundError as error:
        raise Http404(str(error)) from error


def _own(viewer: Viewer, view_id: int) -> OpenableView:
    one = _openable(viewer, view_id)
    if not one.is_own:
        raise PermissionDenied("This is a view of somebody else; save a copy to change it.")
    return one
