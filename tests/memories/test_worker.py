"""The worker: what waits is embedded, whole or not at all, and models take turns without a gap."""

import os
import signal
import subprocess
import sys
import threading
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from django.core.management import CommandError, call_command
from django.db import connection, transaction

from access.viewer import command_viewer
from categories.models import Entity
from memories.embedding import pending, vectors
from memories.embedding.chunking import chunk_text
from memories.embedding.models import EmbedderUnavailableError, HashedWords
from memories.embedding.worker import Worker
from memories.models import Chunk, Corpus, EmbeddedMemory, EmbeddingModel, Memory, Project
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_delete, memory_update
from tests.embedding import embed_all
from web.command_line import command

pytestmark = pytest.mark.django_db
EVERYTHING = command_viewer()
ROOT = Path(__file__).resolve().parent.parent.parent


class Renamed(HashedWords):
    """Another model, which gives other vectors."""

    def __init__(self, name="other-words", dimensions=384):
        super().__init__(dimensions)
        self.name = name

    def encode_query(self, text):
        return -super().encode_query(text)

    def clone(self):
        return self


class Refusing(HashedWords):
    """Cannot embed some texts."""

    def encode(self, texts):
        if any("poison" in text for text in texts):
            raise ValueError("cannot read poison")
        return super().encode(texts)


def store(content, **fields):
    return memory_create(record=MemoryRecord(content=content, **fields), viewer=EVERYTHING)


def change(memory, **fields):
    return memory_update(memory_id=memory.pk, changes=MemoryChanges(**fields), viewer=EVERYTHING)


def embedded_texts(memory):
    found = Chunk.objects.filter(memory=memory).order_by("model_id", "ordinal")
    return [chunk_text(memory.content, chunk.start, chunk.end) for chunk in found]


def first_number(memory, model="hashed-words"):
    return Chunk.objects.get(memory=memory, model__name=model, ordinal=0).embedding[0]


def states():
    return dict(EmbeddingModel.objects.values_list("name", "state"))


def loading(embedder):
    return {"load": lambda source: embedder}


def store_with_ids(ids):
    """Memories with these ids, so that a test knows which of them are in the same run."""
    project = Project.objects.create(slug="tea", name="Tea")
    Memory.objects.bulk_create(Memory(pk=pk, project=project, content=f"Cup {pk}.", content_hash=str(pk)) for pk in ids)


def call_worker_once(**options):
    """The output of `manage.py worker --once`."""
    out = StringIO()
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    try:
        call_command("worker", "--once", "--threads", "1", stdout=out, **options)
    finally:
        signal.signal(signal.SIGTERM, handlers[0])
        signal.signal(signal.SIGINT, handlers[1])
    return out.getvalue()


# --- what is embedded ---------------------------------------------------------------------------------------------


def test_all_that_waits_is_embedded_and_nothing_twice():
    kept, gone = store("Retries stop after three."), store("Deleted, and still to be found by its state.")
    memory_delete(memory_id=gone.pk, viewer=EVERYTHING, reason="old")
    before = Corpus.objects.get().vectors
    assert embed_all().progress.memories == 2
    assert embedded_texts(kept) == ["Retries stop after three."]
    assert EmbeddedMemory.objects.get(memory=gone).chunks == 1
    assert Corpus.objects.get().vectors == before + 1
    assert embed_all().progress.memories == 0
    assert states() == {"hashed-words": "serving"}


def test_long_text_is_cut_into_chunks_that_cover_it():
    words = [f"word{n}" for n in range(150)]
    memory = store(" ".join(words), title="A long one")
    embed_all()
    found = embedded_texts(memory)
    assert len(found) > 2
    assert [word for word in words if not any(word in text.split() for text in found)] == []
    assert EmbeddedMemory.objects.get(memory=memory).chunks == len(found)


def test_changed_text_keeps_its_vectors_until_it_is_embedded_again():
    memory = store("Tea is brewed at eighty degrees.", title="Tea", tags=["kitchen"])
    embed_all()
    before = first_number(memory)
    change(memory, tags=["drinks"])
    assert embed_all().progress.memories == 0
    change(memory, content="Coffee is brewed at ninety-three degrees.")
    assert first_number(memory) == before
    assert embed_all().progress.memories == 1
    assert first_number(memory) != before
    assert Chunk.objects.filter(memory=memory).count() == 1


def test_vectors_go_with_a_memory_that_is_purged():
    memory = store("Here for a moment.")
    embed_all()
    Memory.objects.filter(pk=memory.pk).delete()
    assert (Chunk.objects.count(), EmbeddedMemory.objects.count()) == (0, 0)


def test_text_that_cannot_be_embedded_holds_up_no_other(caplog):
    bad, good = store("This is poison."), store("This is not.")
    worker = embed_all(**loading(Refusing()))
    assert (embedded_texts(bad), embedded_texts(good)) == ([], ["This is not."])
    assert f"Memory #{bad.pk} cannot be embedded: cannot read poison" in caplog.text
    assert vectors.pending_count(EmbeddingModel.objects.get().pk) == 1
    # Nor the turn of a model that has embedded all the others.
    assert worker.refused.memories.keys() == {bad.pk}
    other = Refusing()
    other.name = "other-words"
    embed_all("other-words", **loading(other))
    assert states() == {"hashed-words": "retired", "other-words": "serving"}


