"""Memories as the derived index takes them from the database: columns, terms, and a digest that tells a change."""

from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
from django.db import connection

from search.engines.tantivy.parts import Row

# All that the index holds of a memory goes into its digest.
_COLUMNS = (
    "m.project_id, m.memory_type, m.agent, m.source, m.state, m.category_path_ids, m.category_ids, m.tags,"
    " m.concept_ids, m.entity_ids, m.authors, (extract(epoch FROM m.created_at) * 1000000)::bigint,"
    " (extract(epoch FROM m.updated_at) * 1000000)::bigint, lower(m.title)"
)
_TERMS = "coalesce(m.terms::text, '')"
_DIGEST = f"hashtextextended(row({_COLUMNS}, {_TERMS})::text, {{version}})"
_FETCH = 2_000


def _select(version: int) -> str:
    return f"SELECT m.id, {_DIGEST.format(version=version)}, {_TERMS}, {_COLUMNS} FROM memories_memory m"


def rows_of(ids: Sequence[int], version: int) -> list[tuple[Row, str]]:
    """The memories of these ids that there are, in the order of their ids, each with its terms."""
    with connection.cursor() as cursor:
        cursor.execute(f"{_select(version)} WHERE m.id = ANY(%s) ORDER BY m.id", [list(ids)])
        return [_row(row) for row in cursor.fetchall()]


def all_rows(version: int) -> Iterator[tuple[Row, str]]:
    """Every memory in the order of its id. Call it in a transaction."""
    for row in _stream(f"{_select(version)} ORDER BY m.id"):
        yield _row(row)


def all_digests(version: int) -> Iterator[tuple[int, int]]:
    """Every memory's id and digest, in the order of the ids. Call it in a transaction."""
    yield from _stream(f"SELECT m.id, {_DIGEST.format(version=version)} FROM memories_memory m ORDER BY m.id")


def _stream(statement: str) -> Iterator[Any]:
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    with psycopg.ServerCursor(raw, "index_rows") as cursor:
        cursor.itersize = _FETCH
        # Binary: arrays of numbers are read twice as fast.
        yield from cursor.execute(statement, binary=True)


def _row(stored: Sequence[Any]) -> tuple[Row, str]:
    memory_id, digest, terms, project, kind, agent, source, state, *multiple, created, updated, title = stored
    return (
        Row(
            id=memory_id,
            scalars=(project, kind, agent, source, state),
            multiple=tuple(multiple),
            created=created,
            updated=updated,
            title=title,
            digest=digest,
        ),
        terms,
    )
