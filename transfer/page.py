"""The contexts of the pages of imports. Pure, except for the reverse lookup of their URLs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from explorer.links import import_url
from memories.models import ImportBatch
from text.formatting import day_text, memories, number, plural
from transfer.discover import Discovery
from transfer.jobs import CANCELLED
from transfer.models import ImportJob
from transfer.source_cards import SourceCard

State = ImportJob.State

_COLUMNS = 48
# In words of the page, where the name of the field is not one.
FIELD_LABELS = {
    "content": "text of the memory",
    "created_at": "date",
    "updated_at": "date of the last change",
    "source_url": "address of the original",
}
# In words that those who have the system know.
_ABOUT = {
    "claude-mem": "Observations and session summaries, with their types, files and concepts.",
    "mcp-memory-service": "Memories with their tags, types and dates.",
    "mcp-memory": "Entities with their observations, and the relations between them.",
    "markdown": "Notes with their tags, folders and links; folders become categories.",
    "claude-code": "What was said in the sessions of Claude Code, by project.",
    "codex": "What was said in the sessions of Codex, by project.",
    "gemini-cli": "What was said in the sessions of Gemini CLI, by project.",
    "git": "Commits with their messages, authors and files.",
}
_NAMES = {
    "markdown": "Markdown notes",
    "mcp-memory": "MCP memory file",
    "git": "Git",
    "claude-code": "Claude Code",
    "codex": "Codex",
    "gemini-cli": "Gemini CLI",
}
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
    only: str = ""
    """The product whose formats these have, if not all are shown."""


def build_found(
    found: Iterable[Discovery | str],
    imported: frozenset[str],
    followed: Collection[str],
    home: Path,
    card: SourceCard | None = None,
) -> FoundPage:
    """The page of what was found; with the card of a product, of its formats alone."""
    sources, unreadable, waiting, is_exact, can_follow = [], [], 0, True, False
    for one in found:
        if isinstance(one, str):
            unreadable.append(one)
            continue
        if not one.memories or (card and one.importer.name not in card.formats):
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
        tuple(sources),
        tuple(unreadable),
        memories(waiting, at_least=not is_exact) if waiting else "",
        can_follow,
        card.name if card else "",
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


def failure_text(batch: ImportBatch) -> str:
    """Why an import failed, as the list of imports reads it: the rest of the report may be long."""
    return str(getattr(batch, "failure", None) or "").removeprefix(f"{batch.origin}: ")


def outcome_of(batch: ImportBatch) -> list[tuple[str, str]]:
    """The result of an import in words, each with the address of its memories if there is one."""
    parts = [(f"{batch.created:,} new", import_url(str(batch.pk)))] if batch.created else []
    others = (("updated", batch.updated), ("refused", batch.refused))
    parts += [(f"{count:,} {name}", "") for name, count in others if count]
    parts = parts or [("nothing new", "")]
    # Deferred in lists of other imports, which have neither.
    report = batch.report if "report" not in batch.get_deferred_fields() else {}
    parts += [(f"{report['gone']:,} gone", "")] if report.get("gone") else []
    return parts + ([(plural(report["conflicts"], "conflict"), "")] if report.get("conflicts") else [])


def label_of(job: ImportJob) -> str:
    """The state in words. A cancelled import can be tried again like a failed one, and nothing is wrong with it."""
    state = State(job.state)
    return "cancelled" if state == State.FAILED and job.error == CANCELLED else _LABELS[state]


def facts_of(job: ImportJob, *, sees_vocabulary: bool) -> list[tuple[str, int, str]]:
    """The counts of an import, or of its undo, each with the address of what it counts, if there is one. The number of
    terms that it made is for those who see all terms: others could tell which were there before.
    """
    batch, is_undone = job.batch, job.state == State.UNDONE
    if batch is None or job.state not in (State.DONE, State.UNDONE):
        return []
    if is_undone:
        return [("memories removed", batch.created, ""), ("memories restored", batch.updated, "")]
    facts = [
        ("new memories", batch.created, import_url(str(batch.pk)) if batch.created else ""),
        ("updated", batch.updated, "#changed-title" if batch.updated else ""),
        ("unchanged", batch.unchanged, ""),
        ("refused", batch.refused, "#refused-title" if batch.refused else ""),
    ]
    made = (batch.report or {}).get("vocabulary_made") if sees_vocabulary else None
    return facts + [(f"{kind} made", count, "") for kind, count in sorted((made or {}).items())]
