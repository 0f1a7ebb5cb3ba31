"""The vector of a query: from the model that serves, once it is loaded, and a reason until then."""

import threading

import numpy as np
import pytest

from access.viewer import command_viewer
from memories.embedding import vectors
from memories.embedding.models import (
    EmbedderUnavailableError,
    HashedWords,
    dimensions_of,
    load_embedder,
    missing_packages,
    model_name,
)
from memories.embedding.query import EmbedderNotReadyError, QueryEmbedder
from memories.models import Chunk, EmbeddingModel
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.embedding import embed_all

pytestmark = pytest.mark.django_db


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


class Loader:
    """Loads models on request, as slowly as a test needs."""

    def __init__(self):
        self.may_go_on = threading.Event()
        self.asked = []
        self.failure = None

    def __call__(self, source):
        self.asked.append(source)
        self.may_go_on.wait(20)
        if self.failure:
            raise self.failure
        embedder = HashedWords()
        embedder.name = source
        return embedder


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def loader():
    loading = Loader()
    yield loading
    loading.may_go_on.set()


@pytest.fixture
def queries(loader, clock):
    return QueryEmbedder(loader, clock)


@pytest.fixture
def embedded():
    memory_create(record=MemoryRecord(content="Tea is brewed at eighty degrees."), viewer=command_viewer())
    embed_all()


def until_loaded():
    for thread in threading.enumerate():
        if thread.name == "embedder":
            thread.join(20)


def reason(queries, text="tea"):
    with pytest.raises(EmbedderNotReadyError) as error:
        queries.vector(text)
    return error.value.reason


def replace_by(name):
    """Make a complete model the serving one, as the worker does."""
    model = vectors.model_begin(name=name, source=name, dimensions=384, min_similarity=0.5)
    Chunk.objects.create(
        memory_id=Chunk.objects.first().memory_id, model=model, ordinal=0, start=0, end=3, embedding=[0.5] * 384
    )
    assert vectors.model_serve(model.pk, up_to=0)
    return model


def test_query_is_answered_with_reasons_until_the_model_is_loaded(queries, loader, clock):
    assert reason(queries) == "no memory has been embedded yet"
    memory_create(record=MemoryRecord(content="Tea."), viewer=command_viewer())
    embed_all()
    clock.now += 2
    assert reason(queries) == "the model is still loading"
    loader.may_go_on.set()
    until_loaded()
    found = queries.vector("tea")
    assert (found.model, found.model_id) == ("hashed-words", EmbeddingModel.objects.get().pk)
    assert found.min_similarity == 0.2
    assert found.vector.dtype == np.float32
    assert found.vector @ HashedWords().encode_query("tea") == pytest.approx(1)
    # Loaded once: at first need, when nothing served yet it was the one that is set.
    assert loader.asked == ["hashed-words"]


def test_what_stands_against_loading_is_told_and_tried_again_after_a_while(queries, loader, clock, embedded):
    loader.failure = EmbedderUnavailableError("sentence-transformers is not installed")
    loader.may_go_on.set()
    reason(queries)
    until_loaded()
    assert reason(queries) == "sentence-transformers is not installed"
    assert len(loader.asked) == 1
    loader.failure = None
    clock.now += 61
    reason(queries)
    until_loaded()
    assert queries.vector("tea").model == "hashed-words"


def test_repeated_queries_are_kept_and_the_oldest_forgotten(queries, loader, embedded, monkeypatch):
    loader.may_go_on.set()
    reason(queries)
    until_loaded()
    monkeypatch.setattr(queries._kept, "limit", 2)
    first = queries.vector("tea").vector
    assert queries.vector("tea").vector is first
    queries.vector("coffee")
    queries.vector("tea")
    queries.vector("cake")  # coffee was asked for longest ago
    assert queries.vector("tea").vector is first
    queries.vector("coffee")
    kept = queries.cache()
    assert (kept.hits, kept.misses, kept.size) == (3, 4, 2)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_replaced_model_answers_until_its_successor_is_loaded(queries, loader, clock, embedded):
    loader.may_go_on.set()
    reason(queries)
    until_loaded()
    before = queries.vector("tea")
    loader.may_go_on.clear()
    model = replace_by("other-words")
    assert queries.vector("tea").model_id == before.model_id  # not looked yet
    clock.now += 2
    assert queries.vector("tea").model_id == before.model_id  # loading
    loader.may_go_on.set()
    until_loaded()
    after = queries.vector("tea")
    assert (after.model_id, after.model, after.min_similarity) == (model.pk, "other-words", 0.5)


def test_replaced_model_answers_no_longer_than_its_vectors_are_sure_to_be_there(queries, loader, clock, embedded):
    loader.may_go_on.set()
    reason(queries)
    until_loaded()
    queries.vector("tea")
    loader.may_go_on.clear()
    replace_by("other-words")
    clock.now += 2
    queries.vector("tea")
    clock.now += 61
    assert reason(queries) == "the model is still loading"


def test_other_model_in_the_same_place_is_refused(clock, embedded):
    def load(source):
        embedder = HashedWords()
        embedder.name = "something-else"
        return embedder

    queries = QueryEmbedder(load, clock)
    reason(queries)
    until_loaded()
    assert reason(queries) == ("memories are embedded by hashed-words, but hashed-words is now another model")


# --- which model --------------------------------------------------------------------------------------------------


def test_model_of_a_folder_is_named_by_what_is_in_it(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "modules.json").write_text('[{"path": ""}, {"path": "1_Pooling"}, {"path": "2_Dense"}]')
    for part, config in (("1_Pooling", '{"word_embedding_dimension": 768}'), ("2_Dense", '{"out_features": 256}')):
        (folder / part).mkdir()
        (folder / part / "config.json").write_text(config)
    name = model_name(str(folder))
    assert name.startswith("my-model-")
    assert dimensions_of(str(folder)) == 256
    assert model_name(str(folder)) == name
    (folder / "config.json").write_text('{"hidden_size": 256}')
    assert model_name(str(folder)) != name
    assert model_name("intfloat/e5-small-v2") == "intfloat/e5-small-v2"
    assert dimensions_of("intfloat/e5-small-v2") is None


# --- the real one -------------------------------------------------------------------------------------------------

packaged = pytest.mark.skipif(bool(missing_packages("")), reason="the packaged model is not installed")


@pytest.fixture(scope="module")
def minilm():
    return load_embedder("", threads=1)


@packaged
@pytest.mark.filterwarnings("default")  # what torch and its friends think of each other
def test_packaged_model_finds_what_is_meant(minilm):
    assert (minilm.name, minilm.dimensions, minilm.window) == ("all-MiniLM-L6-v2", 384, 254)
    texts = ["The request timed out after thirty seconds.", "Bread is baked at two hundred degrees."]
    found = minilm.encode(texts)
    assert (found.shape, found.dtype) == ((2, 384), np.float32)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1], abs=1e-5)
    slow, oven = found @ minilm.encode_query("why is the server slow to answer?")
    assert slow > 0.3 > oven
    assert minilm.clone().encode(texts) == pytest.approx(found, abs=1e-5)
