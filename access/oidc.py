"""Signing in through an OpenID Connect provider, by django-allauth: who is let in, and with which roles.

It is imported only if `OIDC_ISSUER` is set.
"""

import logging
from typing import Any, NoReturn

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from allauth.socialaccount.providers.oauth2.views import OAuth2CallbackView, OAuth2LoginView
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path

from access.audit import audit
from access.models import Membership
from access.services import membership_remove, membership_set
from access.viewer import SCOPES, Viewer, viewer_of_user
from memories.models import Project

logger = logging.getLogger("mnemoscope.sign_in")
PROVIDER = "oidc"
Role = Membership.Role


class AccountAdapter(DefaultAccountAdapter):  # type: ignore[misc]  # allauth is not checked
    def add_message(self, *args: Any, **kwargs: Any) -> None:
        """Say nothing: the page after signing in does."""


class Adapter(DefaultSocialAccountAdapter):  # type: ignore[misc]  # allauth is not checked
    """Lets people of the allowed domains in, and gives them the roles that their claims stand for."""

    def pre_social_login(self, request: HttpRequest, sociallogin: SocialLogin) -> None:
        claims = _claims_of(sociallogin)
        allowed = settings.OIDC_ALLOWED_DOMAINS
        if allowed and not (claims.get("email_verified") is True and _domain_of(claims) in allowed):
            logger.warning("%r of the provider is not let in: its domain is not allowed.", str(claims.get("sub"))[:100])
            _refuse(request, "Your account there is not allowed to sign in here. Ask an admin of this site.")
        if sociallogin.is_existing:
            roles_from_claims(sociallogin.user, claims)

    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        with transaction.atomic():
            user: User = super().save_user(request, sociallogin, form)
            audit(viewer_of_user(user), "user_create", user, after={"username": user.username}, note=settings.OIDC_NAME)
            roles_from_claims(user, _claims_of(sociallogin))
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
    return _view(OAuth2LoginView, request, provider_id)


def callback(request: HttpRequest, provider_id: str) -> HttpResponse:
    return _view(OAuth2CallbackView, request, provider_id)


def _view(view: Any, request: HttpRequest, provider_id: str) -> HttpResponse:
    if provider_id != PROVIDER:
        raise Http404
    response: HttpResponse = view.adapter_view(VerifyingAdapter(request, provider_id))(request)
    return response


# By the names that allauth looks them up.
urlpatterns = [
    path("sign-in/<str:provider_id>/", login, name="openid_connect_login"),
    path("sign-in/<str:provider_id>/callback/", callback, name="openid_connect_callback"),
]


@transaction.atomic
def roles_from_claims(user: User, claims: dict[str, Any]) -> None:
    """Give the highest role that a claim stands for in each project that the rules name, and end others there."""
    rules = settings.OIDC_ROLES
    if not rules:
        return
    ranks = {role.value: rank for rank, role in enumerate(Role)}
    named = {project for *_, project in rules}
    projects = Project.objects.all() if "*" in named else Project.objects.filter(slug__in=named)
    held = {membership.project_id: membership for membership in Membership.objects.filter(user=user)}
    # It decides for every project, like whoever wrote the rules.
    viewer = Viewer(None, frozenset(SCOPES), None, user_id=user.pk)
    for project in projects:
        roles = [
            role
            for claim, value, role, slug in rules
            if slug in ("*", project.slug) and value in _values(claims, claim)
        ]
        if roles:
            role = Role(max(roles, key=ranks.__getitem__))
            membership_set(user=user, project=project, role=role, viewer=viewer, note="by claims")
        elif project.pk in held:
            membership_remove(membership=held[project.pk], viewer=viewer)


def _claims_of(sociallogin: SocialLogin) -> dict[str, Any]:
    """The claims of a person: those of the signed identity, and further ones that the provider answers."""
    data = sociallogin.account.extra_data
    return {**(data.get("userinfo") or {}), **(data.get("id_token") or {})}


def _values(claims: dict[str, Any], claim: str) -> list[str]:
    value = claims.get(claim)
    return [str(one) for one in value] if isinstance(value, list) else [str(value)]


def _domain_of(claims: dict[str, Any]) -> str:
    return str(claims.get("email", "")).rpartition("@")[2].lower()


def _refuse(request: HttpRequest, reason: str) -> NoReturn:
    """Answer with the page for signing in, whatever allauth would do."""
    context = {"refusal": reason, "provider": settings.OIDC_NAME}
    raise ImmediateHttpResponse(render(request, "access/sign_in.html", context, status=403))
