"""Several files imported as one: a ZIP archive, or a folder of files that were uploaded together.

Each file is read in its own format. Documents are read together, since they name each other. Another file of an archive
is unpacked when its turn comes and removed afterwards, so that one at a time needs space.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import IO

from text.formatting import plural
from transfer.formats import csv_table, documents, notion
from transfer.formats.base import Column, ImportFailedError, NotReadableError, Options, Reading, Records
from transfer.formats.importer import Importer, Part
from transfer.formats.sources import Document, Source, unzipped
from transfer.formats.trees import UNREADABLE, archive_opened
from transfer.formats.unknown import what_it_is

# Files that an archive must have one of: others are documents of other programs, which are archives inside.
_SUFFIXES = (
    *documents.SUFFIXES,
    *(".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".gz", ".zip", ".af"),
    *(".db", ".sqlite", ".sqlite3"),
)
# Files and folders that systems add by themselves.
_SKIPPED = {"__MACOSX", "Thumbs.db", "desktop.ini", "node_modules"}
# The folder by which a vault of Obsidian is known; nothing in it is read.
_VAULT = ".obsidian"
_MAX_MEMBERS = 100_000
# Tables whose columns are shown and may be chosen.
_MAX_TABLES = 300
# An archive that unpacks to more than this, and to more than this many times its size, is not read.
_MAX_UNPACKED, _MAX_RATIO = 512 * 1024 * 1024, 200
# A preview unpacks no more documents than this, of this size together, and no other file that is larger than this.
_PREVIEW_NOTES, _PREVIEW_SIZE, _PREVIEW_FILE = 1_000, 64 * 1024 * 1024, 512 * 1024 * 1024
# Space that must be left on the disk.
_SPARE = 256 * 1024 * 1024
_ROOT = "files"
# The longest name of a file or folder on a disk, in bytes.
_NAME_LENGTH = 255


# The importer of a file. Raises NotReadableError.
Choose = Callable[[Path], Importer]


def bundle_importer(importers: Sequence[Importer], inner: Importer | None = None) -> Importer:
    """The importer of archives and folders whose files have these formats; `inner` reads the archives in Notion's."""

    def chosen(path: Path, *, archives: Importer | None) -> Importer:
        source = Source(path)
        for importer in importers:
            if importer.knows(source):
                return importer
        if archives and _knows(source):
            return archives
        what = what_it_is(source)
        raise NotReadableError(f"is {what}" if what else "is nothing that can be imported")

    def in_archive(file: Path) -> Importer:
        return chosen(file, archives=inner if notion.is_block(file.name) else None)

    def read(path: Path, options: Options) -> Reading:
        done, total = 0, 0

        def records() -> Records:
            nonlocal done, total
            total = _count(path)
            for part in parts(path, options):
                yield from part.records(options)
                done += 1

        return Reading(records(), lambda: min(1.0, done / total) if total else None)

    def parts(path: Path, options: Options) -> Generator[Part, None, None]:
        if path.is_dir():
            yield from _folder_parts(path, lambda file: chosen(file, archives=own))
        else:
            yield from _archive_parts(
                path, options, lambda file: chosen(file, archives=inner if notion.is_block(file.name) else None)
            )

    about = "a ZIP archive of files in these formats"
    own = Importer("files", about, _knows, read, _columns, parts, _places)
    return own


