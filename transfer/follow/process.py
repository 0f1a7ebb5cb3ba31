"""The process that follows sources: it looks at each of them every few seconds, and reads those that have changed."""

import fcntl
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone

from memories.models import FollowedSource
from transfer.follow.sync import Choices, FollowedMeanwhileError, source_sync
from transfer.follow.watch import SourceWatch
from transfer.follow.write_back import source_write_back
from transfer.formats.base import ImportFailedError
from transfer.jobs import check_may_import_all, viewer_of_starter
from web.errors import Refusal
from web.processes import SupervisedProcess

logger = logging.getLogger("mnemoscope.following")

# A look takes less than a hundredth of the time of a core, so that all take about one. If changes would then be found
# too late, it takes up to a tenth.
_LOOK_SECONDS, _LATE_SECONDS = 2.0, 8.0
_LOOK_SHARE, _MOST_SHARE = 0.008, 0.1
# Readings of a source that changes without end take up to a quarter of the time.
_READ_SHARE = 0.25
_RETRY_SECONDS = 6.0
_TICK_SECONDS = 0.5
# How often the time of the last look is stored, for sources in which nothing changes.
_STORED_SECONDS = 15.0


@dataclass(slots=True)
class Follower:
    """Follows all sources until `stop` returns True."""

    stop: Callable[[], bool] = lambda: False
    _due: dict[int, float] = field(default_factory=dict)
    _watches: dict[int, SourceWatch] = field(default_factory=dict)
    _unchanged: set[int] = field(default_factory=set)
    _stored: float = 0.0

    def follow(self) -> None:
        """One of several processes with the same home follows. Tries again after errors."""
        with _only_one(self.stop):
            while not self.stop():
                try:
                    pause = self.once()
                except DatabaseError as error:
                    logger.warning("Sources cannot be followed, and it is tried again: %s", error)
                    connection.close()
                    pause = _RETRY_SECONDS
                _wait(pause, self.stop)

    def once(self) -> float:
        """Look at each source that is due, and read it if it has changed. Returns the seconds until the next is due."""
        next_due = math.inf
        sources = list(FollowedSource.objects.all())
        for stopped in self._watches.keys() - {source.pk for source in sources}:
            self._watches.pop(stopped).close()
        for source in sources:
            if self.stop():
                return 0.0
            if time.monotonic() >= self._due.get(source.pk, 0.0):
                pause, is_unchanged = self._look(source)
                self._due[source.pk] = time.monotonic() + pause
                if is_unchanged:
                    self._unchanged.add(source.pk)
            next_due = min(next_due, self._due[source.pk])
        if time.monotonic() - self._stored > _STORED_SECONDS:
            self._stored = time.monotonic()
            FollowedSource.objects.filter(pk__in=self._unchanged).update(looked_at=timezone.now())
            self._unchanged.clear()
        # New sources are noticed within `_LOOK_SECONDS`.
        return min(max(next_due - time.monotonic(), _TICK_SECONDS), _LOOK_SECONDS)

    def _look(self, source: FollowedSource) -> tuple[float, bool]:
        """Returns the seconds until the next look, and whether nothing has changed."""
        used = _processor_seconds()
        try:
            problem = _write_back(source)
            if not self._watches.setdefault(source.pk, SourceWatch()).has_changed(source):
                _store_error(source, problem)
                # Not the time that it waited while others were busy: changes would be found too late.
                return _pause(_processor_seconds() - used), True
            viewer = viewer_of_starter(source)
            check_may_import_all(viewer)
            outcome = source_sync(source, Choices(viewer))
        except FollowedMeanwhileError as error:
            logger.info("%s", error)
            return _LOOK_SECONDS, False
        except (ImportFailedError, Refusal) as error:
            _store_error(source, str(error))
            return _RETRY_SECONDS, False
        except DatabaseError:
            raise
        except Exception as error:  # a fault in one source must not end the others
            logger.exception("%s cannot be followed.", source.path)
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            _store_error(source, f"{source.path}: {first}")
            return _RETRY_SECONDS, False
        if outcome:
            tally = outcome.tally
            logger.info(
                "%s: %s new, %s updated, %s gone, %s conflicts.",
                *(source.path, tally.created, tally.updated, tally.gone, tally.conflicts),
            )
        return max(_LOOK_SECONDS, (_processor_seconds() - used) * (1 / _READ_SHARE - 1)), False


def _processor_seconds() -> float:
    """The processor time that this process has used, and the processes that it started."""
    return sum(os.times()[:4])


def _pause(seconds: float) -> float:
    """The seconds until the next look at a source, by those that a look takes."""
    return max(_LOOK_SECONDS, min(seconds / _LOOK_SHARE, _LATE_SECONDS), seconds / _MOST_SHARE)


def _write_back(source: FollowedSource) -> str:
    """Write edits made here into a source, if somebody wants that. Returns why some cannot be written, or nothing."""
    if not source.writes_back or source.read_at is None:
        return ""
    viewer = viewer_of_starter(source)
    check_may_import_all(viewer)
    try:
        source_write_back(source, viewer)
    except ImportFailedError as error:
        # It is read all the same.
        return str(error)
    return ""


def _store_error(source: FollowedSource, error: str) -> None:
    if error != source.error:
        if error:
            logger.warning("%s", error)
        FollowedSource.objects.filter(pk=source.pk).update(error=error, looked_at=timezone.now())


def _wait(seconds: float, stop: Callable[[], bool]) -> None:
    until = time.monotonic() + seconds
    while not stop() and (left := until - time.monotonic()) > 0:
        time.sleep(min(_TICK_SECONDS, left))


@contextmanager
def _only_one(stop: Callable[[], bool]) -> Iterator[None]:
    """Wait until no other process with the same home follows."""
    with (Path(settings.HOME) / "following.lock").open("ab") as lock:
        while not stop():
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _wait(_LOOK_SECONDS, stop)
        yield


def is_followed_now() -> bool:
    """Whether a process with the same home follows."""
    with (Path(settings.HOME) / "following.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@contextmanager
def follower_started(start: Callable[[SupervisedProcess], None]) -> Iterator[None]:
    """Start the process that follows sources while the block runs, as soon as there is one."""
    over = threading.Event()

    def watch() -> None:
        try:
            while not over.wait(_LOOK_SECONDS):
                try:
                    if FollowedSource.objects.exists():
                        start(SupervisedProcess(["follow_sources", "--skip-checks"], "Sources are not followed"))
                        return
                except DatabaseError:
                    connection.close()
        finally:
            connection.close()

    thread = threading.Thread(target=watch, name="following", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)
