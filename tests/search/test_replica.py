"""The replica of the vectors: true to pgvector however it came to be, killed, damaged, or of another past."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from itertools import pairwise

import numpy as np
import pytest
from django.conf import settings as configured
from django.core.management import call_command
from django.db import connection, transaction

from memories import vectors as tables
from memories.chunking import Window
from memories.models import Chunk, Corpus, EmbeddingModel, Memory, VectorChange
from memories.vectors import EmbeddedText, WaitingText
from search.engines import nearest
from search.engines.base import Meaning
from search.engines.tantivy import indexer
from search.engines.vectors import changes, check, files, keeper, replica, table
from tests.corpus import RECORDS

DIMENSIONS = 384

# A process of its own that ends as if the power failed when it comes to a step.
KILLED = textwrap.dedent(
    """
    import os, signal, sys
    import django
    name, index, step, verb = sys.argv[1:]
    import tests.settings
    tests.settings.DATABASES["default"]["NAME"] = name
    tests.settings.SEARCH_INDEX = index
    django.setup()
    from search.engines.tantivy import steps
    from search.engines.vectors import keeper
    steps.reached = lambda at: at == step and os.kill(os.getpid(), signal.SIGKILL)
    getattr(keeper, verb)()
    """
)


class Everyone:
    """All memories pass."""

    def among(self, ids):
        return np.ones(len(ids), bool)

    def count(self, most=None):
        return Memory.objects.count()

    def ids(self):
        return np.array(sorted(Memory.objects.values_list("pk", flat=True)), np.int64)


@pytest.fixture
def stored(index, settings, tmp_path):
    """The hand-written memories with vectors drawn by chance, one to three each, under a model that serves."""
    settings.SEARCH_ENGINE = "tantivy"
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    call_command("import_memories", str(path), verbosity=0)
    EmbeddingModel.objects.create(
        id=1, name="drawn", source="drawn", dimensions=DIMENSIONS, min_similarity=0.1, state="serving"
    )
    write(Memory.objects.values_list("pk", flat=True), seed=0)
    nearest.forget()
    yield sorted(Memory.objects.values_list("pk", flat=True))
    nearest.forget()


def write(ids, *, seed, model_id=1):
    """Write vectors as the worker does."""
    chance = np.random.default_rng(seed)
    found = []
    for memory_id in ids:
        vectors = chance.standard_normal((int(chance.integers(1, 4)), DIMENSIONS)).astype(np.float32)
        windows = [Window(n, n + 1) for n in range(len(vectors))]
        found.append(EmbeddedText(WaitingText(memory_id, "", "text", f"{seed}"), windows, vectors))
    tables.vectors_write(model_id, found)


def keep_up():
    """How often something was done."""
    done = 0
    while keeper.keep_up():
        done += 1
    return done


def closing_connection(done):
    """To do in another thread, with a connection of its own."""

    def run():
        try:
            done()
        finally:
            connection.close()

    return run


def elsewhere(done):
    thread = threading.Thread(target=closing_connection(done))
    thread.start()
    thread.join()


def question(seed=7, least=0.02, limit=1_000):
    vector = np.random.default_rng(seed).standard_normal(DIMENSIONS).astype(np.float32)
    return Meaning(1, vector.tobytes(), least, limit)


def assert_true_to_the_database():
    """What is near, as pgvector has it: in whole, and of some."""
    nearest.forget()
    for seed in range(5):
        asked = question(seed)
        expected = dict(zip(*map(np.ndarray.tolist, table.every(asked)), strict=True))
        near = nearest.nearest_passing(asked, Everyone(), replicated=True)
        assert dict(zip(near.ids.tolist(), near.similarities.tolist(), strict=True)) == pytest.approx(
            expected, abs=1e-6
        )
        assert near.similarities.tolist() == sorted(near.similarities.tolist(), reverse=True)


def is_used():
    """Whether an answer of now would be read from the replica."""
    replica.forget()
    return nearest._vectors(question(), True).replica is not None


def same_as_the_database():
    found = check.compare_vectors()
    return found is not None and found.agrees and found.vectors == Chunk.objects.count()


@pytest.mark.django_db
def test_made_of_everything_it_answers_as_the_database_does(stored):
    assert not is_used()
    assert keep_up() == 1
    assert is_used()
    assert same_as_the_database()
    assert_true_to_the_database()


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(4))
def test_it_follows_what_changes_in_segments_that_become_one(stored, monkeypatch, seed):
    monkeypatch.setattr(keeper, "_SEGMENT_BYTES", 12 * 2 * DIMENSIONS)
    monkeypatch.setattr(keeper, "_LEAST_ROWS", 10**9)
    keep_up()
    name = files.read_manifest().name
    chance = random.Random(seed)
    for n in range(12):
        write(chance.sample(stored, chance.randint(1, 5)), seed=100 * seed + n)
        if chance.random() < 0.7:
            assert keep_up() == 1
        assert is_used()
        assert_true_to_the_database()
    keep_up()
    manifest = files.read_manifest()
    assert (manifest.name, manifest.revision) == (name, Corpus.objects.get().vectors)
    assert not VectorChange.objects.exists()
    assert same_as_the_database()
    # No file is left of those that were replaced, but for the last, which a reader may be about to open.
    assert len(list(files.folder().glob("*.rows"))) <= len(manifest.segments) + 4


@pytest.mark.django_db
def test_before_a_change_is_taken_in_it_is_read_from_the_database(stored):
    keep_up()
    write(stored[:3], seed=1)
    assert is_used()
    assert nearest._vectors(question(), True).changed.tolist() == stored[:3]
    assert_true_to_the_database()


@pytest.mark.django_db(transaction=True)
def test_a_transaction_of_before_reads_what_was_then(stored):
    keep_up()
    asked = question()
    assert is_used()
    before = dict(zip(*map(np.ndarray.tolist, table.every(asked)), strict=True))
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        revision = changes.standing().revision
        elsewhere(lambda: (write(stored[:5], seed=4), keep_up()))
        assert replica.opened()[0].manifest.revision > revision
        found = nearest._vectors(asked, True)
        assert (found.replica.manifest.revision, found.revision) == (revision, revision)
        ids, similarities = found.every(asked)
        assert dict(zip(ids.tolist(), similarities.tolist(), strict=True)) == pytest.approx(before, abs=1e-6)
    assert_true_to_the_database()


@pytest.mark.django_db
def test_too_many_changes_are_left_to_the_database(stored, monkeypatch):
    monkeypatch.setattr(changes, "MOST_CHANGES", 2)
    keep_up()
    for n in range(3):
        write(stored[:1], seed=n)
    assert not is_used()
    assert_true_to_the_database()
    keep_up()
    assert is_used()


@pytest.mark.django_db
def test_a_change_that_nobody_wrote_down_makes_it_anew(stored):
    keep_up()
    Chunk.objects.filter(memory_id=stored[0]).delete()
    Corpus.objects.update(vectors=Corpus.objects.get().vectors + 1)
    assert not is_used()
    assert_true_to_the_database()
    before = files.read_manifest().name
    keep_up()
    assert files.read_manifest().name != before
    assert same_as_the_database()


@pytest.mark.django_db
def test_a_database_that_was_put_back_is_not_answered_from_a_later_past(stored):
    keep_up()
    with transaction.atomic():
        write(stored[:2], seed=3)
        keep_up()
        transaction.set_rollback(True)
    assert files.read_manifest().revision > Corpus.objects.get().vectors
    assert not is_used()
    assert_true_to_the_database()
    keep_up()
    assert is_used()
    assert_true_to_the_database()


@pytest.mark.django_db
def test_another_model_gets_a_replica_of_its_own(stored):
    keep_up()
    EmbeddingModel.objects.filter(pk=1).update(state="retired")
    assert keep_up() == 1
    assert files.read_manifest() is None
    assert not Corpus.objects.get().replica
    EmbeddingModel.objects.create(
        id=2, name="other", source="other", dimensions=DIMENSIONS, min_similarity=0.1, state="serving"
    )
    write(stored, seed=5, model_id=2)
    keep_up()
    assert (files.read_manifest().model_id, files.read_manifest().rows) == (2, Chunk.objects.filter(model_id=2).count())
    # A question of before the change is still answered, from the table.
    assert not is_used()


@pytest.mark.django_db(transaction=True)
def test_a_column_of_another_width_leaves_no_replica(stored):
    keep_up()
    try:
        tables.column_resize(3)
        assert not is_used()
        keep_up()
        assert files.read_manifest() is None
    finally:
        tables.column_resize(DIMENSIONS)


@pytest.mark.django_db(transaction=True)
def test_a_column_of_another_width_takes_what_writers_hold_before_what_they_wait_for(stored):
    """Who changes the vocabulary has its vectors, and comes to the row of the corpus last."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    resizing = threading.Thread(target=closing_connection(lambda: tables.column_resize(3)))
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("DELETE FROM categories_entityvector")
            resizing.start()
            while not cursor.execute(waiting).fetchone()[0]:
                pass
            cursor.execute("UPDATE memories_corpus SET revision = revision + 1")
        resizing.join()
        assert tables.column_dimensions() == 3
    finally:
        tables.column_resize(DIMENSIONS)


