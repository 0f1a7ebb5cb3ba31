"""Estimates the tokens of a text, without a tokenizer."""

import math
import re

# Pieces of a text as tokenizers split it: words, numbers, spaces, punctuation, other characters.
_PIECES = re.compile(r"([A-Za-z]+)|([0-9]+)|([ \t]+)|(\s+)|([!-/:-@\[-`{-~]+)|(.)", re.DOTALL)
_WORD, _NUMBER, _MARKS = 7, 3, 2
# Short words and unusual names take more tokens than their lengths suggest.
_MARGIN = 1.12


def estimated_tokens(text: str) -> int:
    """Estimate the tokens of a text, rather too high than too low."""
    return math.ceil(_MARGIN * sum(_cost(*match.groups()) for match in _PIECES.finditer(text)))


def _cost(word: str, number: str, blank: str, line: str, marks: str, other: str) -> int:
    if word:
        return -(-len(word) // _WORD)
    if number:
        return -(-len(number) // _NUMBER)
    if marks:
        return -(-len(marks) // _MARKS)
    # A single space belongs to the word after it.
    return 0 if blank == " " else 1
