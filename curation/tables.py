"""The tables that curation writes, with their rows as JSON: read, insert, update and delete many in one statement."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from django.db import connection

from categories.kinds import VOCABULARIES
from curation.working_copy import TableRow

# Columns computed from the others: refreshed afterwards, never compared.
DERIVED = ("terms", "terms_hash")

NAMES = {
    **{name: vocabulary.table for name, vocabulary in VOCABULARIES.items()},
    "relationship": "categories_relationship",
    "former_path": "categories_formerpath",
    "tag_alias": "categories_tagalias",
    "local_text": "categories_localtext",
    "entity_vector": "categories_entityvector",
    "relationship_vector": "categories_relationshipvector",
}
# Tables that refer to terms. The database deletes a former path with its category, so it is updated first.
REFERRING = ("relationship", "former_path", "tag_alias", "local_text")
VECTORS = {"entity": "entity_vector", "relationship": "relationship_vector"}


def fetch(statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
    """All rows of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return list(cursor.fetchall())


def fetch_column(statement: str, parameters: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
    """The first column of all rows of a statement."""
    return [row[0] for row in fetch(statement, parameters)]


def read_rows(table: str, condition: str = "true", parameters: Mapping[str, Any] | None = None) -> dict[int, TableRow]:
    """Rows by id, without their derived columns."""
    without = " ".join(f"- '{name}'" for name in DERIVED)
    statement = f"SELECT to_jsonb(own) {without} FROM {NAMES[table]} own WHERE {condition} ORDER BY id"
    return {row["id"]: row for row in _json_rows(statement, parameters or {})}


def read_full_rows(table: str, ids: Collection[int], *, key: str = "id", lock: bool = False) -> list[TableRow]:
    """Whole rows, by their ids or by another column."""
    statement = f"SELECT to_jsonb(own) FROM {NAMES[table]} own WHERE {key} = ANY(%(ids)s) ORDER BY {key}"
    return _json_rows(statement + (" FOR UPDATE" if lock else ""), {"ids": list(ids)})


def _json_rows(statement: str, parameters: Mapping[str, Any]) -> list[TableRow]:
    return [load_json(row) for row in fetch_column(statement, parameters)]


def load_json(value: Any) -> Any:
    """A value of type jsonb, which a cursor gives as text or decoded."""
    return json.loads(value) if isinstance(value, str) else value


def insert_rows(table: str, rows: Sequence[TableRow]) -> list[int]:
    """Insert rows, which all have the same columns; other columns get their database defaults. Returns the ids."""
    if not rows:
        return []
    columns = ", ".join(f'"{name}"' for name in rows[0])
    returning = "" if table in VECTORS.values() else " RETURNING id"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {NAMES[table]} ({columns}) SELECT {columns}"
            f" FROM jsonb_populate_recordset(NULL::{NAMES[table]}, %s::jsonb){returning}",
            [json.dumps(rows)],
        )
        return [row[0] for row in cursor.fetchall()] if returning else []


def update_rows(table: str, rows: Iterable[TableRow]) -> None:
    """Set the columns that each row has besides its id."""
    by_columns: dict[tuple[str, ...], list[TableRow]] = {}
    for row in rows:
        by_columns.setdefault(tuple(sorted(row.keys() - {"id"})), []).append(row)
    with connection.cursor() as cursor:
        if table == "category" and any("path" in columns for columns in by_columns):
            # The unique constraint is checked row by row, so paths that are exchanged are freed first.
            cursor.execute(
                "UPDATE categories_category SET path = '//' || id WHERE id = ANY(%s)",
                [[row["id"] for columns, group in by_columns.items() if "path" in columns for row in group]],
            )
        for columns, group in by_columns.items():
            assignments = ", ".join(f'"{name}" = made."{name}"' for name in columns)
            cursor.execute(
                f"UPDATE {NAMES[table]} own SET {assignments}"
                f" FROM jsonb_populate_recordset(NULL::{NAMES[table]}, %s::jsonb) made WHERE own.id = made.id",
                [json.dumps(group)],
            )


def delete_rows(table: str, ids: Collection[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {NAMES[table]} WHERE id = ANY(%s)", [list(ids)])
