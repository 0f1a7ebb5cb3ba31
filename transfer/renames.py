"""Notes that are no longer where an earlier import found them: renamed ones are known by their texts."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from django.db.models import Q
from django.utils import timezone

from access.viewer import Viewer
from curation.journal import write_states
from curation.services import exclude_writers
from memories.history import value_before
from memories.models import ImportBatch, Memory
from memories.queries import visible_to
from memories.storage import corpus_bump, memories_audit, one_revision, outbox_stamp, snapshots_read, snapshots_update
from transfer.formats.note_files import NOTE_SUFFIXES

# A note of fewer characters is like others by chance.
_SHORTEST = 20
_MOST_GONE = 5_000
_PRESENT = (Memory.State.ACTIVE, Memory.State.PROPOSED, Memory.State.SUPERSEDED)
# The share of the notes of an earlier import that may be missing in the same source.
_MOST_MISSING = 0.75
# The least share of the notes of an upload that were there before whose texts are the same.
_SAME_TEXTS = 1 / 3


class GoneNote(NamedTuple):
    """A memory whose note is not at its place any more."""

    id: int
    project_id: int
    external_id: str
    title: str
    content: str
    record_hash: str
    state: str


class Renames:
    """The memories of notes that are gone, until one of them is found under another name."""

    def __init__(self, gone: Callable[[], Iterable[int]]) -> None:
        self._ids = gone
        self._gone: dict[int, GoneNote] | None = None
        self._by_content: dict[tuple[int, str], list[int]] = defaultdict(list)
        self.renamed = 0
        """How many were found under another name."""

    @property
    def gone(self) -> dict[int, GoneNote]:
        """Those that no note was found for yet, by their ids."""
        if self._gone is None:
            rows = Memory.objects.filter(pk__in=list(self._ids())[:_MOST_GONE]).order_by("pk")
            found = (GoneNote(*row) for row in rows.values_list(*GoneNote._fields))
            # A note with an id of its own is known by that wherever it is: it is neither renamed nor gone.
            self._gone = {one.id: one for one in found if one.external_id.lower().endswith(NOTE_SUFFIXES)}
            for one in self._gone.values():
                self._by_content[one.project_id, one.content].append(one.id)
        return self._gone

    def find(self, project_id: int, content: str) -> GoneNote | None:
        """The note that had this text under another name. It is taken for one note alone."""
        if not self.gone or len(content) < _SHORTEST:
            return None
        found = next((one for one in self._by_content[project_id, content] if one in self.gone), None)
        self.renamed += found is not None
        return self.gone.pop(found) if found else None


def is_upload(origin: str) -> bool:
    """Whether the origin of an import is the name of a file, which another one may have too."""
    return "/" not in origin and "\\" not in origin


def gone_reason(origin: str) -> str:
    """Why a memory is archived whose note is gone. It is active again if the note returns, unless its state changed."""
    return f"Its note is no longer in {origin}."


def earlier_notes(origin: str, places: Collection[str], viewer: Viewer) -> list[int]:
    """The memories of earlier imports of a source whose notes are not at these places.

    Another source of the same name has few of these notes, or none: its own are not gone.
    """
    notes = Memory.objects.filter(batch__origin=origin, batch__state=ImportBatch.State.DONE, source="markdown")
    is_gone = Q(state=Memory.State.ARCHIVED, state_reason=gone_reason(origin))
    present = notes.filter(Q(state__in=_PRESENT) | is_gone, pk__in=visible_to(viewer).values("pk"))
    rows = present.values_list("pk", "source_uri", "external_id", "batch_id", "state")
    known = set(places)
    sources: dict[int | None, list[tuple[int, bool, str]]] = defaultdict(list)
    for pk, place, name, batch_id, state in rows:
        if name.lower().endswith(NOTE_SUFFIXES):
            # Two uploads of one name may be of two sources, so that each import is judged by itself.
            source = batch_id if is_upload(origin) else None
            sources[source].append((pk, place in known or name in known, state))
    gone: list[int] = []
    for found in sources.values():
        there = [is_there for _, is_there, state in found if state != Memory.State.ARCHIVED]
        if there and there.count(False) <= _MOST_MISSING * len(there):
            gone += [pk for pk, is_there, _ in found if not is_there]
    return gone


def listed_gone(
    renames: Renames, origin: str, project_ids: Collection[int], *, same: int, changed: int
) -> list[dict[str, object]]:
    """The notes that an import of a source did not find any more, in the projects that it wrote to.

    `same` and `changed` are the numbers of notes that it had before. An upload is known by its name alone: it is taken
    for another source if most of the notes are gone, or have other texts.
    """
    present = (Memory.State.ACTIVE, Memory.State.PROPOSED)
    gone = [one for one in renames.gone.values() if one.state in present and one.project_id in project_ids]
    if is_upload(origin) and (len(gone) > same + changed or same < _SAME_TEXTS * (same + changed)):
        return []
    return [{"id": one.id, "title": one.title, "place": one.external_id} for one in gone]


def restore_returned(memory_ids: Collection[int], viewer: Viewer, batch_id: int) -> None:
    """Restore memories that were archived because their notes were gone. As a part of an import it is no edit."""
    changes = []
    for memory_id, before in snapshots_read(memory_ids).items():
        state = value_before(memory_id, "state", Memory.State.ARCHIVED.value, viewer)
        state = state if state in _PRESENT else Memory.State.ACTIVE.value
        changes.append((before, replace(before, state=state, state_reason="", updated_at=timezone.now())))
    memories_audit(viewer, "restore", snapshots_update(changes), batch_id=batch_id)


def gone_notes(batch: ImportBatch | None, viewer: Viewer) -> list[dict[str, Any]]:
    """The notes that an import did not find any more and whose memories are still there, as far as the viewer sees."""
    listed = (batch.report or {}).get("gone_notes", []) if batch else []
    present = visible_to(viewer).filter(pk__in=[one["id"] for one in listed], state__in=["active", "proposed"])
    ids = set(present.values_list("pk", flat=True)) if listed else set()
    return [one for one in listed if one["id"] in ids]


def archive_gone(batch: ImportBatch, viewer: Viewer) -> int:
    """Archive the memories of notes that an import did not find any more, those that the viewer may write. Returns
    their number.

    It is a part of the import: its undo restores them. Raises CurationBusyError.
    """
    with exclude_writers(), one_revision():
        if not ImportBatch.objects.filter(pk=batch.pk, state=ImportBatch.State.DONE).exists():
            return 0
        before = snapshots_read(one["id"] for one in gone_notes(batch, viewer))
        reason, now = gone_reason(batch.origin), timezone.now()
        changes = [
            (one, replace(one, state=Memory.State.ARCHIVED.value, state_reason=reason, updated_at=now))
            for one in before.values()
            if viewer.may_write(one.project_id)
        ]
        write_states([[after.id, after.state, after.state_reason, after.superseded_by_id] for _, after in changes])
        memories_audit(viewer, "archive", changes, batch_id=batch.pk)
        outbox_stamp()
        corpus_bump()
    return len(changes)
