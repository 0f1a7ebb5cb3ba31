"""The rows of a table that was imported, read again in another way: the memories that they brought change in place.

The file is not kept, and not needed: each memory has its row, but for the cell that became its text, and the report
has how the columns were read. A field changes where the two readings differ, unless it was edited here in between.
"""

import csv
import json
import math
import shutil
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from access.viewer import Viewer
from categories.models import MadeBy
from categories.services import Vocabulary, vocabulary_lock_shared
from memories.history import value_changes
from memories.link_targets import dangling_links, names_of_memories
from memories.models import ImportBatch, Memory, Project
from memories.refusals import ChangeRefusedError
from memories.resolve import SessionUse, names_ensure, names_of, record_snapshot, sessions_ensure
from memories.snapshot import LINKED, SCALARS, MemorySnapshot, NamedLink, Ref
from memories.storage import dangling_settle, memories_audit, snapshots_read, snapshots_update
from memories.supersession import refuse_apart
from memories.trust import trust_of_record
from transfer.blocks import Incoming, blocks_read, validate_source
from transfer.formats.base import ImportFailedError, Options, Reading, RefusedRecord
from transfer.formats.choices import with_values
from transfer.formats.csv_table import IMPORTER, mapping_in
from transfer.jobs import JobStateError, State, check_may_undo, job_new
from transfer.match import edited_since_import, names_are_few
from transfer.models import ImportJob
from transfer.previews import previews_start
from transfer.queries import READ_AGAIN
from transfer.rows import Row
from transfer.state import ImportCounts, ImportRun, WriteOptions, projects_ensure
from transfer.write import IMPORT_LOCK, Superseding, policy_of, supersede_named

_AT_ONCE = 2_000
_NUMBERS = "memories.json"
_EARLIER = "earlier_readings"
# Fields that the readings do not decide, or decide together.
_NOT_COMPARED = {"id", "batch_id", "raw", "record_hash", "state_reason", "updated_at", "superseded_by_id", *LINKED}
_LISTS = ("tags", "authors", *LINKED)


@dataclass(frozen=True, slots=True)
class TableReading:
    """How the rows of an import were read last."""

    columns: Mapping[str, str]
    values: Mapping[str, str]
    dates: str
    project: str
    is_only_project: bool

    @classmethod
    def of(cls, job: ImportJob) -> "TableReading | None":
        """None for what is no table, or whose report does not have its columns."""
        report = job.batch.report if job.batch and job.batch.format == IMPORTER.name else {}
        if known := report.get("reading"):
            return cls(**known)
        columns, dates = mapping_in(one["note"] for one in report.get("notes", ()))
        chosen = job.read_as.get("values", {}), job.read_as.get("dates") or dates
        return cls(columns, *chosen, job.project, job.is_only_project) if columns else None

    def as_json(self) -> dict[str, Any]:
        return {
            "columns": dict(self.columns),
            "values": dict(self.values),
            "dates": self.dates,
            "project": self.project,
            "is_only_project": self.is_only_project,
        }

    def read(self, path: Path) -> Generator[Incoming | RefusedRecord, None, None]:
        options = Options(columns=self.columns, values=self.values, dates=self.dates)
        with closing(with_values(IMPORTER.read(path, options).records, self.values)) as records:
            for record in records:
                yield record if isinstance(record, RefusedRecord) else validate_source(record)


def can_read_again(job: ImportJob) -> bool:
    """Whether the rows of an import are known, so that they can be read in another way."""
    return (
        job.state == State.DONE
        and job.batch is not None
        and job.batch.state == ImportBatch.State.DONE
        and job.batch.created > 0
        and TableReading.of(job) is not None
    )


@transaction.atomic
def job_read_again(*, job: ImportJob, viewer: Viewer) -> ImportJob:
    """Begin to read the rows of an import again: an upload of them, which is ready, and read as it was.

    Raises JobStateError and ImportForbiddenError.
    """
    reading = TableReading.of(job) if can_read_again(job) else None
    if reading is None or job.batch is None:
        reason = "only a table that was imported, and not undone, has rows to read again. Choose the file again"
        raise JobStateError(f"{job.name}: {reason}.")
    check_may_undo(job.batch_id, viewer)
    uploads = Path(settings.HOME) / "uploads"
    uploads.mkdir(mode=0o700, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=uploads))
    try:
        path = folder / "rows.csv"
        ids = _write_rows(path, job.batch, reading, viewer)
        (folder / _NUMBERS).write_text(json.dumps(ids))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    again = job_new(viewer, name=job.name, path=str(path), state=State.READY)
    again.is_upload, again.batch = True, job.batch
    again.size = again.received = path.stat().st_size
    again.project, again.is_only_project = reading.project, reading.is_only_project
    again.columns = dict(reading.columns)
    again.read_as = {"values": dict(reading.values), "types": {}, "dates": reading.dates}
    again.save()
    transaction.on_commit(previews_start)
    return again


