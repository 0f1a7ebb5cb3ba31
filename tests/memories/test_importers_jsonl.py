import gzip
import json

import pytest

from transfer.formats import jsonl
from transfer.formats.base import ImportFailedError, NotReadableError, Options, RefusedRecord, SourceRecord
from transfer.formats.registry import importer_for


def written(tmp_path, data: bytes, name="records.anything"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def read(path, **options):
    return list(jsonl.read(path, Options(**options)).records)


def test_a_line_is_a_record_with_its_number(tmp_path):
    path = written(tmp_path, b'{"content": "one"}\n\n  \r\n{"content": "two"}')
    assert read(path) == [SourceRecord("line 1", {"content": "one"}), SourceRecord("line 4", {"content": "two"})]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b'{"content": "\xc3\xa9"}\n', id="plain"),
        pytest.param(b'\xef\xbb\xbf{"content": "\xc3\xa9"}\r\n', id="byte order mark and CRLF"),
        pytest.param(gzip.compress(b'{"content": "\xc3\xa9"}\n'), id="gzip"),
        pytest.param(gzip.compress(b'\xef\xbb\xbf{"content":') + gzip.compress(b'"\xc3\xa9"}'), id="two gzip members"),
    ],
)
def test_the_format_is_known_by_its_content(tmp_path, data):
    path = written(tmp_path, data)
    assert importer_for(path).name == "jsonl"
    assert read(path) == [SourceRecord("line 1", {"content": "é"})]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b'{"content": "x"', "is not JSON: EOF while parsing an object at character 15", id="cut off"),
        pytest.param(b"[1, 2]", 'is a list; a record is a JSON object, {"content": …}', id="list"),
        pytest.param(b'"text"', 'is text; a record is a JSON object, {"content": …}', id="text"),
        pytest.param(b'{"content": "\xff"}', "is not UTF-8: byte 14 is 0xff; save the file as UTF-8", id="latin"),
        pytest.param(
            b'{"content": "\\ud800"}',
            "content: holds half a character (the lone surrogate U+D800); remove it",
            id="lone surrogate",
        ),
        pytest.param(b'{"importance": NaN}', "importance: nan is not a number that JSON can hold", id="NaN"),
        pytest.param(b'{"a":' * 300 + b"1" + b"}" * 300, "is not JSON: recursion limit exceeded", id="deep"),
    ],
)
def test_a_broken_line_is_refused_and_the_next_one_read(tmp_path, line, reason):
    refusal, found = read(written(tmp_path, line + b'\n{"content": "fine"}\n'))
    assert isinstance(refusal, RefusedRecord)
    assert refusal.location == "line 1"
    assert refusal.reason.startswith(reason)
    assert found == SourceRecord("line 2", {"content": "fine"})


def test_a_line_that_is_too_long_is_refused_and_the_next_one_read(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_LINE", 1024 * 1024)
    long = b'{"content": "' + b"x" * 2_500_000 + b'"}\n'
    refusal, found = read(written(tmp_path, long + b'{"content": "fine"}\n'))
    assert refusal == RefusedRecord("line 1", "is longer than 1 MB; a record is one line of at most that")
    assert found.location == "line 2"


@pytest.mark.parametrize(
    ("blank", "last"), [pytest.param(b"\n", "1,002", id="many"), pytest.param(b" " * 2_000 + b"\n", "2", id="long")]
)
def test_a_small_gzip_of_very_many_empty_lines_is_not_read_to_its_end(tmp_path, monkeypatch, blank, last):
    monkeypatch.setattr(jsonl, "_MAX_BLANK", 1_000)
    packed = gzip.compress(b'{"content": "fine"}\n' + blank * (5_000_000 // len(blank)) + b"{}")
    with pytest.raises(
        ImportFailedError, match=rf"More than 16 MB of it are empty lines after line {last}\. Nothing was"
    ):
        read(written(tmp_path, packed, "memories.jsonl.gz"))


def damaged(tmp_path, *, cut):
    packed = gzip.compress("".join(json.dumps({"content": f"{n} {n * 7919}"}) + "\n" for n in range(5000)).encode())
    middle = len(packed) // 2
    data = packed[:middle] if cut else packed[:middle] + b"\0" * 40 + packed[middle + 40 :]
    return written(tmp_path, data, "memories.jsonl.gz")


@pytest.mark.parametrize("cut", [True, False])
def test_a_damaged_gzip_fails_and_says_how_many_lines_can_be_saved(tmp_path, cut):
    path = damaged(tmp_path, cut=cut)
    assert importer_for(path).name == "jsonl"
    with pytest.raises(ImportFailedError) as caught:
        read(path)
    said = str(caught.value)
    assert ("cut off" in said) is cut
    lines = int(said.split(" after line ")[1].split(".")[0].replace(",", ""))
    assert 0 < lines < 5000
    assert f"the {lines:,} lines before the damage with --keep-going" in said
    *records, last = read(path, keep_going=True)
    assert len(records) == lines
    assert last.location == f"after line {lines}"


@pytest.mark.parametrize(
    ("name", "data"),
    [("notes.log", b"Some notes."), ("number.json", b"1")],
)
def test_what_no_importer_knows_is_refused_with_the_formats(tmp_path, name, data):
    with pytest.raises(
        NotReadableError, match=r"nothing that can be imported\. Supported: git: .*; markdown: .*; jsonl: "
    ):
        importer_for(written(tmp_path, data, name))


def test_a_file_that_is_no_text_is_named_so(tmp_path):
    with pytest.raises(NotReadableError, match=r"sound\.ogg: this is neither text nor a kind of file that is known"):
        importer_for(written(tmp_path, b"OggS\0\2", "sound.ogg"))
