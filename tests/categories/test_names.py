"""One normalisation of names for all kinds, and equality that ignores case and what is invisible."""

import json

import pytest

from access.viewer import command_viewer
from categories.models import Concept
from categories.paths import PathError, clean_name, fold_name, parse_path, spellings
from memories.models import Memory
from memories.records import MemoryRecord, normalise_tag
from memories.services import memory_create
from search.query import SearchQuery
from search.run import run

KINDS = ["tag", "concept", "entity", "category", "author", "agent", "source", "type"]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        pytest.param("می‌خواهم", "می‌خواهم", id="joiner between Arabic letters"),
        pytest.param("क्‍ष", "क्‍ष", id="joiner after a virama"),
        pytest.param("র\u200d্যাম", "র\u200d্যাম", id="joiner before a virama"),
        pytest.param("അവന്\u200d", "അവന്\u200d", id="joiner after the virama at the end"),
        pytest.param("👩‍👩‍👧", "👩‍👩‍👧", id="family"),
        pytest.param("🏳️‍🌈", "🏳️‍🌈", id="selector and joiner"),
        pytest.param("❤\ufe0f tea", "❤\ufe0f tea", id="emoji with a selector"),
        pytest.param("می‌", "می", id="joiner at the edge"),
        pytest.param("می‌‌خ", "می‌خ", id="two joiners"),
        pytest.param("te\u200da", "tea", id="joiner between Latin letters"),
        pytest.param("zwsp\u200bx", "zwspx", id="zero width space"),
        pytest.param("\ufefftea", "tea", id="byte order mark"),
        pytest.param("te\u00ada", "tea", id="soft hyphen"),
        pytest.param("\u200ftea\u200e", "tea", id="direction marks"),
        pytest.param("\u202eevil\u202c", "evil", id="override"),
        pytest.param("\u2066tea\u2069", "tea", id="isolates"),
        pytest.param("a\u3164b\u2800", "ab", id="blank letters"),
        pytest.param("tea\ufe0f", "tea", id="selector of a letter"),
        pytest.param("e\u0301", "é", id="decomposed"),
        pytest.param("e\u034f\u0301", "é", id="joined by an invisible mark"),
        pytest.param("\u200b", "", id="nothing visible"),
        pytest.param(" green\u00a0 tea\n", "green tea", id="white space"),
    ],
)
def test_names_of_all_kinds_are_stored_as_they_are_seen(written, shown):
    assert clean_name(written) == clean_name(shown) == shown
    assert normalise_tag(written) == shown.replace(" ", "-")


@pytest.mark.parametrize(
    ("written", "stored"),
    [("Straße", "straße"), ("ΛΌΓΟΣ", "λόγος"), ("λόγος", "λόγος"), ("ﬁn", "ﬁn"), ("Green Tea", "green-tea")],
)
def test_tags_are_shown_in_lower_case_as_written(written, stored):
    assert normalise_tag(written) == stored == normalise_tag(stored)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Straße", "STRASSE"), ("λόγος", "ΛΌΓΟΣ"), ("ﬁn", "FIN"), ("می‌خواهم", "میخواهم"), ("STRAẞE", "strasse")],
)
def test_equal_names_have_one_key_and_find_each_other(one, other):
    assert fold_name(one) == fold_name(other)
    assert {form.lower() for form in spellings(one)} & {form.lower() for form in spellings(other)}


@pytest.mark.parametrize("path", ["a/..", ".", "Notes/./x", "\uff0e\uff0e", "\u200b", "a/\u202e/b"])
def test_path_that_an_address_cannot_have_is_refused(path):
    with pytest.raises(PathError):
        parse_path(path)


@pytest.mark.parametrize("field", ["tags", "categories", "authors"])
@pytest.mark.parametrize("name", ["\u200b", "\u202e\u202c", "\ufeff\u00ad", "\u3164"])
def test_name_of_nothing_visible_is_refused(field, name):
    with pytest.raises(ValueError, match="no visible character"):
        MemoryRecord(content="x", **{field: [name]})


@pytest.mark.parametrize("weight", [7, 1.01, -0.1])
def test_weight_of_a_concept_is_a_share(weight):
    with pytest.raises(ValueError, match="weight"):
        MemoryRecord(content="x", concepts=[{"name": "tea", "weight": weight}])
    assert MemoryRecord(content="x", concepts=[{"name": "tea", "weight": 1}]).concepts[0].weight == 1


# --- with the database -------------------------------------------------------------------------------------------

FIELD = {"tag": "tags", "concept": "concepts", "entity": "entities", "category": "categories", "author": "authors"}


def store(kind, name, content="words"):
    value = [name] if kind in FIELD else name
    record = MemoryRecord(content=content, project="tea", **{FIELD.get(kind, kind): value})
    return memory_create(record=record, viewer=command_viewer())


def total(key, name):
    return run(SearchQuery.from_mapping({key: name}), command_viewer()).total


@pytest.mark.django_db
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("stored", "asked"),
    [("é", "e\u0301"), ("می‌خواهم", "می‌خواهم"), ("zwspx", "zwsp\u200bx"), ("te\u00ada", "tea"), ("👩‍👩‍👧", "👩‍👩‍👧")],
)
def test_a_name_is_found_however_it_is_encoded(kind, stored, asked):
    store(kind, stored)
    store(kind, "other", "other words")
    assert total(kind, asked) == 1
    assert total(f"-{kind}", asked) == 1


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["tag", "concept", "entity", "category"])
@pytest.mark.parametrize(("one", "other"), [("λόγος", "ΛΌΓΟΣ"), ("Straße", "STRASSE"), ("STRASSE", "straße")])
def test_names_that_differ_by_case_alone_are_one(kind, one, other):
    store(kind, one, "first")
    store(kind, other, "second")
    for name in (one, other):
        assert total(kind, name) == 2
    if kind == "tag":
        assert {tag for memory in Memory.objects.all() for tag in memory.tags} == {normalise_tag(one)}
    if kind == "concept":
        assert [concept.name for concept in Concept.objects.all()] == [one]


@pytest.mark.django_db
@pytest.mark.parametrize("kind", ["tag", "concept", "entity"])
@pytest.mark.parametrize(
    ("one", "other"), [("µs", "μs"), ("👩\u200d👩", "👩👩"), ("ŉa", "ʼna"), ("ςa", "σa"), ("STRASSE", "Straße")]
)
def test_equal_names_of_one_memory_are_one(kind, one, other):
    record = MemoryRecord(content="words", project="tea", **{FIELD[kind]: [one, other]})
    memory = memory_create(record=record, viewer=command_viewer())
    assert len({"tag": memory.tags, "concept": memory.concept_ids, "entity": memory.entity_ids}[kind]) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("kind", "before", "asked"),
    [
        pytest.param("tag", "strasse", "Straße", id="folded tag"),
        pytest.param("tag", "λόγοσ", "λόγος", id="folded sigma"),
        pytest.param("tag", "zwsp\u200bx", "zwsp\u200bx", id="invisible in a tag"),
        pytest.param("agent", "میخواهم", "می‌خواهم", id="agent without its joiner"),
    ],
)
def test_what_was_stored_in_another_form_is_found_by_the_same_question(kind, before, asked):
    memory = store("type", "note")
    Memory.objects.filter(pk=memory.pk).update(**{FIELD.get(kind, kind): [before] if kind == "tag" else before})
    assert total(kind, asked) == 1
    assert total(kind, before) == 1
    assert total(f"-{kind}", asked) == 0
    assert json.dumps(before)
