"""The facet columns of memories, computed from their links in one statement; and tags, with the search terms.

`memories.storage` writes the same columns memory by memory; these statements work on sets.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence

from django.db.models import Q

from categories.kinds import VOCABULARIES
from categories.models import Relationship
from categories.searched_terms import SEARCHED_KINDS, terms_refresh
from memories.marks import mark_memories
from memories.models import MemoryMark
from memories.properties import OWN_PROPERTIES, words_of
from memories.storage import snapshots_read
from memories.terms import MemoryText, memories_terms
from text.steering import marks_of
from web.sql import execute, fetch, fetch_column

# Memories that are read, analysed and written in one statement.
BLOCK = 2_000

# Categories with each of their ancestors and themselves.
_LINEAGES = """
WITH RECURSIVE lineage (id, above) AS (
  SELECT id, id FROM categories_category WHERE id = ANY(%s)
  UNION SELECT lineage.id, category.parent_id FROM lineage JOIN categories_category category
  ON category.id = lineage.above WHERE category.parent_id IS NOT NULL
) SELECT id, above FROM lineage"""


def refresh_columns(kind: str, memory_ids: Collection[int]) -> int:
    """Set the facet columns of memories to the ids of their links. Returns the number of memories changed."""
    if not memory_ids:
        return 0
    link = VOCABULARIES[kind]
    linked = f"SELECT DISTINCT {link.link_column} FROM {link.link_table} WHERE memory_id = ANY(%s)"
    columns, expected, parameters = _expected(kind, linked, sorted(memory_ids))
    assignments = ", ".join(f"{column} = made.{column}" for column in columns)
    return execute(
        f"UPDATE memories_memory memory SET {assignments} FROM ({expected}) made"
        f" WHERE memory.id = made.id AND ({_differs(columns)})",
        parameters,
    )


def stale_columns(kind: str) -> list[int]:
    """Ids of all memories whose facet columns differ from their links."""
    columns, expected, parameters = _expected(kind, f"SELECT id FROM {VOCABULARIES[kind].table}")
    return fetch_column(
        f"SELECT memory.id FROM memories_memory memory JOIN ({expected}) made ON made.id = memory.id"
        f" WHERE {_differs(columns)} ORDER BY 1",
        parameters,
    )


def _expected(
    kind: str, linked: str, memory_ids: Sequence[int] | None = None
) -> tuple[list[str], str, list[list[int]]]:
    """The facet columns of a kind, and a query for their values by memory with its parameters.

    `linked` finds the terms that the memories may have. Their lineages are read first: a cluster walks no tree in a
    statement about memories.
    """
    vocabulary = VOCABULARIES[kind]
    ids = {vocabulary.memory_column: f"link.{vocabulary.link_column}"}
    parameters: list[list[int]] = []
    lineage_join = ""
    chosen = [list(memory_ids)] if memory_ids is not None else []
    if vocabulary.memory_path_column != vocabulary.memory_column:
        ids[vocabulary.memory_path_column] = "lineage.above"
        pairs = fetch(_LINEAGES, [fetch_column(linked, chosen)])
        lineage_join = (
            " LEFT JOIN unnest(%s::bigint[], %s::bigint[]) AS lineage (id, above)"
            f" ON lineage.id = link.{vocabulary.link_column}"
        )
        parameters += [[term_id for term_id, _ in pairs], [above for _, above in pairs]]
    # A memory without links gets an empty array.
    arrays = ", ".join(
        f"coalesce(array_agg(DISTINCT {value} ORDER BY {value}) FILTER (WHERE {value} IS NOT NULL), '{{}}')::integer[]"
        f" AS {column}"
        for column, value in ids.items()
    )
    return (
        list(ids),
        f"SELECT chosen.id, {arrays} FROM memories_memory chosen"
        f" LEFT JOIN {vocabulary.link_table} link ON link.memory_id = chosen.id{lineage_join}"
        f"{' WHERE chosen.id = ANY(%s)' if chosen else ''} GROUP BY chosen.id",
        [*parameters, *chosen],
    )


def _differs(columns: Iterable[str]) -> str:
    return " OR ".join(f"memory.{column} IS DISTINCT FROM made.{column}" for column in columns)


# --- tags -----------------------------------------------------------------------------------------------------------


def read_tags(memory_ids: Collection[int]) -> dict[int, list[str]]:
    """The tags of memories. The caller holds `VOCABULARY_LOCK` alone, so that nobody else changes them meanwhile."""
    # A cluster locks no set of memories.
    statement = "SELECT id, tags FROM memories_memory WHERE id = ANY(%s) ORDER BY id"
    return dict(fetch(statement, [sorted(memory_ids)]))


def write_tags(changes: Iterable[tuple[int, Sequence[str]]]) -> None:
    """Set the tags of memories, given as pairs of id and tags, and update their search terms."""
    pending = [(memory_id, list(tags)) for memory_id, tags in changes]
    for start in range(0, len(pending), BLOCK):
        block = pending[start : start + BLOCK]
        texts = _texts(block)
        # Tags as JSON: the rows of an SQL array of arrays must have equal lengths.
        execute(
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
        _mark_again(block)


def _mark_again(block: Sequence[tuple[int, list[str]]]) -> None:
    """Mark memories that have a tag which may steer a model, and look again at those that are marked."""
    steering = {tag for tag in {tag for _, tags in block for tag in tags} if marks_of([tag])}
    ids = {memory_id for memory_id, tags in block if not steering.isdisjoint(tags)}
    marked = MemoryMark.objects.filter(memory_id__in=[memory_id for memory_id, _ in block])
    ids.update(marked.values_list("memory_id", flat=True))
    if ids:
        mark_memories(snapshots_read(ids).values())


def _texts(block: Sequence[tuple[int, list[str]]]) -> list[MemoryText]:
    """The searched text of memories, with their new tags."""
    rows = fetch(
        "SELECT memory.id, memory.title, memory.summary, memory.external_id, memory.content, project.language,"
        " ARRAY(SELECT target FROM memories_memorylink link WHERE link.memory_id = memory.id ORDER BY ordinal),"
        f" memory.raw -> '{OWN_PROPERTIES}'"
        " FROM memories_memory memory JOIN memories_project project ON project.id = memory.project_id"
        " WHERE memory.id = ANY(%s)",
        [[memory_id for memory_id, _ in block]],
    )
    found = {row[0]: row[1:] for row in rows}
    return [
        MemoryText(title, tuple(tags), summary, external_id, tuple(targets), content, language, words_of(own))
        for memory_id, tags in block
        for title, summary, external_id, content, language, targets, own in [found[memory_id]]
    ]


def refresh_search_terms(term_ids: Mapping[str, Collection[int]]) -> None:
    """Update the search terms of rows by kind, and of the relationships of the entities among them."""
    entities = list(term_ids.get("entity", ()))
    facts = Relationship.objects.filter(Q(source_id__in=entities) | Q(target_id__in=entities))
    related = {"relationship": list(facts.values_list("pk", flat=True))} if entities else {}
    for kind, ids in {**term_ids, **related}.items():
        while terms_refresh(SEARCHED_KINDS[kind], ids):
            pass
