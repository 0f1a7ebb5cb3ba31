"""Recalls: which memories were read back, how often, and when last; and the gathering of reads (`memories/reads.py`).

A memory is recalled by an agent with each answer that has it: a search, a timeline, a context, or the whole memory. It
is recalled by a person who opens it; a list of results that a person looks through recalls nothing. An answer counts a
memory once. Recalls are gathered in the process and stored every few seconds, so that no answer waits for them; a
process that is killed loses those few seconds.

Whoever may open a memory sees how often it was recalled, by agents and by people, and on which days. By whom is in the
log of reads, which few see.
"""

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from django.conf import settings
from django.db import Error, connection, transaction
from django.db.models import DateField, DateTimeField, Value
from django.db.models.functions import Cast

from access.models import AuditEvent
from access.viewer import Viewer
from categories.services import writers_turn
from memories.models import MemoryRead, Recall, RecallDay
from memories.queries import visible_to
from memories.reads import WaitingRead, build_read, remove_old_reads, store_reads, without_secrets

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 5.0
# Memories whose recalls may wait, for example while the database is away. Further ones are not counted.
_MOST_WAITING = 100_000
# Reads that may wait. Further ones are dropped, and their number is reported.
_MOST_READS = 20_000
# Days of which each memory's recalls are known.
DAYS_KEPT = 92
_CLEAN_EVERY = timedelta(hours=6)
_TURNS = 4_711_011  # the key of the advisory lock
# Whoever deletes memories waits for their recalls, and these for the memories. Postgres ends one of two that wait for
# each other after a second: it shall not be the deletion.
_LONGEST_WAIT = "300ms"

# One row for each memory that still exists. Only one process writes at a time, so that revisions are committed in their
# order, and the rows are locked in the order of their ids.
_STORE = """
INSERT INTO memories_recall AS known (memory_id, total, by_agents, first_at, last_at, revision)
SELECT asked.id, asked.total, asked.by_agents, asked.first_at, asked.last_at, %(revision)s
FROM unnest(%(ids)s::bigint[], %(totals)s::int[], %(by_agents)s::int[], %(first)s::timestamptz[],
            %(last)s::timestamptz[]) AS asked (id, total, by_agents, first_at, last_at)
JOIN memories_memory memory ON memory.id = asked.id ORDER BY asked.id
ON CONFLICT (memory_id) DO UPDATE SET
  total = known.total + excluded.total, by_agents = known.by_agents + excluded.by_agents,
  first_at = least(known.first_at, excluded.first_at), last_at = greatest(known.last_at, excluded.last_at),
  revision = excluded.revision"""
_STORE_DAYS = """
INSERT INTO memories_recallday AS known (memory_id, day, total, by_agents)
SELECT asked.id, asked.day, asked.total, asked.by_agents
FROM unnest(%(ids)s::bigint[], %(days)s::date[], %(totals)s::int[], %(by_agents)s::int[])
  AS asked (id, day, total, by_agents)
JOIN memories_memory memory ON memory.id = asked.id ORDER BY asked.id, asked.day
ON CONFLICT (memory_id, day) DO UPDATE SET
  total = known.total + excluded.total, by_agents = known.by_agents + excluded.by_agents"""


@dataclass(slots=True)
class _Count:
    """Recalls of a memory on a day that are not stored yet."""

    first_at: datetime
    last_at: datetime
    total: int = 0
    by_agents: int = 0

    def add(self, other: "_Count") -> None:
        self.first_at = min(self.first_at, other.first_at)
        self.last_at = max(self.last_at, other.last_at)
        self.total += other.total
        self.by_agents += other.by_agents


_Waiting = dict[tuple[int, date], _Count]


