"""The page of the log of reads."""

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from explorer.explore.page import problem_notices
from explorer.http import PageRequest, page_viewer, private, request_pairs
from explorer.reads.listing import ReadsPage, ReadsRequest, list_reads, readers_to_choose
from explorer.reads.page import build_reads
from web.params import QueryError


@require_safe
@login_required
def reads(request: PageRequest) -> HttpResponse:
    viewer = page_viewer(request)
    asked, problems = ReadsRequest.read((key, value) for key, value in request_pairs(request) if value)
    # With a filter that cannot be read nothing is shown, rather than more than was asked for.
    found = ReadsPage((), None)
    if not problems:
        try:
            found = list_reads(asked, viewer)
        except QueryError as error:
            problems = error.problems
    names = readers_to_choose(viewer)
    page = build_reads(found, asked, viewer, names, settings.READS_DAYS, problem_notices(problems))
    return private(render(request, "explorer/reads.html", {"page": page}, status=422 if problems else 200))
