"""The contexts of the pages of imports. Pure, except for the reverse lookup of their URLs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from pathlib import Path

from django.urls import reverse

from explorer.links import Link
from memories.models import ImportBatch
from text.formatting import day_text, memories, number, plural, when_text
from transfer.discover import Discovery
from transfer.formats.csv_table import FIELDS
from transfer.jobs import CANCELLED, SAMPLE
from transfer.models import ImportJob
from transfer.previews import Preview

State = ImportJob.State

_COLUMNS = 48
_TABLE_COLUMNS = 100
_REFUSALS = 50
# In words that those who have the system know.
_ABOUT = {
    "claude-mem": "Observations and session summaries, with their types, files and concepts.",
    "mcp-memory-service": "Memories with their tags, types and dates.",
    "mcp-memory": "Entities with their observations, and the relations between them.",
    "markdown": "Notes with their tags, folders and links; folders become categories.",
    "claude-code": "What was said in the sessions of Claude Code, by project.",
    "git": "Commits with their messages, authors and files.",
}
_NAMES = {"markdown": "Markdown notes", "claude-code": "Claude Code", "mcp-memory": "MCP memory file", "git": "Git"}
_LABELS = {
    State.UPLOADING: "uploading",
    State.READY: "ready to import",
    State.WAITING: "waiting",
    State.RUNNING: "importing",
    State.CANCELLING: "being cancelled",
    State.DONE: "imported",
    State.FAILED: "failed",
    State.UNDO_WAITING: "waiting to be undone",
    State.UNDOING: "being undone",
    State.UNDONE: "undone",
}


@dataclass(frozen=True, slots=True)
class FoundSource:
    """A store of another system on this machine."""

    name: str
    path: str
    shown_path: str
    about: str
    count: str
    dates: str
    columns: str
    """An SVG path of its memories over time."""
    was_imported: bool
    is_followed: bool


@dataclass(frozen=True, slots=True)
class FoundPage:
    sources: tuple[FoundSource, ...]
    unreadable: tuple[str, ...]
    total: str
    """The number of memories of those that were not imported before."""
    can_follow: bool
    """Whether one of them could be followed."""


@dataclass(frozen=True, slots=True)
class PastImport:
    """An import of the list: of a page, of the API or of the command."""

    name: str
    url: str
    state: str
    text: str
    when: str
    iso: str
    undo_url: str


@dataclass(frozen=True, slots=True)
class JobPage:
    """One import: its progress, or its end."""

    id: int
    name: str
    state: str
    label: str
    is_busy: bool
    percent: str
    """Empty if it is unknown."""
    progress: str
    error: str
    facts: tuple[Link, ...]
    refused: tuple[tuple[str, str], ...]
    more_refused: str
    notes: tuple[tuple[str, str], ...]
    can_import: bool
    can_undo: bool
    can_force_undo: bool
    """Whether an undo was refused, and its reader may lose the changes of others."""
    can_cancel: bool
    can_remove: bool
    size: int
    received: int
    fingerprint: str
    files: int


def build_found(
    found: Iterable[Discovery | str], imported: frozenset[str], followed: Collection[str], home: Path
) -> FoundPage:
    sources, unreadable, waiting, is_exact, can_follow = [], [], 0, True, False
    for one in found:
        if isinstance(one, str):
            unreadable.append(one)
            continue
        if not one.memories:
            continue
        path = str(one.path)
        is_followed = str(one.path.resolve()) in followed
        can_follow = can_follow or (one.importer.follow is not None and not is_followed)
        if path not in imported and not is_followed:
            waiting += one.memories
            is_exact = is_exact and one.is_complete
        sources.append(
            FoundSource(
                name=_NAMES.get(one.importer.name, one.importer.name),
                path=path,
                shown_path=path.replace(str(home), "~", 1) if path.startswith(f"{home}/") else path,
                about=_ABOUT.get(one.importer.name, one.importer.looks_like),
                count=number(one.memories, at_least=not one.is_complete),
                dates=_dates(one),
                columns=_columns(one.days),
                was_imported=path in imported,
                is_followed=is_followed,
            )
        )
    return FoundPage(
        tuple(sources), tuple(unreadable), memories(waiting, at_least=not is_exact) if waiting else "", can_follow
    )


def _dates(one: Discovery) -> str:
    if not one.first or not one.last:
        return ""
    first, last = day_text(one.first.date()), day_text(one.last.date())
    return f"From {first} to {last}." if first != last else f"All of {first}."


def _columns(days: Mapping[date, int]) -> str:
    """Columns of equal spans from the first to the last day, in a box of 100 by 32."""
    if not days:
        return ""
    first = min(days).toordinal()
    span = max(1, (max(days).toordinal() - first + _COLUMNS) // _COLUMNS)
    counts = [0] * _COLUMNS
    for day, count in days.items():
        counts[min(_COLUMNS - 1, (day.toordinal() - first) // span)] += count
    peak, step = max(counts), 100 / _COLUMNS
    return "".join(
        f"M{place * step:.1f} 32V{32 - max(1.5, 30 * count / peak):.1f}h{step * 0.72:.1f}V32z"
        for place, count in enumerate(counts)
        if count
    )


def build_past(
    batches: Iterable[ImportBatch], jobs: Mapping[int | None, ImportJob], now: datetime, zone: tzinfo
) -> tuple[PastImport, ...]:
    return tuple(
        PastImport(
            name="The sample" if batch.origin == str(SAMPLE) else batch.origin,
            url=reverse("imports:job", args=[jobs[batch.pk].pk]) if batch.pk in jobs else "",
            state=batch.state,
            text=_failure(batch) if batch.state == ImportBatch.State.FAILED else _brought(batch),
            when=when_text(batch.started_at, now, zone),
            iso=batch.started_at.isoformat(),
            undo_url=reverse("imports:undo_batch", args=[batch.pk]) if batch.state == ImportBatch.State.DONE else "",
        )
        for batch in batches
    )


def _failure(batch: ImportBatch) -> str:
    """Why it failed, as the list of imports reads it: the rest of the report may be long."""
    return str(getattr(batch, "failure", None) or "").removeprefix(f"{batch.origin}: ")


def _brought(batch: ImportBatch) -> str:
    numbers = (("new", batch.created), ("updated", batch.updated), ("refused", batch.refused))
    text = ", ".join(f"{count:,} {name}" for name, count in numbers if count) or "nothing new"
    # Deferred in lists of other imports, which have neither.
    report = batch.report if "report" not in batch.get_deferred_fields() else {}
    text += f", {report['gone']:,} gone" if report.get("gone") else ""
    return text + (f", {plural(report['conflicts'], 'conflict')}" if report.get("conflicts") else "")


def build_open(jobs: Iterable[ImportJob]) -> tuple[Link, ...]:
    """Jobs that are not finished, and what they wait for."""
    # Its own page alone reads what was uploaded, and may find that it cannot be imported.
    return tuple(
        Link(
            job.name,
            reverse("imports:job", args=[job.pk]),
            "uploaded, not imported yet" if job.state == State.READY else _label(job),
        )
        for job in jobs
    )


def _label(job: ImportJob) -> str:
    """The state in words. A cancelled import can be tried again like a failed one, and nothing is wrong with it."""
    state = State(job.state)
    return "cancelled" if state == State.FAILED and job.error == CANCELLED else _LABELS[state]


def build_job(job: ImportJob, *, sees_vocabulary: bool) -> JobPage:
    """The page of one import. The number of terms that it made is for those who see all terms: others could tell which
    were there before.
    """
    state = State(job.state)
    batch = job.batch
    report = (batch.report if batch else None) or {}
    counted = report if sees_vocabulary else {}
    refused = tuple((one["location"], one["reason"]) for one in report.get("refused", ()))
    count = batch.refused if batch else 0
    share = job.received / job.size if state == State.UPLOADING and job.size else job.share
    can_undo = state == State.DONE and batch is not None and batch.state == ImportBatch.State.DONE
    return JobPage(
        id=job.pk,
        name=job.name,
        state=state.value,
        label=_label(job),
        is_busy=state in (State.WAITING, State.RUNNING, State.CANCELLING, State.UNDO_WAITING, State.UNDOING),
        percent=f"{100 * share:.0f}" if share is not None else "",
        progress=_progress(job, state),
        error=job.error,
        facts=tuple(_facts(batch, counted, undone=state == State.UNDONE))
        if batch and state in (State.DONE, State.UNDONE)
        else (),
        refused=refused[:_REFUSALS],
        more_refused=f"{count - _REFUSALS:,}" if count > _REFUSALS else "",
        notes=tuple((one["location"], one["note"]) for one in report.get("notes", ()))[:_REFUSALS],
        can_import=state == State.READY or (state == State.FAILED and bool(job.path)),
        can_undo=can_undo,
        can_force_undo=can_undo and job.is_changed_since and sees_vocabulary,
        can_cancel=state in (State.WAITING, State.RUNNING, State.UNDO_WAITING),
        can_remove=state in (State.UPLOADING, State.READY, State.FAILED),
        size=job.size,
        received=job.received,
        fingerprint=job.fingerprint,
        files=len(job.files) or 1,
    )


def _progress(job: ImportJob, state: ImportJob.State) -> str:
    match state:
        case State.UPLOADING:
            return f"{_megabytes(job.received)} of {_megabytes(job.size)} received"
        case State.WAITING | State.UNDO_WAITING:
            return "It begins in some seconds, or once the imports before it are done."
        case State.RUNNING:
            return f"{plural(job.read, 'record')} read. You can leave this page and look around meanwhile."
        case State.CANCELLING:
            return "It stops after the records that it is writing; nothing of it will be stored."
        case State.UNDOING:
            return "What it added is removed, what it changed is restored."
    return ""


def _megabytes(size: int) -> str:
    return f"{size / 1024**2:,.1f} MB" if size >= 100_000 else f"{size:,} bytes"


def _facts(batch: ImportBatch, report: Mapping[str, object], *, undone: bool) -> Iterable[Link]:
    if undone:
        numbers = [("memories removed", batch.created), ("memories restored", batch.updated)]
    else:
        numbers = [("new memories", batch.created), ("updated", batch.updated)]
        numbers += [("unchanged", batch.unchanged), ("refused", batch.refused)]
    made = report.get("vocabulary_made")
    numbers += (
        [(f"{kind} made", n) for kind, n in sorted(made.items())] if isinstance(made, dict) and not undone else []
    )
    return (Link(label, "", count=f"{count:,}") for label, count in numbers)


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """A column of a table with some of its cells, and the fields that it may be read as: name, label, whether it is."""

    id: str
    name: str
    examples: str
    choices: tuple[tuple[str, str, bool], ...]


def build_columns(preview: Preview) -> tuple[ColumnChoice, ...]:
    return tuple(
        ColumnChoice(
            f"column-{number}",
            column.name,
            " · ".join(column.examples),
            (
                ("", "stored as it is", not column.field),
                *((name, _FIELD_LABELS.get(name, name.replace("_", " ")), name == column.field) for name in FIELDS),
            ),
        )
        for number, column in enumerate(preview.columns[:_TABLE_COLUMNS], 1)
    )


# In words of the page, where the name of the field is not one.
_FIELD_LABELS = {"content": "text of the memory", "created_at": "date", "updated_at": "date of the last change"}
_FIELD_LABELS["source_url"] = "address of the original"


def preview_rows(preview: Preview) -> tuple[tuple[str, str, str, str, str], ...]:
    """The rows of a preview: title, type, project, date and tags."""
    return tuple(
        (
            row.title,
            row.type,
            row.project,
            day_text(row.created_at.date()) if row.created_at else "",
            ", ".join(row.tags),
        )
        for row in preview.rows
    )
