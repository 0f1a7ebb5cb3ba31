"""Tables as CSV or TSV: a memory for each row. The columns are matched by their names, and the report shows how."""

import csv
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

from memories.importers.base import (
    Importer,
    ImportFailedError,
    NotReadableError,
    Options,
    Reading,
    Records,
    RefusedRecord,
    SourceRecord,
    damage_text,
)
from memories.importers.drafts import Draft, listed
from memories.importers.sources import Document, Source, encoding_of

_DELIMITERS = ",;\t|"
_MAX_CELL = 20 * 1024 * 1024
# Field -> names of columns, the best first.
_NAMES: dict[str, tuple[str, ...]] = {
    "content": (
        "content",
        "text",
        "body",
        "memory",
        "note",
        "notes",
        "observation",
        "message",
        "description",
        "highlight",
    ),
    "id": ("id", "external_id", "uuid", "key", "identifier"),
    "title": ("title", "name", "subject", "heading", "summary"),
    "summary": ("summary", "abstract", "description"),
    "type": ("type", "memory_type", "kind"),
    "project": ("project", "namespace", "workspace", "notebook", "app_id"),
    "tags": ("tags", "tag", "labels", "keywords"),
    "categories": ("categories", "category", "folder"),
    "concepts": ("concepts", "concept", "topics"),
    "authors": ("authors", "author", "user_id", "user", "created_by"),
    "agent": ("agent", "agent_id"),
    "session": ("session", "session_id", "run_id", "conversation_id"),
    "source_url": ("source_url", "url", "link", "uri"),
    "created_at": ("created_at", "created", "date", "timestamp", "time", "created_date", "createdat"),
    "updated_at": ("updated_at", "updated", "modified", "last_modified", "updatedat"),
    "importance": ("importance",),
    "confidence": ("confidence",),
}
_LISTS = {"tags", "categories", "concepts", "authors"}


def knows(source: Source) -> bool:
    return any(_layout(document) is not None for document in _tables(source))


def _tables(source: Source) -> list[Document]:
    return [] if source.is_archive or source.path.is_dir() else list(source.documents)


def _layout(document: Document) -> tuple[str, dict[str, int], list[str]] | None:
    """The delimiter, the columns of fields, and the names of all columns. None if it is no table of memories."""
    first = document.start.lstrip("\r\n").split("\n", 1)[0].strip("\r")
    if "\0" in first or first[:1] in "{[<" or len(first) > 10_000:
        return None
    delimiter = max(_DELIMITERS, key=first.count)
    if delimiter not in first:
        return None
    try:
        names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    except (csv.Error, StopIteration):
        return None
    columns: dict[str, int] = {}
    known = {name.lower().replace(" ", "_").replace("-", "_"): at for at, name in reversed(list(enumerate(names)))}
    for field, spellings in _NAMES.items():
        free = [known[name] for name in spellings if name in known and known[name] not in columns.values()]
        if free:
            columns[field] = free[0]
    return (delimiter, columns, names) if "content" in columns else None


def read(path: Path, options: Options) -> Reading:
    tables = [(document, layout) for document in _tables(Source(path)) if (layout := _layout(document))]
    if not tables:
        raise NotReadableError(
            f"{path}: is no table of memories: its first line must name the columns, one of them the text "
            f"({', '.join(_NAMES['content'])})."
        )
    (document, (delimiter, columns, names)) = tables[0]
    done = 0

    def records() -> Records:
        nonlocal done
        csv.field_size_limit(_MAX_CELL)
        last = 1
        try:
            with document.opened() as file:
                text = io.TextIOWrapper(file, encoding=encoding_of(document_start(document)), newline="")
                rows = csv.reader(text, delimiter=delimiter)
                next(row for row in rows if row)
                notes = _mapping(columns, names)
                for cells in rows:
                    last = rows.line_num
                    done = last
                    if any(cell.strip() for cell in cells):
                        yield from _row(f"line {last}", cells, columns, names, notes)
                        notes = []
        except UnicodeDecodeError as error:
            raise ImportFailedError(
                f"{path}: is not UTF-8 (byte 0x{error.object[error.start]:02x} after line {last}). Nothing was "
                "imported. Save it as UTF-8."
            ) from None
        except (csv.Error, OSError, EOFError, zlib.error) as error:
            if not options.keep_going:
                raise ImportFailedError(damage_text(f"The table is damaged ({error})", f"after line {last}")) from None
            yield RefusedRecord(f"after line {last}", f"is damaged ({error}); everything after it is lost")

    return Reading(records())


def document_start(document: Document) -> bytes:
    with document.opened() as file:
        return file.read(4)


def _mapping(columns: dict[str, int], names: list[str]) -> list[str]:
    """How the columns were understood, for the report."""
    read_as = {at: field for field, at in columns.items()}
    return [
        f"column {name!r} is read as {read_as[at]}" if at in read_as else f"column {name!r} is stored as it is, in raw"
        for at, name in enumerate(names)
    ]


def _row(
    location: str, cells: list[str], columns: dict[str, int], names: list[str], notes: list[str]
) -> Iterator[SourceRecord | RefusedRecord]:
    if len(cells) > len(names):
        yield RefusedRecord(location, f"has {len(cells)} cells, and the table {len(names)} columns")
        return
    raw = {name or f"column {at + 1}": cell for at, (name, cell) in enumerate(zip(names, cells, strict=False)) if cell}
    draft = Draft(location, raw, "csv")
    for field, at in columns.items():
        cell = cells[at].strip() if at < len(cells) else ""
        if not cell:
            continue
        if field in _LISTS:
            separator = next((one for one in ";|," if one in cell), ",")
            values = listed(cell) if cell.startswith("[") else cell.split(separator)
            draft.names(field, values)
        elif field in ("created_at", "updated_at"):
            draft.moment(field, cell)
        elif field in ("importance", "confidence"):
            draft.fraction(field, cell)
        else:
            draft.text(field, cell)
    draft.notes[:0] = notes
    yield draft.record()


IMPORTER = Importer("csv", "a table (CSV, TSV) whose first line names the columns, one of them the text", knows, read)
