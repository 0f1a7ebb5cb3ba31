from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from memories.records import MemoryChanges, MemoryRecord, StrictMemoryRecord, derived_title
from memories.vocabulary_records import ConceptRecord, is_vocabulary, parse_vocabulary
from web.validation import reasons


def record(**fields):
    return MemoryRecord.model_validate({"content": "A text.", **fields})


def reasons_for(data, model=MemoryRecord):
    with pytest.raises(ValidationError) as caught:
        model.model_validate(data)
    return reasons(caught.value, model)


def test_only_content_is_required():
    made = record()
    assert (made.type, made.project, made.tags, made.state) == ("note", "", (), None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("2026-08-05T14:30:00+02:00", datetime(2026, 8, 5, 12, 30, tzinfo=UTC), id="offset"),
        pytest.param("2026-08-05T14:30:00Z", datetime(2026, 8, 5, 14, 30, tzinfo=UTC), id="Z"),
        pytest.param("2026-08-05T14:30:00", datetime(2026, 8, 5, 14, 30, tzinfo=UTC), id="naive is UTC"),
        pytest.param("2026-08-05", datetime(2026, 8, 5, tzinfo=UTC), id="date only"),
        pytest.param(1_700_000_000.5, datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC), id="float seconds"),
        pytest.param(1_700_000_000_500, datetime(2023, 11, 14, 22, 13, 20, 500_000, tzinfo=UTC), id="milliseconds"),
        pytest.param(99_999_999_999, datetime(5138, 11, 16, 9, 46, 39, tzinfo=UTC), id="just below: seconds"),
        pytest.param("1700000000", datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), id="seconds as text"),
        pytest.param("", None, id="empty"),
        pytest.param(None, None, id="null"),
    ],
)
def test_a_moment_is_read_in_every_spelling(value, expected):
    assert record(created_at=value).created_at == expected


def test_a_moment_keeps_its_offset():
    made = record(created_at="2026-08-05T14:30:00+02:00").created_at
    assert made.utcoffset() == timezone(timedelta(hours=2)).utcoffset(None)


@pytest.mark.parametrize("value", ["yesterday", "2026-13-01", "0001-01-01T00:00:00+05:00", True, [], 1e300, 10**30])
def test_what_is_no_moment_is_refused_with_its_name(value):
    (reason,) = reasons_for({"content": "x", "created_at": value})
    assert reason.startswith("created_at: ")
    assert "date" in reason


@pytest.mark.parametrize(
    "value",
    [
        pytest.param([" Foo Bar", "foo-bar", "ZOE\u0301", ""], id="list"),
        pytest.param(" Foo Bar,foo-bar ,ZOÉ,", id="comma string"),
        pytest.param('["Foo Bar", "zoé"]', id="JSON string"),
    ],
)
def test_tags_are_normalised_and_kept_in_order(value):
    assert record(tags=value).tags == ("foo-bar", "zoé")


def test_type_and_project_are_slugs():
    made = record(type=" Bug Fix ", project="My  Project")
    assert (made.type, made.project) == ("bug-fix", "my-project")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"name": "Ann", "type": "Person"}, ("person", "Ann"), id="object"),
        pytest.param("person:Ann", ("person", "Ann"), id="typed name"),
        pytest.param("Ann", ("thing", "Ann"), id="plain name"),
        pytest.param("std::vector", ("thing", "std::vector"), id="scope is no type"),
        pytest.param("https://example.org", ("thing", "https://example.org"), id="address is no type"),
        pytest.param("module:asyncio.tasks", ("module", "asyncio.tasks"), id="dotted"),
    ],
)
def test_an_entity_is_read_in_every_spelling(value, expected):
    (entity,) = record(entities=[value]).entities
    assert (entity.type, entity.name) == expected


def test_concepts_and_links_may_be_plain_names():
    made = record(concepts=["caching", {"name": "TTL", "weight": 0.5}], links=["m1", {"rel": "Fixes", "target": "m2"}])
    assert [(c.name, c.weight) for c in made.concepts] == [("caching", None), ("TTL", 0.5)]
    assert [(link.rel, link.target) for link in made.links] == [("links-to", "m1"), ("fixes", "m2")]


def test_other_names_for_fields_are_known():
    made = MemoryRecord.model_validate(
        {"text": "A text.", "memory_type": "idea", "author": "Ann", "external_id": 7, "source_uri": "https://x.example"}
    )
    assert (made.content, made.type, made.authors, made.id) == ("A text.", "idea", ("Ann",), "7")
    assert made.source_url == "https://x.example"


