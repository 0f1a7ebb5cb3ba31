"""Signing in through an OpenID Connect provider, by django-allauth: who is let in, with which roles, and the accounts
there that somebody links with theirs here.

It is imported only if `OIDC_ISSUER` is set.
"""

import logging
from typing import Any, NoReturn, cast
from urllib.parse import urlencode

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialAccount, SocialLogin
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import path, reverse
from django.utils.crypto import constant_time_compare, salted_hmac
from django.views.decorators.http import require_POST, require_safe

from access.services import merge_claims, roles_from_claims
from access.viewer import audit, viewer_of_user

logger = logging.getLogger("mnemoscope.sign_in")
PROVIDER = "oidc"


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth is not checked
    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Say nothing: the page after signing in does."""


class Adapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth is not checked
    """Lets people of the allowed domains in, and gives them the roles that their claims stand for."""

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        claims = _claims_of(sociallogin.account)
        allowed = settings.OIDC_ALLOWED_DOMAINS
        if allowed and not (claims.get("email_verified") is True and _domain_of(claims) in allowed):
            logger.warning("%r of the provider is not let in: its domain is not allowed.", str(claims.get("sub"))[:100])
            _refuse(request, "Your account there is not allowed to sign in here. Ask an admin of this site.")
        if sociallogin.state.get("process") == AuthProcess.CONNECT:
            raise ImmediateHttpResponse(_link(request, sociallogin))
        if sociallogin.is_existing:
            roles_from_claims(sociallogin.user, claims)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        with transaction.atomic():
            user: User = super().save_user(request, sociallogin, form)
            audit(viewer_of_user(user), "user_create", user, after={"username": user.username}, note=settings.OIDC_NAME)
            roles_from_claims(user, _claims_of(sociallogin.account))
        return user

    def on_authentication_error(self, request: HttpRequest, provider: Any, **details: Any) -> NoReturn:
        logger.warning("Signing in through the provider failed: %s %s", details.get("error"), details.get("exception"))
        _refuse(request, f"Signing in with {settings.OIDC_NAME} did not work. Try again.")


class VerifyingAdapter(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]  # allauth is not checked
    """Verifies the signature of the identity also where the standard lets the connection vouch for it."""

    def _decode_id_token(self, app: Any, id_token: str) -> dict[str, Any]:
        self.did_fetch_access_token = False
        claims: dict[str, Any] = super()._decode_id_token(app, id_token)
        return claims


def login(request: HttpRequest, provider_id: str) -> HttpResponse:
    # allauth links accounts at the same address if asked to, and would not ask who it was that asked.
    if "process" in request.GET or "process" in request.POST:
        raise Http404
    return _view(OAuth2LoginView, request, provider_id)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _view(OAuth2CallbackView, request, provider_id)


def _view(view: Any, request: HttpRequest, provider_id: str) -> HttpResponse:
    if provider_id != PROVIDER:
        raise Http404
    response: HttpResponse = view.adapter_view(VerifyingAdapter(request, provider_id))(request)
    return response


# --- the accounts that somebody links with theirs -----------------------------------------------------------------


def linked_accounts(request: HttpRequest) -> dict[str, Any]:
    """The part of an account's page that concerns the provider."""
    user = cast(User, request.user)
    accounts = [
        {"id": account.pk, "name": _name_of(account), "since": account.date_joined, "used": account.last_login}
        for account in SocialAccount.objects.filter(user=user).order_by("pk")
    ]
    return {
        "provider": settings.OIDC_NAME,
        "accounts": accounts,
        "link": f"{reverse('account_link')}?{urlencode({'proof': _proof(request)})}",
        "is_only_way_in": len(accounts) == 1 and not user.has_usable_password(),
        "gives_roles": bool(settings.OIDC_ROLES),
    }


@require_safe
@login_required
def link(request: HttpRequest) -> HttpResponse:
    """Go to the provider, and come back with an account there.

    It takes a proof that this session's own page led here: another site could otherwise send somebody to the provider
    with an account of its own, and sign in as them from then on. It is a link, since browsers refuse forms that lead to
    other sites.
    """
    if not constant_time_compare(request.GET.get("proof", ""), _proof(request)):
        messages.error(request, "That link was not made for you, or before you signed in. Use the button.")
        return redirect("access:account")
    response: HttpResponse = VerifyingAdapter(request, PROVIDER).get_provider().redirect(request, AuthProcess.CONNECT)
    return response


