"""The pages of access: signing in, one's account, keys, people and invitations, and apps that act for somebody."""

from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm, UserCreationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.core.exceptions import NON_FIELD_ERRORS, PermissionDenied
from django.core.paginator import Paginator
from django.core.signing import BadSignature
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.clients import PLACEHOLDER, instructions, snippets
from access.forms import SCOPE_LABELS, ConnectForm, InvitationForm, KeyForm, PasswordForm, RoleForm, SignInForm
from access.grants import APP_SCOPES, ConsentRequest, grant_create
from access.keys import GRACE, KeyRefusedError, NewKey, live_keys, make_key, revoke_key, rotate_key
from access.models import ApiKey, Membership
from access.services import (
    InvitationRefusedError,
    KeyRights,
    LastAdminError,
    account_create,
    invitation_accept,
    invitation_create,
    invitation_find,
    invitation_revoke,
    key_rights,
    membership_remove,
    membership_set,
)
from access.sign_in import remember_browser, sign_in_token_redeem
from access.team import EXAMPLE, missing_lines, read_state, team_steps, wanted_site
from access.viewer import audit, viewer_of_user
from memories.models import Project
from web.middleware import CONTENT_SECURITY_POLICY
from web.serving import Reach, public_address, public_site, reach_of, speaks_safely
from web.templates import render_block


class SignIn(LoginView):
    template_name = "access/sign_in.html"
    authentication_form = SignInForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        provider = settings.OIDC_NAME if settings.OIDC_ISSUER else ""
        return super().get_context_data(**{"provider": provider, "refusal": "", "link_is_spent": False, **kwargs})

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        token = request.GET.get("token")
        # Previews and link checkers, which send HEAD, must not use up the link.
        if token is None or request.method == "HEAD":
            return super().get(request, *args, **kwargs)
        if user := sign_in_token_redeem(token):
            login(request, user, backend="django.contrib.auth.backends.ModelBackend")
            response = HttpResponseRedirect(self.get_success_url())
            remember_browser(response, user)
            return response
        # A signed-in user may reload a used link.
        if request.user.is_authenticated:
            return HttpResponseRedirect(self.get_success_url())
        return self.render_to_response(self.get_context_data(link_is_spent=True), status=403)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_valid(form)
        remember_browser(response, form.get_user())
        return response

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_invalid(form)
        if form.has_error(NON_FIELD_ERRORS, code="too_many"):
            response.status_code = 429
        return response


# --- one's account -----------------------------------------------------------------------------------------------


@sensitive_post_parameters()
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def account(request: HttpRequest) -> HttpResponse:
    """The roles of somebody, and how they sign in: another password, the accounts of the provider, if there is one."""
    user = cast(User, request.user)
    form = PasswordForm(user, request.POST or None, request=request) if user.has_usable_password() else None
    if request.method == "POST" and form and form.is_valid():
        with transaction.atomic():
            form.save()
            audit(viewer_of_user(user), "user_change", user, note="password")
        # Other sessions end, this one stays.
        update_session_auth_hash(request, user)
        messages.info(request, "Your password is changed. Other places where you were signed in ask for it.")
        return redirect("access:account")
    memberships = Membership.objects.filter(user=user).select_related("project").order_by("project__slug")
    keys = live_keys().filter(created_by=user).order_by("name").values_list("name", flat=True)
    context: dict[str, Any] = {"form": form, "memberships": memberships, "keys": keys, "provider": ""}
    if settings.OIDC_ISSUER:
        # Only then are the tables of allauth there.
        from access.oidc import linked_accounts

        context |= linked_accounts(request)
    response = render(request, "access/account.html", context, status=422 if form and form.errors else 200)
    return _not_stored(response)


# --- keys --------------------------------------------------------------------------------------------------------


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def keys(request: HttpRequest) -> HttpResponse:
    """The user's keys, and a form for a new one. A new key is shown once."""
    rights = key_rights(request.user)
    form = KeyForm(request.POST or None, rights=rights)
    new = None
    if request.method == "POST" and not rights:
        raise PermissionDenied("Only admins of projects can create keys: ask one of them.")
    if request.method == "POST" and form.is_valid():
        new = make_key(**form.options(), viewer=viewer_of_user(request.user))
        form = KeyForm(rights=rights)
    return _keys_page(request, rights, form=form, new=new)


@require_POST
@login_required
def key_rotate(request: HttpRequest, key_id: int) -> HttpResponse:
    rights = key_rights(request.user)
    key = get_object_or_404(rights.keys(), pk=key_id)
    try:
        new = rotate_key(key=key, viewer=viewer_of_user(request.user), grace=GRACE)
    except KeyRefusedError as error:
        return _keys_page(request, rights, form=KeyForm(rights=rights), error=str(error), status=409)
    return _keys_page(request, rights, form=KeyForm(rights=rights), new=new, replaced=key)


@require_POST
@login_required
def key_revoke(request: HttpRequest, key_id: int) -> HttpResponse:
    key = get_object_or_404(key_rights(request.user).keys(), pk=key_id)
    ended = revoke_key(key=key, viewer=viewer_of_user(request.user))
    messages.info(request, f"The key “{key.name}” ({key.prefix}…) {'is revoked' if ended else 'was already revoked'}.")
    return redirect("access:keys")


