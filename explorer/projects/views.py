"""The pages of projects: what there is, a new one, and changing or removing one."""

from typing import cast

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from access.viewer import Viewer
from explorer.http import page_viewer, private, return_url
from explorer.projects.page import ProjectSettingsForm, project_rows
from memories.models import Project
from memories.projects import project_delete
from web.errors import Refusal


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def projects(request: HttpRequest) -> HttpResponse:
    """The projects that one sees; and a form for a new one, for those who may make one."""
    viewer, user = page_viewer(request), cast(User, request.user)
    may_create = viewer.may_write(None)
    if request.method == "POST" and not may_create:
        raise PermissionDenied("Only those who administer every project make new ones.")
    # The form of another page gives no more than the name.
    sent = request.POST.copy()
    sent.setdefault("language", "english")
    form = ProjectSettingsForm(sent if request.method == "POST" else None)
    if form.is_valid() and (project := form.save(viewer)):
        messages.success(request, f"The project {project.name} is made.")
        return HttpResponseRedirect(return_url(request) or reverse("explorer:projects"))
    rows = project_rows(viewer, user)
    context = {"rows": rows, "form": form, "may_create": may_create, "next_url": return_url(request)}
    return private(render(request, "projects/list.html", context, status=422 if form.is_bound else 200))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def project(request: HttpRequest, project_id: int) -> HttpResponse:
    """Change a project."""
    viewer, user = page_viewer(request), cast(User, request.user)
    found = _changeable(project_id, viewer)
    form = ProjectSettingsForm(request.POST if request.method == "POST" else None, found)
    if form.is_valid() and (changed := form.save(viewer)):
        messages.success(request, f"Saved {changed.name}.")
        return HttpResponseRedirect(reverse("explorer:projects"))
    context = {"row": project_rows(viewer, user, found)[0], "form": form}
    return private(render(request, "projects/edit.html", context, status=422 if form.is_bound else 200))


@require_POST
@login_required
def remove_project(request: HttpRequest, project_id: int) -> HttpResponse:
    viewer = page_viewer(request)
    found = _changeable(project_id, viewer)
    try:
        project_delete(project=found, viewer=viewer)
        messages.success(request, f"The project {found.name} is removed.")
    except Refusal as error:
        messages.error(request, f"Not removed. {error.explanation}")
    return HttpResponseRedirect(reverse("explorer:projects"))


def _changeable(project_id: int, viewer: Viewer) -> Project:
    """A project that the viewer may change."""
    found = Project.objects.filter(pk=min(project_id, 2**63 - 1)).first() if viewer.may_see(project_id) else None
    if found is None:
        raise Http404(f"There is no project {project_id} that you can see.")
    if not viewer.may_curate(found.pk):
        raise PermissionDenied(f"You can read {found.slug}, but not change it: that is for its curators and admins.")
    return found
