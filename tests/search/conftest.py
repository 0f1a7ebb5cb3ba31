import json
from dataclasses import replace

import pytest
from django.core.management import call_command

from access.viewer import Viewer, command_viewer
from memories.embedding import query
from memories.models import Project
from search import engines
from search.engines.index import follower, outbox, store
from search.engines.index.engine import IndexEngine
from search.engines.index.segments import Segment
from search.engines.vectors import writer
from search.unified import legs
from tests.corpus import RECORDS
from tests.map_corpus import put_on_map
from tests.oracle import load_documents
from tests.recall_corpus import recall_some
from tests.unified_corpus import AtOnce, bring_in_mill, embed_all
from tests.vectors import MODEL, embed_everything
from web.cache import clear_caches


def following_engine():
    """The derived index, up to date with all writes of the test."""
    if not outbox.is_followed() or outbox.backlog().changes or not (store.index_dir() / "current").exists():
        follower.catch_up()
    while writer.sync():
        pass
    return IndexEngine()


def bitmaps_now(self, column):
    if self._bitmaps is None:
        self.make_bitmaps()
    return self._bitmaps.get(column)


@pytest.fixture
def index(settings, tmp_path):
    """A folder of a test's own for the derived index."""
    settings.SEARCH_INDEX = tmp_path / "index"
    store.close_view()
    yield settings.SEARCH_INDEX
    store.close_view()


@pytest.fixture(params=["postgres", "tantivy", "tantivy-large"])
def engine(request, settings, index, monkeypatch):
    """Every engine in turn: what is asked of one is asked of the others. Large sets are counted in another way."""
    settings.SEARCH_ENGINE = request.param.removesuffix("-large")
    if request.param == "tantivy-large":
        monkeypatch.setattr("search.engines.index.counts._WORTH_BITMAPS", -1)
        monkeypatch.setattr("search.engines.index.counts._WORTH_LEFT", -1)
        monkeypatch.setattr("search.engines.index.counts._LARGE_SEGMENT", 0)
        monkeypatch.setattr("search.engines.index.counts._LARGE_SHARE", 0)
        # Values of one memory are counted with the others that few have.
        monkeypatch.setattr("search.engines.index.bitmaps._SHARED", 2)
        monkeypatch.setattr(Segment, "bitmaps", bitmaps_now)
    monkeypatch.setitem(engines.ENGINES, "tantivy", following_engine)
    return request.param


@pytest.fixture
def everyone():
    """A viewer who may see everything."""
    return command_viewer()


def bring_in(folder):
    path = folder / "corpus.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    call_command("import_memories", str(path), verbosity=0)


@pytest.fixture
def corpus(db, engine, tmp_path):
    """The hand-written memories, brought in by the importer, as the oracle sees them."""
    bring_in(tmp_path)
    put_on_map()
    recall_some()
    return load_documents()


@pytest.fixture
def memories(db, index, settings, tmp_path):
    """The same, where the derived index answers once it is made."""
    settings.SEARCH_ENGINE = "tantivy"
    bring_in(tmp_path)


@pytest.fixture
def query_model():
    """The small model, there from the start and not loaded beside the test."""
    query.use_embedder(MODEL)
    yield
    query.forget()


@pytest.fixture
def embedded(corpus, query_model):
    """The hand-written memories with their vectors, as the naive counter sees them."""
    vectors = embed_everything()
    clear_caches()
    return [replace(document, vectors=vectors[document.id]) for document in corpus]


@pytest.fixture
def low_ceiling(settings):
    settings.SEARCH_SEMANTIC_LIMIT = 3


@pytest.fixture
def mill(db, engine, query_model, tmp_path, monkeypatch):
    """The memories, entities and relationships of a mill and a vault, embedded; legs are run one after the other."""
    monkeypatch.setattr(legs, "_threads", AtOnce())
    bring_in_mill(tmp_path)
    embed_all()
    clear_caches()


@pytest.fixture
def miller(mill):
    """A viewer who may see one of the two projects."""
    return Viewer(frozenset([Project.objects.get(slug="mill").pk]), frozenset(["read"]))


@pytest.fixture
def tantivy(settings, index):
    settings.SEARCH_ENGINE = "tantivy"
    return index
