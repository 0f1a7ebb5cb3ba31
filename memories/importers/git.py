"""Placeholder"""

from pathlib import Path

from memories.importers.base import Importer, ImportFailed, Options, Reading


def knows(path: Path) -> bool:
    return False


def read(path: Path, options: Options) -> Reading:
    raise ImportFailed("not yet")


IMPORTER = Importer("git", "", knows, read)
