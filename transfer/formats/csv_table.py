"""Tables as CSV or TSV: a memory for each row. The columns are matched by their names, and the report shows how."""

import ast
import csv
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from memories.dates import DAY_FIRST, MONTH_FIRST, DateOrder, date_value, read_moment
from text.analysis import fold
from transfer.formats.base import (
    Column,
    ColumnsError,
    ImportFailedError,
    NotReadableError,
    Options,
    Reading,
    Records,
    RefusedRecord,
    SourceRecord,
    damage_text,
    read_guarded,
)
from transfer.formats.drafts import Draft, listed
from transfer.formats.importer import Importer
from transfer.formats.languages import FIELD_WORDS
from transfer.formats.sources import Document, Source, encoding_of
from transfer.formats.states import STATE_WORDS, read_status
from transfer.formats.trees import UNREADABLE
from web.validation import shown

_DELIMITERS = ",;\t|"
_MAX_CELL = 20 * 1024 * 1024
_SUFFIXES = (".csv", ".tsv")
_EXAMPLES, _EXAMPLE_LENGTH, _ROWS_FOR_EXAMPLES = 3, 80, 50
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
        "decision",
        "details",
        "comment",
    ),
    "id": ("id", "external_id", "uuid", "key", "identifier"),
    "title": ("title", "name", "subject", "heading", "summary", "task", "item"),
    "summary": ("summary", "abstract", "description"),
    "type": ("type", "memory_type", "kind"),
    "project": ("project", "namespace", "workspace", "notebook", "app_id"),
    "tags": ("tags", "tag", "labels", "keywords"),
    "categories": ("categories", "category", "folder"),
    "concepts": ("concepts", "concept", "topics"),
    "entities": ("entities", "entity"),
    "authors": ("authors", "author", "user_id", "user", "created_by", "owner", "decided_by", "who"),
    "agent": ("agent", "agent_id"),
    "session": ("session", "session_id", "run_id", "conversation_id"),
    "source_url": ("source_url", "url", "link", "uri"),
    "created_at": ("created_at", "created", "date", "timestamp", "time", "created_date", "createdat", "when"),
    "updated_at": ("updated_at", "updated", "modified", "last_modified", "updatedat"),
    "happened_at": ("happened_at", "happened", "event_date"),
    "valid_from": ("valid_from", "valid_since", "effective_from"),
    "valid_to": ("valid_to", "valid_until", "expires"),
    "state": ("state", "status"),
    "supersedes": ("supersedes", "replaces"),
    "superseded_by": ("superseded_by", "replaced_by"),
    "source": ("source",),
    "importance": ("importance",),
    "confidence": ("confidence",),
}
_NAMES |= {field: (*_NAMES[field], *words.split()) for field, words in FIELD_WORDS.items()}
# Fields that several columns may be.
LIST_FIELDS = {"tags", "categories", "concepts", "entities", "authors", "supersedes"}
_DATES = ("created_at", "updated_at", "happened_at", "valid_from", "valid_to")
FIELDS = tuple(_NAMES)
# A first line by which spreadsheets name the delimiter.
_SEPARATOR_LINE = re.compile(r"sep=(.)", re.IGNORECASE)
# Words of columns whose dates are not those of the memories: they are to come, long past, or none.
_OTHER_DATES = {"birthday", "birthdate", "born", "deadline", "due", "end", "ends", "expires", "expiry", "expiration"}
_OTHER_DATES |= {
    "fallig",
    "faellig",
    "echeance",
    "vencimiento",
    "scadenza",
    "next",
    "reminder",
    "review",
    "target",
    "until",
    "valid",
    "version",
    "release",
}
# The share of its cells that are dates, in the rows at the beginning of a table.
_MOSTLY = 0.8
# A preview looks at the dates of this many rows.
_DATED_ROWS_OF_PREVIEW = 20_000


@dataclass(frozen=True, slots=True)
class _Table:
    """A document that is a table: its delimiter, and the names of its columns."""

    document: Document
    delimiter: str
    names: tuple[str, ...]
    before: int = 0
    """The lines before the one that names the columns."""

    def rows(self, lines: Iterable[str]) -> tuple[Iterator[list[str]], Any]:
        """The rows below the names of the columns, and the reader that counts their lines."""
        reader = csv.reader(lines, delimiter=self.delimiter)
        rows = (row for row in reader)
        for _ in range(self.before + 1):
            next((row for row in rows if row), None)
        return rows, reader


def knows(source: Source) -> bool:
    """Whether a file names a column of texts in its first line, or is a table by its name."""
    return any(
        "content" in _guessed(table.names).values() or _is_named_table(table.document)
        for table in _tables(source.path, source)
    )


