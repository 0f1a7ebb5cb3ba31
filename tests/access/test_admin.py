"""Keys and memberships in the admin."""

import pytest
from django.contrib.auth.models import User

from access.keys import make_key
from access.models import AuditEvent, Membership
from access.viewer import command_viewer
from memories.models import Project

pytestmark = pytest.mark.django_db
KEYS = "/admin/access/apikey/"


@pytest.fixture
def curator(client):
    client.force_login(User.objects.create_superuser("curator"))
    return client


def test_page_of_a_key_shows_neither_key_nor_hash_and_edits_nothing(curator):
    new = make_key(name="ci", scopes=["read"], every_project=True, viewer=command_viewer())
    address = f"{KEYS}{new.key.pk}/change/"
    page = curator.get(address).text
    assert new.key.prefix in page
    assert new.key.key_hash not in page
    assert new.raw not in page
    assert curator.post(address, {"name": "other", "scopes": ["admin"]}).status_code == 403
    assert curator.post(f"{KEYS}{new.key.pk}/delete/", {"post": "yes"}).status_code == 403


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


def test_second_membership_of_a_person_in_a_project_is_an_error_of_the_form(curator):
    ada = User.objects.create_user("ada")
    project = Project.objects.create(slug="alpha", name="Alpha")
    Membership.objects.create(user=ada, project=project)
    form = {"user": ada.pk, "project": project.pk, "role": "admin"}
    response = curator.post("/admin/access/membership/add/", form)
    assert "already exists" in str(response.context["adminform"].form.errors)
    assert Membership.objects.get().role == "reader"
