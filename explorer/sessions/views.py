"""The pages of sessions."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from explorer.explore.page import problem_notices
from explorer.http import PageRequest, page_viewer, private, request_pairs
from explorer.links import filter_url
from explorer.listings import SessionsRequest, list_sessions
from explorer.reads.page import read_session_reads
from explorer.sessions.page import SessionPage, build_sessions, sessions_url
from explorer.sessions.reads import SessionNotFoundError, SessionRequest, session_detail
from web.params import QueryError
from web.timing import server_timing

# A filter that cannot be answered is named, and the sessions are listed without it.
_LEFT_OUT = {"project": (), "search": ""}


@require_safe
@login_required
def sessions(request: PageRequest) -> HttpResponse:
    viewer = page_viewer(request)
    asked, problems = SessionsRequest.read(request_pairs(request))
    found = None
    while found is None:
        try:
            found = list_sessions(asked, viewer)
        except QueryError as error:
            without = {one.parameter: _LEFT_OUT[one.parameter] for one in error.problems}
            asked, problems = asked.replace(**without), (*problems, *error.problems)
    context = build_sessions(found, asked, viewer.timezone, problem_notices(problems))
    response = private(render(request, "explorer/sessions.html", {"page": context}))
    response["Server-Timing"] = server_timing(found.timings)
    return response


@require_safe
@login_required
def session(request: PageRequest, session_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    asked, _ = SessionRequest.read(request_pairs(request))
    try:
        found = session_detail(session_id, asked, viewer)
    except SessionNotFoundError as error:
        raise Http404(str(error)) from error
    context = {
        "page": SessionPage(found, asked, viewer.timezone),
        "found": found,
        "session": found.session,
        "zone": viewer.timezone,
        "reads": read_session_reads(viewer, found.session.external_id),
        "filter_url": filter_url,
        "agent_url": sessions_url(SessionsRequest(agent=(found.session.agent,))),
    }
    response = private(render(request, "explorer/session.html", context))
    response["Server-Timing"] = server_timing(found.timings)
    return response
