"""The weighted terms of a memory."""

import pytest

from memories.terms import MemoryText, memory_terms


@pytest.mark.parametrize(
    ("title", "content", "terms"),
    [
        pytest.param(
            "Fix the kettle",
            "# Fix the kettle\nIt sang.",
            "'fix':1A 'the':2A 'kettl':3A 'fix':6D 'the':7D 'kettl':8D 'it':9D 'sang':10D",
            id="a heading",
        ),
        pytest.param(
            "It fell over…",
            "It fell over twice.",
            "'it':1A 'fell':2A 'over':3A 'twice':4D",
            id="the cut first sentence",
        ),
        pytest.param(
            "Fix the kettle",
            "Fix the kettle-lid",
            "'fix':1A 'the':2A 'kettl':3A 'fix':6D 'the':7D 'kettl':8D 'lid':9D 'kettlelid':8D",
            id="the beginning of a longer word",
        ),
        pytest.param("Kettle", "The kettle sang", "'kettl':1A 'the':4D 'kettl':5D 'sang':6D", id="a word of the text"),
    ],
)
def test_title_that_is_the_beginning_of_the_content_is_counted_once(title, content, terms):
    assert memory_terms(MemoryText(title, (), "", "", (), content, "english")) == terms
