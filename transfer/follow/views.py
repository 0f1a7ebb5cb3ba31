"""The pages about followed sources: what was read of each, what differs from edits made here, and stop."""

from datetime import UTC, datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from explorer.history.page import compare
from explorer.http import PageRequest, page_response, page_viewer
from explorer.links import import_url
from text.formatting import day_label
from text.highlight import plain_title
from transfer.follow.page import followed_line
from transfer.follow.process import is_followed_now
from transfer.follow.queries import conflicts_read, newest_read, readings_read
from transfer.follow.services import conflict_settle, source_gone_settle, source_stop
from transfer.follow.sources import SourceRefusedError, source_named
from transfer.follow.write_back import is_writable, write_back_set
from transfer.formats.base import ImportFailedError
from transfer.views import past_functions, refusing

CONFLICTS, _READINGS, _NEWEST = 50, 20, 8


@require_safe
@login_required
@refusing
def follow(request: PageRequest, source_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    source = source_named(viewer, source_id)
    now, follows = datetime.now(UTC), is_followed_now()
    line = followed_line(source, now, is_followed_now=follows)
    conflicts = conflicts_read(source, CONFLICTS)
    context = {
        "source": source,
        "line": line,
        "is_writable": is_writable(source),
        "is_followed_now": follows or line.is_reading,
        "conflicts": conflicts,
        "more_conflicts": getattr(source, "open_conflicts", 0) - len(conflicts),
        "compare": compare,
        "newest": newest_read(source, viewer, _NEWEST),
        "brought_url": import_url(f"followed:{source.pk}"),
        "zone": viewer.timezone,
        "plain_title": plain_title,
        "day_label": day_label,
        "past": readings_read(source, _READINGS),
        "jobs": {},
        **past_functions(now, viewer.timezone),
    }
    return page_response(request, "home/follow.html", context, partial="source", timings={})


@require_POST
@login_required
@refusing
def stop(request: PageRequest, source_id: int) -> HttpResponse:
    source = source_named(page_viewer(request), source_id)
    source_stop(source)
    messages.info(request, f"{source.path} is followed no longer. Its memories stay.")
    return redirect("imports:imports")


@require_POST
@login_required
@refusing
def write_back(request: PageRequest, source_id: int) -> HttpResponse:
    """Begin or cease to write edits made here into the notes of a source."""
    source = source_named(page_viewer(request), source_id)
    on = request.POST.get("on") == "1"
    try:
        write_back_set(source, on=on)
    except ImportFailedError as error:
        raise SourceRefusedError(str(error)) from None
    messages.info(
        request, "Edits made here are written into its notes." if on else "Nothing is written to it any more."
    )
    return redirect("imports:follow", source_id)


@require_POST
@login_required
@refusing
def gone(request: PageRequest, source_id: int) -> HttpResponse:
    """Decide about many memories that are gone at once."""
    source = source_named(page_viewer(request), source_id)
    delete = request.POST.get("answer") == "delete"
    source_gone_settle(source, delete=delete)
    messages.info(request, "They are being deleted here too." if delete else "They stay, and are no longer followed.")
    return redirect("imports:follow", source_id)


@require_POST
@login_required
@refusing
def conflict(request: PageRequest, source_id: int, memory_id: int) -> HttpResponse:
    """Decide a conflict: take the source's record, or keep the memory as it is here."""
    viewer = page_viewer(request)
    source_named(viewer, source_id)
    take = request.POST.get("take") == "source"
    try:
        conflict_settle(source_id=source_id, memory_id=memory_id, take=take, viewer=viewer)
    except ImportFailedError as error:
        raise SourceRefusedError(str(error)) from None
    messages.info(request, f"#{memory_id} is as in its source now." if take else f"#{memory_id} stays as it is here.")
    return redirect("imports:follow", source_id)
