"""The tables that curation writes, with their rows as JSON: read, insert, update and delete many in one statement."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from categories.kinds import VOCABULARIES
from curation.working_copy import TableRow, TermRef, WorkingCopy
from web.sql import execute, fetch, fetch_column

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


def working_copy_of(kind: str, refs: Iterable[TermRef]) -> WorkingCopy:
    """A working copy of terms of a kind, with the rows that refer to them."""
    if kind == "category":
        # The whole tree: paths are unique among all categories.
        return WorkingCopy(
            {
                "category": read_rows("category"),
                "former_path": read_rows("former_path"),
                "local_text": read_rows("local_text", "kind = 'category'"),
            }
        )
    parameters = {"kind": kind, "refs": list(refs)}
    local_texts = read_rows(
        "local_text",
        "kind = 'tag' AND (tag = ANY(%(refs)s) OR lower(text) = ANY(%(refs)s) AND role <> 'description')"
        if kind == "tag"
        else "kind = %(kind)s AND term_id = ANY(%(refs)s::bigint[])",
        parameters,
    )
    if kind == "tag":
        aliases = read_rows("tag_alias", "tag = ANY(%(refs)s) OR alias = ANY(%(refs)s)", parameters)
        return WorkingCopy({"tag_alias": aliases, "local_text": local_texts})
    if kind == "concept":
        condition = (
            "id = ANY(%(refs)s) OR broader_ids && %(refs)s::integer[] OR narrower_ids && %(refs)s::integer[]"
            " OR related_ids && %(refs)s::integer[]"
        )
        return WorkingCopy({"concept": read_rows("concept", condition, parameters), "local_text": local_texts})
    relationships = read_rows("relationship", "source_id = ANY(%(refs)s) OR target_id = ANY(%(refs)s)", parameters)
    entities = read_rows("entity", "id = ANY(%(refs)s)", parameters)
    return WorkingCopy({"entity": entities, "relationship": relationships, "local_text": local_texts})


def broader_concepts() -> dict[int, set[int]]:
    """The ids of the directly broader concepts of each concept, from either side of the relation."""
    above: dict[int, set[int]] = {}
    for narrower, broader in fetch(
        "SELECT id, unnest(broader_ids) FROM categories_concept WHERE broader_ids <> '{}'"
        " UNION SELECT unnest(narrower_ids), id FROM categories_concept WHERE narrower_ids <> '{}'"
    ):
        above.setdefault(narrower, set()).add(broader)
    return above


def insert_rows(table: str, rows: Sequence[TableRow]) -> list[int]:
    """Insert rows, which all have the same columns; other columns get their database defaults. Returns the ids."""
    if not rows:
        return []
    columns = ", ".join(f'"{name}"' for name in rows[0])
    statement = (
        f"INSERT INTO {NAMES[table]} ({columns}) SELECT {columns}"
        f" FROM jsonb_populate_recordset(NULL::{NAMES[table]}, %s::jsonb)"
    )
    if table not in VECTORS.values():
        return fetch_column(f"{statement} RETURNING id", [json.dumps(rows)])
    execute(statement, [json.dumps(rows)])
    return []


def update_rows(table: str, rows: Iterable[TableRow]) -> None:
    """Set the columns that each row has besides its id."""
    by_columns: dict[tuple[str, ...], list[TableRow]] = {}
    for row in rows:
        by_columns.setdefault(tuple(sorted(row.keys() - {"id"})), []).append(row)
    if table == "category" and any("path" in columns for columns in by_columns):
        # The unique constraint is checked row by row, so paths that are exchanged are freed first.
        moved = [row["id"] for columns, group in by_columns.items() if "path" in columns for row in group]
        execute("UPDATE categories_category SET path = '//' || id WHERE id = ANY(%s)", [moved])
    for columns, group in by_columns.items():
        assignments = ", ".join(f'"{name}" = made."{name}"' for name in columns)
        execute(
            f"UPDATE {NAMES[table]} own SET {assignments}"
            f" FROM jsonb_populate_recordset(NULL::{NAMES[table]}, %s::jsonb) made WHERE own.id = made.id",
            [json.dumps(group)],
        )


def delete_rows(table: str, ids: Collection[int]) -> None:
    execute(f"DELETE FROM {NAMES[table]} WHERE id = ANY(%s)", [list(ids)])
