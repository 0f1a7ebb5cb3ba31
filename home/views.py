"""The home page."""

from datetime import UTC, datetime, timedelta

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from explorer.explore.page import problem_notices
from explorer.http import page_viewer, private, request_pairs
from home.models import Visit
from home.overview import FIRST_SPAN, HomeRequest, overview
from home.page import home_context
from home.steps import next_steps
from transfer.jobs import may_import
from transfer.queries import is_empty, sample_batch
from transfer.views import import_context

# Looks within this time of the last one belong to the same visit.
_ONE_VISIT = timedelta(minutes=30)
# A look is recorded at most this often.
_STAMP_EVERY = timedelta(minutes=1)


def visit_record(*, user_id: int, now: datetime) -> datetime | None:
    """Record a look at the home page. Returns the end of the visit before this one; None for the first."""
    visit, is_new = Visit.objects.get_or_create(user_id=user_id, defaults={"last_at": now})
    if is_new:
        return None
    pause = now - visit.last_at
    if pause > _STAMP_EVERY:
        if pause > _ONE_VISIT:
            visit.before_at = visit.last_at
        visit.last_at = now
        visit.save(update_fields=["last_at", "before_at"])
    return visit.before_at


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
        "may_import": may_import(viewer),
        "notices": problem_notices(problems),
        "steps": next_steps(request.user, viewer, sample_batch()),
    }
    return private(render(request, "home/home.html", page, status=422 if problems else 200))
