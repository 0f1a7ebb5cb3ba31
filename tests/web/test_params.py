"""The reader of parameters: pairs in, a frozen request and problems out, and back to the canonical query string."""

from enum import StrEnum
from typing import Annotated, Literal

import pytest
from django.http import QueryDict
from pydantic import Field, ValidationError

from web.params import Params, QueryError, Required, Text, Values, pairs_of


class Shade(StrEnum):
    LIGHT = "light"
    DARK = "dark"


class TeaRequest(Params):
    """An order of tea."""

    aliases = {"kinds": "kind", "maxCups": "cups"}

    text: Text = Field("", alias="q", max_length=10, description="Words.")
    kind: Values = ()
    cups: int = Field(1, ge=1, le=9)
    warmth: float | None = Field(None, ge=0, le=1)
    milk: bool = False
    shade: Shade = Shade.LIGHT
    size: Literal["small", "large", ""] = ""
    guest: Annotated[Text, Required("write a name")] = Field("", alias="for")
    page: int = Field(1, ge=1, le=100)


def read(querystring):
    return TeaRequest.read(pairs_of(QueryDict(querystring)))


def problem(querystring):
    _, (found,) = read(querystring)
    return found.parameter, found.message, found.suggestion


def test_parameters_are_read_by_name_and_by_alias():
    request, problems = read("q= oolong &kinds=b&kind=a&kind=b&kind=&maxCups=3&milk=true&warmth=0.5&shade=dark&for=Ann")
    assert problems == ()
    assert request == TeaRequest(
        text="oolong", kind=("a", "b"), cups=3, milk=True, warmth=0.5, shade=Shade.DARK, guest="Ann"
    )


def test_the_canonical_form_has_the_order_of_the_fields_and_no_defaults():
    request, _ = read("shade=dark&page=1&milk=1&kind=b&kind=a&q=oolong")
    assert request.querystring() == "q=oolong&kind=a&kind=b&milk=1&shade=dark"
    assert TeaRequest.read(request.parameters()) == (request, ())


@pytest.mark.parametrize(
    ("querystring", "expected"),
    [
        pytest.param("cups=many", ("cups", "'many' is not a whole number", "write a number from 1 to 9"), id="number"),
        pytest.param("cups=0", ("cups", "0 is too small", "write a number from 1 to 9"), id="too small"),
        pytest.param("cups=10", ("cups", "10 is too large", "write a number from 1 to 9"), id="too large"),
        pytest.param("warmth=hot", ("warmth", "'hot' is not a number", "write a number from 0 to 1"), id="fraction"),
        pytest.param("milk=some", ("milk", "'some' is not a boolean (1 or 0)", "write 1 or 0"), id="boolean"),
        pytest.param(
            "shade=darj", ("shade", "'darj' is not one of the choices", "write one of light, dark"), id="enum"
        ),
        pytest.param(
            "size=tall", ("size", "'tall' is not one of the choices", "write one of small, large"), id="choice"
        ),
        pytest.param("q=" + "x" * 1_100, ("q", "is 1,100 characters long", "write at most 10"), id="long"),
        pytest.param(
            "q=a%00", ("q", "'a�' holds a character that is not text (NUL or half of a surrogate pair)", ""), id="NUL"
        ),
        pytest.param(
            "cups=1&cups=2", ("cups", "is given twice with different values", "give one value, not several"), id="twice"
        ),
        pytest.param(
            "&".join(f"kind={n}" for n in range(101)), ("kind", "has too many values", "give at most 100"), id="many"
        ),
    ],
)
def test_an_invalid_parameter_is_described(querystring, expected):
    assert problem(querystring) == expected


def test_an_unknown_parameter_is_a_problem_with_the_names_there_are():
    _, (found,) = read("kindz=a")
    assert (found.message, found.did_you_mean) == ("is not a parameter", ("kind", "kinds"))
    assert found.suggestion == "the parameters are q, kind, cups, warmth, milk, shade, size, for, page"
    _, (found,) = Params.read([("q", "tea")])
    assert found.suggestion == "there are no parameters here"


def test_a_lenient_reading_keeps_what_is_valid():
    request, problems = read("q=tea&cups=many&colour=red&milk=some&kind=a")
    assert request == TeaRequest(text="tea", kind=("a",))
    assert [found.parameter for found in problems] == ["colour", "cups", "milk"]


def test_a_strict_reading_names_every_problem_and_what_is_missing():
    with pytest.raises(QueryError) as error:
        TeaRequest.from_pairs([("cups", "0"), ("colour", "red")])
    assert str(error.value) == "colour: is not a parameter; cups: 0 is too small; for: is missing"
    assert (error.value.status, error.value.code) == (422, "invalid_query")
    assert error.value.suggestion.endswith("; write a number from 1 to 9; write a name")
    assert TeaRequest.from_mapping({"for": "Ann", "kind": {"b", "a"}, "milk": True, "q": None}) == TeaRequest(
        guest="Ann", kind=("a", "b"), milk=True
    )


def test_the_openapi_parameters_say_what_is_allowed():
    listed = {parameter["name"]: parameter for parameter in TeaRequest.openapi_parameters(without={"page"})}
    assert list(listed) == ["q", "kind", "cups", "warmth", "milk", "shade", "size", "for"]
    assert listed["q"] == {
        "name": "q",
        "in": "query",
        "required": False,
        "schema": {"type": "string", "maxLength": 10, "default": ""},
        "description": "Words.",
    }
    assert listed["warmth"]["schema"] == {"type": "number", "minimum": 0, "maximum": 1}
    assert listed["shade"]["schema"] == {"type": "string", "enum": ["light", "dark"], "default": "light"}
    assert listed["size"]["schema"] == {"type": "string", "enum": ["small", "large"]}
    assert (listed["for"]["required"], listed["for"]["schema"]) == (True, {"type": "string"})


def test_a_request_cannot_be_changed_but_copied():
    request = TeaRequest(cups=2, page=4)
    with pytest.raises(ValidationError):
        request.cups = 3
    assert (request.replace(cups=3).page, request.with_(cups=3).page) == (4, 1)


def test_pairs_of_others_are_split_off():
    pairs = [("kinds", "a"), ("sort", "name"), ("page", "2")]
    assert TeaRequest.split(pairs) == ([("kinds", "a"), ("page", "2")], [("sort", "name")])
