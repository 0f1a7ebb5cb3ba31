"""The facet columns of memories, computed from their links in one statement; and tags, with the search terms.

`memories.storage` writes the same columns memory by memory; these statements work on sets.
"""

import json
from collections.abc import Collection, Iterable, Sequence

from django.db import connection

from categories.kinds import VOCABULARIES
from curation.tables import fetch, fetch_column
from memories.terms import MemoryText, memories_terms

# Memories that are read, analysed and written in one statement.
BLOCK = 2_000

_LINEAGES = """
WITH RECURSIVE lineage (id, above) AS (
  SELECT id, id FROM categories_category
  UNION SELECT lineage.id, category.parent_id FROM lineage JOIN categories_category category
  ON category.id = lineage.above WHERE category.parent_id IS NOT NULL
)"""


def refresh_columns(kind: str, memory_ids: Collection[int]) -> int:
    """Set the facet columns of memories to the ids of their links. Returns the number of memories changed."""
    if not memory_ids:
        return 0
    columns, lineages, expected = _expected(kind, "unnest(%s::bigint[]) AS chosen (id)")
    assignments = ", ".join(f"{column} = made.{column}" for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"{lineages} UPDATE memories_memory memory SET {assignments} FROM ({expected}) made"
            f" WHERE memory.id = made.id AND ({_differs(columns)})",
            [sorted(memory_ids)],
        )
        return int(cursor.rowcount)


def stale_columns(kind: str) -> list[int]:
    """Ids of all memories whose facet columns differ from their links."""
    columns, lineages, expected = _expected(kind, "memories_memory chosen")
    return fetch_column(
        f"{lineages} SELECT memory.id FROM memories_memory memory JOIN ({expected}) made ON made.id = memory.id"
        f" WHERE {_differs(columns)} ORDER BY 1"
    )


def _expected(kind: str, chosen: str) -> tuple[list[str], str, str]:
    """The facet columns of a kind, the common table expression they need, and a query for their values by memory."""
    vocabulary = VOCABULARIES[kind]
    ids = {vocabulary.memory_column: f"link.{vocabulary.link_column}"}
    lineages = lineage_join = ""
    if vocabulary.memory_path_column != vocabulary.memory_column:
        ids[vocabulary.memory_path_column] = "lineage.above"
        lineages, lineage_join = _LINEAGES, f" LEFT JOIN lineage ON lineage.id = link.{vocabulary.link_column}"
    # A memory without links gets an empty array.
    arrays = ", ".join(
        f"coalesce(array_agg(DISTINCT {value} ORDER BY {value}) FILTER (WHERE {value} IS NOT NULL), '{{}}')::integer[]"
        f" AS {column}"
        for column, value in ids.items()
    )
    return (
        list(ids),
        lineages,
        f"SELECT chosen.id, {arrays} FROM {chosen}"
        f" LEFT JOIN {vocabulary.link_table} link ON link.memory_id = chosen.id{lineage_join} GROUP BY chosen.id",
    )


def _differs(columns: Iterable[str]) -> str:
    return " OR ".join(f"memory.{column} IS DISTINCT FROM made.{column}" for column in columns)


# --- tags -----------------------------------------------------------------------------------------------------------


def read_tags(memory_ids: Collection[int]) -> dict[int, list[str]]:
    """The tags of memories, which are locked until the transaction ends."""
    statement = "SELECT id, tags FROM memories_memory WHERE id = ANY(%s) ORDER BY id FOR UPDATE"
    return dict(fetch(statement, [sorted(memory_ids)]))


def write_tags(changes: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Set the tags of memories, given as pairs of id and tags, and update their search terms."""
    pending = [(memory_id, list(tags)) for memory_id, tags in changes]
    for start in range(0, len(pending), BLOCK):
        block = pending[start : start + BLOCK]
        texts = _texts(block)
        with connection.cursor() as cursor:
            # Tags as JSON: the rows of an SQL array of arrays must have equal lengths.
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


def _texts(block: Sequence[tuple[int, list[str]]]) -> list[MemoryText]:
    """The searched text of memories, with their new tags."""
    rows = fetch(
        "SELECT memory.id, memory.title, memory.summary, memory.external_id, memory.content, project.language,"
        " ARRAY(SELECT target FROM memories_memorylink link WHERE link.memory_id = memory.id ORDER BY ordinal)"
        " FROM memories_memory memory JOIN memories_project project ON project.id = memory.project_id"
        " WHERE memory.id = ANY(%s)",
        [[memory_id for memory_id, _ in block]],
    )
    found = {row[0]: row[1:] for row in rows}
    return [
        MemoryText(title, tuple(tags), summary, external_id, tuple(targets), content, language)
        for memory_id, tags in block
        for title, summary, external_id, content, language, targets in [found[memory_id]]
    ]
