"""Questions made from memories: what each kind asks, what answers it, and the collection that is written."""

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from bench.retrieval.collection import read_collection
from bench.retrieval.questions import Records, authors, links, read_records, superseded, titles, versions

BODY = (
    "Water just off the boil, two grams for a cup, and three minutes; longer makes it bitter, and colder makes it flat."
)
RECORDS = [
    {"id": "t1", "project": "tea", "title": "ADR 1: Brew the black kind in a pot", "content": BODY},
    {
        "id": "t2",
        "project": "tea",
        "title": "Clean the copper kettle well",
        "content": f"Clean the copper kettle well. {BODY}",
    },
    {
        "id": "t3",
        "project": "tea",
        "title": "Brew it in a glass",
        "content": f"{BODY} Made by Ada Quill.",
        "authors": ["Ada Quill"],
        "created_at": "2026-02-03T10:00:00+00:00",
        "links": [{"rel": "relates-to", "target": "t1"}, {"rel": "mentions", "target": "elsewhere"}],
    },
    {
        "id": "g1",
        "project": "garden",
        "title": 'Sharpen the -blade- and "oil" it',
        "content": BODY,
        "created_at": "2025-05-01T10:00:00+00:00",
        "superseded_by": "g2",
    },
    {
        "id": "g2",
        "project": "garden",
        "title": "Plan of the beds",
        "content": BODY,
        "created_at": "2025-06-01T10:00:00Z",
    },
    {
        "id": "g3",
        "project": "garden",
        "title": "plan of the Beds",
        "content": BODY,
        "created_at": "2026-06-01T10:00:00Z",
        "links": [{"rel": "superseded-by", "target": "g1"}],
    },
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return path


@pytest.fixture
def records(file):
    return read_records(file)


def asked(questions):
    return {one.text: one.answers for one in questions}


def test_a_title_asks_for_its_memory_unless_the_content_repeats_it(records):
    assert asked(titles(records)) == {"Brew the black kind in a pot": {"t1": 1}, "Brew it in a glass": {"t3": 1}}


def test_a_title_asks_for_what_its_memory_links_to(records):
    (question,) = links(records)
    # It bears the id of the memory that asks, so that this one does not find itself.
    assert (question.id, question.text, question.answers) == ("t3", "Brew it in a glass", {"t1": 1})


def test_an_author_and_a_month_ask_for_what_was_made_then(records):
    assert asked(authors(records)) == {"Ada Quill February 2026": {"t3": 1}}


def test_a_title_of_several_memories_asks_for_the_newest_first(records):
    assert asked(versions(records)) == {"plan of the Beds": {"g2": 1, "g3": 2}}


def test_a_superseded_memory_asks_for_the_one_that_holds_now(records):
    # Operators of a query are left out of what is typed. The third was replaced by the first, and that by the second.
    assert asked(superseded(records)) == {"Sharpen the blade- and oil it": {"g2": 1}, "plan of the Beds": {"g2": 1}}


def test_memories_that_supersede_each_other_in_a_circle_have_an_end():
    assert Records({}, {"a": "b", "b": "a"}).current("a") == "b"


def test_the_collection_has_the_questions_their_kinds_and_the_rest_of_the_records(file, tmp_path):
    paraphrases = tmp_path / "written.jsonl"
    paraphrases.write_text('{"text": "how hot for a cuppa", "answers": ["t2"]}\n')
    out = StringIO()
    call_command("make_questions", file, tmp_path / "made", paraphrases=paraphrases, stdout=out)
    counts = "1 paraphrase, 1 link, 1 author, 1 version, 2 superseded"
    assert out.getvalue() == f"6 memories, 6 questions ({counts}) in {tmp_path / 'made'}\n"

    found = read_collection(tmp_path / "made")
    assert found.queries["paraphrase-1"] == "how hot for a cuppa"
    assert found.judgements["paraphrase-1"] == {"t2": 1}
    assert set(found.kinds.values()) == {"paraphrase", "link", "author", "version", "superseded"}
    documents = {document.id: document for document in found.documents()}
    assert documents["t3"].record["authors"] == ["Ada Quill"]
    assert (documents["g3"].record["state"], documents["g3"].record["superseded_by"]) == ("superseded", "g1")


def test_a_memory_that_its_title_asks_for_has_no_title_in_the_collection(tmp_path):
    (tmp_path / "one.jsonl").write_text(json.dumps(RECORDS[0]))
    call_command("make_questions", tmp_path / "one.jsonl", tmp_path / "made", stdout=StringIO())
    (document,) = read_collection(tmp_path / "made").documents()
    assert (document.title, document.text) == ("", BODY)


@pytest.mark.parametrize(
    ("line", "written", "reason"),
    [
        pytest.param("{", "", "line 1: is not JSON", id="no JSON"),
        pytest.param('{"id": "a"}', "", "line 1: has no id or no content; a record is", id="no content"),
        pytest.param(
            '{"id": "a", "content": "b"}', '{"text": "c"}', "line 1: has no text or no answers", id="no answer"
        ),
        pytest.param(
            '{"id": "a", "content": "b"}', '{"text": "c", "answers": ["d"]}', "there is no record d", id="no record"
        ),
        pytest.param(
            '{"id": "a", "content": "b"}',
            '{"text": "c", "answers": [{"id": "a"}]}',
            "line 1: has no text or no answers",
            id="answer that is no id",
        ),
        pytest.param(
            '{"id": "a", "content": "b", "authors": "Ada"}', "", "line 1: authors is no list", id="author alone"
        ),
        pytest.param('{"id": "a", "content": "b", "links": 5}', "", "line 1: links is no list", id="links"),
        pytest.param('{"id": "a", "content": "b"}', "", "give no questions", id="no questions"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, line, written, reason):
    (tmp_path / "records.jsonl").write_text(line)
    (tmp_path / "written.jsonl").write_text(written)
    with pytest.raises(CommandError, match=reason):
        call_command(
            "make_questions", tmp_path / "records.jsonl", tmp_path / "made", paraphrases=tmp_path / "written.jsonl"
        )
