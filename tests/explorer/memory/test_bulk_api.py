"""Bulk writes, writes by `external_id`, and writes that are sent again."""

import threading
import time

import pytest
from django.db import connection, transaction
from django.utils import timezone

from access.idempotency import KEPT
from access.models import AuditEvent, IdempotentReply, MemoryChange
from categories.models import Concept
from categories.services import vocabulary_lock_shared
from memories.models import Corpus, Memory, Project
from search.similar import NearDuplicates
from tests.explorer.memory.test_memory_api import Caller, key

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller():
    return Caller(key(["read", "write"]).raw)


def sent(caller, *operations, status=200, **body):
    response = caller.send("post", "/api/memories/bulk", {"operations": operations, **body})
    assert response.status_code == status, response.content
    return response.json()


def creating(content, **fields):
    return {"op": "create", "memory": {"content": content, **fields}}


def outcomes(reply):
    return [(one["status"], one["error"] and one["error"]["error"]) for one in reply["results"]]


# --- bulk -------------------------------------------------------------------------------------------------------------


def test_bulk_gives_each_operation_the_result_of_its_single_call(caller):
    first = sent(caller, creating("One.", external_id="one"), creating("Two."))
    one, two = (result["id"] for result in first["results"])
    revision = Corpus.objects.get().revision
    reply = sent(
        caller,
        creating("Again.", external_id="one"),
        creating(""),
        {"op": "update", "id": one, "memory": {"tags": ["tea"]}, "reason": "sorted"},
        {"op": "update", "id": 10**9, "memory": {"tags": []}},
        {"op": "update", "id": two, "memory": {"title": "x"}, "version": "another"},
        {"op": "relate", "id": one, "target": two, "rel": "supersedes"},
        {"op": "delete", "id": one, "reason": "old"},
        {"op": "restore", "id": one},
        {"op": "forget"},
        "nothing",
        {"op": "upsert", "memory": {"content": "One, new.", "external_id": "one"}},
        {"op": "upsert", "memory": {"content": "No id."}},
    )
    assert outcomes(reply) == [
        (409, "external_id_taken"),
        (422, "invalid_request"),
        (200, None),
        (404, "not_found"),
        (412, "version_conflict"),
        (200, None),
        (200, None),
        (200, None),
        (422, "invalid_request"),
        (422, "invalid_request"),
        (200, None),
        (422, "invalid_request"),
    ]
    assert (reply["done"], reply["failed"]) == (5, 7)
    assert [result["index"] for result in reply["results"]] == list(range(12))
    assert reply["results"][1]["error"]["detail"] == "memory.content: is empty; a memory needs a text"
    memory = Memory.objects.get(pk=one)
    assert (memory.content, memory.tags, memory.state) == ("One, new.", [], "active")
    assert Memory.objects.get(pk=two).superseded_by_id == one
    assert Corpus.objects.get().revision == revision + 1


def test_atomic_bulk_writes_all_or_nothing(caller):
    events = AuditEvent.objects.count()
    reply = sent(caller, creating("One."), creating(""), creating("Two."), atomic=True)
    assert outcomes(reply) == [(424, None), (422, "invalid_request"), (424, None)]
    assert (reply["done"], reply["failed"], Memory.objects.count(), AuditEvent.objects.count()) == (0, 1, 0, events)
    assert sent(caller, creating("One."), creating("Two."), atomic=True)["done"] == 2
    assert not MemoryChange.objects.filter(revision=None).exists()


def test_bulk_refuses_more_than_a_thousand_and_none(caller):
    assert "operations: has too many values" in sent(caller, *[creating("x")] * 1001, status=422)["detail"]
    assert "operations: is empty" in sent(caller, status=422)["detail"]


def test_bulk_of_a_limited_key_changes_its_projects_alone(caller):
    other = sent(caller, creating("Secret.", project="secret"))["results"][0]["id"]
    project = Project.objects.create(slug="open", name="open")
    limited = Caller(key(["read", "write"], project).raw)
    reply = sent(
        limited,
        creating("Mine."),
        creating("Not mine.", project="secret"),
        {"op": "delete", "id": other},
        {"op": "upsert", "memory": {"content": "x", "project": "secret", "external_id": "e"}},
    )
    assert outcomes(reply) == [(201, None), (403, "forbidden"), (404, "not_found"), (403, "forbidden")]
    reader = Caller(key(["read"]).raw)
    assert sent(reader, creating("x"), status=403)["error"] == "forbidden"


