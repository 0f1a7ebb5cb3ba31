"""When two names may mean the same."""

from itertools import combinations

import pytest

from curation.suggestions.duplicate_names import (
    NameSimilarity,
    compare_by_meaning,
    compare_names,
    normal_form,
    pairs_to_merge,
)


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


ALIKE = NameSimilarity(0.9, "", "exact")


def pairs(forms, projects=None):
    """The pairs proposed for forms that are all alike, given the number of memories of each."""
    projects = projects or dict.fromkeys(forms, 1)
    found = dict.fromkeys(combinations(sorted(forms), 2), ALIKE)
    uses = {form: {projects[form]: count} for form, count in forms.items() if count}
    return list(pairs_to_merge(found, uses, str))


def test_forms_of_one_tag_are_merged_towards_the_commonest():
    forms = {"kubernetes": 9, "kubernets": 2, "kuberntes": 1, "kubernete": 1, "Kubernetes": 4}
    assert {target for _, target in pairs(forms)} == {"kubernetes"}
    assert len(pairs(forms)) == 4


@pytest.mark.parametrize(
    ("forms", "projects", "expected"),
    [
        pytest.param({"deploy": 3, "deploys": 0}, None, [], id="nothing for a name without memories"),
        pytest.param({"ovens": 2, "oven": 2}, None, [("ovens", "oven")], id="shorter of as many"),
        pytest.param(
            {"a-b": 5, "ab": 1, "a_b": 1}, {"a-b": 1, "ab": 2, "a_b": 2},
            [("a_b", "ab"), ("a_b", "a-b"), ("ab", "a-b")], id="who sees two and not the commonest is asked of these",
        ),
        pytest.param(
            {"a-b": 5, "ab": 1, "a_b": 1}, None, [("a_b", "a-b"), ("ab", "a-b")], id="who sees all is asked of these"
        ),
    ],
)  # fmt: skip
def test_pairs_that_are_proposed_of_forms_that_are_alike(forms, projects, expected):
    assert sorted(pairs(forms, projects)) == sorted(expected)


def test_forms_that_only_a_third_links_are_merged_by_it():
    found = {("colour", "colours"): ALIKE, ("color", "colour"): ALIKE}
    uses = {"colours": {1: 9}, "colour": {1: 3}, "color": {1: 1}}
    assert sorted(pairs_to_merge(found, uses, str)) == [("color", "colour"), ("colour", "colours")]
