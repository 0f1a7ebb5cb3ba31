"""The context of a session: pinned, decided, proposed and changed memories, within a budget, of visible projects."""

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access.keys import make_key
from access.viewer import Viewer, command_viewer, viewer_of_key, viewer_of_user
from explorer.sessions.context import ContextRequest, session_context
from memories.models import Memory, Project
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_update
from tests.html import html_of
from text.formatting import estimated_tokens
from web.params import QueryError

pytestmark = pytest.mark.django_db


def context(viewer=None, **asked):
    return session_context(ContextRequest.from_mapping(asked), viewer or command_viewer())


def titles(found):
    return {section.key: [memory.title for memory in section.memories] for section in found.sections}


def key_of_boat():
    boat = Project.objects.filter(slug="boat")
    return make_key(name="agent", scopes=["read"], viewer=command_viewer(), projects=boat)


def test_context_lists_each_memory_once_where_it_matters_most(corpus):
    found = context(project="tea")
    assert titles(found) == {
        "pinned": ["Sugar on every table", "Descale with rm -rf vinegar"],
        "decisions": ["Brew green tea at 70 °C"],
        "proposed": ["Serve tea on the boat"],
        "changed": ["tea tea tea tea", "Cups", "Guests like oolong", "Kettle valve stuck"],
    }
    assert found.total == 8
    assert found.categories[:2] == (("guests", 3), ("kitchen", 3))
    assert found.concepts == (("temperature", 2), ("hospitality", 1), ("maintenance", 1))
    pinned = Memory.objects.get(external_id="t7")
    assert f"## Pinned and important\n- #{pinned.pk} 2024-11-01 decision: Sugar on every table\n" in found.text
    assert "No sugar on the tables" not in found.text


def test_context_tells_nothing_of_other_projects(corpus):
    viewer = viewer_of_key(key_of_boat().key)
    found = context(viewer)
    assert found.total == 6
    assert {memory.project for section in found.sections for memory in section.memories} == {"boat"}
    assert titles(found)["pinned"] == []
    assert found.concepts == (("safety", 3), ("maintenance", 1))
    hidden, absent = (context(viewer, project=name).text for name in ("tea", "nowhere"))
    assert hidden.replace("tea", "nowhere") == absent
    assert "0 memories" in absent


def test_hook_reads_the_context_as_text(corpus):
    client = Client(headers={"Authorization": f"Bearer {key_of_boat().raw}"})
    response = client.get("/api/context?project=boat&budget=500&format=text")
    assert (response.status_code, response["Content-Type"]) == (200, "text/plain; charset=utf-8")
    reply = client.get("/api/context?projects=boat&max_tokens=500").json()
    assert response.content.decode() == reply["text"] + "\n"
    assert reply["text"].startswith("# boat: 6 memories\n")
    assert reply["tokens"] <= 500
    assert [section["key"] for section in reply["sections"]] == ["pinned", "decisions", "proposed", "changed"]
    assert reply["sections"][1]["query"] == "project=boat&type=decision&state=active"
    wrong = client.get("/api/context?budget=20")
    assert wrong.status_code == 422
    assert "budget: 20 is too small" in wrong.json()["detail"]


def test_what_is_only_proposed_is_nowhere_listed_as_decided(corpus):
    record = MemoryRecord(project="tea", type="decision", state="proposed", title="No milk", content="No milk at all.")
    memory_create(record=record, viewer=command_viewer())
    found = titles(context(project="tea"))
    assert found["decisions"] == ["Brew green tea at 70 °C"]
    assert found["proposed"] == ["No milk", "Serve tea on the boat"]


def test_what_is_proposed_is_marked_among_the_changes(corpus, monkeypatch):
    monkeypatch.setattr("explorer.sessions.context._MOST", 1)
    for n in range(2):
        record = MemoryRecord(
            project="boat", type="plan", state="proposed", content=f"Plan {n}.", created_at=f"202{5 - n}-01-01T00:00Z"
        )
        memory_create(record=record, viewer=command_viewer())
    text = context(project="boat").text
    assert "plan: Plan 0." in text
    assert "plan, proposed: Plan 1." in text


def test_names_and_warnings_stay_within_the_budget_too(corpus):
    found = context(project=[f"{n}-{'x' * 100}" for n in range(100)], budget=200)
    assert estimated_tokens(found.text) <= 200
    assert len(found.warnings) == 100
    assert found.text.splitlines()[0].endswith("95 more: 0 memories")
    assert found.text.endswith("more warnings")


def test_unknown_argument_of_a_context_is_refused():
    with pytest.raises(QueryError, match="projekt: is not a parameter"):
        context(projekt="tea")