def _knows(source: Source) -> bool:
    if not source.is_archive:
        return False
    with archive_opened(source.path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
        return any(name.lower().endswith(_SUFFIXES) for name in _visible(names))


def _is_skipped(name: str) -> bool:
    """Whether a file is hidden, or made by the system."""
    return any(step in _SKIPPED or step.startswith(".") for step in PurePosixPath(name).parts)


def _names(path: Path) -> list[str]:
    """The files of a bundle by their paths in it, in order."""
    if path.is_dir():
        names = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
    else:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/")]
    return _visible(names)


def _visible(names: Collection[str]) -> list[str]:
    """The files that are read. Those of a hidden folder are if it is what was chosen, as `.claude`."""
    top = _shared_top(names)
    hidden = f"{top}/" if top.startswith(".") else ""
    return sorted(name for name in names if not _is_skipped(name.removeprefix(hidden)))


def _places(path: Path) -> list[str]:
    """The places of the documents of a bundle, below the folder that they share."""
    names = [name for name in _names(path) if _is_note(name)]
    top = _shared_top(names)
    return [name.removeprefix(f"{top}/") for name in names] if len(names) > 1 else []


def _shared_top(names: Iterable[str]) -> str:
    tops = {PurePosixPath(name).parts[0] if "/" in name else "" for name in names}
    return tops.pop() if len(tops) == 1 else ""


def _count(path: Path) -> int:
    """The number of parts."""
    names = _names(path)
    notes = sum(_is_note(name) for name in names)
    return len(names) - notes + bool(notes)


def _is_note(name: str) -> bool:
    return name.lower().endswith(documents.SUFFIXES)


@dataclass(frozen=True)
class _Member(Document):
    """A file of an archive that is open: to open that for each file would read the list of all files each time."""

    archive: zipfile.ZipFile = field(kw_only=True)

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        with self.archive.open(self.name) as file:
            yield unzipped(file)


def _columns(path: Path, options: Options) -> Sequence[Column]:
    """The columns of the first tables of a bundle, each name once."""
    every = _names(path)
    tables = (name for name in every if name.lower().removesuffix(".gz").endswith((".csv", ".tsv")))
    names = [name for name in tables if not notion.is_database(name, every)][:_MAX_TABLES]
    found: dict[str, Column] = {}
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(zipfile.ZipFile(path)) if names and not path.is_dir() else None
        for name in names:
            table = _Member(name, path, name, archive=archive) if archive else Document(name, path / name)
            for column in csv_table.table_columns(table, options):
                found.setdefault(column.name, column)
    return list(found.values())


def _folder_parts(folder: Path, choose: Choose) -> Generator[Part, None, None]:
    names = _names(folder)
    if notes := [name for name in names if _is_note(name)]:
        yield _notes_part(folder, notes)
    for name in names:
        if not _is_note(name):
            yield _part(name, folder / name, choose, names)


def _notes_part(folder: Path, names: Iterable[str]) -> Part:
    """The documents in a folder. If they share their topmost folder, that is what is imported."""
    top = _shared_top(names)
    return Part("documents", folder / top, documents.IMPORTER, is_nameless=not top, suffixes=documents.SUFFIXES)


def _part(name: str, path: Path, choose: Choose, names: Collection[str]) -> Part:
    if notion.is_database(name, names):
        return notion.database_part(name, path, names)
    try:
        return Part(name, path, choose(path))
    except NotReadableError as error:
        return Part(name, path, reason=str(error).replace(str(path), name))
    except OSError as error:
        return Part(name, path, reason=f"cannot be read: {error.strerror}")


def _archive_parts(path: Path, options: Options, choose: Choose) -> Generator[Part, None, None]:
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(archive_opened(path))
        members = [member for member in archive.infolist() if not member.is_dir()]
        _refuse_bomb(path, members)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="import-"))) / _ROOT
        folder.mkdir()
        _vault_make(folder, members)
        wanted: dict[str, zipfile.ZipInfo] = {}
        for member in members:
            if reason := _unsafe(member, wanted):
                yield Part(_shown(member), path, reason=reason)
            else:
                wanted[member.filename] = member
        wanted = {name: wanted[name] for name in _visible(wanted)}
        notes, further = [name for name in sorted(wanted) if _is_note(name)], 0
        if options.is_preview:
            first = _first(notes, wanted)
            further, notes = len(notes) - len(first), first
        unpacked: list[str] = []
        for name in notes:
            if reason := _unpack(archive, wanted[name], folder / name):
                yield Part(name, path, reason=reason)
            else:
                unpacked.append(name)
        if unpacked:
            beside = _sessions_beside(unpacked, wanted)
            shown = [folder / name for name in beside if not _unpack(archive, wanted[name], folder / name)]
            yield _notes_part(folder, unpacked)
            for file in shown:
                file.unlink(missing_ok=True)
        if further:
            reason = "are not previewed; the import reads them"
            yield Part(plural(further, "further document"), path, reason=reason, is_for_later=True)
        for name, member in sorted(wanted.items()):
            if _is_note(name):
                continue
            if options.is_preview and member.file_size > _PREVIEW_FILE:
                yield Part(name, path, reason="is too large for a preview; the import reads it", is_for_later=True)
                continue
            if reason := _unpack(archive, member, folder / name):
                yield Part(name, path, reason=reason)
                continue
            yield _part(name, folder / name, choose, wanted)
            (folder / name).unlink(missing_ok=True)