class RecallLog:
    """The recalls and reads of this process that are not stored yet. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._storing = threading.Lock()
        self._waiting: _Waiting = {}
        self._reads: list[WaitingRead] = []
        self.dropped_reads = 0
        self._cleaned_at: datetime | None = None

    def add(self, ids: Iterable[int], *, by_agent: bool, at: datetime) -> None:
        """Count each of the memories once. Times are stored by the second."""
        at = at.replace(microsecond=0)
        day = at.astimezone(UTC).date()
        with self._lock:
            for memory_id in set(ids):
                self._count((memory_id, day), _Count(at, at, 1, int(by_agent)))

    @property
    def waiting_reads(self) -> int:
        return len(self._reads)

    def add_read(self, read: WaitingRead) -> None:
        with self._lock:
            self._keep_reads([read])

    def store(self) -> int:
        """Write what was gathered to the database; return the number of memories recalled. Raises django.db.Error, and
        then what was not stored waits for the next time.
        """
        with self._storing:
            with self._lock:
                found, self._waiting = self._waiting, {}
                reads, self._reads = self._reads, []
            try:
                reads = [without_secrets(read) for read in reads]
                if found or reads:
                    _store(found, reads)
            except BaseException:
                with self._lock:
                    for key, count in found.items():
                        self._count(key, count)
                    later, self._reads = self._reads, []
                    self._keep_reads([*reads, *later])
                raise
            # All of it stays stored, and counted once, if this fails.
            if found or reads or not settings.READS_DAYS:
                self._clean()
        return len({memory_id for memory_id, _ in found})

    def forget(self) -> None:
        """Drop what is not stored. For tests."""
        with self._lock:
            self._waiting, self._reads = {}, []

    def _keep_reads(self, reads: Sequence[WaitingRead]) -> None:
        free = max(0, _MOST_READS - len(self._reads))
        self._reads += reads[:free]
        self.dropped_reads += len(reads[free:])

    def _count(self, key: tuple[int, date], count: _Count) -> None:
        if (known := self._waiting.get(key)) is not None:
            known.add(count)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting[key] = count

    def _clean(self) -> None:
        """Remove days that are over long ago, by recallday_day_idx, and old reads."""
        now = datetime.now(UTC)
        if self._cleaned_at is not None and now - self._cleaned_at < _CLEAN_EVERY:
            return
        RecallDay.objects.filter(day__lt=now.date() - timedelta(days=DAYS_KEPT)).delete()
        remove_old_reads()
        self._cleaned_at = now


def _store(found: _Waiting, reads: Sequence[WaitingRead]) -> None:
    with transaction.atomic():
        if found:
            _store_recalls(found)
        if reads:
            store_reads(reads)


def _store_recalls(found: _Waiting) -> None:
    sums: dict[int, _Count] = {}
    for (memory_id, _), count in found.items():
        known = sums.setdefault(memory_id, _Count(count.first_at, count.last_at))
        known.add(count)
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL lock_timeout = '{_LONGEST_WAIT}'")
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_TURNS])
        writers_turn()
        cursor.execute("SELECT nextval('recall_revision_seq')")
        (revision,) = cursor.fetchone()
        cursor.execute(
            _STORE,
            {
                "revision": revision,
                "ids": list(sums),
                "totals": [one.total for one in sums.values()],
                "by_agents": [one.by_agents for one in sums.values()],
                "first": [one.first_at for one in sums.values()],
                "last": [one.last_at for one in sums.values()],
            },
        )
        cursor.execute(
            _STORE_DAYS,
            {
                "ids": [memory_id for memory_id, _ in found],
                "days": [day for _, day in found],
                "totals": [one.total for one in found.values()],
                "by_agents": [one.by_agents for one in found.values()],
            },
        )


log = RecallLog()


def record_list(viewer: Viewer, ids: Sequence[int], query: str = "") -> None:
    """Record memories that an answer has, as results of a query. They are recalled by an agent, not by a person."""
    _record_read(viewer, ids, MemoryRead.Kind.LIST, query, recalls=is_agent(viewer))


def record_opening(viewer: Viewer, ids: Sequence[int], *, recalls: bool = True) -> None:
    """Record memories that somebody, agent or person, has opened. It recalls them, unless they do so while tidying."""
    _record_read(viewer, ids, MemoryRead.Kind.WHOLE, recalls=recalls)


def record_passing(
    viewer: Viewer, ids: Sequence[int], kind: MemoryRead.Kind, query: str = "", number: int | None = None
) -> None:
    """Record memories that an answer has without recalling any: those of a context, an export, a feed or a history.
    `number` is how many they are, if these are not all.
    """
    _record_read(viewer, ids, kind, query, number, recalls=False)


def _record_read(
    viewer: Viewer,
    ids: Sequence[int],
    kind: MemoryRead.Kind,
    query: str = "",
    number: int | None = None,
    *,
    recalls: bool,
) -> None:
    now = datetime.now(UTC)
    if recalls and settings.RECALLS:
        log.add(ids, by_agent=is_agent(viewer), at=now)
    if settings.READS_DAYS:
        log.add_read(build_read(viewer, ids, kind, query, now, number))


def is_agent(viewer: Viewer) -> bool:
    """Whether the viewer is a program: whatever holds a key, or speaks MCP."""
    return viewer.api_key_id is not None or viewer.door == AuditEvent.Door.MCP


# --- storing in the background ----------------------------------------------------------------------------------------


def store_in_background() -> None:
    """Store recalls every few seconds from now on, in a thread. Call `store_now` before the process ends."""
    threading.Thread(target=_store_repeatedly, name="recalls", daemon=True).start()


def store_now() -> None:
    """Store the recalls gathered so far. A database that is away costs only their counts."""
    try:
        log.store()
    except Error as error:
        logger.debug("Recalls wait: %s", error)


def _store_repeatedly() -> None:
    while True:
        time.sleep(FLUSH_SECONDS)
        try:
            store_now()
            connection.close()
        except Exception:  # whatever it is, the next recalls are stored all the same
            logger.exception("Recalls were not stored.")


# --- reads ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RecallDays:
    """The recalls of a day."""

    day: date
    total: int
    by_agents: int

    @property
    def by_people(self) -> int:
        return self.total - self.by_agents


@dataclass(frozen=True, slots=True)
class Recalls:
    """How often a memory was recalled, since when, when last, and on which of the last days, the latest first."""

    total: int = 0
    by_agents: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    days: tuple[RecallDays, ...] = ()

    @property
    def by_people(self) -> int:
        return self.total - self.by_agents


def recalls_of(viewer: Viewer, memory_id: int) -> Recalls:
    """The recalls of a memory; none if the viewer may not open it. One statement, by primary keys."""
    of_memory = {"memory__in": visible_to(viewer).filter(pk=memory_id)}
    no_time = Cast(Value(None), DateTimeField())
    sums = Recall.objects.filter(**of_memory).values_list(
        Cast(Value(None), DateField()), "total", "by_agents", "first_at", "last_at"
    )
    days = RecallDay.objects.filter(**of_memory).values_list("day", "total", "by_agents", no_time, no_time)
    rows = list(sums.union(days.order_by("-day")[:DAYS_KEPT], all=True))
    found = next((row for row in rows if row[0] is None), None)
    if found is None:
        return Recalls()
    _, total, by_agents, first_at, last_at = found
    by_day = (RecallDays(*row[:3]) for row in rows if row[0] is not None)
    newest_first = tuple(sorted(by_day, key=lambda day: day.day, reverse=True))
    return Recalls(total, by_agents, first_at, last_at, newest_first)
