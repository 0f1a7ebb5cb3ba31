"""The validated records of memories, the same for every interface.

Pure: does not use the database. Limits are defined here; error messages are written for people.
"""

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from categories.paths import PathError, clean_name, is_clean, parse_path, spellings
from memories.timestamps import parse_moment
from text.highlight import first_heading
from web.validation import kind_of, refuse, shown

MAX_CONTENT = 1_000_000
MAX_SUMMARY = 100_000
MAX_TITLE = 1_000
MAX_LIST = 1_000
MAX_PROJECT = 100
MAX_TAG = 200
MAX_URL = 4_000
TITLE_CUT = 120
DEFAULT_TYPE = "note"
DEFAULT_ENTITY_TYPE = "thing"
DEFAULT_REL = "links-to"
EMBEDS_REL = "embeds"
SUPERSEDED_BY_REL = "superseded-by"
SUPERSEDES_REL = "supersedes"

_WHITESPACE = re.compile(r"\s+")
# `person:Ann` has a type; `std::vector`, `https://…`, `C:\x` and `Note: this` do not.
_TYPED_NAME = re.compile(r"(?P<type>[^\W\d_][\w-]+):(?P<name>[^\s:/\\].*)", re.DOTALL)
_ID = re.compile(r"#?([0-9]{1,18})")
_SENTENCE = re.compile(r".+?[.!?。](?=\s|$)", re.DOTALL)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise refuse(f"must be text, not {kind_of(value)}")


def _limited(text: str, limit: int) -> str:
    if len(text) > limit:
        raise refuse(f"has {len(text):,} characters; up to {limit:,} are allowed")
    return text


def _line(limit: int) -> BeforeValidator:
    def one_line(value: object) -> str:
        if isinstance(value, str) and len(value) <= limit and is_clean(value):
            return value.strip()
        return _limited(clean_name(_text(value)), limit)

    return BeforeValidator(one_line)


def _block(limit: int) -> BeforeValidator:
    def many_lines(value: object) -> str:
        return _limited(_text(value).strip(), limit)

    return BeforeValidator(many_lines)


@lru_cache(maxsize=10_000)
def slug_name(text: str) -> str:
    """A type or a project slug as stored: lower case, dashes instead of spaces."""
    return _WHITESPACE.sub("-", clean_name(text).lower())


def _slug(limit: int, default: str = "") -> BeforeValidator:
    def slugged(value: object) -> str:
        return _limited(slug_name(_text(value)), limit) or default

    return BeforeValidator(slugged)


def _content(value: object) -> str:
    text = _text(value)
    if not text.strip():
        raise refuse("is empty; a memory needs a text")
    return _limited(text, MAX_CONTENT)


def _trust(value: object) -> str:
    text = _text(value).strip().lower()
    if text not in ("", "person", "agent", "outside"):
        raise refuse(f"{shown(text)} is none of person, agent and outside")
    return text


def _items(value: object) -> list[Any]:
    """A list from a list, a comma-separated string or a JSON string."""
    if value is None or value == "":
        return []
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("[") and text.endswith("]"):
            try:
                decoded = json.loads(text)
            except (ValueError, RecursionError):
                raise refuse(f"{shown(value)} looks like a JSON list but is not one") from None
            if not isinstance(decoded, list):
                raise refuse(f"must be a list, not {kind_of(decoded)}")
            value = decoded
        else:
            value = text.split(",")
    if not isinstance(value, list | tuple | set | frozenset):
        raise refuse(f"must be a list, not {kind_of(value)}")
    if len(value) > MAX_LIST:
        raise refuse(f"has {len(value):,} items; up to {MAX_LIST:,} are allowed")
    return list(value)


def _whole_items(value: object) -> list[Any]:
    """Like `_items`, but a string that is not a JSON list is a single item: names may contain commas."""
    if isinstance(value, str) and not value.strip().startswith("["):
        return [value] if value.strip() else []
    return _items(value)


