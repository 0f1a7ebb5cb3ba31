"""Query vectors of the running server for other processes: who may ask, what is answered, what happens without one."""

import stat
import threading

import numpy as np
import pytest

from access.viewer import command_viewer
from memories.embedding import shared
from memories.embedding.models import HashedWords
from memories.embedding.query import EmbedderNotReadyError, QueryVector
from memories.embedding.shared import SharedQueries
from memories.models import EmbeddingModel
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.vectors import embed_everything

VECTOR = np.arange(4, dtype=np.float32)


@pytest.fixture
def home(settings, tmp_path):
    settings.HOME = tmp_path
    return tmp_path


def no_load(source):
    raise AssertionError("an own model is loaded although a server answers")


def answering(text):
    return QueryVector(3, "small", VECTOR * len(text), 0.25)


def not_ready(text):
    raise EmbedderNotReadyError("the model is still loading")


def test_query_takes_the_vector_of_the_running_server(home, monkeypatch):
    monkeypatch.setattr(shared, "query_vector", answering)
    with shared.offer():
        queries = SharedQueries(load=no_load)
        queries.prepare()
        found = queries.vector("tëa")
    assert (found.model_id, found.model, found.min_similarity) == (3, "small", 0.25)
    assert found.vector.tolist() == [0, 3, 6, 9]


def test_only_the_user_of_the_server_can_ask_it(home):
    with shared.offer():
        assert stat.S_IMODE((home / "queries.sock").stat().st_mode) == 0o600
    assert not (home / "queries.sock").exists()


def test_later_server_of_the_same_home_answers_and_outlives_the_earlier_one(home, monkeypatch):
    monkeypatch.setattr(shared, "query_vector", answering)
    first, second = shared.offer(), shared.offer()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert SharedQueries(load=no_load).vector("tea").model == "small"
    second.__exit__(None, None, None)


def test_reason_of_the_server_is_that_of_the_other_process(home, monkeypatch):
    monkeypatch.setattr(shared, "query_vector", not_ready)
    with shared.offer(), pytest.raises(EmbedderNotReadyError) as error:
        SharedQueries(load=no_load).vector("tea")
    assert error.value.reason == "the model is still loading"


def test_home_whose_path_is_too_long_for_a_socket_shares_nothing(settings, tmp_path):
    settings.HOME = tmp_path / ("long" * 40)
    settings.HOME.mkdir()
    with shared.offer():
        assert list(settings.HOME.iterdir()) == []


@pytest.fixture
def tea(home, db):
    memory_create(record=MemoryRecord(content="Tea.", project="tea"), viewer=command_viewer())
    embed_everything()


def test_without_a_server_a_query_waits_for_the_model_of_its_own_process(tea):
    begin = threading.Event()

    def load(source):
        begin.wait(10)
        return HashedWords()

    queries = SharedQueries(load=load)
    queries.prepare()
    threading.Timer(0.05, begin.set).start()
    assert queries.vector("tea").model == "hashed-words"


def test_query_waits_no_longer_than_it_must(tea, monkeypatch):
    monkeypatch.setattr(shared, "PATIENCE_SECONDS", 0.01)
    never = threading.Event()
    with pytest.raises(EmbedderNotReadyError, match="the model is still loading"):
        SharedQueries(load=lambda source: never.wait(10)).vector("tea")
    never.set()


def test_server_of_another_database_is_not_asked(tea, monkeypatch):
    monkeypatch.setattr(shared, "query_vector", answering)
    EmbeddingModel.objects.update(min_similarity=0.5)
    names = iter([["here"], ["elsewhere"]])
    monkeypatch.setattr(shared, "_database", lambda: next(names))
    with shared.offer():
        assert SharedQueries(load=lambda source: HashedWords()).vector("tea").min_similarity == 0.5
