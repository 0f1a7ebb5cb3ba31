"""Files of other memory systems for tests, written by small code to their documented shapes, in words of our own."""

import json
import sqlite3
import zipfile
from contextlib import closing

from transfer.formats.base import Options, RefusedRecord, SourceRecord
from transfer.formats.registry import importer_for


def write_database(path, script, tables, *, wal=False):
    """An SQLite database: its schema, and rows as dictionaries by table."""
    with closing(sqlite3.connect(path)) as connection, connection:
        if wal:
            connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(script)
        for table, rows in tables.items():
            for row in rows:
                names, marks = ", ".join(row), ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))
    return path


def write_json(path, value, **options):
    path.write_text(json.dumps(value, ensure_ascii=False, **options), encoding="utf-8")
    return path


def write_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content if isinstance(content, str | bytes) else json.dumps(content))
    return path


def found(path, format_name, **options):
    """Everything that the importer of a path gives, which must be the named one."""
    importer = importer_for(path)
    assert importer.name == format_name
    return list(importer.read(path, Options(**options)).records)


def records(path, format_name, **options):
    """The records by id, none of which is refused."""
    everything = found(path, format_name, **options)
    refused = [one for one in everything if isinstance(one, RefusedRecord)]
    assert not refused
    return {one.data.get("id", one.location): one for one in everything if isinstance(one, SourceRecord)}
