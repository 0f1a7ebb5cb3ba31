"""The vectors of the vocabulary: pending rows and writing.

As with memories there is no queue: a row is pending for a model while the hash of its text differs from the one
embedded last. There are thousands of rows, so both tables are scanned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from categories.searched_terms import SEARCHED, SearchableTable
from categories.services import writers_turn
from cluster import store_vectors_in_rows

_CLAIMS = 4_711_004  # the first key of the advisory locks

_WAITING = (
    "FROM {rows} LEFT JOIN {vectors} vector ON vector.{owner} = own.id AND vector.model_id = %(model)s"
    " WHERE vector.text_hash IS DISTINCT FROM md5({text})"
)


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A pending row of the vocabulary with its current text."""

    id: int
    text: str
    text_hash: str


def pending_rows(
    searched: SearchableTable, model_id: int, *, limit: int | None = None, besides: Mapping[int, str] | None = None
) -> list[PendingRow]:
    """The first rows that a model has yet to embed, without those in `besides` whose text has the given hash."""
    passed_over = dict(besides or {})
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT own.id, {searched.text}, md5({searched.text}) {_waiting(searched)}"
            " AND NOT (own.id, md5(" + searched.text + ")) IN"
            " (SELECT * FROM unnest(%(ids)s::bigint[], %(hashes)s::text[])) ORDER BY own.id LIMIT %(limit)s",
            {
                "model": model_id,
                "ids": list(passed_over),
                "hashes": list(passed_over.values()),
                "limit": limit,
            },
        )
        return [PendingRow(*row) for row in cursor.fetchall()]


def vocabulary_pending(model_id: int) -> int:
    """The number of rows of the vocabulary that a model has yet to embed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT " + " + ".join(f"(SELECT count(*) {_waiting(searched)})" for searched in SEARCHED),
            {"model": model_id},
        )
        return int(cursor.fetchone()[0])


def claim(searched: SearchableTable, model_id: int) -> bool:
    """Claim the pending rows of a table for this transaction. False if another worker holds them."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [_CLAIMS, f"{searched.kind} {model_id}"])
        return bool(cursor.fetchone()[0])


@transaction.atomic
def vectors_write(
    searched: SearchableTable, model_id: int, rows: Sequence[PendingRow], vectors: npt.NDArray[np.float32]
) -> int:
    """Replace the vectors of rows, and return their number; rows that are deleted, or being deleted, are skipped.

    The hash of the embedded text is stored with them: if the text has changed in the meantime, the row is pending
    again.
    """
    writers_turn()
    with connection.cursor() as cursor:
        # A merge may delete a row while its text is embedded: what is locked here stays until the vector is stored.
        cursor.execute(
            f"SELECT id FROM {searched.table} WHERE id = ANY(%s) ORDER BY id FOR KEY SHARE SKIP LOCKED",
            [[row.id for row in rows]],
        )
        present = {row_id for (row_id,) in cursor.fetchall()}
        made = [(row, literal(vector)) for row, vector in zip(rows, vectors, strict=True) if row.id in present]
        cursor.execute(
            f"INSERT INTO {searched.vectors} ({searched.owner}, model_id, text_hash, embedding)"
            " SELECT made.id, %s, made.hash, made.vector::halfvec"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (id, hash, vector)"
            f" ON CONFLICT ({searched.owner}, model_id)"
            " DO UPDATE SET text_hash = EXCLUDED.text_hash, embedding = EXCLUDED.embedding",
            [
                model_id,
                [row.id for row, _ in made],
                [row.text_hash for row, _ in made],
                [vector for _, vector in made],
            ],
        )
    return len(made)


def vectors_remove(model_ids: Sequence[int]) -> None:
    with connection.cursor() as cursor:
        for searched in SEARCHED:
            cursor.execute(
                f"DELETE FROM {searched.vectors} WHERE model_id = ANY(%s) AND model_id IN"
                " (SELECT id FROM memories_embeddingmodel WHERE state = 'retired')",
                [list(model_ids)],
            )


def columns_resize(dimensions: int) -> None:
    """Change the dimensions of the columns. Removes all vectors."""
    with connection.cursor() as cursor:
        for searched in SEARCHED:
            cursor.execute(f"TRUNCATE {searched.vectors}")
            cursor.execute(f"ALTER TABLE {searched.vectors} ALTER COLUMN embedding TYPE halfvec({dimensions:d})")
            store_vectors_in_rows(cursor, searched.vectors)


def literal(vector: npt.NDArray[np.float32]) -> str:
    return "[" + ",".join(map(str, vector.tolist())) + "]"


def _waiting(searched: SearchableTable) -> str:
    return _WAITING.format(rows=searched.rows, vectors=searched.vectors, owner=searched.owner, text=searched.text)
