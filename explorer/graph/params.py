"""What can be asked of the graph, parsed once at the edge. Knows nothing of the database."""

import difflib
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Self
from urllib.parse import urlencode

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from memories.records import unstorable
from search.query import MAX_PAGE, MAX_VALUES, Problem
from text.formatting import legible

# What `rel` calls two that one memory names, beside the types of relationships.
SAME_MEMORY = "same-memory"
MOST_STEPS = 8


def _storable(text: str) -> str:
    if unstorable(text):
        raise ValueError("holds a character that is not text")
    return text.strip()


def _several(value: object) -> object:
    if isinstance(value, str):
        value = (value,)
    return tuple(sorted({str(item).strip() for item in value} - {""})) if isinstance(value, list | tuple) else value


Text = Annotated[str, AfterValidator(_storable)]
Texts = Annotated[tuple[Annotated[Text, Field(max_length=200)], ...], BeforeValidator(_several)]
Name = Annotated[Text, Field(max_length=1_600)]


class TableSort(StrEnum):
    """A column, the least first; with a minus the most first."""

    NAME = "name"
    TYPE = "type"
    LINKS = "links"
    MEMORIES = "memories"
    FIRST = "first"
    LAST = "last"
    NAME_DOWN = "-name"
    TYPE_DOWN = "-type"
    LINKS_DOWN = "-links"
    MEMORIES_DOWN = "-memories"
    FIRST_DOWN = "-first"
    LAST_DOWN = "-last"

    @property
    def column(self) -> str:
        return self.value.removeprefix("-")

    @property
    def is_down(self) -> bool:
        return self.value.startswith("-")


class Params(BaseModel):
    """A query string, read. Immutable: every link is another one."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @classmethod
    def read(cls, pairs: Iterable[tuple[str, str]]) -> tuple[Self, tuple[Problem, ...]]:
        """What can be read, and what is wrong with the rest: a page goes on with a notice, the API refuses."""
        names = {field.alias or name: name for name, field in cls.model_fields.items()}
        data: dict[str, Any] = {}
        problems: list[Problem] = []
        for key, value in pairs:
            if key not in names:
                problems.append(_unknown(key, list(names)))
            elif cls.model_fields[names[key]].default == ():
                data.setdefault(key, []).append(value)
            elif value.strip() and data.setdefault(key, value) != value:
                problems.append(Problem(key, "is given twice with different values", "give it once"))
        while True:
            try:
                return cls.model_validate(data), tuple(problems)
            except ValidationError as error:
                for detail in error.errors():
                    key = str(detail["loc"][0])
                    if key in data:
                        problems.append(_problem(key, data.pop(key), detail))

    def but(self, **changes: Any) -> Self:
        return self.model_copy(update=changes)

    def parameters(self) -> list[tuple[str, str]]:
        """The canonical pairs: defaults left out."""
        pairs: list[tuple[str, str]] = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if value != field.default:
                values = value if isinstance(value, tuple) else [int(value) if isinstance(value, bool) else value]
                pairs += [(field.alias or name, str(item)) for item in values]
        return pairs

    def querystring(self) -> str:
        return urlencode(self.parameters())

    @classmethod
    def openapi_parameters(cls) -> list[dict[str, Any]]:
        """The query parameters as the API document lists them."""
        schema = cls.model_json_schema()
        listed = []
        for name, prop in schema["properties"].items():
            told = {key: value for key, value in prop.items() if key not in {"title", "description", "$ref"}}
            if reference := prop.get("$ref"):
                told |= {"type": "string", "enum": schema["$defs"][reference.rsplit("/", 1)[1]]["enum"]}
            required = name in schema.get("required", ())
            description = prop.get("description", "")
            listed.append(
                {"name": name, "in": "query", "required": required, "schema": told, "description": description}
            )
        return listed


class TableRequest(Params):
    """Which entities or concepts are listed, and in which order."""

    search: Text = Field("", max_length=200, description="Part of a name or an alias.")
    type: Texts = Field((), max_length=MAX_VALUES, description="A type; repeat it for any of several.")
    sort: TableSort = Field(TableSort.MEMORIES_DOWN, description="A column; with a minus in descending order.")
    page: int = Field(1, ge=1, le=MAX_PAGE)
    page_size: int = Field(50, ge=1, le=200)


class AroundRequest(Params):
    """What of a neighbourhood is shown."""

    depth: int = Field(1, ge=1, le=2, description="2: also the neighbours of the strongest neighbours.")
    rel: Texts = Field(
        (),
        max_length=MAX_VALUES,
        description=f"A type of relationship, or `{SAME_MEMORY}`: linked because a memory mentions both.",
    )
    least: int = Field(0, ge=0, le=1_000_000, alias="min", description="Minimum number of supporting memories.")


class PathRequest(Params):
    """Between which two a chain is looked for, and how far. Without both ends there is nothing to look for yet."""

    begin: Name = Field("", alias="from", description="`type:name`, name, alias or id of an entity.")
    end: Name = Field("", alias="to", description="`type:name`, name, alias or id of another one.")
    steps: int = Field(6, ge=1, le=MOST_STEPS, description="Maximum number of links.")
    together: bool = Field(False, description="Whether entities mentioned in the same memory are linked too.")


def _unknown(given: str, known: list[str]) -> Problem:
    return Problem(
        legible(given),
        "is not a parameter",
        f"the parameters are {', '.join(known)}" if known else "there are no parameters here",
        tuple(difflib.get_close_matches(given[:60], known, 3, 0.7)),
    )


def _problem(key: str, given: Any, detail: Mapping[str, Any]) -> Problem:
    """A field's error in words: what was wrong, what is allowed."""
    value = given[0] if isinstance(given, list) and len(given) == 1 else given
    told = legible(str(value), 80)
    context = detail.get("ctx", {})
    match detail["type"]:
        case "enum":
            return Problem(key, f"'{told}' is not one of the choices", f"write one of {context['expected']}")
        case "string_too_long":
            return Problem(key, f"is {len(str(value)):,} characters long", f"write at most {context['max_length']:,}")
        case "too_long":
            return Problem(key, "has too many values", f"give at most {context['max_length']}")
        case "greater_than_equal":
            return Problem(key, f"{told} is too small", f"write {context['ge']} or more")
        case "less_than_equal":
            return Problem(key, f"{told} is too large", f"write {context['le']:,} or less")
        case "bool_parsing" | "bool_type":
            return Problem(key, f"'{told}' is not a boolean", "write 1 or 0")
        case "value_error":
            return Problem(key, f"'{told}' {context['error']}")
    return Problem(key, f"'{told}' is not a whole number", "write a number such as 1")