# --- whole or not at all ------------------------------------------------------------------------------------------


def test_stopping_leaves_whole_memories_only():
    for n in range(40):
        store(f"Short one {n}.")
    long = store(" ".join(f"word{n}" for n in range(3_000)))
    asked = iter([False] * 5)
    worker = embed_all(stop=lambda: next(asked, True))
    assert worker.progress.memories == EmbeddedMemory.objects.count()
    for memory_id, chunks in EmbeddedMemory.objects.values_list("memory_id", "chunks"):
        assert Chunk.objects.filter(memory_id=memory_id).count() == chunks
    assert not Chunk.objects.exclude(memory_id__in=EmbeddedMemory.objects.values("memory_id")).exists()
    embed_all()
    assert EmbeddedMemory.objects.count() == 41
    assert EmbeddedMemory.objects.get(memory=long).chunks == Chunk.objects.filter(memory=long).count() > 40


def test_text_that_changes_while_it_is_embedded_waits_again():
    memory = store("As it was.")

    changed = []

    class Slow(HashedWords):
        def encode(self, texts):
            if texts == ["As it was."]:
                changed.append(change(memory, content="As it is now.", title="Now"))
            return super().encode(texts)

    worker = embed_all(stop=lambda: bool(changed), **loading(Slow()))
    assert worker.progress.memories == 1
    assert vectors.pending_count(EmbeddingModel.objects.get().pk) == 1
    embed_all()
    assert embedded_texts(Memory.objects.get(pk=memory.pk)) == ["As it is now."]


def test_text_that_changes_while_it_is_embedded_is_embedded_again_before_the_end():
    memory = store("As it was.")

    class Slow(HashedWords):
        def encode(self, texts):
            if texts == ["As it was."]:
                change(memory, content="As it is now.")
            return super().encode(texts)

    assert embed_all(**loading(Slow())).progress.memories == 2
    assert embedded_texts(Memory.objects.get(pk=memory.pk)) == ["As it is now."]


def test_memory_that_is_purged_while_it_is_embedded_is_left_out():
    gone, kept = store("Gone soon."), store("Here to stay.")

    class Slow(HashedWords):
        def encode(self, texts):
            Memory.objects.filter(pk=gone.pk).delete()
            return super().encode(texts)

    embed_all(**loading(Slow()))
    assert list(Chunk.objects.values_list("memory_id", flat=True)) == [kept.pk]


@pytest.mark.django_db(transaction=True)
def test_several_workers_embed_each_memory_once():
    for n in range(300):
        store(f"Memory number {n}, which is its own.")
    workers = [Worker("hashed-words", threads=2) for _ in range(2)]
    workers[0].begin()

    def work(worker):
        worker.once()
        connection.close()

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    embed_all()  # what one of them had claimed when the other looked
    assert EmbeddedMemory.objects.count() == Chunk.objects.count() == 300
    assert sum(worker.progress.memories for worker in workers) <= 300


def test_run_of_ids_is_given_to_one_thread_at_a_time(monkeypatch):
    monkeypatch.setattr(pending, "_PAGE", 24)
    first = vectors.RUN
    store_with_ids([*range(first, first + 40), 2 * vectors.RUN])
    queue = pending.PendingQueue([pending.Target(1, [HashedWords()])])
    assert [queue.take()[1:] for _ in range(2)] == [
        (2, [2 * vectors.RUN]),
        (1, list(range(first + 39, first + 16, -1))),
    ]
    assert queue.take() is None
    queue.release([2])
    assert queue.take() is None
    queue.release([1])
    assert queue.take()[1:] == (1, list(range(first + 16, first - 1, -1)))


@pytest.mark.django_db(transaction=True)
def test_run_that_another_process_holds_is_left_to_it_and_reported():
    store_with_ids([vectors.RUN, 2 * vectors.RUN, 2 * vectors.RUN + 1])
    holds, release = threading.Event(), threading.Event()

    def hold():
        with transaction.atomic():
            assert vectors.claim(2)
            holds.set()
            release.wait(60)
        connection.close()

    other = threading.Thread(target=hold)
    other.start()
    holds.wait(30)
    told = call_worker_once()
    release.set()
    other.join(30)
    assert told == (
        "Embedded 1 memory in 1 chunk.\n"
        "2 memories still pending: another worker has claimed them, or they have just changed.\n"
        "hashed-words is serving.\n"
    )
    assert call_worker_once() == "Embedded 2 memories in 2 chunks.\nhashed-words is serving.\n"


