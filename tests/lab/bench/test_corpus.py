"""The generator of corpora: reproducible, skewed, and streamed."""

import tracemalloc
from collections import Counter
from datetime import datetime

import pytest

from lab.bench.corpus import Corpus, write_records
from memories.records import StrictMemoryRecord
from text.analysis import index_terms

SIZE = 3_000


@pytest.fixture(scope="module")
def corpus():
    return Corpus(SIZE, seed=3)


@pytest.fixture(scope="module")
def records(corpus):
    return list(corpus.records())


@pytest.fixture(scope="module")
def memories_with(records):
    """The number of memories that contain each term, by our analysis."""
    return Counter(
        term for record in records for term in index_terms([(record["title"], "A"), (record["content"], "D")])
    )


def test_same_seed_and_size_make_the_same_bytes(tmp_path):
    for name, seed in (("one", 5), ("two", 5), ("other", 6)):
        write_records(Corpus(300, seed=seed).records(), tmp_path / name)
    one, two, other = ((tmp_path / name).read_bytes() for name in ("one", "two", "other"))
    assert one == two
    assert one != other


def test_records_stream_in_constant_memory():
    stream = Corpus(20_000).records()
    next(stream)
    tracemalloc.start()
    try:
        for _ in range(1_500):
            next(stream)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Fifteen hundred records are some two million bytes.
    assert peak < 500_000


def test_records_are_as_many_as_requested_in_order_of_date_with_distinct_ids(records):
    assert len(records) == SIZE
    assert len({record["id"] for record in records}) == SIZE
    moments = [datetime.fromisoformat(record["created_at"]) for record in records]
    assert moments == sorted(moments)


def test_every_record_is_valid_and_has_no_unknown_field(records):
    for record in records[:500]:
        StrictMemoryRecord.model_validate(record)


@pytest.mark.parametrize(
    ("band", "low", "high"),
    [
        pytest.param("common", SIZE * 0.09, SIZE * 0.31, id="common"),
        pytest.param("middling", SIZE * 0.004, SIZE * 0.02, id="middling"),
        pytest.param("rare", 7, 55, id="rare"),
    ],
)
def test_named_words_are_as_frequent_as_their_band(corpus, memories_with, band, low, high):
    words = getattr(corpus.named_words(), band)
    assert len(words) >= 15
    outside = [word for word in words if not low <= memories_with[word] <= high]
    # Single words may be outside by chance.
    assert len(outside) <= len(words) * 0.02