def _visible(name: str, given: object) -> str:
    """A name in its stored form; refused if there was something, of which nothing is visible."""
    if not name and str(given).strip():
        raise refuse(f"{ascii(given)[:40]} has no visible character")
    return name


@lru_cache(maxsize=65_536)
def normalise_tag(text: str) -> str:
    """A tag as stored: a name in lower case, dashes instead of spaces."""
    return "-".join(unicodedata.normalize("NFC", clean_name(text).lower()).split())


def tag_spellings(text: str) -> tuple[str, ...]:
    """A tag as stored, and the forms under which an equal one may be stored."""
    others = ("-".join(one.lower().split()) for one in spellings(text))
    return tuple(dict.fromkeys(tag for tag in (normalise_tag(text), *others) if tag))


def _tags(value: object) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for item in _items(value):
        if not isinstance(item, str | int | float) or isinstance(item, bool):
            raise refuse(f"{shown(item)} is not a tag: a tag is text, not {kind_of(item)}")
        tag = _visible(normalise_tag(str(item)), item)
        if len(tag) > MAX_TAG:
            raise refuse(f"{shown(tag)} has {len(tag):,} characters; a tag has up to {MAX_TAG}")
        if tag:
            found[tag] = None
    return tuple(found)


def _tag(value: object) -> str:
    tags = _tags([value])
    if not tags:
        raise refuse("is empty; write a tag")
    return tags[0]


def _names(limit: int, split: Callable[[object], list[Any]]) -> BeforeValidator:
    def names(value: object) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for item in split(value):
            if not isinstance(item, str):
                raise refuse(f"{shown(item)} is not a name: a name is text, not {kind_of(item)}")
            name = _visible(clean_name(item), item)
            if len(name) > limit:
                raise refuse(f"{shown(name)} has {len(name):,} characters; a name has up to {limit}")
            if name:
                found[name] = None
        return tuple(found)

    return BeforeValidator(names)


def _category(item: object) -> str | None:
    if not isinstance(item, str):
        raise refuse(f"{shown(item)} is not a category: write its path, such as Backend/Database, not {kind_of(item)}")
    try:
        return _category_written(item)
    except PathError as error:
        raise refuse(str(error)) from None


@lru_cache(maxsize=65_536)
def _category_written(text: str) -> str | None:
    path = parse_path(text)
    return str(path) if path else None


def _category_paths(value: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for item in _whole_items(value) if (path := _category(item))))


def _category_path(value: object) -> str:
    if (path := _category(value)) is None:
        raise refuse("is empty; write the category's path, such as Backend/Database")
    return path


Line200 = Annotated[str, _line(200)]
Line300 = Annotated[str, _line(300)]
Line500 = Annotated[str, _line(500)]
Slug100 = Annotated[str, _slug(100)]
Text = Annotated[str, _block(MAX_SUMMARY)]
Tags = Annotated[tuple[str, ...], BeforeValidator(_tags)]
RequiredTag = Annotated[str, BeforeValidator(_tag)]
Url = Annotated[str, _line(MAX_URL)]
Timestamp = Annotated[datetime | None, BeforeValidator(parse_moment)]
Fraction = Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False)]
Aliases = Annotated[tuple[str, ...], _names(500, _whole_items)]
RequiredLine200 = Annotated[str, _line(200), Field(min_length=1)]
RequiredLine300 = Annotated[str, _line(300), Field(min_length=1)]
RequiredLine500 = Annotated[str, _line(500), Field(min_length=1)]
RequiredSlug100 = Annotated[str, _slug(100), Field(min_length=1)]
RequiredCategoryPath = Annotated[str, BeforeValidator(_category_path)]
CategoryPaths = Annotated[tuple[str, ...], BeforeValidator(_category_paths)]
EntityType = Annotated[str, _slug(100, DEFAULT_ENTITY_TYPE)]
ConceptNames = Annotated[tuple[str, ...], _names(300, _whole_items)]
State = Literal["active", "proposed", "archived", "superseded", "deleted"]


