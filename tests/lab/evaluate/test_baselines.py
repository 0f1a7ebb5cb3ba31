"""The baselines: BM25 by its formula, cosine similarity, and the plain fusion of both."""

from pathlib import Path

import pytest

from lab.evaluate import baselines
from lab.evaluate.baselines import bm25_scores, cosine_scores, fused_scores
from lab.evaluate.collection import read_collection
from memories.embedding.models import HashedWords

OURS = Path(__file__).parent / "collection"


@pytest.fixture
def collection():
    return read_collection(OURS)


def advance(count):
    assert count > 0


def test_bm25_matches_stems_and_ignores_stopwords(collection):
    found = {name: list(scores) for name, scores in bm25_scores(collection, 10, advance).items()}
    assert list(found) == ["q1", "q2", "q3", "q4", "tea-3"]
    # "how warm should the water for green tea be" has four words that are not stopwords.
    assert found["q1"][0] == "tea-1"
    assert "home-4" not in found["q1"]
    assert found["q3"][0] == "bike-1"
    assert found["tea-3"][0] == "tea-3"


def test_cosine_ranks_by_vectors_and_stores_them(collection, tmp_path, monkeypatch):
    found = cosine_scores(collection, 3, tmp_path, advance)
    assert {name: len(ids) for name, ids in found.items()} == dict.fromkeys(["q1", "q2", "q3", "q4", "tea-3"], 3)
    assert next(iter(found["tea-3"].items())) == ("tea-3", pytest.approx(0.621074))

    monkeypatch.delattr(HashedWords, "encode")
    again = cosine_scores(collection, 3, tmp_path, advance)
    assert again == found
    # The ranking is the same with batches smaller than its length.
    monkeypatch.setattr(baselines, "_ROW_BATCH", 2)
    monkeypatch.setattr(baselines, "_QUERY_BATCH", 2)
    in_parts = cosine_scores(collection, 3, tmp_path, advance)
    assert [list(scores) for scores in in_parts.values()] == [list(scores) for scores in found.values()]


def test_fusion_adds_scaled_scores():
    words, meaning = {"q": {"a": 9.0, "b": 6.0, "c": 3.0}}, {"q": {"d": 0.8, "c": 0.6, "a": 0.3}}
    # c: 0.6 of meaning times 3/5; b: 0.4 of words times 1/2.
    assert fused_scores(words, meaning) == {"q": {"d": 0.6, "a": 0.4, "c": pytest.approx(0.36), "b": 0.2}}