@pytest.mark.django_db
def test_damage_is_healed_and_nothing_is_answered_from_it(stored):
    keep_up()
    manifest = files.read_manifest()
    path = files.folder() / manifest.segments[0]
    os.truncate(path, path.stat().st_size // 2)
    assert "is cut off" in check.compare_vectors().damage[0]
    assert not is_used()
    assert_true_to_the_database()
    keep_up()
    assert is_used()
    assert same_as_the_database()


@pytest.mark.django_db
def test_a_vector_that_is_another_is_told_and_made_anew(stored):
    keep_up()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE memories_chunk SET embedding ="
            " (SELECT embedding FROM memories_chunk WHERE memory_id = %s AND ordinal = 0)"
            " WHERE memory_id = %s AND ordinal = 0",
            [stored[5], stored[4]],
        )
    assert check.compare_vectors().different == [stored[4]]


@pytest.mark.django_db
def test_a_memory_whose_vectors_went_without_a_word_is_told(stored):
    keep_up()
    Chunk.objects.filter(memory_id=stored[3]).delete()
    assert check.compare_vectors().different == [stored[3]]


@pytest.mark.django_db
def test_what_changed_without_a_word_while_it_takes_in_makes_it_anew(stored, monkeypatch):
    keep_up()
    write(stored[:2], seed=1)
    before = files.read_manifest().name
    open_files = keeper._Keeping.open

    def opened(manifest):
        Chunk.objects.filter(memory_id=stored[3]).delete()
        Corpus.objects.update(vectors=Corpus.objects.get().vectors + 1)
        return open_files(manifest)

    monkeypatch.setattr(keeper._Keeping, "open", opened)
    keep_up()
    assert files.read_manifest().name != before
    assert same_as_the_database()


