"""The page of keys: who may open it, what it shows once, and that an owner's keys open nothing else."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from access.keys import KeyRefusedError, find_key, make_key
from access.models import ApiKey, AuditEvent, Membership
from access.viewer import command_viewer
from memories.models import Project
from tests.html import html_of

pytestmark = pytest.mark.django_db
KEYS = "/settings/keys/"


@pytest.fixture
def projects():
    return {slug: Project.objects.create(slug=slug, name=slug.title()) for slug in ("alpha", "beta")}


@pytest.fixture
def superuser(projects):
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def owner(projects):
    """The owner of alpha, who is a viewer of beta."""
    user = User.objects.create_user("owner")
    Membership.objects.create(user=user, project=projects["alpha"], role=Membership.Role.ADMIN)
    Membership.objects.create(user=user, project=projects["beta"], role=Membership.Role.READER)
    client = Client()
    client.force_login(user)
    return client


def key_for(name, *projects):
    return make_key(name=name, scopes=["read"], projects=projects, every_project=not projects, viewer=command_viewer())


def asked(**changes):
    return {"name": "ci", "scopes": ["read"], "projects": ["every"], "expires": "90", **changes}


def raw_of(page):
    return re.search(r"mnk_[\w-]{40}", page)[0]


def test_new_key_is_shown_once_and_works(superuser, projects):
    page = html_of(superuser.post(KEYS, asked(scopes=["read", "write"], projects=[projects["beta"].pk])))
    key = find_key(raw_of(page))
    assert (key.name, key.scopes, key.every_project) == ("ci", ["read", "write"], False)
    assert list(key.projects.all()) == [projects["beta"]]
    assert 89 <= (key.expires_at - timezone.now()).days <= 90
    assert raw_of(page) not in html_of(superuser.get(KEYS))
    event = AuditEvent.objects.get(verb="api_key_create")
    assert (event.door, event.user.username) == ("page", "root")


def test_page_with_a_key_is_kept_nowhere(superuser):
    assert superuser.post(KEYS, asked()).headers["Cache-Control"] == "private, no-store"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        pytest.param({"name": ""}, "This field is required.", id="no name"),
        pytest.param({"scopes": []}, "This field is required.", id="no scope"),
        pytest.param({"projects": []}, "This field is required.", id="no project"),
        pytest.param({"scopes": ["fly"]}, "fly is not one of the available choices", id="unknown scope"),
        pytest.param({"projects": ["every", "999"]}, "999 is not one of the available choices", id="unknown project"),
        pytest.param({"expires": "7"}, "7 is not one of the available choices", id="unknown end"),
        pytest.param({"requests_per_minute": "0"}, "greater than or equal to 1", id="no requests"),
    ],
)
def test_what_is_wrong_is_said_and_no_key_is_made(superuser, changes, said):
    response = superuser.post(KEYS, asked(**changes))
    assert response.status_code == 422
    assert said in html_of(response)
    assert not ApiKey.objects.exists()


def test_owner_makes_keys_for_what_they_own_alone(owner, projects):
    page = html_of(owner.get(KEYS))
    assert "Alpha" in page
    assert "Beta" not in page
    assert "All projects" not in page
    for refused in ("every", projects["beta"].pk):
        assert owner.post(KEYS, asked(projects=[refused])).status_code == 422
    key = find_key(raw_of(html_of(owner.post(KEYS, asked(projects=[projects["alpha"].pk])))))
    assert list(key.projects.all()) == [projects["alpha"]]


def test_owner_sees_the_keys_that_open_nothing_but_what_they_own(owner, projects):
    for name, seen in {"ours": ["alpha"], "both": ["alpha", "beta"], "theirs": ["beta"], "everywhere": []}.items():
        key_for(name, *(projects[slug] for slug in seen))
    shown = re.findall(r'<th scope="row">(\w+)', html_of(owner.get(KEYS)))
    assert shown == ["ours"]


@pytest.mark.parametrize("verb", ["rotate", "revoke"])
def test_keys_of_others_are_no_such_keys(owner, projects, verb):
    new = key_for("theirs", projects["beta"])
    assert owner.post(f"{KEYS}{new.key.pk}/{verb}/").status_code == 404
    assert find_key(new.raw).expires_at is None


def test_rotating_shows_another_key_and_the_old_one_ends_in_a_day(owner, projects):
    old = key_for("ours", projects["alpha"])
    page = html_of(owner.post(f"{KEYS}{old.key.pk}/rotate/"))
    new = find_key(raw_of(page))
    assert (new.name, list(new.projects.all())) == ("ours", [projects["alpha"]])
    left = find_key(old.raw).expires_at - timezone.now()
    assert 23 <= left.total_seconds() / 3600 <= 24


def test_revoked_key_opens_nothing_and_is_not_drawn_anew(owner, projects):
    old = key_for("ours", projects["alpha"])
    response = owner.post(f"{KEYS}{old.key.pk}/revoke/", follow=True)
    assert "is revoked" in html_of(response)
    with pytest.raises(KeyRefusedError):
        find_key(old.raw)
    refused = owner.post(f"{KEYS}{old.key.pk}/rotate/")
    assert refused.status_code == 409
    assert "is no longer active" in html_of(refused)


def test_stranger_is_sent_to_sign_in(projects):
    assert Client().get(KEYS).headers["Location"] == f"/sign-in/?next={KEYS}"


def test_members_who_administer_nothing_are_told_whom_to_ask(projects):
    user = User.objects.create_user("reader")
    Membership.objects.create(user=user, project=projects["alpha"], role=Membership.Role.CURATOR)
    client = Client()
    client.force_login(user)
    key_for("ours", projects["alpha"])
    page, refused = client.get(KEYS), client.post(KEYS, asked(projects=[projects["alpha"].pk]))
    assert (page.status_code, refused.status_code) == (200, 403)
    for response in (page, refused):
        assert "ask one of them" in html_of(response)
        assert "Create the key" not in html_of(response)
        assert "ours" not in html_of(response)
    assert ApiKey.objects.count() == 1
