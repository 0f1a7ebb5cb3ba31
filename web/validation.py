"""Invalid input in sentences: what is wrong with a parameter or a field, and what is allowed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from typing import Any

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from text.formatting import legible


@dataclass(frozen=True, slots=True)
class Problem:
    """An invalid parameter or field: what is wrong with it, what is allowed, and which names are similar."""

    parameter: str
    message: str
    suggestion: str = ""
    did_you_mean: tuple[str, ...] = ()
    is_unknown_name: bool = False
    """Whether no parameter has this name; the suggestion then lists all names."""

    def named_as(self, given: Mapping[str, str]) -> "Problem":
        """With parameters by the names that the caller gave for them, also where the suggestion writes one."""
        suggestion = self.suggestion
        for name, written in given.items():
            place = rf"(?<![\w.-]){re.escape(name)}(?==)|(?<=leave ){re.escape(name)}(?= out)"
            suggestion = re.sub(place, written, suggestion)
        return replace(self, parameter=given.get(self.parameter, self.parameter), suggestion=suggestion)

    def __str__(self) -> str:
        return f"{self.parameter}: {self.message}" if self.parameter else self.message


def refuse(reason: str) -> PydanticCustomError:
    """A validator's error whose message is shown to people as it is. A colon separates it from the suggestion."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


def reasons(error: ValidationError, model: type[BaseModel]) -> list[str]:
    """The invalid fields of a record, a sentence for each."""
    return [sentence(problem) for problem in problems_of(error, model)]


def problems_of(error: ValidationError, model: type[BaseModel], below: int = 0) -> list[Problem]:
    """The invalid fields of a JSON value. The first `below` steps of their places are unknown to the sender."""
    found = []
    for detail in error.errors(include_url=False):
        place = _place(detail["loc"][below:])
        if detail["type"] == "extra_forbidden":
            found.append(_unknown_field(place, str(detail["loc"][-1]), model))
        else:
            found.append(_problem_of_json(place, detail))
    return found


def sentence(problem: Problem) -> str:
    return f"{problem}: {problem.suggestion}" if problem.suggestion else str(problem)


def problem_of_parameter(parameter: str, detail: ErrorDetails, value: str, allowed: str) -> Problem:
    """The problem of a parameter of a query string. `allowed` is the suggestion for a number, if it is bounded."""
    shown_value = legible(value, 80)
    if detail["type"] in {"bool_parsing", "bool_type"}:
        return Problem(parameter, f"'{shown_value}' is not a boolean (1 or 0)", "write 1 or 0")
    if detail["type"] == "value_error":
        message, _, suggestion = str(detail["ctx"]["error"]).partition(": ")
        return Problem(parameter, f"'{shown_value}' {message}", suggestion)
    problem = _problem(parameter, detail, f"'{shown_value}'", shown_value, len(value), allowed)
    if choices := _choices(detail):
        return Problem(parameter, problem.message, problem.suggestion, tuple(get_close_matches(value[:80], choices, 3)))
    return problem


def _problem_of_json(place: str, detail: ErrorDetails) -> Problem:
    value = detail["input"]
    match detail["type"]:
        case "missing":
            return Problem(place, "is missing")
        case "string_too_short" | "too_short":
            return Problem(place, "is empty")
        case "string_type":
            return Problem(place, f"must be text, not {kind_of(value)}")
        case "list_type":
            return Problem(place, f"must be a list, not {kind_of(value)}")
        case "model_type" | "model_attributes_type" | "dict_type":
            return Problem(place, f"must be {'an object' if place else 'a JSON object'}, not {kind_of(value)}")
        case "bool_type" | "bool_parsing":
            return Problem(place, f"{shown(value)} is not a boolean", "write true or false")
    size = len(value) if isinstance(value, str | list | tuple) else 0
    return _problem(place, detail, shown(value), shown(value), size, _number_range(detail))


def _problem(place: str, detail: ErrorDetails, quoted: str, number: str, size: int, allowed: str) -> Problem:
    """The problems that parameters and JSON have in common."""
    context = detail.get("ctx") or {}
    match detail["type"]:
        case "refused":
            message, _, suggestion = detail["msg"].partition(": ")
            return Problem(place, message, suggestion)
        case "enum" | "literal_error":
            return Problem(place, f"{quoted} is not one of the choices", f"write one of {', '.join(_choices(detail))}")
        case "string_too_long":
            return Problem(place, f"is {size:,} characters long", f"write at most {context['max_length']:,}")
        case "too_long":
            return Problem(place, "has too many values", f"give at most {context['max_length']:,}")
        case "int_parsing" | "int_type" | "int_from_float":
            return Problem(place, f"{quoted} is not a whole number", allowed or "write a number such as 1")
        case "float_parsing" | "float_type" | "finite_number":
            return Problem(place, f"{quoted} is not a number", allowed or "write a number such as 0.35")
        case "greater_than_equal":
            return Problem(place, f"{number} is too small", allowed or f"write {context['ge']} or more")
        case "less_than_equal":
            return Problem(place, f"{number} is too large", allowed or f"write {context['le']:,} or less")
        case "less_than" | "int_parsing_size":
            return Problem(place, f"{number} is too large", allowed)
    return Problem(place, str(context.get("error") or detail["msg"]))


def _unknown_field(place: str, name: str, model: type[BaseModel]) -> Problem:
    near = tuple(get_close_matches(name[:100], list(field_names(model)), 1))
    if near:
        return Problem(place, f"is not a field; did you mean {near[0]}?", did_you_mean=near)
    return Problem(place, "is not a field", f"the fields are {', '.join(model.model_fields)}")


def _choices(detail: ErrorDetails) -> list[str]:
    """The choices that pydantic lists in an error as `'a', 'b' or 'c'`."""
    expected: str = (detail.get("ctx") or {}).get("expected", "") if detail["type"] in {"enum", "literal_error"} else ""
    return [choice for choice in expected.replace(" or ", ", ").replace("'", "").split(", ") if choice]


def _number_range(detail: ErrorDetails) -> str:
    context: Mapping[str, Any] = detail.get("ctx") or {}
    bound = context.get("ge", context.get("le"))
    if not isinstance(bound, float):
        return ""
    return "write a number from 0 to 1"


def _place(location: Sequence[int | str]) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def field_names(model: type[BaseModel]) -> Iterator[str]:
    """The names that the fields of a record may have, aliases included."""
    for name, field in model.model_fields.items():
        yield name
        if isinstance(field.validation_alias, AliasChoices):
            yield from (str(choice) for choice in field.validation_alias.choices if choice != name)


def shown(value: object) -> str:
    """A value as an error quotes it: short, on one line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…" + text[0]


def kind_of(value: object) -> str:
    """The JSON kind of a value, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return "a date" if isinstance(value, date) else type(value).__name__
