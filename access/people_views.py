"""The page of people: who has which role where, and invitations; and the page that an invitation leads to."""

from typing import cast

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from access.forms import InvitationForm, RoleForm
from access.key_rights import KeyRights, key_rights
from access.models import Membership
from access.services import (
    InvitationRefusedError,
    LastAdminError,
    account_create,
    invitation_accept,
    invitation_create,
    invitation_find,
    invitation_revoke,
    membership_remove,
    membership_set,
)
from access.viewer import viewer_of_user
from memories.models import Project
from web.serving import is_for_this_machine, public_address

PAGE = 200


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def people(request: HttpRequest) -> HttpResponse:
    """Roles and open invitations, and the forms for more of them. A new link is shown once."""
    rights = _rights(request)
    form = InvitationForm(request.POST or None, projects=_projects(rights))
    link = ""
    if request.method == "POST" and form.is_valid():
        token = invitation_create(**form.invitation_options(), created_by=cast(User, request.user))[1]
        link = public_address(request, reverse("access:join", args=[token]))
        form = InvitationForm(projects=_projects(rights))
    context = {
        "form": form,
        "link": link,
        "is_for_this_machine": is_for_this_machine(link),
        "role_form": _role_form(rights),
        "roles": Membership.Role.choices,
        "page": Paginator(rights.memberships(), PAGE).get_page(request.GET.get("page")),
        "invitations": rights.invitations(),
        "superusers": rights.people().filter(is_superuser=True) if rights.every_project else (),
    }
    response = render(request, "access/people.html", context, status=422 if form.errors else 200)
    # The page may contain a link.
    response["Cache-Control"] = "private, no-store"
    return response


@require_POST
@login_required
def role(request: HttpRequest) -> HttpResponse:
    """Give somebody a role, or end it."""
    form = _role_form(_rights(request), request.POST)
    if not form.is_valid():
        messages.error(request, " ".join(str(error) for errors in form.errors.values() for error in errors))
        return redirect("access:people")
    person, project, chosen = (form.cleaned_data[name] for name in ("person", "project", "role"))
    viewer = viewer_of_user(request.user)
    try:
        if chosen:
            membership_set(user=person, project=project, role=Membership.Role(chosen), viewer=viewer)
            messages.info(request, f"{person} is {chosen} of {project} now.")
        elif held := Membership.objects.filter(user=person, project=project).first():
            membership_remove(membership=held, viewer=viewer)
            messages.info(request, f"{person} has no access to {project} any more.")
    except LastAdminError as error:
        messages.error(request, error.explanation)
    return redirect("access:people")


@require_POST
@login_required
def invitation_withdraw(request: HttpRequest, invitation_id: int) -> HttpResponse:
    invitation = get_object_or_404(_rights(request).invitations(), pk=invitation_id)
    invitation_revoke(invitation=invitation, viewer=viewer_of_user(request.user))
    messages.info(request, "The invitation is withdrawn: its link no longer works.")
    return redirect("access:people")


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest, token: str) -> HttpResponse:
    """Accept an invitation, signed in or with a new account."""
    try:
        return _join(request, token)
    except InvitationRefusedError as error:
        return render(request, "access/join.html", {"refusal": error}, status=error.status)


def _join(request: HttpRequest, token: str) -> HttpResponse:
    invitation, projects = invitation_find(token)
    known = request.user if isinstance(request.user, User) else None
    form: UserCreationForm[User] | None = None if known else UserCreationForm(request.POST or None)
    if request.method == "POST":
        if known:
            invitation_accept(token=token, user=known)
            return redirect("explorer:explore")
        if form and form.is_valid():
            data = form.cleaned_data
            user = account_create(token=token, username=data["username"], password=data["password1"])
            login(request, user, backend="django.contrib.auth.backends.ModelBackend")
            return redirect("explorer:explore")
    context = {"invitation": invitation, "projects": projects, "form": form, "refusal": None}
    response = render(request, "access/join.html", context, status=422 if form and form.errors else 200)
    response["Cache-Control"] = "private, no-store"
    return response


def _rights(request: HttpRequest) -> KeyRights:
    rights = key_rights(request.user)
    if not rights:
        raise PermissionDenied("Only admins of projects see who else is there: ask one of them.")
    return rights


def _projects(rights: KeyRights) -> QuerySet[Project]:
    return Project.objects.filter(pk__in=[project.pk for project in rights.projects]).order_by("slug")


def _role_form(rights: KeyRights, data: QueryDict | None = None) -> RoleForm:
    # Two forms on the page have a field of this name.
    return RoleForm(data, people=rights.people(), projects=_projects(rights), auto_id="give_%s")
