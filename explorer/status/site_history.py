"""The past of the site: what its processes measure each minute, the course of each measure, and what went wrong.

Each process adds its answers to the row of the present five minutes, so there is one row for all of them. The first to
do so also counts the memories and their vectors, so that a million are not counted by each process each minute. Rows
are kept for a month. The state of the index and of the vectors is that of all projects; who may see only some is shown
nothing of it.
"""

import logging
import math
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
from django.conf import settings
from django.db import Error, connection
from django.db.models import Q
from django.db.models.expressions import RawSQL
from pydantic import Field

from access.viewer import Viewer, command_viewer
from explorer.models import SiteSample
from explorer.status.reads import site_status
from search.engines.health import index_health
from text.formatting import memories, plural
from web.errors import Refusal
from web.exchange import SPEEDS, Tally, take_tally
from web.params import Params

logger = logging.getLogger(__name__)

EVERY_SECONDS = 60
SAMPLE = timedelta(minutes=5)
KEPT = timedelta(days=31)
# The spans of the page: their names, how far back they go, and how long each period of a trend is.
SPANS = {
    "1h": ("1 hour", timedelta(hours=1), timedelta(minutes=5)),
    "24h": ("24 hours", timedelta(days=1), timedelta(minutes=30)),
    "7d": ("7 days", timedelta(days=7), timedelta(hours=2)),
    "30d": ("30 days", timedelta(days=30), timedelta(hours=12)),
}

# An incident: from these values on. A few slow answers of a quiet night are none.
_SLOW_SECONDS, _LEAST_ANSWERS = 1.0, 20
_LAG_SECONDS = 10.0
_FULL_BYTES = 2_000_000_000
# Samples of one trouble with at most this between them are one incident.
_PAUSE = timedelta(minutes=15)
_ANSWERS = """
  answers = old.answers + %(answers)s,
  errors = old.errors + %(errors)s,
  restarts = old.restarts + %(restarts)s,
  speeds = ARRAY(SELECT coalesce(a, 0) + coalesce(b, 0)
    FROM unnest(old.speeds, %(speeds)s::integer[]) WITH ORDINALITY AS both_speeds (a, b, place) ORDER BY place),
  index_lag = greatest(old.index_lag, %(index_lag)s)"""
_ADD = f"UPDATE explorer_sitesample AS old SET {_ANSWERS} WHERE begin = %(begin)s"
# Another process may have begun the row meanwhile.
_BEGIN = f"""
INSERT INTO explorer_sitesample AS old
  (begin, answers, errors, restarts, speeds, index_lag, memories, pending, database_bytes, free_bytes)
VALUES (%(begin)s, %(answers)s, %(errors)s, %(restarts)s, %(speeds)s, %(index_lag)s, %(memories)s, %(pending)s,
  pg_database_size(current_database()), %(free_bytes)s)
ON CONFLICT (begin) DO UPDATE SET {_ANSWERS}"""
_PAUSES = """
SELECT before, begin FROM (
  SELECT begin, lag(begin) OVER (ORDER BY begin) AS before FROM explorer_sitesample WHERE begin > %s
) AS sample WHERE begin - before > make_interval(secs => %s) ORDER BY begin"""


class SiteHistoryRequest(Params):
    """How far back."""

    span: Literal["1h", "24h", "7d", "30d"] = Field("24h", description="How far back the periods go.")


class HistoryHiddenError(Refusal):
    """The history of the site shows the activity in all projects."""

    status = 403
    code = "forbidden"
    message = "The history of the site covers every project, and you may see only some."
    suggestion = "Ask somebody who sees all projects, or use GET /api/health, which covers yours."


# --- recording --------------------------------------------------------------------------------------------------------


def record_in_background() -> None:
    """Record this process every minute from now on, in a thread."""
    threading.Thread(target=_record_repeatedly, name="site-history", daemon=True).start()


def _record_repeatedly() -> None:
    kept = Tally()
    while True:
        time.sleep(EVERY_SECONDS)
        try:
            kept = _merged(kept, take_tally())
            site_sample_add(kept, datetime.now(UTC))
            kept = Tally()
        except Error as error:  # the database is away: the answers are added when it is back
            logger.debug("The history of the site waits: %s", error)
        except Exception:  # whatever it is, the next minute is recorded all the same
            logger.exception("The history of the site was not recorded.")
        finally:
            connection.close()


