"""Projects, tags and sessions as lists, and who asks, also for a key that may see only a part."""

import re
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import Membership
from access.viewer import command_viewer
from categories.models import TagAlias
from memories.models import Memory, Project, Session
from memories.records import MemoryRecord
from memories.services import memory_archive, memory_create, memory_delete
from tests.html import html_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def key(corpus):
    """A function that makes a client with a key for some projects, or for every one."""

    def client(*slugs, scopes=("read",), **more):
        projects = Project.objects.filter(slug__in=slugs)
        made = make_key(
            name="agent", scopes=scopes, viewer=command_viewer(), projects=projects, every_project=not slugs, **more
        )
        return Client(headers={"X-API-Key": made.raw})

    return client


def get(client, path, status=200):
    response = client.get(f"/api{path}")
    assert response.status_code == status, response.content
    return response.json()


def test_projects_come_with_what_they_hold(key, engine):
    reply = get(key(scopes=["read", "write"]), "/projects")
    rows = [(row["slug"], row["name"], row["memories"], row["may_write"]) for row in reply["projects"]]
    assert rows == [("tea", "Tea house", 8, True), ("boat", "Boat yard", 6, True)]
    assert (reply["total"], reply["pages"], reply["has_more"]) == (2, 1, False)
    assert reply["projects"][0]["url"] == "http://testserver/explore/?project=tea"


def test_projects_of_others_are_neither_listed_nor_counted(key):
    Project.objects.create(slug="attic", name="Attic")
    reply = get(key("boat"), "/projects")
    assert [(row["slug"], row["memories"], row["may_write"]) for row in reply["projects"]] == [("boat", 6, False)]
    assert get(key("boat"), "/projects?search=tea")["total"] == 0
    assert get(key("attic"), "/projects")["projects"][0]["memories"] == 0


def test_tags_come_with_counts_and_aliases(key, engine):
    TagAlias.objects.create(alias="chai", tag="tea")
    reply = get(key(), "/tags?page_size=2")
    assert reply["tags"][0] == {"tag": "tea", "count": 4, "aliases": ["chai"]}
    assert (reply["memories"], reply["page_size"], reply["has_more"]) == (14, 2, True)
    names = get(key(), "/tags?sort=name&search=tea")
    assert [row["tag"] for row in names["tags"]] == ["tea"]


def test_tags_are_those_of_a_query_and_of_visible_memories(key):
    assert [row["tag"] for row in get(key(), "/tags?type=decision&project=tea")["tags"]] == ["tea", "brewing", "guests"]
    assert "tea" not in [row["tag"] for row in get(key("boat"), "/tags")["tags"]]
    assert "parent" in get(key(), "/tags?parent=yard", 422)["detail"]


def test_sessions_come_with_their_memories(key):
    for project, session, text in (("tea", "s1", "One."), ("tea", "s1", "Two."), ("boat", "s2", "Three.")):
        record = MemoryRecord(project=project, content=text, session=session, agent="claude-code")
        memory_create(record=record, viewer=command_viewer())
    rows = [(row["session"], row["project"], row["memories"]) for row in get(key(), "/sessions")["sessions"]]
    assert rows == [("s2", "boat", 1), ("s1", "tea", 2)]
    assert [row["session"] for row in get(key("tea"), "/sessions")["sessions"]] == ["s1"]
    assert get(key("tea"), "/sessions?project=TEA")["total"] == 1
    for hidden in ("boat", "teaa"):
        refused = get(key("tea"), f"/sessions?project={hidden}", 422)
        assert refused["detail"] == f"project: there is no project '{hidden}' that you can see"
    assert refused["did_you_mean"] == ["tea"]
    assert get(key(), "/sessions?search=S1&page_size=1")["sessions"][0]["memories"] == 2


@pytest.fixture
def session(corpus):
    """A session of three memories: the second replaces one of the corpus, the third is archived."""
    viewer = command_viewer()
    made = []
    for hour, (text, more) in enumerate([("One.", {}), ("Two.", {"supersedes": ["t7"]}), ("Three.", {})]):
        record = MemoryRecord(
            project="tea",
            title=text,
            content=f"**{text}** At length.",
            type="decision" if hour == 1 else "note",
            session="s1",
            agent="claude-code",
            created_at=f"2026-03-04T1{hour}:00:00Z",
            **more,
        )
        made.append(memory_create(record=record, viewer=viewer))
    memory_archive(memory_id=made[2].pk, viewer=viewer)
    return made[0].session


