"""Parts of long documents: passages of whole pages, or of sections and paragraphs. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from text.highlight import heading_text

# Up to this many characters a document is whole; the parts of others have up to `PART`, or are a single page.
WHOLE = 20_000
PART = 10_000
_HEADING = re.compile(r"^#{1,3}[ \t]+(?P<title>\S.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Part:
    """A passage of a document. `pages` are the numbers of its first and last page, `starts` where pages begin."""

    text: str
    heading: str = ""
    pages: tuple[int, int] | None = None
    starts: tuple[tuple[int, int], ...] = ()


def parts_of_pages(pages: Sequence[str]) -> list[Part]:
    """Parts of whole pages, each page under its number. A page that is longer than a part is one by itself."""
    limit = WHOLE if sum(map(len, pages)) <= WHOLE else PART
    parts: list[Part] = []
    numbers: list[int] = []
    for number, page in enumerate(pages, 1):
        if not page:
            continue
        if numbers and sum(len(pages[one - 1]) for one in numbers) + len(page) > limit:
            parts.extend(_part_of_pages(pages, numbers))
            numbers = []
        numbers.append(number)
    return [*parts, *(_part_of_pages(pages, numbers) if numbers else ())]


def _part_of_pages(pages: Sequence[str], numbers: Sequence[int]) -> Iterator[Part]:
    texts = [pages[number - 1] for number in numbers]
    if len(numbers) == 1 and len(texts[0]) > WHOLE:
        # Nobody prints such a page: it was made by a program.
        for piece in _pieces(texts[0]):
            yield Part(piece, pages=(numbers[0], numbers[0]), starts=((numbers[0], 0),))
        return
    text, starts = "", []
    for number, page in zip(numbers, texts, strict=True):
        if len(pages) > 1:
            text += f"\n\n— {number} —\n\n" if text else f"— {number} —\n\n"
        starts.append((number, len(text)))
        text += page
    yield Part(text, pages=(numbers[0], numbers[-1]), starts=tuple(starts))


def parts_of_text(text: str) -> list[Part]:
    """Parts of a text: at its headings, a long section at its paragraphs. Short sections are joined."""
    text = text.strip()
    if len(text) <= WHOLE:
        return [Part(text)] if text else []
    bounds = sorted({0, *(match.start() for match in _HEADING.finditer(text)), len(text)})
    parts: list[str] = [""]
    for start, end in pairwise(bounds):
        for piece in _pieces(text[start:end]):
            if parts[-1] and len(parts[-1]) + len(piece) > PART:
                parts.append("")
            parts[-1] += piece
    return [
        Part(part.strip(), heading_text(match["title"]) if (match := _HEADING.match(part.strip())) else "")
        for part in parts
        if part.strip()
    ]


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that fit a part, each up to the last paragraph, line, word or, at worst, character that fits."""
    start = 0
    while len(text) - start > PART:
        end = start + PART
        for divider in ("\n\n", "\n", " "):
            if (found := text.rfind(divider, start + PART // 2, end)) > 0:
                end = found + len(divider)
                break
        yield text[start:end]
        start = end
    yield text[start:]
