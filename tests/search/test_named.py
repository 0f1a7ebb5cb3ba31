"""Words that no memory has, and that are a name: which filter finds what the words do not."""

from dataclasses import replace

import pytest

from categories.models import Entity
from memories.models import Project
from search.query import SearchQuery
from search.run import run

pytestmark = pytest.mark.usefixtures("corpus")


def named(viewer, **arguments):
    warnings = run(SearchQuery.from_mapping(arguments), viewer).warnings
    return [(w.parameter, w.did_you_mean) for w in warnings if "filter by it instead" in w.message]


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
@pytest.mark.parametrize("text", ["Mio", "mio", '"Mio"', " mio "])
def test_what_is_no_word_and_is_a_name_is_told_with_its_count(everyone, text, mode):
    by_author = run(SearchQuery(author=("Mio",)), everyone).total
    assert named(everyone, q=text, mode=mode)[0] == ("author", ("Mio",))
    (warning, *_) = run(SearchQuery(text=text), everyone).warnings
    said = text.strip().strip('"')
    assert warning.message == (
        f"“{said}” is in no text here, but is the name of an author with {by_author} memories: filter by it instead."
    )


@pytest.mark.parametrize(
    ("text", "key"),
    [("stove", "category"), ("Tea house", "project"), ("claude-code", "agent"), ("person:Mio", "entity")],
)
def test_every_facet_with_names_of_its_own_is_told(everyone, text, key):
    ((found, (name,)),) = named(everyone, q=text)
    assert found == key
    assert run(SearchQuery.from_mapping({found: name}), everyone).total


def test_the_filter_that_finds_most_comes_first(everyone):
    (first, second) = named(everyone, q="Mio")
    assert (first[0], second[0]) == ("author", "entity")
    counts = [run(SearchQuery.from_mapping({key: name[0]}), everyone).total for key, name in (first, second)]
    assert counts[0] > counts[1] > 0


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"q": "kettle"}, id="is a word too"),
        pytest.param({"q": "Mio", "author": "Ben", "entity": "kettle"}, id="chosen in those already"),
        pytest.param({"q": "stove", "project": "boat"}, id="of nobody under the other filters"),
        pytest.param({"q": "nobody"}, id="is no name"),
        pytest.param({"q": "who was it that Mio met here"}, id="a sentence"),
        pytest.param({"q": "-tea"}, id="no word to look for"),
    ],
)
def test_otherwise_nothing_is_told(everyone, arguments):
    assert named(everyone, **arguments) == []


def test_a_number_is_not_taken_for_an_id(everyone):
    assert [
        number for pk in Entity.objects.values_list("pk", flat=True) if named(everyone, q=(number := str(pk)))
    ] == []


def test_a_name_tells_nothing_of_what_may_not_be_seen(everyone):
    boat = frozenset([Project.objects.get(slug="boat").pk])
    restricted = replace(everyone, project_ids=boat)
    assert named(everyone, q="stove")
    assert named(restricted, q="stove") == []
    assert named(restricted, q="Tea house") == []


def test_the_page_links_to_the_filter_without_the_words(client, django_user_model):
    client.force_login(django_user_model.objects.create_superuser("root"))
    page = client.get("/explore/", {"q": "Mio", "project": "tea"}).text
    assert (
        'href="/explore/?author=Mio&amp;project=tea"' in page or 'href="/explore/?project=tea&amp;author=Mio"' in page
    )
    assert "Nothing has the word" not in page
