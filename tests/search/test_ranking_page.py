"""docs/ranking.md has the numbers of the code, and names every setting of the ranking."""

import re

import pytest
from django.conf import settings

from search import ranking, why_not

TEXT = (settings.BASE_DIR / "docs" / "ranking.md").read_text()
SETTINGS = (settings.BASE_DIR / "config" / "settings.py").read_text()


def test_every_setting_of_the_order_is_named_and_no_other():
    named = set(re.findall(r"`([A-Z_]+)`", TEXT))
    read = set(re.findall(r'"((?:SEARCH|RERANK)_[A-Z_]+)"', SETTINGS))
    assert named == read - {"SEARCH_ENGINE", "SEARCH_FACET_TIMEOUT_MS"}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        pytest.param(ranking.WINDOW, "The first 200 candidates are boosted", id="window"),
        pytest.param(ranking.WORD_CANDIDATES, "the 1,000 best keyword matches", id="candidates"),
        pytest.param(ranking._HALF_LIFE, "halves every 180 days", id="half-life"),
        pytest.param(settings.SEARCH_SEMANTIC_WEIGHT, "relevance = 0.6 · semantic", id="fusion"),
        pytest.param(ranking.COMPARED, "The first 30 candidates are compared", id="compared"),
        pytest.param(ranking.NEIGHBOURS, "the 12 others among them", id="neighbours"),
        pytest.param(settings.SEARCH_NEIGHBOUR_WEIGHT, "0.6 · that of its neighbours", id="weight of neighbours"),
        pytest.param(settings.SEARCH_DEDUP_SIMILARITY, "`SEARCH_DEDUP_SIMILARITY` (0.95)", id="deduplication"),
        pytest.param(settings.RERANK_CANDIDATES, "`RERANK_CANDIDATES` (50)", id="cross-encoder"),
        pytest.param(settings.RERANK_TIMEOUT_MS, "`RERANK_TIMEOUT_MS` (300)", id="its timeout"),
    ],
)
def test_numbers_are_those_of_the_code(value, sentence):
    assert sentence in TEXT
    assert f"{value:,g}" in sentence


def test_weights_are_those_of_the_code():
    rows = re.findall(r"^\| (relevance|quality|recency|source) \|.*\| ([\d.]+) \|$", TEXT, re.MULTILINE)
    assert {name: float(weight) for name, weight in rows} == settings.SEARCH_WEIGHTS


def test_places_are_looked_for_as_far_as_the_api_says():
    api = (settings.BASE_DIR / "docs" / "api.md").read_text()
    assert f"among the first {why_not.MAX_PLACES:,} results" in api
