"""Titles as people read them: without the marks of inline Markdown."""

import re
from collections.abc import Iterable, Iterator

from text.highlight import MarkedText

# Code, emphasis and links, each with its text. Only pairs count: "*args and **kwargs" is left alone.
_INLINE = re.compile(
    r"(?P<ticks>`+)(?!`)(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|(?<![\w*])(?P<stars>\*{1,3})(?=[^\s*])(?P<emphasis>.+?)(?<=[^\s*])(?P=stars)(?![\w*])"
    r"|!?\[(?P<link>[^\]]+)\]\((?:[^()\s]|\([^()]*\))*\)"
)
_MARKS = re.compile(r"[`*\[]")
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(?P<text>\S.*)$", re.MULTILINE)
# Titles are a line; a longer text would take long to search for pairs.
_LONGEST = 1_000


def first_heading(text: str) -> str:
    """The text of the first heading in a text of Markdown; empty if there is none."""
    heading = _HEADING.search(text)
    return heading_text(heading["text"]) if heading else ""


def heading_text(line: str) -> str:
    """The text of a heading without the `#` that may close it: those of `C#` belong to the text."""
    text = line.strip()
    rest = text.rstrip("#")
    return rest.rstrip() if rest[-1:] in ("", " ", "\t") else text


def plain_title(title: str) -> str:
    """A title without the marks of inline Markdown."""
    return "".join(title[start:end] for start, end in _shown(title))


def plain_parts(parts: tuple[MarkedText, ...]) -> tuple[MarkedText, ...]:
    """A highlighted title without the marks of inline Markdown."""
    title = "".join(part.text for part in parts)
    if not _MARKS.search(title):
        return parts
    shown, kept, at = list(_shown(title)), [], 0
    for part in parts:
        text = "".join(_overlaps(title, shown, at, at + len(part.text)))
        at += len(part.text)
        if text:
            kept.append(MarkedText(text, part.marked))
    return tuple(kept)


def _overlaps(title: str, spans: Iterable[tuple[int, int]], start: int, end: int) -> Iterator[str]:
    for first, last in spans:
        yield title[max(first, start) : min(last, end)] if max(first, start) < min(last, end) else ""


def _shown(title: str, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int]]:
    """The spans of a title that are shown."""
    end = len(title) if end is None else end
    if not start and (end > _LONGEST or not _MARKS.search(title)):
        yield start, end
        return
    at = start
    for match in _INLINE.finditer(title, start, end):
        yield at, match.start()
        inside = match.span(match.lastgroup or 0)
        if match["code"]:
            yield inside
        else:
            yield from _shown(title, *inside)
        at = match.end()
    yield at, end


def title_or_number(title: str, memory_id: int) -> str:
    """The title of a memory for lists and headings."""
    return plain_title(title) or f"Memory {memory_id}"