def _write_rows(path: Path, batch: ImportBatch, reading: TableReading, viewer: Viewer) -> list[int]:
    """Write the rows of an import as a table. Returns the numbers of their memories, in order."""
    brought = Memory.objects.filter(batch=batch).order_by("pk").values_list("pk", "content", "raw")
    texts = [name for name, field in reading.columns.items() if field == "content"]
    ids: list[int] = []
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(reading.columns)
        rows = brought.iterator(chunk_size=_AT_ONCE)
        while block := list(islice(rows, _AT_ONCE)):
            edited = edited_since_import([pk for pk, _, _ in block])
            for pk, content, raw in block:
                text = _imported_text(pk, content, viewer) if pk in edited else content
                cells = dict.fromkeys(texts, text) | {name: str(cell) for name, cell in (raw or {}).items()}
                writer.writerow([cells.get(name, "") for name in reading.columns])
                ids.append(pk)
    return ids


def _imported_text(memory_id: int, content: str, viewer: Viewer) -> str:
    """The text of an edited memory as it was imported."""
    before = [str(was) for was, _ in value_changes(memory_id, "content", viewer)]
    return before[-1] if before else content


_Change = tuple[MemorySnapshot, MemorySnapshot]

# --- writing ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RowReadTwice:
    """A row as it was read, and as it is read now."""

    memory_id: int
    old: Incoming
    new: Incoming


class RowsWriter:
    """Writes the rows of an import that are read in another way; its `write` stands for `records_write`."""

    def __init__(self, job: ImportJob) -> None:
        if job.batch is None or job.batch.state != ImportBatch.State.DONE:
            raise ImportFailedError(f"The import of {job.name} was undone: choose the file again.")
        original = ImportJob.objects.filter(batch=job.batch, state=State.DONE).order_by("pk").first()
        reading = TableReading.of(original) if original else None
        self._path = Path(job.path)
        numbers = self._path.with_name(_NUMBERS)
        if reading is None or not numbers.exists():
            raise ImportFailedError(f"{job.name}: its rows are not there any more. Choose the file again.")
        self.batch, self.old = job.batch, reading
        self.ids: list[int] = json.loads(numbers.read_text())
        self.new = TableReading(
            {**reading.columns, **job.columns},
            job.read_as.get("values", {}),
            job.read_as.get("dates", ""),
            job.project,
            job.is_only_project,
        )

    def write(
        self,
        *,
        reading: Reading,
        viewer: Viewer,
        batch_id: int,
        options: WriteOptions,
        refuse: Callable[[str, str], None],
        progress: Callable[[ImportCounts, float | None], None],
        **others: Any,
    ) -> ImportCounts:
        run = ImportRun(viewer, batch_id, options, refuse, timezone.now(), Vocabulary(viewer, batch_id))
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [IMPORT_LOCK])
        vocabulary_lock_shared(seconds=math.inf)
        change = _RowsChange(run, self.batch, self.old)
        numbers = iter(self.ids)
        with closing(self.old.read(self._path)) as before, blocks_read(reading, policy_of(options)) as blocks:
            for block in blocks:
                pairs = list(self._rows_twice(run, block.items, numbers, before))
                run.tally.valid += len(pairs)
                change.write(pairs)
                progress(run.tally, block.fraction)
        change.finish()
        self._keep_reading(batch_id)
        run.tally.made = dict(run.vocabulary.made)
        return run.tally

    @staticmethod
    def _rows_twice(
        run: ImportRun, items: Iterable[Any], numbers: Iterator[int], before: Iterator[Incoming | RefusedRecord]
    ) -> Iterator[_RowReadTwice]:
        for item in items:
            memory_id, old = next(numbers), next(before)
            if isinstance(item, RefusedRecord):
                run.refused(f"#{memory_id}", item.reason)
            elif isinstance(old, RefusedRecord) or isinstance(item, Row) or not isinstance(item, Incoming):
                run.refused(f"#{memory_id}", "its row cannot be read as it was: it stays as it is")
            else:
                yield _RowReadTwice(memory_id, old, item)

    def _keep_reading(self, batch_id: int) -> None:
        """Remember how the rows are read now, and how they were before this import."""
        original = ImportBatch.objects.get(pk=self.batch.pk)
        earlier = original.report.get(_EARLIER, {}) | {str(batch_id): self.old.as_json()}
        original.report |= {"reading": self.new.as_json(), _EARLIER: earlier}
        original.save(update_fields=["report"])


def restore_reading(batch: ImportBatch) -> None:
    """Take back how rows are read, when the import that read them again is undone."""
    original = ImportBatch.objects.filter(**{f"report__{_EARLIER}__has_key": str(batch.pk)}).first()
    if original is not None:
        original.report["reading"] = original.report[_EARLIER].pop(str(batch.pk))
        original.save(update_fields=["report"])


