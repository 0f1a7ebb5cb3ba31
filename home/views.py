"""The home page."""

from datetime import UTC, datetime

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from access.viewer import may_write_everything
from explorer.explore.page import problem_notices
from explorer.http import page_viewer, private, request_pairs
from home.overview import FIRST_SPAN, HomeRequest, overview
from home.page import home_context
from home.visits import visit_record
from transfer.queries import is_empty, only_sample
from transfer.views import import_context


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponse:
    own, rest = HomeRequest.split(request_pairs(request))
    if rest:
        # Searches used to have this address.
        return HttpResponseRedirect(f"{reverse('explorer:explore')}?{request.META['QUERY_STRING']}")
    viewer, now = page_viewer(request), datetime.now(UTC)
    if is_empty(viewer):
        return private(render(request, "home/imports.html", import_context(request, viewer)))
    asked, problems = HomeRequest.read(own)
    last_visit = visit_record(user_id=viewer.user_id, now=now) if viewer.user_id else None
    found = overview(viewer, asked.since or last_visit or FIRST_SPAN, now)
    page = {
        **home_context(found, asked=asked.since, last_visit=last_visit, now=now, zone=viewer.timezone),
        "notices": problem_notices(problems),
        "sample": only_sample() if may_write_everything(viewer) else None,
    }
    return private(render(request, "home/home.html", page, status=422 if problems else 200))
