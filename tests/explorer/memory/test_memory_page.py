"""The page of one memory."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.models import AuditEvent, Membership
from access.viewer import command_viewer, viewer_of_user
from categories.models import Category, CategoryLink, Concept, Entity, Relationship
from memories.models import ImportBatch, Memory, MemoryLink, Project, Session
from memories.queries import memory_details
from memories.records import MemoryChanges
from memories.services import memory_update
from memories.storage import corpus_bump
from tests.html import html_of

START = datetime(2026, 3, 1, 10, tzinfo=UTC)


def make(project, pk, **fields):
    fields = {
        "title": f"Memory number {pk}",
        "content": "Some text.",
        "created_at": START,
        "updated_at": START,
        **fields,
    }
    return Memory.objects.create(id=pk, project=project, content_hash=str(pk), **fields)


@pytest.fixture
def kettle(tea):
    """A memory with every kind of related record."""
    oven = Category.objects.create(
        name="Oven", path="kitchen/oven", depth=2, parent=Category.objects.create(name="Kitchen", path="kitchen")
    )
    mio = Entity.objects.create(name="Mio", entity_type="person")
    boiler = Entity.objects.create(name="boiler", entity_type="tool")
    heat = Concept.objects.create(name="heat")
    batch = ImportBatch.objects.create(origin="tea.jsonl", format="jsonl", started_at=START + timedelta(days=9))
    session = Session.objects.create(project=tea, external_id="s-17", title="Kettle day")
    memory = make(
        tea,
        100,
        title="Kettle leaks",
        content="The **kettle** leaks.",
        memory_type="bugfix",
        tags=["kettle", "hot water"],
        authors=["Mio"],
        agent="codex",
        source="git",
        source_uri="https://tea.example/issues/7",
        external_id="t-7",
        confidence=0.8,
        importance=0.5,
        batch=batch,
        session=session,
        category_ids=[oven.pk],
        category_path_ids=[oven.parent_id, oven.pk],
        concept_ids=[heat.pk],
        entity_ids=[mio.pk, boiler.pk],
    )
    CategoryLink.objects.create(memory=memory, category=oven)
    Relationship.objects.create(
        source=mio, relationship_type="repairs", target=boiler, fact="Mio repaired it.", evidence_ids=[100]
    )
    AuditEvent.objects.create(
        at=START + timedelta(days=10),
        door="api",
        verb="memory_update",
        subject_type="memory",
        subject_id=100,
        before={"title": "Kettle", "tags": []},
        after={"title": "Kettle leaks", "tags": []},
        note="said more",
    )
    return memory


def test_detail_shows_text_facts_and_provenance(reader, kettle):
    response = reader.get("/m/100/")
    assert response.status_code == 200
    text = html_of(response)
    assert "<h1>Kettle leaks</h1>" in text
    assert '<div class="prose" hx-disable><p>The <strong>kettle</strong> leaks.</p>' in text
    assert "<title>Kettle leaks · Mnemoscope</title>" in text
    assert 'href="https://tea.example/issues/7"' in text
    for told in ("t-7", "80%", "50%", "Kettle day", "batch", "#100"):
        assert told in text


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("/explore/?project=tea", id="project"),
        pytest.param("/explore/?type=bugfix", id="type"),
        pytest.param("/explore/?state=active", id="state"),
        pytest.param("/explore/?from=2026-03-01&amp;to=2026-03-01", id="day"),
        pytest.param("/categories/kitchen/oven/", id="category"),
        pytest.param("/explore/?tag=hot+water", id="tag"),
        pytest.param("/graph/concept/heat/", id="concept"),
        pytest.param("/graph/entity/person:Mio/", id="entity"),
        pytest.param("/explore/?author=Mio", id="author"),
        pytest.param("/explore/?agent=codex", id="agent"),
        pytest.param("/explore/?source=git", id="source"),
    ],
)
def test_every_fact_leads_to_more_of_it(reader, kettle, address):
    assert f'href="{address}"' in html_of(reader.get("/m/100/"))


def test_version_is_restored_by_who_may_write(client, kettle):
    memory_update(
        memory_id=100,
        changes=MemoryChanges(content="The kettle leaks a lot.", tags=("kettle",)),
        viewer=command_viewer(),
        reason="more",
    )
    reader = User.objects.create_user("reader")
    Membership.objects.create(user=reader, project=kettle.project)
    client.force_login(reader)
    text = html_of(client.get("/m/100/"))
    assert "<del>hot water</del>" in text
    assert "Restore this version" not in text
    client.post("/m/100/history/first/restore/")
    assert Memory.objects.get(pk=100).tags == ["kettle"]
    Membership.objects.update(role=Membership.Role.CURATOR)
    text = html_of(client.get("/m/100/"))
    event = AuditEvent.objects.get(verb="memory_update").pk
    version = re.search(r'name="version" value="(\w+)"', text)[1]
    assert f'action="/m/100/history/{event}/restore/"' in text
    done = client.post(f"/m/100/history/{event}/restore/", {"version": version}, follow=True)
    assert "Restored as it was at that time" in html_of(done)
    assert Memory.objects.get(pk=100).tags == ["kettle", "hot water"]
    late = client.post(f"/m/100/history/{event}/restore/", {"version": version}, follow=True)
    assert "Not restored. #100 was changed since you read it" in unescape(html_of(late))
    assert client.post("/m/99/history/1/restore/").status_code == 404


@pytest.mark.parametrize(
    "context",
    [
        "https://evil.example/",
        "//evil.example",
        "javascript:alert(1)",
        '"><script>',
        "nope=1&tag=tea",
        "%00",
        "=",
        "&&&",
    ],
)
def test_back_leads_nowhere_else(reader, tea, context):
    make(tea, 1)
    text = html_of(reader.get("/m/1/", {"ctx": context}))
    address = re.search(r'<p class="back"><a class="link" href="([^"]*)"', text)[1]
    assert address.startswith("/explore/")
    assert "evil" not in address


def test_memory_of_another_project_is_not_found_nor_named(tea):
    boat = Project.objects.create(slug="boat", name="Boat yard")
    make(tea, 1)
    make(boat, 2, title="Secret crane")
    make(boat, 3, title="Secret dock", superseded_by_id=1)
    MemoryLink.objects.create(memory_id=1, ordinal=0, rel="mentions", target="b-2", target_memory_id=2)
    MemoryLink.objects.create(memory_id=2, ordinal=0, rel="mentions", target="t-1", target_memory_id=1)
    Memory.objects.filter(pk=1).update(superseded_by=2, state="superseded")
    user = User.objects.create_user("guest")
    Membership.objects.create(user=user, project=tea)
    client = Client()
    client.force_login(user)
    assert client.get("/m/2/").status_code == 404
    text = html_of(client.get("/m/1/"))
    assert "Secret" not in text
    assert "/m/2/" not in text
    assert memory_details(viewer_of_user(user), [2]) == {}


def test_detail_needs_a_sign_in(client, tea):
    make(tea, 1)
    assert client.get("/m/1/")["Location"].startswith("/sign-in/?next=/m/1/")


def test_detail_is_private(reader, tea):
    make(tea, 1)
    assert reader.get("/m/1/")["Cache-Control"] == "private, no-cache"


@pytest.mark.django_db(transaction=True)
def test_statements_do_not_grow_with_what_hangs_on_it(reader, tea, kettle, django_assert_num_queries):
    for pk in range(200, 260):
        make(tea, pk, superseded_by=kettle, state="superseded")
        MemoryLink.objects.create(memory=kettle, ordinal=pk - 100, rel="mentions", target=str(pk), target_memory_id=pk)
        MemoryLink.objects.create(memory_id=pk, ordinal=0, rel="mentions", target="t-7", target_memory_id=100)
    # The last one reads the titles of what it links to. Names are cached by the revision.
    corpus_bump()
    reader.get("/m/100/")
    with django_assert_num_queries(12):
        reader.get("/m/100/")


def test_path_of_an_import_on_the_server_is_not_shown(reader, tea):
    batch = ImportBatch.objects.create(origin="/srv/private/tea.jsonl", format="jsonl", started_at=START)
    make(tea, 1, batch=batch)
    text = html_of(reader.get("/m/1/"))
    assert f'href="/explore/?import={batch.pk}&' in unescape(text)
    assert ">tea.jsonl, jsonl, 1 Mar 2026</a>" in text
    assert "/srv/private" not in text


def test_superseded_memory_leads_to_its_successor_and_back(reader, tea):
    newer = make(tea, 2, title="Green tea at 75")
    make(tea, 1, title="Green tea at 70", state="superseded", superseded_by=newer, state_reason="Tasted again.")
    old = html_of(reader.get("/m/1/"))
    assert 'Superseded by <a class="link" href="/m/2/">Green tea at 75</a>' in old
    assert "Tasted again." in old
    assert 'Supersedes <a class="link" href="/m/1/">Green tea at 70</a>' in html_of(reader.get("/m/2/"))