@pytest.mark.django_db
def test_asked_for_anew_while_it_takes_in_it_is_made_anew(stored, monkeypatch):
    keep_up()
    write(stored[:2], seed=1)
    before = files.read_manifest().name
    open_files = keeper._Keeping.open

    def opened(manifest):
        found = open_files(manifest)
        keeper.discard()
        return found

    monkeypatch.setattr(keeper._Keeping, "open", opened)
    assert keep_up() == 2
    assert files.read_manifest().name != before


@pytest.mark.django_db
def test_a_model_that_comes_back_is_not_answered_by_what_it_had(stored):
    keep_up()
    # Nobody keeps it while another model serves, and the vectors of the first one go.
    EmbeddingModel.objects.create(
        id=2, name="other", source="other", dimensions=DIMENSIONS, min_similarity=0.1, state="building"
    )
    assert tables.model_serve(2, up_to=0)
    assert tables.retired_remove([1], 1_000) == len(stored)
    EmbeddingModel.objects.filter(pk=1).update(state="building")
    write(stored[1:], seed=6)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE memories_embeddedmemory embedded SET content_hash = memory.content_hash"
            " FROM memories_memory memory WHERE memory.id = embedded.memory_id"
        )
    assert tables.model_serve(1, up_to=stored[-1], leaving=stored[:1])
    assert_true_to_the_database()
    keep_up()
    assert is_used()
    assert_true_to_the_database()
    assert same_as_the_database()


