"""Changes of many memories to values of their own: type, project, dates, authors and validity.

They are computed memory by memory and written in sets: a column of 20,000 memories is one statement.
"""

import json
import re
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Any

from django.utils import timezone

from access.viewer import Viewer
from categories.services import Vocabulary
from curation.facet_columns import read_tags, write_tags
from curation.schemas import NO_DATE, Retag
from curation.working_copy import ColumnEdit, CurationRefusedError
from memories.marks import MARKED_FIELDS, mark_memories, memories_moved
from memories.models import Memory, Project, Session
from memories.refusals import ChangeRefusedError
from memories.resolve import SessionUse, sessions_ensure
from memories.services import writable_project
from memories.storage import languages_of, sessions_date, snapshots_read
from memories.supersession import refuse_apart
from text.formatting import moment_label
from web.sql import execute, fetch

# The columns that may change, with their types and their names for people.
_TYPES = {
    "memory_type": "text",
    "project_id": "bigint",
    "session_id": "bigint",
    "created_at": "timestamptz",
    "happened_at": "timestamptz",
    "valid_from": "timestamptz",
    "valid_to": "timestamptz",
    "authors": "text[]",
    "updated_at": "timestamptz",
}
_LABELS = {
    "memory_type": "type",
    "project_id": "project",
    "created_at": "created",
    "happened_at": "happened",
    "valid_from": "valid from",
    "valid_to": "valid to",
    "authors": "authors",
}
_MOMENTS = ("created_at", "happened_at", "updated_at", "valid_from", "valid_to")
# Memories in one statement, and in one row of the journal.
BLOCK = 20_000
MOST_AUTHORS = 1_000
_SHIFT = re.compile(r"(?P<sign>[+-])(?P<count>\d{1,6}) (?P<unit>minute|hour|day|week|month|year)s")
_Row = dict[str, Any]


def column_edits(operation: Retag, memory_ids: Collection[int], viewer: Viewer) -> list[ColumnEdit]:
    """The changes that an operation makes to columns of memories. Raises CurationRefusedError."""
    changes = list(_changes_of(operation, viewer))
    if not changes:
        return []
    edits = []
    for memory_id, before in read_columns(memory_ids).items():
        after = dict(before)
        for change in changes:
            change(memory_id, after)
        _refuse_disorder(memory_id, after, operation)
        if differing := [name for name in before if before[name] != after[name]]:
            edits.append(
                ColumnEdit(
                    memory_id,
                    {name: _as_json(before[name]) for name in differing},
                    {name: _as_json(after[name]) for name in differing},
                )
            )
    refuse_moves(edits)
    return edits


def read_columns(memory_ids: Collection[int]) -> dict[int, _Row]:
    """The columns that may change, by memory. The caller holds `VOCABULARY_LOCK` alone; see `read_tags`."""
    # Thousands of parameters, as those of a queryset, take seconds to write.
    rows = fetch(
        f"SELECT id, {', '.join(_TYPES)} FROM memories_memory WHERE id = ANY(%s) ORDER BY id", [list(memory_ids)]
    )
    return {memory_id: dict(zip(_TYPES, values, strict=True)) for memory_id, *values in rows}


def _as_json(value: Any) -> Any:
    return value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value


# --- what changes -----------------------------------------------------------------------------------------------------

_Change = Callable[[int, _Row], None]


def _changes_of(operation: Retag, viewer: Viewer) -> Iterator[_Change]:
    if operation.set_type:
        yield partial(_set_column, "memory_type", operation.set_type)
    if operation.set_project:
        try:
            project = writable_project(operation.set_project, viewer)
        except ChangeRefusedError as error:
            raise _refused(error, "set_project") from error
        yield partial(_set_column, "project_id", project.pk)
    if operation.set_date:
        yield partial(_set_date, lambda memory_id, moment: operation.set_date)
    if operation.shift_date:
        yield partial(_set_date, partial(_moved_moment, operation.shift_date))
    for name in ("valid_from", "valid_to"):
        if value := getattr(operation, f"set_{name}"):
            yield partial(_set_column, name, None if value == NO_DATE else value)
    if operation.set_authors or operation.add_authors or operation.remove_authors:
        yield partial(_set_authors, operation)


def _set_column(name: str, value: Any, memory_id: int, row: _Row) -> None:
    row[name] = value