def _is_named_table(document: Document) -> bool:
    return (document.name or document.path.name).lower().removesuffix(".gz").endswith(_SUFFIXES)


def _tables(path: Path, source: Source | None = None) -> list[_Table]:
    source = source or Source(path)
    documents = [] if source.is_archive or path.is_dir() else source.documents
    return [table for document in documents if (table := _table(document))]


def _table(document: Document) -> _Table | None:
    """The table that a document is by its first line; None if that names no columns."""
    lines = document.start.lstrip("\r\n").split("\n", 2)
    separator = _SEPARATOR_LINE.fullmatch(lines[0].strip('\r" '))
    before = 1 if separator and len(lines) > 1 else 0
    first = lines[before].strip("\r")
    if not first.strip() or "\0" in first or first[:1] in "{[<" or len(first) > 10_000:
        return None
    delimiter = separator[1] if separator else max(_DELIMITERS, key=first.count)
    if delimiter not in first and not _is_named_table(document):
        return None
    try:
        names = [name.strip() for name in next(csv.reader([first], delimiter=delimiter))]
    except (csv.Error, StopIteration):
        return None
    return _Table(document, delimiter, tuple(name or f"column {at + 1}" for at, name in enumerate(names)), before)


def field_named(name: str) -> str:
    """The field that somebody means: by its own name, that of a filter or of the page, or one that columns have.

    Empty if there is none.
    """
    key = _name_key(name)
    if key in _NAMES:
        return key
    forms = (key, key.removesuffix("s"), f"{key}s")
    meant = [field for field, spellings in _NAMES.items() if any(form in (field, *spellings) for form in forms)]
    return next((field for field in meant if field != "content"), meant[0] if meant else "")


def _name_key(name: str) -> str:
    return "_".join(fold(name).replace("-", " ").replace("_", " ").split())


def _guessed(names: Sequence[str], taken: frozenset[str] = frozenset()) -> dict[int, str]:
    """The fields of columns by their names, for fields that are not taken."""
    fields: dict[int, str] = {}
    known = {_name_key(name): at for at, name in reversed(list(enumerate(names)))}
    for field, spellings in _NAMES.items():
        free = [known[name] for name in spellings if name in known and known[name] not in fields]
        if free and field not in taken:
            fields[free[0]] = field
    return fields


def _fields(names: Sequence[str], wanted: Mapping[str, str]) -> dict[int, str]:
    """The fields of columns: as somebody wants them, and guessed for the others. Raises ColumnsError."""
    chosen: dict[int, str] = {}
    by_field: dict[str, str] = {}
    for at, name in enumerate(names):
        if name not in wanted or name in names[:at]:
            continue
        field = field_named(wanted[name])
        if wanted[name] and not field:
            raise ColumnsError(
                f"column {name!r}: {wanted[name]!r} is not a field of a memory. Write one of {', '.join(FIELDS)}, or "
                "an empty text to store the column as it is."
            )
        if field and field not in LIST_FIELDS and field in by_field:
            raise ColumnsError(
                f"Columns {by_field[field]!r} and {name!r} are both read as {field}: choose one of them."
            )
        by_field[field] = name
        chosen[at] = field
    guessed = {
        at: field
        for at, field in _guessed(names, frozenset(by_field)).items()
        if at not in chosen and names[at] not in wanted
    }
    fields = {at: field for at, field in sorted((guessed | chosen).items()) if field}
    if "content" not in fields.values():
        # A list of titles: each is all that its row says.
        fields |= {at: "content" for at, field in guessed.items() if field == "title"}
    return fields


def _fields_of(table: _Table, options: Options) -> dict[int, str]:
    """The fields of the columns of a table. Where none is the date of a memory, the first one with dates is."""
    fields = _fields(table.names, options.columns)
    if "created_at" in fields.values():
        return fields
    free = [at for at, name in enumerate(table.names) if at not in fields and name not in options.columns]
    for at in free:
        if _OTHER_DATES.isdisjoint(_name_key(table.names[at]).split("_")) and _has_dates(table, at):
            return dict(sorted({**fields, at: "created_at"}.items()))
    return fields


def _has_dates(table: _Table, at: int) -> bool:
    """Whether nearly all cells of a column are dates that are no mere numbers, in the rows at the beginning."""
    rows, _ = table.rows(io.StringIO(table.document.start.lstrip("\r\n")))
    cells: list[str] = []
    with suppress(csv.Error):
        cells = [cell for row in islice(rows, _ROWS_FOR_EXAMPLES) for cell in row[at : at + 1] if cell.strip()]
    return len([cell for cell in cells if _is_dated(cell)]) > _MOSTLY * len(cells)


