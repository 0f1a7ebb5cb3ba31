"""Watches on folders: the operating system reports changes, so that a folder is looked through only after one."""

import logging
import time
from collections.abc import Callable, Generator, Iterable
from itertools import islice
from pathlib import Path

import watchfiles

from memories.models import FollowedSource
from transfer.follow.sync import source_has_changed
from transfer.formats.base import ImportFailedError
from transfer.formats.registry import importer_named

logger = logging.getLogger("mnemoscope.following")

# A folder is looked through this often also without a report: not every file system reports what others do to it.
_CHECK_SECONDS = 60.0
# A report that is on its way arrives within this time.
_REPORT_MS = 10
# More folders than this are not watched: the system has a limit for all that somebody runs.
_MAX_FOLDERS = 10_000
# A system that missed a change, or refused, is asked again after this time.
_DISTRUST_SECONDS = 3_600.0


class SourceWatch:
    """Answers whether a followed source may have changed.

    A folder is looked through when the system has reported a change in it, after each reading, and every minute to
    check the reports. If that finds a change without a report, or the system cannot watch the folder, its reports are
    not asked for for an hour, and each answer looks through the folder.
    """

    def __init__(self) -> None:
        self._trusted_from = 0.0
        self._reports: Generator[set[tuple[watchfiles.Change, str]], None, None] | None = None
        self._folder: tuple[int, int] | None = None
        # The stamp of the source with which the last look found no change; None after another look.
        self._settled: str | None = None
        self._check_at = 0.0

    def has_changed(self, source: FollowedSource) -> bool:
        """Whether a source may have changed since it was read. Raises ImportFailedError."""
        following = importer_named(source.format).follow
        path = Path(source.path)
        folders = following.folders if following else None
        if folders is None or time.monotonic() < self._trusted_from or not path.is_dir():
            self.close()
            return source_has_changed(source)
        is_quiet = self._is_quiet(path, folders) and self._settled == source.stamp
        if is_quiet and time.monotonic() < self._check_at:
            return False
        self._settled = None
        has_changed = source_has_changed(source)
        if has_changed and is_quiet and not self._reported(path):
            self._distrust(path, "it has changed without a report")
        elif not has_changed:
            self._settled = source.stamp
        self._check_at = time.monotonic() + _CHECK_SECONDS
        return has_changed

    def close(self) -> None:
        """End the watch, if there is one."""
        if self._reports is not None:
            self._reports.close()
        self._reports, self._folder, self._settled = None, None, None

    def _is_quiet(self, path: Path, folders: Callable[[Path], Iterable[str]]) -> bool:
        """Whether the folder was watched since the last question, and nothing was reported."""
        try:
            state = path.stat()
        except OSError as error:
            raise ImportFailedError(f"{path}: cannot be read: {error.strerror}.") from None
        # Another folder may be in its place.
        if self._folder == (state.st_dev, state.st_ino):
            return not self._reported(path)
        self.close()
        watched = list(islice(folders(path), _MAX_FOLDERS + 1))
        if len(watched) > _MAX_FOLDERS:
            self._distrust(path, f"it has more than {_MAX_FOLDERS:,} folders")
            return False
        self._folder = (state.st_dev, state.st_ino)
        # Those that are read, one by one: below a linked folder, or one of packages, there may be very many others.
        self._reports = watchfiles.watch(
            *watched,
            recursive=False,
            watch_filter=None,
            debounce=_REPORT_MS,
            step=_REPORT_MS,
            rust_timeout=_REPORT_MS,
            yield_on_timeout=True,
            # Otherwise it would poll where the system cannot report, several times a second.
            force_polling=False,
            ignore_permission_denied=True,
        )
        self._reported(path)
        return False

    def _reported(self, path: Path) -> bool:
        """Whether a change was reported since the last question."""
        if self._reports is None:
            return True
        try:
            changes = next(self._reports, None)
        except (OSError, RuntimeError) as error:
            self._distrust(path, str(error))
            return True
        if changes is None or any(Path(changed).is_dir() for _, changed in changes):
            # A new folder is to be watched too.
            self.close()
            return True
        return bool(changes)

    def _distrust(self, path: Path, reason: str) -> None:
        logger.info("%s is looked through every few seconds, since the system does not watch it: %s.", path, reason)
        self._trusted_from = time.monotonic() + _DISTRUST_SECONDS
        self.close()