def _set_date(moved: Callable[[int, datetime], datetime | None], memory_id: int, row: _Row) -> None:
    """Change the date of a memory, and the date of what happened where that is the same."""
    is_same = row["happened_at"] == row["created_at"]
    row["created_at"] = moved(memory_id, row["created_at"])
    if is_same:
        row["happened_at"] = row["created_at"]


def _moved_moment(shift: str, memory_id: int, moment: datetime) -> datetime:
    match = _SHIFT.fullmatch(shift)
    if match is None:
        raise ValueError(f"{shift} is not a shift")
    count = int(match["count"]) * (-1 if match["sign"] == "-" else 1)
    try:
        if match["unit"] not in ("month", "year"):
            return moment + timedelta(**{f"{match['unit']}s": count})
        months = moment.year * 12 + moment.month - 1 + count * (12 if match["unit"] == "year" else 1)
        year, month = months // 12, months % 12 + 1
        # The last day of a month that is shorter.
        return moment.replace(year=year, month=month, day=min(moment.day, monthrange(year, month)[1]))
    except (OverflowError, ValueError) as error:
        reason = f"#{memory_id} would have a date before the year 1 or after 9999."
        raise CurationRefusedError(reason, "shift_date") from error


def _set_authors(operation: Retag, memory_id: int, row: _Row) -> None:
    """Set, add and remove authors. Those that are added take the place of the first that is removed."""
    authors: list[str] = list(operation.set_authors or row["authors"])
    gone = {name.casefold() for name in operation.remove_authors}
    place = next((at for at, name in enumerate(authors) if name.casefold() in gone), len(authors))
    authors[place:place] = operation.add_authors
    known: dict[str, str] = {}
    for name in authors:
        # One that is written otherwise takes the place of its former spelling.
        if name in operation.add_authors or name.casefold() not in gone:
            known.setdefault(name.casefold(), name)
    if len(known) > MOST_AUTHORS:
        reason = f"#{memory_id} would have {len(known):,} authors; up to {MOST_AUTHORS:,} may be."
        raise CurationRefusedError(reason, "add_authors")
    row["authors"] = list(known.values())


def _refuse_disorder(memory_id: int, row: _Row, operation: Retag) -> None:
    valid_from, valid_to = row["valid_from"], row["valid_to"]
    if not (valid_from and valid_to and valid_to < valid_from):
        return
    named = next((name for name in ("set_valid_to", "set_valid_from") if getattr(operation, name)), "")
    if named:
        raise CurationRefusedError(f"#{memory_id} would cease to be valid before it is.", named)


def refuse_moves(edits: Sequence[ColumnEdit]) -> None:
    """Refuse to part memories from their successors, and to move them where an id is taken."""
    by_project: dict[int, list[int]] = {}
    for edit in edits:
        if "project_id" in edit.after:
            by_project.setdefault(edit.after["project_id"], []).append(edit.memory_id)
    for project in Project.objects.filter(pk__in=by_project):
        moved = by_project[project.pk]
        statement = "SELECT id, superseded_by_id FROM memories_memory WHERE id = ANY(%s)"
        successors: dict[int, int | None] = dict(fetch(statement, [moved]))
        try:
            refuse_apart(successors, project)
        except ChangeRefusedError as error:
            raise _refused(error, "set_project") from error
        _refuse_taken_ids(moved, project)


def _refuse_taken_ids(moved: Sequence[int], project: Project) -> None:
    named = "SELECT id, external_id FROM memories_memory WHERE id = ANY(%s) AND external_id <> '' ORDER BY id"
    own: dict[int, str] = dict(fetch(named, [moved]))
    known = (
        "SELECT external_id, id FROM memories_memory"
        " WHERE project_id = %s AND external_id = ANY(%s::text[]) AND NOT id = ANY(%s)"
    )
    taken: dict[str, int] = dict(fetch(known, [project.pk, list(own.values()), list(moved)]))
    for memory_id, name in own.items():
        if (other := taken.setdefault(name, memory_id)) != memory_id:
            reason = f"#{memory_id} and #{other} have the same id {name!r}: {project.slug} cannot have both."
            raise CurationRefusedError(reason, "set_project")


def _refused(error: ChangeRefusedError, field: str) -> CurationRefusedError:
    text = str(error).removeprefix(f"{error.field}: ")
    return CurationRefusedError(f"{text[:1].upper()}{text[1:]}".rstrip(".") + ".", field)


