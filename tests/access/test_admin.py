"""Keys and memberships in the admin."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from access.keys import KeyRefusedError, find_key, make_key
from access.models import ApiKey, AuditEvent, Membership
from access.viewer import command_viewer
from memories.models import Project

pytestmark = pytest.mark.django_db
KEYS = "/admin/access/apikey/"


@pytest.fixture
def curator(client):
    client.force_login(User.objects.create_superuser("curator"))
    return client


def test_the_admin_has_the_bar_and_the_theme_of_the_other_pages(curator):
    curator.cookies["theme"] = "dark"
    page = curator.get(KEYS).text
    header = page.partition('<header class="top has-search">')[2].partition("</header>")[0]
    assert 'action="/explore/"' in header
    assert '<a href="/admin/" aria-current="page">Admin' in header
    assert "css/tokens" in page
    assert "admin/js/theme" not in page
    add = curator.get(f"{KEYS}add/").text
    assert '<a href="/admin/access/apikey/">API keys</a>' in add.partition('aria-label="Breadcrumbs"')[2]


def test_new_key_is_shown_once_and_works(curator):
    project = Project.objects.create(slug="alpha", name="Alpha")
    form = {"name": "ci", "scopes": ["read", "write"], "projects": [project.pk]}
    page = curator.post(f"{KEYS}add/", form, follow=True).text
    raw = page.partition("<code>mnk_")[2].partition("</code>")[0]
    key = find_key("mnk_" + raw)
    assert (key.name, key.scopes, key.created_by.username) == ("ci", ["read", "write"], "curator")
    assert list(key.projects.all()) == [project]
    assert "mnk_" + raw not in curator.get(KEYS).text
    event = AuditEvent.objects.get(verb="api_key_create")
    assert (event.door, event.subject_id) == ("admin", key.pk)


def test_page_of_a_key_shows_neither_key_nor_hash_and_edits_nothing(curator):
    new = make_key(name="ci", scopes=["read"], every_project=True, viewer=command_viewer())
    address = f"{KEYS}{new.key.pk}/change/"
    page = curator.get(address).text
    assert new.key.prefix in page
    assert new.key.key_hash not in page
    assert new.raw not in page
    assert curator.post(address, {"name": "other", "scopes": ["admin"]}).status_code == 403
    assert curator.post(f"{KEYS}{new.key.pk}/delete/", {"post": "yes"}).status_code == 403


def test_revoking_ends_the_chosen_keys(curator):
    new = make_key(name="ci", scopes=["read"], every_project=True, viewer=command_viewer())
    kept = make_key(name="kept", scopes=["read"], every_project=True, viewer=command_viewer())
    response = curator.post(KEYS, {"action": "revoke", "_selected_action": [new.key.pk]}, follow=True)
    assert "Revoked 1 of 1" in response.text
    with pytest.raises(KeyRefusedError):
        find_key(new.raw)
    assert find_key(kept.raw)
    assert AuditEvent.objects.filter(verb="api_key_revoke", door="admin").count() == 1


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        pytest.param({"name": ""}, "name", id="no name"),
        pytest.param({"scopes": []}, "scopes", id="no scope"),
        pytest.param({"scopes": ["sudo"]}, "scopes", id="unknown scope"),
        pytest.param({"every_project": ""}, "projects", id="no project"),
        pytest.param({"projects": ["alpha"]}, "every_project", id="one project and every one"),
    ],
)
def test_key_that_would_make_no_sense_is_an_error_of_the_form(curator, changes, field):
    ids = {"alpha": Project.objects.create(slug="alpha", name="Alpha").pk}
    form = {"name": "ci", "scopes": ["read"], "every_project": "on", **changes}
    form["projects"] = [ids[slug] for slug in form.get("projects", ())]
    response = curator.post(f"{KEYS}add/", form)
    assert list(response.context["adminform"].form.errors) == [field]
    assert not ApiKey.objects.exists()


def test_key_for_every_project_is_asked_for_by_a_box(curator):
    page = curator.get(f"{KEYS}add/").text
    assert 'type="checkbox" name="every_project"' in page
    assert "Including new ones" in page
    curator.post(f"{KEYS}add/", {"name": "ci", "scopes": ["read"], "every_project": "on"})
    key = ApiKey.objects.get()
    assert (key.every_project, key.projects.count()) == (True, 0)


def test_key_that_has_expired_before_it_is_made_is_refused(curator):
    yesterday = timezone.now() - timedelta(days=1)
    form = {"name": "ci", "scopes": ["read"], "every_project": "on"}
    form |= {"expires_at_0": f"{yesterday:%Y-%m-%d}", "expires_at_1": "00:00:00"}
    response = curator.post(f"{KEYS}add/", form)
    assert "an expired key has no access" in response.context["adminform"].form.errors["expires_at"][0]


def test_membership_is_audited_when_it_is_made_changed_and_ended(curator):
    ada = User.objects.create_user("ada")
    project = Project.objects.create(slug="alpha", name="Alpha")
    base = "/admin/access/membership/"
    assert curator.post(f"{base}add/", {"user": ada.pk, "project": project.pk, "role": "reader"}).status_code == 302
    made = Membership.objects.get()
    curator.post(f"{base}{made.pk}/change/", {"user": ada.pk, "project": project.pk, "role": "admin"})
    curator.post(f"{base}{made.pk}/delete/", {"post": "yes"})
    assert not Membership.objects.exists()
    events = AuditEvent.objects.order_by("pk").values_list("verb", "before__role", "after__role")
    assert list(events) == [
        ("membership_create", None, "reader"),
        ("membership_change", "reader", "admin"),
        ("membership_delete", "admin", None),
    ]


def test_membership_stays_with_its_person_and_project(curator):
    ada, ben = User.objects.create_user("ada"), User.objects.create_user("ben")
    project = Project.objects.create(slug="alpha", name="Alpha")
    made = Membership.objects.create(user=ada, project=project)
    form = {"user": ben.pk, "project": project.pk, "role": "curator"}
    assert curator.post(f"/admin/access/membership/{made.pk}/change/", form).status_code == 302
    made.refresh_from_db()
    assert (made.user, made.role) == (ada, "curator")


def test_second_membership_of_a_person_in_a_project_is_an_error_of_the_form(curator):
    ada = User.objects.create_user("ada")
    project = Project.objects.create(slug="alpha", name="Alpha")
    Membership.objects.create(user=ada, project=project)
    form = {"user": ada.pk, "project": project.pk, "role": "admin"}
    response = curator.post("/admin/access/membership/add/", form)
    assert "already exists" in str(response.context["adminform"].form.errors)
    assert Membership.objects.get().role == "reader"


def test_memberships_chosen_in_the_list_are_ended_with_their_events(curator):
    ada = User.objects.create_user("ada")
    for slug in ("alpha", "beta"):
        Membership.objects.create(user=ada, project=Project.objects.create(slug=slug, name=slug))
    chosen = list(Membership.objects.values_list("pk", flat=True))
    form = {"action": "delete_selected", "_selected_action": chosen, "post": "yes"}
    curator.post("/admin/access/membership/", form)
    assert not Membership.objects.exists()
    assert AuditEvent.objects.filter(verb="membership_delete", door="admin").count() == 2


def test_audit_trail_links_to_what_it_is_about(curator):
    project = Project.objects.create(slug="alpha", name="Alpha")
    AuditEvent.objects.create(door="api", verb="update", subject_type="project", subject_id=project.pk)
    assert f"/admin/memories/project/{project.pk}/change/" in curator.get("/admin/access/auditevent/").text
