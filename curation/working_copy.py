"""A working copy of the part of the vocabulary that an operation changes. Pure: the difference between the copy and the
original rows is what will be written.

Rows are as `to_jsonb` gives them. A new row has a negative id.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from categories.details import joined_aliases
from categories.texts import Projects, holds, readable
from web.errors import Refusal

TableRow = dict[str, Any]
TermRef = int | str
"""The id of a category, concept or entity, or the name of a tag."""
TERM_TABLES = ("category", "concept", "entity")


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
class StateChange:
    """Memories to set to a state, with the reason. With a successor they are superseded by it."""

    memory_ids: tuple[int, ...]
    state: str
    reason: str = ""
    successor_id: int | None = None

    @property
    def restores(self) -> bool:
        """Whether searches show the memories again."""
        return self.state in ("active", "proposed")


@dataclass(frozen=True, slots=True)
class ColumnEdit:
    """The columns of a memory that change, before and after, as JSON has them."""

    memory_id: int
    before: Mapping[str, Any]
    after: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlanLine:
    """A change for people to read. `subject` is the kind and the id of the row that it discloses."""

    what: str
    before: str
    after: str = ""
    subject: tuple[str, TermRef] | None = None
    names: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """The names before and after, of a line about the names of a memory."""

    @property
    def parts(self) -> tuple[tuple[str, str], ...]:
        """Each name with what becomes of it: `del`, `ins`, or nothing for those that stay."""
        before, after = self.names or ((), ())
        signs = {**dict.fromkeys(before, "del"), **{name: "" if name in before else "ins" for name in after}}
        return tuple(signs.items())


@dataclass
class WorkingCopy:
    """Rows by table and id, and the decisions of an operation about them."""

    rows: dict[str, dict[int, TableRow]]
    title: str = ""
    titled: Callable[[int], str] | None = None
    """Gives the title once it is known how many memories change."""
    relinks: list[Relink] = field(default_factory=list)
    state_changes: list[StateChange] = field(default_factory=list)
    column_edits: list[ColumnEdit] = field(default_factory=list)
    chosen: tuple[int, ...] = ()
    """Ids of the memories that were chosen, for operations on memories. Some of them may not change."""
    not_writable: int = 0
    """The number of further chosen memories, which the viewer may read but not write."""
    lines: list[PlanLine] = field(default_factory=list)
    merged: dict[int, int] = field(default_factory=dict)
    """Ids of terms that were merged, with the ids of their targets."""
    touched: set[tuple[str, TermRef]] = field(default_factory=set)
    """Unchanged terms that the operation depends on: a later change of them prevents its undo."""
    scope: tuple[int, ...] | None = None
    """The projects in which texts hold that the operation writes: they are local texts. None makes them public."""
    visible: Projects = None
    """The projects of the viewer, whose texts the plan may show."""

    def __post_init__(self) -> None:
        self._before = deepcopy(self.rows)
        self._hidden_aliases: dict[tuple[str, int], list[str]] = {}

    def hide_texts(self, projects: Projects) -> None:
        """Leave out the public texts that do not hold in any of these projects. They stay stored as they are."""
        if projects is None:
            return
        for rows in (self.rows, self._before):
            for table in ("former_path", "tag_alias"):
                if table in rows:
                    held = {pk: row for pk, row in rows[table].items() if holds(row["project_ids"], projects)}
                    rows[table] = held
            for kind in TERM_TABLES:
                for row in rows.get(kind, {}).values():
                    shown = readable(row["aliases"], row["alias_projects"], projects)
                    if len(shown) < len(row["aliases"]):
                        self._hidden_aliases[kind, row["id"]] = [one for one in row["aliases"] if one not in shown]
                        row["aliases"] = shown
                    if not holds(row["description_projects"], projects):
                        row["description"] = ""

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

    # --- names and descriptions: public ones are columns of the term, local ones are rows of their own ---------------

    def local_rows(self, kind: str, ref: TermRef, role: str = "alias") -> list[TableRow]:
        """The local texts of a term, whoever may see them."""
        key = "tag" if kind == "tag" else "term_id"
        rows = self.table("local_text").values()
        return [row for row in rows if row["kind"] == kind and row[key] == ref and row["role"] == role]

    def shown_local(self, kind: str, ref: TermRef, role: str = "alias") -> list[TableRow]:
        """The local texts of a term that the viewer may see."""
        rows = self.local_rows(kind, ref, role)
        return [row for row in rows if self.visible is None or not self.visible.isdisjoint(row["project_ids"])]

    def names_shown(self, kind: str, term_id: int) -> list[str]:
        """All aliases of a term that the viewer may see."""
        row = self.table(kind)[term_id]
        return joined_aliases(row["name"], row["aliases"], [own["text"] for own in self.shown_local(kind, term_id)])

    def add_names(self, kind: str, term_id: int, names: Iterable[str]) -> None:
        """Give a category, a concept or an entity more aliases, without its own name."""
        row = self.table(kind)[term_id]
        public = joined_aliases(row["name"], row["aliases"], [])
        joined = joined_aliases(row["name"], public, [*names])
        if self.scope is None:
            row["aliases"] = joined
            return
        row["aliases"] = public
        for name in joined[len(public) :]:
            self.add_local(kind, term_id, "alias", name)

    def add_local(self, kind: str, ref: TermRef, role: str, text: str) -> None:
        """Let a local text hold in the projects of the operation, in addition to others that have it."""
        scope = sorted(self.scope or ())
        for row in self.local_rows(kind, ref, role):
            if row["text"].lower() == text.lower():
                row["project_ids"] = sorted({*row["project_ids"], *scope})
                return
        own = {"term_id": None, "tag": ref} if kind == "tag" else {"term_id": ref, "tag": ""}
        self.add_row("local_text", kind=kind, **own, role=role, text=text, project_ids=scope)

    def remove_local(self, row: TableRow) -> None:
        """Let a local text hold no longer in the projects of the operation; without a scope, in none."""
        left = sorted(set(row["project_ids"]) - set(self.scope)) if self.scope is not None else []
        if left:
            row["project_ids"] = left
        else:
            del self.table("local_text")[row["id"]]

    def describe(self, kind: str, term_id: int, description: str) -> str:
        """Set the description of a term. Returns the one that the viewer saw before."""
        row = self.table(kind)[term_id]
        known = self.shown_local(kind, term_id, "description")
        if self.scope is None:
            before, row["description"] = str(row["description"]), description
            return before
        for own in known:
            self.remove_local(own)
        if description and description != row["description"]:
            self.add_local(kind, term_id, "description", description)
        return str(known[0]["text"] if known else row["description"])

    def move_local(self, kind: str, source_id: int, target_id: int) -> None:
        """Move the local texts of a merged term to its target, with their projects."""
        for role in ("alias", "path", "description"):
            for row in self.local_rows(kind, source_id, role):
                row["term_id"] = target_id

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
                    if "aliases" in values and (hidden := self._hidden_aliases.get((table, row_id))):
                        values["aliases"] = [*values["aliases"], *hidden]
                    changed.append(RowChange(table, row_id, values))
        return [*deleted, *changed, *new]

    def kept(self, term_id: int) -> int:
        """The id of the term that a term was merged into, or its own."""
        while term_id in self.merged:
            term_id = self.merged[term_id]
        return term_id

    def replace_merged(self, table: str, columns: Iterable[str]) -> None:
        """Replace references to merged rows by references to their targets, without repeats or self-references.

        Other arrays keep their order.
        """
        for row in self.table(table).values():
            for column in columns:
                ids = row[column]
                if any(row_id in self.merged for row_id in ids) or row["id"] in ids:
                    row[column] = sorted({self.merged.get(row_id, row_id) for row_id in ids} - {row["id"]})


def tags_after(tags: Sequence[str], steps: Iterable[Relink]) -> list[str]:
    """The tags of a memory after the steps: a new tag replaces the old one in its position, or is appended. Pure."""
    result = list(tags)
    for step in steps:
        target = None if step.target is None else str(step.target)
        if not step.sources and target is not None and target not in result:
            result.append(target)
        for source in step.sources:
            if target is not None and source in result and target not in result:
                result[result.index(str(source))] = target
            result = [tag for tag in result if tag != source]
    return result
