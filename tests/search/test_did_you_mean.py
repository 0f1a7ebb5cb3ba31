"""Suggestions of filters for texts that are names but match no memory."""

from dataclasses import replace

import pytest

from categories.models import Category, Concept
from memories.models import Project
from search.query import Mode, SearchQuery
from search.run import run

pytestmark = pytest.mark.usefixtures("corpus")


def named(viewer, **arguments):
    warnings = run(SearchQuery.from_mapping(arguments), viewer).warnings
    return [(w.parameter, w.did_you_mean) for w in warnings if "with that name" in w.message]


@pytest.fixture
def _renamed(corpus):
    """Memories with names that do not occur in texts."""
    Category.objects.filter(path="kitchen/oven").update(name="Hearthstone")
    Concept.objects.filter(name="temperature").update(name="Zeal")


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
@pytest.mark.parametrize("text", ["Mio", "mio", '"Mio"', " mio "])
def test_what_is_no_word_and_is_a_name_is_told_with_its_count(everyone, text, mode):
    assert named(everyone, q=text, mode=mode)[0] == ("author", ("Mio",))
    total = run(SearchQuery(author=("Mio",)), everyone).total
    (warning, *_) = run(SearchQuery(text=text, mode=Mode.KEYWORD), everyone).warnings
    said = text.strip().strip('"')
    assert warning.message == f"No memory contains “{said}”, but {total} memories have the author with that name."


@pytest.mark.usefixtures("_renamed")
@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ('"hearthstone"', "category", "kitchen/oven"),
        ('"zeal"', "concept", "Zeal"),
        ("tea HOUSE", "project", "tea"),
        ("claude-code", "agent", "claude-code"),
    ],
)
def test_every_facet_with_names_of_its_own_is_told_as_a_query_says_it(everyone, text, key, value):
    assert named(everyone, q=text) == [(key, (value,))]
    message = run(SearchQuery(text=text, mode=Mode.KEYWORD), everyone).warnings[0].message
    assert f" {run(SearchQuery.from_mapping({key: value}), everyone).total} memor" in message


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"q": "kettle"}, id="is a word too"),
        pytest.param({"q": "Mio", "author": "Ben", "entity": "kettle"}, id="chosen in those already"),
        pytest.param({"q": "Hearthstone", "project": "boat"}, id="of nobody under the other filters"),
        pytest.param({"q": "nobody"}, id="is no name"),
        pytest.param({"q": "who was it that Mio met here"}, id="a sentence"),
        pytest.param({"q": "-tea"}, id="no word to search for"),
    ],
)
@pytest.mark.usefixtures("_renamed")
def test_otherwise_nothing_is_told(everyone, arguments):
    assert named(everyone, **arguments) == []


def test_a_name_tells_nothing_of_what_may_not_be_seen(everyone):
    restricted = replace(everyone, project_ids=frozenset([Project.objects.get(slug="boat").pk]))
    assert named(restricted, q="Tea house") == []
    assert [key for key, _ in named(restricted, q='"Mio"')] == ["entity"]
    seen = run(SearchQuery(entity=("Mio",)), restricted).total
    assert 0 < seen < run(SearchQuery(entity=("Mio",)), everyone).total
    said = "1 memory has" if seen == 1 else f"{seen} memories have"
    assert said in run(SearchQuery(text='"Mio"', mode=Mode.KEYWORD), restricted).warnings[0].message


@pytest.mark.usefixtures("embedded")
def test_misspelled_word_is_named_though_memories_match_by_meaning(everyone):
    found = run(SearchQuery(text="kettel", min_similarity=0), everyone)
    assert found.total > 0
    assert [(w.message, w.did_you_mean) for w in found.warnings] == [
        ("No memory contains the word “kettel”.", ("kettle",))
    ]
    assert run(SearchQuery(text="kettle", min_similarity=0), everyone).warnings == ()
