"""`manage.py index`: its output, its effects, and its exit."""

import os
import re
import threading
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from access.viewer import command_viewer
from memories.models import Memory
from search.engines.base import EngineUnavailableError
from search.engines.index import follower as indexer
from search.engines.index import outbox, store
from search.engines.index.engine import IndexEngine
from search.management.commands import index as command
from search.query import SearchQuery
from search.run import run
from tests.search.indexed import follower
from web.command_line import local_command

MEMORIES = 16
REBUILD = local_command("index --rebuild")


@pytest.fixture
def indexed(memories):
    indexer.catch_up()


def said(**options):
    out = StringIO()
    call_command("index", stdout=out, **options)
    return out.getvalue()


def fails(**options):
    """Return its output and its error message."""
    out = StringIO()
    with pytest.raises(CommandError) as error:
        call_command("index", stdout=out, **options)
    return out.getvalue(), str(error.value)


# --- how it is ----------------------------------------------------------------------------------------------------


def test_it_tells_what_there_is(indexed):
    text = said()
    assert re.search(rf"^{MEMORIES} memories in .*/g-000001\S*$", text, re.MULTILINE)
    assert re.search(rf"^{MEMORIES} docs in 1 segments, 0\.\d MB on disk$", text, re.MULTILINE)
    assert "No changes are pending." in text
    assert "rebuilt" not in text
    assert "not followed" not in text


# --- whether it is true -------------------------------------------------------------------------------------------


def test_check_agrees(indexed):
    assert said(check=True).splitlines() == [
        f"{MEMORIES} memories in the database, {MEMORIES} in the index.",
        "Everything agrees: each memory's digest, and each file.",
    ]


def test_check_names_the_memories_that_differ(indexed):
    outbox.stop_following()
    changed = Memory.objects.get(external_id="t1").pk
    Memory.objects.filter(pk=changed).update(title="Unseen")
    copy = Memory.objects.get(external_id="t2")
    copy.pk = 10**9
    copy.external_id = ""
    copy.save(force_insert=True)
    text, error = fails(check=True)
    assert f"1 different in the index and in the database: #{changed}\n" in text
    assert "1 not in the index: #1000000000\n" in text
    assert error == f"The search index differs from the database. Rebuild it: {REBUILD}"
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("TRUNCATE memories_memory CASCADE")
    text, _ = fails(check=True)
    assert re.search(rf"^{MEMORIES} in the index and not in the database: (#\d+, ){{9}}#\d+ …$", text, re.MULTILINE)


def test_check_names_the_file_that_is_damaged(indexed):
    (segment,) = store.current_generation().glob("*.segment")
    whole = bytearray(segment.read_bytes())
    # The last column, before the padding: every header is complete, and the numbers are wrong.
    whole[-300:-200] = bytes(value ^ 0x55 for value in whole[-300:-200])
    segment.write_bytes(whole)
    text, error = fails(check=True)
    assert segment.name in text
    assert "is damaged" in text
    assert "differs" in error


# --- making it ----------------------------------------------------------------------------------------------------


def test_rebuild_makes_a_new_one_and_removes_the_old(indexed, index):
    before = store.current_generation()
    outbox.stop_following()
    Memory.objects.filter(external_id="t1").update(title="Unseen")
    assert said(rebuild=True) == f"{MEMORIES} memories are in a new search index.\n"
    assert list(index.glob("g-*")) == [store.current_generation()]
    assert store.current_generation() != before
    assert "Everything agrees" in said(check=True)
    assert outbox.is_followed()


def test_drop_removes_it_and_follows_no_more(indexed, index):
    assert "The search index is removed." in said(drop=True)
    assert {path.name for path in index.iterdir()} == {"lock"}
    assert not outbox.is_followed()
    assert run(SearchQuery(), command_viewer()).engine == "postgres"
    assert "is removed" in said(drop=True)


# --- beside another process ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["catch_up", "drop"])
def test_one_that_another_process_keeps_is_left_to_it(indexed, option):
    with store.writer_lock():
        assert fails(**{option: True})[1] == (
            "Another process keeps the search index up to date: `manage.py up`, or `manage.py index --follow`. "
            "Stop it first."
        )
    assert run(SearchQuery(), command_viewer()).engine == "tantivy"


@pytest.mark.django_db(transaction=True)
def test_rebuild_asks_the_process_that_keeps_it(indexed, monkeypatch):
    monkeypatch.setattr(command, "_POLL_SECONDS", 0.05)
    stop = threading.Event()
    thread = follower(stop)
    try:
        before = store.current_generation()
        assert said(rebuild=True) == f"{MEMORIES} memories are in a new search index.\n"
        assert store.current_generation() != before
    finally:
        stop.set()
        thread.join(20)
    assert "Everything agrees" in said(check=True)


# --- following ----------------------------------------------------------------------------------------------------


@pytest.fixture
def handlers(monkeypatch):
    """The signal handlers that it installs, without replacing those of the tests."""
    taken = {}
    monkeypatch.setattr(command.signal, "signal", taken.__setitem__)
    return taken


@pytest.mark.django_db(transaction=True)
def test_follow_takes_in_changes_until_it_is_told_to_end(memories, handlers):
    taken = threading.Event()

    def change():
        while not engine_if_any():
            threading.Event().wait(0.02)
        Memory.objects.filter(external_id="t1").update(memory_type="changed")
        while outbox.backlog().changes:
            threading.Event().wait(0.02)
        taken.set()
        handlers[command.signal.SIGTERM](command.signal.SIGTERM, None)
        connection.close()

    thread = threading.Thread(target=change)
    thread.start()
    said(follow=True)
    thread.join(20)
    assert taken.is_set()
    assert run(SearchQuery.from_mapping({"type": "changed"}), command_viewer()).engine == "tantivy"


def engine_if_any():
    try:
        return IndexEngine()
    except EngineUnavailableError:
        return None


def test_follow_ends_with_the_parent_that_it_was_told(db, index, handlers):
    # A pid that is not the parent of this process, as if the parent were gone.
    said(follow=True, with_parent=os.getpid())
    assert not (index / "current").exists()


@pytest.mark.django_db(transaction=True)
def test_rebuild_does_it_itself_when_the_other_process_ends(indexed, monkeypatch):
    monkeypatch.setattr(command, "_POLL_SECONDS", 0.05)
    before = store.current_generation()
    holds, ends = threading.Event(), threading.Event()

    def hold():
        with store.writer_lock():
            holds.set()
            ends.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    holds.wait(10)
    threading.Timer(0.3, ends.set).start()
    assert said(rebuild=True) == f"{MEMORIES} memories are in a new search index.\n"
    thread.join(20)
    assert store.current_generation() != before
    assert not store.rebuild_reason()


def test_rebuild_makes_the_first_one(memories):
    assert said(rebuild=True) == f"{MEMORIES} memories are in a new search index.\n"
    assert run(SearchQuery(), command_viewer()).engine == "tantivy"
