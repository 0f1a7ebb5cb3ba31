"""The sign-in page, by one-time link or password, and the pages of one's account and of keys."""

from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.core.exceptions import NON_FIELD_ERRORS, PermissionDenied
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from access.audit import audit
from access.forms import KeyForm, PasswordForm, SignInForm
from access.key_rights import KeyRights, key_rights, shown_keys
from access.keys import GRACE, KeyRefusedError, NewKey, live_keys, make_key, revoke_key, rotate_key
from access.models import ApiKey, Membership
from access.sign_in import remember_browser, sign_in_token_redeem
from access.viewer import viewer_of_user
from web.serving import public_site


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
    response["Cache-Control"] = "private, no-store"
    return response


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
        new = make_key(**form.key_options(), viewer=viewer_of_user(request.user))
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
    site = public_site(request)
    context = {
        "form": form,
        "new": new,
        "replaced": replaced,
        "error": error,
        "site": site,
        "may_create": bool(rights),
        "keys": shown_keys(rights.keys()),
        "limit": settings.API_REQUESTS_PER_MINUTE,
    }
    failed = 422 if form.errors else status
    response = render(request, "access/keys.html", context, status=failed)
    # The page may contain a key.
    response["Cache-Control"] = "private, no-store"
    return response
