"""Writes edits made here into the notes of a followed folder, if somebody asked for that.

A note is written only if its file is still as it was last read; if both sides changed, the next reading finds a
conflict. Before a file is replaced, its memory remembers the hash of the new one: so the reading knows it again,
whatever happens in between, and writes that ended early are done again.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.db import transaction

from access.models import MemoryChange
from access.viewer import Viewer
from memories.models import Corpus, FollowedRecord, FollowedSource, Memory
from memories.snapshot import MemorySnapshot
from memories.storage import snapshots_read
from text.formatting import plural
from transfer.export import Selection, export_lines
from transfer.follow.seen import hashed
from transfer.formats import markdown
from transfer.formats.base import ImportFailedError, fault_text
from transfer.formats.export import Line
from transfer.formats.note_edits import Around, edited_note, state_word
from transfer.formats.note_files import NOTE_FILE, NoteFile, digest_of, note_file_in, pending_of
from transfer.formats.note_writing import NoteNotWritableError, replace_note
from web.sql import execute

logger = logging.getLogger("mnemoscope.following")

_BLOCK = 200
# Notes whose words for states are looked at.
_LOOKED_AT = 200


def is_writable(source: FollowedSource) -> bool:
    """Whether edits can be written to a source: to notes alone."""
    return source.format == markdown.IMPORTER.name


def check_writable(source: FollowedSource) -> None:
    """Raises ImportFailedError for a source of another format than notes."""
    if not is_writable(source):
        raise ImportFailedError(
            f"{source.path}: edits are written back to folders of Markdown notes alone; {source.format} is read only."
        )


def write_back_set(source: FollowedSource, *, on: bool) -> None:
    """Begin or cease to write edits to a source. Those made before it began are written too.

    Raises ImportFailedError for a source that cannot be written to.
    """
    if on:
        check_writable(source)
    with transaction.atomic():
        FollowedSource.objects.filter(pk=source.pk).update(
            written_revision=0 if on else None, **({"stamp": ""} if on else {})
        )
        if on:
            # Each note is read once more: those of earlier versions have no file in their records.
            FollowedRecord.objects.filter(source_id=source.pk).exclude(stamp=0).update(stamp=1)
    source.refresh_from_db()


def source_write_back(source: FollowedSource, viewer: Viewer) -> int:
    """Write the edits since the last time. Returns the number of notes that were written.

    Raises ImportFailedError if some cannot be written; the others are, and these are tried again.
    """
    if source.written_revision is None:
        return 0
    revision = Corpus.objects.values_list("revision", flat=True).first() or 0
    if revision <= source.written_revision:
        return 0
    entries = MemoryChange.objects.filter(revision__gt=source.written_revision, revision__lte=revision)
    ids = {memory_id for found in entries.values_list("memory_ids", flat=True).iterator() for memory_id in found}
    outcome = _Writing(source, viewer)
    ordered = sorted(ids - set(source.conflicts.values_list("memory_id", flat=True)))
    for start in range(0, len(ordered), _BLOCK):
        outcome.write(ordered[start : start + _BLOCK])
    if not outcome.waits:
        FollowedSource.objects.filter(pk=source.pk, written_revision=source.written_revision).update(
            written_revision=revision
        )
    if outcome.problems:
        more = f" So do {plural(len(outcome.problems) - 1, 'other file')}." if len(outcome.problems) > 1 else ""
        raise ImportFailedError(f"{outcome.problems[0]}{more}")
    return outcome.written


class _Writing:
    """A pass over edited memories of a source, and what became of them."""

    def __init__(self, source: FollowedSource, viewer: Viewer) -> None:
        path = Path(source.path)
        self._source = source
        self._viewer = viewer
        self._root = path if path.is_dir() else path.parent
        self._words: dict[str, str] | None = None
        self.written = 0
        self.waits = False
        self.problems: list[str] = []

    def write(self, ids: Sequence[int]) -> None:
        """Write the notes of those memories that are in the source and were edited."""
        known = FollowedRecord.objects.filter(source_id=self._source.pk, memory_id__in=ids).exclude(stamp=0)
        keys = dict(known.values_list("memory_id", "key"))
        edited: dict[int, tuple[NoteFile, MemorySnapshot]] = {}
        for memory in snapshots_read([pk for pk in keys if pk]).values():
            note = note_file_in(json.loads(memory.raw or "{}"))
            # A memory that was deleted here has its note there still.
            if note is None or hashed(note.path) != keys[memory.id] or memory.state == Memory.State.DELETED:
                continue
            if note.edited_fields(memory):
                edited[memory.id] = (note, memory)
        if not edited:
            return
        for line in export_lines(Selection(self._viewer, memory_ids=list(edited))):
            if "record" not in line:
                self._write_one(line, *edited[line["stored"]["number"]])

    def _write_one(self, line: Line, note: NoteFile, memory: MemorySnapshot) -> None:
        if not note.digest:
            self.problems.append(f"{self._root / note.path}: holds secrets, masked here, and is not written to.")
            self.waits = True
            return
        try:
            data = edited_note(note, line, self._around(line, note))
        except Exception as error:
            logger.exception("The edits of %s cannot be written.", note.path)
            self.problems.append(f"{self._root / note.path}: {fault_text(error)}; it is not written to.")
            return
        if digest_of(data) == note.digest:
            return
        pending = pending_of(memory, digest_of(data))
        execute(
            "UPDATE memories_memory SET raw = jsonb_set(raw, '{note_file,pending}', %s::jsonb) WHERE id = %s",
            [json.dumps(pending), memory.id],
        )
        try:
            is_written = replace_note(self._root, note.path, digest=note.digest, data=data)
        except NoteNotWritableError as error:
            self.problems.append(str(error))
            is_written = False
        self.written += is_written
        # If it has changed, the reading that follows finds a conflict, or its present bytes.
        self.waits = self.waits or not is_written

    def _around(self, line: Line, note: NoteFile) -> Around:
        by = line["stored"].get("superseded_by")
        successor = Memory.objects.filter(pk=by).only("title", "raw").first() if by else None
        there = note_file_in(successor.raw) if successor else None
        name = there.path.rpartition(".")[0] if there and there.vault == note.vault else successor and successor.title
        return Around(name or "", lambda state: self._state_words().get(state))

    def _state_words(self) -> dict[str, str]:
        """The words for states in some notes of the source."""
        if self._words is None:
            rows = FollowedRecord.objects.filter(source_id=self._source.pk, memory_id__gt=0)
            ids = [pk for pk in rows.values_list("memory_id", flat=True)[:_LOOKED_AT] if pk]
            raws: list[Any] = list(Memory.objects.filter(pk__in=ids).values_list("raw", flat=True))
            self._words = dict(state_word(raw) for raw in raws if isinstance(raw, dict) and NOTE_FILE in raw)
        return self._words