@pytest.mark.django_db(transaction=True)
def test_worker_waits_for_whoever_edits_and_not_the_other_way_round():
    memory = store("Being edited.")
    release = threading.Event()
    holds = threading.Event()

    def edit():
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT id FROM memories_memory WHERE id = %s FOR UPDATE", [memory.pk])
            holds.set()
            release.wait(30)
            cursor.execute("COMMIT")
        connection.close()

    editor = threading.Thread(target=edit)
    editor.start()
    holds.wait(30)
    threading.Timer(0.8, release.set).start()
    assert embed_all().progress.memories == 1
    editor.join(30)


# --- models take turns --------------------------------------------------------------------------------------------


def test_other_model_is_built_beside_the_one_that_serves_and_takes_its_place():
    memory = store("Tea.")
    embed_all()
    stop = Worker("other-words", threads=1, stop=lambda: True, **loading(Renamed()))
    stop.once()
    assert states() == {"hashed-words": "serving", "other-words": "building"}
    embed_all("other-words", **loading(Renamed()))
    assert states() == {"hashed-words": "retired", "other-words": "serving"}
    assert first_number(memory, "other-words") == -first_number(memory)
    # The vectors that servers may still compare with go at the next run.
    embed_all("other-words", **loading(Renamed()))
    assert set(Chunk.objects.values_list("model__name", flat=True)) == {"other-words"}
    assert set(EmbeddedMemory.objects.values_list("model__name", flat=True)) == {"other-words"}


def test_model_that_serves_and_cannot_be_loaded_any_more_serves_what_it_has(caplog):
    store("Tea.")
    embed_all()
    store("Coffee.")

    def load(source):
        if source == "hashed-words":
            raise EmbedderUnavailableError("its folder is gone")
        return Renamed()

    embed_all("other-words", load=load)
    assert "its folder is gone" in caplog.text
    assert states()["other-words"] == "serving"


# --- the width of vectors -----------------------------------------------------------------------------------------


def test_model_of_another_width_is_refused_with_what_to_do():
    store("Tea.")
    with pytest.raises(vectors.WrongDimensionsError) as error:
        embed_all("wide", **loading(Renamed("wide", 512)))
    assert str(error.value) == (
        "The vectors of wide have 512 dimensions; the column has 384. Set EMBEDDING_MODEL to a model with 384, or "
        f"change the column: {command('embedding_dimensions 512')}"
    )


# --- the command --------------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_worker_follows_until_it_is_told_to_stop(tmp_path):
    place = connection.get_connection_params()
    store("There before.")
    worker = subprocess.Popen(
        [sys.executable, "manage.py", "worker"],
        cwd=ROOT,
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "MNEMOSCOPE_HOME": str(tmp_path),
            "DATABASE_URL": "postgresql://{user}@/{dbname}?host={host}&port={port}".format(**place),
            "EMBEDDING_MODEL": "hashed-words",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        until = time.monotonic() + 60
        while EmbeddedMemory.objects.count() < 1 and time.monotonic() < until:
            time.sleep(0.1)
        store("Came later.")
        while EmbeddedMemory.objects.count() < 2 and time.monotonic() < until:
            time.sleep(0.1)
        worker.send_signal(signal.SIGTERM)
        told, _ = worker.communicate(timeout=120)
    finally:
        worker.kill()
        worker.wait()
    assert (worker.returncode, told) == (0, "Embedded 2 memories in 2 chunks.\n")


@pytest.mark.parametrize("broken", [pytest.param(np.nan, id="not a number"), pytest.param(np.inf, id="infinite")])
def test_what_is_no_vector_is_not_stored(broken):
    class Broken(HashedWords):
        def encode(self, texts):
            return np.full((len(texts), 384), broken, dtype=np.float32)

    store("Whatever.")
    assert embed_all(**loading(Broken())).progress.memories == 0
    assert Chunk.objects.count() == 0


def test_command_names_the_texts_that_cannot_be_embedded(monkeypatch):
    monkeypatch.setattr("memories.embedding.shared.load_embedder", lambda source, threads: Refusing())
    bad, _ = store("This is poison."), store("This is not.", entities=["tool:poison ivy", "tool:kettle"])
    entity = Entity.objects.get(name="poison ivy")
    assert call_worker_once() == (
        "Embedded 1 memory in 1 chunk.\n"
        f"The memory #{bad.pk} cannot be embedded: cannot read poison\n"
        f"The entity #{entity.pk} cannot be embedded: cannot read poison\n"
        "hashed-words is serving.\n"
    )


def test_text_that_one_model_cannot_embed_is_embedded_by_its_successor():
    store("Tea.")
    embed_all()
    bad = store("This is poison.")
    embed_all("other-words", load=lambda source: Refusing() if source == "hashed-words" else Renamed())
    assert list(Chunk.objects.filter(memory=bad).values_list("model__name", flat=True)) == ["other-words"]


@pytest.mark.parametrize("number", [pytest.param("0", id="none"), pytest.param("4001", id="more than can be indexed")])
def test_width_that_is_none_is_refused(number):
    with pytest.raises(CommandError, match="is not a number from 1 to 4,000"):
        call_command("embedding_dimensions", number)
