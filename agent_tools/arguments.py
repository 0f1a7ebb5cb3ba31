"""The arguments of a call as every other door writes them: models, and the pairs of a query string."""

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from agent_tools.rendering import Shown
from config.errors import error_of_input
from search.labels import legible
from search.query import Problem, QueryError

Arguments = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


def read_model(model: type[Model], arguments: Arguments) -> Model:
    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        raise error_of_input(error, model, below=0) from error


def split_shown(arguments: Arguments) -> tuple[Shown, Arguments]:
    """How to show the answer, and the rest of the arguments."""
    own = {key: value for key, value in arguments.items() if key in Shown.model_fields and value is not None}
    return read_model(Shown, own), {key: value for key, value in arguments.items() if key not in Shown.model_fields}


def pairs_of_arguments(arguments: Arguments) -> list[tuple[str, str]]:
    """Arguments as the pairs of a query string: what is said to one door means the same at every other."""
    pairs: list[tuple[str, str]] = []
    problems: list[Problem] = []
    for key, value in arguments.items():
        for item in items_of(value):
            if isinstance(item, bool):
                pairs.append((key, "1" if item else "0"))
            elif isinstance(item, str | int | float):
                # To JSON 10.0 is the number 10.
                whole = isinstance(item, float) and item.is_integer()
                pairs.append((key, str(int(item) if whole else item)))
            else:
                problems.append(Problem(legible(key), "is not a text, a number, a switch or a list of these"))
    if problems:
        raise QueryError(problems)
    return pairs


def items_of(value: Any) -> Iterator[Any]:
    if value is None:
        return
    if isinstance(value, str) and value.startswith("[") and value.endswith("]"):
        # Some clients send every list as the text of one.
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            yield value
            return
    yield from value if isinstance(value, list) else [value]
