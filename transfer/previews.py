"""The first rows of an upload as they will be, before anything is stored.

An upload may be hostile, and to read it may take long. So a process of its own makes the previews, one after another,
and leaves each in a file; requests only look whether it is there.
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from django.conf import settings
from pydantic import BaseModel, Field, TypeAdapter

from access.viewer import Viewer
from memories.records import MemoryRecord, derived_title
from memories.vocabulary_records import is_vocabulary
from text.highlight import plain_title
from transfer.blocks import Incoming, validate_source, without_secrets
from transfer.formats.base import (
    Column,
    ColumnsError,
    ImportFailedError,
    Options,
    Records,
    RefusedRecord,
    SourceRecord,
)
from transfer.formats.choices import check_choices, with_values
from transfer.formats.csv_table import columns_check
from transfer.formats.importer import Importer
from transfer.jobs import (
    JobStateError,
    State,
    UploadInvalidError,
    importer_of,
    job_previews,
    job_text,
    viewer_of_starter,
)
from transfer.match import count_known
from transfer.models import ImportJob
from web.processes import start_once
from web.secrets import texts_to_store

_ROWS = 50
# Records that are named, since they are not taken, or with a note.
_NAMED = 8
_READ = 20_000
# If there are several files.
_FILES, _ROWS_OF_FILE = 20, 10
_COLUMNS = 1_000
# Somebody waits for the page. A record that takes longer is the last one.
_SECONDS = 10.0
# Those that are not shown are only counted.
_COUNT_SECONDS = 4.0
_TYPES, _TAGS, _FOLDERS = 12, 12, 20
# The system ends the process that makes previews when one takes longer, whatever it is at.
_MOST_SECONDS = 40
_MOST_TRIES = 2
_LOCK = "previews.lock"
# A process that was started a moment ago may not have the lock yet.
_START_SECONDS = 10.0
_started = float("-inf")


class PreviewedRow(BaseModel):
    """A memory as it will be."""

    title: str
    type: str
    project: str = Field(description="Empty if the record names none.")
    tags: list[str]
    created_at: datetime | None
    text: str
    state: str = Field("", description="Empty if the record gives none: it is active then.")
    authors: list[str] = []


class PreviewedFile(BaseModel):
    """One of several files."""

    name: str
    format: str = Field(description="Empty if it cannot be read.")
    reason: str = Field(description="Why it cannot be read; empty if it can.")


class PreviewedRule(BaseModel):
    """A rule by which notes have their type, since they name none."""

    rule: str = Field(description="A folder as `Decisions/`, a `#tag` or a `## Heading`.")
    type: str
    memories: int


class PreviewedSum(BaseModel):
    """All that was read for a preview, in numbers."""

    memories: int
    is_all: bool = Field(description="Whether the whole source was read.")
    refused: int
    notes: int
    undated: int = Field(description="Memories without a date of their own.")
    first: datetime | None = Field(description="The earliest date of a memory that gives one.")
    last: datetime | None
    known: int = Field(0, description="Memories that are here already, as they are, in whatever project.")
    known_in: str = Field("", description="The project that most of these are in.")
    types: dict[str, int] = Field(description="The most frequent types, and how many memories have them.")
    tags: dict[str, int]
    states: dict[str, int] = Field({}, description="How many memories have each state.")
    folders: dict[str, int] = Field({}, description="The folders of notes, and how many memories come from them.")
    without_project: int = Field(0, description="Memories that name no project.")
    rules: list[PreviewedRule]


@dataclass(frozen=True, slots=True)
class Preview:
    """The format of a source, its first rows, and the first records that cannot be taken, with the reasons."""

    format: str
    about: str
    rows: tuple[PreviewedRow, ...]
    refused: tuple[tuple[str, str], ...]
    error: str = ""
    """Why nothing can be imported."""
    notes: tuple[tuple[str, str], ...] = ()
    """Locations of the first rows from which something is left out or cut, and what."""
    columns: tuple[Column, ...] = ()
    files: tuple[PreviewedFile, ...] = ()
    """The first files of several."""
    count: int | None = None
    """The number of memories, if so few that all were read."""
    found: "PreviewedSum | None" = None


@dataclass(slots=True)
class _Found:
    """The rows and refusals found so far."""

    rows: list[PreviewedRow] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    until: float = field(default_factory=lambda: time.monotonic() + _SECONDS)
    counts_until: float = field(default_factory=lambda: time.monotonic() + _COUNT_SECONDS)
    count: int = 0
    """The memories read, of which the first ones are rows."""
    is_all: bool = True
    first: datetime | None = None
    last: datetime | None = None
    undated: int = 0
    types: Counter[str] = field(default_factory=Counter)
    tags: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    folders: Counter[str] = field(default_factory=Counter)
    without_project: int = 0
    rules: Counter[tuple[str, str]] = field(default_factory=Counter)
    records: list[Incoming] = field(default_factory=list)
    """Those that are looked for among the memories, without their texts."""

    def sum(self, viewer: Viewer) -> PreviewedSum:
        known = count_known(self.records, viewer)
        return PreviewedSum(
            memories=self.count,
            known=known.total(),
            known_in=next((slug for slug, _ in known.most_common(1)), ""),
            is_all=self.is_all,
            refused=len(self.refused),
            notes=len(self.notes),
            undated=self.undated,
            first=self.first,
            last=self.last,
            types=dict(self.types.most_common(_TYPES)),
            tags=dict(self.tags.most_common(_TAGS)),
            states=dict(self.states.most_common()),
            folders=dict(sorted(self.folders.most_common(_FOLDERS))),
            without_project=self.without_project,
            rules=[
                PreviewedRule(rule=rule, type=kind, memories=count)
                for (rule, kind), count in self.rules.most_common(_TYPES)
            ],
        )

    def add_memory(self, one: Incoming) -> None:
        """Count a memory, with the notes about it."""
        record = one.record
        self.count += 1
        self.records.append(_without_text(one))
        self.notes.extend((one.location, note) for note in one.found.notes)
        self.types[record.type] += 1
        self.tags.update(record.tags)
        self.states[record.state or "active"] += 1
        self.without_project += not record.project
        if one.found.file:
            self.folders[one.found.file.path.rpartition("/")[0] or "the top folder"] += 1
        if one.found.rule:
            self.rules[one.found.rule, record.type] += 1
        if record.dated is None or "created_at" in one.found.volatile:
            self.undated += 1
            return
        self.first = min(self.first or record.dated, record.dated)
        self.last = max(self.last or record.dated, record.dated)

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.until

    def add(self, records: Records, most: int, *, is_partial: bool) -> None:
        """Read the first records, and add the rows of some of them."""
        enough, read = len(self.rows) + most, 0
        if is_partial:
            self.is_all, self.counts_until = False, 0.0
        with closing(records):
            for found in islice(records, _READ):
                read += 1
                record = without_secrets(found, lambda data: settings.SECRETS)
                if not isinstance(record, SourceRecord):
                    self.refused.append((record.location, record.reason))
                elif not is_vocabulary(record.data):
                    one = validate_source(record)
                    if isinstance(one, RefusedRecord):
                        self.refused.append((one.location, one.reason))
                        continue
                    self.add_memory(one)
                    if len(self.rows) < enough:
                        self.rows.append(_row(one.record))
                if self.is_over or (len(self.rows) == enough and time.monotonic() > self.counts_until):
                    self.is_all = False
                    break
        self.is_all = self.is_all and read < _READ


_PREVIEW = TypeAdapter(Preview)
_TOO_LONG = Preview(
    format="",
    about="",
    rows=(),
    refused=(),
    error="To read its first rows takes too long, or too much memory. Split it into smaller files.",
)


def preview_of(job: ImportJob) -> Preview | None:
    """The preview of an upload; None while it is being made. There is one for each way to read its columns."""
    try:
        return _PREVIEW.validate_json(_place(job).read_bytes())
    except FileNotFoundError:
        previews_start()
        return None


def earlier_preview(job: ImportJob) -> Preview | None:
    """The last preview of an upload, made for another way to read it, with the columns as they are chosen now."""
    made = sorted(job_previews(job).glob("*.json"), key=lambda path: path.stat().st_mtime)
    if not made:
        return None
    preview = _PREVIEW.validate_json(made[-1].read_bytes())
    columns = (replace(one, field=job.columns.get(one.name, one.field)) for one in preview.columns)
    return replace(preview, columns=tuple(columns), error="")


def _place(job: ImportJob) -> Path:
    way = hashlib.sha256(json.dumps([job.columns, job.read_as], sort_keys=True).encode()).hexdigest()[:16]
    return job_previews(job) / f"{way}.json"


def job_read_as(
    *,
    job: ImportJob,
    columns: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
    dates: str | None = None,
) -> ImportJob:
    """Choose how an upload is read: the fields of its columns by their names, and what `check_choices` knows.

    Choices that are not given stay. Raises JobStateError or UploadInvalidError.
    """
    if job.state not in (State.READY, State.FAILED) or not job.is_upload:
        raise JobStateError(
            f"{job.name} is {job.get_state_display()}: only an upload that is ready has columns to choose."
        )
    # The columns are the same whatever they are read as.
    preview = preview_of(job) or earlier_preview(job)
    if preview is None:
        raise JobStateError(f"{job.name} is still being read. Choose its columns in some seconds.")
    try:
        if columns:
            columns_check(preview.columns, columns, are_of_one_table=not preview.files)
        chosen = {"values": values, "types": types, "dates": dates}
        read_as = {"values": {}, "types": {}, "dates": ""} | job.read_as
        read_as = check_choices(**(read_as | {name: value for name, value in chosen.items() if value is not None}))
        read_as = texts_to_store(read_as, _refused_secret)
    except ImportFailedError as error:
        raise UploadInvalidError(job_text(job, str(error))) from None
    # Only in the state that was looked at: it may have been started, or removed, since.
    if not ImportJob.objects.filter(pk=job.pk, state=job.state).update(
        columns=job.columns if columns is None else dict(columns), read_as=read_as
    ):
        raise JobStateError(f"{job.name} has just been started, or removed.")
    job.refresh_from_db()
    previews_start()
    return job


def _refused_secret(field: str, reason: str) -> UploadInvalidError:
    return UploadInvalidError(f"{field}: {reason}.")


# --- the process that makes them ---------------------------------------------------------------------------------


def previews_start() -> None:
    """Start the process that makes previews, unless it runs."""
    global _started
    now = time.monotonic()
    with _alone() as is_alone:
        if not is_alone or now - _started < _START_SECONDS:
            return
    _started = now
    start_once(["make_previews"])


@contextmanager
def _alone() -> Iterator[bool]:
    """Hold the lock of the process that makes previews. Yields whether no other one has it."""
    with (Path(settings.HOME) / _LOCK).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def unpacked_files() -> Path:
    """The folder for what previews unpack, which a process that was ended leaves behind."""
    return Path(settings.HOME) / "previews" / "unpacked"


def previews_make(parent: int | None = None) -> int:
    """Make all previews that are missing, while the parent process lives. Returns their number; 0 if another process
    makes them.
    """
    made = Counter[tuple[int | None, int | None]]()
    with _alone() as is_alone:
        if is_alone:
            shutil.rmtree(unpacked_files(), ignore_errors=True)
            unpacked_files().mkdir(mode=0o700, parents=True)
        while is_alone and parent in (None, os.getppid()) and (job := _next_job(made)):
            made[job.user_id, job.api_key_id] += 1
            _make_in_time(job)
    return made.total()


def _next_job(made: Counter[tuple[int | None, int | None]]) -> ImportJob | None:
    """The oldest upload without a preview, of those whose owner has had the fewest: many of one hold up no others."""
    ready = ImportJob.objects.filter(is_upload=True, state__in=[State.READY, State.FAILED]).order_by("pk")
    missing = [job for job in ready if not _place(job).exists() and Path(job.path).exists()]
    return min(missing, key=lambda job: made[job.user_id, job.api_key_id], default=None)


def _make_in_time(job: ImportJob) -> None:
    """Make a preview. What ends this process twice before it is made is not tried again: the server may end once."""
    place = _place(job)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    begun = place.with_suffix(".begun")
    with begun.open("ab") as file:
        tries = file.tell()
        file.write(b".")
    preview = _TOO_LONG if tries >= _MOST_TRIES else _in_time(lambda: _preview_make(job))
    begun.write_bytes(_PREVIEW.dump_json(preview))
    begun.replace(place)


def _in_time(make: Callable[[], Preview]) -> Preview:
    # No thread could stop what does not let go of the interpreter: the alarm ends the process.
    signal.alarm(_MOST_SECONDS)
    try:
        return make()
    except MemoryError:
        return _TOO_LONG
    finally:
        signal.alarm(0)


def _preview_make(job: ImportJob) -> Preview:
    path, options = Path(job.path), Options(columns=job.columns, is_preview=True, **job.read_as)
    found, files = _Found(), list[PreviewedFile]()
    name = about = error_text = ""
    columns: tuple[Column, ...] = ()
    try:
        importer = importer_of(job)
        name, about = importer.name, importer.looks_like
        columns = tuple(_columns_of(importer, path, options))[:_COLUMNS]
        if importer.parts is None:
            records, is_partial = importer.read(path, options).records, importer.previews_in_part(path)
            found.add(with_values(records, options.values), _ROWS, is_partial=is_partial)
        else:
            with closing(importer.parts(path, options)) as parts:
                for part in islice(parts, _FILES):
                    read_as = part.importer.name if part.importer else ""
                    files.append(PreviewedFile(name=part.name, format=read_as, reason=part.reason))
                    if found.is_over:
                        found.is_all = False
                        break
                    if part.importer:
                        is_partial = part.importer.previews_in_part(part.path)
                        records = with_values(part.records(options), options.values)
                        found.add(records, _ROWS_OF_FILE, is_partial=is_partial)
                    elif part.is_for_later:
                        found.is_all = False
    except ImportFailedError as error:
        error_text = job_text(job, str(error))
    return Preview(
        format=name,
        about=about,
        rows=tuple(found.rows),
        refused=tuple(found.refused[:_NAMED]),
        error=error_text,
        notes=tuple(found.notes[:_NAMED]),
        columns=columns,
        files=tuple(files),
        found=found.sum(viewer_of_starter(job)) if found.count or found.refused else None,
        count=found.count if found.is_all and not error_text and len(files) < _FILES else None,
    )


def _without_text(one: Incoming) -> Incoming:
    """A record without what takes much memory."""
    record = one.record.model_copy(update={"content": "", "summary": ""})
    return one._replace(found=replace(one.found, data={}, raw=None, stored=None), record=record, raw="")


def _columns_of(importer: Importer, path: Path, options: Options) -> Sequence[Column]:
    """The columns as they are read; as guessed if they cannot be read as wanted, so that others can be chosen."""
    try:
        return importer.columns(path, options)
    except ColumnsError:
        return importer.columns(path, replace(options, columns={}))


def _row(record: MemoryRecord) -> PreviewedRow:
    text = " ".join(record.content[:400].split())
    return PreviewedRow(
        title=plain_title(record.title or derived_title(record.content)),
        type=record.type,
        project=record.project,
        tags=list(record.tags[:5]),
        created_at=record.dated,
        text=text[:200],
        state=record.state or "",
        authors=list(record.authors[:5]),
    )
