"""Executes the changes of a curation, and records each with the previous values; `curation.undo` reverts them.

Links are changed by statements on sets: the hundred thousand links of a term take three statements.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

from django.utils import timezone

from categories.kinds import VOCABULARIES
from curation.column_edits import write_columns
from curation.facet_columns import read_tags, write_tags
from curation.models import CurationChange
from curation.queries import linked_ids
from curation.tables import (
    REFERRING,
    VECTORS,
    delete_rows,
    insert_rows,
    load_json,
    read_full_rows,
    read_rows,
    update_rows,
)
from curation.working_copy import ColumnEdit, Relink, RowChange, StateChange, TableRow, tags_after
from web.sql import execute, fetch, fetch_column

Action = CurationChange.Action

# Links in one row of the journal.
BLOCK = 20_000
# When two links are combined, the more reliable origin wins.
_RANKS = "array_position(ARRAY['human', 'import', 'model'], {0}.made_by::text)"
# Columns that refer to a row of a vocabulary.
_REFERENCES = {"source_id": "entity", "target_id": "entity", "parent_id": "category"}
_LINK_VALUES = "memory_id, {column}, made_by, weight, created_at"


@dataclass
class Journal:
    """The changes of one curation. `new_ids` has the database ids of new rows, by table and id in the copy."""

    curation_id: int
    made_by: str
    new_ids: dict[tuple[str, int], int] = field(default_factory=dict)
    relinked: dict[str, set[int]] = field(default_factory=dict)
    """Ids of memories whose links changed, by kind."""

    def write(self, changes: Sequence[RowChange], relinks: Iterable[Relink]) -> None:
        """Execute all changes but those of tags, in an order that frees paths and keys before they are used again."""
        self._delete(changes, REFERRING)
        now = timezone.now().isoformat()
        for change in changes:
            if change.is_new:
                self._insert(change, now)
        self._update(changes, REFERRING)
        self._relink(relinks)
        self._delete(changes, tuple(VOCABULARIES))
        self._update(changes, tuple(VOCABULARIES))

    def _delete(self, changes: Sequence[RowChange], tables: Sequence[str]) -> None:
        """Delete rows. The database deletes their vectors with them."""
        for table in tables:
            ids = [change.id for change in changes if change.table == table and change.values is None]
            if not ids:
                continue
            if vectors := VECTORS.get(table):
                self._record(vectors, Action.DELETE, before=read_full_rows(vectors, ids, key=f"{table}_id"))
            self._record(table, Action.DELETE, before=read_full_rows(table, ids, lock=True))
            delete_rows(table, ids)

    def _insert(self, change: RowChange, now: str) -> None:
        imported = {"batch_id": None, "created_at": now} if change.table in (*VOCABULARIES, "relationship") else {}
        row = {**imported, **self._with_new_ids(change.table, change.values or {})}
        created = insert_rows(change.table, [row])[0]
        self.new_ids[change.table, change.id] = created
        after = read_rows(change.table, "id = %(id)s", {"id": created})
        self._record(change.table, Action.INSERT, after=list(after.values()))

    def _update(self, changes: Sequence[RowChange], tables: Sequence[str]) -> None:
        for table in tables:
            after = [
                {"id": change.id, **self._with_new_ids(table, change.values)}
                for change in changes
                if change.table == table and change.values is not None and not change.is_new
            ]
            if not after:
                continue
            stored = {row["id"]: row for row in read_full_rows(table, [row["id"] for row in after], lock=True)}
            before = [{name: stored[row["id"]][name] for name in row} for row in after]
            update_rows(table, after)
            self._record(table, Action.UPDATE, before=before, after=after)

    def _with_new_ids(self, table: str, values: Mapping[str, Any]) -> TableRow:
        """Column values, with the database ids of new rows."""
        row = dict(values)
        for name, kind in _REFERENCES.items():
            if row.get(name) is not None:
                row[name] = self._id(kind, row[name])
        if table == "local_text" and (row.get("term_id") or 0) < 0:
            row["term_id"] = self._id(row["kind"], row["term_id"])
        for name in VOCABULARIES[table].relations if table in VOCABULARIES else ():
            if any(related < 0 for related in row.get(name, ())):
                row[name] = sorted(self._id(table, related) for related in row[name])
        return row

    def _record(self, table: str, action: Action, **values: Any) -> None:
        if any(values.values()):
            CurationChange.objects.create(curation_id=self.curation_id, table=table, action=action, **values)

    # --- links ------------------------------------------------------------------------------------------------------

    def _relink(self, relinks: Iterable[Relink]) -> None:
        """Move, create and remove links. Tags are columns of the memories, written by the services."""
        for relink in relinks:
            if relink.kind not in VOCABULARIES:
                continue
            sources = [self._id(relink.kind, source) for source in relink.sources]
            target = None if relink.target is None else self._id(relink.kind, relink.target)
            ids = None if relink.memory_ids is None else list(relink.memory_ids)
            if target is None:
                self._remove(relink.kind, sources, ids)
            elif not sources:
                self._add(relink.kind, target, ids or [])
            else:
                for source in sources:
                    self._move(relink.kind, source, target, ids)

    def _id(self, kind: str, ref: int | str) -> int:
        return self.new_ids.get((kind, int(ref)), int(ref))

    def _move(self, kind: str, source: int, target: int, ids: list[int] | None) -> None:
        """Move links to the target. Two links of a memory are combined, with the better values."""
        table, column = VOCABULARIES[kind].link_table, VOCABULARIES[kind].link_column
        chosen = _where("source", column, ids)
        parameters = {"sources": [source], "target": target, "ids": ids}
        rows = fetch(
            f"SELECT jsonb_build_array(target.memory_id, target.{column}, target.made_by, target.weight,"
            f" target.created_at), jsonb_build_array(target.memory_id, target.{column},"
            f" CASE WHEN {_RANKS.format('source')} < {_RANKS.format('target')}"
            " THEN source.made_by ELSE target.made_by END, greatest(source.weight, target.weight),"
            f" least(source.created_at, target.created_at)) FROM {table} source JOIN {table} target"
            f" ON target.memory_id = source.memory_id AND target.{column} = %(target)s WHERE {chosen}",
            parameters,
        )
        pairs = [(load_json(before), load_json(after)) for before, after in rows]
        better = [(before, after) for before, after in pairs if before != after]
        for start in range(0, len(better), BLOCK):
            block = better[start : start + BLOCK]
            self._record(
                kind,
                Action.WEIGH,
                target_id=target,
                memory_ids=[b[0] for b, _ in block],
                before=[b for b, _ in block],
                after=[a for _, a in block],
            )
            set_links(kind, [after for _, after in block])
        if pairs:
            self._remove(kind, [source], [before[0] for before, _ in pairs])
        moved = sorted(
            fetch_column(
                f"UPDATE {table} source SET {column} = %(target)s WHERE {chosen} RETURNING memory_id", parameters
            )
        )
        self._record(kind, Action.RELINK, source_id=source, target_id=target, memory_ids=moved)
        self._mark_relinked(kind, moved)

    def _remove(self, kind: str, sources: list[int], ids: list[int] | None) -> None:
        table, column = VOCABULARIES[kind].link_table, VOCABULARIES[kind].link_column
        rows = fetch(
            f"DELETE FROM {table} source WHERE {_where('source', column, ids)}"
            f" RETURNING {_LINK_VALUES.format(column=column)}",
            {"sources": sources, "ids": ids},
        )
        removed = sorted(map(_recorded, rows), key=lambda row: (row[0], row[1]))
        for start in range(0, len(removed), BLOCK):
            block = removed[start : start + BLOCK]
            self._record(kind, Action.UNLINK, memory_ids=sorted({row[0] for row in block}), before=block)
        self._mark_relinked(kind, (row[0] for row in removed))

    def _add(self, kind: str, target: int, ids: list[int]) -> None:
        table, column = VOCABULARIES[kind].link_table, VOCABULARIES[kind].link_column
        rows = fetch(
            f"INSERT INTO {table} (memory_id, {column}, made_by, weight, created_at)"
            " SELECT id, %s, %s, 1, now() FROM unnest(%s::bigint[]) AS chosen (id) ON CONFLICT DO NOTHING"
            f" RETURNING {_LINK_VALUES.format(column=column)}",
            [target, self.made_by, ids],
        )
        created = sorted(map(_recorded, rows), key=lambda row: row[0])
        if created:
            # New links differ only in their memories.
            memory_ids = [row[0] for row in created]
            self._record(kind, Action.LINK, target_id=target, memory_ids=memory_ids, after=created[0][1:])
            self._mark_relinked(kind, memory_ids)

    def _mark_relinked(self, kind: str, memory_ids: Iterable[int]) -> None:
        self.relinked.setdefault(kind, set()).update(memory_ids)

    def term_ids(self, changes: Sequence[RowChange]) -> dict[str, set[int]]:
        """Ids by kind of the remaining rows whose text, or whose relationships' text, may have changed."""
        remaining = [(change.table, change.id) for change in changes if change.values is not None]
        found: dict[str, set[int]] = {kind: set() for kind in VOCABULARIES}
        for key in remaining:
            if key[0] in found:
                found[key[0]].add(self.new_ids.get(key, key[1]))
        facts = [self.new_ids.get(key, key[1]) for key in remaining if key[0] == "relationship"]
        found["entity"] |= {row["source_id"] for row in read_full_rows("relationship", facts)}
        return found

    def move_tags(self, relinks: Iterable[Relink]) -> None:
        """Compute the resulting tags of memories, write each memory once, and record its old and new tags."""
        steps = [relink for relink in relinks if relink.kind == "tag"]
        chosen = [
            set(linked_ids("tag", step.sources) if step.memory_ids is None else step.memory_ids) for step in steps
        ]
        before = read_tags(set().union(*chosen)) if steps else {}
        after = {
            memory_id: tags_after(tags, [step for step, ids in zip(steps, chosen, strict=True) if memory_id in ids])
            for memory_id, tags in before.items()
        }
        changed = sorted(memory_id for memory_id, tags in after.items() if tags != before[memory_id])
        write_tags((memory_id, after[memory_id]) for memory_id in changed)
        for start in range(0, len(changed), BLOCK):
            ids = changed[start : start + BLOCK]
            old, new = ([(memory_id, tags[memory_id]) for memory_id in ids] for tags in (before, after))
            self._record("memory", Action.TAG, memory_ids=ids, before=old, after=new)

    def set_columns(self, edits: Sequence[ColumnEdit]) -> None:
        """Set columns of memories, and record those that change."""
        write_columns({edit.memory_id: edit.after for edit in edits})
        for start in range(0, len(edits), BLOCK):
            block = edits[start : start + BLOCK]
            before, after = ([[edit.memory_id, side(edit)] for edit in block] for side in _SIDES)
            ids = [edit.memory_id for edit in block]
            self._record("memory", Action.COLUMNS, memory_ids=ids, before=before, after=after)

    def set_state(self, change: StateChange) -> None:
        """Set the state of memories, a block in one statement. Without a successor they keep the one they have."""
        for start in range(0, len(change.memory_ids), BLOCK):
            ids = list(change.memory_ids[start : start + BLOCK])
            before = read_states(ids)
            after = [[row[0], change.state, change.reason, change.successor_id or row[3]] for row in before]
            write_states(after)
            self._record("memory", Action.STATE, memory_ids=ids, before=before, after=after)


