"""Memories as the derived index takes them from the database: columns, terms, and a digest that tells a change."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connection

from search.engines.tantivy.parts import Row

# Postgres has moments that are none, which only SQL by hand can write: such a memory is left out, and told of.
_MOMENT = "CASE WHEN isfinite({0}) THEN (extract(epoch FROM {0}) * 1000000)::bigint END"
_CREATED, _UPDATED = _MOMENT.format("m.created_at"), _MOMENT.format("m.updated_at")
_NEVER = "NOT (isfinite(m.created_at) AND isfinite(m.updated_at))"
# All that the index holds of a memory goes into its digest.
_COLUMNS = (
    "m.project_id, m.memory_type, m.agent, m.source, m.state, m.category_path_ids, m.category_ids, m.tags,"
    f" m.concept_ids, m.entity_ids, m.authors, {_CREATED}, {_UPDATED}, lower(m.title)"
)
_TERMS = "coalesce(m.terms::text, '')"
# Of the values themselves: writing them out as text first takes twice as long.
_DIGEST = f"hash_record_extended(row({_COLUMNS}, tsvectorsend(m.terms)), {{version}})"
_FETCH = 2_000


def _select(version: int) -> str:
    return f"SELECT m.id, {_DIGEST.format(version=version)}, {_TERMS}, {_COLUMNS} FROM memories_memory m"


@dataclass(frozen=True, slots=True)
class Found:
    """Memories for the index, each with its terms, and the ids of those that cannot be in one."""

    rows: list[tuple[Row, str]]
    unfit: list[int]


def rows_of(ids: Sequence[int], version: int) -> Found:
    """The memories of these ids that there are, in the order of their ids."""
    with connection.cursor() as cursor:
        cursor.execute(f"{_select(version)} WHERE m.id = ANY(%s) ORDER BY m.id", [list(ids)])
        unfit: list[int] = []
        return Found(list(_fit(cursor.fetchall(), unfit)), unfit)


def all_rows(version: int, unfit: list[int]) -> Iterator[tuple[Row, str]]:
    """Every memory in the order of its id; those that cannot be in an index go to `unfit`. Call it in a transaction."""
    yield from _fit(_stream(f"{_select(version)} ORDER BY m.id"), unfit)


def all_digests(version: int) -> Iterator[tuple[int, int, bool]]:
    """Every memory's id and digest, and whether it cannot be in an index, in the order of the ids. Call it in a
    transaction.
    """
    yield from _stream(f"SELECT m.id, {_DIGEST.format(version=version)}, {_NEVER} FROM memories_memory m ORDER BY m.id")


@dataclass(frozen=True, slots=True)
class Stored:
    """What only the database can say of a memory that has just been stored."""

    id: int
    digest: int
    state: str
    title: str


def stored_of(ids: Sequence[int], version: int) -> list[Stored]:
    """The memories of these ids, in the order of their ids."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT m.id, {_DIGEST.format(version=version)}, m.state, lower(m.title) FROM memories_memory m"
            " WHERE m.id = ANY(%s) ORDER BY m.id",
            [list(ids)],
        )
        return [Stored(*row) for row in cursor.fetchall()]


def _stream(statement: str) -> Iterator[Any]:
    connection.ensure_connection()
    raw: psycopg.Connection[Any] = connection.connection
    with psycopg.ServerCursor(raw, "index_rows") as cursor:
        cursor.itersize = _FETCH
        # Binary: arrays of numbers are read twice as fast.
        yield from cursor.execute(statement, binary=True)


def _fit(found: Iterable[Sequence[Any]], unfit: list[int]) -> Iterator[tuple[Row, str]]:
    for stored in found:
        memory_id, digest, terms, project, kind, agent, source, state, *multiple, created, updated, title = stored
        if created is None or updated is None:
            unfit.append(memory_id)
            continue
        yield (
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
