"""The folder of all data, private to the user who runs Mnemoscope: folders 0700, files 0600.

As root, Postgres runs as another account, which must pass through the folders above its data: those are 0711.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

# Entries that Mnemoscope creates directly in the folder. Anything else in there is left alone.
OWN = (
    "address*",
    "backup-failed",
    "backups",
    "bench",  # of earlier versions, as is the next
    "evaluation",
    "index",
    "installing-embeddings",
    "lab",
    "metrics",
    "postgres.*",
    "queries.lock",
    "queries.sock",
    "secret_key*",
    "secrets*",
    "static",
    "static-bundles",
    "test",
    "verify-*",
)
# Postgres guards its own files.
POSTGRES = "postgres"


def private_home(path: Path) -> Path:
    """Make everything that this process creates private, and what an earlier version left open to others."""
    if os.name == "posix":
        os.umask(0o077)
        with contextlib.suppress(OSError):  # a read-only folder is reported by whatever has to write to it
            _mend(path)
    return path


def create_home(path: Path) -> None:
    """Create the folder, and those above it that are missing. Raise OSError."""
    for folder in reversed([path, *path.parents]):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(folder_mode())


def _mend(home: Path) -> None:
    if not home.is_dir():
        return
    own = {found for pattern in OWN for found in home.glob(pattern)}
    strangers = {found for found in home.iterdir() if found.name != POSTGRES} - own
    # A folder that is shared with something else, such as /tmp, keeps its mode; what is in it of ours does not.
    for found in own if strangers else {home, *own}:
        if _close(found) and found.is_dir() and found != home:
            for inner in _below(found):
                _close(inner)


def _below(folder: Path) -> Iterator[Path]:
    for path, folders, files in os.walk(folder):
        with contextlib.suppress(ValueError):
            folders.remove(POSTGRES)
        yield from (Path(path, name) for name in (*folders, *files))


def _close(path: Path) -> bool:
    """Take the rights of others away. Return whether they had any."""
    with contextlib.suppress(FileNotFoundError):
        found = path.lstat()
        allowed = folder_mode() if stat.S_ISDIR(found.st_mode) else 0o700
        mode = stat.S_IMODE(found.st_mode)
        if found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode) and mode & 0o077 & ~allowed:
            path.chmod(mode & (allowed | 0o7000))
            return True
    return False


def folder_mode() -> int:
    """The mode of a folder that Postgres has to pass through."""
    return 0o711 if os.geteuid() == 0 else 0o700
