"""Every participant gives the same answers.

Not compared: the order of hits by relevance, for which each has its own rule; values that only one of two lists has,
because they tie at its end; facets that are not those of URLs, such as the months of the peers.
"""

import pytest

from lab.bench.corpus import Corpus, write_records
from lab.bench.latency import equal_counts
from lab.bench.peers import PEERS
from lab.bench.peers.base import words_of
from lab.bench.peers.engines import PostgresPeer
from lab.bench.query_log import build_query_log
from search.engines.index import store
from search.facets import FACET
from search.query import Sort

pytestmark = pytest.mark.release

SIZE = 400
QUERIES = 75


@pytest.fixture(scope="module")
def corpus():
    return Corpus(SIZE, seed=5)


@pytest.fixture(scope="module")
def path(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl.gz"
    write_records(corpus.records(), path)
    return path


@pytest.fixture(scope="module")
def entries(corpus):
    return build_query_log(corpus, list(corpus.records()), QUERIES, seed=5).entries


@pytest.fixture
def place(settings, tmp_path):
    """A folder for a peer, with an index of the derived engine's own."""
    settings.SEARCH_INDEX = tmp_path / "index"
    store.close_view()
    folder = tmp_path / "peer"
    folder.mkdir()
    yield folder
    store.close_view()


def answers(peer, entries):
    with peer.turn():
        return [peer.answer(entry.query, True) for entry in entries]


def compared(name, place, path, entries):
    """The answers of the postgres engine and of another participant to the same queries."""
    if name == "duckdb":
        pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'mnemoscope[bench]'")
    # Created before anything is loaded, as in the bench: an index follows later imports.
    peer, ours = PEERS[name](place), PostgresPeer(place)
    try:
        ours.load(path)
        ours.check(SIZE)
        peer.load(path)
        peer.open()
        return list(zip(entries, answers(ours, entries), answers(peer, entries), strict=True))
    finally:
        peer.close()


OTHERS = [pytest.param(name, id=name) for name in PEERS if name not in {"postgres", "tantivy-engine"}]


@pytest.mark.django_db
@pytest.mark.parametrize("name", OTHERS)
def test_peer_gives_the_totals_counts_and_pages_of_the_postgres_engine(name, place, path, entries):
    seen = set()
    for entry, ours, theirs in compared(name, place, path, entries):
        where = f"{entry.kind}: {entry.query.querystring()}"
        assert theirs.total == ours.total, where
        equal, both = equal_counts(ours, theirs)
        assert equal == both, where
        seen |= {key for key in FACET if ours.facets[key].keys() & theirs.facets[key].keys()}
        # We count the states that are hidden by default, and the peers do not; what has no value is no value of ours.
        for key in FACET.keys() - {"state"}:
            largest = max((count for value, count in theirs.facets[key].items() if value), default=0)
            assert largest == max(ours.facets[key].values(), default=0), (where, key)
        if entry.query.order in {Sort.NEWEST, Sort.OLDEST}:
            assert theirs.ids == ours.ids, where
        elif ours.total <= entry.query.page_size:
            assert set(theirs.ids) == set(ours.ids), where
    assert seen == FACET.keys()


@pytest.mark.django_db
def test_engine_beneath_run_gives_the_same_totals(place, path, entries):
    # It returns its own ids, and no values of facets.
    for entry, ours, theirs in compared("tantivy-engine", place, path, entries):
        assert theirs.total == ours.total, entry.query.querystring()


@pytest.mark.parametrize(
    ("text", "phrase", "words", "need"),
    [
        pytest.param("", (), (), 0, id="nothing"),
        pytest.param("tea", (), ("tea",), 1, id="one word"),
        pytest.param("how do we brew the tea", (), ("brew", "tea"), 2, id="stopwords"),
        pytest.param("brew brewed tea", (), ("brew", "tea"), 2, id="one stem"),
        pytest.param("a1 b2 c3 d4 e5", (), ("a1", "b2", "c3", "d4", "e5"), 2, id="five words"),
        pytest.param('"the tea pot"', ("the", "tea", "pot"), (), 0, id="phrase"),
    ],
)
def test_words_of_a_query(text, phrase, words, need):
    found = words_of(text)
    assert (found.phrase, found.words, found.need) == (phrase, words, need)
