"""The admin of memories: changes go through the services, and nothing is deleted."""

from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import Permission, User
from django.urls import reverse

from access.models import AuditEvent, Membership
from access.viewer import command_viewer
from memories.models import Corpus, Memory, Project
from memories.records import StrictMemoryRecord
from memories.services import memory_create

pytestmark = pytest.mark.django_db
LIST = "/admin/memories/memory/"

RECORD = {
    "content": "Boiling water makes green tea bitter.\nWe brew at 70 °C.",
    "title": "Brew green tea at 70 °C",
    "project": "tea",
    "type": "decision",
    "tags": ["tea", "brewing"],
    "categories": ["Kitchen/Brewing"],
    "concepts": ["temperature"],
    "entities": [{"name": "Mio", "type": "person"}],
    "links": [{"rel": "see", "target": "t2"}],
    "authors": ["Mio"],
    "external_id": "t1",
    "created_at": "2024-01-05T10:00:00.123456Z",
    "importance": 0.5,
}


def store(**changes):
    return memory_create(record=StrictMemoryRecord.model_validate({**RECORD, **changes}), viewer=command_viewer())


@pytest.fixture
def curator(client):
    client.force_login(User.objects.create_superuser("curator"))
    return client


@pytest.fixture
def memory(db):
    return store()


def page_of(memory):
    return reverse("admin:memories_memory_change", args=[memory.pk])


class Fields(HTMLParser):
    """The fields of the form on a page as a browser sends them unchanged, with its line ends."""

    def __init__(self, page):
        super().__init__()
        self.sent, self.open, self.text = {}, None, ""
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        name, kind = given.get("name"), given.get("type")
        if tag == "input" and name and kind != "submit" and (kind != "checkbox" or "checked" in given):
            self.sent[name] = given.get("value") or ("on" if kind == "checkbox" else "")
        elif tag in {"textarea", "select"}:
            self.open, self.text = name, ""
        elif tag == "option" and "selected" in given:
            self.sent[self.open] = given["value"]

    def handle_data(self, data):
        self.text += data

    def handle_endtag(self, tag):
        if tag == "textarea":
            # The first line end belongs to the markup.
            self.sent[self.open] = self.text.removeprefix("\n").replace("\n", "\r\n")


def form_of(client, address):
    return Fields(client.get(address).text).sent


def save(client, memory, **changes):
    return client.post(page_of(memory), {**form_of(client, page_of(memory)), **changes})


def errors_of(response):
    assert response.status_code == 200
    return response.context["adminform"].form.errors


def events_of(memory):
    return list(AuditEvent.objects.filter(subject_type="memory", subject_id=memory.pk).order_by("pk"))


def test_saving_untouched_leaves_no_trace(curator, memory):
    revision = Corpus.objects.get().revision
    before = Memory.objects.values().get()
    assert save(curator, memory).status_code == 302
    assert Memory.objects.values().get() == before
    assert [event.verb for event in events_of(memory)] == ["create"]
    assert Corpus.objects.get().revision == revision


def test_every_field_of_the_form_goes_through_the_services(curator, memory):
    response = save(
        curator,
        memory,
        title="Brew it cooler",
        summary="Cooler.",
        content="We brew at 60 °C.",
        memory_type="note",
        tags="tea\r\nCool",
        authors="Mio\r\nBen",
        importance="0.9",
        confidence="0.4",
        pinned="on",
        created_at_0="2024-01-06",
        created_at_1="08:00:00",
        valid_to_0="2025-01-01",
        valid_to_1="00:00:00",
        source="wiki",
        source_uri="https://example.org/t1",
        external_id="t-1",
        reason="Mio tasted it.",
    )
    assert response.status_code == 302
    memory.refresh_from_db()
    assert (memory.title, memory.summary, memory.content) == ("Brew it cooler", "Cooler.", "We brew at 60 °C.")
    assert (memory.memory_type, memory.tags, memory.authors) == ("note", ["tea", "cool"], ["Mio", "Ben"])
    assert (memory.importance, memory.confidence, memory.pinned) == (0.9, 0.4, True)
    assert (memory.source, memory.source_uri, memory.external_id) == ("wiki", "https://example.org/t1", "t-1")
    assert memory.created_at.isoformat() == "2024-01-06T08:00:00+00:00"
    assert memory.valid_to.isoformat() == "2025-01-01T00:00:00+00:00"
    assert "60" in memory.terms
    event = events_of(memory)[-1]
    assert (event.verb, event.door, event.user.username, event.note) == ("update", "admin", "curator", "Mio tasted it.")
    assert event.before["tags"] == ["tea", "brewing"]
    assert "created_at" in event.after