def test_categories_are_paths_and_a_plain_string_is_one():
    assert record(categories="Backend, old/Data").categories == ("Backend, old/Data",)
    assert record(categories=[" A / B ", "A/B", "/"]).categories == ("A/B",)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"content": " \n"}, "content: is empty; a memory needs a text", id="empty content"),
        pytest.param({"content": ["x"]}, "content: must be text, not a list", id="no text"),
        pytest.param(
            {"content": "x" * 1_000_001}, "content: has 1,000,001 characters; up to 1,000,000 are allowed", id="long"
        ),
        pytest.param(
            {"title": "a\0b"}, "title: holds a NUL character (U+0000), which cannot be stored; remove it", id="NUL"
        ),
        pytest.param(
            {"tags": ["\ud83d"]},
            "tags[0]: holds half a character (the lone surrogate U+D83D); remove it",
            id="lone surrogate",
        ),
        pytest.param({"extra": {"deep": ["\0"]}}, "extra.deep[0]: holds a NUL", id="NUL in a field that is ignored"),
        pytest.param({"importance": 1.5}, "importance: 1.5 is too large: write a number from 0 to 1", id="range"),
        pytest.param({"importance": "high"}, "importance: 'high' is not a number", id="no number"),
        pytest.param({"pinned": "perhaps"}, "pinned: 'perhaps' is not a boolean: write true or false", id="switch"),
        pytest.param(
            {"state": "open"}, "state: 'open' is not one of the choices: write one of active, proposed, ", id="state"
        ),
        pytest.param({"tags": ["t"] * 1_001}, "tags: has 1,001 items; up to 1,000 are allowed", id="many"),
        pytest.param({"project": "p" * 101}, "project: has 101 characters; up to 100 are allowed", id="long slug"),
        pytest.param({"entities": [{}]}, "entities[0].name: is missing", id="nameless"),
        pytest.param({"entities": [5]}, "entities[0]: must be an object, not a number", id="no entity"),
        pytest.param(
            {"valid_from": "2026-02-01", "valid_to": "2026-01-01"}, "valid_to: is before valid_from", id="order"
        ),
        pytest.param({"categories": ["a/b/c/d/e/f/g/h/i/j/k/l/m"]}, "categories: 'a/b/c", id="deep category"),
    ],
)
def test_a_reason_names_the_field_and_what_is_allowed(fields, expected):
    (reason,) = reasons_for({"content": "A text.", **fields})
    assert reason.startswith(expected)


def test_every_wrong_field_has_its_reason():
    assert len(reasons_for({"created_at": "x", "state": "y", "importance": 2})) == 4


@pytest.mark.parametrize("data", [[], "text", 5])
def test_what_is_no_object_is_refused(data):
    assert reasons_for(data)[0].startswith("must be a JSON object, not ")


def test_the_strict_record_refuses_unknown_fields_and_suggests_one():
    assert reasons_for({"content": "x", "tgas": []}, StrictMemoryRecord) == ["tgas: is not a field; did you mean tags?"]
    assert record(tgas=[]).tags == ()


def test_changes_know_what_was_set():
    changes = MemoryChanges.model_validate({"title": None, "importance": None})
    assert changes.model_fields_set == {"title", "importance"}
    assert changes.title == ""
    assert reasons_for({"content": ""}, MemoryChanges) == ["content: is empty; a memory needs a text"]


@pytest.mark.parametrize(
    ("content", "title"),
    [
        pytest.param("intro\n\n## The *heading* ##\n\ntext", "The *heading*", id="first heading"),
        pytest.param("One sentence. Another one.", "One sentence.", id="first sentence"),
        pytest.param("Version 3.12 of\nit is out! Go.", "Version 3.12 of it is out!", id="over a line break"),
        pytest.param("no end\n\nnext", "no end", id="first paragraph"),
    ],
)
def test_a_title_is_derived_from_the_content(content, title):
    assert derived_title(content) == title


def test_a_vocabulary_line_says_what_it_is():
    made = parse_vocabulary({"record": "concept", "name": "caching", "aliases": "cache", "broader": ["speed"]})
    assert isinstance(made, ConceptRecord)
    assert (made.aliases, made.broader) == (("cache",), ("speed",))
    assert not is_vocabulary({"record": "r-12", "content": "a memory with a field of that name"})
    with pytest.raises(ValidationError) as caught:
        parse_vocabulary({"record": "categry"})
    assert reasons(caught.value, MemoryRecord) == [
        "record: 'categry' is not known: write one of memory, project, session, category, tag, concept,"
        " entity, relationship"
    ]
