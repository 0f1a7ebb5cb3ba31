"""Readers notify the writer of the index of recent changes, and wait for it, but not for long."""

import json
import threading
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models.functions import Now
from django.test import Client

from access.keys import make_key
from access.viewer import Viewer, command_viewer, viewer_of_user
from memories.models import Memory, OutboxEntry
from memories.records import MemoryRecord
from memories.services import memory_create
from memories.storage import outbox_stamp
from search import engines
from search.engines import segment_files
from search.engines.index import follower as indexer
from search.engines.index import outbox, store
from search.engines.segment_files import replace_file
from search.query import SearchQuery
from search.run import run
from tests.search.indexed import follower, load

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def indexed(tantivy, tmp_path):
    load(tmp_path)
    indexer.catch_up()


@pytest.fixture
def _kept(indexed, monkeypatch):
    """A follower that does not poll."""
    monkeypatch.setattr(indexer, "POLL_SECONDS", 600.0)
    stopped = threading.Event()
    thread = follower(stopped)
    yield
    stopped.set()
    while thread.is_alive():
        # It may have checked whether to stop, and not begun to wait yet.
        store.notify_writer()
        thread.join(0.1)


@pytest.fixture
def _no_waiting(monkeypatch):
    """Fail when a reader sleeps between two looks."""
    monkeypatch.setattr(engines, "_MAX_WAIT", 3_600.0)
    monkeypatch.setattr(store, "_LOOK_SECONDS", None)


def found(word):
    return run(SearchQuery(text=word, include_facets=True), person("writer")).total


def person(name):
    """A viewer of all projects."""
    user = User.objects.get_or_create(username=name, is_superuser=True)[0]
    return viewer_of_user(user)


def store_one(word):
    return memory_create(record=MemoryRecord(content=f"{word} is on the stove", project="tea"), viewer=person("writer"))