def test_one_field_changed_is_one_field_in_the_audit_trail(curator, memory):
    save(curator, memory, tags="tea")
    event = events_of(memory)[-1]
    assert set(event.before) == set(event.after) == {"tags", "updated_at"}
    assert event.after["tags"] == ["tea"]
    memory.refresh_from_db()
    assert memory.created_at.microsecond == 123456
    assert memory.content == RECORD["content"]


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        pytest.param({"importance": "3"}, "importance", "less than or equal to 1", id="out of range"),
        pytest.param({"tags": "x" * 201}, "tags", "a tag has up to 200", id="long tag"),
        pytest.param({"content": ""}, "content", "required", id="no text"),
        pytest.param({"created_at_0": "yesterday"}, "created_at", "valid date", id="no date"),
        pytest.param(
            {"valid_from_0": "2025-01-01", "valid_from_1": "00:00", "valid_to_0": "2024-01-01", "valid_to_1": "00:00"},
            "__all__",
            "before valid_from",
            id="ends before it begins",
        ),
    ],
)
def test_what_the_services_refuse_is_an_error_of_the_form_and_changes_nothing(curator, memory, changes, field, message):
    before = Memory.objects.values().get()
    errors = errors_of(save(curator, memory, summary="Other.", **changes))
    assert message in errors[field][0]
    assert Memory.objects.values().get() == before
    assert [event.verb for event in events_of(memory)] == ["create"]


def test_id_of_another_memory_is_an_error_of_the_form(curator, memory):
    other = store(external_id="t9", content="Other.")
    assert f"#{other.pk}" in errors_of(save(curator, memory, external_id="t9"))["__all__"][0]


@pytest.mark.parametrize(
    ("action", "state", "verb"),
    [("archive", "archived", "archive"), ("delete", "deleted", "delete")],
    ids=lambda part: part,
)
def test_action_does_one_thing_to_every_memory_chosen(curator, action, state, verb):
    memories = [store(external_id=f"t{n}", content=f"{n}") for n in range(3)]
    chosen = [memory.pk for memory in memories[:2]]
    response = curator.post(LIST, {"action": action, "_selected_action": chosen, "reason": "Tidying."}, follow=True)
    assert "2 of 2 memories" in response.text
    assert list(Memory.objects.order_by("pk").values_list("state", flat=True)) == [state, state, "active"]
    assert [(event.verb, event.note) for event in events_of(memories[0])][-1] == (verb, "Tidying.")
    curator.post(LIST, {"action": "restore", "_selected_action": chosen})
    assert set(Memory.objects.values_list("state", flat=True)) == {"active"}


def test_rows_are_never_taken_away_or_made(curator, memory):
    assert curator.post(reverse("admin:memories_memory_delete", args=[memory.pk]), {"post": "yes"}).status_code == 403
    assert curator.get(f"{LIST}add/").status_code == 403
    curator.post(LIST, {"action": "delete_selected", "_selected_action": [memory.pk], "post": "yes"})
    assert Memory.objects.filter(state="active").count() == 1


def test_action_on_too_many_changes_nothing(curator, memory, monkeypatch):
    monkeypatch.setattr("explorer.memory.admin.MAX_IN_ACTION", 1)
    store(external_id="t2", content="2")
    response = curator.post(
        LIST, {"action": "archive", "_selected_action": list(Memory.objects.values_list("pk", flat=True))}, follow=True
    )
    assert "at most 1 memories" in response.text
    assert set(Memory.objects.values_list("state", flat=True)) == {"active"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("bitter boiling", True, id="words"),
        pytest.param("boil", True, id="stem"),
        pytest.param("Brew gre", True, id="part of the title"),
        pytest.param("#{pk}", True, id="number"),
        pytest.param("{pk}", True, id="bare number"),
        pytest.param("coffee", False, id="word that is not there"),
        pytest.param("'; drop table --", False, id="SQL"),
        pytest.param("& | ! :*", False, id="operators"),
        pytest.param("a\x00b", True, id="NUL, which is no search"),
    ],
)
def test_list_is_searched_by_words_and_by_number(curator, memory, text, found):
    response = curator.get(LIST, {"q": text.format(pk=memory.pk)})
    assert response.context["cl"].result_count == int(found)


def test_raw_text_is_escaped(curator):
    memory = store(title="<script>alert(1)</script>", content="<img src=x onerror=alert(2)>")
    for page in (curator.get(page_of(memory)).text, curator.get(LIST).text):
        assert "<script>alert(1)" not in page
        assert "<img src=x" not in page


# --- who may -----------------------------------------------------------------------------------------------------


