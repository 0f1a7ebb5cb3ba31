import pytest

from categories.paths import MAX_DEPTH, PathError, parse_path, slug


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("Data Stores", "data-stores", id="case and blanks"),
        pytest.param("  Data \t Stores ", "data-stores", id="runs of blanks"),
        pytest.param("C++", "c++", id="plus"),
        pytest.param("C#", "c#", id="hash"),
        pytest.param("3.8.0a1", "3.8.0a1", id="version"),
        pytest.param(".github", ".github", id="leading dot"),
        pytest.param("Straße", "strasse", id="case folding"),
        pytest.param("ＡＰＩ", "api", id="full width"),
        pytest.param("a／b", "a-b", id="full-width solidus never separates"),
        pytest.param("Zoe\u0301", "zoé", id="composed"),
        pytest.param("a\u200bb\x07", "ab", id="what cannot be printed"),
    ],
)
def test_slug_folds_case_width_and_blanks_and_nothing_else(name, expected):
    assert slug(name) == expected


def test_names_that_differ_in_a_symbol_stay_distinct():
    assert len({slug(name) for name in ("C", "C++", "C#", ".c")}) == 4


def test_a_path_keeps_the_names_and_spells_every_ancestor():
    path = parse_path(" Backend //Data Stores/ C++ /")
    assert path is not None
    assert path.names == ("Backend", "Data Stores", "C++")
    assert path.paths == ("backend", "backend/data-stores", "backend/data-stores/c++")
    assert path.path == "backend/data-stores/c++"
    assert str(path) == "Backend/Data Stores/C++"


def test_a_path_that_is_too_deep_says_how_deep_it_may_be():
    with pytest.raises(PathError, match=f"13 levels deep; a category has up to {MAX_DEPTH}"):
        parse_path("/".join("abcdefghijklm"))