def _merged(one: Tally, other: Tally) -> Tally:
    speeds = [a + b for a, b in zip(one.speeds, other.speeds, strict=True)]
    return Tally(one.answers + other.answers, one.errors + other.errors, speeds, one.restarts + other.restarts)


def site_sample_add(tally: Tally, now: datetime) -> None:
    """Add answers to the sample of this time. Who begins it also adds the state, and deletes samples too old."""
    viewer = command_viewer()
    begin = now - (now - datetime.min.replace(tzinfo=UTC)) % SAMPLE
    sample: dict[str, Any] = {
        "begin": begin,
        "answers": tally.answers,
        "errors": tally.errors,
        "restarts": tally.restarts,
        "speeds": tally.speeds,
        "index_lag": index_health(viewer).lag_seconds,
    }
    with connection.cursor() as cursor:
        cursor.execute(_ADD, sample)
        if cursor.rowcount:
            return
        state = site_status(viewer)
        sample |= {
            "memories": state.memories,
            "pending": state.pending if state.models else None,
            "free_bytes": shutil.disk_usage(settings.HOME).free,
        }
        cursor.execute(_BEGIN, sample)
    SiteSample.objects.filter(begin__lt=now - KEPT).delete()


# --- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Period:
    """A period of a trend. Values are None for a time without samples, and speeds for one without answers."""

    begin: datetime
    answers: int | None = None
    errors: int | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    index_lag_seconds: float | None = None
    memories: int | None = None
    pending: int | None = None
    database_bytes: int | None = None
    free_bytes: int | None = None

    @property
    def covered(self) -> float | None:
        """The share of memories with a vector, in percent."""
        if self.memories is None or self.pending is None:
            return None
        return 100.0 * (1 - self.pending / self.memories) if self.memories else 100.0


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong for a time. `end` is None while it lasts."""

    kind: str
    begin: datetime
    end: datetime | None
    text: str


@dataclass(frozen=True, slots=True)
class SiteHistory:
    """The periods of a span, the oldest first, and the incidents of the last month, the newest first."""

    span: str
    step: timedelta
    periods: tuple[Period, ...]
    incidents: tuple[Incident, ...]


def site_history(viewer: Viewer, span: str, now: datetime) -> SiteHistory:
    """The history of the site over one of `SPANS`. Raises HistoryHiddenError for viewers of some projects."""
    if viewer.project_ids is not None:
        raise HistoryHiddenError
    _, length, step = SPANS[span]
    first = now - (now - datetime.min.replace(tzinfo=UTC)) % step - length + step
    bins: list[list[SiteSample]] = [[] for _ in range(length // step)]
    for one in SiteSample.objects.filter(begin__gte=first):
        bins[min((one.begin - first) // step, len(bins) - 1)].append(one)
    periods = tuple(_period(first + n * step, found) for n, found in enumerate(bins))
    return SiteHistory(span, step, periods, _incidents(now))


def _period(begin: datetime, samples: Sequence[SiteSample]) -> Period:
    if not samples:
        return Period(begin)
    speeds, last = _sum_of_speeds(samples), samples[-1]
    return Period(
        begin,
        sum(one.answers for one in samples),
        sum(one.errors for one in samples),
        milliseconds(speeds, 0.5),
        milliseconds(speeds, 0.95),
        max(one.index_lag for one in samples),
        last.memories,
        last.pending,
        last.database_bytes,
        last.free_bytes,
    )


def _sum_of_speeds(samples: Sequence[SiteSample]) -> list[int]:
    # A version that counts by other speeds has none to compare.
    counted = [one.speeds for one in samples if len(one.speeds) == len(SPEEDS) + 1]
    total = np.array(counted, np.int64).reshape(len(counted), len(SPEEDS) + 1).sum(axis=0)
    return [int(number) for number in total]


def milliseconds(speeds: Sequence[int], share: float) -> float | None:
    """The milliseconds that a share of the answers did not exceed, to within a quarter; None without answers."""
    wanted, seen = math.ceil(share * sum(speeds)), 0
    for place, number in enumerate(speeds):
        seen += number
        if number and seen >= wanted:
            return round(1_000 * SPEEDS[min(place, len(SPEEDS) - 1)], 1)
    return None


# --- incidents --------------------------------------------------------------------------------------------------------

Trouble = Callable[[SiteSample], bool]
Words = Callable[[Sequence[SiteSample]], str]


def _is_slow(one: SiteSample) -> bool:
    return one.answers >= _LEAST_ANSWERS and (milliseconds(one.speeds, 0.95) or 0) > 1_000 * _SLOW_SECONDS


_TROUBLES: dict[str, tuple[Trouble, Words]] = {
    "errors": (
        lambda one: one.errors > 0,
        lambda found: (
            f"{plural(sum(one.errors for one in found), 'answer')} of {sum(one.answers for one in found):,} failed "
            "because of the server. The log has a line for each."
        ),
    ),
    "restarts": (
        lambda one: one.restarts > 0,
        lambda found: (
            f"{plural(sum(one.restarts for one in found), 'process', 'processes')} of the server ended and started "
            "again. The log has the cause of each."
        ),
    ),
    "slow": (
        _is_slow,
        lambda found: (
            "The slowest twentieth of the answers took "
            f"{(milliseconds(_sum_of_speeds(found), 0.95) or 0) / 1_000:.1f} s or longer."
        ),
    ),
    "index": (
        lambda one: one.index_lag > _LAG_SECONDS,
        lambda found: f"Changes were found up to {max(one.index_lag for one in found):,.0f} s later than usual.",
    ),
    "vectors": (
        lambda one: bool(one.pending),
        lambda found: f"Up to {memories(max(one.pending or 0 for one in found))} could be found by their words only.",
    ),
    "disk": (
        lambda one: 0 < one.free_bytes < _FULL_BYTES,
        lambda found: f"Only {min(one.free_bytes for one in found) / 1e9:.1f} GB of the disk were free.",
    ),
}
# Vectors of new memories take a moment: none for one sample.
_LEAST_SAMPLES = {"vectors": 2}


def _incidents(now: datetime) -> tuple[Incident, ...]:
    """The incidents of the last month, the newest first. Only samples with some trouble are read."""
    samples = list(SiteSample.objects.filter(_troubled(), begin__gt=now - KEPT))
    found = []
    for kind, (is_trouble, words) in _TROUBLES.items():
        for run in _runs([one for one in samples if is_trouble(one)]):
            if len(run) >= _LEAST_SAMPLES.get(kind, 1):
                end = run[-1].begin + SAMPLE
                found.append(Incident(kind, run[0].begin, end if now - end > SAMPLE else None, words(run)))
    with connection.cursor() as cursor:
        cursor.execute(_PAUSES, [now - KEPT, _PAUSE.total_seconds()])
        for before, after in cursor.fetchall():
            text = "The site was not running, or did not reach its database."
            found.append(Incident("off", before + SAMPLE, after, text))
    return tuple(sorted(found, key=lambda one: (one.begin, one.kind), reverse=True))


def _troubled() -> Q:
    """The samples with any of the troubles."""
    fast = sum(seconds <= _SLOW_SECONDS for seconds in SPEEDS)
    slow = RawSQL("(SELECT 20 * coalesce(sum(n), 0) FROM unnest(speeds[%s:]) n)", [fast + 1])
    return (
        Q(errors__gt=0)
        | Q(restarts__gt=0)
        | Q(index_lag__gt=_LAG_SECONDS)
        | Q(pending__gt=0)
        | Q(free_bytes__gt=0, free_bytes__lt=_FULL_BYTES)
        | Q(answers__gte=_LEAST_ANSWERS, answers__lt=slow)
    )


def _runs(troubled: Sequence[SiteSample]) -> list[list[SiteSample]]:
    """The samples in groups, of which each begins after a pause."""
    runs: list[list[SiteSample]] = []
    for one in troubled:
        if runs and one.begin - runs[-1][-1].begin <= _PAUSE:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs
