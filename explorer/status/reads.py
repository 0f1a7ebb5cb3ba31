"""The state of the site for page and API: numbers, progress of embedding, freshness of the index; and its measures."""

import contextlib
import fcntl
import math
import shutil
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, cast

import psutil
from django.conf import settings
from django.db import connection
from django.template.defaultfilters import filesizeformat

from access.viewer import Viewer
from categories.names import data_revision
from explorer.links import Link, explore_url, path_of
from memories.embedding.query import QueryCache, not_ready_reason, query_cache
from memories.embedding.vectors import EmbeddedShare, memory_progress
from memories.embedding.vocabulary import vocabulary_pending
from memories.models import EmbeddingModel
from memories.queries import visible_to
from memories.recalls import log
from search.engines import IndexHealth, index_health
from search.listings import totals
from search.query import SearchQuery
from text.formatting import memories, number, plural
from web.exchange import recent_answers
from web.processes import start_once
from web.version import VERSION

_REFRESH_SECONDS = 5


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """An embedding model and the number of memories with up-to-date vectors of it."""

    name: str
    state: Literal["serving", "building"]
    embedded: int
    total: int

    @property
    def percent(self) -> float:
        return EmbeddedShare(self.embedded, self.total).percent


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """The state of the site. Numbers cover visible memories only."""

    memories: int
    revision: int | None
    """None for viewers of some projects, to hide activity in the others."""
    models: tuple[ModelStatus, ...]
    not_ready: str
    """Why semantic search is unavailable; empty if it is available."""
    queries: QueryCache | None
    """None if hidden: the activity of others shows in it."""
    engine: str
    index: IndexHealth
    version: str
    pending_vocabulary: int | None = None
    """Entities and relationships without vectors; None for viewers of some projects."""

    @property
    def pending(self) -> int:
        """Memories without vectors of the serving model."""
        return next((one.total - one.embedded for one in self.models if one.state == "serving"), self.memories)

    @property
    def is_settled(self) -> bool:
        return self.models != () and all(one.embedded == one.total for one in self.models)


def site_status(viewer: Viewer) -> SiteStatus:
    memories = visible_to(viewer).count()
    revision = data_revision()
    models = EmbeddingModel.objects.exclude(state=EmbeddingModel.State.RETIRED).order_by("-state")
    return SiteStatus(
        memories=memories,
        revision=None if viewer.project_ids is not None else revision.revision,
        models=tuple(
            ModelStatus(
                one.name,
                cast(Literal["serving", "building"], one.state),
                # A memory added between the two counts is pending but not in the total.
                max(0, memories - memory_progress(revision, one.pk).pending_in(viewer.project_ids)),
                memories,
            )
            for one in models
        ),
        not_ready=not_ready_reason(),
        queries=query_cache() if viewer.project_ids is None else None,
        engine=settings.SEARCH_ENGINE,
        index=index_health(viewer),
        version=VERSION,
        pending_vocabulary=_pending_vocabulary(viewer),
    )


def _pending_vocabulary(viewer: Viewer) -> int | None:
    if viewer.project_ids is not None:
        return None
    serving = EmbeddingModel.objects.filter(state=EmbeddingModel.State.SERVING).values_list("pk", flat=True).first()
    # No model has the id 0, so everything is pending.
    return vocabulary_pending(serving or 0)


# --- the page ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model with its progress bar."""

    name: str
    role: str
    percent: str
    text: str


