"""The replica of the vectors agrees with pgvector, however it was made."""

import random
from itertools import pairwise

import numpy as np
import pytest
from django.core.management import call_command
from django.db import connection, transaction

from memories.embedding import vectors as tables
from memories.embedding.chunking import Window
from memories.embedding.vectors import EmbeddedText, PendingText
from memories.models import Chunk, Corpus, EmbeddingModel, VectorChange
from search.engines import knn, segment_files
from search.engines.index import follower
from search.engines.vectors import pgvector, replica, writer
from tests.search.vectors.drawn import (
    DIMENSIONS,
    assert_true_to_the_database,
    elsewhere,
    is_used,
    question,
    same_as_the_database,
    sync,
    write,
)


@pytest.mark.django_db
def test_made_of_everything_it_answers_as_the_database_does(stored):
    assert not is_used()
    assert sync() == 1
    assert is_used()
    assert same_as_the_database()
    assert_true_to_the_database()


@pytest.mark.django_db
@pytest.mark.parametrize("seed", range(4))
def test_it_follows_what_changes_in_segments_that_become_one(stored, monkeypatch, seed):
    monkeypatch.setattr(writer, "_SEGMENT_BYTES", 12 * 2 * DIMENSIONS)
    monkeypatch.setattr(segment_files, "_MIN_ROWS", 10**9)
    sync()
    name = replica.read_manifest().name
    chance = random.Random(seed)
    for n in range(12):
        write(chance.sample(stored, chance.randint(1, 5)), seed=100 * seed + n)
        if chance.random() < 0.7:
            assert sync() == 1
        assert is_used()
        assert_true_to_the_database()
    sync()
    manifest = replica.read_manifest()
    assert (manifest.name, manifest.revision) == (name, Corpus.objects.get().vectors)
    assert not VectorChange.objects.exists()
    assert same_as_the_database()
    # Replaced files are removed, but for the last, which a reader may be about to open.
    assert len(list(replica.folder().glob("*.segment"))) <= len(manifest.segments) + 4


@pytest.mark.django_db
def test_before_a_change_is_taken_in_it_is_read_from_the_database(stored):
    sync()
    write(stored[:3], seed=1)
    assert is_used()
    assert knn.vectors_now(question(), replicated=True).changed.tolist() == stored[:3]
    assert_true_to_the_database()


@pytest.mark.django_db(transaction=True)
def test_a_transaction_of_before_reads_what_was_then(stored):
    sync()
    asked = question()
    assert is_used()
    before = dict(zip(*map(np.ndarray.tolist, pgvector.scan(asked)), strict=True))
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        revision = pgvector.change_state().revision
        elsewhere(lambda: (write(stored[:5], seed=4), sync()))
        assert replica.open_replicas()[0].manifest.revision > revision
        found = knn.vectors_now(asked, replicated=True)
        assert (found.replica.manifest.revision, found.revision) == (revision, revision)
        ids, similarities = found.scan(asked)
        assert dict(zip(ids.tolist(), similarities.tolist(), strict=True)) == pytest.approx(before, abs=1e-6)
    assert_true_to_the_database()


@pytest.mark.django_db
def test_another_model_gets_a_replica_of_its_own(stored):
    sync()
    EmbeddingModel.objects.filter(pk=1).update(state="retired")
    assert sync() == 1
    assert replica.read_manifest() is None
    assert not Corpus.objects.get().replica
    EmbeddingModel.objects.create(
        id=2, name="other", source="other", dimensions=DIMENSIONS, min_similarity=0.1, state="serving"
    )
    write(stored, seed=5, model_id=2)
    sync()
    assert (replica.read_manifest().model_id, replica.read_manifest().size) == (
        2,
        Chunk.objects.filter(model_id=2).count(),
    )
    # A query from before the change is still answered, from the table.
    assert not is_used()


@pytest.mark.django_db
def test_a_model_that_comes_back_is_not_answered_by_what_it_had(stored):
    sync()
    # The replica is not updated while another model serves, and the vectors of the first one are deleted.
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
    sync()
    assert is_used()
    assert_true_to_the_database()
    assert same_as_the_database()


@pytest.mark.django_db
def test_all_memories_gone_at_once_take_the_replica_with_them(stored):
    follower.catch_up()
    before = replica.read_manifest().name
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE memories_memory CASCADE")
    follower.catch_up()
    assert (replica.read_manifest().name != before, replica.read_manifest().size) == (True, 0)


