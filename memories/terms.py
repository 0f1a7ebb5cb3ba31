"""The weighted terms of a memory for its `tsvector` column and the index. Pure: other processes run it."""

import re
from typing import NamedTuple

from text.analysis import document_vector, index_terms, to_tsvector

# Postgres holds at most 1 MiB of terms and positions for a document.
_MAX_VECTOR_BYTES = 1_000_000
_AFTER_TITLE = re.compile(r"[.,;:!?…]*(?:\s|$)")

# A text with fewer characters always fits.
_SURELY_FITS = 60_000


class MemoryText(NamedTuple):
    """The analysed text of a memory. A tuple: thousands go to another process at a time."""

    title: str
    tags: tuple[str, ...]
    summary: str
    external_id: str
    link_targets: tuple[str, ...]
    content: str
    language: str
    properties: tuple[str, ...] = ()


def memory_terms(text: MemoryText) -> str:
    """Weights: title A, tags B, summary, names and properties C, content D.

    A title that is the beginning of the content, such as the first sentence of a memory that was stored without a
    title, is counted once.
    """
    end = _end_of_title(text.title, text.content)
    title, content = (text.content[:end], text.content[end:]) if end else (text.title, text.content)
    fields = [
        (title, "A"),
        (content, "D"),
        (" ".join(text.tags), "B"),
        (
            " ".join(part for part in (text.summary, text.external_id, *text.link_targets, *text.properties) if part),
            "C",
        ),
    ]
    if sum(len(field) for field, _ in fields) > _SURELY_FITS:
        return to_tsvector(_fitting(index_terms(fields, text.language, is_joined=bool(end))))
    return document_vector(fields, text.language, is_joined=bool(end))


def _end_of_title(title: str, content: str) -> int:
    """The end of the title in a content that begins with it; 0 if it does not. A heading is a title of its own."""
    written = title.removesuffix("…")
    start = len(content) - len(content.lstrip())
    if not written or not content.startswith(written, start):
        return 0
    end = start + len(written)
    # Between two words, since the analysis of a word must not depend on where it is cut.
    return end if _AFTER_TITLE.match(content, end) else 0


def _fitting(positions: dict[str, list[tuple[int, str]]]) -> dict[str, list[tuple[int, str]]]:
    """The first terms that fit. Only a text of many thousand long, distinct words loses terms."""
    used = 0
    fitting: dict[str, list[tuple[int, str]]] = {}
    for term, places in positions.items():
        used += len(term.encode()) + 4 + 2 * len(places)
        if used > _MAX_VECTOR_BYTES:
            break
        fitting[term] = places
    return fitting


def memories_terms(texts: list[MemoryText]) -> list[str]:
    return [memory_terms(text) for text in texts]
