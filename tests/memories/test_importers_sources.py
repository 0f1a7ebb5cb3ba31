import gzip
import json
import zipfile

import pytest

from tests.memories.foreign import write_database, write_zip
from transfer.formats import sources
from transfer.formats.base import NotReadableError
from transfer.formats.registry import importer_for
from transfer.formats.sources import DamagedError, Document, Position, Source, values_of


def values(path, name="", member=""):
    return list(values_of(Document(name, path, member), Position()))


def written(tmp_path, data):
    path = tmp_path / "document"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


TEXT = '{"version": 1, "memories": [{"text": "oolong \\u00e9"}, 12, []], "empty": [], "about": {"by": "ann"}}'
VALUES = [
    ("version", -1, 1),
    ("memories", 0, {"text": "oolong é"}),
    ("memories", 1, 12),
    ("memories", 2, []),
    ("about", -1, {"by": "ann"}),
]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(TEXT.encode(), id="UTF-8"),
        pytest.param(TEXT.encode("utf-8-sig"), id="with a byte order mark"),
        pytest.param(TEXT.encode("utf-16"), id="UTF-16"),
        pytest.param(gzip.compress(TEXT.encode()), id="gzip"),
        pytest.param(json.dumps(json.loads(TEXT), indent=4).replace("\n", "\r\n").encode(), id="indented"),
    ],
)
@pytest.mark.parametrize("chunk", [5, 7, 65_536])
def test_lists_are_read_item_by_item_however_the_text_is_divided(tmp_path, monkeypatch, data, chunk):
    monkeypatch.setattr(sources, "_CHUNK", chunk)
    assert values(written(tmp_path, data)) == VALUES


@pytest.mark.parametrize(
    ("text", "before", "reason"),
    [
        pytest.param('[{"a": 1}, {"a": "cu', 1, "The file ends in the middle: it is cut off", id="in a text"),
        pytest.param('[{"a": 1}, {"a": 2}', 2, "The file ends in the middle: it is cut off", id="between"),
        pytest.param('[{"a": 1} {"a": 2}]' + " " * 99, 1, "The file is not JSON: '{' stands where", id="comma"),
        pytest.param('[1, {"a": tru}, 2]' + " " * 99, 1, "The file is not JSON: Expecting value", id="word"),
        pytest.param("[1, " + "[" * 100_000, 1, "The file holds a value that is nested too deeply", id="deep"),
        pytest.param(b'[1, "caf\xe9"]', 0, "The file is not UTF-8: it holds the byte 0xe9;", id="latin"),
        pytest.param(gzip.compress(b"[1, 2]")[:-9], 0, "The packed file ends in the middle: it is cut off", id="gzip"),
    ],
)
def test_a_damaged_document_gives_what_comes_before_the_damage(tmp_path, text, before, reason):
    reading = values_of(Document("", written(tmp_path, text)), Position())
    for _ in range(before):
        next(reading)
    with pytest.raises(DamagedError) as caught:
        next(reading)
    assert str(caught.value).startswith(reason)


def test_a_value_that_is_too_large_is_not_gathered_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "MAX_VALUE", 1024 * 1024)
    with pytest.raises(DamagedError, match="holds a value of more than 1 MB"):
        values(written(tmp_path, '["' + "x" * 9_000_000 + '"]'))


def test_an_archive_that_expands_beyond_measure_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_MAX_UNPACKED", 1_000_000)
    path = write_zip(tmp_path / "bomb", {"memories.json": "[" + " " * 5_000_000 + "]"})
    with pytest.raises(NotReadableError, match=r"'memories\.json' would unpack from [\d,]+ to 5,000,002 bytes"):
        _ = Source(path).documents
    packed = written(tmp_path, gzip.compress(b"[" + b" " * 5_000_000 + b"]"))
    with pytest.raises(DamagedError, match="unpacks to more than 200 times its size"):
        values(packed)


def test_members_of_an_archive_are_read_in_place_whatever_their_names(tmp_path):
    path = write_zip(tmp_path / "a", {"../../outside.json": "[1]", "/abs.json": "[2]"})
    assert [values(path, one.name, one.member) for one in Source(path).documents] == [[("", 0, 1)], [("", 0, 2)]]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_damaged_archive_is_refused(tmp_path):
    path = write_zip(tmp_path / "a", {"memories.json": "[1]"})
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(NotReadableError, match="is a damaged ZIP archive"):
        _ = Source(path).documents


@pytest.mark.parametrize(
    ("mark", "at", "value"),
    [
        pytest.param(b"PK\x01\x02", 6, b"\x69", id="a version that is none"),
        pytest.param(b"PK\x01\x02", 46, b"\xe8", id="a name that is no UTF-8"),
    ],
)
def test_an_archive_whose_directory_is_damaged_is_refused(tmp_path, mark, at, value):
    path = write_zip(tmp_path / "a", {"mémories.json": "[1]"})
    data = bytearray(path.read_bytes())
    place = data.index(mark) + at
    data[place : place + 1] = value
    path.write_bytes(data)
    with pytest.raises(NotReadableError, match="is a damaged ZIP archive"):
        importer_for(path)


def test_a_member_with_a_name_that_is_no_text_is_reported_as_damage(tmp_path):
    path = write_zip(tmp_path / "a", {"mémories.json": "[1]"})
    path.write_bytes(path.read_bytes().replace("mémories".encode(), b"m\xe8\xe8mories", 1))
    (document,) = Source(path).documents
    assert document.start == ""
    with pytest.raises(DamagedError, match="The file is damaged or cannot be unpacked"):
        values(path, document.name, document.member)


def test_a_database_whose_schema_is_damaged_is_refused(tmp_path):
    path = write_database(tmp_path / "db", "CREATE TABLE memories (content TEXT);", {})
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE memories (c", b"CREATE TABLE memories \xd8c"))
    with pytest.raises(NotReadableError, match="is an SQLite database that cannot be read: malformed"):
        importer_for(path)


def test_a_member_whose_checksum_is_wrong_is_reported_as_damage(tmp_path):
    path = tmp_path / "a"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("m.json", "[1, 2, 3]")
    path.write_bytes(path.read_bytes().replace(b"[1, 2, 3]", b"[1, 2, 4]"))
    with pytest.raises(DamagedError, match="The file is damaged or cannot be unpacked"):
        values(path, "m.json", "m.json")


def test_a_document_is_known_whose_first_record_is_very_long_or_deep(tmp_path):
    deep = json.loads("[" * 150 + "]" * 150)
    record = {"content": 'Tea "is" hot. ' * 200_000, "metadata": {"a": deep}, "content_hash": "aa11"}
    document = Document("", written(tmp_path, json.dumps({"memories": [record, record]})))
    assert document.fields("memories") == {"content", "metadata", "content_hash"}
    assert importer_for(document.path).name == "mcp-memory-service"
    nested = '[{"id": "1", "memory": "Tea.", "user_id": "ann", "more": ' + "[" * 5_000 + "]" * 5_000 + "}]"
    assert importer_for(written(tmp_path, nested)).name == "mem0"


def test_an_archive_is_opened_a_few_times_however_many_files_it_has(tmp_path, monkeypatch):
    path = write_zip(tmp_path / "notes.zip", {f"{n}.md": f"# Note {n}" for n in range(200)})
    opened = []
    real = zipfile.ZipFile.__init__
    monkeypatch.setattr(
        zipfile.ZipFile, "__init__", lambda self, *args, **options: opened.append(1) or real(self, *args, **options)
    )
    assert importer_for(path).name == "files"
    assert len(opened) < 10
