"""Reverts the changes of a curation, the last one first, each only if its result is unchanged.

A row that changed since is named in the refusal.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, IntegrityError, connection, transaction

from categories.kinds import VOCABULARIES
from categories.models import Relationship
from curation.column_edits import differing_columns, refuse_moves, revert_columns
from curation.facet_columns import read_tags, write_tags
from curation.journal import read_states, set_links, unnest_links, unnest_parameters, write_states
from curation.models import Curation, CurationChange
from curation.queries import memories_with, removed_memories
from curation.tables import DERIVED, VECTORS, delete_rows, insert_rows, read_full_rows, update_rows
from curation.working_copy import ColumnEdit, CurationRefusedError, TableRow
from memories.models import EmbeddingModel
from memories.records import normalise_tag
from web.errors import Refusal
from web.sql import execute, fetch_column

Action = CurationChange.Action
_NAMED = 5
_PLURAL = {"has": "have", "is": "are", "was": "were"}


class UndoRefusedError(Refusal):
    """The curation cannot be undone. The message names what prevents it."""

    status = 409
    code = "undo_refused"
    suggestion = "Undo later changes first, or correct it by another operation."


@dataclass
class AffectedRows:
    """Rows with derived values to refresh: memories by the kind of their changed links, and terms by their kind."""

    relinked: dict[str, set[int]] = field(default_factory=dict)
    term_ids: dict[str, set[int]] = field(default_factory=lambda: {kind: set() for kind in VOCABULARIES})
    retagged: set[int] = field(default_factory=set)
    restored: set[int] = field(default_factory=set)
    edits: list[ColumnEdit] = field(default_factory=list)
    """Changes to columns, which are taken back."""

    def memory_ids(self) -> set[int]:
        """Memories whose tags or links were changed."""
        return self.retagged.union(*self.relinked.values())

    def links(self, kind: str, memory_ids: Iterable[int]) -> None:
        self.relinked.setdefault(kind, set()).update(memory_ids)


def revert(curation: Curation) -> AffectedRows:
    """Restore what a curation changed, in a transaction of the caller's. Raises UndoRefusedError."""
    affected = AffectedRows()
    _refuse_memories(removed_memories([curation.pk]), "was removed")
    for change in curation.changes.order_by("-id").iterator(chunk_size=10):
        _REVERTS[Action(change.action)](change, affected)
    try:
        # Checks deferred foreign keys here, where a violation can be reported.
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except IntegrityError as error:
        raise UndoRefusedError("Something that it would restore belongs to something deleted since.") from error
    execute("SET CONSTRAINTS ALL DEFERRED")
    return affected


# --- rows of the vocabulary -------------------------------------------------------------------------------------------


def _revert_insert(change: CurationChange, affected: AffectedRows) -> None:
    table, created = change.table, change.after
    current = {row["id"]: row for row in read_full_rows(table, [row["id"] for row in created], lock=True)}
    for row in created:
        _refuse_differing(table, row, current.get(row["id"]))
        _refuse_in_use(table, row)
    delete_rows(table, [row["id"] for row in created])


def _revert_update(change: CurationChange, affected: AffectedRows) -> None:
    table, before = change.table, change.before
    ids = [row["id"] for row in before]
    current = {row["id"]: row for row in read_full_rows(table, ids, lock=True)}
    for row in change.after:
        _refuse_differing(table, row, current.get(row["id"]))
    if table == "category" and (moved := [row["id"] for row in before if "parent_id" in row]):
        affected.links("category", memories_with("category", moved).values_list("pk", flat=True))
    _add_terms(table, before, affected)
    _refuse_taken(table, lambda: update_rows(table, before))


def _revert_delete(change: CurationChange, affected: AffectedRows) -> None:
    table, before = change.table, change.before
    if table in VECTORS.values():
        _restore_vectors(table, before)
        return
    _refuse_taken(table, lambda: insert_rows(table, before))
    _add_terms(table, before, affected)


def _refuse_differing(table: str, expected: TableRow, current: TableRow | None) -> None:
    """Refuse if a row differs from the result of the curation."""
    if current is None:
        raise UndoRefusedError(f"{_row_label(table, expected)} no longer exists.")
    if differing := [name for name in expected if name not in DERIVED and current[name] != expected[name]]:
        what = ", ".join(name.removesuffix("_ids").replace("_", " ") for name in differing)
        raise UndoRefusedError(f"{_row_label(table, current)} was changed since: its {what}.")


def _refuse_in_use(table: str, row: TableRow) -> None:
    """Refuse if something uses a row that the curation created."""
    if table not in VOCABULARIES:
        return
    vocabulary = VOCABULARIES[table]
    statement = f"SELECT EXISTS (SELECT 1 FROM {vocabulary.link_table} WHERE {vocabulary.link_column} = %(id)s)"
    if table == "entity":
        statement += " OR EXISTS (SELECT 1 FROM categories_relationship WHERE %(id)s IN (source_id, target_id))"
    if table == "category":
        statement += " OR EXISTS (SELECT 1 FROM categories_category WHERE parent_id = %(id)s)"
    if fetch_column(statement, {"id": row["id"]})[0]:
        raise UndoRefusedError(f"{_row_label(table, row)}, which it created, is used since.")


