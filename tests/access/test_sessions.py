"""The session of a request: read by plain SQL, and otherwise as Django's own store has it."""

from datetime import timedelta

import pytest
from django.contrib.sessions.backends import db
from django.contrib.sessions.models import Session
from django.utils import timezone

from access.sessions import SessionStore

pytestmark = pytest.mark.django_db


def test_both_stores_read_what_the_other_one_wrote():
    for writer, reader in ((db.SessionStore, SessionStore), (SessionStore, db.SessionStore)):
        written = writer()
        written["name"] = "<kettle>"
        written.save()
        assert reader(written.session_key)["name"] == "<kettle>"


@pytest.mark.parametrize("state", ["expired", "deleted", "never there", "forged"])
def test_no_session_is_read_under_a_key_that_has_none(state):
    written = SessionStore()
    written["name"] = "kettle"
    written.save()
    stored = Session.objects.filter(session_key=written.session_key)
    match state:
        case "expired":
            stored.update(expire_date=timezone.now() - timedelta(seconds=1))
        case "deleted":
            stored.delete()
        case "forged":
            stored.update(session_data=f"x{stored.get().session_data}")
    read = SessionStore("chosenbyaclient" if state == "never there" else written.session_key)
    assert dict(read.items()) == {}
    assert (read.session_key is None) == (state != "forged")


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
