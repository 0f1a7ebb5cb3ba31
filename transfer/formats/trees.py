"""The files of a folder, at any depth, or of a ZIP archive. Does not use the database."""

import os
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, cast

from transfer.formats.base import ImportFailedError, NotReadableError, UnreadableFileError

# The file in which an export describes itself.
EXPORT_REPORT = "mnemoscope-export.txt"
_SKIPPED = frozenset({"node_modules", "__MACOSX", EXPORT_REPORT})
# Errors of damaged, encrypted and strangely packed files; what is not implemented is a RuntimeError.
UNREADABLE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class TreeFile:
    """A file of a tree. `name` is its path below the root, with slashes, and never leads out of it."""

    name: str
    size: int
    modified: datetime
    where: Path | zipfile.ZipInfo

    @property
    def suffix(self) -> str:
        return posixpath.splitext(self.name)[1].lower()


@dataclass(frozen=True, slots=True)
class FileTree:
    """The files below a folder, a single file, or the members of an archive. Hidden ones are no part of it."""

    root: Path
    archive: zipfile.ZipFile | None = None

    def files(self) -> Iterator[TreeFile]:
        """All files, ordered by folder and name."""
        if self.archive:
            yield from sorted(self._members(self.archive), key=lambda file: posixpath.split(file.name))
        elif self.root.is_dir():
            yield from self._below()
        else:
            yield self._file(self.root, self.root.name)

    def _below(self) -> Iterator[TreeFile]:
        def failed(error: OSError) -> None:
            raise ImportFailedError(f"{error.filename}: cannot be read: {error.strerror}.")

        for folder, folders, names in os.walk(self.root, onerror=failed):
            folders[:] = sorted(name for name in folders if not is_skipped(name))
            for name in sorted(names):
                if not is_skipped(name):
                    path = Path(folder, name)
                    yield self._file(path, path.relative_to(self.root).as_posix())

    @staticmethod
    def _file(path: Path, name: str) -> TreeFile:
        try:
            state = path.stat()
            size, modified = state.st_size, datetime.fromtimestamp(state.st_mtime, UTC)
        except (OSError, ValueError, OverflowError):
            # Reading it gives the reason.
            size, modified = 0, datetime.now(UTC)
        return TreeFile(storable_name(name), size, modified, path)

    @staticmethod
    def _members(archive: zipfile.ZipFile) -> Iterator[TreeFile]:
        for info in archive.infolist():
            name = posixpath.normpath("/" + info.filename.replace("\\", "/")).lstrip("/")
            if info.is_dir() or not name or any(is_skipped(part) for part in name.split("/")):
                continue
            try:
                modified = datetime(*info.date_time, tzinfo=UTC)
            except ValueError:
                modified = datetime(1980, 1, 1, tzinfo=UTC)
            yield TreeFile(storable_name(name), info.file_size, modified, info)

    @contextmanager
    def opened(self, file: TreeFile) -> Iterator[IO[bytes]]:
        """The bytes of a file. Raises UnreadableFileError, also while they are read."""
        try:
            if isinstance(file.where, zipfile.ZipInfo):
                with cast(zipfile.ZipFile, self.archive).open(file.where) as member:
                    yield member
                return
            if not file.where.is_file():
                raise UnreadableFileError("is a link to nothing, or no plain file")
            if file.where.is_symlink() and not file.where.resolve().is_relative_to(self.folder.resolve()):
                raise UnreadableFileError("is a link to a file outside the folder")
            with file.where.open("rb") as plain:
                yield plain
        except OSError as error:
            raise UnreadableFileError(f"cannot be read: {error.strerror or error}") from None
        except UNREADABLE as error:
            raise UnreadableFileError(f"is damaged, encrypted or cannot be unpacked ({error})") from None

    @property
    def folder(self) -> Path:
        return self.root if self.root.is_dir() else self.root.parent

    def start(self, file: TreeFile, length: int) -> bytes:
        """The first bytes; empty if they cannot be read."""
        try:
            with self.opened(file) as opened:
                return opened.read(length)
        except UnreadableFileError:
            return b""

    def read(self, file: TreeFile, limit: int) -> bytes:
        """All bytes, up to a limit, whatever the file says about its size."""
        with self.opened(file) as opened:
            data = opened.read(limit + 1)
        if len(data) > limit:
            raise UnreadableFileError(f"has {max(file.size, limit + 1):,} bytes; up to {limit:,} are read")
        return data

    def path_of(self, file: TreeFile, limit: int) -> Path:
        """The path of a file of a folder, which may be opened and is not too large."""
        with self.opened(file):
            pass
        if file.size > limit:
            raise UnreadableFileError(f"has {file.size:,} bytes; up to {limit:,} are read")
        return cast(Path, file.where)


def is_skipped(name: str) -> bool:
    return name.startswith(".") or name in _SKIPPED


def storable_name(name: str) -> str:
    """A name with question marks for what is no text."""
    return name.encode(errors="replace").decode()


@contextmanager
def opened_tree(path: Path) -> Iterator[FileTree]:
    """The files of a path. Raises NotReadableError for a damaged archive."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        yield FileTree(path)
        return
    with archive_opened(path) as archive:
        yield FileTree(path, archive)


def archive_opened(path: Path) -> zipfile.ZipFile:
    """Open a ZIP archive. Raises NotReadableError for a damaged one."""
    try:
        return zipfile.ZipFile(path)
    except (*UNREADABLE, ValueError) as error:
        raise NotReadableError(f"{path}: is a damaged ZIP archive ({error}). Get an undamaged copy.") from None
