"""The parameters of a request: read at the edge, and written back as the canonical query string.

Each request declares its parameters as the fields of a `Params` class. A page reads leniently and shows every problem
as a notice; the API and the tools of agents refuse a request that has any.
"""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import quote_plus

from annotated_types import Ge, Le
from django.utils.datastructures import MultiValueDict
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from text.formatting import legible
from web.errors import Refusal
from web.validation import Problem, problem_of_parameter

MAX_VALUE_LENGTH = 1_600
MAX_VALUES = 100
MAX_PAGE = 1_000_000

Pair = tuple[str, str]


class QueryError(Refusal):
    """The parameters of a request are invalid. `problems` names each of them."""

    code = "invalid_query"

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        self.suggestion = "; ".join(dict.fromkeys(one.suggestion for one in self.problems if one.suggestion))
        self.did_you_mean = tuple(dict.fromkeys(name for one in self.problems for name in one.did_you_mean))
        super().__init__("; ".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True)
class Required:
    """Marks a parameter, in its annotation, that a page may leave out and that the API requires."""

    suggestion: str


def _check_text(value: str) -> str:
    if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise ValueError("holds a character that is not text (NUL or half of a surrogate pair)")
    return value


def sorted_values(value: object) -> object:
    """The distinct values, stripped and sorted, so that neither order nor repetition makes another request."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, list | tuple | set | frozenset):
        return tuple(sorted({str(item).strip() for item in value} - {""}))
    return value


Text = Annotated[str, AfterValidator(_check_text)]
Value = Annotated[Text, Field(max_length=MAX_VALUE_LENGTH)]
Values = Annotated[tuple[Value, ...], BeforeValidator(sorted_values), Field(max_length=MAX_VALUES)]


class Params(BaseModel):
    """The parameters of a request. Immutable: every link is another instance.

    A field whose default is an empty tuple may be repeated.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    aliases: ClassVar[Mapping[str, str]] = {}
    """Other spellings, each with the parameter that it stands for."""

    # --- reading ---------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, pairs: Iterable[Pair], **fixed: Any) -> tuple[Self, tuple[Problem, ...]]:
        """Read the valid parameters and describe the others.

        `fixed` are fields whose values come from elsewhere, such as the path of the address.
        """
        pairs = list(pairs)
        data, problems, unread = cls._collect(pairs, fixed)
        while True:
            try:
                params = cls.model_validate(data)
                if fixed:
                    params = params.model_copy(update=fixed)
                found = cls.as_given((*problems, *params.conflicts()), pairs)
                return params.without_reading(unread), found
            except ValidationError as error:
                ranges = {field.key: field.range for field in _fields_of(cls)}
                shortened: dict[str, list[str]] = {}
                for detail in error.errors():
                    key = str(detail["loc"][0])
                    # Other errors of the same parameter were read with the first one.
                    if (raw := data.pop(key, None)) is None:
                        continue
                    values = [raw] if isinstance(raw, str) else raw
                    if detail["type"] == "too_long" and not isinstance(raw, str) and len(detail["loc"]) == 1:
                        most = detail["ctx"]["max_length"]
                        distinct = list(dict.fromkeys(value for value in map(str.strip, values) if value))
                        shortened[key], values = distinct[:most], distinct[most:]
                    unread += [(key, value) for value in values]
                    problems.append(problem_of_parameter(key, detail, _given(raw, detail["input"]), ranges[key]))
                data |= shortened

    @classmethod
    def from_pairs(cls, pairs: Iterable[Pair], **fixed: Any) -> Self:
        """Read the pairs of a query string. Raises QueryError, which names every invalid parameter."""
        params, problems = cls.read(pairs, **fixed)
        wrong = {cls.aliases.get(problem.parameter, problem.parameter) for problem in problems}
        if problems := (*problems, *(problem for problem in params.missing() if problem.parameter not in wrong)):
            raise QueryError(problems)
        return params

    @classmethod
    def from_mapping(cls, arguments: Mapping[str, Any]) -> Self:
        """Read named arguments, as a tool or a caller in Python passes them. Raises QueryError."""
        pairs: list[Pair] = []
        for key, value in arguments.items():
            items = value if isinstance(value, list | tuple | set | frozenset) else [value]
            pairs += [(key, _written(item)) for item in items if item is not None]
        return cls.from_pairs(pairs)

    @classmethod
    def split(cls, pairs: Iterable[Pair]) -> tuple[list[Pair], list[Pair]]:
        """The pairs that are parameters of this class, and all others."""
        known = {field.key for field in _fields_of(cls)}
        own: list[Pair] = []
        rest: list[Pair] = []
        for key, value in pairs:
            (own if cls.aliases.get(key, key) in known else rest).append((key, value))
        return own, rest

    @classmethod
    def names(cls) -> frozenset[str]:
        """Every name that is accepted: the parameters and their other spellings."""
        return frozenset((*(field.key for field in _fields_of(cls)), *cls.aliases))

    def conflicts(self) -> Iterable[Problem]:
        """Problems of parameters that are valid by themselves and not together."""
        return ()

    def without_reading(self, unread: Collection[Pair]) -> Self:
        """These parameters, read from pairs of which some could not be read, with what follows from that."""
        return self

    @classmethod
    def as_given(cls, problems: Iterable[Problem], pairs: Iterable[Pair]) -> tuple[Problem, ...]:
        """The problems with each parameter by the name that was given for it."""
        given = {cls.aliases[key]: key for key, _ in pairs if key in cls.aliases}
        return tuple(problem.named_as(given) for problem in problems)

    @classmethod
    def _shown_aliases(cls, known: Collection[str]) -> list[str]:
        """The aliases to suggest for a misspelt name. Those in camel case are only for programs that send them."""
        return [alias for alias, meant in cls.aliases.items() if meant in known and alias.islower()]

    def missing(self) -> Iterator[Problem]:
        """The parameters that the API requires and that are not given."""
        for field in _fields_of(type(self)):
            if field.required and getattr(self, field.name) == field.default:
                yield Problem(field.key, "is missing", field.required.suggestion)

    @classmethod
    def _collect(
        cls, pairs: Iterable[Pair], fixed: Collection[str]
    ) -> tuple[dict[str, Any], list[Problem], list[Pair]]:
        """The raw values by parameter; of one that is unknown or repeated, a problem and the pairs."""
        known = {field.key: field for field in _fields_of(cls) if field.name not in fixed}
        data: dict[str, Any] = {}
        problems: list[Problem] = []
        unread: list[Pair] = []
        repeated: dict[str, list[Pair]] = {}
        for given, raw in pairs:
            key = cls.aliases.get(given, given)
            if key not in known:
                problems.append(unknown_parameter(given, known, cls._shown_aliases(known)))
                unread.append((given, raw))
            elif known[key].is_multiple:
                data.setdefault(key, []).append(raw)
            elif (value := raw.strip()) and data.setdefault(key, value) != value:
                repeated.setdefault(key, [(key, data[key])]).append((key, value))
        for key in sorted(repeated):
            problems.append(Problem(key, "is given twice with different values", "give one value, not several"))
            unread += repeated[key]
            del data[key]
        return data, problems, unread

    # --- writing ---------------------------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Self:
        """A copy with other values."""
        return self.model_copy(update=changes)

    def with_(self, **changes: Any) -> Self:
        """A copy with other values, from the first page."""
        return self.model_copy(update={"page": 1, **changes})

    def parameters(self) -> list[Pair]:
        """The canonical pairs: in the order of the fields, values sorted, defaults left out."""
        pairs: list[Pair] = []
        values = self.__dict__
        for field in _fields_of(type(self)):
            value = values[field.name]
            # Nearly all have their default, and most of these are the very object.
            if value is not field.default and value != field.default:
                pairs += [(field.key, _written(item)) for item in (value if field.is_multiple else (value,))]
        return pairs

    def querystring(self) -> str:
        """The canonical query string: one state, one URL."""
        return "&".join([f"{quoted(key)}={quoted(value)}" for key, value in self.parameters()])

    @classmethod
    def _generated_name(cls, key: str) -> str:
        """The name of a parameter for generated clients: an alias, if only that can be a name in their language."""
        if key.isidentifier():
            return key
        return next((alias for alias, meant in cls.aliases.items() if meant == key and alias.isidentifier()), key)

    @classmethod
    def openapi_parameters(cls, without: Collection[str] = ()) -> list[dict[str, Any]]:
        """The parameters as an OpenAPI document lists them, except those named in `without`."""
        schema = cls.model_json_schema()
        return [
            {
                "name": cls._generated_name(field.key),
                "in": "query",
                "required": field.required is not None,
                "schema": _openapi_schema(field, schema),
                "description": schema["properties"][field.key].get("description", ""),
            }
            for field in _fields_of(cls)
            if field.key not in without
        ]


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a `Params` class, and the parameter that it is read from."""

    name: str
    key: str
    default: Any
    is_multiple: bool
    required: Required | None
    range: str


@cache
def _fields_of(cls: type[Params]) -> tuple[_Field, ...]:
    """The fields of a class in order, but for those that no request gives. A page writes hundreds of query strings."""
    return tuple(
        _Field(
            name,
            field.alias or name,
            field.default,
            field.default == (),
            next((mark for mark in field.metadata if isinstance(mark, Required)), None),
            _range(field),
        )
        for name, field in cls.model_fields.items()
        if not field.exclude
    )


def _range(field: FieldInfo) -> str:
    """The numbers that a field allows, in words; empty where it is not bounded at both ends."""
    least = next((mark.ge for mark in field.metadata if isinstance(mark, Ge)), None)
    most = next((mark.le for mark in field.metadata if isinstance(mark, Le)), None)
    return "" if least is None or most is None else f"write a number from {least} to {most:,}"


def pairs_of(parameters: MultiValueDict[str, str]) -> list[Pair]:
    """The pairs of a request's query string."""
    return [(key, value) for key, values in parameters.lists() for value in values]


