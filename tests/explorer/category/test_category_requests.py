"""Requests of categories are parsed strictly, in every spelling, and limits are clamped."""

import pytest

from explorer.categories.schemas import CategoryListRequest, CategoryRequest, ConceptListRequest
from web.params import QueryError


def asked(request):
    names = (name.removeprefix("requested_") for name in type(request).model_fields)
    return {name: getattr(request, name) for name in names}


def test_nothing_asked_is_what_the_specification_says():
    assert asked(CategoryRequest.from_pairs([("category", "tea")])) == {
        "name": "tea",
        "include_children": False,
        "include_chunks": False,
        "limit": 10,
        "page": 1,
    }
    assert asked(CategoryListRequest.from_pairs([])) == {
        "sort_by": "popularity",
        "limit": 50,
        "include_hierarchy": False,
        "filter": "",
        "page": 1,
        "offset": 0,
    }
    assert asked(ConceptListRequest.from_pairs([], name="tea")) == {
        "name": "tea",
        "sort_by": "document_count",
        "limit": 50,
        "include_children": False,
    }


def test_the_spellings_of_the_specification_are_taken():
    pairs = [("category", "ML"), ("includeChildren", "true"), ("includeChunks", "1"), ("limit", "50")]
    assert asked(CategoryRequest.from_pairs(pairs)) == {
        "name": "ML",
        "include_children": True,
        "include_chunks": True,
        "limit": 50,
        "page": 1,
    }
    listed = CategoryListRequest.from_pairs(
        [("sortBy", "documentCount"), ("includeHierarchy", "true"), ("filter", "soft")]
    )
    assert (listed.sort_by, listed.include_hierarchy, listed.filter) == ("document_count", True, "soft")


@pytest.mark.parametrize(
    ("given", "most", "taken"),
    [
        pytest.param("0", 100, 1, id="none"),
        pytest.param("-5", 100, 1, id="less than none"),
        pytest.param("101", 100, 100, id="one too many"),
        pytest.param("9" * 400, 100, 100, id="a number without end"),
        pytest.param("201", 200, 200, id="of a list"),
    ],
)
def test_limit_is_brought_into_its_bounds_and_told(given, most, taken):
    pairs = [("limit", given)]
    request = CategoryRequest.from_pairs(pairs, name="tea") if most == 100 else CategoryListRequest.from_pairs(pairs)
    assert request.limit == taken
    (notice,) = request.notices
    assert notice.parameter == "limit"
    assert notice.message.endswith(f"is out of bounds: {taken} is used (1 to {most}).")


def test_limit_within_its_bounds_is_nothing_to_tell():
    assert CategoryRequest.from_pairs([("limit", "100")], name="tea").notices == ()


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        pytest.param([("limit", "ten")], "limit: 'ten' is not a whole number", id="a limit in words"),
        pytest.param([("limit", "٣")], "limit: '٣' is not a whole number", id="digits of another script"),
        pytest.param(
            [("include_children", "maybe")], "include_children: 'maybe' is not a boolean (1 or 0)", id="a boolean"
        ),
        pytest.param([("include_childs", "1")], "include_childs: is not a parameter", id="an unknown name"),
        pytest.param([("limit", "3"), ("limit", "4")], "limit: is given twice with different values", id="twice"),
        pytest.param([("q", "tea")], "q: is not a parameter", id="a search's own"),
    ],
)
def test_what_cannot_be_read_is_named(pairs, said):
    with pytest.raises(QueryError) as error:
        CategoryRequest.from_pairs(pairs, name="tea")
    assert str(error.value) == said


def test_all_that_is_wrong_is_named_at_once():
    with pytest.raises(QueryError) as error:
        CategoryListRequest.from_pairs([("sort_by", "documentCounts"), ("limit", "x")])
    assert [problem.parameter for problem in error.value.problems] == ["sort_by", "limit"]
    assert error.value.problems[0].did_you_mean == ("document_count",)


def test_a_category_must_be_named():
    with pytest.raises(QueryError, match="category: is missing"):
        CategoryRequest.from_pairs([("category", "  ")])
