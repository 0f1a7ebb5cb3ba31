"""Reads of followed sources and their conflicts. Who may see them is decided by the callers."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, QuerySet
from pydantic import ValidationError

from access.viewer import Viewer
from memories.models import FollowedRecord, FollowedSource, ImportBatch, Memory, SourceConflict
from memories.queries import MemoryTitle, titles_of, visible_to
from memories.records import MemoryRecord, derived_title

# The fields that are compared, by the names of the columns of a memory.
_COMPARED = ("title", "summary", "content", "memory_type", "tags", "authors", "created_at")


@dataclass(frozen=True, slots=True)
class Conflict:
    """A memory that was edited here, and its record in the source: the fields that differ."""

    memory_id: int
    title: str
    is_deleted: bool
    """Whether the memory is deleted here."""
    is_gone: bool
    """Whether the source has no such record any more."""
    edit: str
    noticed_at: datetime
    differences: tuple[tuple[str, Any, Any], ...]
    """Field, value here, and value in the source."""


def sources_read() -> QuerySet[FollowedSource]:
    """All followed sources in the order of their paths, each with its number of `open_conflicts`."""
    return FollowedSource.objects.annotate(open_conflicts=Count("conflicts")).order_by("path")


def conflicts_read(source: FollowedSource, most: int) -> list[Conflict]:
    """The first conflicts of a source that are open."""
    found = list(source.conflicts.all()[:most])
    memories = Memory.objects.in_bulk([one.memory_id for one in found])
    return [_conflict(one, memories.get(one.memory_id)) for one in found]


def newest_read(source: FollowedSource, viewer: Viewer, count: int) -> list[MemoryTitle]:
    """The memories that came from a source last, but for deleted ones. Uses followedrecord_memory_idx."""
    records = FollowedRecord.objects.filter(source=source, memory_id__isnull=False).exclude(stamp=0)
    # Some of the last ones may be deleted, and two records may be of one memory.
    ids = records.order_by("-memory_id").values_list("memory_id", flat=True)[: 5 * count]
    stored = visible_to(viewer).filter(pk__in=list(ids)).exclude(state=Memory.State.DELETED)
    return titles_of(stored.order_by("-pk")[:count])


def readings_read(source: FollowedSource, most: int) -> list[ImportBatch]:
    """The last readings of a source of which something came."""
    return list(source.batches.filter(state__in=(ImportBatch.State.DONE, ImportBatch.State.UNDONE))[:most])


def _conflict(one: SourceConflict, memory: Memory | None) -> Conflict:
    return Conflict(
        memory_id=one.memory_id,
        title=memory.title if memory else "",
        is_deleted=memory is None or memory.state == Memory.State.DELETED,
        is_gone=one.record is None,
        edit=one.edit,
        noticed_at=one.noticed_at,
        differences=_differences(memory, one.record) if memory and one.record else (),
    )


def _differences(memory: Memory, stored: dict[str, Any]) -> tuple[tuple[str, Any, Any], ...]:
    try:
        record = MemoryRecord.model_validate(stored["data"])
    except ValidationError:
        # It was valid when it was stored; a later version may ask for more. Taking it says what is wrong.
        return ()
    there = {
        "title": record.title or derived_title(record.content),
        "summary": record.summary,
        "content": record.content,
        "memory_type": record.type,
        "tags": list(record.tags),
        "authors": list(record.authors),
        "created_at": record.created_at or memory.created_at,
    }
    here = {name: getattr(memory, name) for name in _COMPARED}
    here |= {name: list(here[name]) for name in ("tags", "authors")}
    compared = [name for name in _COMPARED if name not in stored["volatile"]]
    return tuple((name, here[name], there[name]) for name in compared if _differ(here[name], there[name]))


def _differ(here: Any, there: Any) -> bool:
    if isinstance(here, list):
        return sorted(here) != sorted(there)
    return bool(here != there)
