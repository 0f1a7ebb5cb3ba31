"""Replaces the files of notes: each whole or not at all, and only if it is still as it was last read."""

import contextlib
import ctypes
import os
import secrets
import stat
from pathlib import Path

from transfer.formats.note_files import digest_of

# As Linux has them: names are relative to the working folder, and both are exchanged.
_AT_HERE, _RENAME_EXCHANGE = -100, 2
_TEMPORARY, _END = ".mnemoscope-", ".tmp"


class NoteNotWritableError(Exception):
    """A file that is not written to. The message is the reason, and begins with the file."""


def replace_note(root: Path, relative: str, *, digest: str, data: bytes) -> bool:
    """Replace a file below a folder by one beside it, with its permissions, unless somebody else has changed it.

    Returns whether it was replaced. Raises NoteNotWritableError for links, files that lead out of the folder, and
    errors of the system.
    """
    path = root / relative
    try:
        before = path.lstat()
        if not stat.S_ISREG(before.st_mode):
            raise NoteNotWritableError(f"{path}: is a link or no plain file, and is not written to.")
        if not path.parent.resolve().is_relative_to(root.resolve()):
            raise NoteNotWritableError(f"{path}: leads out of the folder, and is not written to.")
        if digest_of(path.read_bytes()) != digest:
            return False
        for left in path.parent.glob(f"{_TEMPORARY}*{_END}"):
            # A process that was ended in between left it: one writes at a time.
            left.unlink(missing_ok=True)
        temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(8)}{_END}")
        is_ours = True
        try:
            _write_like(temporary, data, before)
            if not _is_same(before, path.lstat()):
                return False
            if not _exchange(temporary, path):
                temporary.replace(path)
            elif digest_of(temporary.read_bytes()) != digest:
                # Somebody wrote to it after the last look: theirs gets its name back.
                is_ours = False
                if not _exchange(temporary, path):
                    temporary.replace(path)
                is_ours = True
                return False
        finally:
            if is_ours:
                temporary.unlink(missing_ok=True)
        _store_folder(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise NoteNotWritableError(f"{path}: cannot be written: {error.strerror or error}.") from None
    return True


def _exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two files at once. False if the system cannot do that."""
    try:
        exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    except OSError:
        return False
    names = os.fsencode(one), os.fsencode(other)
    return exchange is not None and exchange(_AT_HERE, names[0], _AT_HERE, names[1], _RENAME_EXCHANGE) == 0


def _write_like(path: Path, data: bytes, like: os.stat_result) -> None:
    """A new file with the permissions of another one, stored on the disk."""
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(opened, "wb") as file:
        file.write(data)
        # Only an administrator may give a file to somebody else.
        with contextlib.suppress(PermissionError):
            os.fchown(file.fileno(), like.st_uid, like.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(like.st_mode))
        file.flush()
        os.fsync(file.fileno())


def _is_same(before: os.stat_result, now: os.stat_result) -> bool:
    known = ("st_ino", "st_dev", "st_size", "st_mtime_ns", "st_mode")
    return all(getattr(before, name) == getattr(now, name) for name in known)


def _store_folder(folder: Path) -> None:
    """Store a rename on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
