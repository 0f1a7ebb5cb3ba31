"""docs/ranking.md under test: the numbers it gives are those of the code, and it names every setting of the order."""

import re

import pytest
from django.conf import settings

from search import ranking, relevance, why_not

TEXT = (settings.BASE_DIR / "docs" / "ranking.md").read_text()
SETTINGS = (settings.BASE_DIR / "config" / "settings.py").read_text()


def test_every_setting_of_the_order_is_in_the_table_and_no_other():
    told = set(re.findall(r"^\| `([A-Z_]+)` \|", TEXT, re.MULTILINE))
    read = set(re.findall(r'"((?:SEARCH|RERANK)_[A-Z_]+)"', SETTINGS))
    assert told == read - {"SEARCH_ENGINE", "SEARCH_FACET_TIMEOUT_MS"}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        pytest.param(ranking.WINDOW, "The first 200 are weighed", id="window"),
        pytest.param(ranking.WORD_CANDIDATES, "the 1,000 best by words", id="candidates"),
        pytest.param(relevance._HALF_LIFE, "halves every 180 days", id="half-life"),
        pytest.param(settings.SEARCH_MEANING_WEIGHT, "relevance = 0.6 · meaning", id="fusion"),
        pytest.param(settings.SEARCH_FOLD_SIMILARITY, "`SEARCH_FOLD_SIMILARITY` (0.95)", id="folding"),
        pytest.param(settings.RERANK_CANDIDATES, "| 50 |", id="cross-encoder"),
        pytest.param(settings.RERANK_MS, "| 300 |", id="its time"),
    ],
)
def test_numbers_are_those_of_the_code(value, said):
    assert said in TEXT
    assert f"{value:,g}" in said


def test_weights_are_those_of_the_code():
    rows = re.findall(r"^\| (relevance|quality|recency|source) \|.*\| ([\d.]+) \|$", TEXT, re.MULTILINE)
    assert {name: float(weight) for name, weight in rows} == settings.SEARCH_WEIGHTS


def test_places_are_looked_for_as_far_as_the_api_says():
    api = (settings.BASE_DIR / "docs" / "api.md").read_text()
    assert f"among the first {why_not.MOST_PLACES:,} results" in api
