"""SQLite databases of other programs, read without writing to them, locking them or loading them into memory."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

from transfer.formats.base import (
    ImportFailedError,
    Options,
    Reading,
    Records,
    RefusedRecord,
    SourceRecord,
    damage_text,
    read_guarded,
)

# The text of a column is cut here; memories hold up to a million characters.
MAX_TEXT = 1_000_001
# Bytes 18 and 19 of a database with a write-ahead log.
_WAL = b"\x02\x02"
# Bytes that change with every commit: the counter in the database or, with a log, the header of the log and of its
# index, which has a counter too. Suffix of the file -> the place, and whether the time of the file says anything: the
# index is changed in memory.
_COUNTERS = (("", 24, 4, True), ("-wal", 0, 32, True), ("-shm", 0, 48, False))


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """One consistent state of a database, which other processes may be writing to.

    With a write-ahead log, readers do not lock out writers. If nobody has such a database open, its log does not exist,
    and it is read as it is: opening it in the usual way would create the log.
    """
    with path.open("rb") as file:
        has_log = file.read(20)[18:20] == _WAL
    log = path.with_name(path.name + "-wal")
    mode = "immutable=1" if has_log and not log.exists() else "mode=ro"
    # A reading is iterated in one thread and closed in another.
    connection = sqlite3.connect(
        f"file:{quote(str(path.resolve()))}?{mode}", uri=True, isolation_level=None, check_same_thread=False, timeout=10
    )
    try:
        connection.text_factory = _text
        connection.row_factory = sqlite3.Row
        # The schema is another program's: its functions and triggers must not run.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        yield connection
    except UnicodeDecodeError as error:
        # The message about a damaged schema repeats bytes of it.
        raise sqlite3.DatabaseError("malformed database schema") from error
    finally:
        connection.close()


def stamp(path: Path) -> str:
    """A text that differs after every commit and for another file, from a few bytes of the files. Opens no connection.

    Not to be called while this process has the database open: closing a file gives up the locks that a process holds.
    """
    parts: list[str] = []
    for suffix, start, length, has_time in _COUNTERS:
        with suppress(FileNotFoundError), path.with_name(path.name + suffix).open("rb", buffering=0) as file:
            state = os.fstat(file.fileno())
            file.seek(start)
            of_file = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns) if has_time else ()
            parts.append(f"{suffix}{of_file}{file.read(length).hex()}")
    if not parts or not parts[0].startswith("("):
        raise ImportFailedError(f"{path}: is not there.")
    return " ".join(parts)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def tables(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    """The plain tables and their columns: no views and no virtual tables, which need extensions."""
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
    return {
        name: frozenset(row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(name)})"))
        for (name,) in names.fetchall()
    }


def last_row(connection: sqlite3.Connection, table: str) -> int:
    """The highest row number: about the number of rows, without counting them. 0 if the table has no such numbers."""
    with suppress(sqlite3.OperationalError):
        return int(connection.execute(f"SELECT max(rowid) FROM {_quoted(table)}").fetchone()[0] or 0)
    return 0


def rows(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of a table, one at a time, without empty values. Long texts are cut at MAX_TEXT, blobs left out."""
    chosen = ", ".join(
        f"CASE typeof({name}) WHEN 'text' THEN substr({name}, 1, {MAX_TEXT}) WHEN 'blob' THEN NULL ELSE {name} END"
        for name in map(_quoted, columns)
    )
    for row in connection.execute(f"SELECT {chosen} FROM {_quoted(table)}"):
        yield {name: value for name, value in zip(columns, row, strict=True) if value is not None}


# The records of one row: the connection, the table, the location, the row.
RowRecords = Callable[[sqlite3.Connection, str, str, Mapping[str, Any]], Iterable[SourceRecord | RefusedRecord]]


def database_reading(
    path: Path,
    options: Options,
    chosen: Sequence[tuple[str, Sequence[str]]],
    records: RowRecords,
    *,
    at_end: Callable[[], Iterable[SourceRecord | RefusedRecord]] = tuple,
) -> Reading:
    """The reading of tables with their columns, in order, from one state of a database."""
    done = total = 0

    def found() -> Records:
        nonlocal done, total
        last = "its beginning"
        try:
            with opened(path) as connection:
                total = sum(last_row(connection, table) for table, _ in chosen)
                for table, columns in chosen:
                    for row in rows(connection, table, columns):
                        last = f"{table} {row.get('id', '')}".strip()
                        yield from read_guarded(last, partial(records, connection, table, last, row))
                        done += 1
                yield from read_guarded("the end", at_end)
        except sqlite3.Error as error:
            reason = f"The database cannot be read further ({error})"
            if not options.keep_going:
                raise ImportFailedError(damage_text(reason, f"after {last}")) from None
            yield RefusedRecord(f"after {last}", f"{reason}; everything after it is lost")

    return Reading(found(), lambda: min(1.0, done / total) if total else None)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
