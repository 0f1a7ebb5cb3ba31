"""API keys: drawn, shown once, stored as a hash; and the commands around them."""

from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from access.keys import KeyRefusedError, find_key, live_keys, make_key, revoke_key
from access.limits import sender
from access.models import ApiKey, AuditEvent
from access.viewer import command_viewer, viewer_of_key
from memories.models import Project

pytestmark = pytest.mark.django_db


@pytest.fixture
def new_key():
    return make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer())


def test_key_is_marked_random_and_stored_as_a_hash_only(new_key):
    assert new_key.raw.startswith("mnk_")
    assert len(new_key.raw) == 44
    stored = ApiKey.objects.get()
    assert stored.prefix == new_key.raw[:12]
    assert new_key.raw not in {stored.key_hash, stored.name, stored.prefix, str(stored)}
    assert make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw != new_key.raw


def test_key_is_found_by_what_was_shown(new_key):
    assert find_key(new_key.raw) == new_key.key


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("", id="empty"),
        pytest.param("mnk_", id="mark alone"),
        pytest.param("mnk_" + "A" * 40, id="unknown"),
        pytest.param("x" * 100_000, id="long"),
        pytest.param("\ud800\x00'; --", id="not text"),
    ],
)
def test_text_that_is_no_key_is_refused(new_key, raw):
    with pytest.raises(KeyRefusedError, match="not a key of this site"):
        find_key(raw)


def test_prefix_and_hash_are_no_keys(new_key):
    for text in (new_key.key.prefix, new_key.key.key_hash, new_key.raw[:-1], new_key.raw + "x"):
        with pytest.raises(KeyRefusedError):
            find_key(text)


def test_expired_key_is_refused_with_the_day(new_key):
    ApiKey.objects.update(expires_at=datetime(2025, 3, 1, tzinfo=UTC))
    with pytest.raises(KeyRefusedError, match=f"{new_key.key.prefix}… expired on 2025-03-01"):
        find_key(new_key.raw)
    assert not live_keys().exists()


def test_revoked_key_is_refused(new_key):
    assert revoke_key(key=new_key.key, viewer=command_viewer())
    with pytest.raises(KeyRefusedError, match="was revoked on"):
        find_key(new_key.raw)


def test_making_and_revoking_are_audited_without_the_hash(new_key):
    revoke_key(key=new_key.key, viewer=command_viewer())
    revoked, made = AuditEvent.objects.all()
    assert (made.verb, made.door, made.before) == ("api_key_create", "command", None)
    assert made.after["scopes"] == ["read"]
    assert revoked.before["revoked_at"] is None
    assert revoked.after["revoked_at"]
    for event in (made, revoked):
        assert new_key.key.key_hash not in f"{event.before}{event.after}"
        assert new_key.raw not in f"{event.before}{event.after}"


def test_use_is_stamped_at_most_once_a_minute_and_not_audited(new_key, django_assert_num_queries):
    events = AuditEvent.objects.count()
    with django_assert_num_queries(2):
        find_key(new_key.raw)
    first = ApiKey.objects.get().last_used_at
    assert first is not None
    with django_assert_num_queries(1):
        find_key(new_key.raw)
    assert ApiKey.objects.get().last_used_at == first
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    find_key(new_key.raw)
    assert ApiKey.objects.get().last_used_at > first
    assert AuditEvent.objects.count() == events


def test_admin_is_every_scope_and_the_others_stand_alone():
    everything = make_key(name="boss", scopes=["admin"], every_project=True, viewer=command_viewer()).key
    assert everything.scopes == ["read", "write", "curate", "admin"]
    assert make_key(name="feed", scopes=["write"], every_project=True, viewer=command_viewer()).key.scopes == ["write"]


def test_key_without_read_sees_nothing_and_key_of_a_project_only_that():
    alpha = Project.objects.create(slug="alpha", name="Alpha")
    Project.objects.create(slug="beta", name="Beta")
    writer = make_key(name="feed", scopes=["write"], every_project=True, viewer=command_viewer()).key
    assert viewer_of_key(writer).project_ids == frozenset()
    assert viewer_of_key(writer).may_write(None)
    bound = make_key(name="bound", scopes=["read", "write"], projects=[alpha], viewer=command_viewer()).key
    assert viewer_of_key(bound).project_ids == {alpha.pk}
    assert not viewer_of_key(bound).may_write(None)


@pytest.mark.parametrize(
    ("named", "every_project", "wrong"),
    [
        pytest.param(0, False, "neither", id="neither"),
        pytest.param(1, True, "both", id="both"),
    ],
)
def test_key_is_for_named_projects_or_for_every_one_and_which_is_said(named, every_project, wrong):
    projects = [Project.objects.create(slug=f"p{n}", name="P") for n in range(named)]
    with pytest.raises(ValueError, match=f"{wrong} .* given"):
        make_key(name="x", scopes=["read"], projects=projects, every_project=every_project, viewer=command_viewer())
    assert not ApiKey.objects.exists()


def test_key_whose_last_project_is_gone_sees_nothing():
    alpha = Project.objects.create(slug="alpha", name="Alpha")
    key = make_key(name="bound", scopes=["read", "write"], projects=[alpha], viewer=command_viewer()).key
    alpha.delete()
    viewer = viewer_of_key(ApiKey.objects.get(pk=key.pk))
    assert viewer.project_ids == frozenset()
    assert not viewer.may_write(None)