def _is_dated(cell: str) -> bool:
    text = cell.strip()
    if not any(one in text for one in "-/. ") or text.replace(".", "", 1).isdecimal():
        return False
    try:
        return read_moment(text, DAY_FIRST) is not None
    except ValueError:
        return False


def columns(path: Path, options: Options) -> Sequence[Column]:
    """The columns with some of their cells. Raises ColumnsError if they cannot be read as wanted."""
    return [column for table in _tables(path) for column in table_columns(table.document, options)]


def table_columns(document: Document, options: Options) -> Sequence[Column]:
    table = _table(document)
    if table is None:
        return ()
    fields = _fields_of(table, options)
    orders = _date_orders(table, fields, _DATED_ROWS_OF_PREVIEW)
    rows, _ = table.rows(io.StringIO(document.start.lstrip("\r\n")))
    examples: list[dict[str, None]] = [{} for _ in table.names]
    try:
        for row in islice(rows, _ROWS_FOR_EXAMPLES):
            for found, cell in zip(examples, row, strict=False):
                if (text := " ".join(cell.split())) and len(found) < _EXAMPLES:
                    found[text if len(text) <= _EXAMPLE_LENGTH else f"{text[: _EXAMPLE_LENGTH - 1]}…"] = None
    except csv.Error:
        pass  # the reader names the damage
    return [
        Column(
            name,
            fields.get(at, ""),
            tuple(examples[at]),
            _order_of(at, orders, options) if at in orders and (orders[at].order or orders[at].question) else "",
            orders[at].question if at in orders else "",
        )
        for at, name in enumerate(table.names)
    ]


def _date_orders(table: _Table, fields: Mapping[int, str], most: int | None = None) -> dict[int, DateOrder]:
    """The order of day and month in columns of dates, by all rows or the first ones, up to a damage."""
    orders = {at: DateOrder() for at, field in fields.items() if field in _DATES}
    if not orders:
        return {}
    csv.field_size_limit(_MAX_CELL)
    with suppress(*UNREADABLE, csv.Error), table.document.opened() as file:
        text = io.TextIOWrapper(file, encoding=encoding_of(document_start(table.document)), newline="")
        rows, _ = table.rows(text)
        for row in islice(rows, most):
            for at, order in orders.items():
                order.see(row[at : at + 1])
    return orders


def columns_check(known: Sequence[Column], wanted: Mapping[str, str], *, are_of_one_table: bool = False) -> None:
    """Raise ColumnsError if a wanted column is none of those that are known, or two of a table are one field."""
    names = dict.fromkeys(column.name for column in known)
    if not names:
        raise ColumnsError("This file has no columns to choose fields for: it is no table (CSV, TSV).")
    if strange := [name for name in wanted if name not in names]:
        listed_names = ", ".join(repr(name) for name in list(names)[:50])
        raise ColumnsError(f"There is no column {strange[0][:100]!r}. The columns are {listed_names}.")
    if are_of_one_table:
        _fields(list(names), wanted)


def read(path: Path, options: Options) -> Reading:
    tables = _tables(path)
    if not tables:
        raise NotReadableError(f"{path}: is no table of memories: its first line must name the columns.")
    table = tables[0]
    document, names = table.document, list(table.names)
    fields = _fields_of(table, options)
    if "content" not in fields.values():
        listed_names = ", ".join(repr(name) for name in names[:50])
        raise ColumnsError(
            f"{path}: none of its columns is known as the text of a memory ({', '.join(_NAMES['content'])}). Choose "
            f"one of {listed_names} as content: on the page of the import, by the API, or with --column NAME=content."
        )
    orders = _date_orders(table, fields, _DATED_ROWS_OF_PREVIEW if options.is_preview else None)
    for at, order in orders.items():
        if order.question and not options.dates:
            raise ColumnsError(
                f"{path}: column {names[at]!r} has dates such as {order.question}, which may have the day or the month "
                f"first. Choose one: on the page of the import, by the API (dates), or with --dates {DAY_FIRST} or "
                f"--dates {MONTH_FIRST}."
            )
    reads = {at: _CellReader(names[at], field, _order_of(at, orders, options)) for at, field in fields.items()}

    def records() -> Records:
        csv.field_size_limit(_MAX_CELL)
        last = 1
        try:
            with document.opened() as file:
                text = io.TextIOWrapper(file, encoding=encoding_of(document_start(document)), newline="")
                rows, reader = table.rows(text)
                # A preview lists the columns itself.
                notes = [] if options.is_preview else _mapping(reads, names)
                for cells in rows:
                    last = reader.line_num
                    if any(cell.strip() for cell in cells):
                        for record in read_guarded(
                            f"line {last}", partial(_row, f"line {last}", cells, reads, names, notes)
                        ):
                            yield record
                            # They go with the first row that is taken: one without a text is refused later.
                            is_taken = isinstance(record, SourceRecord) and record.data.get("content")
                            notes = [] if is_taken else notes
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


