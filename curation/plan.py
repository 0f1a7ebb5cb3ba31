"""The plan of an operation: its changes, counted, or the reasons of its refusal. Nothing is written.

Applying an operation computes the plan again under the lock, and then executes it.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from access.viewer import Viewer
from categories.kinds import VOCABULARIES
from curation.column_edits import ColumnNames
from curation.operations import apply_operation
from curation.queries import (
    counts_among,
    hidden_among,
    labels,
    linked_ids,
    memories_with,
    newest_of,
    visible_relationships,
    visible_terms,
)
from curation.schemas import Operation
from curation.working_copy import ColumnEdit, PlanLine, Relink, RowChange, TermRef, WorkingCopy, tags_after
from memories.models import Memory
from text.formatting import memories as memories_label

EXAMPLES = 5
# First words of titles in the log, and in the preview.
_TO_DO = {
    "Merged": "Merge",
    "Renamed": "Rename",
    "Moved": "Move",
    "Changed": "Change",
    "Related": "Relate",
    "Unrelated": "Unrelate",
    "Added:": "Add:",
    "Removed:": "Remove:",
    "Stated:": "State:",
    "Removed": "Remove",
    "Retagged": "Retag",
    "Edited": "Edit",
    "Deleted": "Delete",
    "Archived": "Archive",
    "Restored": "Restore",
}
_OF_MEMORIES = {"Archive", "Edit", "Restore", "Retag"}
# The memories linked to terms of a kind, among given ones.
LinkedIds = Callable[[str, tuple[TermRef, ...], tuple[int, ...] | None], list[int]]


@dataclass(frozen=True, slots=True)
class Figure:
    """The number of links that move to the target, and of memories that had both links, which keep one.

    Of the kind `state` it is the number of memories that get the target as their state, and of a column, such as `type`
    or `valid to`, of those that have the target in place of the source.
    """

    kind: str
    source: str
    target: str
    moved: int
    collapsed: int


@dataclass(frozen=True, slots=True)
class Example:
    """A memory that changes. `lines` are its changes, for operations on chosen memories."""

    id: int
    title: str
    lines: tuple[PlanLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The effects of an operation, or the reasons of its refusal."""

    verb: str
    kind: str
    title: str
    refusals: tuple[str, ...] = ()
    field: str = ""
    lines: tuple[PlanLine, ...] = ()
    figures: tuple[Figure, ...] = ()
    memories: int = 0
    hidden: int = 0
    """The number of these memories that a search does not show unless it selects their state."""
    unchanged: int = 0
    """The number of chosen memories that stay as they are."""
    not_writable: int = 0
    """The number of matching memories that the viewer may not write, which also stay."""
    examples: tuple[Example, ...] = ()
    token: str = ""

    @property
    def to_do(self) -> str:
        """The title before it is done."""
        first, _, rest = self.title.partition(" ")
        return f"{_TO_DO.get(first, first)} {rest}"

    @property
    def button(self) -> str:
        """The words on the button that applies it. Only changes of memories have a number: a merge merges terms."""
        verb = self.to_do.partition(" ")[0].removesuffix(":")
        return f"{verb} {memories_label(self.memories)}" if verb in _OF_MEMORIES and self.memories else verb


@dataclass(frozen=True, slots=True)
class PreparedOperation:
    """A plan with the changes that execute it."""

    plan: Plan
    kind: str
    changes: tuple[RowChange, ...]
    relinks: tuple[Relink, ...]
    memory_ids: tuple[int, ...]
    working_copy: WorkingCopy