@require_POST
@login_required
@transaction.atomic
def unlink(request: HttpRequest, account_id: int) -> HttpResponse:
    """End a link, unless it is the only way in. With the last one, the roles end that claims gave."""
    # The lock lets the second of two requests see what the first one left.
    user = User.objects.select_for_update().get(pk=cast(User, request.user).pk)
    account = get_object_or_404(SocialAccount, pk=account_id, user=user)
    is_last = not SocialAccount.objects.filter(user=user).exclude(pk=account.pk).exists()
    if is_last and not user.has_usable_password():
        messages.error(request, f"Your account at {settings.OIDC_NAME} is your only way in: it stays linked.")
        return redirect("access:account")
    audit(viewer_of_user(user), "account_unlink", user, before={"sub": account.uid}, note=settings.OIDC_NAME)
    account.delete()
    if is_last:
        roles_from_claims(user, {})
    messages.info(request, f"{_name_of(account)} of {settings.OIDC_NAME} is unlinked.")
    return redirect("access:account")


def _link(request: HttpRequest, sociallogin: SocialLogin) -> HttpResponse:
    """Link an account of the provider with that of whoever is signed in, unless it is somebody else's."""
    account = sociallogin.account
    of_another = (
        f"That account of {settings.OIDC_NAME} belongs to another account of this site. If that one is yours too, "
        "unlink it there first, or ask whoever runs this site to delete the one that you do not need."
    )
    if not request.user.is_authenticated:
        _refuse(request, "You were signed out meanwhile. Sign in, and link the account again.")
    if sociallogin.is_existing:
        if sociallogin.user == request.user:
            messages.info(request, f"{_name_of(account)} of {settings.OIDC_NAME} is linked already.")
        else:
            messages.error(request, of_another)
        return redirect("access:account")
    try:
        with transaction.atomic():
            sociallogin.connect(request, request.user)
            viewer = viewer_of_user(request.user)
            audit(viewer, "account_link", request.user, after={"sub": account.uid}, note=settings.OIDC_NAME)
            roles_from_claims(request.user, _claims_of(account))
    except IntegrityError:
        messages.error(request, of_another)
    else:
        messages.info(request, f"You can sign in as {_name_of(account)} of {settings.OIDC_NAME} now.")
    return redirect("access:account")


def _proof(request: HttpRequest) -> str:
    return salted_hmac("access.oidc.link", request.session.session_key or "").hexdigest()


def _name_of(account: SocialAccount) -> str:
    claims = _claims_of(account)
    return str(claims.get("email") or claims.get("preferred_username") or claims.get("name") or account.uid)


# The first two by the names that allauth looks them up.
urlpatterns = [
    path("sign-in/<str:provider_id>/", login, name="openid_connect_login"),
    path("sign-in/<str:provider_id>/callback/", callback, name="openid_connect_callback"),
    path("settings/account/link/", link, name="account_link"),
    path("settings/account/links/<int:account_id>/unlink/", unlink, name="account_unlink"),
]


# --- claims -------------------------------------------------------------------------------------------------------


def _claims_of(account: SocialAccount) -> dict[str, Any]:
    """The claims of a person: those of the signed identity, and further ones that the provider answers."""
    data = account.extra_data
    return merge_claims(data.get("userinfo") or {}, data.get("id_token") or {})


def _domain_of(claims: dict[str, Any]) -> str:
    return str(claims.get("email", "")).rpartition("@")[2].lower()


def _refuse(request: HttpRequest, reason: str) -> NoReturn:
    """Answer with the page for signing in, whatever allauth would do; whoever is signed in stays so."""
    if request.user.is_authenticated:
        messages.error(request, reason)
        raise ImmediateHttpResponse(redirect("access:account"))
    context = {"refusal": reason, "provider": settings.OIDC_NAME, "link_is_spent": False, "next": ""}
    raise ImmediateHttpResponse(render(request, "access/sign_in.html", context, status=403))
