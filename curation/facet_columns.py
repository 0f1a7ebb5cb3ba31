"""The facet columns of memories, worked out from their links in one statement; and tags, with the terms they are in.

`memories.storage` keeps the columns memory by memory; this is the same rule over sets.
"""

import json
from collections.abc import Collection, Iterable, Sequence

from django.db import connection

from curation.tables import LINKS
from memories.terms import MemoryText, memories_terms

# So many memories are read, analysed and written at once.
BLOCK = 2_000

_LINEAGES = """
WITH RECURSIVE lineage (id, above) AS (
  SELECT id, id FROM categories_category
  UNION SELECT lineage.id, category.parent_id FROM lineage JOIN categories_category category
  ON category.id = lineage.above WHERE category.parent_id IS NOT NULL
)"""
# {chosen} gives the ids of the memories; what none is linked to is an empty array.
_EXPECTED = {
    "category": (
        _LINEAGES,
        "SELECT chosen.id,"
        " coalesce(array_agg(DISTINCT link.category_id ORDER BY link.category_id)"
        " FILTER (WHERE link.category_id IS NOT NULL), '{{}}')::integer[] AS own,"
        " coalesce(array_agg(DISTINCT lineage.above ORDER BY lineage.above)"
        " FILTER (WHERE lineage.above IS NOT NULL), '{{}}')::integer[] AS path"
        " FROM {chosen} LEFT JOIN categories_categorylink link ON link.memory_id = chosen.id"
        " LEFT JOIN lineage ON lineage.id = link.category_id GROUP BY chosen.id",
    ),
    **{
        kind: (
            "",
            f"SELECT chosen.id, coalesce(array_agg(link.{LINKS[kind].column} ORDER BY link.{LINKS[kind].column})"
            f" FILTER (WHERE link.{LINKS[kind].column} IS NOT NULL), '{{{{}}}}')::integer[] AS own"
            f" FROM {{chosen}} LEFT JOIN {LINKS[kind].table} link ON link.memory_id = chosen.id GROUP BY chosen.id",
        )
        for kind in ("concept", "entity")
    },
}
_COLUMNS = {
    kind: (("own", links.facet),) + ((("path", links.facet_below),) if kind == "category" else ())
    for kind, links in LINKS.items()
}


def columns_refresh(kind: str, memory_ids: Collection[int]) -> int:
    """Bring the facet columns of memories up to what their links say; tells how many were not."""
    if not memory_ids:
        return 0
    lineages, expected = _EXPECTED[kind]
    assignments = ", ".join(f"{column} = made.{name}" for name, column in _COLUMNS[kind])
    with connection.cursor() as cursor:
        cursor.execute(
            f"{lineages} UPDATE memories_memory memory SET {assignments}"
            f" FROM ({expected.format(chosen='unnest(%s::bigint[]) AS chosen (id)')}) made"
            f" WHERE memory.id = made.id AND ({_differs(kind)})",
            [sorted(memory_ids)],
        )
        return int(cursor.rowcount)


def columns_differing(kind: str) -> list[int]:
    """All memories whose facet columns do not say what their links do."""
    lineages, expected = _EXPECTED[kind]
    with connection.cursor() as cursor:
        cursor.execute(
            f"{lineages} SELECT memory.id FROM memories_memory memory"
            f" JOIN ({expected.format(chosen='memories_memory chosen')}) made ON made.id = memory.id"
            f" WHERE {_differs(kind)} ORDER BY 1"
        )
        return [row[0] for row in cursor.fetchall()]


def _differs(kind: str) -> str:
    return " OR ".join(f"memory.{column} IS DISTINCT FROM made.{name}" for name, column in _COLUMNS[kind])


# --- tags -----------------------------------------------------------------------------------------------------------

Tagged = tuple[int, list[str]]
"""A memory, and its tags in their order."""


def tags_read(memory_ids: Collection[int]) -> dict[int, list[str]]:
    """The tags of memories, which are locked until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, tags FROM memories_memory WHERE id = ANY(%s) ORDER BY id FOR UPDATE", [sorted(memory_ids)]
        )
        return dict(cursor.fetchall())


def tags_write(changes: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Give memories other tags, and the terms that they are found by, in blocks."""
    waiting = [(memory_id, list(tags)) for memory_id, tags in changes]
    for start in range(0, len(waiting), BLOCK):
        block = waiting[start : start + BLOCK]
        texts = _texts(block)
        with connection.cursor() as cursor:
            # Tags as JSON: arrays in an array would all have to be of one length.
            cursor.execute(
                "UPDATE memories_memory memory SET terms = made.terms::tsvector,"
                " tags = ARRAY(SELECT tag FROM jsonb_array_elements_text(made.tags::jsonb)"
                " WITH ORDINALITY AS t (tag, at) ORDER BY at)"
                " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (id, tags, terms)"
                " WHERE memory.id = made.id",
                [
                    [memory_id for memory_id, _ in block],
                    [json.dumps(tags) for _, tags in block],
                    memories_terms(texts),
                ],
            )


def _texts(block: Sequence[Tagged]) -> list[MemoryText]:
    """What of the memories is searched for words, with the tags that they get."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT memory.id, memory.title, memory.summary, memory.external_id, memory.content, project.language,"
            " ARRAY(SELECT target FROM memories_memorylink link WHERE link.memory_id = memory.id ORDER BY ordinal)"
            " FROM memories_memory memory JOIN memories_project project ON project.id = memory.project_id"
            " WHERE memory.id = ANY(%s)",
            [[memory_id for memory_id, _ in block]],
        )
        found = {row[0]: row[1:] for row in cursor.fetchall()}
    return [
        MemoryText(title, tuple(tags), summary, external_id, tuple(targets), content, language)
        for memory_id, tags in block
        for title, summary, external_id, content, language, targets in [found[memory_id]]
    ]
