"""The log: five hundred queries of every kind, reproducible, with words and values of the corpus."""

from collections import Counter

import pytest

from lab.bench.corpus import Corpus
from lab.bench.query_log import KINDS, LOG_SIZE, SHARES, build_query_log
from text.analysis import index_terms
from text.query_syntax import parse_text

SIZE = 3_000


@pytest.fixture(scope="module")
def corpus():
    return Corpus(SIZE, seed=3)


@pytest.fixture(scope="module")
def records(corpus):
    return list(corpus.records())


@pytest.fixture(scope="module")
def log(corpus, records):
    return build_query_log(corpus, records, LOG_SIZE, seed=3)


@pytest.fixture(scope="module")
def indexes(records):
    return [index_terms([(record["title"], "A"), (record["content"], "D")]) for record in records]


def of_kind(log, kind):
    return [entry.query for entry in log.entries if entry.kind == kind]


def test_log_has_five_hundred_queries_of_all_kinds(log):
    assert len(log.entries) == LOG_SIZE == 500
    assert Counter(entry.kind for entry in log.entries) == SHARES
    assert list(SHARES) == list(KINDS)


def test_queries_are_distinct_if_the_corpus_has_enough_words(log):
    queries = [entry.query.querystring() for entry in log.entries]
    assert len(set(queries)) == len(queries)


def test_same_seed_makes_the_same_log_and_another_seed_another(corpus, records, log):
    assert build_query_log(corpus, records, LOG_SIZE, seed=3) == log
    assert build_query_log(corpus, records, LOG_SIZE, seed=4) != log


@pytest.mark.parametrize("size", [pytest.param(n, id=str(n)) for n in (15, 100, 501, 1_000)])
def test_log_of_another_size_has_every_kind(corpus, records, size):
    entries = build_query_log(corpus, records, size, seed=3).entries
    assert len(entries) == size
    assert {entry.kind for entry in entries} == KINDS.keys()


def test_tiny_corpus_repeats_queries_to_fill_the_log():
    corpus = Corpus(100, seed=3)
    log = build_query_log(corpus, list(corpus.records()), LOG_SIZE, seed=3)
    assert Counter(entry.kind for entry in log.entries) == SHARES


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        pytest.param("one_filter", 1, id="one"),
        pytest.param("two_filters", 2, id="two"),
        pytest.param("three_filters", 3, id="three"),
        pytest.param("four_filters", 4, id="four"),
    ],
)
def test_filters_are_in_different_facets(log, kind, count):
    for query in of_kind(log, kind):
        assert len(query.selections()) + query.has_dates == count
        assert not query.text


def test_deep_pages_are_ten_to_forty(log):
    pages = [query.page for query in of_kind(log, "deep_page")]
    # A common word is on twelve pages of this small corpus.
    assert min(pages) >= 5
    assert 30 <= max(pages) <= 40


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind) for kind in ("phrase", "more_words", "rare_word")])
def test_words_and_phrases_occur(log, indexes, kind):
    for query in of_kind(log, kind):
        asked = parse_text(query.text)
        assert any(asked.matches(index) for index in indexes), query.text


def test_phrases_are_two_or_three_words_in_quotes(log):
    for query in of_kind(log, "phrase"):
        assert query.text[0] == query.text[-1] == '"'
        assert 2 <= len(query.text.split()) <= 3


def test_questions_are_in_plain_language(log):
    assert any(query.text.startswith("how do we ") for query in of_kind(log, "question"))
    assert all(5 <= len(query.text.split()) <= 8 for query in of_kind(log, "question"))


def test_several_words_are_two_to_five(log):
    assert {len(query.text.split()) for query in of_kind(log, "two_words")} == {2}
    assert {len(query.text.split()) for query in of_kind(log, "more_words")} == {3, 4, 5}
