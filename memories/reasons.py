"""What was wrong with what came in, in sentences for people: of a record, and of whatever else pydantic validates."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic_core import ErrorDetails

from memories.records import MemoryRecord
from memories.validation import kind_of, shown


def reasons(error: ValidationError, model: type[BaseModel] = MemoryRecord) -> list[str]:
    """What was wrong, a short sentence for each field: what was found, what is allowed, what to do."""
    return [_reason(detail, model) for detail in error.errors(include_url=False, include_context=True)]


def _reason(detail: ErrorDetails, model: type[BaseModel]) -> str:
    where = _where(detail["loc"])
    context = detail.get("ctx") or {}
    value = detail["input"]
    match detail["type"]:
        case "refused":
            text = detail["msg"]
        case "missing":
            text = "is missing"
        case "extra_forbidden":
            text = f"is not a field{_suggestion(where, model)}"
        case "string_too_short" | "too_short":
            text = "is empty"
        case "literal_error":
            known = str(context["expected"]).replace(" or ", ", ").replace("'", "")
            text = f"{shown(value)} is not known: write one of {known}"
        case "float_type" | "float_parsing" | "finite_number":
            text = f"{shown(value)} is not a number"
        case "int_type" | "int_parsing" | "int_from_float":
            text = f"{shown(value)} is not a whole number"
        case "string_type":
            text = f"must be text, not {kind_of(value)}"
        case "string_too_long":
            text = f"has {len(value):,} characters; up to {context['max_length']:,} are allowed"
        case "list_type":
            text = f"must be a list, not {kind_of(value)}"
        case "greater_than_equal" | "less_than_equal":
            text = f"{shown(value)} is out of range: write {_range(detail)}"
        case "less_than" | "int_parsing_size":
            text = f"{shown(value)} is too large"
        case "bool_type" | "bool_parsing":
            text = f"{shown(value)} is not a boolean: write true or false"
        case "model_type" | "model_attributes_type" | "dict_type":
            text = (
                f"must be an object, not {kind_of(value)}" if where else f"must be a JSON object, not {kind_of(value)}"
            )
        case _:
            text = str(context.get("error") or detail["msg"])
    return f"{where}: {text}" if where else text


def _range(detail: ErrorDetails) -> str:
    if "weight" in detail["loc"]:
        return "a number from 0 to 1,000,000"
    context = detail.get("ctx") or {}
    bound = context.get("ge", context.get("le"))
    if isinstance(bound, int):
        return f"{bound:,} or {'more' if 'ge' in context else 'less'}"
    # Every other number with a fraction is a share.
    return "a number from 0 to 1"


def _where(location: Sequence[int | str]) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def field_names(model: type[BaseModel]) -> Iterator[str]:
    """The names a record's fields may be given by, aliases included."""
    for name, field in model.model_fields.items():
        yield name
        if isinstance(field.validation_alias, AliasChoices):
            yield from (str(choice) for choice in field.validation_alias.choices if choice != name)


def _suggestion(name: str, model: type[BaseModel]) -> str:
    close = get_close_matches(name, list(field_names(model)), n=1)
    return f"; did you mean {close[0]}?" if close else f": the fields are {', '.join(model.model_fields)}"