def _refuse_taken(table: str, write: Callable[[], object]) -> None:
    try:
        with transaction.atomic():
            write()
    except IntegrityError as error:
        raise UndoRefusedError(
            f"A name or a path that a {table.replace('_', ' ')} had is used by another now."
        ) from error


def _restore_vectors(table: str, rows: Sequence[TableRow]) -> None:
    """Restore vectors of current models that fit the column; the worker computes the others."""
    models = set(EmbeddingModel.objects.exclude(state="retired").values_list("pk", flat=True))
    try:
        with transaction.atomic():
            insert_rows(table, [row for row in rows if row["model_id"] in models])
    except DatabaseError:
        return


def _add_terms(table: str, rows: Iterable[TableRow], affected: AffectedRows) -> None:
    if table in affected.term_ids:
        affected.term_ids[table] |= {row["id"] for row in rows}
    elif table == "relationship":
        entities = affected.term_ids["entity"]
        ids = [row["id"] for row in rows]
        entities |= set(Relationship.objects.filter(pk__in=ids).values_list("source_id", flat=True))
        entities |= {row["source_id"] for row in rows if "source_id" in row}


def _row_label(table: str, row: TableRow) -> str:
    label, number = f"The {table.replace('_', ' ')}", f"#{row['id']}"
    name = row.get("path") or row.get("name") or row.get("alias")
    return f"{label} {name} ({number})" if name else f"{label} {number}"


# --- links ------------------------------------------------------------------------------------------------------------


def _revert_relink(change: CurationChange, affected: AffectedRows) -> None:
    kind, ids = change.table, change.memory_ids or []
    table, column = VOCABULARIES[kind].link_table, VOCABULARIES[kind].link_column
    again = fetch_column(
        f"SELECT memory_id FROM {table} WHERE {column} = %s AND memory_id = ANY(%s)", [change.source_id, ids]
    )
    _refuse_memories(again, f"has the {kind} again")
    moved = fetch_column(
        f"UPDATE {table} SET {column} = %s WHERE {column} = %s AND memory_id = ANY(%s) RETURNING memory_id",
        [change.source_id, change.target_id, ids],
    )
    _refuse_memories(set(ids) - set(moved), f"has lost the {kind}")
    affected.links(kind, ids)


def _revert_unlink(change: CurationChange, affected: AffectedRows) -> None:
    kind, rows = change.table, change.before
    table, column = VOCABULARIES[kind].link_table, VOCABULARIES[kind].link_column
    ids = [row[0] for row in rows]
    existing = fetch_column("SELECT id FROM memories_memory WHERE id = ANY(%s)", [ids])
    _refuse_memories(set(ids) - set(existing), "is deleted")
    returned = fetch_column(
        f"INSERT INTO {table} (memory_id, {column}, made_by, weight, created_at)"
        f" SELECT memory_id, {column}, made_by, weight, created_at FROM {unnest_links(column)}"
        " ON CONFLICT DO NOTHING RETURNING memory_id",
        unnest_parameters(rows),
    )
    if len(returned) != len(rows):
        _refuse_memories(set(ids) - set(returned) or ids[:1], f"has the {kind} again")
    affected.links(kind, ids)


def _revert_weigh(change: CurationChange, affected: AffectedRows) -> None:
    table, column = VOCABULARIES[change.table].link_table, VOCABULARIES[change.table].link_column
    differing = fetch_column(
        f"SELECT made.memory_id FROM {unnest_links(column)} LEFT JOIN {table} own"
        f" ON own.memory_id = made.memory_id AND own.{column} = made.{column}"
        " WHERE (own.made_by, own.weight, own.created_at)"
        " IS DISTINCT FROM (made.made_by::varchar, made.weight, made.created_at)",
        unnest_parameters(change.after),
    )
    _refuse_memories(differing, f"has another link to the {change.table}")
    set_links(change.table, change.before)


def _revert_link(change: CurationChange, affected: AffectedRows) -> None:
    kind, ids = change.table, change.memory_ids or []
    table, column = VOCABULARIES[kind].link_table, VOCABULARIES[kind].link_column
    removed = fetch_column(
        f"DELETE FROM {table} WHERE {column} = %s AND memory_id = ANY(%s)"
        " AND made_by = %s AND weight = %s AND created_at = %s RETURNING memory_id",
        [change.target_id, ids, *change.after[1:]],
    )
    _refuse_memories(set(ids) - set(removed), f"has another link to the {kind}, or none")
    affected.links(kind, ids)


