"""Immutable segments in a folder: how the columns of the index and the replica of the vectors are stored.

    manifest             the files that belong together, and the revision of the database that they are true to
    <any name>.segment   rows, written once
    <any name>.deleted   a bit for each row that is deleted

Files are written completely, under new names, and flushed to disk before the manifest names them; the manifest is
replaced atomically. Readers map the files of one manifest, and keep them until they can open all files of a newer one.
"""

import json
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from search.engines import crash_points
from search.engines.array_files import DamagedError, Mask, bits_read, bits_write

# Attempts of a reader that the writer overtakes.
_TRIES = 5
# A store of fewer rows is never wasteful.
_MIN_ROWS = 10_000


class NotReadableError(Exception):
    """There is nothing to read, for the reason in the message."""


class StoredSegment(Protocol):
    @property
    def name(self) -> str:
        """The name of its file; "" until it is written."""

    @property
    def size(self) -> int:
        """The number of its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The files that belong together."""

    VERSION: ClassVar[int]
    """Increased whenever files of an older version cannot be read, or would mean something else."""

    number: int = 0
    """Increases with every manifest of a folder."""
    revision: int = 0
    """The revision of the database when the last changes were read from it."""
    size: int = 0
    """The number of rows in all segments."""
    segments: tuple[str, ...] = ()
    deleted: str = ""
    """The file with the bits of the deleted rows; "" if there are none."""

    @property
    def files(self) -> set[str]:
        return {*self.segments, self.deleted} - {""}


M = TypeVar("M", bound=Manifest)
S = TypeVar("S", bound=StoredSegment)
T = TypeVar("T")


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, and flush it to disk."""
    new = path.with_name(path.name + ".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush the names of a folder's files to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read_manifest(folder: Path, kind: type[M]) -> M:
    """Raise NotReadableError if the manifest is of another version, DamagedError if it cannot be read."""
    try:
        stored = json.loads((folder / "manifest").read_text())
        if (version := stored.pop("schema")) != kind.VERSION:
            raise NotReadableError(f"it is of version {version}, and this is version {kind.VERSION}")
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
        return kind(**fields)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"its manifest cannot be read ({error})") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Flush the names of all files, then replace the manifest: from here on readers see them."""
    sync_folder(folder)
    replace_file(folder / "manifest", json.dumps({"schema": manifest.VERSION, **asdict(manifest)}))
    crash_points.reached("manifest written")


def read_live(folder: Path, manifest: Manifest) -> Mask:
    """A mask of the rows that are not deleted. Raises DamagedError."""
    if not manifest.deleted:
        return np.ones(manifest.size, np.bool_)
    return ~bits_read(folder / manifest.deleted, manifest.size)


def open_segments(
    folder: Path, manifest: Manifest, read: Callable[[Path], S], opened: Iterable[S] = ()
) -> tuple[list[S], Mask]:
    """Return the segments, read unless they are in `opened`, and a mask of their live rows. Raise DamagedError."""
    known = {segment.name: segment for segment in opened}
    segments = [known.get(name) or read(folder / name) for name in manifest.segments]
    if sum(segment.size for segment in segments) != manifest.size:
        raise DamagedError("the segments do not add up to the manifest")
    return segments, read_live(folder, manifest)


def remove_unreferenced(folder: Path, manifests: Sequence[Manifest] = ()) -> None:
    """Remove the files that none of the manifests names: of unfinished steps, or replaced by a merge.

    Readers keep the files that they have open. Files without a suffix, such as locks, are not of the store.
    """
    named: set[str] = set().union(*(manifest.files for manifest in manifests))
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.suffix and path.name not in named:
            path.unlink(missing_ok=True)


def merge_tail(segments: list[S], limit: int, merge: Callable[[Sequence[S]], S]) -> None:
    """Merge neighbours of similar size at the end, unless the first of them has `limit` rows.

    So there are few segments, and each row is rarely copied.
    """
    while len(segments) > 1 and segments[-2].size < min(4 * segments[-1].size, limit):
        segments[-2:] = [merge(segments[-2:])]


class SegmentWriter(Generic[S, M]):
    """A folder of segments, open for writing. After any error open it again: the files have a consistent state."""

    MAX_DELETED_SHARE: ClassVar[float]
    """Above this share of deleted rows, a new store is smaller and faster."""

    def __init__(self, folder: Path, manifest: M, segments: list[S], live: Mask, prefix: str = "") -> None:
        """`prefix` begins all file names; it differs between stores that follow each other in the same folder."""
        self.folder = folder
        self._prefix = prefix
        self.manifest = manifest
        self.segments = segments
        self.live = live
        self._number = manifest.number

    def new_name(self, suffix: str) -> str:
        """A file name that no manifest of this folder has ever had."""
        self._number += 1
        return f"{self._prefix}{self._number:08d}{suffix}"

    def publish(self, segments: list[S], live: Mask, **changes: Any) -> None:
        """Show these segments, which are on disk, and no others to readers. `changes` are fields of the manifest."""
        before = self.manifest
        deleted = ""
        if not live.all():
            deleted = self.new_name(".deleted")
            bits_write(self.folder / deleted, ~live)
        self._number = max(self._number, before.number + 1)
        self.manifest = replace(
            before,
            number=self._number,
            size=len(live),
            segments=tuple(segment.name for segment in segments),
            deleted=deleted,
            **changes,
        )
        write_manifest(self.folder, self.manifest)
        self.segments, self.live = segments, live
        # Readers may be about to open files of the previous manifest.
        remove_unreferenced(self.folder, [self.manifest, before])

    @property
    def is_wasteful(self) -> bool:
        size = self.manifest.size
        return size > _MIN_ROWS and size - int(np.count_nonzero(self.live)) > self.MAX_DELETED_SHARE * size


class SnapshotReader(Generic[T]):
    """The newest snapshot that this process could open of files that a writer replaces.

    `stamp` returns a value that changes whenever there is something new to read. `open_newer` is called with the last
    snapshot, and may return it if the newest is not complete yet.
    """

    def __init__(self, stamp: Callable[[], object], open_newer: Callable[[T | None], T]) -> None:
        self._stamp = stamp
        self._open_newer = open_newer
        self._lock = threading.Lock()
        # One tuple, so that a thread never sees one of them without the other.
        self._known: tuple[T | None, object] = (None, None)

    def read(self) -> T:
        """Return the newest complete snapshot. Raise NotReadableError or DamagedError."""
        known, stamp = self._known
        if known is not None and stamp == self._stamp():
            return known
        with self._lock:
            known, stamp = self._known
            if known is not None and stamp == self._stamp():
                return known
            for _ in range(_TRIES):
                stamp = self._stamp()
                try:
                    found = self._open_newer(known)
                except (NotReadableError, DamagedError):
                    # Files that vanished while they were opened were replaced by newer ones.
                    if stamp == self._stamp():
                        raise
                    continue
                if found is not known:
                    self._known = (found, stamp)
                return found
            raise NotReadableError("it changes faster than it can be read")

    def is_newest(self, snapshot: T) -> bool:
        known, stamp = self._known
        return known is snapshot and stamp == self._stamp()

    def settle_for(self, snapshot: T, stamp: object) -> None:
        """Return this snapshot until there is something newer than `stamp` to read."""
        with self._lock:
            self._known = (snapshot, stamp)

    def clear(self) -> None:
        with self._lock:
            self._known = (None, None)
