"""Deletion of all memories that match a query: previewed, bound to what was shown, and undone as a whole."""

import pytest

from access.models import AuditEvent
from memories.models import Memory, Project
from tests.explorer.memory.test_memory_api import Caller, key

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller():
    return Caller(key(["read", "write"]).raw)


@pytest.fixture
def notes(caller):
    states = ("active", "proposed", "archived")
    records = [{"content": f"Note {state}.", "title": state, "tags": ["old"], "state": state} for state in states]
    return [caller.send("post", "/api/memories", record).json()["id"] for record in records]


def forget(caller, status=200, **body):
    response = caller.send("post", "/api/memories/forget", body)
    assert response.status_code == status, response.content
    return response.json()


def states(ids):
    return list(Memory.objects.filter(pk__in=ids).order_by("pk").values_list("state", flat=True))


def test_preview_counts_and_names_what_would_be_deleted_and_deletes_nothing(caller, notes):
    plan = forget(caller, query="tag=old", dry_run=True)["plan"]
    assert (plan["memories"], [one["title"] for one in plan["examples"]]) == (2, ["proposed", "active"])
    assert states(notes) == ["active", "proposed", "archived"]
    assert forget(caller, status=422, query="tag=old")["detail"].startswith("token: is missing")
    assert forget(caller, status=422, query="?", dry_run=True)["detail"].startswith("query: is empty")
    for query in ("page_size=1", "sort=newest&mode=keyword"):
        assert forget(caller, query=query, dry_run=True)["plan"]["refusals"] == [
            "The query would delete all memories: give a text or a filter."
        ]


def test_confirmed_preview_deletes_exactly_what_it_showed(caller, notes):
    plan = forget(caller, query="tag=old", reason="stale", dry_run=True)["plan"]
    caller.send("post", "/api/memories", {"content": "One more.", "tags": ["old"]})
    assert forget(caller, status=409, query="tag=old", reason="stale", token=plan["token"])["error"] == "plan_changed"
    plan = forget(caller, query="tag=old", reason="stale", dry_run=True)["plan"]
    done = forget(caller, query="tag=old", reason="stale", token=plan["token"])
    assert done["curation"]["memories"] == 3
    assert states(notes) == ["deleted", "deleted", "archived"]
    memory = caller.get(f"/api/memories/{notes[0]}").json()
    assert (memory["state"], memory["state_reason"]) == ("deleted", "stale")
    assert caller.get("/api/search?tag=old").json()["total"] == 0
    event = caller.get(f"/api/memories/{notes[0]}/history").json()["events"][0]
    assert (event["kind"], event["door"], event["curation_id"]) == ("deleted", "api", done["curation"]["id"])
    feed = caller.get("/api/changes?kind=deleted").json()["changes"]
    assert [one["id"] for one in feed][:2] == notes[:2]
    assert AuditEvent.objects.get(verb="curation_forget").after["memories"] == 3


def test_all_come_back_by_one_undo(caller, notes):
    token = forget(caller, query="tag=old", dry_run=True)["plan"]["token"]
    done = forget(caller, query="tag=old", token=token)
    assert caller.send("post", f"/api/curation/{done['curation']['id']}/undo").status_code == 200
    assert states(notes) == ["active", "proposed", "archived"]
    assert [one["id"] for one in caller.get("/api/changes?kind=restored").json()["changes"]] == notes[:2]
    events = caller.get(f"/api/memories/{notes[1]}/history").json()["events"]
    assert [event["kind"] for event in events] == ["restored", "deleted", "created"]


def test_one_comes_back_by_its_restore_and_prevents_the_undo(caller, notes):
    token = forget(caller, query="tag=old", dry_run=True)["plan"]["token"]
    done = forget(caller, query="tag=old", token=token)
    undo = f"/api/curation/{done['curation']['id']}/undo"
    restored = caller.send("post", f"/api/memories/{notes[1]}/restore").json()
    assert restored["state"] == "proposed"
    refused = caller.send("post", undo)
    assert (refused.status_code, refused.json()["detail"]) == (409, f"#{notes[1]} has another state since.")
    assert states(notes) == ["deleted", "proposed", "archived"]


def test_keys_delete_only_what_they_may_write(caller, notes):
    project = Project.objects.create(slug="open", name="open")
    limited = Caller(key(["read", "write"], project).raw)
    limited.send("post", "/api/memories", {"content": "Mine.", "tags": ["old"]})
    plan = forget(limited, query="tag=old", dry_run=True)["plan"]
    assert (plan["memories"], [one["title"] for one in plan["examples"]]) == (1, ["Mine."])
    reader = Caller(key(["read"]).raw)
    assert forget(reader, status=403, query="tag=old", dry_run=True)["error"] == "forbidden"
    curator = Caller(key(["read", "curate"]).raw)
    assert forget(curator, status=403, query="tag=old", dry_run=True)["error"] == "forbidden"