def _sessions_beside(notes: Iterable[str], names: Iterable[str]) -> list[str]:
    """A session beside each folder of an agent's memory, which tells what that is about."""
    folders = {PurePosixPath(name).parent.parent for name in notes if PurePosixPath(name).parent.name == "memory"}
    sessions = {PurePosixPath(name).parent: name for name in names if name.endswith(".jsonl")}
    return [sessions[folder] for folder in folders if folder in sessions]


def _first(names: list[str], members: Mapping[str, zipfile.ZipInfo]) -> list[str]:
    """The first documents of an archive, as many as a preview unpacks."""
    sizes = accumulate(members[name].file_size for name in names[:_PREVIEW_NOTES])
    return [name for name, size in zip(names, sizes, strict=False) if size <= _PREVIEW_SIZE]


def _shown(member: zipfile.ZipInfo) -> str:
    return member.filename[:200].encode(errors="replace").decode()


def _refuse_bomb(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    if len(members) > _MAX_MEMBERS:
        raise NotReadableError(
            f"{path}: has {len(members):,} files; an archive of more than {_MAX_MEMBERS:,} is not read. Split it."
        )
    unpacked, size = sum(member.file_size for member in members), path.stat().st_size
    if unpacked > _MAX_UNPACKED and unpacked > _MAX_RATIO * size:
        raise NotReadableError(
            f"{path}: would unpack from {size:,} to {unpacked:,} bytes; an archive that expands that much is not read."
        )


def _unsafe(member: zipfile.ZipInfo, known: dict[str, zipfile.ZipInfo]) -> str:
    """Why a file of an archive is not unpacked; empty if it is."""
    name = member.filename
    steps = name.split("/")
    is_long = len(name) > 1_000 or len(steps) > 50 or any(len(os.fsencode(step)) > _NAME_LENGTH for step in steps)
    if ".." in steps or "" in steps or "." in steps or "\\" in name or is_long:
        return "has a name that leads out of the archive, or is too long"
    if name in known:
        return "is in the archive twice; the first one is read"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "is a link to another file; links are not followed"
    return "is encrypted; unpack the archive, and import its files" if member.flag_bits & 1 else ""


def _vault_make(folder: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Make the empty folder by which the notes of an archive are known as a vault, if they are one."""
    for member in members:
        steps = PurePosixPath(member.filename).parts
        if _VAULT in steps[:2] and not _unsafe(member, {}):
            Path(folder, *steps[: steps.index(_VAULT) + 1]).mkdir(parents=True, exist_ok=True)
            return


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> str:
    """Unpack a file. Returns the reason if it is damaged. Raises ImportFailedError if there is no space for it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if member.file_size > shutil.disk_usage(target.parent).free - _SPARE:
            raise ImportFailedError(
                f"There is not enough space to unpack {_shown(member)} ({member.file_size:,} bytes). Nothing was "
                "imported. Unpack the archive yourself, and import its files."
            )
        with archive.open(member) as packed, target.open("xb") as file:
            shutil.copyfileobj(packed, file, 1024 * 1024)
    except (*UNREADABLE, ValueError) as error:
        # A folder may stand in its way, or a file in place of its folder.
        with contextlib.suppress(OSError):
            target.unlink(missing_ok=True)
        return f"is damaged or cannot be unpacked ({error.__class__.__name__})"
    # A note without a date has that of its file. An archive names no zone, and some programs write no date: month 0.
    with contextlib.suppress(OSError, OverflowError, ValueError):
        moment = datetime(*member.date_time, tzinfo=UTC).timestamp()
        os.utime(target, (moment, moment))
    return ""
