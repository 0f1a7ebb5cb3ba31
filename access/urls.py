"""Signing in and out, one's account, keys, apps, and people."""

from django.contrib.auth.views import LogoutView
from django.urls import path

from access.views import (
    SignIn,
    account,
    agents,
    connect,
    first_call,
    invitation_withdraw,
    join,
    key_revoke,
    key_rotate,
    keys,
    people,
    role,
    serve,
)

app_name = "access"
urlpatterns = [
    path("sign-in/", SignIn.as_view(), name="sign_in"),
    path("sign-out/", LogoutView.as_view(), name="sign_out"),
    path("connect/", connect, name="connect"),
    path("people/", people, name="people"),
    path("people/role/", role, name="role"),
    path("people/invitations/<int:invitation_id>/withdraw/", invitation_withdraw, name="invitation_withdraw"),
    path("join/<str:token>/", join, name="join"),
    path("settings/account/", account, name="account"),
    path("settings/agents/", agents, name="agents"),
    path("settings/agents/<int:key_id>/", first_call, name="first_call"),
    path("settings/serve/", serve, name="serve"),
    path("settings/keys/", keys, name="keys"),
    path("settings/keys/<int:key_id>/rotate/", key_rotate, name="key_rotate"),
    path("settings/keys/<int:key_id>/revoke/", key_revoke, name="key_revoke"),
]
