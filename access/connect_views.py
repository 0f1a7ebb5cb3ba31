"""The page on which a person lets an app act for them."""

from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from django import forms
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.signing import BadSignature
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from access.forms import EVERY
from access.grants import APP_SCOPES, ConsentRequest, grant_create
from access.viewer import viewer_of_user
from memories.models import Project
from web.middleware import CONTENT_SECURITY_POLICY

_LABELS = {
    "read": "search and read",
    "write": "store, change and delete memories",
    "curate": "change the vocabulary, and decide suggestions",
}


class ConnectForm(forms.Form):
    """The choice of what an app may do: no more than it asks for, and no more than the person may."""

    scopes = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, initial=["read"], label="It may")
    projects = forms.MultipleChoiceField(widget=forms.CheckboxSelectMultiple, initial=[EVERY], label="In")

    def __init__(self, *args: Any, scopes: list[str], projects: list[Project], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.offered = projects
        self.fields["scopes"].choices = [(scope, _LABELS[scope]) for scope in scopes]  # type: ignore[attr-defined]
        every = (EVERY, "All my projects, including future ones")
        self.fields["projects"].choices = [every, *((str(p.pk), p.name or p.slug) for p in projects)]  # type: ignore[attr-defined]

    def clean_projects(self) -> list[str]:
        chosen: list[str] = self.cleaned_data["projects"]
        if EVERY in chosen and len(chosen) > 1:
            raise forms.ValidationError("Select all projects or some of them, not both.")
        return chosen

    def grant_options(self) -> dict[str, Any]:
        """The keyword arguments of `access.grants.grant_create`."""
        chosen = self.cleaned_data["projects"]
        return {
            "scopes": self.cleaned_data["scopes"],
            "projects": [project for project in self.offered if str(project.pk) in chosen],
            "every_project": EVERY in chosen,
        }


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def connect(request: HttpRequest) -> HttpResponse:
    """Ask the person, and go back to the app with the answer."""
    try:
        asked = ConsentRequest.read(request.GET.get("request", ""))
    except BadSignature:
        return render(request, "access/connect.html", {"is_spent": True}, status=400)
    person = cast(User, request.user)
    viewer = viewer_of_user(person)
    visible = Project.objects.order_by("slug")
    if viewer.project_ids is not None:
        visible = visible.filter(pk__in=viewer.project_ids)
    scopes = [scope for scope in APP_SCOPES if scope in asked.scopes and scope in viewer.scopes]
    form = ConnectForm(request.POST or None, scopes=scopes, projects=list(visible))
    if request.method == "POST":
        if "deny" in request.POST:
            return _back(asked, error="access_denied")
        if form.is_valid():
            return _back(asked, code=grant_create(asked=asked, user=person, **form.grant_options()))
    context = {"asked": asked, "form": form, "host": _origin(asked.redirect_uri), "may_nothing": not scopes}
    context |= {"unticked": [_LABELS[scope] for scope in scopes if scope != "read"], "is_spent": False}
    response = render(request, "access/connect.html", context, status=422 if form.errors else 200)
    # The form leads back to the app, to which browsers apply the policy as well.
    own = f"form-action 'self' {_origin(asked.redirect_uri)}"
    response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY.replace("form-action 'self'", own)
    response["Cache-Control"] = "private, no-store"
    return response


def _origin(uri: str) -> str:
    """The part of an address that browsers compare: scheme and host, or the own scheme of an app."""
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else f"{parts.scheme}:"


def _back(asked: ConsentRequest, **answer: str) -> HttpResponse:
    parts = urlsplit(asked.redirect_uri)
    if asked.state is not None:
        answer["state"] = asked.state
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *answer.items()])
    response = HttpResponse(status=302)
    # Not one of Django's redirects, which refuse the schemes of apps; the address was checked when the app registered.
    response["Location"] = parts._replace(query=query).geturl()
    response["Cache-Control"] = "no-store"
    return response
