"""A working copy of the part of the vocabulary that an operation changes. Pure: the difference between the copy and the
original rows is what will be written.

Rows are as `to_jsonb` gives them. A new row has a negative id.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from web.errors import Refusal

TableRow = dict[str, Any]
TermRef = int | str
"""The id of a category, concept or entity, or the name of a tag."""


class CurationRefusedError(Refusal):
    """The operation is not possible. The message gives the reason and a remedy; `field` is the argument at fault."""

    status = 409
    code = "curation_refused"

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        super().__init__(message)

    @property
    def detail(self) -> str:
        return f"{self.field}: {self}" if self.field else str(self)


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row to insert, update or delete: its new column values, or None to delete it."""

    table: str
    id: int
    values: Mapping[str, Any] | None

    @property
    def is_new(self) -> bool:
        return self.id < 0


@dataclass(frozen=True, slots=True)
class Relink:
    """Links of memories to move from the sources to the target: without sources to create, without target to remove.

    `memory_ids` restricts it to these memories; None means all memories of the sources.
    """

    kind: str
    sources: tuple[TermRef, ...]
    target: TermRef | None
    memory_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A change for people to read. `subject` is the kind and the id of the row that it discloses."""

    what: str
    before: str
    after: str = ""
    subject: tuple[str, TermRef] | None = None


@dataclass
class WorkingCopy:
    """Rows by table and id, and the decisions of an operation about them."""

    rows: dict[str, dict[int, TableRow]]
    title: str = ""
    relinks: list[Relink] = field(default_factory=list)
    forgotten: tuple[int, ...] = ()
    """Ids of memories to delete."""
    lines: list[PlanLine] = field(default_factory=list)
    merged: dict[int, int] = field(default_factory=dict)
    """Ids of terms that were merged, with the ids of their targets."""
    touched: set[tuple[str, TermRef]] = field(default_factory=set)
    """Unchanged terms that the operation depends on: a later change of them prevents its undo."""

    def __post_init__(self) -> None:
        self._before = deepcopy(self.rows)

    def table(self, name: str) -> dict[int, TableRow]:
        return self.rows.setdefault(name, {})

    def originals(self, table: str) -> Mapping[int, TableRow]:
        """The rows before the operation."""
        return self._before.get(table, {})

    def add_row(self, table: str, **values: Any) -> int:
        """Add a new row. Returns its negative id."""
        rows = self.table(table)
        row_id = min([0, *rows]) - 1
        rows[row_id] = {"id": row_id, **values}
        return row_id

    def add_line(self, what: str, before: str, after: str = "", *, subject: tuple[str, TermRef] | None = None) -> None:
        self.lines.append(PlanLine(what, before, after, subject))

    def changes(self) -> list[RowChange]:
        """The differences to the original rows: deleted, then changed, then new rows."""
        deleted, changed, new = [], [], []
        for table, rows in self.rows.items():
            before = self.originals(table)
            deleted += [RowChange(table, row_id, None) for row_id in before if row_id not in rows]
            for row_id, row in rows.items():
                old = before.get(row_id)
                if old is None:
                    new.append(RowChange(table, row_id, {k: v for k, v in row.items() if k != "id"}))
                elif values := {name: value for name, value in row.items() if old.get(name) != value}:
                    changed.append(RowChange(table, row_id, values))
        return [*deleted, *changed, *new]

    def replace_merged(self, table: str, columns: Iterable[str]) -> None:
        """Replace references to merged rows by references to their targets, without repeats or self-references.

        Other arrays keep their order.
        """
        for row in self.table(table).values():
            for column in columns:
                ids = row[column]
                if any(row_id in self.merged for row_id in ids) or row["id"] in ids:
                    row[column] = sorted({self.merged.get(row_id, row_id) for row_id in ids} - {row["id"]})