# --- commands ----------------------------------------------------------------------------------------------------


def command(capsys, *arguments, **options):
    call_command(*arguments, **options)
    return capsys.readouterr().out


def test_create_command_shows_a_key_that_works_and_how_to_use_it(capsys):
    Project.objects.create(slug="alpha", name="Alpha")
    out = command(capsys, "create_api_key", "ci", scopes="read,write", projects="alpha", expires="90d")
    raw = next(word for word in out.split() if word.startswith("mnk_"))
    key = find_key(raw)
    assert (key.name, key.scopes) == ("ci", ["read", "write"])
    assert [project.slug for project in key.projects.all()] == ["alpha"]
    assert timedelta(days=89) < key.expires_at - timezone.now() < timedelta(days=91)
    assert "It sees alpha." in out
    assert "every project" not in out
    assert f'curl -H "Authorization: Bearer {raw}"' in out
    assert "not shown again" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"scopes": "raed"}, "'raed' is not a scope .did you mean read", id="scope misspelt"),
        pytest.param({"scopes": "sudo"}, "The scopes are read, write, curate, admin", id="scope unknown"),
        pytest.param({"scopes": " , "}, "needs a scope", id="no scope"),
        pytest.param({"projects": "alpah"}, "no project 'alpah' .did you mean alpha", id="project misspelt"),
        pytest.param({"projects": ""}, "--projects '' names no project", id="projects empty"),
        pytest.param({"projects": ","}, "--projects ',' names no project", id="projects a comma"),
        pytest.param({"projects": "alpha,alpah"}, "no project 'alpah'", id="one project misspelt"),
        pytest.param({"expires": "soon"}, "write 90d, 6m, 1y, or a day", id="expiry malformed"),
        pytest.param({"expires": "99999y"}, "write 90d, 6m, 1y, or a day", id="expiry out of range"),
        pytest.param({"expires": "2020-01-01"}, "2020-01-01 has passed", id="expiry past"),
    ],
)
def test_create_command_refuses_what_it_does_not_understand(options, message):
    Project.objects.create(slug="alpha", name="Alpha")
    with pytest.raises(CommandError, match=message):
        call_command("create_api_key", "ci", **options)
    assert not ApiKey.objects.exists()


# --- wrong keys ---------------------------------------------------------------------------------------------------


def wrong(number):
    return f"mnk_{number:040}"


def asked(client, raw, address="192.0.2.7"):
    return client.get("/api/facets", headers={"X-API-Key": raw}, REMOTE_ADDR=address)


def test_guessing_keys_is_slowed_down_by_address_and_costs_no_query(client, monkeypatch, django_assert_num_queries):
    # With twenty, another attempt would be free after three seconds, in which a busy machine may do nothing else.
    monkeypatch.setattr("access.keys.WRONG_PER_ADDRESS", 3)
    good, late = (make_key(name=n, scopes=["read"], every_project=True, viewer=command_viewer()).raw for n in "ab")
    assert asked(client, good).status_code == 200
    assert [asked(client, wrong(number)).status_code for number in range(3)] == [401, 401, 401]
    with django_assert_num_queries(0):
        refused = asked(client, wrong(3))
        assert (refused.status_code, refused.json()["error"]) == (429, "too_many_wrong_keys")
        assert 1 <= int(refused["Retry-After"]) <= 20
        # Guessing right does not help, and has the same answer as guessing wrong.
        assert asked(client, late).json()["error"] == "too_many_wrong_keys"
    # A key that was in use goes on, and other addresses are not concerned.
    assert asked(client, good).status_code == 200
    assert asked(client, late, "192.0.2.8").status_code == 200


def test_program_that_repeats_a_wrong_key_guesses_nothing_and_costs_no_query(client, django_assert_num_queries):
    good = make_key(name="a", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    assert asked(client, wrong(1)).status_code == 401
    with django_assert_num_queries(0):
        assert {asked(client, wrong(1)).status_code for _ in range(50)} == {401}
        assert asked(client, "no key at all").status_code == 401
    assert asked(client, good).status_code == 200


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        pytest.param("192.0.2.7", "192.0.2.7", id="IPv4"),
        pytest.param("::ffff:192.0.2.7", "192.0.2.7", id="IPv4 in IPv6"),
        pytest.param("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64", id="a network of IPv6"),
        pytest.param("", "", id="none"),
    ],
)
def test_attempts_are_counted_by_what_one_customer_has(address, counted):
    assert sender(address) == counted


def test_revoke_command_takes_a_name_a_prefix_or_the_key(capsys):
    for name in ("by-name", "by-prefix", "by-key"):
        new = make_key(name=name, scopes=["read"], every_project=True, viewer=command_viewer())
        argument = {"by-name": name, "by-prefix": new.key.prefix, "by-key": new.raw}[name]
        assert name in command(capsys, "revoke_api_key", argument)
    assert not live_keys().exists()


def test_revoke_command_asks_which_of_two_of_a_name(new_key):
    other = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer())
    with pytest.raises(CommandError, match="2 keys are named 'agent'") as refused:
        call_command("revoke_api_key", "agent")
    assert new_key.key.prefix in str(refused.value)
    assert other.key.prefix in str(refused.value)
    assert live_keys().count() == 2
