"""Split texts into windows that fit a model. Pure: token positions are arguments."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# A row for each token: its start and end in the text, in characters.
Offsets = npt.NDArray[np.int32]

OVERLAP = 32
# The title takes at most 1/_TITLE_SHARE of a window.
_TITLE_SHARE = 4
_WORD = re.compile(r"\S+")
_BEFORE_A_HEADING = " \t\n\r#*_-="


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a text, in characters."""

    start: int
    end: int


def chunk_text(content: str, start: int, end: int) -> str:
    """The passage of a memory's content that a chunk is of, without what the title adds to it."""
    return content[start:end]


def embedded_text(title: str, content: str, start: int, end: int) -> str:
    """The text of a chunk to embed: the memory's title, unless the passage begins with it, and the passage."""
    passage = content[start:end]
    bare = title.strip().rstrip("…").rstrip()
    if not bare or passage[: len(bare) + 40].lstrip(_BEFORE_A_HEADING).casefold().startswith(bare.casefold()):
        return passage
    return f"{title}\n{passage}"


def title_that_fits(title: str, offsets: Offsets, window: int) -> tuple[str, int]:
    """The title, cut at a word so that most of a window is left for the passage, and its number of tokens."""
    limit = window // _TITLE_SHARE
    if len(offsets) <= limit:
        return title, len(offsets)
    cut = _cut_before(_breaks(title, offsets), 0, limit)
    return title[: int(offsets[cut, 0])].rstrip(), cut


def windows(text: str, offsets: Offsets, size: int, overlap: int = OVERLAP) -> list[Window]:
    """Windows of at most `size` tokens that cover a text, each starting up to `overlap` tokens before the last one's
    end.

    They start and end between words. Only a word longer than a window is cut, between two of its tokens.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"An overlap of {overlap} does not fit a window of {size}: it must be less.")
    count = len(offsets)
    if count <= size:
        return [Window(0, len(text))]
    breaks = _breaks(text, offsets)
    found: list[Window] = []
    begin = end = 0
    while count - begin > size:
        cut = _even_cut(breaks, begin, count, size, overlap)
        if cut <= end:
            # A long word follows, which does not fit with an overlap.
            begin = end
            continue
        found.append(_window(text, offsets, begin, cut))
        begin, end = _next_begin(breaks, begin, cut, overlap), cut
    found.append(_window(text, offsets, begin, count))
    return found


def _breaks(text: str, offsets: Offsets) -> npt.NDArray[np.intp]:
    """Indices of the tokens that follow the end of a word, in order, without the first token."""
    words = np.array([match.span() for match in _WORD.finditer(text)], dtype=np.int64).reshape(-1, 2)
    # The first and last word that a token touches; for white space, the word after and the word before it.
    first = np.searchsorted(words[:, 1], offsets[:, 0], side="right")
    last = np.searchsorted(words[:, 0], offsets[:, 1], side="left") - 1
    return np.flatnonzero(first[1:] > last[:-1]) + 1


def _even_cut(breaks: npt.NDArray[np.intp], begin: int, count: int, size: int, overlap: int) -> int:
    """The end of a window, chosen so that the remaining windows are about equally long: no short last one."""
    left = count - begin
    number = -(-(left - overlap) // (size - overlap))
    wanted = begin + -(-(left + (number - 1) * overlap) // number)
    place = int(np.searchsorted(breaks, wanted))
    if place < len(breaks) and breaks[place] <= begin + size:
        return int(breaks[place])
    return _cut_before(breaks, begin, begin + size)


def _cut_before(breaks: npt.NDArray[np.intp], begin: int, limit: int) -> int:
    """The last break up to a limit, or the limit itself inside a long word."""
    place = int(np.searchsorted(breaks, limit, side="right")) - 1
    return int(breaks[place]) if place >= 0 and breaks[place] > begin else limit


def _next_begin(breaks: npt.NDArray[np.intp], begin: int, cut: int, overlap: int) -> int:
    wanted = cut - overlap
    if wanted <= begin:
        return cut
    place = int(np.searchsorted(breaks, wanted))
    if place < len(breaks) and breaks[place] <= cut:
        return int(breaks[place])
    # Inside a word longer than a window, since any other break would be at the cut at the latest.
    return wanted


def _window(text: str, offsets: Offsets, begin: int, end: int) -> Window:
    """The window from a token to the next window's first token, without trailing white space."""
    start = int(offsets[begin, 0]) if begin else 0
    if end == len(offsets):
        return Window(start, len(text))
    stop = int(offsets[end, 0])
    return Window(start, start + len(text[start:stop].rstrip()) or stop)


def spans_of(text: str, pattern: re.Pattern[str]) -> Offsets:
    """Token offsets by a pattern, for tokenizers that are one."""
    return as_offsets([match.span() for match in pattern.finditer(text)])


def as_offsets(spans: Sequence[tuple[int, int]]) -> Offsets:
    return np.array(spans, dtype=np.int32).reshape(-1, 2)
