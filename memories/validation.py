"""What is said of a value that cannot be taken in: reasons of our own, and values as these quote them."""

from collections.abc import Mapping
from datetime import date

from pydantic_core import PydanticCustomError


def refuse(reason: str) -> PydanticCustomError:
    """A reason of our own, shown to people as it is."""
    return PydanticCustomError("refused", "{reason}", {"reason": reason})


def shown(value: object) -> str:
    """A value as a reason quotes it: short, on one line."""
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