def test_bulk_is_found_by_the_next_search(caller):
    sent(caller, creating("The marmalade is in the cellar."), creating("Marmalade again."))
    assert caller.get("/api/search", {"q": "marmalade", "mode": "keyword"}).json()["total"] == 2


# --- by external id ---------------------------------------------------------------------------------------------------


def put(caller, path, body, **headers):
    return caller.put(f"/api/memories/by-external-id/{path}", body, content_type="application/json", headers=headers)


def test_put_stores_replaces_and_leaves_alone(caller):
    record = {"content": "First.", "title": "T", "tags": ["a"], "created_at": "2020-01-01", "pinned": True}
    made = put(caller, "docs/adr/17", record)
    assert made.status_code == 201
    memory = made.json()["memory"]
    assert (memory["project"], memory["external_id"]) == ("docs", "adr/17")
    events = AuditEvent.objects.count()
    again = put(caller, "docs/adr/17", record)
    assert (again.status_code, again.json()["memory"]) == (200, memory)
    assert AuditEvent.objects.count() == events
    replaced = put(caller, "docs/adr/17", {"content": "Second."}).json()["memory"]
    assert (replaced["id"], replaced["content"], replaced["title"]) == (memory["id"], "Second.", "Second.")
    assert (replaced["tags"], replaced["pinned"], replaced["created_at"]) == ([], False, "2020-01-01T00:00:00Z")
    conflict = put(caller, "docs/adr/17", {"content": "Third."}, **{"If-Match": made["ETag"]})
    assert conflict.status_code == 412


@pytest.mark.parametrize("field", ["supersedes", "superseded_by"])
def test_put_that_is_sent_again_with_a_supersession_changes_nothing(caller, field):
    caller.send("post", "/api/memories", {"content": "Other.", "project": "docs", "external_id": "other"})
    put(caller, "docs/a", {"content": "One.", field: "other"})
    events = AuditEvent.objects.count()
    assert put(caller, "docs/a", {"content": "One.", field: "other"}).status_code == 200
    assert AuditEvent.objects.count() == events


def test_put_leaves_a_deleted_memory_deleted(caller):
    caller.send("post", "/api/memories", {"content": "Other.", "project": "docs", "external_id": "other"})
    made = put(caller, "docs/a", {"content": "One."}).json()
    caller.delete(f"/api/memories/{made['id']}")
    for content in ("One.", "Two."):
        again = put(caller, "docs/a", {"content": content, "superseded_by": "other"}).json()
        assert (again["state"], again["memory"]["superseded_by"]["title"]) == ("deleted", "Other.")


def test_put_refuses_another_id_in_the_body_and_a_project_of_others(caller):
    refused = put(caller, "docs/a", {"content": "x", "external_id": "b"})
    assert (refused.status_code, refused.json()["detail"]) == (
        422,
        "external_id: is 'b' in the body and 'a' in the address",
    )
    limited = Caller(key(["read", "write"], Project.objects.create(slug="open", name="open")).raw)
    assert put(limited, "docs/a", {"content": "x"}).status_code == 403
    assert put(limited, "open/a", {"content": "x"}).status_code == 201


# --- idempotency ------------------------------------------------------------------------------------------------------


def post(caller, body, idempotency_key, path="/api/memories"):
    return caller.post(path, body, content_type="application/json", headers={"Idempotency-Key": idempotency_key})


def test_request_that_is_sent_again_is_done_once(caller):
    first = post(caller, {"content": "Tea."}, "k1")
    again = post(caller, {"content": "Tea."}, "k1")
    assert (again.status_code, again.json(), again["Location"]) == (201, first.json(), first["Location"])
    assert (again["Idempotency-Replayed"], Memory.objects.count()) == ("true", 1)
    other = post(caller, {"content": "Coffee."}, "k1")
    assert (other.status_code, other.json()["error"]) == (422, "idempotency_key_reused")
    elsewhere = post(caller, {"content": "Tea."}, "k1", "/api/memories/bulk")
    assert elsewhere.status_code == 422


def test_keys_of_others_and_old_ones_mean_nothing(caller):
    post(caller, {"content": "Tea."}, "k1")
    other = Caller(key(["read", "write"]).raw)
    assert post(other, {"content": "Coffee."}, "k1").status_code == 201
    IdempotentReply.objects.update(at=timezone.now() - KEPT)
    assert post(caller, {"content": "Milk."}, "k1").status_code == 201
    assert IdempotentReply.objects.count() == 1
    key_row = key(["read", "write"])
    revoked = Caller(key_row.raw)
    post(revoked, {"content": "Water."}, "k2")
    key_row.key.delete()
    assert post(revoked, {"content": "Water."}, "k2").status_code == 401


