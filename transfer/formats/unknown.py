"""Names for files that no importer reads: a refusal says what the file is, and what can be done."""

import zipfile
from collections.abc import Iterable
from contextlib import suppress

from pydantic_core import from_json

from text.formatting import legible
from transfer.formats.sources import Document, Source

# The first bytes of files that are nothing that can be read.
_BEGINNINGS = (
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it, and import what is in it"),
    (b"Rar!\x1a\x07", "a RAR archive: unpack it, and import what is in it"),
    (b"\xfd7zXZ\0", "packed by xz: unpack it first"),
    (b"BZh", "packed by bzip2: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "packed by zstd: unpack it first"),
    (b"PAR1", "a Parquet file: write it as CSV or JSON lines"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
)
# Databases by tables, and columns of the first of them.
_DATABASES = (
    (
        ("embedding_metadata", "segments", "collections"),
        {"string_value"},
        "a database of Chroma, which has vectors of another program: import that program's own data or export",
    ),
    (
        ("entity", "observation", "relation"),
        {"file_path"},
        "the index of basic-memory: import the folder of its notes",
    ),
    (
        ("history",),
        {"memory_id", "old_memory", "new_memory"},
        "the history of mem0, which has no memories: import what its get_all() gives, as JSON",
    ),
    (
        ("memories", "apps", "users"),
        {"app_id", "content"},
        "the database of OpenMemory: import the ZIP that it exports",
    ),
    (("agents", "block"), {"system"}, "the database of Letta: import the agents that it exports as files (.af)"),
    (("ItemTable",), {"key", "value"}, "the state of an editor (VS Code, Cursor), which has no memories"),
)
_NOT_OF_TEXT = frozenset(range(32)) - frozenset(b"\t\n\v\f\r\x1b")
_NO_TEXT = "neither text nor a kind of file that is known: save what it holds as text, CSV, JSON or PDF"
# The marks of UTF-16, whose text has null bytes.
_TEXT_OF_TWO_BYTES = (b"\xff\xfe", b"\xfe\xff")
_OWN_FORM = 'Records with a field content are read: [{"content": "…", "title": "…", "created_at": "2026-08-05"}]'
_OFFICE = "[Content_Types].xml"
_NAMED = 8


def what_it_is(source: Source) -> str:
    """A name for a file, and what can be done; empty if it is not known."""
    if source.is_database:
        return _database(source)
    if source.is_archive:
        with suppress(zipfile.BadZipFile, OSError), zipfile.ZipFile(source.path) as archive:
            if _OFFICE in archive.namelist():
                return "an office document: save it as PDF, HTML or text"
        return ""
    for beginning, what in _BEGINNINGS:
        if source.first_bytes.startswith(beginning):
            return what
    if source.path.is_dir():
        return ""
    if source.documents:
        document = source.documents[0]
        if document.start[257:262] == "ustar":
            return "a tar archive: unpack it, and import the folder"
        if document.start.startswith("SQLite format 3\0"):
            return "a packed SQLite database: unpack it first"
        if known := json_document(document) or _json_list(document):
            return known
    with source.path.open("rb") as file:
        first = file.read(512)
    is_text = first.startswith(_TEXT_OF_TWO_BYTES) or not _NOT_OF_TEXT.intersection(first)
    return "" if is_text else _NO_TEXT


def _database(source: Source) -> str:
    tables = source.tables
    for names, columns, what in _DATABASES:
        if tables.keys() >= set(names) and tables[names[0]] >= columns:
            return what
    return f"an SQLite database with the tables {_some(tables)}, which is of no system that is read"


def json_document(document: Document) -> str:
    """A name for a file that holds an object of another program, or one object over several lines, not one on each."""
    head = document.head
    if not isinstance(head, dict):
        return ""
    if str(head.get("schema_version", "")).startswith("mem9."):
        return "an export of mem9, which is not read"
    if head.keys() >= {"schema_version", "source_bank_id"}:
        return "the manifest of an archive of hindsight: import the archive or its folder"
    if document.fields("nodes") >= {"id", "x", "y"}:
        return "a canvas of Obsidian: import the folder of its notes"
    if head and all(value == [] for value in head.values()):
        return f"a JSON document whose lists ({_some(head)}) are empty: nothing can be imported"
    first, _, rest = document.start.strip().partition("\n")
    if not rest:
        return ""
    try:
        from_json(first)
    except ValueError:
        return f"a JSON document with the fields {_some(head)}, which is of no system that is read. {_OWN_FORM}"
    return ""


def _json_list(document: Document) -> str:
    head = document.head
    if not isinstance(head, list):
        return ""
    if isinstance(head[0] if head else None, dict):
        fields = _some(document.fields())
        return f"a list in JSON with the fields {fields}, which is of no system that is read. {_OWN_FORM}"
    return f"a list in JSON without memories. {_OWN_FORM}" if head else "an empty list in JSON: nothing can be read"


def _some(names: Iterable[str]) -> str:
    found = sorted(names)
    shown = ", ".join(legible(name, 40) for name in found[:_NAMED]) or "(none)"
    return f"{shown} and {len(found) - _NAMED:,} more" if len(found) > _NAMED else shown
