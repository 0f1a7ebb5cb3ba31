"""The replica of the vectors damaged, or of an earlier state: no wrong answers, and it is repaired."""

import errno
import os
import threading

import numpy as np
import pytest
from django.db import connection, transaction

from memories.embedding import vectors as tables
from memories.models import Chunk, Corpus
from search.engines import check, knn
from search.engines.polling import StoppedError
from search.engines.vectors import pgvector, replica, writer
from tests.search.vectors.drawn import (
    DIMENSIONS,
    assert_true_to_the_database,
    closing_connection,
    is_used,
    question,
    same_as_the_database,
    sync,
    write,
)


def full_disk(name, segment):
    (replica.folder() / name).write_bytes(b"half of it")
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.django_db
def test_too_many_changes_are_left_to_the_database(stored, monkeypatch):
    monkeypatch.setattr(pgvector, "MAX_CHANGES", 2)
    sync()
    for n in range(3):
        write(stored[:1], seed=n)
    assert not is_used()
    assert_true_to_the_database()
    sync()
    assert is_used()


@pytest.mark.django_db
def test_a_change_that_nobody_wrote_down_makes_it_anew(stored):
    sync()
    Chunk.objects.filter(memory_id=stored[0]).delete()
    Corpus.objects.update(vectors=Corpus.objects.get().vectors + 1)
    assert not is_used()
    assert_true_to_the_database()
    before = replica.read_manifest().name
    sync()
    assert replica.read_manifest().name != before
    assert same_as_the_database()


@pytest.mark.django_db
def test_a_database_that_was_put_back_is_not_answered_from_a_later_past(stored):
    sync()
    with transaction.atomic():
        write(stored[:2], seed=3)
        sync()
        transaction.set_rollback(True)
    assert replica.read_manifest().revision > Corpus.objects.get().vectors
    assert not is_used()
    assert_true_to_the_database()
    sync()
    assert is_used()
    assert_true_to_the_database()


@pytest.mark.django_db(transaction=True)
def test_a_column_of_another_width_leaves_no_replica(stored):
    sync()
    try:
        tables.column_resize(3)
        assert not is_used()
        sync()
        assert replica.read_manifest() is None
    finally:
        tables.column_resize(DIMENSIONS)


@pytest.mark.django_db(transaction=True)
def test_a_column_of_another_width_takes_what_writers_hold_before_what_they_wait_for(stored):
    """A transaction that changes the vocabulary locks its vectors, and locks the row of the corpus last."""
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
    sync()
    manifest = replica.read_manifest()
    path = replica.folder() / manifest.segments[0]
    os.truncate(path, path.stat().st_size // 2)
    assert "is cut off" in check.compare_vectors().damage[0]
    assert not is_used()
    assert_true_to_the_database()
    sync()
    assert is_used()
    assert same_as_the_database()


@pytest.mark.django_db
def test_a_vector_that_is_another_is_told_and_made_anew(stored):
    sync()
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
    sync()
    Chunk.objects.filter(memory_id=stored[3]).delete()
    assert check.compare_vectors().different == [stored[3]]


@pytest.mark.django_db
def test_what_changed_without_a_word_while_it_takes_in_makes_it_anew(stored, monkeypatch):
    sync()
    write(stored[:2], seed=1)
    before = replica.read_manifest().name
    open_files = writer._ReplicaWriter.open

    def opened(manifest):
        Chunk.objects.filter(memory_id=stored[3]).delete()
        Corpus.objects.update(vectors=Corpus.objects.get().vectors + 1)
        return open_files(manifest)

    monkeypatch.setattr(writer._ReplicaWriter, "open", opened)
    sync()
    assert replica.read_manifest().name != before
    assert same_as_the_database()


@pytest.mark.django_db
def test_asked_for_anew_while_it_takes_in_it_is_made_anew(stored, monkeypatch):
    sync()
    write(stored[:2], seed=1)
    before = replica.read_manifest().name
    open_files = writer._ReplicaWriter.open

    def opened(manifest):
        found = open_files(manifest)
        writer.discard()
        return found

    monkeypatch.setattr(writer._ReplicaWriter, "open", opened)
    assert sync() == 2
    assert replica.read_manifest().name != before


@pytest.mark.django_db(transaction=True)
def test_a_disk_that_is_full_holds_no_half_replica_and_is_written_to_later(stored, monkeypatch):
    sync()
    write(stored[:2], seed=1)
    with monkeypatch.context() as patched:
        patched.setattr(replica, "write_segment", full_disk)
        with pytest.raises(OSError, match="No space left"):
            writer.sync()
        # The old replica still answers, with the changes since from the database.
        assert is_used()
        assert_true_to_the_database()
        with pytest.raises(OSError, match="No space left"):
            writer.build()
        assert list(replica.folder().iterdir()) == []
        assert not is_used()
        assert_true_to_the_database()
    sync()
    assert is_used()
    assert same_as_the_database()


@pytest.mark.django_db(transaction=True)
def test_told_to_stop_it_leaves_nothing_and_a_connection_that_works(stored, monkeypatch):
    monkeypatch.setattr(writer, "_SEGMENT_BYTES", 2 * DIMENSIONS)
    with pytest.raises(StoppedError):
        writer.build(stop=lambda: True)
    assert list(replica.folder().iterdir()) == []
    sync()
    assert same_as_the_database()


@pytest.mark.django_db
def test_a_process_without_handles_takes_nothing_from_the_others(stored, monkeypatch):
    sync()

    def starved(*arguments):
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(np, "memmap", starved)
        assert not is_used()
        assert_true_to_the_database()
    assert replica.read_manifest() is not None
    assert knn.vectors_now(question(), replicated=True).replica is not None


def test_what_was_written_down_has_to_be_without_a_gap():
    assert pgvector.ChangeState(revision=5, replica="a", changes=2).follows("a", 3)
    assert not pgvector.ChangeState(revision=5, replica="a", changes=1).follows("a", 3)
    assert not pgvector.ChangeState(revision=2, replica="a", changes=0).follows("a", 3)
    assert not pgvector.ChangeState(revision=3, replica="b", changes=0).follows("a", 3)
