"""Brings the changes of a followed source: what is new or changed is imported, what is gone is deleted.

One transaction writes the memories and what was seen of the source, so that a reading that ends early has no effect.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from django.db import connection, transaction
from django.db.models import Q
from django.utils import timezone

from access.viewer import Viewer
from memories.history import value_before
from memories.models import FollowedSource, ImportBatch, Memory, SourceConflict
from memories.storage import memories_audit, snapshots_read, snapshots_update
from memories.vocabulary_records import is_vocabulary
from transfer.follow.seen import (
    Numbers,
    Row,
    Seen,
    hashed,
    key_of,
    seen_count,
    seen_forget,
    seen_gone,
    seen_memories,
    seen_read,
    seen_write,
    stamp_of,
)
from transfer.formats.base import ImportFailedError, Options, Reading, Records, RefusedRecord, SourceRecord
from transfer.formats.choices import with_values
from transfer.formats.importer import Following, Importer
from transfer.formats.note_files import NOTE_FILE, note_file_in
from transfer.formats.registry import importer_named
from transfer.formats.sources import Source
from transfer.match import edited_here
from transfer.run import ImportChoices, Outcome, import_path
from transfer.state import ImportCounts

GONE = "It is no longer in its source."
# If more memories than this, and more than half, are gone at once, somebody is asked: the file may be another one.
MANY = 100
# The readings of a source that only changed memories, of which this many can be undone one by one.
MAX_READINGS = 100
_FORGOTTEN = 1_000
_FEW = 10
_LOOKED_UP = 2_000
_WRITTEN = 5_000
# The answers to the question what is done about many memories that are gone.
DELETE, KEEP = "delete", "keep"

ProgressCall = Callable[[ImportCounts, float | None], None]


class FollowedMeanwhileError(ImportFailedError):
    """Another process has read the source at the same time; nothing was written."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How a source is read: the viewer that writes, and functions that are called meanwhile."""

    viewer: Viewer
    progress: ProgressCall = lambda tally, fraction: None
    refused: Callable[[RefusedRecord], None] = lambda refusal: None


def source_has_changed(source: FollowedSource) -> bool:
    """Whether a source may have changed since it was read, by a cheap question. Raises ImportFailedError."""
    return source_stamp(source) != source.stamp


def source_stamp(source: FollowedSource) -> str:
    """The state of a source. Raises ImportFailedError if it cannot be read."""
    try:
        return _following(source)[1].stamp(Path(source.path))
    except OSError as error:
        raise ImportFailedError(f"{source.path}: cannot be read: {error.strerror}.") from None


def source_sync(source: FollowedSource, choices: Choices) -> Outcome | None:
    """Read what changed in a source. Returns the import, or None if nothing came of it.

    A source that is not stored yet is stored with its first reading. Raises ImportFailedError, and
    FollowedMeanwhileError.
    """
    importer, following = _following(source)
    path = Path(source.path)
    if not importer.knows(Source(path)):
        raise ImportFailedError(f"{path}: is no longer what it was: {importer.looks_like}. Its memories stay.")
    # Before it is read: what changes meanwhile is found by the next look.
    sync = _Sync(source, source_stamp(source), seen_read(source.pk), choices)
    with closing(sync.records(importer, following)) as records:
        first = next(records, None)
        if first is None and not sync.has_gone():
            sync.unchanged()
            return None
        outcome = import_path(
            path=path,
            importer=importer,
            viewer=choices.viewer,
            choices=ImportChoices(source.project),
            refused=choices.refused,
            progress=choices.progress,
            reading=Reading(_after(first, records), sync.fraction),
            observer=sync,
        )
    return outcome if outcome.batch_id else None


def _after(first: SourceRecord | RefusedRecord | None, rest: Records) -> Records:
    yield from chain([first] if first else [], rest)


def _following(source: FollowedSource) -> tuple[Importer, Following]:
    importer = importer_named(source.format)
    if importer.follow is None:
        raise ImportFailedError(f"{source.path}: {source.format} is not followed.")
    return importer, importer.follow