@dataclass(frozen=True, slots=True)
class StatusPage:
    """The context of the status page."""

    memories: str
    models: tuple[ModelRow, ...]
    meaning: str
    meaning_is_ready: bool
    """Whether nearly all memories are found by meaning: vectors of new ones take a moment."""
    meaning_is_complete: bool
    index: str
    index_is_ready: bool
    queries: str
    """Empty if hidden."""
    version: str
    vocabulary: str
    """Progress of the vocabulary; empty if hidden."""
    refresh_seconds: int
    """The interval to reload while work is in progress; 0 if none is."""

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for, so that a line says it."""
        return self.meaning_is_complete and self.index_is_ready and not self.refresh_seconds


# Up to one memory of a hundred may wait for its vector while everything works.
_PENDING_SHARE = 100
_ROLES = {"serving": "In use", "building": "Replaces it when all memories are embedded"}


def build_status(status: SiteStatus) -> StatusPage:
    return StatusPage(
        memories=f"{status.memories:,}",
        models=tuple(
            ModelRow(
                one.name,
                _ROLES[one.state],
                f"{one.percent:.1f}",
                f"{one.embedded:,} of {one.total:,} memories embedded, {one.percent:.1f} %",
            )
            for one in status.models
        ),
        meaning=_meaning_text(status),
        meaning_is_ready=not status.not_ready and status.pending * _PENDING_SHARE <= status.memories,
        meaning_is_complete=not status.not_ready and not status.pending,
        index=_index_text(status.index),
        index_is_ready=status.index.state in ("ready", "off"),
        queries=_queries_text(status.queries),
        version=status.version,
        vocabulary=_vocabulary_text(status.pending_vocabulary),
        refresh_seconds=0 if status.is_settled and not status.not_ready else _REFRESH_SECONDS,
    )


def _queries_text(queries: QueryCache | None) -> str:
    asked = queries.hits + queries.misses if queries else 0
    return f"{queries.hits:,} of {asked:,} questions were asked before." if queries and asked else ""


def _meaning_text(status: SiteStatus) -> str:
    if status.not_ready:
        return f"Searching by words only: {status.not_ready}."
    if status.pending:
        are = "is" if status.pending == 1 else "are"
        return f"Partly ready: {memories(status.pending)} {are} still found by words only."
    return "Ready."


def _vocabulary_text(pending: int | None) -> str:
    if pending is None:
        return ""
    return f"{pending:,} concepts, categories, entities and relationships are not embedded yet." if pending else ""


def _index_text(index: IndexHealth) -> str:
    if index.state == "off":
        return "Off: the database answers searches."
    if index.state == "missing":
        return "Being built; until then the database answers searches."
    if not index.lag_seconds:
        return "Up to date."
    waiting = f", {plural(index.waiting, 'change')} pending" if index.waiting is not None else ""
    return f"Behind by {index.lag_seconds:.1f} s{waiting}."


# Below this share of the disk, or this many bytes, writes may soon fail.
_LITTLE_SHARE = 0.05
_LITTLE_BYTES = 2_000_000_000
# Without a schedule, a backup of this age needs attention.
_OLD_BACKUP = timedelta(days=7)
# A process that was started to make one takes as long until it begins, at most.
_STARTING_SECONDS = 60
# A slow answer that people notice.
_SLOW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Measure:
    """A number with what it means. `url` leads to the memories that are counted, if any are.

    `remedy` says what to do about one to watch.
    """

    name: str
    state: Literal["OK", "Watch"]
    now: str
    words: str
    url: str = ""
    remedy: str = ""
    action: Link | None = None
    """A form on the status page that mends a problem, sent to an address."""


@dataclass(frozen=True, slots=True)
class MeasureGroup:
    title: str
    measures: tuple[Measure, ...]


def measure_groups(viewer: Viewer, state: SiteStatus) -> tuple[MeasureGroup, ...]:
    """All measures; viewers of some projects see those of their memories, since the others are about the whole site."""
    groups = [
        MeasureGroup("Memories", _memories(viewer, state.memories)),
        MeasureGroup("Search", _search(state)),
    ]
    if viewer.project_ids is None:
        groups += [
            MeasureGroup("Answers", (*_answers(recent_answers()), *_log_of_reads())),
            MeasureGroup("The server", _server()),
        ]
    return tuple(groups)


def to_watch(groups: Iterable[MeasureGroup]) -> tuple[Measure, ...]:
    """The measures that need attention, in their order."""
    return tuple(one for group in groups for one in group.measures if one.state == "Watch")


def _memories(viewer: Viewer, stored: int) -> tuple[Measure, ...]:
    """The memories that hold, those that came or changed lately, those without a category, and all that are stored."""
    slices: tuple[dict[str, str], ...] = ({}, {"updated_since": "24h"}, {"updated_since": "7d"}, {"no": "category"})
    queries = [SearchQuery.from_mapping(one) for one in slices]
    total, today, week, without = (one.total for one in totals(queries, viewer))
    share = 100 * without / total if total else 0.0
    shown = (
        ("Memories", total, "Those that are active or proposed."),
        ("New or changed today", today, f"{memories(today)} stored or changed in the last 24 hours."),
        ("In seven days", week, f"{memories(week)} stored or changed in the last seven days."),
        ("Without a category", without, f"{share:.1f} % of the memories have no category; suggestions propose some."),
    )
    counted = (
        Measure(name, "OK", number(count), words, explore_url(query))
        for (name, count, words), query in zip(shown, queries, strict=True)
    )
    words = "With those that are archived, superseded or deleted."
    return (*counted, Measure("Stored in all", "OK", number(stored), words))


def _search(state: SiteStatus) -> tuple[Measure, ...]:
    """How much of the corpus can be found already, by words and by meaning."""
    lag = state.index.lag_seconds
    found = []
    if state.index.state != "off":
        words = "A change is found this much later than it was made." if lag else "Every change is found already."
        found.append(Measure("Index lag", "OK", f"{lag:,.1f} s", words))
    if state.models:
        share = EmbeddedShare(state.memories - state.pending, state.memories)
        words = f"{memories(share.embedded)} of {number(state.memories)} are found by their meaning too."
        found.append(Measure("With a vector", "OK", f"{share.percent:g} %", words))
    return tuple(found)


def _answers(recent: Sequence[tuple[float, int]]) -> tuple[Measure, ...]:
    if not recent:
        return (Measure("Answers", "OK", "–", "This process has answered nothing yet."),)
    seconds = sorted(spent for spent, _ in recent)
    half, most = (seconds[math.ceil(share * len(seconds)) - 1] for share in (0.5, 0.95))
    failed = sum(status >= 500 for _, status in recent)
    of_last = f"of the last {plural(len(recent), 'answer')} of this process, to pages, API and MCP,"
    return (
        Measure("Typical answer (p50)", "OK", _milliseconds(half), f"Half {of_last} took less."),
        Measure(
            "Slow answer (p95)",
            "Watch" if most > _SLOW_SECONDS else "OK",
            _milliseconds(most),
            f"The slowest twentieth {of_last} took longer.",
            remedy="Look at the metrics for the slow addresses, and whether other programs keep this machine busy.",
        ),
        Measure(
            "Errors",
            "Watch" if failed else "OK",
            number(failed),
            f"{number(failed)} {of_last} failed or were refused because of the server.",
            remedy="The log has a line for each, with the reason.",
        ),
    )


def _log_of_reads() -> tuple[Measure, ...]:
    """Whether every read comes into the log, as far as this process knows."""
    if not settings.READS_DAYS:
        return ()
    dropped = log.dropped_reads
    words = f"Reads of this process that are not in the log yet; {number(dropped)} were left out of it."
    remedy = "They wait while the database does not answer, and further ones are left out."
    return (Measure("Reads waiting", "Watch" if dropped else "OK", number(log.waiting_reads), words, remedy=remedy),)


def _milliseconds(seconds: float) -> str:
    return f"{1_000 * seconds:,.0f} ms"


def _server() -> tuple[Measure, ...]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database()), current_setting('server_version')")
        size, version = cursor.fetchone()
    disk, memory = shutil.disk_usage(settings.HOME), psutil.virtual_memory()
    is_full = disk.free < max(_LITTLE_BYTES, _LITTLE_SHARE * disk.total)
    used = psutil.Process().memory_info().rss
    return (
        Measure(
            "Database",
            "OK",
            filesizeformat(size),
            f"The size of all tables and indexes in Postgres {version}.",
        ),
        Measure(
            "Free disk",
            "Watch" if is_full else "OK",
            filesizeformat(disk.free),
            f"Free of {filesizeformat(disk.total)} where MNEMOSCOPE_HOME is.",
            remedy="Delete what is not needed there, such as old backups, or move MNEMOSCOPE_HOME to a larger disk.",
        ),
        Measure(
            "Memory of this process",
            "OK",
            filesizeformat(used),
            f"{filesizeformat(memory.available)} of {filesizeformat(memory.total)} are available on this machine.",
        ),
        _last_backup(datetime.now(UTC)),
    )


def backup_start() -> None:
    """Start a process that makes a backup in the folder of the settings, unless one does already."""
    if backup_is_running():
        return
    # If the folder cannot be written to, the process says so.
    with contextlib.suppress(OSError):
        Path(settings.BACKUP_FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
        _backup_lock().write_text("starting")
    start_once(["backup"])


def backup_is_running() -> bool:
    """Whether a process of this machine makes a backup in the folder of the settings, or has just been started to."""
    try:
        with _backup_lock().open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return bool(lock.read(1)) and time.time() - _backup_lock().stat().st_mtime < _STARTING_SECONDS
    except BlockingIOError:
        return True
    except OSError:  # there is no folder yet, or none that can be read
        return False


def _backup_lock() -> Path:
    return Path(settings.BACKUP_FOLDER) / settings.BACKUP_LOCK


def _last_backup(now: datetime) -> Measure:
    """The age of the newest file in the folder of backups, and why there is none since."""
    hours, folder = settings.BACKUP_EVERY_HOURS, Path(settings.BACKUP_FOLDER)
    if backup_is_running():
        return Measure("Last backup", "OK", "now", "One is being made.")
    made, reason = [], ""
    try:
        made = [path.stat().st_mtime for path in folder.glob("*.backup")]
    except OSError as error:
        reason = f" The folder of backups cannot be read: {error.strerror}."
    with contextlib.suppress(FileNotFoundError, PermissionError):
        reason = reason or f" {settings.BACKUP_FAILURE.read_text()}"
    back_up = Link("Back up now", path_of("explorer:back_up"))
    scheduled = f"One is due every {plural(hours, 'hour')}." if hours else "None are scheduled."
    remedy = "Make one now, and see why none was made."
    if not hours:
        remedy = "Make one now, or set BACKUP_EVERY_HOURS for regular ones."
    if not made:
        words = f"There is no backup in the folder of backups. {scheduled}{reason}"
        return Measure("Last backup", "Watch", "never", words, remedy=remedy, action=back_up)
    # A clock may have been set back since.
    age = max(timedelta(), now - datetime.fromtimestamp(max(made), UTC))
    is_late = bool(reason) or age > (timedelta(hours=2 * hours) if hours else _OLD_BACKUP)
    hours_ago = int(age.total_seconds() // 3600)
    shown = f"{plural(age.days, 'day') if age.days else plural(hours_ago, 'hour')} ago" if hours_ago else "just now"
    words = f"{plural(len(made), 'backup')} in the folder of backups. {scheduled}{reason}"
    return Measure("Last backup", "Watch" if is_late else "OK", shown, words, remedy=remedy, action=back_up)