def prepare(operation: Operation, viewer: Viewer) -> PreparedOperation:
    """Compute an operation for a viewer. Raises CurationRefusedError and TermNotFoundError."""
    kind, copy = apply_operation(operation, viewer)
    relinks = tuple(copy.relinks)
    changes = tuple(copy.changes())
    # The same links are both listed and counted.
    linked: LinkedIds = cache(linked_ids)
    memory_ids = tuple(_changed_memory_ids(copy, relinks, linked))
    columns = ColumnNames.of(copy.column_edits, viewer.timezone)
    figures = (
        *(Figure("state", "", change.state, len(change.memory_ids), 0) for change in copy.state_changes),
        *(Figure(*of_column, 0) for of_column in columns.figures(copy.column_edits)),
        *(
            figure
            for place, relink in enumerate(relinks)
            for figure in _figures(relink, copy, _moved_before(relinks[:place], relink), linked)
        ),
    )
    plan = Plan(
        verb=operation.verb,
        kind=kind,
        title=copy.titled(len(memory_ids)) if copy.titled else copy.title,
        lines=tuple(_visible_lines(copy.lines, viewer)),
        figures=figures,
        memories=len(memory_ids),
        hidden=hidden_among(memory_ids),
        unchanged=max(0, len(copy.chosen) - len(memory_ids)),
        not_writable=copy.not_writable,
        examples=tuple(_examples(memory_ids, viewer, copy, columns)),
        token=_token(
            operation,
            *(changes, relinks, memory_ids, figures),
            *(copy.state_changes, copy.column_edits, [copy.not_writable]),
        ),
    )
    return PreparedOperation(plan, kind, changes, relinks, memory_ids, copy)


