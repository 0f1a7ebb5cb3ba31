"""Reading a collection: its contents, notes about it, and errors with file and line."""

import shutil
from pathlib import Path

import pytest

from lab.evaluate.collection import CORPUS, QRELS, QUERIES, CollectionError, Document, read_collection

OURS = Path(__file__).parent / "collection"
TITLE_ONLY = "1 document has a title alone, which stands for the text"
EMPTY = "1 document (home-5) without title and text: nobody can find them"


@pytest.fixture
def folder(tmp_path):
    return Path(shutil.copytree(OURS, tmp_path / "collection"))


def test_documents_queries_and_judgements_are_read():
    found = read_collection(OURS)
    assert len(found.ids) == 20
    assert (found.ids[0], found.ids[-1]) == ("bread-1", "home-4")
    assert list(found.queries) == ["q1", "q2", "q3", "q4", "tea-3"]
    assert found.queries["q2"] == '"sharp blade" or shears'
    assert found.judgements["q1"] == {"tea-1": 2, "tea-4": 1, "bread-1": 0}
    documents = list(found.documents())
    assert [document.id for document in documents] == found.ids
    assert documents[18] == Document("home-3", "A list to be written", "")
    assert documents[6].full_text.startswith("Oolong Oolong leaves unfold")
    assert found.notes == [EMPTY, TITLE_ONLY]


def test_queries_are_limited_by_a_seed():
    drawn = []
    for seed in (7, 7, 8):
        found = read_collection(OURS)
        found.limit_queries(2, seed)
        assert list(found.judgements) == [name for name in found.judgements if name in found.queries]
        assert found.notes[-1] == f"2 of 5 queries, drawn with the seed {seed}"
        drawn.append(list(found.queries))
    assert drawn[0] == drawn[1]
    assert [len(queries) for queries in drawn] == [2, 2, 2]


def test_judgements_of_missing_queries_and_documents_are_noted(folder):
    with (folder / QRELS).open("a") as file:
        file.write("q1\tsoup-1\t1\nq1\tsoup-2\t1\nq99\ttea-1\t1\nq2\thome-5\t1\n")
    found = read_collection(folder)
    assert found.judgements["q1"] == {"tea-1": 2, "tea-4": 1, "bread-1": 0, "soup-1": 1, "soup-2": 1}
    assert "q99" not in found.judgements
    assert found.notes[2:] == [
        "1 judged query (q99) not in queries.jsonl: left out",
        "2 judgements (soup-1, soup-2) of documents that are not in corpus.jsonl: they count as relevant documents"
        " that nobody finds",
    ]


@pytest.mark.parametrize("name", [CORPUS, QUERIES, QRELS])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(CollectionError, match=f"has no file {name}. A collection is a folder with corpus.jsonl, "):
        read_collection(folder)


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        pytest.param(CORPUS, b"{not json", 'line 22: is not JSON: .*; a document is {"_id": "d1"', id="not JSON"),
        pytest.param(CORPUS, b"[1]", "line 22: is a list", id="no object"),
        pytest.param(CORPUS, b'{"text": "x"}', "line 22: has no _id", id="no id"),
        pytest.param(CORPUS, b'{"_id": 7, "text": "x"}', "line 22: _id is a number", id="an id that is no text"),
        pytest.param(CORPUS, b'{"_id": "x"}', "line 22: has no text", id="no text"),
        pytest.param(CORPUS, b'{"_id": "x", "text": 7}', "line 22: text is a number", id="a text that is none"),
        pytest.param(CORPUS, b'{"_id": "x", "title": [], "text": "y"}', "line 22: title is a list", id="no title"),
        pytest.param(
            CORPUS,
            b'{"_id": "tea-1", "text": "x"}',
            "line 22: the _id 'tea-1' was given in line 5",
            id="document twice",
        ),
        pytest.param(CORPUS, b'{"_id": "x", "text": "\xff"}', "line 22: is not UTF-8 at byte 23", id="not UTF-8"),
        pytest.param(QUERIES, b'{"_id": "q9"}', 'line 7: has no text; a query is {"_id"', id="query without text"),
        pytest.param(QUERIES, b'{"_id": "q9", "text": "  "}', "line 7: has no text", id="blank query"),
        pytest.param(QUERIES, b'{"_id": "q1", "text": "x"}', "line 7: the _id 'q1' was given before", id="query twice"),
        pytest.param(QRELS, b"q1 0 tea-1 1", "line 12: has 1 columns; a judgement is query-id, ", id="no tabs"),
        pytest.param(QRELS, b"q1\t0\ttea-1\t1", "line 12: has 4 columns", id="as trec_eval has it"),
        pytest.param(QRELS, b"q1\ttea-2\tyes", "line 12: 'yes' is not a whole number", id="no grade"),
        pytest.param(QRELS, b"q1\ttea-1\t0", "line 12: 'tea-1' was judged 2 for 'q1' before, and 0", id="judged twice"),
    ],
)
def test_an_invalid_line_is_refused_with_file_and_number(folder, name, line, reason):
    with (folder / name).open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(CollectionError, match=f"{Path(name).name}, {reason}"):
        read_collection(folder)


def test_a_collection_without_documents_is_refused(folder):
    (folder / CORPUS).write_text("")
    with pytest.raises(CollectionError, match="holds no document with a text"):
        read_collection(folder)