def _keys_page(
    request: HttpRequest,
    rights: KeyRights,
    *,
    form: KeyForm,
    new: NewKey | None = None,
    replaced: ApiKey | None = None,
    error: str = "",
    status: int = 200,
) -> HttpResponse:
    context = {
        "form": form,
        "new": new,
        "replaced": replaced,
        "error": error,
        "may_create": bool(rights),
        "keys": sorted(rights.keys(), key=lambda key: not key.is_live),
        "limit": settings.API_REQUESTS_PER_MINUTE,
    }
    failed = 422 if form.errors else status
    response = render(request, "access/keys.html", context, status=failed)
    return _not_stored(response)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def agents(request: HttpRequest) -> HttpResponse:
    """A new key for an agent, and the texts to paste for each client. With the key in them they are shown once."""
    rights, site = key_rights(request.user), public_site(request)
    # No project is chosen unasked, unless there is one alone.
    projects = [str(project.pk) for project in rights.projects] if len(rights.projects) == 1 else []
    form = KeyForm(
        request.POST or None,
        rights=rights,
        initial={"name": "Agent", "scopes": ["read", "write"], "projects": projects},
    )
    if request.method == "POST" and not rights:
        raise PermissionDenied("Only admins of projects can create keys: ask one of them.")
    new = make_key(**form.options(), viewer=viewer_of_user(request.user)) if form.is_valid() else None
    named = [] if new is None or new.key.every_project else [project.slug for project in new.key.projects.all()]
    may_write = new is None or bool({"write", "admin"} & set(new.key.scopes))
    context = {
        "form": form,
        "may_create": bool(rights),
        "new": new,
        "key": new.key if new else None,
        "site": site,
        "placeholder": PLACEHOLDER,
        "warning": "" if speaks_safely(site) else _UNSAFE.format(site=site),
        "is_for_this_machine": reach_of(site) is Reach.MACHINE,
        "may_serve": rights.every_project,
        "snippets": snippets(site, new.raw if new else ""),
        "instructions": instructions(named, may_write=may_write),
    }
    return _not_stored(render(request, "access/agents.html", context, status=422 if form.errors else 200))


_UNSAFE = "{site} is not encrypted: who listens in the network reads the key and all memories that are sent."


@require_safe
@login_required
def first_call(request: HttpRequest, key_id: int) -> HttpResponse:
    """Whether an agent has used its key; asked for until it has."""
    key = get_object_or_404(key_rights(request.user).keys(), pk=key_id)
    return _not_stored(HttpResponse(render_block(request, "access/agents.html", "first_call", {"key": key})))


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
        "reach": reach_of(link).name.lower() if link else "",
        "is_open": bool(link) and not speaks_safely(link),
        "may_serve": rights.every_project,
        "role_form": _role_form(rights),
        "roles": Membership.Role.choices,
        "page": Paginator(rights.memberships(), PAGE).get_page(request.GET.get("page")),
        "invitations": rights.invitations(),
        "superusers": rights.people().filter(is_superuser=True) if rights.every_project else (),
    }
    response = render(request, "access/people.html", context, status=422 if form.errors else 200)
    return _not_stored(response)


@require_safe
@login_required
def serve(request: HttpRequest) -> HttpResponse:
    """How others can reach this site: the settings as they are, and those that are missing, in order."""
    rights = key_rights(request.user)
    if not rights.every_project:
        raise PermissionDenied("Only those who administer every project see the settings of this site.")
    asked, wanted, problem = request.GET.get("address", ""), "", ""
    try:
        wanted = wanted_site(asked) if asked else ""
    except ValueError as error:
        problem = str(error)
    state = read_state(request, rights)
    steps = team_steps(state, wanted)
    address = wanted or (settings.PUBLIC_URL if settings.PUBLIC_URL.startswith("https://") else EXAMPLE)
    context = {
        "steps": steps,
        "lines": missing_lines(steps),
        "asked": asked or address,
        "problem": problem,
        "address": address,
        "host": urlsplit(address).netloc,
        "path": urlsplit(address).path,
        "port": settings.PORT,
        "has_provider": bool(settings.OIDC_ISSUER),
        "callback": f"{address}/sign-in/oidc/callback/",
    }
    return _not_stored(render(request, "access/serve.html", context, status=422 if problem else 200))


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
    return _not_stored(response)


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
            return _back(asked, code=grant_create(asked=asked, user=person, **form.options()))
    context = {"asked": asked, "form": form, "host": _origin(asked.redirect_uri), "may_nothing": not scopes}
    context |= {"unticked": [SCOPE_LABELS[scope] for scope in scopes if scope != "read"], "is_spent": False}
    response = render(request, "access/connect.html", context, status=422 if form.errors else 200)
    # The form leads back to the app, to which browsers apply the policy as well.
    own = f"form-action 'self' {_origin(asked.redirect_uri)}"
    response["Content-Security-Policy"] = CONTENT_SECURITY_POLICY.replace("form-action 'self'", own)
    return _not_stored(response)


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


def _not_stored(response: HttpResponse) -> HttpResponse:
    """A page that may contain a key, or a link that lets somebody in."""
    response["Cache-Control"] = "private, no-store"
    return response
