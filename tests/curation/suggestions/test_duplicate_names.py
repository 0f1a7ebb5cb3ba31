"""When two names may mean the same."""

import pytest

from curation.suggestions.duplicate_names import compare_by_meaning, compare_names, normal_form


@pytest.mark.parametrize(
    ("one", "other", "trigram", "confidence"),
    [
        pytest.param("SQLite", "sqlite", 1.0, 0.99, id="case"),
        pytest.param("full-text search", "Full text search", 1.0, 0.95, id="separators"),
        pytest.param("café", "Cafe", 0.5, 0.95, id="accents"),
        pytest.param("foo_bar", "foo-bar", 0.6, 0.6, id="joints of code"),
        pytest.param("Storchaka, Serhiy", "Serhiy Storchaka", 0.9, 0.9, id="another order"),
        pytest.param("test", "tests", 0.6, 0.85, id="plural"),
        pytest.param("query", "queries", 0.5, 0.85, id="plural in -ies"),
    ],
)
def test_names_that_are_the_same_but_for_their_form(one, other, trigram, confidence):
    found = compare_names(one, other, trigram)
    assert (found.confidence, found.rule) == (confidence, "exact")


def test_names_that_are_spelt_alike_are_less_sure():
    found = compare_names("Victor Stinner", "Viktor Stinner", 0.64)
    assert found.rule == "spelling"
    assert 0.4 < found.confidence < 0.6


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("python-3.11", "python-3.12", id="versions"),
        pytest.param("PEP 440", "PEP 441", id="numbers"),
        pytest.param("getattr_static", "setattr_static", id="code"),
        pytest.param("MatMenuItem", "MatMenuItems", id="camel case"),
        pytest.param("C", "C++", id="a language and another"),
        pytest.param("_foo", "foo", id="private and public"),
        pytest.param("John Smith", "Joan Smith-Jones", id="a name more"),
        pytest.param("Anna Berg", "Otto Berg", id="a family"),
        pytest.param("form", "from", id="too short"),
    ],
)
def test_names_that_are_alike_and_not_the_same(one, other):
    assert compare_names(one, other, 0.9) is None


def test_an_initial_more_is_no_other_person():
    assert compare_names("Guido van Rossum", "Guido M. van Rossum", 0.8) is not None


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param("  Full-Text  Search ", "fulltextsearch", id="words"),
        pytest.param("__init__", "__init__", id="underscores at the ends"),
        pytest.param("os.path.join()", "ospathjoin", id="a call"),
        pytest.param("C++", "c++", id="signs that mean something"),
    ],
)
def test_normal_form(name, form):
    assert normal_form(name) == form


def test_meaning_speaks_for_words_and_never_for_code_or_numbers():
    assert compare_by_meaning("garbage collection", "garbage collector", 0.95).rule == "meaning"
    assert compare_by_meaning("Terry Reedy", "Terry Jan Reedy", 0.9) is not None
    assert compare_by_meaning("Ryan Gonzalez", "David Gonzalez", 0.95) is None
    assert compare_by_meaning("socket", "socketserver", 0.95) is None
    assert compare_by_meaning("asyncio.run", "asyncio.start", 0.99) is None
    assert compare_by_meaning("phase one 1", "phase one 2", 0.99) is None