# --- for people -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Shows values of columns to a viewer."""

    projects: Mapping[int, str]
    zone: tzinfo

    @classmethod
    def of(cls, edits: Sequence[ColumnEdit], zone: tzinfo) -> "ColumnNames":
        ids = {side["project_id"] for edit in edits for side in (edit.before, edit.after) if "project_id" in side}
        return cls(dict(Project.objects.filter(pk__in=ids).values_list("pk", "slug")), zone)

    def text(self, name: str, value: Any) -> str:
        if name == "project_id":
            return self.projects.get(value, "")
        if name in _MOMENTS:
            return moment_label(datetime.fromisoformat(value), self.zone) if value else ""
        return ", ".join(value) if isinstance(value, list) else value

    def lines(self, edit: ColumnEdit) -> Iterator[tuple[str, str, str]]:
        """The changes of a memory: column, before, after."""
        for name, label in _LABELS.items():
            if name in edit.after:
                yield label, self.text(name, edit.before[name]), self.text(name, edit.after[name])

    def figures(self, edits: Sequence[ColumnEdit]) -> Iterator[tuple[str, str, str, int]]:
        """How many memories change from a value to another: column, before, after, number; of dates their spans, and
        of authors each that is added or removed.
        """
        for name, label in _LABELS.items():
            changed = [edit for edit in edits if name in edit.after]
            if name in _MOMENTS and changed:
                yield label, self._span(name, changed, "before"), self._span(name, changed, "after"), len(changed)
                continue
            pairs = Counter(pair for edit in changed for pair in self._value_pairs(name, edit))
            for (before, after), count in pairs.most_common(_PAIRS):
                yield label, before, after, count
            if rest := sum(pairs.values()) - sum(count for _, count in pairs.most_common(_PAIRS)):
                yield label, "others", "others", rest

    def _value_pairs(self, name: str, edit: ColumnEdit) -> list[tuple[str, str]]:
        before, after = edit.before[name], edit.after[name]
        if name != "authors":
            return [(self.text(name, before), self.text(name, after))]
        removed, added = ([one for one in own if one not in other] for own, other in ((before, after), (after, before)))
        return [*((one, "") for one in removed), *(("", one) for one in added)]

    def _span(self, name: str, edits: Sequence[ColumnEdit], side: str) -> str:
        values = sorted(datetime.fromisoformat(value) for edit in edits if (value := getattr(edit, side)[name]))
        if not values:
            return ""
        first, last = (moment_label(value, self.zone) for value in (values[0], values[-1]))
        return first if first == last else f"{first} to {last}"


_PAIRS = 10


# --- writing ----------------------------------------------------------------------------------------------------------


def dated_edits(edits: Sequence[ColumnEdit], viewer: Viewer) -> list[ColumnEdit]:
    """The edits as they are written: with their time, and the sessions of memories in the project that they move to."""
    sessions = _moved_sessions(edits, viewer)
    columns = read_columns([edit.memory_id for edit in edits])
    now = _as_json(timezone.now())
    return [
        ColumnEdit(
            edit.memory_id,
            {**edit.before, "updated_at": _as_json(columns[edit.memory_id]["updated_at"]), **before},
            {**edit.after, "updated_at": now, **after},
        )
        for edit in edits
        for before, after in [sessions.get(edit.memory_id, ({}, {}))]
    ]


def _moved_sessions(edits: Sequence[ColumnEdit], viewer: Viewer) -> dict[int, tuple[_Row, _Row]]:
    """The sessions before and after of memories that move: those of the same names in the other project."""
    moved = {edit.memory_id: edit.after["project_id"] for edit in edits if "project_id" in edit.after}
    statement = "SELECT id, session_id, agent FROM memories_memory WHERE id = ANY(%s) AND session_id IS NOT NULL"
    in_session = {pk: (session_id, agent) for pk, session_id, agent in fetch(statement, [list(moved)])}
    if not in_session:
        return {}
    sessions = Session.objects.in_bulk({session_id for session_id, _ in in_session.values()})
    keys = {pk: (moved[pk], sessions[session_id].external_id) for pk, (session_id, _) in in_session.items()}
    there = sessions_ensure(
        {keys[pk]: SessionUse(agent, None) for pk, (_, agent) in in_session.items()}, Vocabulary(viewer)
    )
    return {
        pk: ({"session_id": session_id}, {"session_id": there[keys[pk]]}) for pk, (session_id, _) in in_session.items()
    }


