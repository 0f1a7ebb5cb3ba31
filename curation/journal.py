"""What a curation does to the tables, each step written down with what stood before; see `undoing` for the way back.

Links are changed by statements over sets: a term's hundred thousand links cost three of them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.utils import timezone

from curation.models import CurationChange
from curation.tables import (
    DERIVED,
    LINKS,
    REFERRING,
    TERMS,
    VECTORS,
    images_of,
    new_columns,
    rows_delete,
    rows_insert,
    rows_update,
)
from curation.working_copy import Relink, Row, RowChange

Action = CurationChange.Action

# So many links stand in one row of the journal.
BLOCK = 20_000
# A person's link says more than an import's, and that more than a model's.
_RANKS = "array_position(ARRAY['human', 'import', 'model'], {0}.made_by::text)"
_LINK_VALUES = "jsonb_build_array(memory_id, {column}, made_by, weight, created_at)"


@dataclass
class Journal:
    """One curation under way. `made_ids` are the ids that rows of the copy have in the database."""

    curation_id: int
    made_by: str
    made_ids: dict[tuple[str, int], int] = field(default_factory=dict)
    # Memories whose facet columns may no longer say what their links do, by kind.
    relinked: dict[str, set[int]] = field(default_factory=dict)

    def write(self, changes: Sequence[RowChange], relinks: Iterable[Relink]) -> None:
        """Everything but tags, in the order that no constraint minds: a path or a key is free before it is taken."""
        self._rows_remove(changes, REFERRING)
        now = timezone.now().isoformat()
        for change in changes:
            if change.is_new:
                self._make(change, now)
        self._rows_update(changes, REFERRING)
        self._links_write(relinks)
        self._rows_remove(changes, TERMS)
        self._rows_update(changes, TERMS)

    def _rows_remove(self, changes: Sequence[RowChange], tables: Sequence[str]) -> None:
        """Remove rows of the vocabulary, with the vectors that the database removes with them."""
        for table in tables:
            ids = [change.id for change in changes if change.table == table and change.values is None]
            if not ids:
                continue
            if vectors := VECTORS.get(table):
                self._note(vectors, Action.DELETE, before=images_of(vectors, ids, key=f"{table}_id"))
            self._note(table, Action.DELETE, before=images_of(table, ids, lock=True))
            rows_delete(table, ids)

    def _make(self, change: RowChange, now: str) -> None:
        row = {**new_columns(change.table, now), **(change.values or {})}
        made = rows_insert(change.table, [row])[0]
        self.made_ids[change.table, change.id] = made
        self._note(change.table, Action.INSERT, after=without_derived(images_of(change.table, [made])))

    def _rows_update(self, changes: Sequence[RowChange], tables: Sequence[str]) -> None:
        for table in tables:
            after = [
                {"id": change.id, **self._made(change.values)}
                for change in changes
                if change.table == table and change.values is not None and not change.is_new
            ]
            if not after:
                continue
            images = {row["id"]: row for row in images_of(table, [row["id"] for row in after], lock=True)}
            before = [{name: images[row["id"]][name] for name in row} for row in after]
            rows_update(table, after)
            self._note(table, Action.UPDATE, before=before, after=after)

    def _made(self, values: Mapping[str, Any]) -> Row:
        """Columns of a row, with the ids that what was made has in the database."""
        ends = {name: self._id("entity", values[name]) for name in ("source_id", "target_id") if name in values}
        return {**values, **ends}

    def _note(self, table: str, action: Action, **values: Any) -> None:
        if any(values.values()):
            CurationChange.objects.create(curation_id=self.curation_id, table=table, action=action, **values)

    # --- links ------------------------------------------------------------------------------------------------------

    def _links_write(self, relinks: Iterable[Relink]) -> None:
        """Move, make and remove links. Tags, which have none, are written with the memories."""
        for relink in relinks:
            if relink.kind not in LINKS:
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
        return self.made_ids.get((kind, int(ref)), int(ref))

    def _move(self, kind: str, source: int, target: int, ids: list[int] | None) -> None:
        """Links come to the target; where one is there already, the better of the two stays."""
        links = LINKS[kind]
        both = _where("source", links.column, ids)
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT jsonb_build_array(target.memory_id, target.{links.column}, target.made_by, target.weight,"
                " target.created_at), jsonb_build_array(target.memory_id,"
                f" target.{links.column}, CASE WHEN {_RANKS.format('source')} < {_RANKS.format('target')}"
                " THEN source.made_by ELSE target.made_by END, greatest(source.weight, target.weight),"
                f" least(source.created_at, target.created_at)) FROM {links.table} source JOIN {links.table} target"
                f" ON target.memory_id = source.memory_id AND target.{links.column} = %(target)s WHERE {both}",
                {"sources": [source], "target": target, "ids": ids},
            )
            pairs = [(_json(before), _json(after)) for before, after in cursor.fetchall()]
        better = [(before, after) for before, after in pairs if before != after]
        for start in range(0, len(better), BLOCK):
            block = better[start : start + BLOCK]
            self._note(kind, Action.WEIGH, target_id=target, before=[b for b, _ in block], after=[a for _, a in block])
            links_set(kind, [after for _, after in block])
        if pairs:
            self._remove(kind, [source], [before[0] for before, _ in pairs])
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {links.table} source SET {links.column} = %(target)s"
                f" WHERE {_where('source', links.column, ids)} RETURNING memory_id",
                {"sources": [source], "target": target, "ids": ids},
            )
            moved = sorted(row[0] for row in cursor.fetchall())
        self._note(kind, Action.RELINK, source_id=source, target_id=target, memory_ids=moved)
        self._relinked(kind, moved)

    def _remove(self, kind: str, sources: list[int], ids: list[int] | None) -> None:
        links = LINKS[kind]
        with connection.cursor() as cursor:
            cursor.execute(
                f"DELETE FROM {links.table} source WHERE {_where('source', links.column, ids)}"
                f" RETURNING {_LINK_VALUES.format(column=links.column)}",
                {"sources": sources, "ids": ids},
            )
            gone = sorted((_json(row) for (row,) in cursor.fetchall()), key=lambda row: (row[0], row[1]))
        for start in range(0, len(gone), BLOCK):
            self._note(kind, Action.UNLINK, before=gone[start : start + BLOCK])
        self._relinked(kind, (row[0] for row in gone))

    def _add(self, kind: str, target: int, ids: list[int]) -> None:
        links = LINKS[kind]
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {links.table} (memory_id, {links.column}, made_by, weight, created_at)"
                " SELECT id, %s, %s, 1, now() FROM unnest(%s::bigint[]) AS chosen (id) ON CONFLICT DO NOTHING"
                f" RETURNING {_LINK_VALUES.format(column=links.column)}",
                [target, self.made_by, ids],
            )
            made = sorted((_json(row) for (row,) in cursor.fetchall()), key=lambda row: row[0])
        if made:
            # All alike, but for their memories.
            memory_ids = [row[0] for row in made]
            self._note(kind, Action.LINK, target_id=target, memory_ids=memory_ids, after=made[0][1:])
            self._relinked(kind, memory_ids)

    def _relinked(self, kind: str, memory_ids: Iterable[int]) -> None:
        self.relinked.setdefault(kind, set()).update(memory_ids)

    def entity_ids(self, changes: Sequence[RowChange]) -> set[int]:
        """The entities that are still there, and whose text or whose relationships' text may be another now."""
        kept = [(change.table, change.id) for change in changes if change.values is not None]
        ids = {self.made_ids.get(key, key[1]) for key in kept if key[0] == "entity"}
        facts = [self.made_ids.get(key, key[1]) for key in kept if key[0] == "relationship"]
        return ids | {row["source_id"] for row in images_of("relationship", facts)}

    def tags_note(self, before: Sequence[Sequence[Any]], after: Sequence[Sequence[Any]]) -> None:
        """Write down the tags that memories had, and have."""
        self._note("memory", Action.TAG, before=list(before), after=list(after))


