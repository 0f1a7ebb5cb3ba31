"""The status page."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from access.viewer import may_write_everything
from explorer.http import PageRequest, page_response, page_viewer, wants_fragment
from explorer.status.reads import backup_is_running, backup_start, build_status, measure_groups, site_status, to_watch


@require_safe
@login_required
def status(request: PageRequest) -> HttpResponse:
    viewer = page_viewer(request)
    state = site_status(viewer)
    context: dict[str, Any] = {"status": build_status(state)}
    if not wants_fragment(request):
        groups = measure_groups(viewer, state)
        context |= {
            "to_watch": to_watch(groups),
            "may_act": may_write_everything(viewer),
            "backup_runs": viewer.project_ids is None and backup_is_running(),
            "groups": groups,
        }
    return page_response(request, "memories/status.html", context, partial="status", timings={})


@require_POST
@login_required
def back_up(request: HttpRequest) -> HttpResponse:
    """Start a backup in the background; the page looks for its end."""
    if not may_write_everything(page_viewer(request)):
        raise PermissionDenied("Only who may write to all projects makes backups.")
    backup_start()
    messages.info(request, "A backup has been started.")
    return HttpResponseRedirect(reverse("explorer:status"))
