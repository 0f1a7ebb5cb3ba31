"""The generator of corpora: reproducible, skewed, and streamed."""

import itertools
import tracemalloc
from collections import Counter
from datetime import datetime

import pytest

from lab.bench.corpus import DEPTH, Corpus, read_records, write_records
from memories.records import StrictMemoryRecord
from text.analysis import analyse_token, index_terms

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


def test_records_can_be_drawn_again_from_the_same_corpus(corpus, records):
    assert list(itertools.islice(corpus.records(), 50)) == records[:50]


def test_written_records_are_read_back(records, tmp_path):
    write_records(records[:100], tmp_path / "corpus.jsonl.gz")
    assert list(read_records(tmp_path / "corpus.jsonl.gz")) == records[:100]


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


def test_named_phrases_occur(corpus, records):
    texts = " ".join(record["content"] for record in records)
    assert all(phrase in texts for phrase in corpus.named_words().phrases[:40])


def test_invented_words_are_the_stems_of_their_inflections(corpus):
    words = corpus.vocabulary.content[:1_000]
    for word, suffix in itertools.product(words, ("", "s", "ing", "ed")):
        assert analyse_token(word + suffix, "english").terms == ((word, 0),)


def test_texts_are_short_with_some_long_ones(records):
    lengths = sorted(len(record["content"].split()) for record in records)
    assert 20 <= lengths[SIZE // 2] <= 30
    assert lengths[-1] > 250


def test_facets_are_skewed(records):
    types = Counter(record["type"] for record in records)
    projects = Counter(record["project"] for record in records)
    tags = Counter(tag for record in records for tag in record["tags"])
    states = Counter(record["state"] for record in records)
    assert len(types) == 15
    assert len(projects) <= 6
    assert projects.most_common(1)[0][1] > SIZE / 4
    assert tags.most_common(1)[0][1] > 50 * sorted(tags.values())[len(tags) // 4]
    assert states["active"] > 0.9 * SIZE


def test_categories_have_five_levels_and_some_memories_are_in_parents(corpus, records):
    assert max(node.depth for node in corpus.categories) == DEPTH
    parents = {node.path for node in corpus.parents}
    filed = Counter(path in parents for record in records for path in record["categories"])
    assert 0.05 < filed[True] / filed.total() < 0.3


def test_days_have_bursts_and_weekends_are_quiet(records):
    moments = [datetime.fromisoformat(record["created_at"]) for record in records]
    days = Counter(moment.date() for moment in moments)
    weekend = sum(moment.weekday() >= 5 for moment in moments)
    night = sum(moment.hour < 6 for moment in moments)
    assert max(days.values()) > 5 * SIZE / 2_922
    assert weekend < SIZE / 7
    assert night < SIZE / 20
    assert moments[-1].year - moments[0].year >= 7
