"""The interface of importers: what they know, read, show of tables, and follow. Does not use the database."""

import contextlib
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transfer.formats.base import (
    Column,
    ColumnsError,
    ImportFailedError,
    Options,
    Reading,
    Records,
    RefusedRecord,
    SourceRecord,
)
from transfer.formats.sources import Source


@dataclass(frozen=True, slots=True)
class Following:
    """How a source of a format is followed: by cheap questions, so that it is read only when it has changed.

    `stamp` gives a text that differs once anything in the source may have changed. `parts` gives the locations of all
    records without reading them, each with a text that differs once the record does; with an empty text, what is there
    stays and is not read. Formats without it are read as a whole. `read_parts` reads the records of some locations.
    `folders` gives the folders of which a source that is a folder consists: nothing changes in it unless a file in one
    of them does, so that the operating system can report it.
    """

    stamp: Callable[[Path], str]
    parts: Callable[[Path], Iterable[tuple[str, str]]] | None = None
    read_parts: Callable[[Path, Options, Collection[str]], Reading] | None = None
    folders: Callable[[Path], Iterable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Importer:
    """A format: its name, a description, a test whether a source has it, and a reader.

    `columns` gives the columns of a format that has some, `parts` the files of one that reads several formats.

    The test raises NotReadableError, naming the file for what it is, if the source has the format in a version that
    cannot be read.
    """

    name: str
    looks_like: str
    knows: Callable[[Source], bool]
    read: Callable[[Path, Options], Reading]
    columns: Callable[[Path, Options], Sequence[Column]] = lambda path, options: ()
    parts: Callable[[Path, Options], Generator["Part", None, None]] | None = None
    places: Callable[[Path], Collection[str]] = lambda path: ()
    """The places of all notes of a path, for formats whose notes may be renamed."""
    follow: Following | None = None
    """None for formats that are not followed: files that somebody exported once."""
    previews_in_part: Callable[[Path], bool] = lambda path: False
    """Whether a preview may read fewer records of a path than the import, and slowly."""


@dataclass(frozen=True, slots=True)
class Part:
    """A file of a source that has several, while its turn is. `reason` says why it is not read."""

    name: str
    path: Path
    importer: Importer | None = None
    reason: str = ""
    is_for_later: bool = False
    """Whether only a preview does not read it."""
    is_nameless: bool = False
    """Whether its folder has no name that could be the name of a project."""
    suffixes: tuple[str, ...] = ("",)
    """How the files end that it reads of its folder; the others are parts of their own."""

    def records(self, options: Options) -> Records:
        """Its records, with the file in their locations. A table whose text is not known is refused as a whole.

        Raises ImportFailedError, naming the file.
        """
        if self.importer is None:
            yield RefusedRecord(self.name, self.reason)
            return
        is_folder = self.path.is_dir()
        try:
            with contextlib.closing(self.importer.read(self.path, options).records) as records:
                for record in records:
                    if isinstance(record, RefusedRecord) and not record.location.lower().endswith(self.suffixes):
                        continue
                    location = record.location if is_folder else f"{self.name} {record.location}"
                    if isinstance(record, SourceRecord):
                        record = replace(record, data=self._data(record, options))
                    if record.file and self.is_nameless:
                        record = replace(record, file=replace(record.file, vault=""))
                    yield replace(record, location=location)
        except ColumnsError as error:
            yield RefusedRecord(self.name, str(error).replace(f"{self.path}: ", ""))
        except ImportFailedError as error:
            raise type(error)(str(error).replace(str(self.path), self.name)) from None

    def _data(self, record: SourceRecord, options: Options) -> dict[str, Any]:
        if self.is_nameless and not options.project and record.data.get("project") == self.path.name:
            return {name: value for name, value in record.data.items() if name != "project"}
        return record.data