def _revert_tags(change: CurationChange, affected: AffectedRows) -> None:
    current = read_tags([memory_id for memory_id, _ in change.after])
    changed = [memory_id for memory_id, after in change.after if current.get(memory_id) != after]
    named = _named_later(change, changed) if changed else {}
    restored: list[tuple[int, list[str]]] = []
    differing = []
    for (memory_id, before), (_, after) in zip(change.before, change.after, strict=True):
        tags = None
        if memory_id in current and not named.get(memory_id, set()) & (set(before) ^ set(after)):
            tags = _tags_without(before, after, current[memory_id])
        if tags is None:
            differing.append(memory_id)
        else:
            restored.append((memory_id, tags))
    _refuse_memories(differing, "has other tags")
    write_tags(restored)
    affected.retagged.update(current)


def _named_later(change: CurationChange, memory_ids: Collection[int]) -> dict[int, set[str]]:
    """The tags by memory that later curations changed or were asked for."""
    found: dict[int, set[str]] = {}
    later = CurationChange.objects.filter(
        action=Action.TAG, pk__gt=change.pk, curation__undone_at=None, memory_ids__overlap=sorted(memory_ids)
    )
    for other in later.select_related("curation"):
        asked = set(_texts_in(other.curation.arguments))
        for (memory_id, before), (_, after) in zip(other.before, other.after, strict=True):
            found.setdefault(memory_id, set()).update(asked, set(before) ^ set(after))
    return found


def _texts_in(values: object) -> Iterable[str]:
    """All texts of arguments, as tags."""
    if isinstance(values, str):
        yield normalise_tag(values)
    elif isinstance(values, dict | list):
        for value in values.values() if isinstance(values, dict) else values:
            yield from _texts_in(value)


def _tags_without(before: list[str], after: list[str], current: list[str]) -> list[str] | None:
    """The current tags as if a change from `before` to `after` had not been made; None if it shows in them no more.

    Later changes of other tags stay. Their order may be another one than if neither had been made.
    """
    if current == after:
        return before
    added, removed = ([tag for tag in one if tag not in other] for one, other in ((after, before), (before, after)))
    if not set(added) <= set(current) or set(removed) & set(current):
        return None
    if added:
        place = min(current.index(tag) for tag in added)
        return [
            *(t for t in current[:place] if t not in added),
            *removed,
            *(t for t in current[place:] if t not in added),
        ]
    tags = list(current)
    for tag in removed:
        # After the nearest of those that it came after.
        ahead = (one for one in reversed(before[: before.index(tag)]) if one in tags)
        tags.insert(tags.index(one) + 1 if (one := next(ahead, None)) is not None else 0, tag)
    return tags


def _revert_state(change: CurationChange, affected: AffectedRows) -> None:
    current = {row[0]: row for row in read_states(change.memory_ids or [])}
    # Journals of earlier versions have no successors.
    differing = [row[0] for row in change.after if current.get(row[0], [])[: len(row)] != row]
    _refuse_memories(differing, "has another state")
    write_states([[*row, *current[row[0]][len(row) :]] for row in change.before])
    affected.restored.update(current)


def _revert_columns(change: CurationChange, affected: AffectedRows) -> None:
    edits = [
        ColumnEdit(memory_id, before, after)
        for (memory_id, before), (_, after) in zip(change.before, change.after, strict=True)
    ]
    differing = differing_columns(edits)
    for column in dict.fromkeys(differing.values()):
        _refuse_memories([pk for pk, other in differing.items() if other == column], f"has another value of {column}")
    try:
        refuse_moves([ColumnEdit(edit.memory_id, edit.after, edit.before) for edit in edits])
    except CurationRefusedError as error:
        raise UndoRefusedError(str(error)) from error
    revert_columns(edits)
    affected.edits += edits


def _refuse_memories(memory_ids: Collection[int], what: str) -> None:
    """Name the memories that prevent the undo. The viewer may write all of them."""
    if memory_ids:
        named = ", ".join(f"#{memory_id}" for memory_id in sorted(memory_ids)[:_NAMED])
        more = f" and {len(memory_ids) - _NAMED:,} more" if len(memory_ids) > _NAMED else ""
        verb = what if len(memory_ids) == 1 else _PLURAL.get(first := what.split()[0], first) + what[len(first) :]
        raise UndoRefusedError(f"{named}{more} {verb} since.")


_REVERTS: dict[Action, Callable[[Any, AffectedRows], None]] = {
    Action.INSERT: _revert_insert,
    Action.UPDATE: _revert_update,
    Action.DELETE: _revert_delete,
    Action.RELINK: _revert_relink,
    Action.UNLINK: _revert_unlink,
    Action.WEIGH: _revert_weigh,
    Action.LINK: _revert_link,
    Action.TAG: _revert_tags,
    Action.STATE: _revert_state,
    Action.COLUMNS: _revert_columns,
}