def test_reply_is_not_repeated_to_who_has_lost_the_project_since(caller):
    made = key(["read", "write"], Project.objects.create(slug="open", name="open"))
    limited = Caller(made.raw)
    assert post(limited, {"content": "Tea.", "project": "open"}, "k1").status_code == 201
    assert post(limited, {"content": "Tea.", "project": "open"}, "k1")["Idempotency-Replayed"] == "true"
    made.key.projects.add(Project.objects.create(slug="more", name="more"))
    assert post(limited, {"content": "Tea.", "project": "open"}, "k1").status_code == 201
    made.key.projects.remove(Project.objects.get(slug="open"))
    refused = post(limited, {"content": "Tea.", "project": "open"}, "k1")
    assert (refused.status_code, refused.json()["error"]) == (403, "forbidden")
    assert "Tea" not in refused.content.decode()
    assert Memory.objects.count() == 1


def test_revision_is_raised_after_what_follows_a_write(caller, monkeypatch):
    caller.send("post", "/api/memories", {"content": "Coffee."})
    before = Corpus.objects.get().revision
    seen = []

    def near(memory, viewer):
        seen.append(Corpus.objects.get().revision)
        return NearDuplicates()

    monkeypatch.setattr("explorer.memory.api.near_duplicates", near)
    assert post(caller, {"content": "Tea."}, "k1").status_code == 201
    assert (seen, Corpus.objects.get().revision) == ([before], before + 1)


@pytest.mark.django_db(transaction=True)
def test_concurrent_duplicates_are_done_once():
    raw = key(["read", "write"]).raw
    replies = []

    def send():
        replies.append(post(Caller(raw), {"content": "Tea.", "external_id": "t"}, "k1"))
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [reply.status_code for reply in replies] == [201, 201, 201]
    assert len({reply.json()["id"] for reply in replies}) == 1
    assert Memory.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_bulk_write_that_loses_a_deadlock_over_new_names_is_done_once_all_the_same():
    caller, replies = Caller(key(["read", "write"]).raw), []
    operations = [creating("One.", concepts=["oolong"]), creating("Two.", concepts=["assam"])]

    def send():
        replies.append(sent(caller, *operations))
        connection.close()

    with transaction.atomic(), connection.cursor() as cursor:
        # The other transaction waits first, and so is the one that notices.
        cursor.execute("SET LOCAL deadlock_timeout = '60s'")
        Concept.objects.create(name="assam")
        thread = threading.Thread(target=send)
        thread.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        cursor.execute(waiting)
        while cursor.fetchone()[0] == 0:
            time.sleep(0.01)
            cursor.execute(waiting)
        Concept.objects.create(name="oolong")
    thread.join()
    assert outcomes(replies[0]) == [(201, None), (201, None)]
    assert sorted(Concept.objects.values_list("name", flat=True)) == ["assam", "oolong"]
    assert Memory.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_a_bulk_write_is_done_beside_an_import_that_takes_long_and_keeps_no_others_waiting(monkeypatch):
    monkeypatch.setattr("explorer.memory.bulk_api._LONGEST_WAIT", 0.2)
    caller, replies = Caller(key(["read", "write"]).raw), []

    def send():
        replies.append(sent(caller, creating("One.", concepts=["oolong"]), creating("Two.")))
        connection.close()

    thread = threading.Thread(target=send)
    with transaction.atomic():
        # As an import holds it from its beginning to its end.
        vocabulary_lock_shared()
        thread.start()
        thread.join(20)
        is_done = not thread.is_alive()
    thread.join()
    assert is_done
    assert outcomes(replies[0]) == [(201, None), (201, None)]


def test_any_version_is_one_that_there_is(caller):
    def put_any(body):
        path = "/api/memories/by-external-id/docs/a"
        return caller.put(path, body, content_type="application/json", headers={"If-Match": "*"})

    assert (put_any({"content": "x"}).status_code, Memory.objects.count()) == (412, 0)
    assert put(caller, "docs/a", {"content": "x"}).status_code == 201
    assert put_any({"content": "y"}).status_code == 200


def test_put_of_a_version_of_nothing_stores_nothing(caller):
    refused = put(caller, "docs/a", {"content": "x"}, **{"If-Match": '"0123"'})
    assert (refused.status_code, refused.json()["error"], Memory.objects.count()) == (412, "version_conflict", 0)