def _order_of(at: int, orders: Mapping[int, DateOrder], options: Options) -> str:
    return (options.dates or orders[at].order) if at in orders else ""


@dataclass(frozen=True, slots=True)
class _CellReader:
    """A column that is read as a field, and what comes first in its dates."""

    column: str
    field: str
    dates: str

    def add(self, draft: Draft, cell: str) -> None:
        """Set the field of a memory by a cell."""
        if self.field in LIST_FIELDS:
            separator = next((one for one in ";|," if one in cell), ",")
            values = listed(cell) if cell.startswith("[") else cell.split(separator)
            draft.names(self.field, values)
        elif self.field in _DATES:
            self._add_date(draft, cell)
        elif self.field == "state":
            self._add_state(draft, cell)
        elif self.field in ("importance", "confidence"):
            draft.fraction(self.field, cell)
        else:
            draft.text(self.field, cell)

    def _add_date(self, draft: Draft, cell: str) -> None:
        try:
            draft.data[self.field] = date_value(cell, self.dates, is_cell=True)
        except ValueError:
            draft.notes.append(
                f"column {self.column!r}: {shown(cell)} is not a date; it is left out. Write one such as 2026-08-05"
            )

    def _add_state(self, draft: Draft, cell: str) -> None:
        status = read_status(cell)
        if status.state:
            draft.data["state"] = status.state
            if status.successor:
                draft.data.setdefault("superseded_by", status.successor[:500])
            return
        words = ", ".join(list(STATE_WORDS)[:8])
        draft.notes.append(
            f"column {self.column!r}: {shown(cell)} is no known state; it is left out. Some that are: {words}"
        )


_MAPPED = re.compile(
    r"""column (?P<name>'.*'|".*") is (?:read as (?P<field>\w+)(?:, with the (?P<first>day|month) first)?|stored)"""
)


def mapping_in(notes: Iterable[str]) -> tuple[dict[str, str], str]:
    """The fields of columns by their names, in order, and the order of dates, as the report of an import has them.

    No columns if it is the report of something else, or of several tables.
    """
    columns: dict[str, str] = {}
    order = ""
    for match in filter(None, map(_MAPPED.match, notes)):
        name = str(ast.literal_eval(match["name"]))
        if name in columns:
            return {}, ""
        columns[name] = match["field"] or ""
        order = order or (f"{match['first']}-first" if match["first"] else "")
    return columns, order


def _mapping(reads: Mapping[int, _CellReader], names: Sequence[str]) -> list[str]:
    """How the columns were understood, for the report."""
    return [
        f"column {name!r} is read as {reads[at].field}"
        + (f", with the {reads[at].dates.removesuffix('-first')} first" if reads[at].dates else "")
        if at in reads
        else f"column {name!r} is stored as it is, as a property"
        for at, name in enumerate(names)
    ]


def _row(
    location: str, cells: list[str], reads: Mapping[int, _CellReader], names: Sequence[str], notes: list[str]
) -> Iterator[SourceRecord | RefusedRecord]:
    if len(cells) > len(names) and any(cell.strip() for cell in cells[len(names) :]):
        yield RefusedRecord(location, f"has {len(cells)} cells, and the table {len(names)} columns")
        return
    raw = {name: cell for name, cell in zip(names, cells, strict=False) if cell}
    draft = Draft(location, raw, "csv")
    for at, read in reads.items():
        if cell := cells[at].strip() if at < len(cells) else "":
            read.add(draft, cell)
    # The successor is found by the record that is stored, also if it arrives later.
    draft.raw = {name: draft.data[name] for name in ("state", "superseded_by") if name in draft.data} | raw
    draft.notes[:0] = notes
    further = {name: cell for at, (name, cell) in enumerate(zip(names, cells, strict=False)) if at not in reads}
    yield replace(draft.record(), is_lenient=True, properties=further)


IMPORTER = Importer(
    "csv", "a table (CSV, TSV) whose first line names the columns, one of them the text", knows, read, columns
)