def _token(operation: Operation, *parts: Iterable[Any]) -> str:
    """A hash of a plan: it changes whenever the preview or its effects would."""
    content = [operation.verb, operation.arguments(), *([_plain(item) for item in part] for part in parts)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _plain(item: Any) -> Any:
    if isinstance(item, ColumnEdit):
        # Its values are those of JSON: a copy of thousands would take seconds.
        return [item.memory_id, item.before, item.after]
    return item if isinstance(item, int | str) else asdict(item)


def _changed_memory_ids(copy: WorkingCopy, relinks: tuple[Relink, ...], linked: LinkedIds) -> list[int]:
    """Ids of the memories whose links, tags or facet columns would change."""
    ids = {memory_id for change in copy.state_changes for memory_id in change.memory_ids}
    ids.update(edit.memory_id for edit in copy.column_edits)
    for relink in relinks:
        if relink.sources:
            ids.update(linked(relink.kind, relink.sources, relink.memory_ids))
        else:
            chosen = relink.memory_ids or ()
            ids.update(set(chosen) - set(linked_ids(relink.kind, [relink.target or ""], chosen)))
    before = copy.originals("category")
    moved = [
        row["id"]
        for row in copy.table("category").values()
        if row["id"] in before and before[row["id"]]["parent_id"] != row["parent_id"]
    ]
    if moved:
        ids.update(memories_with("category", moved).values_list("pk", flat=True))
    return sorted(ids)


def _moved_before(earlier: Iterable[Relink], relink: Relink) -> list[TermRef]:
    """The terms whose links move to the target of a step in the steps before it: their memories have it by then."""
    same = (one for one in earlier if (one.kind, one.target) == (relink.kind, relink.target))
    return [source for one in same for source in one.sources]


def _figures(relink: Relink, copy: WorkingCopy, earlier: Sequence[TermRef], linked: LinkedIds) -> Iterable[Figure]:
    named = _names(relink.kind, [*relink.sources, *([relink.target] if relink.target is not None else [])], copy)
    target = "" if relink.target is None else named.get(relink.target, "")
    if relink.target is None:
        for ref, count in counts_among(relink.kind, relink.sources, relink.memory_ids or ()):
            yield Figure(relink.kind, named.get(ref, str(ref)), "", count, 0)
        return
    for source in relink.sources or ("",):
        if source == "":
            has = len(linked_ids(relink.kind, [relink.target], relink.memory_ids))
            yield Figure(relink.kind, "", target, len(relink.memory_ids or ()) - has, 0)
            continue
        ids = linked(relink.kind, (source,), relink.memory_ids)
        both = 0 if _is_new(relink.target) else len(linked_ids(relink.kind, [relink.target, *earlier], ids))
        yield Figure(relink.kind, named.get(source, str(source)), target, len(ids) - both, both)


def _names(kind: str, refs: list[TermRef], copy: WorkingCopy) -> dict[TermRef, str]:
    if kind == "tag":
        return {ref: str(ref) for ref in refs}
    known: dict[TermRef, str] = {}
    known.update(labels(kind, [int(ref) for ref in refs if int(ref) > 0]).items())
    column = VOCABULARIES[kind].label_column
    return known | {ref: str(copy.table(kind)[int(ref)][column]) for ref in refs if int(ref) < 0}


def _visible_lines(lines: list[PlanLine], viewer: Viewer) -> Iterable[PlanLine]:
    """The lines about visible rows: a descendant or a relationship may belong to invisible memories."""
    by_kind: dict[str, set[int]] = {}
    for line in lines:
        if line.subject and line.subject[0] != "tag":
            by_kind.setdefault(line.subject[0], set()).add(int(line.subject[1]))
    visible = {
        kind: set(visible_relationships(viewer).filter(pk__in=ids).values_list("pk", flat=True))
        if kind == "relationship"
        else visible_terms(kind, ids, viewer)
        for kind, ids in by_kind.items()
    }
    for line in lines:
        kind, ref = line.subject or ("", 0)
        if kind in {"", "tag"} or _is_new(ref) or ref in visible[kind]:
            yield line


def _is_new(ref: TermRef) -> bool:
    return isinstance(ref, int) and ref < 0


def _examples(
    memory_ids: tuple[int, ...], viewer: Viewer, copy: WorkingCopy, columns: ColumnNames
) -> Iterable[Example]:
    """The newest visible memories, with what changes in them."""
    ids = newest_of(memory_ids[-10_000:], viewer, EXAMPLES)
    shown = sorted(
        Memory.objects.filter(pk__in=ids).defer("content", "terms", "raw"), key=lambda one: ids.index(one.pk)
    )
    names = _names_of_links(shown, copy) if copy.chosen else {}
    edits = {edit.memory_id: edit for edit in copy.column_edits if edit.memory_id in ids}
    for memory in shown:
        lines = [PlanLine(*line) for line in columns.lines(edits[memory.pk])] if memory.pk in edits else []
        lines += _lines_of(memory, copy, names) if copy.chosen else []
        yield Example(memory.pk, memory.title, tuple(lines))


def _names_of_links(memories: Iterable[Memory], copy: WorkingCopy) -> dict[str, dict[TermRef, str]]:
    """The labels of all terms that the memories have or get, by kind."""
    found: dict[str, dict[TermRef, str]] = {}
    for kind in {relink.kind for relink in copy.relinks} - {"tag"}:
        ids = {ref for memory in memories for ref in getattr(memory, VOCABULARIES[kind].memory_column)}
        ids |= {relink.target for relink in copy.relinks if relink.kind == kind and relink.target is not None}
        found[kind] = _names(kind, list(ids), copy)
    return found


def _lines_of(memory: Memory, copy: WorkingCopy, names: Mapping[str, Mapping[TermRef, str]]) -> Iterable[PlanLine]:
    """The changes of a memory: its state, its tags, its links."""
    for change in copy.state_changes:
        if memory.pk in change.memory_ids:
            by = f" by #{change.successor_id}" if change.successor_id else ""
            yield PlanLine("state", memory.state, f"{change.state}{by}")
    for kind in ("tag", *VOCABULARIES):
        steps = [
            relink
            for relink in copy.relinks
            if relink.kind == kind and (relink.memory_ids is None or memory.pk in relink.memory_ids)
        ]
        if not steps:
            continue
        if kind == "tag":
            before, after, plural = list(memory.tags), tags_after(memory.tags, steps), "tags"
        else:
            before, after, plural = _links_of(memory, kind, steps, names[kind])
        if before != after:
            yield PlanLine(plural, ", ".join(before), ", ".join(after), names=(tuple(before), tuple(after)))


def _links_of(
    memory: Memory, kind: str, steps: Sequence[Relink], names: Mapping[TermRef, str]
) -> tuple[list[str], list[str], str]:
    """The names of a memory's terms of a kind before and after, and the plural of the kind."""
    vocabulary = VOCABULARIES[kind]
    before: list[int] = getattr(memory, vocabulary.memory_column)
    after: dict[TermRef, None] = dict.fromkeys(before)
    for step in steps:
        has_source = not step.sources or any(source in after for source in step.sources)
        after = {ref: None for ref in after if ref not in step.sources}
        if step.target is not None and has_source:
            after[step.target] = None
    return (
        [names.get(ref, f"#{ref}") for ref in before],
        [names.get(ref, f"#{ref}") for ref in after],
        vocabulary.plural,
    )
