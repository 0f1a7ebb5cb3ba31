import gzip
import io
import tarfile

import pytest

from tests.memories.foreign import write_database, write_json, write_zip
from transfer.formats.base import NotReadableError, Options, RefusedRecord
from transfer.formats.registry import importer_for

BASIC_MEMORY = "CREATE TABLE entity (id, file_path); CREATE TABLE observation (id); CREATE TABLE relation (id);"
CHROMA = "CREATE TABLE collections (id); CREATE TABLE segments (id); CREATE TABLE embedding_metadata (string_value);"
OPENMEMORY = "CREATE TABLE memories (id, app_id, content); CREATE TABLE apps (id); CREATE TABLE users (id);"


def refusal(path):
    with pytest.raises(NotReadableError) as caught:
        importer_for(path)
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("script", "what"),
    [
        (BASIC_MEMORY, "this is the index of basic-memory: import the folder of its notes."),
        (CHROMA, "this is a database of Chroma, which has vectors of another program: import that program's own data"),
        (OPENMEMORY, "this is the database of OpenMemory: import the ZIP that it exports."),
        ("CREATE TABLE history (memory_id, old_memory, new_memory);", "this is the history of mem0, which has no mem"),
        ("CREATE TABLE agents (id, system); CREATE TABLE block (id);", "this is the database of Letta: import the ag"),
        ("CREATE TABLE ItemTable (key, value);", "this is the state of an editor (VS Code, Cursor), which has no mem"),
        (
            "".join(f"CREATE TABLE t{n} (id);" for n in range(10)),
            "this is an SQLite database with the tables t0, t1, t2, t3, t4, t5, t6, t7 and 2 more, which is of no sys",
        ),
        ("PRAGMA user_version = 1;", "this is an SQLite database with the tables (none), which is of no system"),
    ],
)
def test_databases_of_others_are_named(tmp_path, script, what):
    assert refusal(write_database(tmp_path / "database", script, {})).startswith(what)


@pytest.mark.parametrize(
    ("document", "options", "what"),
    [
        ({"schema_version": "mem9.memory_export.v1", "memories": []}, {}, "this is an export of mem9, which is"),
        ({"schema_version": 1, "source_bank_id": "tea"}, {}, "this is the manifest of an archive of hindsight"),
        ({"nodes": [{"id": "1", "x": 0, "y": 0}], "edges": []}, {"indent": 2}, "this is a canvas of Obsidian"),
        ({"name": "app", "version": "1"}, {"indent": 2}, "this is a JSON document with the fields name, version,"),
        ([{"header": "a", "time": "b"}], {}, "this is a list in JSON with the fields header, time, which"),
        ([None], {}, "this is a list in JSON without memories"),
    ],
)
def test_documents_of_others_are_named(tmp_path, document, options, what):
    assert refusal(write_json(tmp_path / "document", document, **options)).startswith(what)


def test_other_kinds_of_files_are_named(tmp_path):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.md"))
    database = write_database(tmp_path / "database", "CREATE TABLE a (b);", {}).read_bytes()
    contents = {
        "7z": b"7z\xbc\xaf\x27\x1c\0\0",
        "tar": tar.getvalue(),
        "packed": gzip.compress(database),
        "picture": b"\x89PNG\r\n\x1a\n",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    assert refusal(tmp_path / "7z") == "this is a 7z archive: unpack it, and import what is in it."
    assert refusal(tmp_path / "tar") == "this is a tar archive: unpack it, and import the folder."
    assert refusal(tmp_path / "packed") == "this is a packed SQLite database: unpack it first."
    assert refusal(tmp_path / "picture") == "this is a picture."
    office = write_zip(tmp_path / "office", {"[Content_Types].xml": "<x/>", "word/document.xml": "<x/>"})
    assert refusal(office) == "this is an office document: save it as PDF, HTML or text."


def test_files_of_an_archive_are_named_too(tmp_path):
    database = write_database(tmp_path / "index", BASIC_MEMORY, {}).read_bytes()
    path = write_zip(tmp_path / "all.zip", {"a.jsonl": '{"content": "Tea."}', "memory.db": database})
    _, refused = importer_for(path).read(path, Options()).records
    assert refused == RefusedRecord("memory.db", "is the index of basic-memory: import the folder of its notes")