def _memory_names(value: object) -> tuple[str, ...]:
    """Memories by `external_id`, or by id with or without `#`: one, or several."""
    items = [value] if isinstance(value, int) else _items(value)
    return tuple(dict.fromkeys(name for item in items if (name := _limited(clean_name(_text(item)), 500))))


MemoryNames = Annotated[tuple[str, ...], BeforeValidator(_memory_names)]


def _memory_id(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63:
        return value
    if isinstance(value, str) and (match := _ID.fullmatch(value.strip())) and int(match[1]):
        return int(match[1])
    raise refuse(f"{ascii(value)[:40]} is not the id of a memory: write a number such as 123")


MemoryId = Annotated[int, Field(ge=1), BeforeValidator(_memory_id)]


def _state(value: object) -> object:
    return value.strip().lower() or None if isinstance(value, str) else value


def _switch(value: object) -> object:
    return False if value is None or value == "" else value


def unstorable(value: object, where: str = "") -> str:
    """The location of a character that Postgres cannot store, as a sentence; an empty string if there is none."""
    if isinstance(value, str):
        return _unstorable_text(value, where or "text")
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where or 'number'}: {value} is not a number that JSON can hold"
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if reason := unstorable(key, f"{where}.{key!a}" if where else f"the key {key!a}"):
                return reason
            if reason := unstorable(inner, f"{where}.{key}" if where else str(key)):
                return reason
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            if reason := unstorable(inner, f"{where}[{number}]"):
                return reason
    return ""


def _unstorable_text(text: str, where: str) -> str:
    if "\0" in text:
        return f"{where}: holds a NUL character (U+0000), which cannot be stored; remove it"
    if text.isascii():
        return ""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        return f"{where}: holds half a character (the lone surrogate U+{code:04X}); remove it"
    return ""


# The validation context of records that are known to be storable.
STORABLE = "storable"


class BaseRecord(BaseModel):
    """Base of all records: frozen, and without characters that cannot be stored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, data: Any, info: ValidationInfo) -> Any:
        # An import has checked the whole record already, as the JSON text that it stores.
        if info.context == STORABLE:
            return data
        try:
            reason = unstorable(data)
        except RecursionError:
            reason = "is nested too deeply"
        if reason:
            raise refuse(reason)
        return data


class EntityName(BaseModel):
    """An entity as a record names it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    name: RequiredLine500
    type: EntityType = DEFAULT_ENTITY_TYPE

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return entity_of_text(data) if isinstance(data, str) else data


def entity_of_text(text: str) -> dict[str, str]:
    """`type:name`, or a plain name."""
    if match := _TYPED_NAME.fullmatch(text.strip()):
        return {"type": match["type"], "name": match["name"]}
    return {"name": text}


def _entities(value: object) -> list[Any]:
    return [_entity(item) for item in _whole_items(value)]


def _entity(item: Any) -> Any:
    """A cached entity, since sources repeat the same ones. Invalid items are returned unchanged."""
    if isinstance(item, dict):
        name, kind = item.get("name"), item.get("type")
        if isinstance(name, str) and isinstance(kind, str):
            try:
                return _entity_named(name, kind)
            except ValidationError:
                return item
    return item


@lru_cache(maxsize=65_536)
def _entity_named(name: str, kind: str) -> EntityName:
    return EntityName(name=name, type=kind)


class ConceptName(BaseModel):
    """A concept as a record names it."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    name: RequiredLine300
    type: Slug100 = ""
    weight: Fraction = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"name": data} if isinstance(data, str) else data


def _concepts(value: object) -> list[Any]:
    return [_concept(item) for item in _items(value)]


def _concept(item: Any) -> Any:
    """Like `_entity`, for plain names."""
    if isinstance(item, str):
        try:
            return _concept_named(item)
        except ValidationError:
            return item
    return item


@lru_cache(maxsize=65_536)
def _concept_named(name: str) -> ConceptName:
    return ConceptName(name=name)


class LinkName(BaseModel):
    """A link as a record names it: to a memory by its id, or to something outside."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    rel: Annotated[str, _slug(100, DEFAULT_REL)] = DEFAULT_REL
    target: Annotated[str, _line(500), Field(min_length=1)]
    url: Url = ""
    internal: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: Any) -> Any:
        return {"target": data} if isinstance(data, str) else data


