"""Projects on their page and by API: who makes, changes and removes them, and which numbers they have."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import AuditEvent, Membership
from access.viewer import command_viewer
from memories.models import FollowedSource, Memory, Project, Session
from memories.services import memory_delete
from tests.html import html_of

pytestmark = pytest.mark.django_db
PAGE = "/settings/projects/"


@pytest.fixture
def owner(corpus):
    client = Client()
    client.force_login(User.objects.create_superuser("owner"))
    return client


@pytest.fixture
def key(corpus):
    def client(*slugs, scopes=("read", "write", "curate")):
        projects = Project.objects.filter(slug__in=slugs)
        made = make_key(
            name="agent", scopes=scopes, viewer=command_viewer(), projects=projects, every_project=not slugs
        )
        return Client(headers={"X-API-Key": made.raw})

    return client


def member(**roles):
    user = User.objects.create_user("-".join(roles))
    for slug, role in roles.items():
        Membership.objects.create(user=user, project=Project.objects.get(slug=slug), role=role)
    client = Client()
    client.force_login(user)
    return client


def row_of(page, name):
    return next(row for row in re.findall(r"<tr>.*?</tr>", html_of(page)) if f">{name}" in row)


def number(slug):
    return Project.objects.get(slug=slug).pk


def test_page_has_each_project_with_numbers_that_its_links_give(owner):
    Membership.objects.create(user=User.objects.create_user("mio"), project=Project.objects.get(slug="tea"))
    row = row_of(owner.get(PAGE), "Tea house")
    count = re.search(r'href="(/explore/\?project=tea)">(\d+)<', row)
    assert f"{count[2]} memories" in html_of(owner.get(count[1]))
    assert 'data-label="Members">1<' in row
    assert "Remove" not in row


def test_every_project_is_listed_and_can_be_changed_however_many_there_are(owner):
    Project.objects.bulk_create(Project(slug=f"p{number:03}", name=f"Project {number:03}") for number in range(205))
    last = Project.objects.create(slug="zz", name="The last one")
    assert "The last one" in row_of(owner.get(PAGE), "The last one")
    assert owner.get(f"{PAGE}{last.pk}/").status_code == 200


@pytest.mark.parametrize("role", ["reader", "writer", "curator", "admin"])
def test_roles_see_their_own_projects_and_change_what_they_curate(corpus, role):
    client = member(tea=role)
    page = client.get(PAGE)
    assert "Boat yard" not in html_of(page)
    assert "Make a project" not in html_of(page)
    curates = role in ("curator", "admin")
    assert ("Change" in row_of(page, "Tea house")) == curates
    # Others' numbers of members are for admins.
    assert ("for its admins" in row_of(page, "Tea house")) == (role != "admin")
    assert client.post(PAGE, {"name": "Mine"}).status_code == 403
    asked = {"name": "Tea room", "language": "english"}
    assert client.post(f"{PAGE}{number('tea')}/", asked).status_code == (302 if curates else 403)
    assert client.post(f"{PAGE}{number('boat')}/", asked).status_code == 404
    assert client.post(f"{PAGE}{number('tea')}/remove/").status_code == (302 if curates else 403)
    assert Project.objects.filter(slug="tea").exists()


@pytest.mark.parametrize(
    ("sent", "slug"),
    [
        ({"name": "Team Decisions"}, "team-decisions"),
        ({"name": "Büro · Köln"}, "büro-·-köln"),
        ({"name": "Oven", "slug": "the oven"}, "the-oven"),
    ],
)
def test_project_is_made_with_its_slug_or_one_of_its_name(owner, sent, slug):
    assert owner.post(PAGE, {**sent, "language": "german", "secrets": "refuse"}).status_code == 302
    made = Project.objects.get(slug=slug)
    assert (made.name, made.language, made.secrets) == (sent["name"], "german", "refuse")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ({"name": " "}, "This field is required"),
        ({"name": "Tea"}, "already exists"),
        ({"name": "x" * 201}, "at most 200 characters"),
        ({"name": "x" * 101}, "has 101 characters; up to 100"),
        ({"name": "A", "language": "klingon"}, "klingon is not one of the available choices"),
    ],
)
def test_project_that_cannot_be_is_refused_in_words_and_the_form_keeps_what_was_typed(owner, sent, reason):
    page = owner.post(PAGE, sent)
    assert page.status_code == 422
    assert reason in html_of(page)
    assert f'value="{sent["name"]}"' in html_of(page)
    assert Project.objects.count() == 2


def test_new_name_leaves_the_slug_and_all_that_names_it(owner):
    address = f"{PAGE}{number('tea')}/"
    shown = html_of(owner.get(address))
    assert "<code>tea</code>" in shown
    assert re.search(r'<select name="language"[^>]* disabled', shown)
    sent = {"name": "Tea room", "description": "Pots.", "secrets": "off", "language": "german"}
    owner.post(address, sent)
    stored = Project.objects.get(slug="tea")
    assert (stored.name, stored.description, stored.secrets, stored.language) == ("Tea room", "Pots.", "off", "english")
    assert "Tea room" in html_of(owner.get("/explore/?project=tea"))


def test_only_a_project_without_any_memory_is_removed_and_its_roles_go_with_it(owner):
    user = User.objects.create_user("mio")
    attic = Project.objects.create(slug="attic", name="Attic")
    Membership.objects.create(user=user, project=attic, role="admin")
    Session.objects.create(project=attic, external_id="s")
    assert "Remove" in row_of(owner.get(PAGE), "Attic")
    owner.post(f"{PAGE}{attic.pk}/remove/")
    assert not Project.objects.filter(slug="attic").exists()
    assert not Membership.objects.filter(user=user).exists()
    event = AuditEvent.objects.get(verb="project_delete")
    assert (event.subject_id, event.before["slug"], event.before["roles"]) == (attic.pk, "attic", {"mio": "admin"})


def test_deleted_memories_keep_their_project_and_the_page_leads_to_them(owner):
    for pk in Memory.objects.filter(project__slug="boat").exclude(state="deleted").values_list("pk", flat=True):
        memory_delete(memory_id=pk, viewer=command_viewer(), reason="")
    row = row_of(owner.get(PAGE), "Boat yard")
    count, others = Memory.objects.filter(project__slug="boat").count(), re.search(r'href="([^"]+)">(\d+) in', row)
    assert int(others[2]) == count
    assert f"{count} memories" in html_of(owner.get(others[1].replace("&amp;", "&")))
    page = owner.post(f"{PAGE}{number('boat')}/remove/", follow=True)
    assert f"has {count} memories, counting deleted ones." in html_of(page)
    assert Project.objects.filter(slug="boat").exists()


def test_key_for_a_removed_project_alone_opens_nothing(key, owner):
    Project.objects.create(slug="attic", name="Attic")
    client = key("attic", scopes=("read",))
    owner.post(f"{PAGE}{number('attic')}/remove/")
    assert client.get("/api/projects").json()["total"] == 0
    assert client.get("/api/search?q=tea").json()["total"] == 0


def test_api_makes_changes_and_removes_a_project(key):
    client = key()
    made = client.post("/api/projects", {"name": "Attic & Co"}, "application/json")
    assert made.status_code == 201
    expected = {"slug": "attic-&-co", "name": "Attic & Co", "memories": 0, "may_write": True}
    assert expected.items() <= made.json().items()
    changed = client.patch("/api/projects/attic-&-co", {"description": "Old things."}, "application/json").json()
    assert (changed["name"], changed["description"]) == ("Attic & Co", "Old things.")
    assert client.delete("/api/projects/attic-&-co").json() == {"slug": "attic-&-co", "name": "Attic & Co"}
    assert client.get("/api/projects").json()["total"] == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("post", "", {"name": "Tea"}, 409, "'tea' already exists"),
        ("post", "", {}, 422, "name: is missing"),
        ("post", "", {"name": "A", "slug": "a", "colour": "red"}, 422, "colour"),
        ("post", "", {"name": "A", "secrets": "hide"}, 422, "secrets"),
        ("post", "", {"name": "A", "language": "klingon"}, 422, "'klingon' is not known"),
        ("patch", "/tea", {"language": "german"}, 422, "It cannot change once"),
        ("patch", "/tea", {"slug": "x"}, 422, "slug"),
        ("patch", "/attic", {"name": "x"}, 404, "no project 'attic' that you can see"),
        ("delete", "/tea", None, 409, "'tea' has"),
        ("delete", "/attic", None, 404, "no project 'attic'"),
    ],
)
def test_api_refuses_what_cannot_be_and_changes_nothing(key, method, path, body, status, words):
    before = list(Project.objects.values())
    response = getattr(key(), method)(f"/api/projects{path}", body, "application/json")
    assert response.status_code == status, response.content
    assert words in response.json()["detail"]
    assert list(Project.objects.values()) == before


def test_key_of_some_projects_neither_makes_nor_removes_and_learns_of_no_other(key):
    client = key("tea")
    Project.objects.create(slug="attic", name="Attic")
    assert client.post("/api/projects", {"name": "Mine"}, "application/json").status_code == 403
    assert client.patch("/api/projects/boat", {"name": "Mine"}, "application/json").status_code == 404
    assert client.patch("/api/projects/tea", {"name": "Tea room"}, "application/json").status_code == 200
    assert client.delete("/api/projects/attic").status_code == 404
    assert key("attic").delete("/api/projects/attic").status_code == 403
    only_reads = key("tea", scopes=("read", "write"))
    assert only_reads.patch("/api/projects/tea", {"name": "x"}, "application/json").status_code == 403


def test_project_that_a_followed_source_fills_stays_until_that_ends(key):
    Project.objects.create(slug="attic", name="Attic")
    source = FollowedSource.objects.create(path="/notes", format="markdown", project="attic")
    reply = key().delete("/api/projects/attic")
    assert (reply.status_code, reply.json()["detail"]) == (409, "What is new in /notes goes into 'attic'.")
    source.delete()
    assert key().delete("/api/projects/attic").status_code == 200


def test_people_and_keys_say_which_projects_have_no_memories(owner):
    Project.objects.create(slug="attic", name="Attic")
    for path in ("/people/", "/settings/keys/", "/settings/agents/"):
        shown = html_of(owner.get(path))
        assert "Attic (no memories)" in shown
        assert "Tea house (no memories)" not in shown


# --- named where memories are written -----------------------------------------------------------------------------


def test_new_memory_makes_the_project_that_is_named_for_it(owner):
    sent = {"content": "Ovens need ten minutes.", "project": "tea", "new_project": "The Oven", "type": "note"}
    assert owner.post("/m/new/", sent).status_code == 302
    memory = Memory.objects.get(content=sent["content"])
    assert (memory.project.slug, memory.project.name) == ("the-oven", "The Oven")


def test_memory_moves_into_a_new_project_and_a_refusal_makes_none(owner):
    memory = Memory.objects.get(external_id="t3")
    address = f"/m/{memory.pk}/edit/"
    version = re.search(r'name="version" value="([^"]+)"', html_of(owner.get(address)))[1]
    sent = {"version": version, "content": memory.content, "new_project": "Boat"}
    page = owner.post(address, sent)
    assert page.status_code == 422
    assert "already exists. Choose it above" in html_of(page)
    assert owner.post(address, {**sent, "new_project": "Oven", "version": "old"}).status_code == 422
    assert not Project.objects.filter(slug="oven").exists()
    owner.post(address, {**sent, "new_project": "Oven"})
    memory.refresh_from_db()
    assert memory.project.slug == "oven"


def test_members_are_not_offered_a_new_project_and_cannot_send_one(corpus):
    client = member(tea="admin")
    assert "new_project" not in html_of(client.get("/m/new/"))
    client.post("/m/new/", {"content": "Ovens.", "project": "tea", "new_project": "Oven"})
    assert Memory.objects.get(content="Ovens.").project.slug == "tea"
    assert not Project.objects.filter(slug="oven").exists()


def test_bulk_edit_offers_to_make_a_missing_project_and_goes_on_where_it_was(owner):
    address = "/curate/retag/?tag=kettle&set_project=Oven+Plans"
    shown = html_of(owner.get(address))
    assert "Make the project “Oven Plans”" in shown
    form = re.search(r'id="make-project">.*?</form>', shown)[0]
    fields = {name: value.replace("&amp;", "&") for name, value in re.findall(r'name="(\w+)" value="([^"]*)"', form)}
    made = owner.post(PAGE, fields)
    assert (made.status_code, made["Location"]) == (302, address)
    assert Project.objects.get(slug="oven-plans").name == "Oven Plans"
    assert "oven-plans" in html_of(owner.get(made["Location"]))
    assert "Make the project" not in html_of(owner.get("/curate/retag/?tag=kettle&set_project=tea"))


def test_bulk_edit_of_a_member_offers_nothing_of_that(corpus):
    shown = html_of(member(tea="curator").get("/curate/retag/?tag=kettle&set_project=oven"))
    assert "There is no project &#x27;oven&#x27; that you can write to" in shown
    assert "Make the project" not in shown
