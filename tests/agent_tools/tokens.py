"""The tokens of a text, counted by a real tokenizer."""

import pytest

bpe_openai = pytest.importorskip("bpe_openai", reason="the tokenizer has no package for this kind of machine")


def tokens(text):
    return len(bpe_openai.get_encoding("o200k_base").encode(text))
