"""The baselines: BM25 by its formula, cosine similarity, and reciprocal rank fusion."""

from pathlib import Path

import pytest

from bench.retrieval import baselines
from bench.retrieval.baselines import bm25_rankings, cosine_rankings, fused_rankings
from bench.retrieval.collection import read_collection
from memories.embedding.models import HashedWords

OURS = Path(__file__).parent / "collection"


@pytest.fixture
def collection():
    return read_collection(OURS)


def advance(count):
    assert count > 0


def test_bm25_matches_stems_and_ignores_stopwords(collection):
    found = bm25_rankings(collection, 10, advance)
    assert list(found) == ["q1", "q2", "q3", "q4", "tea-3"]
    # "how warm should the water for green tea be" has four words that are not stopwords.
    assert found["q1"][0] == "tea-1"
    assert "home-4" not in found["q1"]
    assert found["q3"][0] == "bike-1"
    assert found["tea-3"][0] == "tea-3"


def test_bm25_finds_nothing_without_a_common_word(collection):
    collection.queries = {"q1": "zeppelin", "q2": "the of and"}
    assert bm25_rankings(collection, 10, advance) == {"q1": [], "q2": []}


def test_bm25_returns_at_most_the_requested_number(collection):
    # No document contains a word of the fourth query.
    assert [len(ids) for ids in bm25_rankings(collection, 1, advance).values()] == [1, 1, 1, 0, 1]


def test_cosine_ranks_by_vectors_and_stores_them(collection, tmp_path, monkeypatch):
    found = cosine_rankings(collection, 3, tmp_path, advance)
    assert {name: len(ids) for name, ids in found.items()} == dict.fromkeys(["q1", "q2", "q3", "q4", "tea-3"], 3)
    assert found["tea-3"][0] == "tea-3"

    monkeypatch.delattr(HashedWords, "encode")
    assert cosine_rankings(collection, 3, tmp_path, advance) == found
    # The ranking is the same with batches smaller than its length.
    monkeypatch.setattr(baselines, "_ROW_BATCH", 2)
    monkeypatch.setattr(baselines, "_QUERY_BATCH", 2)
    assert cosine_rankings(collection, 3, tmp_path, advance) == found


def test_fusion_adds_reciprocal_ranks():
    first, second = {"q": ["a", "b", "c"]}, {"q": ["d", "c", "a"]}
    # a: 1/61 + 1/63, c: 1/63 + 1/62, d: 1/61, b: 1/62
    assert fused_rankings(first, second, 10) == {"q": ["a", "c", "d", "b"]}
    assert fused_rankings(first, second, 2) == {"q": ["a", "c"]}
