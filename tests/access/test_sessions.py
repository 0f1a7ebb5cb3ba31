"""Sessions end at once where somebody is signed out."""

import pytest
from django.contrib.sessions.models import Session

pytestmark = pytest.mark.django_db


def test_signing_out_elsewhere_ends_a_session_at_once(client, admin_user):
    client.force_login(admin_user)
    assert client.get("/explore/").status_code == 200
    Session.objects.all().delete()
    assert client.get("/explore/").status_code == 302


def test_user_who_is_deactivated_is_signed_out_at_once(client, admin_user):
    client.force_login(admin_user)
    admin_user.is_active = False
    admin_user.save()
    assert client.get("/explore/").status_code == 302