def _title_of(line: str) -> str:
    line = clean_name(line)
    if len(line) <= TITLE_CUT:
        return line
    cut = line[: TITLE_CUT - 1]
    at_word = cut.rsplit(" ", 1)[0]
    # A single word longer than half the title is cut.
    return (at_word if len(at_word) > TITLE_CUT // 2 else cut).rstrip(" ,;:") + "…"


def derived_title(content: str) -> str:
    """A title for a memory without one: its first heading, else its first sentence."""
    start = content[:20_000]
    if title := _title_of(first_heading(start)):
        return title
    paragraph = start.strip().split("\n\n", 1)[0]
    sentence = _SENTENCE.match(paragraph)
    return _title_of(sentence.group() if sentence else paragraph)


class MemoryRecord(BaseRecord):
    """A memory as it is received. Only `content` is required."""

    id: Line500 = Field("", validation_alias=AliasChoices("id", "external_id"))
    project: Annotated[str, _slug(MAX_PROJECT)] = ""
    type: Annotated[str, _slug(100, DEFAULT_TYPE)] = Field(
        DEFAULT_TYPE, validation_alias=AliasChoices("type", "memory_type")
    )
    title: Annotated[str, _line(MAX_TITLE)] = ""
    summary: Text = ""
    content: Annotated[str, BeforeValidator(_content)] = Field(validation_alias=AliasChoices("content", "text", "body"))
    tags: Tags = ()
    categories: CategoryPaths = Field((), validation_alias=AliasChoices("categories", "category"))
    concepts: Annotated[tuple[ConceptName, ...], BeforeValidator(_concepts)] = ()
    entities: Annotated[tuple[EntityName, ...], BeforeValidator(_entities)] = ()
    links: Annotated[tuple[LinkName, ...], BeforeValidator(_whole_items)] = ()
    created_at: Timestamp = None
    updated_at: Timestamp = None
    happened_at: Timestamp = None
    valid_from: Timestamp = None
    valid_to: Timestamp = None
    state: Annotated[State | None, BeforeValidator(_state)] = None
    superseded_by: Line500 = ""
    supersedes: MemoryNames = ()
    importance: Fraction = None
    confidence: Fraction = None
    pinned: Annotated[bool, BeforeValidator(_switch)] = False
    authors: Annotated[tuple[str, ...], _names(200, _items)] = Field(
        (), validation_alias=AliasChoices("authors", "author")
    )
    agent: Line200 = ""
    session: Line200 = ""
    source: Line200 = ""
    trust: Annotated[Literal["", "person", "agent", "outside"], BeforeValidator(_trust)] = Field(
        "", description="Whose words these are; a writer cannot claim more trust than its own."
    )
    source_url: Url = Field("", validation_alias=AliasChoices("source_url", "source_uri"))

    @property
    def dated(self) -> datetime | None:
        """The date that it gives itself."""
        return self.created_at or self.happened_at

    @model_validator(mode="after")
    def _valid_in_order(self) -> "MemoryRecord":
        if self.valid_from and self.valid_to and self.valid_to < self.valid_from:
            raise refuse("valid_to: is before valid_from; a memory is valid from the earlier to the later of them")
        return self


class StrictMemoryRecord(MemoryRecord):
    """The record of the API, where a field that is not known is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class MemoryChanges(StrictMemoryRecord):
    """Changes to a memory: what is not set stays as it is (`model_fields_set` tells)."""

    content: Annotated[str, BeforeValidator(_content)] = Field(
        "", validation_alias=AliasChoices("content", "text", "body")
    )
    add_tags: Tags = ()
    remove_tags: Tags = ()
