"""The chunks of memories with their texts, and how densely the concepts of a memory stand in each."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from django.db import connection

from categories.looking import Looking
from search.analysis import Pattern, phrase_pattern, raw_tokens
from search.engines.arrays import Array
from search.snippets import matched_spans

_WORD = re.compile(r"\w+")
# By the primary key, which is led by the memory. The index may not know yet of one that was deleted.
_CHUNKS = """
SELECT chunk.memory_id, chunk.ordinal, substr(memory.content, chunk.start + 1, chunk."end" - chunk.start),
       memory.title, memory.source_uri, memory.source, project.language, memory.concept_ids
FROM memories_chunk chunk JOIN memories_memory memory ON memory.id = chunk.memory_id
JOIN memories_project project ON project.id = memory.project_id
WHERE chunk.memory_id = ANY(%(ids)s) AND chunk.model_id = %(model)s
  AND memory.state <> 'deleted' AND (%(all)s OR memory.project_id = ANY(%(projects)s))
ORDER BY array_position(%(ids)s, chunk.memory_id), chunk.ordinal LIMIT %(limit)s"""
_NAMES = "SELECT id, name, aliases FROM categories_concept WHERE id = ANY(%s)"


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk of a memory. `density` is the share of its words that belong to the name of a concept of the memory."""

    memory_id: int
    ordinal: int
    text: str
    title: str
    source: str
    concepts: tuple[str, ...]
    density: float


def passages_of(looking: Looking, slots: Array, limit: int) -> tuple[Passage, ...]:
    """The first chunks of the newest of some memories that have any."""
    figures = looking.figures
    ids = figures.filing.newest(slots[figures.chunks_at[slots] > 0], limit).tolist()
    if not ids:
        return ()
    projects = looking.viewer.project_ids
    with connection.cursor() as cursor:
        cursor.execute(
            _CHUNKS,
            {
                "ids": ids,
                "model": looking.moment.model_id,
                "all": projects is None,
                "projects": sorted(projects or ()),
                "limit": limit,
            },
        )
        rows = cursor.fetchall()
        cursor.execute(_NAMES, [sorted({pk for row in rows for pk in row[-1]})])
        names = {pk: (name, (name, *aliases)) for pk, name, aliases in cursor.fetchall()}
    return tuple(_passage(row, names) for row in rows)


def _passage(row: tuple[Any, ...], names: dict[int, tuple[str, tuple[str, ...]]]) -> Passage:
    memory_id, ordinal, text, title, source_uri, source, language, concept_ids = row
    found: list[str] = []
    covered: list[tuple[int, int]] = []
    for name, spellings in (names[pk] for pk in concept_ids if pk in names):
        patterns = tuple(pattern for spelling in spellings if (pattern := _pattern(spelling, language)))
        if spans := matched_spans(text, patterns, language):
            found.append(name)
            covered += spans
    words = [match.start() for match in _WORD.finditer(text)]
    inside = sum(any(begin <= at < end for begin, end in covered) for at in words)
    return Passage(
        memory_id=memory_id,
        ordinal=ordinal,
        text=text,
        title=title,
        source=source_uri or source,
        concepts=tuple(sorted(found)),
        density=round(inside / len(words), 3) if words else 0.0,
    )


@lru_cache(maxsize=4_096)
def _pattern(name: str, language: str) -> Pattern | None:
    """A name as it is looked for in a text, stemmed as the text is."""
    pattern = phrase_pattern(list(raw_tokens(name, language)))
    return pattern if pattern.terms else None
