"""The first rows of an upload as they will be, before anything is stored."""

import threading
import time
from collections import OrderedDict
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from home.jobs import importer_of, job_text
from home.models import ImportJob
from memories.importers.base import Column, Importer, ImportFailedError, Options, Records, SourceRecord
from memories.records import STORABLE, MemoryRecord, derived_title
from memories.vocabulary_records import is_vocabulary
from text.titles import plain_title
from web.validation import reasons

_ROWS = 8
_READ = 200
# If there are several files.
_FILES, _ROWS_OF_FILE = 20, 3
_COLUMNS = 100
# Somebody waits for the page. A record that takes longer is the last one.
_SECONDS = 10.0
# Those that are not shown are only counted.
_COUNT_SECONDS = 1.0
# Previews that a process has at hand: the page asks again at each look, and a ZIP must be unpacked for one.
_AT_HAND = 32
_previews: OrderedDict[tuple[object, ...], "Preview"] = OrderedDict()
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class PreviewRow:
    """A memory as it will be."""

    title: str
    type: str
    project: str
    """Empty if the record names none."""
    tags: tuple[str, ...]
    created_at: datetime | None
    text: str


@dataclass(frozen=True, slots=True)
class PreviewFile:
    """A file of a source that has several: how it is read, or why it is not."""

    name: str
    format: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """The format of a source, its first rows, and the first records that cannot be taken, with the reasons."""

    format: str
    about: str
    rows: tuple[PreviewRow, ...]
    refused: tuple[tuple[str, str], ...]
    error: str = ""
    """Why nothing can be imported."""
    notes: tuple[tuple[str, str], ...] = ()
    """Locations of the first rows from which something is left out or cut, and what."""
    columns: tuple[Column, ...] = ()
    files: tuple[PreviewFile, ...] = ()
    """The first files of several."""
    count: int | None = None
    """The number of memories, if so few that all were read."""


@dataclass(slots=True)
class _Found:
    """The rows and refusals found so far."""

    rows: list[PreviewRow] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    until: float = field(default_factory=lambda: time.monotonic() + _SECONDS)
    counts_until: float = field(default_factory=lambda: time.monotonic() + _COUNT_SECONDS)
    count: int = 0
    """The memories read, of which the first ones are rows."""
    is_all: bool = True

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until

    def add(self, records: Records, importer: Importer, most: int) -> None:
        """Read the first records, and add the rows of some of them."""
        enough, read = len(self.rows) + most, 0
        if importer.previews_in_part:
            self.is_all, self.counts_until = False, 0.0
        with closing(records):
            for record in islice(records, _READ):
                read += 1
                if not isinstance(record, SourceRecord):
                    self.refused.append((record.location, record.reason))
                elif not is_vocabulary(record.data):
                    try:
                        row = _row(MemoryRecord.model_validate(record.data, context=STORABLE))
                    except ValidationError as error:
                        self.refused.append((record.location, "; ".join(reasons(error, MemoryRecord))))
                    else:
                        self.count += 1
                        if len(self.rows) < enough:
                            self.rows.append(row)
                            self.notes.extend((record.location, note) for note in record.notes)
                if self.is_over or (len(self.rows) == enough and time.monotonic() > self.counts_until):
                    self.is_all = False
                    break
        self.is_all = self.is_all and read < _READ


def preview_of(job: ImportJob) -> Preview:
    """The first rows of an upload. Of several files, the first rows of each of the first ones.

    An upload that is ready does not change, so that its preview is made once for each way to read its columns.
    """
    key = (job.pk, job.path, tuple(sorted(job.columns.items())))
    with _lock:
        if (known := _previews.get(key)) is not None:
            return known
    made = _preview_make(job)
    # A failed preview may succeed later: the disk may be full.
    if not made.error:
        with _lock:
            _previews[key] = made
            while len(_previews) > _AT_HAND:
                _previews.popitem(last=False)
    return made


def _preview_make(job: ImportJob) -> Preview:
    path, options = Path(job.path), Options(columns=job.columns, is_preview=True)
    found, files = _Found(), list[PreviewFile]()
    name = about = error_text = ""
    columns: tuple[Column, ...] = ()
    try:
        importer = importer_of(job)
        name, about = importer.name, importer.looks_like
        columns = tuple(importer.columns(path, options))[:_COLUMNS]
        if importer.parts is None:
            found.add(importer.read(path, options).records, importer, _ROWS)
        else:
            with closing(importer.parts(path)) as parts:
                for part in islice(parts, _FILES):
                    files.append(PreviewFile(part.name, part.importer.name if part.importer else "", part.reason))
                    if found.is_over:
                        found.is_all = False
                        break
                    if part.importer:
                        found.add(part.records(options), part.importer, _ROWS_OF_FILE)
    except ImportFailedError as error:
        error_text = job_text(job, str(error))
    return Preview(
        format=name,
        about=about,
        rows=tuple(found.rows),
        refused=tuple(found.refused[:_ROWS]),
        error=error_text,
        notes=tuple(found.notes[:_ROWS]),
        columns=columns,
        files=tuple(files),
        count=found.count if found.is_all and not error_text and len(files) < _FILES else None,
    )


def _row(record: MemoryRecord) -> PreviewRow:
    text = " ".join(record.content[:400].split())
    return PreviewRow(
        title=plain_title(record.title or derived_title(record.content)),
        type=record.type,
        project=record.project,
        tags=tuple(record.tags[:5]),
        created_at=record.created_at,
        text=text[:200],
    )