def write_columns(values: Mapping[int, Mapping[str, Any]]) -> None:
    """Set columns of memories, and what depends on them: search terms, sessions, and when others ceased to be valid."""
    columns = [name for name in _TYPES if any(name in row for row in values.values())]
    before = read_columns(values)
    for block in _blocks(list(before)):
        rows = [{name: values[pk].get(name, _as_json(before[pk][name])) for name in columns} for pk in block]
        execute(
            f"UPDATE memories_memory memory SET {', '.join(map(_assignment, columns))}"
            " FROM unnest(%s::bigint[], %s::text[]) AS made (id, row) WHERE memory.id = made.id",
            [block, [json.dumps(row) for row in rows]],
        )
    _analyse_moved(values, before)
    if moved := [pk for pk, row in values.items() if "project_id" in row]:
        memories_moved.send(Memory, memory_ids=moved)
    if renamed := [pk for pk, row in values.items() if not MARKED_FIELDS.isdisjoint(row)]:
        mark_memories(snapshots_read(renamed).values())
    _date_sessions(values, before)
    if dated := [pk for pk, row in values.items() if "created_at" in row]:
        # The index has when each memory ceased to be valid: when its successor was created.
        execute(
            "UPDATE memories_memory SET superseded_by_id = superseded_by_id WHERE superseded_by_id = ANY(%s)", [dated]
        )


def _date_sessions(values: Mapping[int, Mapping[str, Any]], before: Mapping[int, _Row]) -> None:
    changed = {pk: row for pk, row in values.items() if row.keys() & {"created_at", "session_id"}}
    sessions_date({side for pk, row in changed.items() for side in (before[pk]["session_id"], row.get("session_id"))})


def revert_columns(edits: Sequence[ColumnEdit]) -> None:
    """Set columns as they were before edits. A memory that was changed in another way since was changed now."""
    current = read_columns([edit.memory_id for edit in edits])
    now = timezone.now()
    values = {}
    for edit in edits:
        values[edit.memory_id] = row = dict(edit.before)
        if _as_json(current[edit.memory_id]["updated_at"]) != edit.after["updated_at"]:
            row["updated_at"] = _as_json(now)
    write_columns(values)
    _remove_empty_sessions({edit.after["session_id"] for edit in edits if "session_id" in edit.after})


def _assignment(column: str) -> str:
    value = f"made.row::jsonb -> '{column}'"
    if column == "authors":
        items = f"jsonb_array_elements_text({value}) WITH ORDINALITY AS t (name, at)"
        return f"authors = ARRAY(SELECT name FROM {items} ORDER BY at)"
    return f"{column} = ({value} #>> '{{}}')::{_TYPES[column]}"


def _analyse_moved(values: Mapping[int, Mapping[str, Any]], before: Mapping[int, _Row]) -> None:
    """Compute the terms of memories again that are in a project of another language now."""
    moved = {pk: (before[pk]["project_id"], row["project_id"]) for pk, row in values.items() if "project_id" in row}
    languages = languages_of(project for pair in moved.values() for project in pair)
    other = [pk for pk, (old, new) in moved.items() if languages.get(old) != languages.get(new)]
    if other:
        write_tags(read_tags(other).items())


def _blocks(ids: Sequence[int]) -> Iterable[list[int]]:
    return (list(ids[start : start + BLOCK]) for start in range(0, len(ids), BLOCK))


def differing_columns(edits: Sequence[ColumnEdit]) -> dict[int, str]:
    """Memories that do not have the values after edits any more, each with the name of a column that differs."""
    expected = {edit.memory_id: edit.after for edit in edits}
    current = read_columns(expected)
    found = {}
    for memory_id, row in expected.items():
        now = current.get(memory_id, {})
        for name, value in row.items():
            if name == "updated_at":
                continue
            if name not in now or _instant(name, _as_json(now[name])) != _instant(name, value):
                found[memory_id] = _LABELS.get(name, "session")
    return found


def _instant(name: str, value: Any) -> Any:
    return datetime.fromisoformat(value).astimezone(UTC) if name in _MOMENTS and value else value


def _remove_empty_sessions(session_ids: Collection[int]) -> None:
    """Remove the sessions that memories were moved into, unless others are in them or they have more than a name."""
    used = Memory.objects.filter(session_id__in=session_ids).values_list("session_id", flat=True)
    Session.objects.filter(pk__in=set(session_ids) - set(used), title="", started_at=None, batch=None).delete()