@pytest.mark.usefixtures("_kept")
def test_what_was_just_stored_changed_and_deleted_is_so_in_the_next_answer(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_WAIT", 60.0)
    for n in range(5):
        memory = store_one(f"kettle{n}")
        assert found(f"kettle{n}") == 1
        Memory.objects.filter(pk=memory.pk).update(project=Memory.objects.exclude(project__slug="tea")[0].project)
        in_tea = SearchQuery.from_mapping({"q": f"kettle{n}", "project": "tea"})
        assert run(in_tea, command_viewer()).total == 0
        memory.delete()
        assert found(f"kettle{n}") == 0


@pytest.mark.usefixtures("_kept")
def test_an_agent_finds_what_it_has_stored(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_WAIT", 60.0)
    key = make_key(name="agent", scopes=["read", "write"], every_project=True, viewer=command_viewer()).raw
    client = Client(headers={"authorization": f"Bearer {key}"})
    sent = json.dumps({"content": "samovar", "project": "tea"})
    assert client.post("/api/memories", sent, content_type="application/json").status_code == 201
    assert client.get("/api/search", {"q": "samovar", "mode": "keyword"}).json()["total"] == 1


@pytest.mark.usefixtures("_kept")
def test_an_agent_finds_what_it_has_written_in_bulk_by_external_id_and_by_restoring(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_WAIT", 3_600.0)
    raw = make_key(name="agent", scopes=["read", "write"], every_project=True, viewer=command_viewer()).raw
    client = Client(headers={"Authorization": f"Bearer {raw}"})

    def total(word):
        reply = client.get("/api/search", {"q": word, "mode": "keyword"}).json()
        assert reply["engine"] == "tantivy"
        return reply["total"]

    operations = [{"op": "create", "memory": {"content": f"Marmalade {n}", "project": "tea"}} for n in range(3)]
    client.post("/api/memories/bulk", {"operations": operations}, content_type="application/json")
    assert total("marmalade") == 3
    address = "/api/memories/by-external-id/tea/jam"
    stored = client.put(address, {"content": "Quince jam"}, content_type="application/json").json()
    client.put(address, {"content": "Plum jam"}, content_type="application/json")
    assert (total("quince"), total("plum")) == (0, 1)
    events = client.get(f"/api/memories/{stored['id']}/history").json()["events"]
    client.post(f"/api/memories/{stored['id']}/history/{events[-1]['id']}/restore")
    assert (total("quince"), total("plum")) == (1, 0)
    forget = {"query": "q=marmalade&mode=keyword"}
    plan = client.post("/api/memories/forget", {**forget, "dry_run": True}, content_type="application/json").json()[
        "plan"
    ]
    client.post("/api/memories/forget", {**forget, "token": plan["token"]}, content_type="application/json")
    assert total("marmalade") == 0


@pytest.mark.usefixtures("indexed")
def test_changes_of_a_long_transaction_with_savepoints_are_as_old_as_its_end():
    with transaction.atomic():
        for word in ("First", "Second"):
            with transaction.atomic():
                store_one(word)
                OutboxEntry.objects.update(at=Now() - timedelta(minutes=5))
        outbox_stamp()
        assert OutboxEntry.objects.count() >= 2
        assert not OutboxEntry.objects.filter(at__lt=Now() - timedelta(minutes=1)).exists()


@pytest.mark.usefixtures("indexed")
def test_nobody_is_waited_for_longer_than_said(monkeypatch):
    looks = []
    monkeypatch.setattr(store.time, "sleep", looks.append)
    monkeypatch.setattr(store.time, "monotonic", lambda: sum(looks))
    store_one("samovar")
    store.wait_until_applied(1.0)
    assert 1.0 <= sum(looks) < 1.0 + store._LONGEST_LOOK_SECONDS
    assert looks == sorted(looks)


@pytest.mark.usefixtures("indexed", "_no_waiting")
def test_an_index_that_is_behind_is_not_waited_for_and_the_database_answers_everybody():
    store_one("samovar")
    OutboxEntry.objects.update(at=Now() - timedelta(hours=2))
    for viewer in (person("writer"), person("reader")):
        result = run(SearchQuery(text="samovar"), viewer)
        assert (result.total, result.engine) == (1, "postgres")


@pytest.mark.usefixtures("indexed")
def test_without_a_writer_the_database_answers_those_who_stored_something_and_the_index_others(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_WAIT", 0.2)
    store_one("samovar")
    own, others = (run(SearchQuery(text="samovar"), viewer) for viewer in (person("writer"), person("reader")))
    assert (own.total, own.engine) == (1, "postgres")
    assert (others.total, others.engine) == (0, "tantivy")
    indexer.catch_up()
    assert run(SearchQuery(text="samovar"), person("writer")).engine == "tantivy"


@pytest.mark.usefixtures("indexed", "_no_waiting")
def test_changes_of_a_transaction_itself_are_not_waited_for_but_found():
    with transaction.atomic():
        store_one("samovar")
        assert found("samovar") == 1


@pytest.mark.usefixtures("indexed", "_no_waiting")
def test_changes_that_come_later_are_not_waited_for(monkeypatch):
    store_one("samovar")
    last = outbox.newest()
    assert not outbox.is_applied(last)
    indexer.catch_up()
    store_one("percolator")
    monkeypatch.setattr(outbox, "newest", lambda: last)
    store.wait_until_applied(60.0)
    assert OutboxEntry.objects.get().pk > last


@pytest.mark.usefixtures("indexed")
def test_a_view_of_before_is_not_up_to_date_while_the_writer_replaces_the_manifest(monkeypatch):
    store.read_view()
    store_one("samovar")
    seen = []

    def look(step):
        if step == "words committed":
            # The view is complete, but a reader that waits for the change has to go on waiting.
            replace_file(store.current_generation() / "manifest", manifest)
            seen.append(store.is_newest(store.read_view()))

    manifest = (store.current_generation() / "manifest").read_text()
    monkeypatch.setattr(segment_files, "reached", look)
    indexer.catch_up()
    assert seen == [False]
    assert store.is_newest(store.read_view())


@pytest.mark.usefixtures("_kept")
def test_what_is_taken_in_while_an_engine_is_made_is_not_missed(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_WAIT", 60.0)
    store.read_view()
    read, reader = outbox.follow_state, threading.current_thread()

    def overtaken():
        if threading.current_thread() is not reader:
            # The follower, which may start just now, must not wait for itself.
            return read()
        monkeypatch.setattr(outbox, "follow_state", read)
        store_one("samovar")
        store.wait_until_applied(60.0)
        # This process has not seen yet that there is something new.
        return read()

    monkeypatch.setattr(outbox, "follow_state", overtaken)
    assert found("samovar") == 1


@pytest.mark.usefixtures("_kept")
def test_how_long_was_waited_is_told_once(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_WAIT", 60.0)
    store_one("samovar")
    assert run(SearchQuery(text="samovar"), command_viewer()).timings["index"] > 0
    assert "index" not in run(SearchQuery(text="samovar"), command_viewer()).timings


@pytest.mark.usefixtures("indexed")
def test_a_database_that_takes_no_calls_answers_all_the_same(monkeypatch):
    monkeypatch.setattr(store, "_CHANNEL", "no channel")
    monkeypatch.setattr(engines, "_MAX_WAIT", 0.2)
    store_one("samovar")
    assert found("samovar") == 1


@pytest.mark.usefixtures("indexed")
def test_a_connection_that_is_given_back_hears_no_calls():
    with store.listening():
        store.notify_writer()
        store.wait_for_notification(600.0)
    store.notify_writer()
    assert list(connection.connection.notifies(timeout=0)) == []


@pytest.mark.usefixtures("indexed", "_no_waiting")
def test_an_index_that_is_gone_is_not_waited_for(tantivy, monkeypatch):
    (tantivy / "current").unlink()
    monkeypatch.setattr(outbox, "newest", lambda: 1)
    store.wait_until_applied(60.0)
    assert run(SearchQuery(), command_viewer()).engine == "postgres"


@pytest.mark.usefixtures("indexed")
def test_a_reader_without_an_account_is_not_taken_for_the_writer_of_an_import(monkeypatch):
    monkeypatch.setattr(engines, "_MAX_WAIT", 0.2)
    memory_create(record=MemoryRecord(content="samovar is on the stove", project="tea"), viewer=command_viewer())
    nobody = Viewer(None, frozenset({"read"}))
    assert run(SearchQuery(text="samovar"), nobody).engine == "tantivy"