class _RowsChange:
    """The changes of memories whose rows are read in another way."""

    def __init__(self, run: ImportRun, batch: ImportBatch, old: TableReading) -> None:
        self._run, self._batch = run, batch
        self._was = WriteOptions(old.project, is_only_project=old.is_only_project)
        self._sessions: dict[tuple[int, str], int] = {}
        # The links of memories whose links change, which may name others that get their ids later.
        self._linked: dict[int, tuple[NamedLink, ...]] = {}
        self._superseding: list[Superseding] = []
        # The memories that move, by their new project.
        self._moved: dict[int, list[int]] = {}
        # The memories that get another id, by project and id.
        self._named: dict[tuple[int, str], int] = {}
        self._updated: set[int] = set()
        self._looked_at = 0

    def write(self, pairs: Sequence[_RowReadTwice]) -> None:
        run = self._run
        projects_ensure(run, {name for pair in pairs for name in self._projects(pair)})
        differing = [pair for pair in pairs if self._differs(pair)]
        run.tally.unchanged += len(pairs) - len(differing)
        taken = [pair for pair in differing if self._may_write(pair)]
        self._ensure_names(taken)
        stored = snapshots_read(pair.memory_id for pair in taken)
        changes = []
        for pair in taken:
            if (before := stored.get(pair.memory_id)) is None:
                run.refused(f"#{pair.memory_id}", "is not there any more")
            else:
                changes.append((before, self._changed_memory(before, pair)))
        self._looked_at += len(changes)
        self._store_changes(self._with_free_ids(changes))

    def finish(self) -> None:
        """Write what relates memories, now that all have their ids."""
        run = self._run
        before = snapshots_read(self._linked)
        self._store_changes([(old, replace(old, links=self._linked[pk])) for pk, old in before.items()])
        run.tally.unchanged += self._looked_at - len(self._updated)
        dangling_settle(dangling_links(self._updated, names_of_memories(self._updated)), run.viewer)
        supersede_named(run, self._superseding)
        for project in Project.objects.filter(pk__in=self._moved):
            moved = self._moved[project.pk]
            rows = Memory.objects.filter(pk__in=moved).values_list("pk", "superseded_by_id")
            try:
                refuse_apart(dict(rows), project)
            except ChangeRefusedError as error:
                raise ImportFailedError(f"Nothing was changed. {error}.") from error

    def _projects(self, pair: _RowReadTwice) -> tuple[str, str]:
        """The projects of a row as it was read, and as it is."""
        return self._was.project_of(pair.old.record.project), self._run.options.project_of(pair.new.record.project)

    def _differs(self, pair: _RowReadTwice) -> bool:
        was, now = self._projects(pair)
        return pair.old.record != pair.new.record or pair.old.title != pair.new.title or was != now

    def _may_write(self, pair: _RowReadTwice) -> bool:
        run, (was, slug) = self._run, self._projects(pair)
        if not all(name in run.projects and run.viewer.may_write(run.projects[name].id) for name in (was, slug)):
            run.refused(f"#{pair.memory_id}", f"project: you cannot write to {slug!r}")
            return False
        return run.most_new is None or names_are_few(run, pair.new)

    def _ensure_names(self, pairs: Iterable[_RowReadTwice]) -> None:
        run = self._run
        by_project: dict[int, list[Incoming]] = {}
        sessions: dict[tuple[int, str], SessionUse] = {}
        for pair in pairs:
            for slug, one in zip(self._projects(pair), (pair.old, pair.new), strict=True):
                project_id = run.projects[slug].id
                by_project.setdefault(project_id, []).append(one)
                if name := one.record.session:
                    sessions[project_id, name] = SessionUse(one.record.agent, one.record.dated or run.now)
        for project_id, read in by_project.items():
            # A name may mean another term in some projects.
            run.vocabulary.project_id = project_id
            names_ensure(names_of([one.record for one in read]), run.vocabulary)
        run.vocabulary.project_id = None
        if sessions:
            self._sessions.update(sessions_ensure(sessions, run.vocabulary))

    def _image(self, before: MemorySnapshot, one: Incoming, slug: str) -> MemorySnapshot:
        """A memory as a reading of its row gives it. Without a date it has that of its import."""
        project_id, record = self._run.projects[slug].id, one.record
        return record_snapshot(
            record=record,
            memory_id=before.id,
            project_id=project_id,
            session_id=self._sessions[project_id, record.session] if record.session else None,
            vocabulary=self._run.vocabulary,
            made_by=MadeBy.IMPORT,
            now=self._arrival_of(before),
            raw=one.raw,
            record_hash=one.record_hash,
            title=one.title,
            trust=trust_of_record(record, self._run.viewer),
        )

    def _arrival_of(self, before: MemorySnapshot) -> datetime:
        begun, ended = self._batch.started_at, self._batch.finished_at or self._batch.started_at
        return before.created_at if begun <= before.created_at <= ended else begun

    def _changed_memory(self, before: MemorySnapshot, pair: _RowReadTwice) -> MemorySnapshot:
        """A memory with what the new reading gives otherwise than the old one. Edits made here stay."""
        run, record = self._run, pair.new.record
        was, now = (
            self._image(before, one, slug) for slug, one in zip(self._projects(pair), (pair.old, pair.new), strict=True)
        )
        values: dict[str, Any] = {
            name: merge_lists(*(getattr(one, name) for one in (before, was, now))) for name in _LISTS
        }
        for name in _COMPARED:
            old, mine, new = getattr(was, name), getattr(before, name), getattr(now, name)
            if old != new and mine == old:
                values[name] = new
            elif old != new and mine != new:
                label = name.removesuffix("_id").replace("_", " ")
                run.note(f"#{before.id}", f"{label}: was edited here since, and stays as it is")
        if added := tuple(name for name in record.supersedes if name not in pair.old.record.supersedes):
            self._superseding.append((f"#{before.id}", before.id, now.project_id, added))
        if values["links"] != before.links:
            self._linked[before.id] = values.pop("links")
        changed = replace(before, **values, raw=now.raw, record_hash=now.record_hash)
        if before.superseded_by_id is not None:
            changed = self._without_successor(before, changed, pair)
        return replace(changed, updated_at=record.updated_at or run.now)

    @staticmethod
    def _without_successor(before: MemorySnapshot, changed: MemorySnapshot, pair: _RowReadTwice) -> MemorySnapshot:
        """A superseded memory: its successor ends if the row named it, and does so no longer."""
        if pair.old.record.superseded_by and not pair.new.record.superseded_by:
            state = Memory.State.ACTIVE.value if changed.state == Memory.State.SUPERSEDED else changed.state
            return replace(changed, superseded_by_id=None, state=state)
        return replace(changed, state=before.state)

    def _with_free_ids(self, changes: list[_Change]) -> list[_Change]:
        """The changes without ids that other memories have."""
        renamed = [(new.project_id, new.external_id) for old, new in changes if _is_renamed(old, new)]
        taken = Memory.objects.filter(
            project_id__in={project_id for project_id, _ in renamed}, external_id__in=[name for _, name in renamed]
        )
        rows = taken.values_list("project_id", "external_id", "pk")
        known = {(project_id, name): pk for project_id, name, pk in rows} if renamed else {}
        free = []
        for old, new in changes:
            key = new.project_id, new.external_id
            if _is_renamed(old, new):
                other = known.get(key, self._named.setdefault(key, new.id))
                if other != new.id:
                    self._run.note(f"#{new.id}", f"id: {new.external_id!r} is that of #{other}; left out")
                    kept = old.external_id if old.project_id == new.project_id else ""
                    new = replace(new, external_id=kept)
            free.append((old, new))
        return free

    def _store_changes(self, changes: Sequence[_Change]) -> None:
        run = self._run
        stored = snapshots_update([pair for pair in changes if _matters(*pair)])
        memories_audit(run.viewer, READ_AGAIN, stored, batch_id=run.batch_id)
        for old, new in stored:
            if old.project_id != new.project_id:
                self._moved.setdefault(new.project_id, []).append(new.id)
        self._updated |= {new.id for _, new in stored}
        run.tally.updated = len(self._updated)


_COMPARED = tuple(name for name in SCALARS if name not in {*_NOT_COMPARED, *_LISTS})


def _is_renamed(old: MemorySnapshot, new: MemorySnapshot) -> bool:
    return bool(new.external_id) and (old.project_id, old.external_id) != (new.project_id, new.external_id)


def _matters(old: MemorySnapshot, new: MemorySnapshot) -> bool:
    """Whether a change is more than its own time."""
    return replace(old, updated_at=new.updated_at) != new


def merge_lists(mine: Sequence[Any], old: Sequence[Any], new: Sequence[Any]) -> tuple[Any, ...]:
    """A list without what a reading gives no longer, and with what it gives now. What was added here stays."""
    before, now, held = ([_key_of(one) for one in side] for side in (old, new, mine))
    gone = set(before) - set(now)
    kept = [one for one in mine if _key_of(one) not in gone]
    added = [one for one in new if _key_of(one) not in before and _key_of(one) not in held]
    merged = [*kept, *added]
    return tuple(sorted(merged, key=lambda one: one.id) if merged and isinstance(merged[0], Ref) else merged)


def _key_of(one: Any) -> Any:
    return one.id if isinstance(one, Ref) else one