def _given(raw: str | list[str], validated: object) -> str:
    """The text of an invalid parameter; of one that was repeated, the invalid value if it is known."""
    if isinstance(raw, str):
        return raw
    return validated if isinstance(validated, str) else raw[0] if len(raw) == 1 else str(raw)


def quoted(text: str) -> str:
    """A key or value as urlencode writes it. The links of a page share most of theirs."""
    return _quoted_short(text) if len(text) <= _SHORT else quote_plus(text)


_SHORT = 100
_quoted_short = lru_cache(maxsize=4_096)(quote_plus)


def _written(value: object) -> str:
    return str(int(value) if isinstance(value, bool) else value)


def _openapi_schema(field: _Field, model: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a parameter, without references, null and the blank that means none of the choices."""
    schema = dict(model["properties"][field.key])
    if options := schema.pop("anyOf", None):
        schema |= options[0]
    if reference := schema.pop("$ref", None):
        schema = {**model["$defs"][reference.rsplit("/", 1)[1]], **schema}
    if "enum" in schema:
        schema["enum"] = [choice for choice in schema["enum"] if choice]
    left_out = {"title", "description"}
    if field.required or field.default is None or ("enum" in schema and not field.default):
        left_out.add("default")
    return {key: value for key, value in schema.items() if key not in left_out}


def unknown_parameter(given: str, names: Collection[str], aliases: Iterable[str] = ()) -> Problem:
    """The problem of a name that is none of `names`, and none of the other spellings in `aliases`."""
    return Problem(
        legible(given),
        "is not a parameter",
        f"the parameters are {', '.join(names)}" if names else "there are no parameters here",
        tuple(dict.fromkeys(difflib.get_close_matches(given[:60], [*names, *aliases], 3))),
        is_unknown_name=True,
    )
