"""Windows over a text: they cover it, they overlap, and they cut no word that fits."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memories.embedding.chunking import (
    Window,
    as_offsets,
    chunk_text,
    embedded_text,
    spans_of,
    title_that_fits,
    windows,
)

PIECES = re.compile(r"\w{1,4}|[^\w\s]")
SPACED = re.compile(r"\s*\S{1,3}|\s+")

texts = st.text(alphabet="abc é日.-\n\t ", max_size=400)
tokenizers = st.sampled_from([PIECES, SPACED])
sizes = st.integers(2, 20)


def sizes_and_overlaps():
    return sizes.flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))


def tokens_within(offsets, window):
    return int(((offsets[:, 0] >= window.start) & (offsets[:, 1] <= window.end)).sum())


@given(texts, tokenizers, sizes_and_overlaps())
def test_windows_cover_the_text_and_fit(text, tokenizer, size_and_overlap):
    size, overlap = size_and_overlap
    offsets = spans_of(text, tokenizer)
    found = windows(text, offsets, size, overlap)
    assert found[0].start == 0
    assert found[-1].end == len(text)
    for window in found:
        assert tokens_within(offsets, window) <= size
        assert window.end > window.start or not text
    for before, after in pairwise(found):
        assert before.start < after.start
        assert before.end < after.end
        # Only white space is between two windows.
        assert not text[before.end : after.start].strip()


@given(texts, tokenizers, sizes_and_overlaps())
def test_windows_cut_no_word_that_fits(text, tokenizer, size_and_overlap):
    size, overlap = size_and_overlap
    offsets = spans_of(text, tokenizer)
    found = windows(text, offsets, size, overlap)
    for match in re.finditer(r"\S+", text):
        touching = (offsets[:, 0] < match.end()) & (offsets[:, 1] > match.start())
        if int(touching.sum()) > size:
            continue
        for window in found:
            assert not match.start() < window.start < match.end()
            assert not match.start() < window.end < match.end()


@given(texts, tokenizers, sizes_and_overlaps())
def test_windows_overlap_by_no_more_than_said(text, tokenizer, size_and_overlap):
    size, overlap = size_and_overlap
    offsets = spans_of(text, tokenizer)
    found = windows(text, offsets, size, overlap)
    for before, after in pairwise(found):
        assert tokens_within(offsets, Window(after.start, before.end)) <= overlap


@pytest.mark.parametrize(
    ("text", "size", "overlap", "expected"),
    [
        pytest.param("", 4, 1, [""], id="empty"),
        pytest.param("a b c d", 4, 1, ["a b c d"], id="fits"),
        pytest.param("a b c d e", 4, 1, ["a b c", "c d e"], id="in two of like length"),
        pytest.param("a b c d e f", 3, 0, ["a b c", "d e f"], id="without overlap"),
        pytest.param("aaaabbbb c d", 2, 0, ["aaaabbbb", "c d"], id="a word of several tokens"),
        pytest.param("aaaabbbbcccc d", 2, 0, ["aaaabbbb", "cccc d"], id="a word longer than a window"),
        pytest.param("c aaaabbbb d e", 3, 1, ["c aaaabbbb", "d e"], id="an overlap that would cut a word is left out"),
    ],
)
def test_windows_of(text, size, overlap, expected):
    found = windows(text, spans_of(text, PIECES), size, overlap)
    assert [chunk_text(text, window.start, window.end) for window in found] == expected


@pytest.mark.parametrize(
    ("title", "passage", "expected"),
    [
        pytest.param("Retries", "Three, then stop.", "Retries\nThree, then stop.", id="before the passage"),
        pytest.param("", "Three.", "Three.", id="no title"),
        pytest.param("Retries", "# Retries\n\nThree.", "# Retries\n\nThree.", id="the passage begins with it"),
        pytest.param(
            "Retry three times, then…", "retry three times, then stop.", "retry three times, then stop.", id="cut"
        ),
    ],
)
def test_title_goes_before_a_passage_once(title, passage, expected):
    assert embedded_text(title, passage, 0, len(passage)) == expected


def test_title_leaves_room_for_the_passage():
    title = "one two three four five six"
    assert title_that_fits(title, spans_of(title, re.compile(r"\w+")), 16) == ("one two three four", 4)
    assert title_that_fits("one two", spans_of("one two", re.compile(r"\w+")), 16) == ("one two", 2)


def test_overlap_as_large_as_the_window_is_refused():
    with pytest.raises(ValueError, match="An overlap of 4 does not fit a window of 4"):
        windows("a b c", as_offsets([(0, 1), (2, 3), (4, 5)]), 4, 4)
