"""Roles per project as every interface respects them, the page of people, and invitations."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from access.models import AuditEvent, Invitation, Membership
from access.services import LastAdminError, membership_remove, membership_set
from access.viewer import command_viewer, viewer_of_user
from curation.models import Curation
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.query import SearchQuery
from search.run import run
from tests.html import html_of

pytestmark = pytest.mark.django_db
Role = Membership.Role
PEOPLE, ROLE = "/people/", "/people/role/"


@pytest.fixture(autouse=True)
def projects():
    """Two projects with a memory each, which share a tag and have one of their own."""
    for slug in ("alpha", "beta"):
        record = MemoryRecord(content=f"About {slug}.", project=slug, tags=[f"of-{slug}", "shared"])
        memory_create(record=record, viewer=command_viewer())
    return {project.slug: project for project in Project.objects.all()}


def signed_in(user):
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def person(projects):
    def with_roles(name="ada", **roles):
        user = User.objects.create_user(name)
        for slug, role in roles.items():
            Membership.objects.create(user=user, project=projects[slug], role=role)
        return user

    return with_roles


@pytest.fixture
def root():
    return User.objects.create_superuser("root")


# --- roles -------------------------------------------------------------------------------------------------------


def store(client, project):
    body = {"content": f"Another note in {project}.", "project": project}
    return client.post("/api/memories", body, content_type="application/json").status_code


def rename(client, tag):
    body = {"kind": "tag", "term": tag, "name": f"{tag}-renamed"}
    return client.post("/api/curation/rename", body, content_type="application/json").status_code


@pytest.mark.parametrize(
    ("role", "stores", "curates", "administers"),
    [
        pytest.param(Role.READER, 403, 403, 403, id="reader"),
        pytest.param(Role.WRITER, 201, 403, 403, id="writer"),
        pytest.param(Role.CURATOR, 201, 200, 403, id="curator"),
        pytest.param(Role.ADMIN, 201, 200, 200, id="admin"),
    ],
)
def test_role_allows_what_its_name_says_through_pages_and_api_and_nothing_elsewhere(
    person, role, stores, curates, administers
):
    client = signed_in(person(alpha=role))
    assert client.get("/api/search").json()["total"] == 1
    assert "About alpha." in html_of(client.get("/explore/"))
    assert "beta" not in html_of(client.get("/explore/"))
    exported = b"".join(client.get("/api/export").streaming_content).decode()
    assert ("About alpha." in exported, "beta" in exported) == (True, False)
    memory = Memory.objects.get(project__slug="alpha")
    edited = client.patch(f"/api/memories/{memory.pk}", {"title": "New"}, content_type="application/json")
    assert (store(client, "alpha"), edited.status_code) == (stores, min(stores, 200) if stores == 201 else 403)
    assert client.get("/curate/").status_code == curates
    assert rename(client, "of-alpha") == curates
    assert client.get(PEOPLE).status_code == administers
    assert ("Create a key" in html_of(client.get("/settings/keys/"))) == (administers == 200)
    menu = html_of(client.get("/explore/"))
    assert (">People<" in menu, ">Curate <small>" in menu) == (administers == 200, curates == 200)
    assert client.get("/admin/").status_code == 302
    assert (store(client, "beta"), rename(client, "of-beta")) == (403, 404 if curates == 200 else 403)


def test_curator_of_one_project_who_writes_to_another_curates_only_the_first(person):
    client = signed_in(person(alpha=Role.WRITER, beta=Role.CURATOR))
    assert (store(client, "alpha"), store(client, "beta")) == (201, 201)
    assert [rename(client, tag) for tag in ("of-beta", "of-alpha", "shared")] == [200, 409, 200]
    tags = dict(Memory.objects.filter(content__startswith="About").values_list("project__slug", "tags"))
    assert tags == {"alpha": ["of-alpha", "shared"], "beta": ["of-beta-renamed", "shared-renamed"]}
    # Deleting many memories takes the right to write them only.
    forget = {"query": "project=alpha&tag=of-alpha", "dry_run": True}
    plan = client.post("/api/memories/forget", forget, content_type="application/json").json()["plan"]
    assert (plan["refusals"], plan["memories"]) == ([], 1)
    done = {**forget, "dry_run": False, "token": plan["token"]}
    assert client.post("/api/memories/forget", done, content_type="application/json").status_code == 200
    undone = client.post(f"/api/curation/{Curation.objects.latest('pk').pk}/undo")
    assert undone.status_code == 200, undone.content


def test_roles_of_several_projects_are_kept_apart(person, projects):
    alpha, beta = projects["alpha"].pk, projects["beta"].pk
    viewer = viewer_of_user(person(alpha=Role.WRITER, beta=Role.ADMIN))
    assert viewer.project_ids == viewer.writable_project_ids == {alpha, beta}
    assert viewer.curated_project_ids == {beta}
    assert viewer.may_curate(beta)
    assert not viewer.may_curate(alpha)
    assert viewer_of_user(person("ben", alpha=Role.READER)).curated_project_ids == frozenset()
    assert command_viewer().curated_project_ids is None


# --- the page ----------------------------------------------------------------------------------------------------


def shown(client):
    page = html_of(client.get(PEOPLE))
    roles = re.findall(r'aria-label="Role of (\w+) in (\w+)">.*?<option value="(\w+)" selected>', page, re.DOTALL)
    return sorted(roles)


def give(client, user, project, role):
    return client.post(ROLE, {"person": user.pk, "project": project.pk, "role": role}, follow=True)


def test_admin_sees_the_people_of_their_projects_alone(person, root):
    admin = person("ada", alpha=Role.ADMIN, beta=Role.READER)
    person("ben", alpha=Role.READER, beta=Role.WRITER)
    person("cleo", beta=Role.ADMIN)
    assert shown(signed_in(admin)) == [("ada", "alpha", "admin"), ("ben", "alpha", "reader")]
    page = html_of(signed_in(admin).get(PEOPLE))
    assert "cleo" not in page
    assert "root" not in page
    assert len(shown(signed_in(root))) == 5
    assert '<th scope="row">root</th>' in html_of(signed_in(root).get(PEOPLE))


def test_roles_are_given_changed_and_ended_with_an_event_for_each(person, projects):
    admin, ben = person("ada", alpha=Role.ADMIN, beta=Role.ADMIN), person("ben", alpha=Role.READER)
    client = signed_in(admin)
    assert "ben is writer of beta now." in html_of(give(client, ben, projects["beta"], "writer"))
    give(client, ben, projects["beta"], "curator")
    assert "ben has no access to beta any more." in html_of(give(client, ben, projects["beta"], ""))
    assert run(SearchQuery(), viewer_of_user(ben)).total == 1
    events = AuditEvent.objects.filter(subject_type="membership").order_by("pk")
    assert [(e.verb, e.user.username, e.door) for e in events] == [
        ("membership_create", "ada", "page"),
        ("membership_change", "ada", "page"),
        ("membership_delete", "ada", "page"),
    ]


def test_nobody_gives_roles_beyond_what_they_administer(person, projects):
    admin = person("ada", alpha=Role.ADMIN, beta=Role.CURATOR)
    stranger = person("cleo", beta=Role.ADMIN)
    client = signed_in(admin)
    for user, project in ((admin, projects["beta"]), (stranger, projects["alpha"]), (stranger, projects["beta"])):
        assert "Select a valid choice" in html_of(give(client, user, project, "admin"))
    assert "owner is not one of the available choices" in html_of(give(client, admin, projects["alpha"], "owner"))
    assert signed_in(person("ben", alpha=Role.CURATOR)).post(ROLE, {}).status_code == 403
    assert Client().post(ROLE, {}).headers["Location"].startswith("/sign-in/")
    assert not AuditEvent.objects.filter(subject_type="membership").exists()


def test_last_admin_of_a_project_stays(person, projects, root):
    admin, alpha = person("ada", alpha=Role.ADMIN), projects["alpha"]
    client = signed_in(admin)
    for role in ("reader", ""):
        assert "ada is the only admin of alpha. Make somebody else an admin first." in html_of(
            give(client, admin, alpha, role)
        )
    # Somebody who is switched off administers nothing.
    gone = person("ben", alpha=Role.ADMIN)
    User.objects.filter(pk=gone.pk).update(is_active=False)
    with pytest.raises(LastAdminError):
        membership_remove(membership=admin.memberships.get(), viewer=viewer_of_user(admin))
    User.objects.filter(pk=gone.pk).update(is_active=True)
    give(client, admin, alpha, "reader")
    assert admin.memberships.get().role == "reader"
    # Whoever administers everything still administers the project.
    membership_set(user=gone, project=alpha, role=Role.READER, viewer=viewer_of_user(root))
    assert not Membership.objects.filter(role=Role.ADMIN).exists()


# --- invitations -------------------------------------------------------------------------------------------------


def invited(client, *projects, **changes):
    """The path of the link that the page shows."""
    asked = {"role": "writer", "projects": [one.pk for one in projects], "expires": "7", "note": "for Dora", **changes}
    response = client.post(PEOPLE, asked)
    assert response["Cache-Control"] == "private, no-store"
    return re.search(r'value="http://testserver(/join/[\w-]+/)"', html_of(response))[1]


@pytest.fixture
def admin(person):
    return person("ada", alpha=Role.ADMIN, beta=Role.READER)


NEW = {"username": "dora", "password1": "a long enough one", "password2": "a long enough one"}


def test_invitation_makes_an_account_with_the_role_once(admin, projects):
    link = invited(signed_in(admin), projects["alpha"])
    page = html_of(Client().get(link))
    assert "ada invites you as writer of" in page
    assert "<strong>alpha</strong>" in page
    client = Client()
    assert client.post(link, NEW)["Location"] == "/explore/"
    dora = User.objects.get(username="dora")
    assert (dora.is_staff, dora.is_superuser, dora.memberships.get().role) == (False, False, "writer")
    assert client.get("/api/search").json()["total"] == 1
    for response in (Client().get(link), Client().post(link, {**NEW, "username": "eve"})):
        assert response.status_code == 403
        assert "no longer works" in html_of(response)
    assert list(User.objects.values_list("username", flat=True).order_by("username")) == ["ada", "dora"]
    verbs = AuditEvent.objects.exclude(subject_type__in=["memory", "project"]).order_by("pk")
    assert [(event.verb, event.user.username) for event in verbs] == [
        ("invitation_create", "ada"),
        ("user_create", "dora"),
        ("membership_create", "dora"),
        ("invitation_accept", "dora"),
    ]
    assert verbs[2].note == "invited by ada"


def test_only_the_hash_of_a_link_is_stored_and_it_is_shown_once(admin, projects):
    client = signed_in(admin)
    token = invited(client, projects["alpha"]).split("/")[2]
    stored = Invitation.objects.get()
    assert token not in str(vars(stored))
    page = html_of(client.get(PEOPLE))
    assert token not in page
    assert "for Dora" in page


@pytest.mark.parametrize("spoilt", ["expired", "withdrawn", "inviter demoted", "inviter switched off", "unknown"])
def test_link_that_no_longer_invites_is_refused(admin, projects, spoilt):
    client = signed_in(admin)
    link = invited(client, projects["alpha"])
    match spoilt:
        case "expired":
            Invitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
        case "withdrawn":
            client.post(f"/people/invitations/{Invitation.objects.get().pk}/withdraw/")
        case "inviter demoted":
            admin.memberships.filter(project=projects["alpha"]).update(role=Role.CURATOR)
        case "inviter switched off":
            User.objects.filter(pk=admin.pk).update(is_active=False)
        case "unknown":
            link = "/join/guess/"
    assert Client().get(link).status_code == Client().post(link, NEW).status_code == 403
    assert not User.objects.filter(username="dora").exists()


def test_admin_invites_to_their_projects_alone_and_sees_no_other_invitations(admin, projects, root):
    client = signed_in(admin)
    refused = client.post(PEOPLE, {"role": "reader", "projects": [projects["beta"].pk], "expires": "7"})
    assert refused.status_code == 422
    assert "is not one of the available choices" in html_of(refused)
    invited(signed_in(root), *projects.values(), note="to both")
    assert "to both" not in html_of(client.get(PEOPLE))
    assert client.post(f"/people/invitations/{Invitation.objects.get().pk}/withdraw/").status_code == 404
    assert Invitation.objects.get().revoked_at is None


def test_somebody_with_an_account_joins_and_keeps_a_higher_role(admin, person, projects, root):
    ben = person("ben", alpha=Role.CURATOR)
    client = signed_in(ben)
    link = invited(signed_in(root), *projects.values())
    assert "Join as ben" in html_of(client.get(link))
    assert "/sign-in/?next=/join/" in html_of(Client().get(link))
    assert client.post(link)["Location"] == "/explore/"
    assert dict(ben.memberships.values_list("project__slug", "role")) == {"alpha": "curator", "beta": "writer"}


def test_weak_password_and_taken_name_are_errors_of_the_form(admin, projects):
    link = invited(signed_in(admin), projects["alpha"])
    response = Client().post(link, {"username": "ADA", "password1": "123", "password2": "123"})
    assert response.status_code == 422
    assert "already exists" in html_of(response)
    assert "too short" in html_of(response)
    assert Invitation.objects.get().used_at is None
