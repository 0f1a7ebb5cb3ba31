"""The request limits of keys, also after a rotation."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from access.keys import KeyRefusedError, find_key, make_key, revoke_key, rotate_key
from access.limits import Buckets
from access.models import ApiKey, AuditEvent
from access.viewer import command_viewer
from memories.models import Project

pytestmark = pytest.mark.django_db


def make(**changes):
    return make_key(
        **{"name": "agent", "scopes": ["read"], "every_project": True, "viewer": command_viewer(), **changes}
    )


def test_minute_s_worth_may_be_taken_at_once_and_comes_back_evenly():
    buckets = Buckets()
    assert [buckets.take(1, 3, now=100.0).wait for _ in range(3)] == [0, 0, 0]
    assert buckets.take(1, 3, now=100.0).wait == pytest.approx(20)
    assert buckets.take(1, 3, now=110.0).wait == pytest.approx(10)
    assert buckets.take(1, 3, now=120.0).wait == 0
    assert buckets.take(1, 3, now=120.0).wait == pytest.approx(20)
    assert [buckets.take(1, 3, now=1_000.0).wait for _ in range(4)] == [0, 0, 0, pytest.approx(20)]


def test_key_that_asks_too_often_is_told_when_to_come_back():
    busy = Client(headers={"Authorization": f"Bearer {make(requests_per_minute=2).raw}"})
    other = Client(headers={"X-API-Key": make(name="other").raw})
    assert [busy.get("/api/search").status_code for _ in range(3)] == [200, 200, 429]
    refused = busy.get("/api/health")
    assert refused.status_code == 429
    assert 25 <= int(refused["Retry-After"]) <= 30
    body = refused.json()
    assert body["error"] == "too_many_requests"
    assert "2 requests per minute that it may make" in body["detail"]
    assert body["suggestion"].startswith("Wait ")
    assert other.get("/api/search").status_code == 200


def test_limit_of_the_site_holds_where_a_key_has_none(settings):
    settings.API_REQUESTS_PER_MINUTE = 1
    caller = Client(headers={"Authorization": f"Bearer {make().raw}"})
    assert [caller.get("/api/search").status_code for _ in range(2)] == [200, 429]


def test_new_key_may_do_what_the_old_one_could():
    tea = Project.objects.create(slug="tea", name="Tea")
    expires = timezone.now() + timedelta(days=90)
    old = make(projects=[tea], every_project=False, scopes=["read", "write"], expires_at=expires, requests_per_minute=7)
    new = rotate_key(key=old.key, viewer=command_viewer(), grace=timedelta(hours=2))
    assert new.raw != old.raw
    assert (new.key.name, new.key.scopes, list(new.key.projects.all())) == ("agent", ["read", "write"], [tea])
    assert new.key.requests_per_minute == 7
    assert abs(new.key.expires_at - expires) < timedelta(minutes=1)
    assert find_key(new.raw) == new.key
    assert find_key(old.raw) == old.key
    ends = ApiKey.objects.get(pk=old.key.pk).expires_at
    assert timedelta(hours=1, minutes=59) < ends - timezone.now() <= timedelta(hours=2)
    event = AuditEvent.objects.get(verb="api_key_rotate")
    assert (event.subject_id, event.note) == (old.key.pk, f"by {new.key.prefix}…")
    assert event.after["expires_at"] == ends.isoformat()


def test_grace_never_makes_a_key_live_longer():
    soon = timezone.now() + timedelta(minutes=5)
    old = make(expires_at=soon)
    rotate_key(key=old.key, viewer=command_viewer(), grace=timedelta(days=1))
    assert ApiKey.objects.get(pk=old.key.pk).expires_at == soon


def test_key_that_has_ended_is_not_drawn_anew():
    old = make()
    revoke_key(key=old.key, viewer=command_viewer())
    with pytest.raises(KeyRefusedError, match="is no longer active"):
        rotate_key(key=old.key, viewer=command_viewer(), grace=timedelta())


def test_command_prints_the_new_key_once():
    old = make(name="claude")
    out = StringIO()
    call_command("rotate_api_key", "claude", "--grace", "0", "-v", "0", stdout=out)
    assert find_key(out.getvalue().strip()).name == "claude"
    with pytest.raises(KeyRefusedError, match="expired"):
        find_key(old.raw)
    with pytest.raises(CommandError, match="is not a time span"):
        call_command("rotate_api_key", "claude", "--grace", "soon")


def test_command_sets_the_limit_of_a_key():
    out = StringIO()
    call_command("create_api_key", "slow", "--per-minute", "5", "-v", "0", stdout=out, stderr=StringIO())
    assert find_key(out.getvalue().strip()).requests_per_minute == 5
    with pytest.raises(CommandError, match="from 1 to"):
        call_command("create_api_key", "slow", "--per-minute", "0")


def test_every_key_has_its_own_bucket():
    buckets = Buckets()
    assert [buckets.take(key, 1, now=5.0).wait for key in (1, 2, 1)] == [0, 0, pytest.approx(60)]


def test_the_seconds_until_a_bucket_is_full_are_not_rounded_up_by_the_clock():
    # 1.2 + 1.0 − 1.2 is a little more than 1.0 in floating point.
    assert Buckets().take(1, 60, now=1.2).reset == 1