def test_sessions_are_listed_by_when_they_began_and_lead_to_those_around(key, client):
    """By their start, else by the earliest of their memories, wherever it came in; those without either come last."""
    project = Project.objects.get(slug="tea")
    Session.objects.create(project=project, external_id="started", started_at=datetime(2026, 3, 1, tzinfo=UTC))
    Session.objects.create(project=project, external_id="unknown")
    for day in ("2026-02-05", "2026-02-01", "2026-02-07"):
        record = MemoryRecord(project="tea", content=f"Brewed on {day}.", session="stored", created_at=day)
        memory_create(record=record, viewer=command_viewer())
    record = MemoryRecord(project="tea", content="Brewed later.", session="later", created_at="2026-03-02")
    memory_create(record=record, viewer=command_viewer())
    listed = [row["session"] for row in get(key("tea"), "/sessions")["sessions"]]
    assert [name for name in listed if name in {"started", "unknown", "stored", "later"}] == [
        "later",
        "started",
        "stored",
        "unknown",
    ]
    stored = Session.objects.get(external_id="stored")
    assert stored.begun_at == datetime(2026, 2, 1, tzinfo=UTC)
    client.force_login(User.objects.create_superuser("ada"))
    page = html_of(client.get(f"/sessions/{stored.pk}/"))
    later = Session.objects.get(external_id="later")
    assert f'rel="next" href="/sessions/{later.pk}/"' not in page, "the one that has a start is between them"
    assert 'rel="next"' in page
    assert html_of(client.get(f"/sessions/{Session.objects.get(external_id='unknown').pk}/")).count('rel="next"') == 0


def test_sessions_are_found_by_the_words_of_their_memories(key, session):
    assert get(key(), "/sessions?search=two")["total"] == 1
    assert get(key("boat"), "/sessions?search=two")["total"] == 0
    assert get(key(), "/sessions?search=zeppelin")["total"] == 0
    assert get(key(), "/sessions?search=%25%26%7C!")["total"] == 0
    # As in a search: alternatives, and words that exclude.
    assert get(key(), "/sessions?search=zeppelin+or+two")["total"] == 1
    assert get(key(), "/sessions?search=two+length")["total"] == 1
    # No memory of a session that is found has an excluded word, though it be another one than has the words.
    assert get(key(), "/sessions?search=two+-zeppelin")["total"] == 1
    assert get(key(), "/sessions?search=two+-one")["total"] == 0
    memory_delete(memory_id=Memory.objects.get(title="Two.").pk, viewer=command_viewer(), reason="old")
    assert get(key(), "/sessions?search=two")["total"] == 0


def test_a_session_lists_what_it_did_in_order(key, session, client):
    reply = get(key("tea"), f"/sessions/{session.pk}")
    rows = [(row["title"], row["state"], [old["title"] for old in row["replaced"]]) for row in reply["memories"]]
    assert rows == [("One.", "active", []), ("Two.", "active", ["Sugar on every table"]), ("Three.", "archived", [])]
    assert (reply["total"], reply["retired"], reply["types"]) == (3, 1, {"note": 2, "decision": 1})
    second = get(key("tea"), f"/sessions/{session.pk}?page_size=1&page=2")["memories"]
    assert [row["title"] for row in second] == ["Two."]
    client.force_login(User.objects.create_superuser("ada"))
    page = html_of(client.get(f"/sessions/{session.pk}/"))
    assert re.findall(r'<h3><a href="/m/\d+/">([^<]+)</a></h3>', page) == ["One.", "Two.", "Three."]
    assert "<dd>3 memories, 1 of them archived or superseded since</dd>" in page
    assert f'href="/sessions/{session.pk}/">One.</a><small class="id">s1</small>' in html_of(
        client.get("/sessions/?agent=claude-code")
    )
    listed = html_of(client.get("/sessions/?project=tea&search=s1"))
    assert '<a href="/sessions/?project=tea&amp;agent=claude-code&amp;search=s1">claude-code</a>' in listed
    memory = reply["memories"][0]["id"]
    assert f'href="/sessions/{session.pk}/"' in html_of(client.get(f"/m/{memory}/"))


def test_a_session_of_another_project_does_not_exist(key, session, client):
    refused = get(key("boat"), f"/sessions/{session.pk}", 404)
    assert refused["detail"] == f"There is no session {session.pk} that you can see."
    ada = User.objects.create_user("ada")
    Membership.objects.create(user=ada, project=Project.objects.get(slug="boat"), role="reader")
    client.force_login(ada)
    assert client.get(f"/sessions/{session.pk}/").status_code == 404
    page = client.get("/sessions/?project=tea")
    assert "there is no project" in html_of(page)
    # As a word: a random token may contain it.
    assert not re.search(r"\bs1\b", html_of(page))


def test_a_key_is_shown_its_rights_and_its_allowance(key):
    reply = get(key("tea", scopes=["read", "write"], requests_per_minute=60), "/whoami")
    assert (reply["kind"], reply["name"], reply["scopes"]) == ("key", "agent", ["read", "write"])
    assert (reply["projects"], reply["writable"], reply["expires_at"]) == (["tea"], ["tea"], None)
    assert reply["allowance"] == {"limit": 60, "remaining": 59, "reset": 1}
    assert reply["key"].startswith("mnk_")
    assert len(reply["key"]) == 12
    assert reply["api_version"] == "1"
    everything = get(key(), "/whoami")
    assert (everything["projects"], everything["writable"]) == (None, [])
