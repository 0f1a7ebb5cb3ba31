"""The vectors of entities and relationships: what waits for a model, what is written, and what is near to a vector.

As with memories, nothing is queued: a row waits for a model while the hash of its text is not the one that the model
embedded last. There are thousands, so that both are looked through as a whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from django.db import connection, transaction

from categories.searched_terms import SEARCHED, SearchableTable

_CLAIMS = 4_711_004  # the first key of the advisory locks

_WAITING = (
    "FROM {rows} LEFT JOIN {vectors} vector ON vector.{owner} = own.id AND vector.model_id = %(model)s"
    " WHERE vector.text_hash IS DISTINCT FROM md5({text})"
)


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row of the vocabulary that waits for a model, with the text it has now."""

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
    """How many entities and relationships a model has yet to embed as they are now."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT " + " + ".join(f"(SELECT count(*) {_waiting(searched)})" for searched in SEARCHED),
            {"model": model_id},
        )
        return int(cursor.fetchone()[0])


def claim(searched: SearchableTable, model_id: int) -> bool:
    """Take what waits of a table for a model for this transaction, unless another worker has it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s, hashtext(%s))", [_CLAIMS, f"{searched.kind} {model_id}"])
        return bool(cursor.fetchone()[0])


@transaction.atomic
def vectors_write(
    searched: SearchableTable, model_id: int, rows: Sequence[PendingRow], vectors: npt.NDArray[np.float32]
) -> None:
    """Put vectors in the place of those that the rows had; a row that is gone is left out.

    What its text was is written down with it: if that changed meanwhile, the row waits again.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {searched.vectors} ({searched.owner}, model_id, text_hash, embedding)"
            " SELECT made.id, %s, made.hash, made.vector::halfvec"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[]) AS made (id, hash, vector)"
            f" JOIN {searched.table} own ON own.id = made.id"
            f" ON CONFLICT ({searched.owner}, model_id)"
            " DO UPDATE SET text_hash = EXCLUDED.text_hash, embedding = EXCLUDED.embedding",
            [
                model_id,
                [row.id for row in rows],
                [row.text_hash for row in rows],
                [literal(vector) for vector in vectors],
            ],
        )


def vectors_remove(model_ids: Sequence[int]) -> None:
    """Remove the vectors of models that serve no more."""
    with connection.cursor() as cursor:
        for searched in SEARCHED:
            cursor.execute(
                f"DELETE FROM {searched.vectors} WHERE model_id = ANY(%s) AND model_id IN"
                " (SELECT id FROM memories_embeddingmodel WHERE state = 'retired')",
                [list(model_ids)],
            )


def columns_resize(dimensions: int) -> None:
    """Make the columns as wide as said. What was in them goes."""
    with connection.cursor() as cursor:
        for searched in SEARCHED:
            cursor.execute(f"TRUNCATE {searched.vectors}")
            cursor.execute(f"ALTER TABLE {searched.vectors} ALTER COLUMN embedding TYPE halfvec({dimensions:d})")
            cursor.execute(f"ALTER TABLE {searched.vectors} ALTER COLUMN embedding SET STORAGE PLAIN")


def literal(vector: npt.NDArray[np.float32]) -> str:
    return "[" + ",".join(map(str, vector.tolist())) + "]"


def _waiting(searched: SearchableTable) -> str:
    return _WAITING.format(rows=searched.rows, vectors=searched.vectors, owner=searched.owner, text=searched.text)
