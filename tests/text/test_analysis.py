import pytest
from hypothesis import given
from hypothesis import strategies as st

from text.analysis import MAX_POSITIONS_PER_TERM, index_terms, to_tsvector, tokens


def terms_of(text):
    return {term for token in tokens(text) for term, _ in token.terms}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("C++ and C#", {"c++", "c#"}),
        ("rm -rf --no-preserve-root", {"-rf", "--no-preserve-root", "rf"}),
        ("https://bugs.python.org/issue32925", {"bugs.python", "python.org", "org/issue32925", "issue32925"}),
        ("std::vector", {"std::vector", "std", "vector"}),
        ("@Input() #123 .NET", {"@input", "#123", ".net"}),
        ("ＦＵＬＬ width", {"full"}),
    ],
)
def test_what_symbols_hold_together_is_kept_whole(text, kept):
    assert kept <= terms_of(text)


@given(st.text(max_size=300))
def test_tokens_never_fail_and_point_into_the_text(text):
    for token in tokens(text):
        assert 0 <= token.start < token.end <= len(text)
        assert all(term for term, _ in token.terms)


def test_a_phrase_does_not_run_across_fields():
    index = index_terms([("green", "A"), ("tea", "D")])
    assert index["tea"][0][0] - index["green"][0][0] > 1


def test_positions_of_a_term_are_bounded():
    assert len(index_terms([("tea " * 1000, "D")])["tea"]) == MAX_POSITIONS_PER_TERM


def test_tsvector_literal_quotes_terms():
    assert to_tsvector({"o'b\\c": [(1, "A"), (3, "D")]}) == "'o''b\\\\c':1A,3D"
