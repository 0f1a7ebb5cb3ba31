"""The way back: the changes of a curation, the last one first, each only where what it left is still there.

Nothing is guessed: a row that somebody changed since stands in the way, and is named.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, IntegrityError, connection, transaction

from categories.models import Relationship
from curation.facet_columns import tags_read, tags_write
from curation.journal import links_set, unnest_of, unnested
from curation.models import Curation, CurationChange
from curation.tables import DERIVED, LINKS, VECTORS, images_of, rows_delete, rows_insert, rows_update
from curation.working_copy import Row
from memories.models import EmbeddingModel
from web.errors import Refusal

Action = CurationChange.Action
_NAMED = 5


class UndoRefusedError(Refusal):
    """A curation cannot be undone. The message says why."""

    status = 409
    code = "undo_refused"
    suggestion = "Undo later changes first, or correct it by another operation."


@dataclass
class Touched:
    """What has to be worked out anew: the memories whose links changed, by kind, and entities whose text did."""

    relinked: dict[str, set[int]] = field(default_factory=dict)
    entity_ids: set[int] = field(default_factory=set)

    def links(self, kind: str, memory_ids: Iterable[int]) -> None:
        self.relinked.setdefault(kind, set()).update(memory_ids)


def replay(curation: Curation) -> Touched:
    """Put back what a curation changed. Call it in a transaction, which a refusal ends."""
    touched = Touched()
    for change in curation.changes.order_by("-id").iterator(chunk_size=10):
        _STEPS[Action(change.action)](change, touched)
    try:
        # What a row refers to must be there again too: better found here than when the transaction ends.
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except IntegrityError as error:
        raise UndoRefusedError("Something that it would restore belongs to something deleted since.") from error
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL DEFERRED")
    return touched


# --- rows of the vocabulary -------------------------------------------------------------------------------------------


def _insert_back(change: CurationChange, touched: Touched) -> None:
    table, made = change.table, change.after
    now = {row["id"]: row for row in images_of(table, [row["id"] for row in made], lock=True)}
    for row in made:
        _refuse_differing(table, row, now.get(row["id"]))
        _refuse_in_use(table, row)
    rows_delete(table, [row["id"] for row in made])


def _update_back(change: CurationChange, touched: Touched) -> None:
    table, before = change.table, change.before
    ids = [row["id"] for row in before]
    now = {row["id"]: row for row in images_of(table, ids, lock=True)}
    for row in change.after:
        _refuse_differing(table, row, now.get(row["id"]))
    if table == "category" and (moved := [row["id"] for row in before if "parent_id" in row]):
        touched.links("category", _below(moved))
    _entities_touched(table, before, now, touched)
    _or_taken(table, lambda: rows_update(table, before))


def _delete_back(change: CurationChange, touched: Touched) -> None:
    table, before = change.table, change.before
    if table in VECTORS.values():
        _vectors_back(table, before)
        return
    _or_taken(table, lambda: rows_insert(table, before))
    _entities_touched(table, before, {}, touched)


def _refuse_differing(table: str, left: Row, now: Row | None) -> None:
    """What the curation left of a row must be what it is now."""
    if now is None:
        raise UndoRefusedError(f"{_told(table, left)} no longer exists.")
    if differing := [name for name in left if name not in DERIVED and now[name] != left[name]]:
        what = ", ".join(name.removesuffix("_ids").replace("_", " ") for name in differing)
        raise UndoRefusedError(f"{_told(table, now)} was changed since: its {what}.")


def _refuse_in_use(table: str, row: Row) -> None:
    """What a curation made goes only where nothing has come to use it."""
    if table not in LINKS:
        return
    links = LINKS[table]
    statement = f"SELECT EXISTS (SELECT 1 FROM {links.table} WHERE {links.column} = %(id)s)"
    if table == "entity":
        statement += " OR EXISTS (SELECT 1 FROM categories_relationship WHERE %(id)s IN (source_id, target_id))"
    if table == "category":
        statement += " OR EXISTS (SELECT 1 FROM categories_category WHERE parent_id = %(id)s)"
    with connection.cursor() as cursor:
        cursor.execute(statement, {"id": row["id"]})
        if cursor.fetchone()[0]:
            raise UndoRefusedError(f"{_told(table, row)}, which it created, is used since.")


def _or_taken(table: str, write: Callable[[], object]) -> None:
    try:
        with transaction.atomic():
            write()
    except IntegrityError as error:
        raise UndoRefusedError(
            f"A name or a path that a {table.replace('_', ' ')} had is used by another now."
        ) from error


def _vectors_back(table: str, rows: Sequence[Row]) -> None:
    """Those of models that are in use still, and of the width that the column has; the worker makes others anew."""
    models = set(EmbeddingModel.objects.exclude(state="retired").values_list("pk", flat=True))
    try:
        with transaction.atomic():
            rows_insert(table, [row for row in rows if row["model_id"] in models])
    except DatabaseError:
        return


def _entities_touched(table: str, rows: Iterable[Row], now: dict[int, Row], touched: Touched) -> None:
    if table == "entity":
        touched.entity_ids |= {row["id"] for row in rows}
    elif table == "relationship":
        ids = [row["id"] for row in rows]
        touched.entity_ids |= set(Relationship.objects.filter(pk__in=ids).values_list("source_id", flat=True))
        touched.entity_ids |= {row["source_id"] for row in rows if "source_id" in row}


def _below(category_ids: Collection[int]) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM memories_memory WHERE category_path_ids && %s::integer[]", [list(category_ids)])
        return [row[0] for row in cursor.fetchall()]


def _told(table: str, row: Row) -> str:
    number = f"#{row['id']}"
    name = row.get("path") or row.get("name") or row.get("alias")
    return f"The {table.replace('_', ' ')} {name} ({number})" if name else f"The {table.replace('_', ' ')} {number}"


# --- links ------------------------------------------------------------------------------------------------------------


def _relink_back(change: CurationChange, touched: Touched) -> None:
    kind, ids = change.table, change.memory_ids or []
    links = LINKS[kind]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT memory_id FROM {links.table} WHERE {links.column} = %s AND memory_id = ANY(%s)",
            [change.source_id, ids],
        )
        _refuse_memories([row[0] for row in cursor.fetchall()], f"has the {kind} again")
        cursor.execute(
            f"UPDATE {links.table} SET {links.column} = %s WHERE {links.column} = %s AND memory_id = ANY(%s)"
            " RETURNING memory_id",
            [change.source_id, change.target_id, ids],
        )
        _refuse_memories(set(ids) - {row[0] for row in cursor.fetchall()}, f"has lost the {kind}")
    touched.links(kind, ids)


def _unlink_back(change: CurationChange, touched: Touched) -> None:
    kind, rows = change.table, change.before
    links = LINKS[kind]
    ids = [row[0] for row in rows]
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM memories_memory WHERE id = ANY(%s)", [ids])
        _refuse_memories(set(ids) - {row[0] for row in cursor.fetchall()}, "is deleted")
        cursor.execute(
            f"INSERT INTO {links.table} (memory_id, {links.column}, made_by, weight, created_at)"
            f" SELECT memory_id, {links.column}, made_by, weight, created_at FROM {unnested(links.column)}"
            " ON CONFLICT DO NOTHING RETURNING memory_id",
            unnest_of(rows),
        )
        returned = [row[0] for row in cursor.fetchall()]
    if len(returned) != len(rows):
        _refuse_memories(set(ids) - set(returned) or ids[:1], f"has the {kind} again")
    touched.links(kind, ids)


def _weigh_back(change: CurationChange, touched: Touched) -> None:
    links = LINKS[change.table]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT made.memory_id FROM {unnested(links.column)} LEFT JOIN {links.table} own"
            f" ON own.memory_id = made.memory_id AND own.{links.column} = made.{links.column}"
            " WHERE (own.made_by, own.weight, own.created_at)"
            " IS DISTINCT FROM (made.made_by::varchar, made.weight, made.created_at)",
            unnest_of(change.after),
        )
        _refuse_memories([row[0] for row in cursor.fetchall()], f"has another link to the {change.table}")
    links_set(change.table, change.before)


def _link_back(change: CurationChange, touched: Touched) -> None:
    kind, ids = change.table, change.memory_ids or []
    links = LINKS[kind]
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {links.table} WHERE {links.column} = %s AND memory_id = ANY(%s)"
            " AND made_by = %s AND weight = %s AND created_at = %s RETURNING memory_id",
            [change.target_id, ids, *change.after[1:]],
        )
        _refuse_memories(set(ids) - {row[0] for row in cursor.fetchall()}, f"has another link to the {kind}, or none")
    touched.links(kind, ids)


def _tags_back(change: CurationChange, touched: Touched) -> None:
    now = tags_read([memory_id for memory_id, _ in change.after])
    _refuse_memories([one for one, tags in change.after if now.get(one) != tags], "has other tags")
    tags_write(change.before)


def _refuse_memories(memory_ids: Collection[int], what: str) -> None:
    """Name the memories that stand in the way. Whoever may undo may write all of them."""
    if memory_ids:
        named = ", ".join(f"#{memory_id}" for memory_id in sorted(memory_ids)[:_NAMED])
        more = f" and {len(memory_ids) - _NAMED:,} more" if len(memory_ids) > _NAMED else ""
        verb = what if len(memory_ids) == 1 else what.replace("has ", "have ", 1).replace("is ", "are ", 1)
        raise UndoRefusedError(f"{named}{more} {verb} since.")


_STEPS: dict[Action, Callable[[Any, Touched], None]] = {
    Action.INSERT: _insert_back,
    Action.UPDATE: _update_back,
    Action.DELETE: _delete_back,
    Action.RELINK: _relink_back,
    Action.UNLINK: _unlink_back,
    Action.WEIGH: _weigh_back,
    Action.LINK: _link_back,
    Action.TAG: _tags_back,
}