@pytest.fixture
def staff(client):
    """A user with all Django permissions on memories, and a role in the project tea."""

    def member(role):
        user = User.objects.create_user(role, is_staff=True)
        user.user_permissions.set(Permission.objects.filter(content_type__app_label="memories"))
        project, _ = Project.objects.get_or_create(slug="tea", defaults={"name": "Tea"})
        Membership.objects.create(user=user, project=project, role=role)
        client.force_login(user)
        return client

    return member


def test_staff_sees_the_memories_of_their_projects_alone(staff, memory):
    other = store(project="boat", title="Crane brake", external_id="b1")
    client = staff("curator")
    page = client.get(LIST).text
    assert memory.title in page
    assert "Crane brake" not in page
    assert client.get(page_of(other)).status_code == 302
    assert client.post(page_of(other), {"title": "x"}).status_code in {302, 403}
    client.post(LIST, {"action": "delete", "_selected_action": [other.pk]})
    other.refresh_from_db()
    assert (other.title, other.state) == ("Crane brake", "active")
    assert "boat" not in client.get("/admin/memories/project/").text


def test_curator_may_edit_and_viewer_may_not(staff, memory):
    client = staff("curator")
    assert save(client, memory, tags="tea").status_code == 302
    reader = staff("reader")
    assert reader.get(page_of(memory)).status_code == 200
    assert reader.post(page_of(memory), {"title": "x"}).status_code == 403
    assert reader.post(reverse("admin:memories_memory_delete", args=[memory.pk]), {"post": "yes"}).status_code == 403
    refused = reader.post(LIST, {"action": "archive", "_selected_action": [memory.pk]}, follow=True)
    assert "0 of 1" in refused.text
    memory.refresh_from_db()
    assert (memory.tags, memory.state) == (["tea"], "active")


# --- projects ----------------------------------------------------------------------------------------------------


def test_project_is_edited_and_audited(curator, memory):
    project = memory.project
    revision = Corpus.objects.get().revision
    address = reverse("admin:memories_project_change", args=[project.pk])
    form = {"name": "Tea house", "description": "All about tea.", "slug": "coffee", "language": "german"}
    assert curator.post(address, form).status_code == 302
    project.refresh_from_db()
    # Links and keys contain the slug; every term depends on the language.
    assert (project.name, project.slug, project.language) == ("Tea house", "tea", "english")
    event = AuditEvent.objects.get(verb="project_update")
    assert (event.door, event.before["name"], event.after["name"]) == ("admin", "tea", "Tea house")
    assert Corpus.objects.get().revision == revision + 1


def test_language_can_be_chosen_while_a_project_has_no_memories(curator):
    add = "/admin/memories/project/add/"
    assert curator.post(add, {"slug": "tee", "name": "Tee", "language": "german"}).status_code == 302
    project = Project.objects.get()
    address = reverse("admin:memories_project_change", args=[project.pk])
    assert curator.post(address, {"name": "Tee", "language": "dutch"}).status_code == 302
    project.refresh_from_db()
    assert project.language == "dutch"
    assert "language" in errors_of(curator.post(add, {"slug": "x", "name": "X", "language": "klingon"}))


def test_second_project_of_a_slug_is_an_error_of_the_form(curator, memory):
    form = {"slug": "tea", "name": "Other", "language": "english"}
    assert "slug" in errors_of(curator.post("/admin/memories/project/add/", form))
    assert not AuditEvent.objects.filter(verb="project_create").exists()


def test_saving_a_project_untouched_leaves_no_trace(curator, memory):
    address = reverse("admin:memories_project_change", args=[memory.project_id])
    assert curator.post(address, form_of(curator, address)).status_code == 302
    assert not AuditEvent.objects.filter(subject_type="project").exists()


def test_project_is_described_by_those_who_may_write_into_it_and_made_by_neither(staff, memory):
    address = reverse("admin:memories_project_change", args=[memory.project_id])
    client = staff("curator")
    assert client.post(address, {"name": "Tea house"}).status_code == 302
    assert client.get("/admin/memories/project/add/").status_code == 403
    reader = staff("reader")
    assert reader.get(address).status_code == 200
    assert reader.post(address, {"name": "x"}).status_code == 403
    assert Project.objects.get().name == "Tea house"


def test_project_is_never_deleted(curator, memory):
    address = reverse("admin:memories_project_delete", args=[memory.project_id])
    assert curator.post(address, {"post": "yes"}).status_code == 403


def test_record_as_imported_is_shown(curator, memory):
    Memory.objects.update(raw={"colour": "green"})
    assert "{&quot;colour&quot;: &quot;green&quot;}" in curator.get(page_of(memory)).text