@pytest.mark.django_db
def test_all_memories_gone_at_once_take_the_replica_with_them(stored):
    indexer.catch_up()
    before = files.read_manifest().name
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE memories_memory CASCADE")
    indexer.catch_up()
    assert (files.read_manifest().name != before, files.read_manifest().rows) == (True, 0)


def full_disk(name, segment):
    (files.folder() / name).write_bytes(b"half of it")
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.django_db(transaction=True)
def test_a_disk_that_is_full_holds_no_half_replica_and_is_written_to_later(stored, monkeypatch):
    keep_up()
    write(stored[:2], seed=1)
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_segment", full_disk)
        with pytest.raises(OSError, match="No space left"):
            keeper.keep_up()
        # What there was is read on, and what changed since from the database.
        assert is_used()
        assert_true_to_the_database()
        with pytest.raises(OSError, match="No space left"):
            keeper.build()
        assert list(files.folder().iterdir()) == []
        assert not is_used()
        assert_true_to_the_database()
    keep_up()
    assert is_used()
    assert same_as_the_database()


@pytest.mark.django_db(transaction=True)
def test_told_to_stop_it_leaves_nothing_and_a_connection_that_works(stored, monkeypatch):
    monkeypatch.setattr(keeper, "_SEGMENT_BYTES", 2 * DIMENSIONS)
    with pytest.raises(keeper.StoppedError):
        keeper.build(stop=lambda: True)
    assert list(files.folder().iterdir()) == []
    keep_up()
    assert same_as_the_database()


@pytest.mark.django_db
def test_a_process_without_handles_takes_nothing_from_the_others(stored, monkeypatch):
    keep_up()

    def starved(*arguments):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(np, "memmap", starved)
        assert not is_used()
        assert_true_to_the_database()
    assert files.read_manifest() is not None
    assert nearest._vectors(question(), True).replica is not None


@pytest.mark.django_db
def test_the_one_before_is_kept_while_it_is_of_the_same_files(stored):
    keep_up()
    assert is_used()
    write(stored[:2], seed=1)
    keep_up()
    assert [found.manifest.made for found in replica.opened()] == [3, 1]
    keeper.build()
    assert len(replica.opened()) == 1


@pytest.mark.django_db
def test_a_vector_without_a_direction_is_near_to_nothing(stored):
    vectors = np.zeros((1, DIMENSIONS), np.float32)
    asked = question(least=-1.0)
    same = np.frombuffer(asked.vector, np.float32).reshape(1, -1)
    texts = [WaitingText(memory_id, "", "text", "other") for memory_id in stored[:2]]
    tables.vectors_write(1, [EmbeddedText(texts[0], [Window(0, 1)], vectors)])
    tables.vectors_write(1, [EmbeddedText(texts[1], [Window(0, 1)], same)])
    keep_up()
    for read in (nearest._vectors(asked, True), nearest._vectors(asked, False)):
        for ids, similarities in (read.every(asked), read.some(asked, np.array(stored))):
            assert sorted(ids.tolist()) == stored[1:]
            assert similarities.max() == 1


@pytest.mark.django_db
def test_how_near_some_are_is_one_statement(stored, django_assert_num_queries):
    keep_up()
    assert is_used()
    for replicated in (True, False):
        with django_assert_num_queries(1):
            assert list(nearest.similarities_of(question(), stored[:2], replicated=replicated)) == stored[:2]


