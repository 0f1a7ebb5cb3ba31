"""Memories through the API: stored, read, changed, deleted, restored; each write audited with its key."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import InternalError, OperationalError, connection
from django.db.models.functions import Now
from django.test import Client

from access.keys import make_key
from access.models import AuditEvent
from access.viewer import command_viewer
from memories.models import Corpus, Memory, OutboxEntry, Project
from search.engines.index import follower, store
from tests.embedding import embed_all

pytestmark = pytest.mark.django_db

RECORD = {
    "content": "Retries wait twice as long each time, plus jitter.",
    "title": "Retries back off",
    "summary": "How we retry.",
    "project": "backend",
    "type": "decision",
    "tags": ["HTTP", "resilience", "http"],
    "categories": ["Backend/Clients"],
    "concepts": [{"name": "backoff", "type": "pattern", "weight": 0.5}],
    "entities": [{"name": "httpx", "type": "library"}],
    "links": [{"rel": "see", "target": "https://example.org/backoff", "url": "https://example.org/backoff"}],
    "authors": ["Ines"],
    "agent": "claude-code",
    "session": "s-1",
    "source": "adr",
    "source_url": "https://example.org/adr/17",
    "external_id": "adr-17",
    "importance": 0.8,
    "confidence": 0.5,
    "pinned": True,
    "created_at": "2026-03-02T09:14:00Z",
    "happened_at": "2026-03-01",
    "valid_from": "2026-03-02",
    "valid_to": "2027-03-02",
}


def key(scopes, *projects):
    return make_key(name="agent", scopes=scopes, projects=projects, every_project=not projects, viewer=command_viewer())


class Caller(Client):
    """A client that speaks JSON with a key."""

    def __init__(self, raw):
        super().__init__(headers={"Authorization": f"Bearer {raw}"})

    def send(self, method, path, body=None):
        return getattr(self, method)(path, {} if body is None else body, content_type="application/json")


@pytest.fixture
def agent():
    return key(["read", "write"])


@pytest.fixture
def caller(agent):
    return Caller(agent.raw)


@pytest.fixture
def stored(caller):
    response = caller.send("post", "/api/memories", RECORD)
    assert response.status_code == 201, response.content
    return response.json()


def test_create_answers_where_the_memory_is_and_what_it_is(caller):
    response = caller.send("post", "/api/memories", RECORD)
    assert response.status_code == 201
    reply = response.json()
    assert response["Location"] == f"/api/memories/{reply['id']}"
    assert reply["url"] == f"http://testserver/m/{reply['id']}/"
    assert reply["state"] == "active"
    assert caller.get(response["Location"]).json() == reply["memory"]


def test_memory_comes_back_with_everything_about_it(caller, stored):
    memory = caller.get(f"/api/memories/{stored['id']}").json()
    assert memory["memory_type"] == "decision"
    assert memory["tags"] == ["http", "resilience"]
    assert memory["categories"] == [{"path": "backend/clients", "names": ["Backend", "Clients"]}]
    assert memory["concepts"] == [{"value": "backoff", "name": "backoff", "type": "pattern"}]
    assert memory["entities"] == [{"value": "library:httpx", "name": "httpx", "type": "library"}]
    assert memory["links"] == [
        {
            "rel": "see",
            "target": "https://example.org/backoff",
            "url": "https://example.org/backoff",
            "memory": None,
        }
    ]
    same = ("content", "title", "summary", "project", "authors", "agent", "session", "source", "external_id", "pinned")
    assert {name: memory[name] for name in same} == {name: RECORD[name] for name in same}
    assert (memory["importance"], memory["confidence"]) == (0.8, 0.5)
    assert memory["source_uri"] == "https://example.org/adr/17"
    assert memory["created_at"] == "2026-03-02T09:14:00Z"
    assert memory["happened_at"] == "2026-03-01T00:00:00Z"
    assert (memory["valid_from"], memory["valid_to"]) == ("2026-03-02T00:00:00Z", "2027-03-02T00:00:00Z")
    assert memory["superseded_by"] is None
    assert (memory["supersedes"], memory["backlinks"], memory["relationships"]) == ([], [], [])


def test_new_memory_is_found_when_the_write_returns(caller, stored):
    found = caller.get("/api/search", {"q": "jitter", "tag": "http", "category": "backend"}).json()
    assert [hit["id"] for hit in found["memories"]] == [stored["id"]]


def test_second_memory_of_an_id_is_refused_with_the_first(caller, stored):
    response = caller.send("post", "/api/memories", {**RECORD, "content": "Other words."})
    assert response.status_code == 409
    body = response.json()
    assert body["error"] == "external_id_taken"
    assert f"#{stored['id']}" in body["detail"]
    assert response["Location"] == f"/api/memories/{stored['id']}"
    assert Memory.objects.count() == 1


def test_patch_changes_what_it_names_and_leaves_the_rest(caller, stored):
    path = f"/api/memories/{stored['id']}?reason=reviewed"
    response = caller.send("patch", path, {"tags": ["http"], "memory_type": "note", "importance": None})
    assert response.status_code == 200
    memory = response.json()["memory"]
    assert (memory["tags"], memory["memory_type"], memory["importance"]) == (["http"], "note", None)
    changed = {name: memory[name] for name in ("tags", "memory_type", "importance", "updated_at", "version")}
    assert memory == {**stored["memory"], **changed}
    assert response.json()["updated_at"] > stored["updated_at"]


def test_patch_moves_a_memory_to_a_project_that_the_key_may_write(caller, stored):
    Project.objects.create(slug="web", name="web")
    path = f"/api/memories/{stored['id']}"
    own = Caller(key(["read", "write"], Project.objects.get(slug="backend")).raw)
    assert own.send("patch", path, {"project": "web"}).status_code == 422
    moved = caller.send("patch", path, {"project": "web", "valid_to": "2027-01-01T00:00:00Z"})
    assert (moved.status_code, moved.json()["memory"]["project"]) == (200, "web")
    assert caller.get("/api/search?q=retries&project=backend").json()["total"] == 0


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        pytest.param({"content": ""}, "content: is empty", id="no text"),
        pytest.param(
            {"project": "elsewhere"},
            "project: there is no project 'elsewhere'",
            id="another project",
        ),
        pytest.param({"superseded_by": "nobody"}, "superseded_by: 'nobody' is not a memory", id="unknown successor"),
        pytest.param({"valid_to": "1999-01-01"}, "valid_to: is before valid_from", id="ends before it begins"),
        pytest.param({"created_at": None}, "created_at: cannot be empty", id="no date"),
        pytest.param({"colour": "red"}, "colour: is not a field", id="unknown field"),
        pytest.param({"title": "a\x00b"}, "title: holds a NUL character", id="NUL"),
        pytest.param({"tags": [{}]}, "tags: ", id="no tag"),
    ],
)
def test_patch_that_makes_no_sense_is_refused_and_changes_nothing(caller, stored, changes, detail):
    path = f"/api/memories/{stored['id']}"
    response = caller.send("patch", path, {"summary": "Other.", **changes})
    assert response.status_code == 422
    assert detail in response.json()["detail"]
    assert caller.get(path).json() == stored["memory"]


def test_delete_is_a_state_that_can_be_undone(caller, stored):
    path = f"/api/memories/{stored['id']}"
    deleted = caller.delete(f"{path}?reason=obsolete")
    assert (deleted.status_code, deleted.json()["state"]) == (200, "deleted")
    assert deleted.json()["memory"]["state_reason"] == "obsolete"
    assert caller.get("/api/search").json()["total"] == 0
    assert caller.get("/api/search?state=deleted").json()["total"] == 1
    restored = caller.post(f"{path}/restore")
    assert (restored.status_code, restored.json()["state"]) == (200, "active")
    assert caller.get("/api/search").json()["total"] == 1
    assert Memory.objects.count() == 1


def test_every_write_is_audited_with_its_key_and_reason(caller, agent, stored):
    path = f"/api/memories/{stored['id']}"
    caller.send("patch", f"{path}?reason=reviewed", {"tags": ["http"]})
    caller.delete(f"{path}?reason=obsolete")
    caller.post(f"{path}/restore?reason=needed")
    events = AuditEvent.objects.filter(subject_type="memory", subject_id=stored["id"]).order_by("pk")
    assert [event.verb for event in events] == ["create", "update", "delete", "restore"]
    assert {event.door for event in events} == {"api"}
    assert {event.api_key_id for event in events} == {agent.key.pk}
    assert [event.note for event in events[1:]] == ["reviewed", "obsolete", "needed"]
    assert events[1].before["tags"] == ["http", "resilience"]
    assert events[1].after["tags"] == ["http"]


@pytest.mark.parametrize(
    ("method", "suffix"), [("get", ""), ("patch", ""), ("delete", ""), ("post", "/restore")], ids=lambda part: part
)
def test_memory_of_another_project_is_not_there(caller, stored, method, suffix):
    other = Project.objects.create(slug="other", name="Other")
    stranger = Caller(key(["read", "write"], other).raw)
    there = stranger.send(method, f"/api/memories/{stored['id']}{suffix}")
    nowhere = stranger.send(method, f"/api/memories/999999{suffix}")
    assert there.status_code == nowhere.status_code == 404
    said = there.json()["detail"].replace(str(stored["id"]), "N")
    assert said == nowhere.json()["detail"].replace("999999", "N")
    assert Memory.objects.get().state == "active"


def test_key_of_a_project_writes_into_that_alone():
    mine = Project.objects.create(slug="mine", name="Mine")
    Project.objects.create(slug="theirs", name="Theirs")
    caller = Caller(key(["read", "write"], mine).raw)
    assert caller.send("post", "/api/memories", {"content": "Tea."}).json()["memory"]["project"] == "mine"
    for slug in ("theirs", "new"):
        refused = caller.send("post", "/api/memories", {"content": "Tea.", "project": slug})
        assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
        assert "mine" in refused.json()["detail"]
        assert "theirs." not in refused.json()["detail"]


def test_key_that_may_only_write_stores_and_sees_nothing():
    caller = Caller(key(["write"]).raw)
    response = caller.send("post", "/api/memories", {"content": "Tea."})
    assert response.status_code == 201
    reply = response.json()
    assert (reply["memory"], reply["state"]) == (None, "active")
    assert caller.get(f"/api/memories/{reply['id']}").status_code == 403
    assert caller.send("patch", f"/api/memories/{reply['id']}", {"title": "x"}).status_code == 404


def test_statements_do_not_grow_with_what_hangs_on_a_memory(caller, stored, django_assert_max_num_queries):
    links = [{"rel": "see", "target": f"t-{n}"} for n in range(50)]
    concepts, entities = [f"concept {n}" for n in range(25)], [f"thing:entity {n}" for n in range(25)]
    caller.send("patch", f"/api/memories/{stored['id']}", {"links": links, "concepts": concepts, "entities": entities})
    with django_assert_max_num_queries(16):
        assert len(caller.get(f"/api/memories/{stored['id']}").json()["links"]) == 50


# --- health ------------------------------------------------------------------------------------------------------


def test_health_tells_a_stranger_nothing_but_that_it_is_well(client, stored):
    response = client.get("/api/health")
    assert response.status_code == 200
    assert response.json() == {"status": "ok"}


def test_health_tells_a_key_what_it_may_see(caller, stored):
    reply = caller.get("/api/health").json()
    assert (reply["memories"], reply["pending_embeddings"]) == (1, 1)
    assert reply["revision"] == Corpus.objects.get().revision
    assert reply["embeddings"] == {"ready": False, "reason": "no memory has been embedded yet", "models": []}
    embed_all()
    reply = caller.get("/api/health").json()
    assert reply["pending_embeddings"] == 0
    assert reply["embeddings"]["models"] == [{"name": "hashed-words", "state": "serving", "embedded": 1}]
    other = Project.objects.create(slug="other", name="Other")
    narrow = Caller(key(["read"], other).raw).get("/api/health").json()
    assert (narrow["memories"], narrow["pending_embeddings"]) == (0, 0)


def test_health_of_the_search_index(caller, stored, settings, tmp_path):
    def told(asking):
        reply = asking.get("/api/health").json()
        return reply["engine"], reply["index"]

    def key_of_one_project():
        return Caller(key(["read"], Project.objects.get(slug="backend")).raw)

    settings.SEARCH_INDEX = tmp_path / "index"
    assert told(caller) == ("postgres", {"state": "off", "lag_seconds": 0})

    settings.SEARCH_ENGINE = "tantivy"
    assert told(caller) == ("postgres", {"state": "missing", "lag_seconds": 0, "waiting": 0})

    follower.catch_up()
    assert told(caller) == ("tantivy", {"state": "ready", "lag_seconds": 0, "waiting": 0})

    Memory.objects.update(title="New")
    OutboxEntry.objects.update(at=Now() - timedelta(seconds=7))
    engine, index = told(caller)
    assert (engine, index["state"], index["waiting"]) == ("tantivy", "ready", 1)
    assert 7 <= index["lag_seconds"] < 20
    _, index = told(key_of_one_project())
    assert set(index) == {"state", "lag_seconds"}

    with connection.cursor() as cursor:
        cursor.execute("UPDATE memories_memory SET updated_at = '-infinity'")
    follower.catch_up()
    _, index = told(caller)
    assert index == {"state": "ready", "lag_seconds": 0, "waiting": 0, "left_out": [Memory.objects.only("pk").get().pk]}
    assert "left_out" not in told(key_of_one_project())[1]

    (store.current_generation() / "manifest").write_text("{")
    engine, index = told(caller)
    assert (engine, index["state"]) == ("postgres", "missing")
    store.close_view()


def test_health_refuses_a_wrong_key(client):
    assert client.get("/api/health", headers={"X-API-Key": "mnk_wrong"}).status_code == 401


def test_health_of_a_database_that_is_down_is_503(client, monkeypatch):
    def fail():
        raise OperationalError("connection refused")

    monkeypatch.setattr("web.outages._ask_database", fail)
    response = client.get("/api/health")
    assert response.status_code == 503
    assert response.json()["error"] == "database_unavailable"


# --- near-duplicates and relations ------------------------------------------------------------------------------------


def test_store_answers_with_the_project_and_what_says_nearly_the_same(caller):
    words = "The nightly backup of the ledger runs at two and is copied to the second site before four"
    first = caller.send("post", "/api/memories", {"content": f"{words}.", "title": "Backup", "project": "one"}).json()
    same = caller.send("post", "/api/memories", {"content": f"{words}.", "title": "Backup", "project": "two"}).json()
    assert (same["project"], first["near_duplicates"]) == ("two", [])
    assert same["near_duplicates"] == [
        {
            "id": first["id"],
            "title": "Backup",
            "project": "one",
            "state": "active",
            "similarity": 1.0,
            "by": "text",
            "is_duplicate": True,
        }
    ]
    near = caller.send("post", "/api/memories", {"content": f"{words} every day.", "title": "Copies"}).json()
    assert [(one["id"], one["by"], one["similarity"]) for one in near["near_duplicates"]] == [
        (same["id"], "words", 0.8889),
        (first["id"], "words", 0.8889),
    ]
    assert near["project"] == "default"
    assert near["not_by_meaning"] == "no memory has been embedded yet"


def test_near_duplicates_are_only_those_that_the_key_may_see(caller):
    caller.send("post", "/api/memories", {"content": "The vault code changes weekly.", "project": "secret"})
    project = Project.objects.create(slug="open", name="open")
    record = {"content": "The vault code changes weekly.", "project": "open"}
    reply = Caller(key(["read", "write"], project).raw).send("post", "/api/memories", record).json()
    assert reply["near_duplicates"] == []
    writer = Caller(key(["write"]).raw)
    assert writer.send("post", "/api/memories", {**record, "project": "third"}).json()["near_duplicates"] == []


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k1"}], ids=["alone", "with a key of its own"])
def test_memory_is_stored_though_the_search_for_near_duplicates_fails(caller, monkeypatch, headers):
    def fail(*arguments):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 / 0")

    monkeypatch.setattr("search.similar._same_text", fail)
    created = caller.post("/api/memories", {"content": "Tea."}, content_type="application/json", headers=headers)
    assert (created.status_code, created.json()["near_duplicates"]) == (201, [])
    assert created.json()["not_by_meaning"] == "looking for them failed"
    assert Memory.objects.get().pk == created.json()["id"]


def test_memory_is_not_called_stored_if_its_transaction_loses_the_database(caller, monkeypatch):
    def fail(*arguments):
        raise InternalError("server closed the connection unexpectedly")

    monkeypatch.setattr("search.similar._same_text", fail)
    headers = {"Idempotency-Key": "k1"}
    created = caller.post("/api/memories", {"content": "Tea."}, content_type="application/json", headers=headers)
    assert (created.status_code, created.json()["error"]) == (503, "database_unavailable")
    assert not Memory.objects.exists()


def test_relation_supersedes_as_the_field_and_the_link_do(caller, stored):
    newer = [caller.send("post", "/api/memories", {"content": f"{n}.", "project": "backend"}).json() for n in range(2)]
    related = caller.send(
        "post", f"/api/memories/{newer[0]['id']}/relations?reason=newer", {"target": stored["id"], "rel": "supersedes"}
    )
    assert [one["id"] for one in related.json()["memory"]["supersedes"]] == [stored["id"]]
    old = caller.get(f"/api/memories/{stored['id']}").json()
    assert (old["state"], old["superseded_by"]["id"], old["state_reason"]) == ("superseded", newer[0]["id"], "newer")
    changes = {"links": [{"rel": "supersedes", "target": f"#{newer[0]['id']}"}]}
    caller.send("patch", f"/api/memories/{newer[1]['id']}", changes)
    assert caller.get(f"/api/memories/{newer[0]['id']}").json()["superseded_by"]["id"] == newer[1]["id"]
    plain = caller.send("post", f"/api/memories/{newer[1]['id']}/relations", {"target": f"#{stored['id']}"}).json()
    assert [(link["rel"], link["memory"]["id"]) for link in plain["memory"]["links"]] == [("relates-to", stored["id"])]


def test_relation_to_a_memory_that_the_key_may_not_see_is_refused(caller, stored):
    project = Project.objects.create(slug="open", name="open")
    limited = Caller(key(["read", "write"], project).raw)
    own = limited.send("post", "/api/memories", {"content": "Mine."}).json()
    refused = limited.send(
        "post", f"/api/memories/{own['id']}/relations", {"target": stored["id"], "rel": "supersedes"}
    )
    assert (refused.status_code, refused.json()["detail"]) == (
        404,
        f"There is no memory #{stored['id']} that you can see.",
    )


# --- history, versions and changes ------------------------------------------------------------------------------------


def test_history_says_who_changed_what_through_which_interface(caller, stored):
    address = f"/api/memories/{stored['id']}"
    caller.send("patch", f"{address}?reason=reviewed", {"content": "Other words."})
    edited, created = caller.get(f"{address}/history").json()["events"]
    assert (edited["by"], edited["door"], edited["reason"], edited["kind"]) == ("agent", "api", "reviewed", "edited")
    content = next(change for change in edited["changes"] if change["field"] == "content")
    assert (content["before"], content["after"]) == (RECORD["content"], "Other words.")
    restored = caller.send("post", f"{address}/history/{created['id']}/restore")
    assert restored.json()["memory"]["content"] == RECORD["content"]
    assert caller.get(f"{address}/history?limit=1").json()["events"][0]["reason"].startswith("Restored as it was")


def test_history_and_its_versions_are_hidden_from_keys_that_may_not_see_the_memory(caller, stored):
    project = Project.objects.create(slug="open", name="open")
    limited = Caller(key(["read", "write"], project).raw)
    address = f"/api/memories/{stored['id']}/history"
    assert limited.get(address).status_code == 404
    assert limited.send("post", f"{address}/first/restore").status_code == 404
    assert limited.get("/api/changes").json()["changes"] == []
    assert limited.get("/api/changes?project=backend").status_code == 422


def test_changes_follow_a_cursor(caller, stored):
    feed = caller.get("/api/changes?since=1h").json()
    assert [(one["kind"], one["id"], one["by"], one["door"]) for one in feed["changes"]] == [
        ("created", stored["id"], "agent", "api")
    ]
    caller.send("delete", f"/api/memories/{stored['id']}?reason=old")
    caller.send("post", f"/api/memories/{stored['id']}/restore")
    later = caller.get("/api/changes", {"after": feed["cursor"], "kind": ["deleted", "created"]}).json()
    assert [(one["kind"], one["reason"]) for one in later["changes"]] == [("deleted", "old")]
    assert not later["has_more"]


@pytest.mark.parametrize(
    ("parameters", "detail"),
    [
        ("kind=delete", "kind: 'delete' is not a kind of change"),
        ("project=nowhere", "project: there is no project 'nowhere' that you can see"),
        ("after=x", "after: is not a cursor of this site"),
        ("since=sometime", "since: 'sometime' is neither a time span nor a date"),
        ("limit=501", "limit: 501 is too large"),
    ],
)
def test_changes_refuse_what_they_do_not_know(caller, parameters, detail):
    response = caller.get(f"/api/changes?{parameters}")
    assert (response.status_code, response.json()["detail"]) == (422, detail)


def test_unchanged_memory_is_not_sent_again(caller, stored):
    address = f"/api/memories/{stored['id']}"
    first = caller.get(address)
    assert caller.get(address, headers={"If-None-Match": first["ETag"]}).status_code == 304
    caller.send("patch", address, {"title": "Other"})
    again = caller.get(address, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.json()["title"]) == (200, "Other")


def test_writes_with_if_match_change_only_the_version_that_was_read(caller, stored):
    address = f"/api/memories/{stored['id']}"
    tag = caller.get(address)["ETag"]
    changed = caller.patch(address, {"title": "One"}, content_type="application/json", headers={"If-Match": tag})
    assert (changed.status_code, changed["ETag"]) == (200, caller.get(address)["ETag"])
    for method, path in (("patch", address), ("delete", address), ("post", f"{address}/restore")):
        body = {"title": "Two"} if method == "patch" else {}
        refused = getattr(caller, method)(path, body, content_type="application/json", headers={"If-Match": tag})
        assert (refused.status_code, refused.json()["error"]) == (412, "version_conflict")
    assert caller.get(address).json()["title"] == "One"
    version = changed.json()["version"]
    assert caller.send("patch", f"{address}?version={version}", {"title": "Three"}).status_code == 200
    bogus = caller.patch(address, {}, content_type="application/json", headers={"If-Match": '"bogus"'})
    assert bogus.status_code == 412


@pytest.mark.parametrize("reason", [pytest.param("x" * 1_001, id="long"), pytest.param("a%00b", id="NUL")])
def test_reason_that_cannot_be_kept_is_refused(caller, stored, reason):
    response = caller.delete(f"/api/memories/{stored['id']}?reason={reason}")
    assert response.status_code == 422
    assert response.json()["detail"].startswith("reason: ")


def test_same_text_and_same_id_are_refused_with_different_codes(caller, stored):
    caller.send("post", "/api/memories", {"content": "Tea at four."})
    repeated = caller.send("post", "/api/memories", {"content": "Tea at four."})
    assert (repeated.status_code, repeated.json()["error"]) == (409, "duplicate_text")


def test_write_through_a_session_is_audited_with_the_person():
    ada = User.objects.create_superuser("ada")
    browser = Client()
    browser.force_login(ada)
    browser.post("/api/memories", {"content": "Tea."}, content_type="application/json")
    event = AuditEvent.objects.get(subject_type="memory")
    assert (event.door, event.user, event.api_key) == ("api", ada, None)