_SIDES = (attrgetter("before"), attrgetter("after"))


def _recorded(link: Sequence[Any]) -> list[Any]:
    """The values of a link as the journal has them: a moment as text."""
    *values, moment = link
    return [*values, moment.isoformat()]


def read_states(memory_ids: Sequence[int]) -> list[list[Any]]:
    """Ids, states, reasons and successors of memories. The caller holds `VOCABULARY_LOCK` alone; see `read_tags`."""
    rows = fetch(
        "SELECT id, state, state_reason, superseded_by_id FROM memories_memory WHERE id = ANY(%s) ORDER BY id",
        [list(memory_ids)],
    )
    return [list(row) for row in rows]


def write_states(rows: Sequence[Sequence[Any]]) -> None:
    """Set the states, reasons and successors of memories."""
    if not rows:
        return
    ids, states, reasons, successors = zip(*rows, strict=True)
    execute(
        "UPDATE memories_memory memory SET state = made.state, state_reason = made.reason,"
        " superseded_by_id = made.successor, updated_at = now()"
        " FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[]) AS made (id, state, reason, successor)"
        " WHERE memory.id = made.id",
        [list(ids), list(states), list(reasons), list(successors)],
    )


def set_links(kind: str, rows: Sequence[Sequence[Any]]) -> None:
    """Set the origin, the weight and the time of links."""
    table, column = VOCABULARIES[kind].link_table, VOCABULARIES[kind].link_column
    execute(
        f"UPDATE {table} own SET made_by = made.made_by, weight = made.weight, created_at = made.created_at"
        f" FROM {unnest_links(column)} WHERE own.memory_id = made.memory_id"
        f" AND own.{column} = made.{column}",
        unnest_parameters(rows),
    )


def unnest_links(column: str) -> str:
    """An SQL table of recorded links; `unnest_parameters` gives its parameters."""
    return (
        "unnest(%(memory_ids)s::bigint[], %(term_ids)s::bigint[], %(makers)s::text[], %(weights)s::float8[],"
        f" %(moments)s::timestamptz[]) AS made (memory_id, {column}, made_by, weight, created_at)"
    )


def unnest_parameters(rows: Sequence[Sequence[Any]]) -> Mapping[str, list[Any]]:
    columns = ("memory_ids", "term_ids", "makers", "weights", "moments")
    return {name: [row[at] for row in rows] for at, name in enumerate(columns)}


def _where(alias: str, column: str, ids: list[int] | None) -> str:
    """The condition for links of the sources, restricted to memories if there are ids."""
    condition = f"{alias}.{column} = ANY(%(sources)s::bigint[])"
    return condition if ids is None else f"{condition} AND {alias}.memory_id = ANY(%(ids)s::bigint[])"