class _Sync:
    """A reading of a source: which records are read on, and what becomes of them. Implements ImportObserver."""

    def __init__(self, source: FollowedSource, stamp: str, seen: Seen, choices: Choices) -> None:
        self._source = source
        self._stamp = stamp
        self._seen = seen
        self._choices = choices
        self._present: list[Numbers] = []
        # Hashes of the locations of its parts, in order, and of what is there; None for a source without parts.
        self._parts: Seen | None = None
        self._reading: Reading | None = None
        # Records that are read on, by location, until they are stored.
        self._waiting: dict[str, tuple[int, int]] = {}
        self._rows: list[Row] = []
        self._returned: list[int] = []
        self._conflicts: dict[int, tuple[SourceRecord | None, str]] = {}
        self._open = set(source.conflicts.values_list("memory_id", flat=True))
        self._solved: set[int] = set()
        # Memories whose place in the source has another one now.
        self._replaced: set[int] = set()
        self._wrote = False

    def fraction(self) -> float | None:
        return self._reading.fraction() if self._reading else None

    # --- reading -----------------------------------------------------------------------------------------------------

    def records(self, importer: Importer, following: Following) -> Records:
        """The records that are new or changed. Everything that is there counts as present once this is over."""
        path, options = Path(self._source.path), Options(self._source.project, **self._source.read_as)
        if following.parts is None or following.read_parts is None:
            self._reading = importer.read(path, options)
        else:
            wanted = self._wanted(following.parts(path))
            if len(wanted) == len(self._parts or ()) and not len(self._seen):
                self._reading = importer.read(path, options)
            else:
                self._reading = following.read_parts(path, options, wanted)
        block: list[SourceRecord | RefusedRecord] = []
        with closing(with_values(self._reading.records, options.values)) as records:
            for found in records:
                block.append(found)
                if len(block) == _LOOKED_UP:
                    yield from self._changed(block)
                    block = []
            yield from self._changed(block)

    def _wanted(self, parts: Iterable[tuple[str, str]]) -> set[str]:
        """The locations of the parts that differ from what was seen."""
        listed = list(parts)
        keys = np.array([hashed(location) for location, _ in listed], np.int64)
        stamps = np.array([hashed(text) if text else 0 for _, text in listed], np.int64)
        self._present.append(keys)
        order = np.argsort(keys)
        self._parts = Seen(keys[order], stamps[order], np.zeros(0, np.int64))
        differs = (stamps != 0) & (stamps != self._seen.stamps_of(keys))
        return {listed[place][0] for place in np.flatnonzero(differs).tolist()}

    def _changed(self, block: list[SourceRecord | RefusedRecord]) -> Iterator[SourceRecord | RefusedRecord]:
        if not block:
            return
        keys = np.array([key_of(found) for found in block], np.int64)
        if self._parts is not None:
            stamps = self._parts.stamps_of(keys)
            same = np.zeros(len(keys), np.bool_)
        else:
            stamps = np.array([stamp_of(found) for found in block], np.int64)
            same = stamps == self._seen.stamps_of(keys)
            self._present.append(keys)
        for found, key, stamp, is_same in zip(block, keys.tolist(), stamps.tolist(), same.tolist(), strict=True):
            if is_same:
                continue
            if isinstance(found, SourceRecord) and not is_vocabulary(found.data):
                self._waiting[found.location] = (key, stamp)
            elif stamp:
                self._rows.append((key, stamp, 0 if isinstance(found, SourceRecord) else None))
            yield found

    def has_gone(self) -> bool:
        """Whether something that was there is missing, or an answer about that waits."""
        return len(self._seen.missing(self._present)) > 0

    # --- what becomes of the records ---------------------------------------------------------------------------------

    def gone_memories(self) -> list[int]:
        return seen_memories(self._source.pk, self._seen.missing(self._present))

    def memory_at(self, location: str) -> int | None:
        key, _ = self._waiting.get(location, (0, 0))
        stamp, memory_id = self._seen.at(key)
        return memory_id if stamp and memory_id else None

    def settled(self, location: str, memory_id: int) -> None:
        key, stamp = self._waiting.pop(location, (0, 0))
        if not stamp:
            return
        self._rows.append((key, stamp, memory_id))
        if memory_id in self._open:
            self._solved.add(memory_id)
        former_stamp, former = self._seen.at(key)
        if former and former != memory_id:
            self._replaced.add(former)
        if former and not former_stamp:
            self._returned.append(memory_id)
        if len(self._rows) >= _WRITTEN:
            self._flush()

    def conflicting(self, found: SourceRecord, memory_id: int, edit: str) -> None:
        self._conflicts[memory_id] = (found, edit)
        self.settled(found.location, memory_id)

    def finish(self, batch: ImportBatch, tally: ImportCounts) -> bool:
        self._rows += [(key, stamp, None) for key, stamp in self._waiting.values() if stamp]
        self._waiting.clear()
        self._flush()
        batch.followed_id = self._source.pk
        tally.updated += self._restore(batch.pk)
        self._remove(batch.pk, tally)
        self._store_conflicts()
        came = bool(
            tally.created or tally.updated or tally.gone or tally.conflicts or tally.refused or any(tally.made.values())
        )
        self._store_source(came=came)
        if came:
            _readings_forget(self._source)
        return came

    def unchanged(self) -> None:
        """Record that the source was read, and nothing had changed."""
        with transaction.atomic():
            self._store_source(came=False)

    def _flush(self) -> None:
        self._wrote = self._wrote or bool(self._rows)
        seen_write(self._source.pk, self._rows)
        self._rows = []

    def _restore(self, batch_id: int) -> int:
        """Restore memories that are in the source again, if they were deleted for no longer being there."""
        gone = Memory.objects.filter(pk__in=self._returned, state_reason=GONE).values_list("pk", flat=True)
        ids = sorted(gone)
        blocks = (ids[start : start + _WRITTEN] for start in range(0, len(ids), _WRITTEN))
        return sum(memories_return(block, self._choices.viewer, batch_id) for block in blocks)

    def _remove(self, batch_id: int, tally: ImportCounts) -> None:
        """Delete the memories of records that are gone; those that were edited here become conflicts."""
        source = self._source
        keys = self._seen.missing(self._present)
        had = int(np.count_nonzero(self._seen.stamps))
        waits = len(keys) > MANY and len(keys) > had / 2 and not source.gone_answer
        source.gone_waiting = len(keys) if waits else 0
        if len(keys) and source.gone_answer == KEEP:
            self._wrote = True
            seen_forget(source.pk, keys)
        gone = keys[:0] if waits or source.gone_answer == KEEP else keys
        if len(gone) or self._replaced:
            self._wrote = True
            ids = seen_gone(source.pk, gone, self._replaced)
            for start in range(0, len(ids), _WRITTEN):
                self._delete(ids[start : start + _WRITTEN], batch_id, tally)
        source.gone_answer = ""

    def _delete(self, ids: list[int], batch_id: int, tally: ImportCounts) -> None:
        present = snapshots_read(ids)
        edited = edited_here(list(present))
        changes = []
        for memory_id, before in present.items():
            if before.state == Memory.State.DELETED:
                continue
            if memory_id in edited:
                self._conflicts[memory_id] = (None, edited[memory_id])
                tally.conflicts += 1
                continue
            changes.append(
                (
                    before,
                    replace(before, state=Memory.State.DELETED.value, state_reason=GONE, updated_at=timezone.now()),
                )
            )
        changes = snapshots_update(changes)
        memories_audit(self._choices.viewer, "delete", changes, batch_id=batch_id)
        tally.gone += len(changes)

    def _store_conflicts(self) -> None:
        solved = self._solved - self._conflicts.keys()
        SourceConflict.objects.filter(source_id=self._source.pk, memory_id__in=solved).delete()
        now = timezone.now()
        SourceConflict.objects.bulk_create(
            [
                SourceConflict(
                    source_id=self._source.pk,
                    memory_id=memory_id,
                    record=record_as_stored(found) if found else None,
                    edit=edit,
                    noticed_at=now,
                )
                for memory_id, (found, edit) in self._conflicts.items()
            ],
            batch_size=500,
            update_conflicts=True,
            unique_fields=["memory_id", "source"],
            update_fields=["record", "edit", "noticed_at"],
        )

    def _store_source(self, *, came: bool) -> None:
        source, now = self._source, timezone.now()
        source.stamp, source.read_at, source.looked_at, source.error = self._stamp, now, now, ""
        if came:
            source.changed_at = now
        if self._wrote:
            source.memories, source.refused = seen_count(source.pk)
        source.version += 1
        if source._state.adding:
            source.save(force_insert=True)
            return
        values = {name: getattr(source, name) for name in _STORED}
        if not FollowedSource.objects.filter(pk=source.pk, version=source.version - 1).update(**values):
            raise FollowedMeanwhileError(f"{source.path}: was read by another process at the same time, or is stopped.")


