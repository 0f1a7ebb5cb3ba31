"""Reads that the page of a memory shares with the panel beside the results."""

from collections.abc import Mapping
from datetime import UTC, datetime

from django.forms import BoundField

from access.viewer import Viewer
from explorer.history.page import HistoryContext, build_history
from explorer.memory.edit import REPLACED_BY, REPLACES, TERMS, EditForm
from memories.history import history_of
from memories.queries import MemoryDetail, memory_version
from memories.recalls import recalls_of

_EVENTS_SHOWN = 20


def read_history(found: MemoryDetail, viewer: Viewer, limit: int = _EVENTS_SHOWN, before: str = "") -> HistoryContext:
    """The events of a memory that the viewer sees, before one of them if that is named."""
    memory = found.memory
    events = history_of(memory, viewer, limit=limit, before=before)
    may_write, version = viewer.may_write(memory.project_id), memory_version(memory)
    return build_history(
        memory,
        events,
        version,
        viewer.timezone,
        may_write=may_write,
        has_newer=bool(before),
        recalls=recalls_of(viewer, memory.pk),
        today=datetime.now(UTC).date(),
    )


def fact_controls(found: MemoryDetail, viewer: Viewer) -> Mapping[str, BoundField]:
    """The fields that edit facts of a memory in place, by name; none if the viewer may not write it."""
    if not viewer.may_write(found.memory.project_id):
        return {}
    return {field.name: field for field in EditForm(None, viewer, found, only=(*TERMS, REPLACES, REPLACED_BY))}
