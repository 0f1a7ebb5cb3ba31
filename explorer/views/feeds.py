"""Feeds of saved views: the page where a person makes and revokes the address of theirs, and the feed itself."""

import math
import re
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.feedgenerator import Atom1Feed
from django.utils.html import escape
from django.views.decorators.http import require_http_methods, require_safe

from access.limits import buckets
from explorer.http import page_viewer, private
from explorer.links import memory_url
from explorer.views.page import found_now, page_query_of, view_url
from search.query import SearchQuery, Sort
from search.result import Hit, HitDetail
from search.run import run
from search.saved_views import (
    OpenedFeed,
    ViewNotFoundError,
    open_feed,
    openable_view,
    view_feed_create,
    view_feed_of,
    view_feed_revoke,
)
from text.highlight import plain_title
from web.params import QueryError
from web.serving import public_address

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
    for hit in run(query, found.viewer, include_facets=False, detail=HitDetail.FULL).hits:
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
