"""The log: five hundred queries of every kind, reproducible, with words and values of the corpus."""

from collections import Counter

import pytest

from lab.bench.corpus import Corpus
from lab.bench.query_log import KINDS, LOG_SIZE, SHARES, build_query_log

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


def of_kind(log, kind):
    return [entry.query for entry in log.entries if entry.kind == kind]


def test_log_has_five_hundred_queries_of_all_kinds(log):
    assert len(log.entries) == LOG_SIZE == 500
    assert Counter(entry.kind for entry in log.entries) == SHARES
    assert list(SHARES) == list(KINDS)


def test_same_seed_makes_the_same_log_and_another_seed_another(corpus, records, log):
    assert build_query_log(corpus, records, LOG_SIZE, seed=3) == log
    assert build_query_log(corpus, records, LOG_SIZE, seed=4) != log


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