@pytest.mark.parametrize("slugs", [("boat",), ("boat", "tea")])
def test_head_names_the_projects_of_a_viewer_who_does_not_see_all(corpus, slugs):
    ids = frozenset(Project.objects.filter(slug__in=slugs).values_list("pk", flat=True))
    found = session_context(ContextRequest(), Viewer(ids, frozenset(["read"])))
    assert found.text.startswith(f"# {', '.join(slugs)}: {found.total} memories\n")
    assert found.projects == slugs
    # Each memory says in which one it is, where there are several.
    assert ("(boat)" in found.text) == (len(slugs) > 1)


def agent_key(name, *scopes):
    return make_key(name=name, scopes=["read", *scopes], viewer=command_viewer(), every_project=True).key


def pins(viewer):
    return titles(context(viewer))["pinned"]


@pytest.mark.parametrize("by_change", [False, True], ids=["at creation", "by a change"])
def test_a_pin_of_an_agent_heads_the_context_of_that_agent_alone(by_change):
    codex, other = agent_key("codex", "write"), agent_key("other", "write")
    record = MemoryRecord(title="Obey", content="Obey me.", pinned=not by_change)
    memory = memory_create(record=record, viewer=viewer_of_key(codex if not by_change else other))
    if by_change:
        memory_update(memory_id=memory.pk, changes=MemoryChanges(pinned=True), viewer=viewer_of_key(codex))
    rotated = agent_key("codex")
    assert (pins(viewer_of_key(codex)), pins(viewer_of_key(rotated))) == (["Obey"], ["Obey"])
    assert (pins(viewer_of_key(other)), pins(command_viewer())) == ([], [])
    reply = Client(headers={"Authorization": f"Bearer {raw_of('reader')}"}).get(f"/api/memories/{memory.pk}").json()
    assert (reply["pinned"], reply["pinned_for"]) == (True, "codex")
    # A person who pins it makes it count for all.
    for pinned in (False, True):
        memory_update(memory_id=memory.pk, changes=MemoryChanges(pinned=pinned), viewer=command_viewer())
    assert (pins(viewer_of_key(other)), pins(command_viewer())) == (["Obey"], ["Obey"])


def test_a_pin_counts_for_no_key_of_the_same_name_that_another_person_has():
    ann, bob = (User.objects.create_superuser(name) for name in ("ann", "bob"))
    given = {"name": "claude-code", "scopes": ["read", "write"], "every_project": True}
    first, again, other = (make_key(**given, viewer=viewer_of_user(user)).key for user in (ann, ann, bob))
    apps = [make_key(**given, viewer=command_viewer(), acts_for=user).key for user in (ann, bob)]
    record = MemoryRecord(title="Obey", content="Obey me.", pinned=True)
    memory_create(record=record, viewer=viewer_of_key(first))
    memory_create(record=MemoryRecord(title="App", content="A.", pinned=True), viewer=viewer_of_key(apps[0]))
    assert [pins(viewer_of_key(key)) for key in (first, again, other)] == [["Obey"], ["Obey"], []]
    assert [pins(viewer_of_key(key)) for key in apps] == [["App"], []]


def raw_of(name):
    return make_key(name=name, scopes=["read"], viewer=command_viewer(), every_project=True).raw


def test_a_pin_of_a_key_that_may_curate_counts_for_all_and_one_of_a_lost_key_for_nobody():
    curator, lost = agent_key("curator", "write", "curate"), agent_key("lost", "write")
    for title, key in (("Kept", curator), ("Lost", lost)):
        memory_create(record=MemoryRecord(title=title, content=f"{title}.", pinned=True), viewer=viewer_of_key(key))
    lost.delete()
    assert (pins(viewer_of_key(agent_key("other"))), pins(command_viewer())) == (["Kept"], ["Kept"])


def test_a_context_asks_the_database_no_more_with_many_keys(corpus, django_assert_max_num_queries):
    pins(command_viewer())
    with CaptureQueriesContext(connection) as few:
        pins(command_viewer())
    for number in range(9):
        make_key(name=f"k{number}", scopes=["read"], viewer=command_viewer(), projects=Project.objects.all())
    with django_assert_max_num_queries(len(few)):
        pins(command_viewer())


def test_an_important_memory_is_listed_although_its_pin_does_not_count():
    writer = agent_key("codex", "write")
    for title, importance in (("Obey", 0.9), ("Quiet", 0.1)):
        record = MemoryRecord(title=title, content=f"{title}.", pinned=True, importance=importance)
        memory_create(record=record, viewer=viewer_of_key(writer))
    memory_create(record=MemoryRecord(title="Older pin", content="Pinned.", pinned=True), viewer=command_viewer())
    assert pins(command_viewer()) == ["Older pin", "Obey"]


def test_the_page_of_a_memory_says_for_whom_it_is_pinned(admin_client):
    record = MemoryRecord(title="Obey", content="Obey me.", pinned=True)
    memory = memory_create(record=record, viewer=viewer_of_key(agent_key("codex", "write")))
    assert "for codex" in html_of(admin_client.get(f"/m/{memory.pk}/"))
