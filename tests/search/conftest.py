from dataclasses import replace

import pytest

from access.viewer import Viewer, command_viewer
from memories.embedding import query
from memories.models import Memory, OutboxEntry, Project
from search import engines
from search.engines.index import follower, outbox, store
from search.engines.index.engine import IndexEngine
from search.engines.index.segments import Segment
from search.engines.vectors import writer
from search.unified import legs
from tests.corpus import bring_in, spread_over_imports
from tests.database import fill
from tests.map_corpus import put_on_map
from tests.oracle import load_documents
from tests.recall_corpus import recall_some
from tests.unified_corpus import AtOnce, fill_with_mill
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


# For what engines match, count and order. All other tests run on one engine.
BOTH_ENGINES = pytest.mark.engines("postgres", "tantivy")
# The index counts large sets in another way than small ones.
EVERY_COUNT = pytest.mark.engines("postgres", "tantivy", "tantivy-large")


@pytest.fixture
def engine(request, settings, index, monkeypatch):
    """The engine of a test: that of the database, or each of those that its mark `engines` names."""
    name = getattr(request, "param", "postgres")
    settings.SEARCH_ENGINE = name.removesuffix("-large")
    if name == "tantivy-large":
        monkeypatch.setattr("search.engines.index.counts._WORTH_BITMAPS", -1)
        # Values of one memory are counted with the others that few have.
        monkeypatch.setattr("search.engines.index.segments._SHARED", 2)
        monkeypatch.setattr(Segment, "bitmaps", bitmaps_now)
    monkeypatch.setitem(engines.ENGINES, "tantivy", following_engine)
    return name


@pytest.fixture
def everyone():
    """A viewer who may see everything."""
    return command_viewer()


@pytest.fixture
def corpus(request, db, engine, index, tmp_path):
    """The hand-written memories, brought in by the importer, as the oracle sees them; with their vectors, if the test
    asks for those too.
    """
    has_vectors = "embedded" in request.fixturenames
    # Where engines are compared, there is something to count by import.
    of_several_imports = request.node.get_closest_marker("engines") is not None

    def build():
        bring_in(tmp_path)
        if of_several_imports:
            spread_over_imports()
        put_on_map()
        recall_some()
        documents = load_documents()
        if has_vectors:
            vectors = embed_everything()
            documents = [replace(document, vectors=vectors[document.id]) for document in documents]
        if engine != "postgres":
            following_engine()
        if engine == "tantivy-large":
            # A few memories are in a second, small segment, and deleted in the large one.
            few = Memory.objects.order_by("id").values_list("id", flat=True)[:3]
            OutboxEntry.objects.bulk_create(OutboxEntry(memory_id=memory_id) for memory_id in few)
            following_engine()
            assert len(store.read_view().segments) == 2
        return documents

    what = f"{' with vectors' if has_vectors else ''}{' of several imports' if of_several_imports else ''}"
    return list(fill(f"corpus for {engine}{what}", build, index))


@pytest.fixture
def memories(db, index, settings, tmp_path):
    """The same, where the derived index answers once it is made."""
    settings.SEARCH_ENGINE = "tantivy"
    fill("memories", lambda: bring_in(tmp_path))


@pytest.fixture
def query_model():
    """The small model, there from the start and not loaded beside the test."""
    query.use_embedder(MODEL)
    yield
    query.forget()


@pytest.fixture
def embedded(corpus, query_model):
    """The hand-written memories with their vectors, as the naive counter sees them."""
    clear_caches()
    return corpus


@pytest.fixture
def low_ceiling(settings):
    settings.SEARCH_SEMANTIC_LIMIT = 3


@pytest.fixture
def mill(db, engine, query_model, tmp_path, monkeypatch):
    """The memories, entities and relationships of a mill and a vault, embedded; legs are run one after the other."""
    monkeypatch.setattr(legs, "_threads", AtOnce())
    fill_with_mill(tmp_path)


@pytest.fixture
def miller(mill):
    """A viewer who may see one of the two projects."""
    return Viewer(frozenset([Project.objects.get(slug="mill").pk]), frozenset(["read"]))


@pytest.fixture
def tantivy(settings, index):
    settings.SEARCH_ENGINE = "tantivy"
    return index
