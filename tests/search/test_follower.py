"""The only writer of the index: killed at every step, rebuilt and compared; and its readers meanwhile."""

import random
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from django.db import connection

from access.viewer import command_viewer
from memories.models import Memory
from search.engines import check, engine_named, segment_files
from search.engines.check import compare
from search.engines.index import follower, outbox, store
from search.engines.index.engine import IndexEngine
from search.engines.index.segments import Dictionary, IndexRow, Segment, SegmentBuilder, merge_segments
from search.engines.segment_files import arrays_verify
from search.query import SearchQuery
from search.run import run
from tests.killed import run_until
from tests.search.indexed import assert_true_to_the_database, change_much, load

STEPS = [
    "documents added",
    "words committed",
    "segment written",
    "manifest written",
    "changes deleted",
]
BUILD_STEPS = [*STEPS[:4], "generation filled", "generation made", "generation followed", "generation in place"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step_of_a_batch_it_goes_on_and_nothing_is_lost(tantivy, tmp_path, step):
    load(tmp_path)
    follower.catch_up()
    change_much()
    assert run_until(step, follower.catch_up)
    # Readers get an answer meanwhile, from either engine.
    assert run(SearchQuery(), command_viewer()).total
    store.close_view()
    assert run(SearchQuery(), command_viewer()).total
    follower.catch_up()
    assert not outbox.backlog().changes
    assert_true_to_the_database()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("step", BUILD_STEPS)
def test_killed_while_an_index_is_made_it_makes_one(tantivy, tmp_path, step):
    load(tmp_path)
    assert run_until(step, follower.catch_up)
    change_much()
    follower.catch_up()
    assert_true_to_the_database()
    assert len(list(tantivy.glob("g-*"))) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("step", BUILD_STEPS)
def test_killed_in_a_rebuild_the_old_index_serves_on(tantivy, tmp_path, step):
    load(tmp_path)
    follower.catch_up()
    change_much()
    before = store.current_generation()
    assert run_until(step, follower.rebuild)
    # Between the two steps, neither generation answers.
    assert run(SearchQuery(), command_viewer()).engine == ("postgres" if step == "generation followed" else "tantivy")
    assert (store.current_generation() == before) == (step != "generation in place")
    follower.catch_up()
    assert_true_to_the_database()


@pytest.mark.django_db(transaction=True)
def test_killed_again_and_again_over_random_changes(tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    generation = store.current_generation()
    chance = random.Random(4)
    for _ in range(6):
        ids = list(Memory.objects.values_list("pk", flat=True))
        for pk in chance.sample(ids, 4):
            kind, state = chance.choice(["note", "idea"]), chance.choice(["active", "archived"])
            Memory.objects.filter(pk=pk).update(memory_type=kind, state=state)
        run_until(chance.choice(STEPS), follower.catch_up)
        # The files are always good enough to continue from: no generation is thrown away.
        assert store.current_generation() == generation
    follower.catch_up()
    assert store.current_generation() == generation
    assert_true_to_the_database()


@pytest.mark.django_db(transaction=True)
def test_a_full_disk_loses_nothing(tantivy, tmp_path, monkeypatch):
    load(tmp_path)
    follower.catch_up()
    change_much()

    def full(self, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Segment, "write", full)
        with pytest.raises(OSError, match="No space"):
            follower.catch_up()
        assert outbox.backlog().changes
    follower.catch_up()
    assert_true_to_the_database()


@pytest.mark.django_db(transaction=True)
def test_a_reader_never_sees_half_a_batch(tantivy, tmp_path, monkeypatch):
    load(tmp_path)
    follower.catch_up()
    before = run(SearchQuery(include_facets=True), command_viewer())
    seen = []

    def look(step):
        result = run(SearchQuery(include_facets=True), command_viewer())
        seen.append((step, result.total, result.engine, {f.key: f.values for f in result.facets} if step else {}))

    change_much()
    monkeypatch.setattr(segment_files, "reached", look)
    follower.catch_up()
    monkeypatch.undo()
    totals = {step: (total, engine) for step, total, engine, _ in seen}
    assert totals["words committed"] == (before.total, "tantivy")
    assert totals["segment written"] == (before.total, "tantivy")
    assert totals["manifest written"] == (before.total - 1, "tantivy")


def test_what_changes_while_an_index_is_made_is_taken_in_afterwards(db, tantivy, tmp_path, monkeypatch):
    load(tmp_path)

    def reached(step):
        if step == "generation made":
            Memory.objects.filter(external_id="t1").update(memory_type="changed")

    monkeypatch.setattr(segment_files, "reached", reached)
    follower.catch_up()
    assert_true_to_the_database()


def test_one_process_writes_at_a_time(db, tantivy, tmp_path):
    load(tmp_path)
    with store.writer_lock(), pytest.raises(store.WriterElsewhereError):
        follower.catch_up()


@contextmanager
def other_follower():
    """Another session that follows this database, as a process on another machine does."""
    # Not from the pool, whose connections commit each statement, which would release the lock.
    with connection.Database.connect(**connection.get_connection_params()) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [store.FOLLOW_LOCK])
        yield other


def test_one_process_follows_a_database(db, tantivy, tmp_path, monkeypatch):
    load(tmp_path)
    monkeypatch.setattr(store, "FOLLOW_LOCK_TIMEOUT", "10ms")
    with other_follower(), pytest.raises(store.FollowedElsewhereError):
        follower.catch_up()
    follower.catch_up()
    assert compare().agrees


def test_a_follower_that_was_killed_is_waited_for(db, tantivy, tmp_path):
    load(tmp_path)
    with other_follower() as gone:
        timer = threading.Timer(0.2, gone.close)
        timer.start()
        follower.catch_up()
        timer.join()
    assert compare().agrees


def test_truncation_makes_a_new_index(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("TRUNCATE memories_memory CASCADE")
    follower.catch_up()
    assert run(SearchQuery(), command_viewer()).total == 0
    assert compare().agrees


def test_compare_names_what_differs(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    first, second, third, *_ = Memory.objects.order_by("id").values_list("pk", flat=True)
    outbox.stop_following()
    Memory.objects.filter(pk=first).update(title="Unseen")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM memories_memorylink")
        for table in ("categories_categorylink", "categories_conceptlink", "categories_entitylink"):
            cursor.execute(f"DELETE FROM {table} WHERE memory_id = %s", [second])
        cursor.execute("DELETE FROM memories_memory WHERE id = %s", [second])
    memory = Memory.objects.get(pk=third)
    memory.pk = 10**9
    memory.save(force_insert=True)
    found = compare()
    assert (found.different, found.left_over, found.missing) == ([first], [second], [10**9])
    # Changes that were not recorded are detected and repaired.
    follower.catch_up()
    assert compare().agrees


def test_mostly_deleted_docs_are_left_behind(db, tantivy, tmp_path, monkeypatch):
    monkeypatch.setattr(segment_files, "_MIN_ROWS", 10)
    load(tmp_path)
    follower.catch_up()
    for round_ in range(3):
        Memory.objects.update(memory_type=f"type{round_}")
        follower.catch_up()
    with store.writer_lock() as root:
        writer = follower.open_writer(root)
        assert writer.is_wasteful
        writer.close()


def test_segments_hold_what_was_put_in_and_merge_without_the_deleted(tmp_path):
    dictionary = Dictionary()
    chance = random.Random(1)
    rows = [
        IndexRow(
            id=n,
            scalars=(chance.choice([1, 2]), chance.choice(["note", "fix"]), chance.choice(["", "a"]), "", "", "active"),
            multiple=tuple(chance.sample([1, 2, 3, 70_000], chance.randrange(4)) for _ in range(6)),
            created=n * 10**12,
            updated=0,
            title=f"title {n}",
            digest=-n,
        )
        for n in range(50)
    ]
    segments = []
    for start in range(0, 50, 10):
        builder = SegmentBuilder(start, dictionary)
        for row in rows[start : start + 10]:
            builder.add(row)
        path = tmp_path / f"{start}.segment"
        builder.build().write(path)
        arrays_verify(path)
        segments.append(Segment.read(path))
    live = np.ones(50, np.bool_)
    live[[3, 17, 44]] = False
    whole = merge_segments(segments, live)
    for column, at in (("category", 0), ("author", 5)):
        for value in (1, 2, 3, 70_000):
            code = dictionary.codes[column].get(value, -1)
            expected = [n for n, row in enumerate(rows) if value in row.multiple[at] and live[n]]
            assert whole.rows_of(column, code).tolist() == expected
            for mask in (live, live & (np.arange(50) % 11 == 0)):
                counted = whole.count(column, mask, np.flatnonzero(mask), len(dictionary.values[column]))
                assert counted[code] == sum(mask[n] for n in expected)
    again = Dictionary()
    again.extend(whole.values, whole.values_first)
    assert again.values == dictionary.values


def test_readers_keep_their_view_until_there_is_a_whole_new_one(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    first = engine_named("tantivy")
    assert IndexEngine().revision == first.revision
    Memory.objects.filter(external_id="t1").update(memory_type="changed")
    follower.catch_up()
    assert engine_named("tantivy").revision != first.revision


@pytest.mark.parametrize("kind", ["term", "pos", "idx", "fast", "fieldnorm"])
def test_compare_names_every_damaged_file_of_the_words(db, tantivy, tmp_path, kind):
    load(tmp_path)
    follower.catch_up()
    (path, *_) = store.current_generation().glob(f"words/*.{kind}")
    data = bytearray(path.read_bytes())
    data[0] ^= 0x55
    path.write_bytes(data)
    assert f"{path.name} is damaged" in compare().damage
    path.unlink()
    assert f"{path.name} is missing" in compare().damage


@pytest.mark.parametrize("kind", ["term", "pos", "idx", "store", "fast", "fieldnorm", "segment"])
def test_follower_has_an_index_built_again_whose_files_are_damaged(db, tantivy, tmp_path, kind, caplog):
    load(tmp_path)
    follower.catch_up()
    assert whole_files() == ""
    pattern = "*.segment" if kind == "segment" else f"words/*.{kind}"
    (path, *_) = store.current_generation().glob(pattern)
    data = bytearray(path.read_bytes())
    # Before the footer, which small files mostly consist of.
    middle = len(data) // 8
    data[middle : middle + 4] = bytes(byte ^ 0x55 for byte in data[middle : middle + 4])
    path.unlink()  # whoever has mapped the file keeps it as it was
    path.write_bytes(data)
    assert path.name in whole_files()
    assert "will be built again" in caplog.text
    follower.catch_up()
    assert compare().agrees


def whole_files():
    """The reason to build the index again, after the follower has looked at its files."""
    with follower._verify_in_background():
        pass
    return store.rebuild_reason()


def test_files_that_the_writer_replaces_meanwhile_are_not_damaged(db, tantivy, tmp_path, monkeypatch, caplog):
    load(tmp_path)
    follower.catch_up()
    found = iter(["a.segment: No such file", ""])
    monkeypatch.setattr(store, "verify", lambda view, *, again: next(found))
    assert whole_files() == ""
    assert "damaged" not in caplog.text


def test_a_change_taken_in_while_it_compares_is_no_difference(db, tantivy, tmp_path, monkeypatch):
    load(tmp_path)
    follower.catch_up()
    read = check._read_now
    changes = iter(["one", "two"])

    def overtaken():
        found = read()
        if kind := next(changes, None):
            Memory.objects.filter(external_id="t1").update(memory_type=kind)
            follower.catch_up()
        return found

    monkeypatch.setattr(check, "_read_now", overtaken)
    assert compare().agrees


@pytest.mark.parametrize("gone", ["followed", "current"])
def test_the_follower_starts_over_when_its_index_is_not_kept(db, tantivy, tmp_path, gone):
    load(tmp_path)
    follower.catch_up()
    before = store.current_generation()
    own_thread, calls = threading.current_thread(), 0

    def stop():
        nonlocal calls
        # The replica's thread asks too. Its connection would wait for the transaction of this test.
        if threading.current_thread() is own_thread:
            calls += 1
            if calls == 3 and gone == "followed":
                outbox.stop_following()
                Memory.objects.filter(external_id="t1").update(memory_type="unseen")
            elif calls == 3:
                (tantivy / "current").unlink()
        return calls > 12

    follower.follow(stop)
    assert store.current_generation() != before
    assert compare().agrees


def test_files_that_are_being_written_are_not_damaged(db, tantivy, tmp_path):
    load(tmp_path)
    follower.catch_up()
    words = store.current_generation() / "words"
    (words / "0123456789abcdef0123456789abcdef.idx").write_bytes(b"half")
    (segment, *_) = words.glob("*.term")
    segment.with_suffix(".999999.del").write_bytes(b"half")
    assert compare().agrees
    assert not store.verify(store.read_view())


@pytest.mark.django_db(transaction=True)
def test_words_whose_manifest_is_about_to_come_are_no_difference(tantivy, tmp_path, monkeypatch):
    load(tmp_path)
    follower.catch_up()
    change_much()
    is_settled, compared, found = check._is_settled, threading.Event(), []

    def settled(*before):
        compared.set()
        return is_settled(*before)

    def compare_there():
        found.append(compare())
        connection.close()

    comparing = threading.Thread(target=compare_there)

    def reached(step):
        if step == "words committed" and comparing.ident is None:
            comparing.start()
            assert compared.wait(20)

    monkeypatch.setattr(check, "_is_settled", settled)
    monkeypatch.setattr(segment_files, "reached", reached)
    follower.catch_up()
    comparing.join()
    assert found[0].agrees
