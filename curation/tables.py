"""The tables that curation writes, and rows of them as JSON: read, made, changed and removed, many in a statement."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from curation.working_copy import Row

# What is derived of the others: worked out anew, never compared.
DERIVED = ("terms", "terms_hash")


@dataclass(frozen=True, slots=True)
class LinkTable:
    """A kind's links to memories, and the columns of the memory that repeat them."""

    table: str
    column: str
    facet: str
    facet_below: str
    """The facet that also holds what is above: a category's."""


LINKS = {
    "category": LinkTable("categories_categorylink", "category_id", "category_ids", "category_path_ids"),
    "concept": LinkTable("categories_conceptlink", "concept_id", "concept_ids", "concept_ids"),
    "entity": LinkTable("categories_entitylink", "entity_id", "entity_ids", "entity_ids"),
}
NAMES = {
    "category": "categories_category",
    "concept": "categories_concept",
    "entity": "categories_entity",
    "relationship": "categories_relationship",
    "former_path": "categories_formerpath",
    "tag_alias": "categories_tagalias",
    "entity_vector": "categories_entityvector",
    "relationship_vector": "categories_relationshipvector",
}
# What stands for itself, and what refers to it. A former path goes with its category, so it is led elsewhere first.
TERMS = ("category", "concept", "entity")
REFERRING = ("relationship", "former_path", "tag_alias")
VECTORS = {"entity": "entity_vector", "relationship": "relationship_vector"}


def rows_read(table: str, condition: str = "true", parameters: Mapping[str, Any] | None = None) -> dict[int, Row]:
    """Rows by id, without what is derived."""
    without = " ".join(f"- '{name}'" for name in DERIVED)
    statement = f"SELECT to_jsonb(own) {without} FROM {NAMES[table]} own WHERE {condition} ORDER BY id"
    return {row["id"]: row for row in json_rows(statement, parameters or {})}


def images_of(table: str, ids: Collection[int], *, key: str = "id", lock: bool = False) -> list[Row]:
    """Whole rows, by their ids or by another column."""
    statement = f"SELECT to_jsonb(own) FROM {NAMES[table]} own WHERE {key} = ANY(%(ids)s) ORDER BY {key}"
    return json_rows(statement + (" FOR UPDATE" if lock else ""), {"ids": list(ids)})


def json_rows(statement: str, parameters: Mapping[str, Any]) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [json.loads(row) if isinstance(row, str) else row for (row,) in cursor.fetchall()]


def rows_insert(table: str, rows: Sequence[Row]) -> list[int]:
    """Put rows in as they are given; columns that are not named get what the database gives them. All name the same."""
    if not rows:
        return []
    columns = ", ".join(f'"{name}"' for name in rows[0])
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {NAMES[table]} ({columns}) SELECT {columns}"
            f" FROM jsonb_populate_recordset(NULL::{NAMES[table]}, %s::jsonb)"
            + (" RETURNING id" if table not in VECTORS.values() else ""),
            [json.dumps(rows)],
        )
        return [row[0] for row in cursor.fetchall()] if table not in VECTORS.values() else []


def rows_update(table: str, rows: Iterable[Row]) -> None:
    """Set the columns that each row names, beside its id."""
    by_columns: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        by_columns.setdefault(tuple(sorted(row.keys() - {"id"})), []).append(row)
    with connection.cursor() as cursor:
        if table == "category" and any("path" in columns for columns in by_columns):
            # No two may have the same path, not even for a moment between two rows of a statement.
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


def rows_delete(table: str, ids: Collection[int]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {NAMES[table]} WHERE id = ANY(%s)", [list(ids)])


def new_columns(table: str, now: str) -> Row:
    """What a new row has that a verb says nothing of."""
    if table in ("category", "concept", "entity", "relationship"):
        return {"batch_id": None, "created_at": now}
    return {}