@pytest.mark.django_db
def test_the_one_before_is_kept_while_it_is_of_the_same_files(stored):
    sync()
    assert is_used()
    write(stored[:2], seed=1)
    sync()
    assert [found.manifest.number for found in replica.open_replicas()] == [3, 1]
    writer.build()
    assert len(replica.open_replicas()) == 1


@pytest.mark.django_db
def test_a_vector_without_a_direction_is_near_to_nothing(stored):
    vectors = np.zeros((1, DIMENSIONS), np.float32)
    asked = question(least=-1.0)
    same = np.frombuffer(asked.vector, np.float32).reshape(1, -1)
    texts = [PendingText(memory_id, "", "text", "other") for memory_id in stored[:2]]
    tables.vectors_write(1, [EmbeddedText(texts[0], [Window(0, 1)], vectors)])
    tables.vectors_write(1, [EmbeddedText(texts[1], [Window(0, 1)], same)])
    sync()
    for read in (knn.vectors_now(asked, replicated=True), knn.vectors_now(asked, replicated=False)):
        for ids, similarities in (read.scan(asked), read.by_ids(asked, np.array(stored))):
            assert sorted(ids.tolist()) == stored[1:]
            assert similarities.max() == 1


@pytest.mark.django_db
def test_how_near_some_are_is_one_statement(stored, django_assert_num_queries):
    sync()
    assert is_used()
    for replicated in (True, False):
        with django_assert_num_queries(1):
            assert list(knn.similarities_of(question(), stored[:2], replicated=replicated)) == stored[:2]


@pytest.mark.django_db
@pytest.mark.parametrize("rows", [1, 2, 5, 1_000])
def test_lots_are_of_whole_memories_however_small(stored, monkeypatch, rows):
    monkeypatch.setattr(writer, "_SEGMENT_BYTES", rows * 2 * DIMENSIONS)
    lots = [ids.tolist() for ids, _ in writer.stored_rows(1, DIMENSIONS)]
    assert [memory_id for lot in lots for memory_id in lot] == sorted(Chunk.objects.values_list("memory_id", flat=True))
    assert all(before[-1] < after[0] for before, after in pairwise(lots))
    assert (len(lots) > 1) == (rows < 1_000)


@pytest.mark.django_db
def test_what_is_mostly_deleted_is_made_anew(stored, monkeypatch):
    monkeypatch.setattr(segment_files, "_MIN_ROWS", 0)
    monkeypatch.setattr(writer, "_SEGMENT_BYTES", 2 * DIMENSIONS)
    sync()
    before = replica.read_manifest().name
    for n in range(6):
        write(stored[:6], seed=n)
        sync()
    assert replica.read_manifest().name != before
    assert same_as_the_database()


@pytest.mark.django_db
def test_the_commands_make_it_tell_of_it_and_remove_it(stored, capsys):
    chunks = Chunk.objects.count()
    call_command("index", "--catch-up")
    call_command("index")
    assert f"{chunks} vectors in a replica of 1 segments, 0." in capsys.readouterr().out
    call_command("index", "--check")
    out = capsys.readouterr().out
    assert f"{chunks} vectors in the database, {chunks} in the replica." in out
    assert "Everything agrees: each memory's digest, each vector, and each file." in out
    before = replica.read_manifest().name
    call_command("index", "--rebuild")
    assert replica.read_manifest().name != before
    call_command("index", "--drop")
    assert not replica.folder().exists()
    assert not Corpus.objects.get().replica
    write(stored[:1], seed=2)
    assert not VectorChange.objects.exists()


@pytest.mark.django_db
def test_without_a_model_there_is_none(stored):
    EmbeddingModel.objects.all().delete()
    follower.catch_up()
    assert replica.read_manifest() is None
    assert sync() == 0


def test_a_segment_knows_the_rows_of_its_memories():
    ids = np.array([7, 3, 3, 9, 7, 7], np.int64)
    vectors = np.arange(12, dtype=np.float16).reshape(6, 2)
    segment = replica.segment_of(ids, vectors)
    assert segment.ids.tolist() == [3, 3, 7, 7, 7, 9]
    assert segment.vectors[:, 0].tolist() == [2, 4, 0, 8, 10, 6]
    assert segment.rows_of(np.array([1, 3, 8, 9])).tolist() == [0, 1, 5]
    assert segment.lengths[0] == pytest.approx(np.hypot(2, 3))
