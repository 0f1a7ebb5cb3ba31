"""The pages of saved views: the list, opening one, the forms that change them, and their feeds."""

import math
import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.feedgenerator import Atom1Feed
from django.utils.html import escape
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.limits import buckets
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
from explorer.links import explore_url, memory_url
from explorer.views.page import (
    ViewForm,
    describe,
    found_now,
    in_view,
    new_link,
    page_query_of,
    presentation_of,
    ready_made,
    view_url,
)
from memories.models import MemoryRead
from memories.recalls import record_passing
from search.models import ViewMark
from search.query import SearchQuery, Sort
from search.result import Hit, HitDetail
from search.run import run
from search.saved_views import (
    MOST_COUNTED,
    OpenableView,
    OpenedFeed,
    ViewNotFoundError,
    ViewRefusedError,
    count_views,
    open_feed,
    openable_view,
    openable_views,
    saved_view_change,
    saved_view_create,
    saved_view_delete,
    view_feed_create,
    view_feed_of,
    view_feed_revoke,
    view_mark,
)
from text.highlight import plain_title
from web.params import Pair, QueryError
from web.serving import public_address

_MOST_OF_NAME = 80


@require_safe
@login_required
def views(request: PageRequest) -> HttpResponse:
    """The list. The page comes at once, and its counts after it, or with `counts` for readers without scripts."""
    viewer = page_viewer(request)
    found = openable_views(viewer)
    counted = wants_fragment(request) or "counts" in request.GET
    context = {
        "groups": [
            ("Pinned", [one for one in found if one.pinned]),
            ("Mine", [one for one in found if one.is_own and not one.pinned]),
            ("Of the team", [one for one in found if not one.is_own and not one.pinned]),
        ],
        "total": len(found),
        "counted": counted,
        "counts": count_views(found, viewer) if counted else {},
        "new_link": new_link,
        "parts_of": lambda one: describe(page_query_of(one)),
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


# The newest memories of a view that its feed has.
ENTRIES = 50
# A program that reads a feed asks every few minutes; each answer costs a search.
_PER_MINUTE = 20
# Characters that XML cannot have, whatever a memory says.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def feed_settings(request: HttpRequest, view_id: int) -> HttpResponse:
    """Whether a person has a feed of a view. `make` makes its address, which is shown once; `revoke` ends it."""
    viewer = page_viewer(request)
    try:
        one = openable_view(viewer, view_id)
    except ViewNotFoundError as error:
        raise Http404(str(error)) from error
    # Before a new address ends the old one: looking may fail, and the new one is shown once.
    # In the order of the feed.
    found, address = found_now(page_query_of(one).with_(sort=Sort.NEWEST), viewer), ""
    if request.method == "POST" and "revoke" in request.POST:
        view_feed_revoke(view=one.view, viewer=viewer)
        messages.success(request, "The address of the feed no longer works.")
        return redirect("explorer:view_feed", view_id)
    if request.method == "POST":
        token = view_feed_create(view=one.view, viewer=viewer)
        address = public_address(request, f"{reverse('explorer:feed')}?{urlencode({'token': token})}")
    context = {
        "view": one.view,
        "found": found,
        "feed": view_feed_of(one.view, viewer),
        "address": address,
        "entries": ENTRIES,
    }
    response = private(render(request, "views/feed.html", context))
    if address:
        response["Cache-Control"] = "private, no-store"
    return response


@require_safe
def feed(request: HttpRequest) -> HttpResponse:
    """The newest memories of a view, for whoever has the secret address."""
    found = open_feed(request.GET.get("token", ""))
    if found is None:
        raise Http404("There is no feed at this address. It may have been revoked.")
    allowance = buckets.take(("feed", found.id), _PER_MINUTE)
    if allowance.wait:
        headers = {"Retry-After": str(math.ceil(allowance.wait))}
        return HttpResponse("This feed is read too often.", status=429, content_type="text/plain", headers=headers)
    response = HttpResponse(_atom(found, request), content_type=Atom1Feed.content_type)
    response["Cache-Control"] = "private, max-age=60"
    # The address is a secret.
    response["Referrer-Policy"] = "no-referrer"
    response["X-Robots-Tag"] = "noindex"
    return response


def _atom(found: OpenedFeed, request: HttpRequest) -> str:
    view = found.one.view
    if found.one.query.refused:
        raise QueryError(SearchQuery.read(found.one.query.refused)[1])
    query = newest(found.one.query)
    atom = Atom1Feed(
        title=_plain(view.name),
        link=request.build_absolute_uri(view_url(view.pk)),
        description=_plain(view.description),
        subtitle=_plain(view.description) or None,
        feed_guid=request.build_absolute_uri(view_url(view.pk)),
        author_name=_plain(view.owner.get_username()),
    )
    hits = run(query, found.viewer, include_facets=False, detail=HitDetail.FULL).hits
    record_passing(found.viewer, [hit.id for hit in hits], MemoryRead.Kind.LIST, query.querystring())
    for hit in hits:
        _add(atom, hit, request)
    return atom.writeString("utf-8")


def newest(query: SearchQuery) -> SearchQuery:
    """The newest memories that a view finds."""
    sort = None if query.is_unified else Sort.NEWEST
    return query.with_(sort=sort, page=1, page_size=ENTRIES, include_facets=False)


def _add(atom: Atom1Feed, hit: Hit, request: HttpRequest) -> None:
    address = request.build_absolute_uri(memory_url(hit.id))
    atom.add_item(
        title=_plain(plain_title(hit.title_text)) or f"Memory {hit.id}",
        link=address,
        # A summary is HTML to its reader, and a memory may say anything.
        description=escape(_plain(hit.snippet_text)),
        unique_id=address,
        pubdate=hit.created_at,
        updateddate=hit.updated_at,
        author_name=_plain(", ".join(hit.authors) or hit.agent or hit.project),
        categories=[_plain(value) for value in (hit.memory_type, *hit.tags)],
    )


def _plain(text: str) -> str:
    return _NOT_XML.sub("", text)
