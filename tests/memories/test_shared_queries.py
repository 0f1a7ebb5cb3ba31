"""The model of the worker for other processes: who may ask, what is answered, what happens without a worker."""

import socket
import stat
import threading

import numpy as np
import pytest

from access.viewer import command_viewer
from memories.embedding.models import HashedWords
from memories.embedding.query import EmbedderNotReadyError
from memories.embedding.shared import Models, RemoteQueries, SharedQueries, offer
from memories.models import Memory
from memories.records import MemoryRecord
from memories.services import memory_create
from search.similar import near_duplicates
from tests.embedding import embed_all

SOURCE = "hashed-words"


@pytest.fixture
def home(settings, tmp_path):
    settings.HOME = tmp_path
    return tmp_path


@pytest.fixture
def tea(home, db):
    memory_create(record=MemoryRecord(content="Tea.", project="tea"), viewer=command_viewer())
    embed_all()


def no_load(source):
    raise AssertionError("an own model is loaded although a worker answers")


def reason(queries, text="tea"):
    with pytest.raises(EmbedderNotReadyError) as error:
        queries.vector(text)
    return error.value.reason


def until_answered(queries, text="tea"):
    """The vector, once the worker has loaded its model."""
    for _ in range(1_000):
        try:
            return queries.vector(text)
        except EmbedderNotReadyError:
            threading.Event().wait(0.01)
    raise AssertionError("the model was never loaded")


def test_query_and_passage_have_the_vectors_of_the_workers_model(tea):
    with offer(Models(lambda source: HashedWords()), SOURCE):
        queries = SharedQueries(load=no_load)
        found = until_answered(queries, "tëa pot")
        passage = queries.passage_vector("tëa pot")
    assert (found.model, found.min_similarity) == ("hashed-words", 0.2)
    assert found.vector.tolist() == passage.vector.tolist() == HashedWords().encode_query("tëa pot").tolist()


def test_only_the_user_of_the_worker_can_ask_it(home):
    with offer(Models(lambda source: HashedWords()), SOURCE):
        eventually(lambda: (home / "queries.sock").exists())
        eventually(lambda: stat.S_IMODE((home / "queries.sock").stat().st_mode) == 0o600)
    assert not (home / "queries.sock").exists()


def eventually(condition):
    for _ in range(1_000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came")


def test_second_worker_of_a_home_takes_the_place_of_the_first(tea):
    class Second(HashedWords):
        def encode_query(self, text):
            return np.zeros(384, np.float32)

    first, second = offer(Models(lambda source: HashedWords()), SOURCE), offer(Models(lambda source: Second()), SOURCE)
    first.__enter__()
    assert until_answered(RemoteQueries()).vector.any()
    second.__enter__()
    assert until_answered(RemoteQueries()).vector.any()
    first.__exit__(None, None, None)
    assert not until_answered(RemoteQueries()).vector.any()
    second.__exit__(None, None, None)


def test_socket_of_a_killed_worker_is_replaced(tea, home):
    (home / "queries.sock").touch()
    with offer(Models(lambda source: HashedWords()), SOURCE):
        assert until_answered(RemoteQueries()).model == "hashed-words"


@pytest.mark.parametrize("sent", [b"", b'{"vector": "AAAA', b"{}\n", b"[]\n", b'{"vector": "AAAA"}'])
def test_worker_that_is_killed_in_the_middle_of_an_answer_is_one_that_is_not_there(tea, home, sent):
    with socket.socket(socket.AF_UNIX) as worker:
        worker.bind(str(home / "queries.sock"))
        worker.listen()

        def answer():
            channel = worker.accept()[0]
            with channel:
                channel.recv(1 << 16)
                channel.sendall(sent)

        thread = threading.Thread(target=answer)
        thread.start()
        assert reason(RemoteQueries()) == "the model is still loading"
        thread.join()


# --- reasons ----------------------------------------------------------------------------------------------------------


def test_model_that_was_exchanged_in_its_place_is_refused(tea):
    class Other(HashedWords):
        name = "something-else"

    with offer(Models(lambda source: Other()), SOURCE):
        expected = "memories are embedded by hashed-words, but hashed-words is now another model"
        eventually(lambda: reason(RemoteQueries()) == expected)


def test_worker_that_starts_again_is_told_from_one_that_is_not_there(tea):
    now = [0.0]
    queries = RemoteQueries(clock=lambda: now[0])
    assert reason(queries) == "the model is still loading"
    now[0] = 61
    assert reason(queries) == "the process that has the model is not running: manage.py worker"
    with offer(Models(lambda source: HashedWords()), SOURCE):
        until_answered(queries)
    assert reason(queries, "coffee") == "the model is still loading"


def test_stored_memory_is_compared_by_words_without_a_worker(tea, monkeypatch):
    monkeypatch.setattr("memories.embedding.query._queries", RemoteQueries())
    found = near_duplicates(Memory.objects.get(), command_viewer())
    assert found.reason == "the model is still loading"


# --- a command without a worker ---------------------------------------------------------------------------------------


def test_without_a_worker_a_query_waits_for_the_model_of_its_own_process(tea):
    begin = threading.Event()

    def load(source):
        begin.wait(10)
        return HashedWords()

    queries = SharedQueries(load=load)
    queries.prepare()
    threading.Timer(0.05, begin.set).start()
    assert queries.vector("tea").model == "hashed-words"
    assert queries.passage_vector("tea").model == "hashed-words"
