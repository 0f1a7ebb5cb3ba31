"""A working copy of the part of the vocabulary that a verb is about. Pure: verbs change the copy, and what differs
from the rows that it was made of is what would be written.

Rows are as `to_jsonb` gives them. A row that is yet to be made has an id below zero.
"""

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from web.errors import Refusal

Row = dict[str, Any]
Ref = int | str
"""The id of a category, concept or entity; a tag is its own name."""

KINDS = ("category", "concept", "entity", "tag")


class CurationRefusedError(Refusal):
    """An operation that is refused. The message says why and what can be done; `field` is the argument at fault."""

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
    """A row to be made, changed or removed: the columns that it gets, or None where it goes."""

    table: str
    id: int
    values: Mapping[str, Any] | None

    @property
    def is_new(self) -> bool:
        return self.id < 0


@dataclass(frozen=True, slots=True)
class Relink:
    """Links of memories from the sources to the target: without sources links to make, without a target to remove.

    Without memory ids it is about all links of the sources; an empty tuple is about none.
    """

    kind: str
    sources: tuple[Ref, ...]
    target: Ref | None
    memory_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that happens, for people: to what, what stood, what comes. `subject` is what it tells about."""

    label: str
    before: str
    after: str = ""
    subject: tuple[str, Ref] | None = None


@dataclass
class WorkingCopy:
    """The copy, and what a verb has decided on top of what the rows say."""

    rows: dict[str, dict[int, Row]]
    title: str = ""
    relinks: list[Relink] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    merged: dict[int, int] = field(default_factory=dict)
    # What it takes into account, besides the rows that it changes: a later change of it stands in the way of an undo.
    touched: set[tuple[str, Ref]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._before = deepcopy(self.rows)

    def table(self, name: str) -> dict[int, Row]:
        return self.rows.setdefault(name, {})

    def originals(self, table: str) -> Mapping[int, Row]:
        """The rows as they stood."""
        return self._before.get(table, {})

    def was(self, table: str, row_id: int) -> Row | None:
        """A row as it stood."""
        return self.originals(table).get(row_id)

    def make(self, table: str, **values: Any) -> int:
        """Put a new row in, under an id that only this copy knows."""
        rows = self.table(table)
        row_id = min([0, *rows]) - 1
        rows[row_id] = {"id": row_id, **values}
        return row_id

    def line(self, label: str, before: str, after: str = "", *, of: tuple[str, Ref] | None = None) -> None:
        self.lines.append(Line(label, before, after, of))

    def said(self, label: str, text: str, *, ends: bool = False, of: tuple[str, Ref] | None = None) -> None:
        """Something that is said from now on, or no longer."""
        self.line(label, *((text, "") if ends else ("", text)), of=of)

    def changes(self) -> list[RowChange]:
        """What differs: rows that go first, then those that change, then new ones."""
        gone, changed, new = [], [], []
        for table, rows in self.rows.items():
            before = self._before.get(table, {})
            gone += [RowChange(table, row_id, None) for row_id in before if row_id not in rows]
            for row_id, row in rows.items():
                old = before.get(row_id)
                if old is None:
                    new.append(RowChange(table, row_id, {k: v for k, v in row.items() if k != "id"}))
                elif values := {name: value for name, value in row.items() if old.get(name) != value}:
                    changed.append(RowChange(table, row_id, values))
        return [*gone, *changed, *new]


def replaced_ids(ids: Iterable[int], gone: Mapping[int, int], own_id: int) -> list[int]:
    """Ids with those that went replaced by what took their place, each once, and never the row's own."""
    return sorted({gone.get(one, one) for one in ids} - {own_id})


def references_follow(desk: WorkingCopy, table: str, columns: Iterable[str]) -> None:
    """Rows that named what went name what took its place. What nothing happened to stays as it was written."""
    for row in desk.table(table).values():
        for column in columns:
            ids = row[column]
            if any(one in desk.merged for one in ids) or row["id"] in ids:
                row[column] = replaced_ids(ids, desk.merged, row["id"])