def memories_return(ids: Sequence[int], viewer: Viewer, batch_id: int) -> int:
    """Restore those of some memories that are deleted. As a part of a reading it is no edit of theirs.

    Returns how many were deleted.
    """
    changes = []
    for memory_id, before in snapshots_read(ids).items():
        if before.state == Memory.State.DELETED:
            state = value_before(memory_id, "state", Memory.State.DELETED.value, viewer)
            state = state if state in Memory.State.values else Memory.State.ACTIVE.value
            changes.append((before, replace(before, state=state, state_reason="", updated_at=timezone.now())))
    changes = snapshots_update(changes)
    memories_audit(viewer, "restore", changes, batch_id=batch_id)
    return len(changes)


_STORED = (
    *("stamp", "version", "read_at", "looked_at", "changed_at", "error", "memories", "refused"),
    *("gone_waiting", "gone_answer"),
)


def _readings_forget(source: FollowedSource) -> None:
    """Remove the batches of old readings that only changed memories, or deleted few; the histories of these stay.

    A reading that made a memory or a name stays: what it made belongs to it, so that there are never more of them than
    memories and names. One that deleted many is what an undo is wanted for.
    """
    # Through importbatch_changes_idx.
    changing = source.batches.filter(state=ImportBatch.State.DONE, created=0, report__vocabulary_made={})
    changing = changing.filter(Q(report__gone__isnull=True) | Q(report__gone__lte=_FEW))
    old = list(changing.order_by("-id").values_list("pk", flat=True)[MAX_READINGS : MAX_READINGS + _FORGOTTEN])
    # The events of the history keep the number of their batch, by which they are no edits.
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM memories_importbatch WHERE id = ANY(%s)", [old])


def record_as_stored(found: SourceRecord) -> dict[str, Any]:
    """A record as JSON, from which it can be made again."""
    return {
        "location": found.location,
        "data": found.data,
        "raw": found.raw,
        "volatile": sorted(found.volatile),
        "volatile_raw": sorted(found.volatile_raw),
        "file": found.file and found.file.as_json(),
    }


def record_from_stored(stored: Mapping[str, Any]) -> SourceRecord:
    return SourceRecord(
        stored["location"],
        stored["data"],
        frozenset(stored["volatile"]),
        stored["raw"],
        frozenset(stored["volatile_raw"]),
        file=note_file_in({NOTE_FILE: stored.get("file")}),
    )
