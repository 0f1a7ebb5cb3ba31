"""Immutable segments in a folder: how the columns of the index and the replica of the vectors are stored.

    manifest             the files that belong together, and the revision of the database that they are true to
    <any name>.segment   rows, written once
    <any name>.deleted   a bit for each row that is deleted

Files are written completely, under new names, and flushed to disk before the manifest names them; the manifest is
replaced atomically. Readers map the files of one manifest, and keep them until they can open all files of a newer one.

A segment is a file of numpy arrays: a magic number, the length and the checksum of a header, the header as JSON, and
the arrays, each aligned to 64 bytes. The header has the type, length, offset and checksum of each array.
"""

import errno
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_MAGIC = b"MNEMOPRT"
_START = len(_MAGIC) + 16
_ALIGNED = 64


# Errors of this process or machine: no memory or file handles are left.
_OUT_OF_RESOURCES = {errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class DamagedError(Exception):
    """A file of the derived data does not hold what was written."""


def is_out_of_resources(error: DamagedError) -> bool:
    """Whether the file could not be opened because this process or machine is short of resources."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in _OUT_OF_RESOURCES


def arrays_write(path: Path, head: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write one-dimensional arrays and the header fields in `head`, and flush them to disk."""
    described: dict[str, list[Any]] = {}
    at = 0
    for name, array in arrays.items():
        described[name] = [str(array.dtype), len(array), at, _checksum(array)]
        at += -(-array.nbytes // _ALIGNED) * _ALIGNED
    text = json.dumps({**head, "arrays": described}, ensure_ascii=False).encode()
    begin = -(-(_START + len(text)) // _ALIGNED) * _ALIGNED
    with path.open("wb") as file:
        file.write(_MAGIC + len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.seek(-(-file.tell() // _ALIGNED) * _ALIGNED)
            file.write(np.ascontiguousarray(array).data)
        # The last array may be empty, and a seek alone does not lengthen a file.
        file.truncate(begin + at)
        file.flush()
        os.fsync(file.fileno())


def arrays_map(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the header of a file and its read-only arrays by name. Raise DamagedError if the file is incomplete."""
    try:
        # A plain array over the mapped file: indexing np.memmap objects is slower than a small look-up.
        data = np.asarray(np.memmap(path, np.uint8, "r"))
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path.name}: {error}") from error
    if len(data) < _START or bytes(data[: len(_MAGIC)]) != _MAGIC:
        raise DamagedError(f"{path.name}: is not a file of the index")
    length = int.from_bytes(bytes(data[8:16]), "little")
    text = bytes(data[_START : _START + length])
    if zlib.crc32(text) != int.from_bytes(bytes(data[16:24]), "little"):
        raise DamagedError(f"{path.name}: its head is damaged")
    head = json.loads(text)
    begin = -(-(_START + length) // _ALIGNED) * _ALIGNED
    arrays: dict[str, Array] = {}
    for name, (kind, count, at, _) in head["arrays"].items():
        size = count * np.dtype(kind).itemsize
        if begin + at + size > len(data):
            raise DamagedError(f"{path.name}: is cut off")
        arrays[name] = data[begin + at : begin + at + size].view(kind)
    return head, arrays


def arrays_verify(path: Path) -> None:
    """Read a whole file and compare its checksums. Raise DamagedError if any differs."""
    head, arrays = arrays_map(path)
    for name, (_, _, _, checksum) in head["arrays"].items():
        if _checksum(arrays[name]) != checksum:
            raise DamagedError(f"{path.name}: {name} is damaged")


def bits_write(path: Path, mask: Mask) -> None:
    """Write a mask as one bit per element, and flush it to disk."""
    with path.open("wb") as file:
        file.write(np.packbits(mask).tobytes())
        file.flush()
        os.fsync(file.fileno())


def bits_read(path: Path, size: int) -> Mask:
    """Return a mask of `size` elements. Raise DamagedError."""
    try:
        bits = np.fromfile(path, np.uint8)
    except OSError as error:
        raise DamagedError(f"{path.name}: {error}") from error
    if len(bits) != -(-size // 8):
        raise DamagedError(f"{path.name}: is cut off")
    mask: Mask = np.unpackbits(bits, count=size) == 1
    return mask


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).data)


def reached(name: str) -> None:
    """Do nothing. Tests replace this function; callers look it up in this module."""


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
    reached("manifest written")


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