@pytest.mark.django_db
@pytest.mark.parametrize("rows", [1, 2, 5, 1_000])
def test_lots_are_of_whole_memories_however_small(stored, monkeypatch, rows):
    monkeypatch.setattr(keeper, "_SEGMENT_BYTES", rows * 2 * DIMENSIONS)
    lots = [ids.tolist() for ids, _ in keeper.stored_rows(1, DIMENSIONS)]
    assert [memory_id for lot in lots for memory_id in lot] == sorted(Chunk.objects.values_list("memory_id", flat=True))
    assert all(before[-1] < after[0] for before, after in pairwise(lots))
    assert (len(lots) > 1) == (rows < 1_000)


@pytest.mark.django_db
def test_what_is_mostly_dead_is_made_anew(stored, monkeypatch):
    monkeypatch.setattr(keeper, "_LEAST_ROWS", 0)
    monkeypatch.setattr(keeper, "_SEGMENT_BYTES", 2 * DIMENSIONS)
    keep_up()
    before = files.read_manifest().name
    for n in range(6):
        write(stored[:6], seed=n)
        keep_up()
    assert files.read_manifest().name != before
    assert same_as_the_database()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("verb", "step"),
    [
        ("build", "replica filled"),
        ("build", "replica in place"),
        ("keep_up", "segment written"),
        ("keep_up", "replica's manifest written"),
        ("keep_up", "changes of vectors forgotten"),
    ],
)
def test_killed_at_a_step_it_goes_on_and_nothing_is_lost(stored, index, verb, step):
    keep_up()
    write(stored[:4], seed=9)
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    command = [sys.executable, "-c", KILLED, connection.settings_dict["NAME"], str(index), step, verb]
    done = subprocess.run(command, cwd=configured.BASE_DIR, env=environment, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    # Whoever asks meanwhile gets what is true, from wherever.
    assert_true_to_the_database()
    write(stored[2:5], seed=10)
    assert_true_to_the_database()
    keep_up()
    assert is_used()
    assert same_as_the_database()
    assert_true_to_the_database()
    assert len(list(files.folder().iterdir())) <= 2 + len(files.read_manifest().segments) + 2


@pytest.mark.django_db
def test_the_commands_make_it_tell_of_it_and_remove_it(stored, capsys):
    chunks = Chunk.objects.count()
    call_command("index", "--catch-up")
    call_command("index")
    assert f"{chunks} vectors in a replica of 1 parts, 0." in capsys.readouterr().out
    call_command("index", "--check")
    out = capsys.readouterr().out
    assert f"{chunks} vectors in the database, {chunks} in the replica." in out
    assert "Everything agrees: each memory's digest, each vector, and each file." in out
    before = files.read_manifest().name
    call_command("index", "--rebuild")
    assert files.read_manifest().name != before
    call_command("index", "--drop")
    assert not files.folder().exists()
    assert not Corpus.objects.get().replica
    write(stored[:1], seed=2)
    assert not VectorChange.objects.exists()


@pytest.mark.django_db
def test_without_a_model_there_is_none(stored):
    EmbeddingModel.objects.all().delete()
    indexer.catch_up()
    assert files.read_manifest() is None
    assert keep_up() == 0


def test_a_segment_knows_the_rows_of_its_memories():
    ids = np.array([7, 3, 3, 9, 7, 7], np.int64)
    vectors = np.arange(12, dtype=np.float16).reshape(6, 2)
    segment = files.segment_of(ids, vectors)
    assert segment.ids.tolist() == [3, 3, 7, 7, 7, 9]
    assert segment.vectors[:, 0].tolist() == [2, 4, 0, 8, 10, 6]
    assert segment.places_of(np.array([1, 3, 8, 9])).tolist() == [0, 1, 5]
    assert segment.lengths[0] == pytest.approx(np.hypot(2, 3))


def test_what_was_written_down_has_to_be_without_a_gap():
    assert changes.Standing(revision=5, replica="a", changes=2).follows("a", 3)
    assert not changes.Standing(revision=5, replica="a", changes=1).follows("a", 3)
    assert not changes.Standing(revision=2, replica="a", changes=0).follows("a", 3)
    assert not changes.Standing(revision=3, replica="b", changes=0).follows("a", 3)