def links_set(kind: str, rows: Sequence[Sequence[Any]]) -> None:
    """Set who made some links, with what weight, and when."""
    links = LINKS[kind]
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {links.table} own SET made_by = made.made_by, weight = made.weight, created_at = made.created_at"
            f" FROM {unnested(links.column)} WHERE own.memory_id = made.memory_id"
            f" AND own.{links.column} = made.{links.column}",
            unnest_of(rows),
        )


def unnested(column: str) -> str:
    """Links as a journal holds them, for a statement; its parameters are those of `unnest_of`."""
    return (
        "unnest(%(memory_ids)s::bigint[], %(term_ids)s::bigint[], %(makers)s::text[], %(weights)s::float8[],"
        f" %(moments)s::timestamptz[]) AS made (memory_id, {column}, made_by, weight, created_at)"
    )


def unnest_of(rows: Sequence[Sequence[Any]]) -> Mapping[str, list[Any]]:
    columns = ("memory_ids", "term_ids", "makers", "weights", "moments")
    return {name: [row[at] for row in rows] for at, name in enumerate(columns)}


def _where(alias: str, column: str, ids: list[int] | None) -> str:
    """The links of the sources, of some memories where any are named."""
    condition = f"{alias}.{column} = ANY(%(sources)s::bigint[])"
    return condition if ids is None else f"{condition} AND {alias}.memory_id = ANY(%(ids)s::bigint[])"


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def without_derived(rows: Sequence[Row]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in DERIVED} for row in rows]
