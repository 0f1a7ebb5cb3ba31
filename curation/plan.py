"""From what a curator asks to a plan: what would change, counted, with what stands against it. It writes nothing.

Applying a verb makes the same plan again under the lock, and then does what it says.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from access.viewer import Viewer
from curation.operations import apply_operation
from curation.queries import counts_among, labels, linked_ids, relationships_seen, terms_seen
from curation.schemas import Asked
from curation.tables import LINKS
from curation.working_copy import Line, Ref, Relink, RowChange, WorkingCopy
from memories.models import Memory
from memories.queries import visible_to

EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """What happens to links: how many come to the target, and how many memories had both, so that one link is kept."""

    kind: str
    source: str
    target: str
    moved: int
    collapsed: int


@dataclass(frozen=True, slots=True)
class Example:
    id: int
    title: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What a verb would do, frozen. Where `refusals` says why not, it does nothing."""

    verb: str
    kind: str
    title: str
    refusals: tuple[str, ...] = ()
    field: str = ""
    lines: tuple[Line, ...] = ()
    figures: tuple[Figure, ...] = ()
    memories: int = 0
    examples: tuple[Example, ...] = ()
    token: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan, and all that doing it takes."""

    plan: Plan
    kind: str
    changes: tuple[RowChange, ...]
    relinks: tuple[Relink, ...]
    memory_ids: tuple[int, ...]
    desk: WorkingCopy


def prepare(asked: Asked, viewer: Viewer) -> Prepared:
    """Work a verb out for a viewer. Raises CurationRefusedError, or TermNotFoundError, with the reason."""
    kind, desk = apply_operation(asked, viewer)
    relinks = tuple(desk.relinks)
    changes = tuple(desk.changes())
    memory_ids = tuple(_concerned(kind, desk, relinks))
    figures = tuple(figure for relink in relinks for figure in _figures(relink, desk))
    plan = Plan(
        verb=asked.verb,
        kind=kind,
        title=desk.title,
        lines=tuple(_shown_lines(desk.lines, viewer)),
        figures=figures,
        memories=len(memory_ids),
        examples=tuple(_examples(memory_ids, viewer)),
        token=_token(asked, changes, relinks, memory_ids, figures),
    )
    return Prepared(plan, kind, changes, relinks, memory_ids, desk)


def _token(asked: Asked, *parts: Iterable[Any]) -> str:
    """What a preview is known by: the same only while it would say, and do, the same."""
    told = [asked.verb, asked.arguments(), *([_plain(item) for item in part] for part in parts)]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def _plain(item: Any) -> Any:
    return item if isinstance(item, int | str) else asdict(item)


def _concerned(kind: str, desk: WorkingCopy, relinks: tuple[Relink, ...]) -> list[int]:
    """The memories whose links, tags or facet columns would change."""
    ids: set[int] = set()
    for relink in relinks:
        if relink.memory_ids is None:
            ids.update(linked_ids(relink.kind, relink.sources))
        elif relink.sources:
            ids.update(linked_ids(relink.kind, relink.sources, relink.memory_ids))
        else:
            ids.update(set(relink.memory_ids) - set(linked_ids(relink.kind, [relink.target or ""], relink.memory_ids)))
    hung_elsewhere = [
        row["id"]
        for row in desk.table("category").values()
        if (before := desk.was("category", row["id"])) and before["parent_id"] != row["parent_id"]
    ]
    if hung_elsewhere:
        column = LINKS["category"].facet_below
        ids.update(Memory.objects.filter(**{f"{column}__overlap": hung_elsewhere}).values_list("pk", flat=True))
    return sorted(ids)


def _figures(relink: Relink, desk: WorkingCopy) -> Iterable[Figure]:
    named = _names(relink.kind, [*relink.sources, *([relink.target] if relink.target is not None else [])], desk)
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
        ids = linked_ids(relink.kind, [source], relink.memory_ids)
        is_new = isinstance(relink.target, int) and relink.target < 0
        both = 0 if is_new else len(linked_ids(relink.kind, [relink.target], ids))
        yield Figure(relink.kind, named.get(source, str(source)), target, len(ids) - both, both)


def _names(kind: str, refs: list[Ref], desk: WorkingCopy) -> dict[Ref, str]:
    if kind == "tag":
        return {ref: str(ref) for ref in refs}
    known: dict[Ref, str] = {}
    known.update(labels(kind, [int(ref) for ref in refs if int(ref) > 0]).items())
    column = "path" if kind == "category" else "name"
    return known | {ref: str(desk.table(kind)[int(ref)][column]) for ref in refs if int(ref) < 0}


def _shown_lines(lines: list[Line], viewer: Viewer) -> Iterable[Line]:
    """What is about what the viewer sees: a term below, or a relationship, may be of memories that they may not."""
    by_kind: dict[str, set[int]] = {}
    for line in lines:
        if line.subject and line.subject[0] != "tag":
            by_kind.setdefault(line.subject[0], set()).add(int(line.subject[1]))
    seen = {
        kind: set(relationships_seen(viewer).filter(pk__in=ids).values_list("pk", flat=True))
        if kind == "relationship"
        else terms_seen(kind, ids, viewer)
        for kind, ids in by_kind.items()
    }
    for line in lines:
        if not line.subject or line.subject[0] == "tag" or line.subject[1] in seen[line.subject[0]]:
            yield line


def _examples(memory_ids: tuple[int, ...], viewer: Viewer) -> Iterable[Example]:
    """The newest of the memories, those that the viewer may open."""
    newest = visible_to(viewer).filter(pk__in=memory_ids[-10_000:]).order_by("-created_at", "-pk")
    for pk, title in newest.values_list("pk", "title")[:EXAMPLES]:
        yield Example(pk, title)
