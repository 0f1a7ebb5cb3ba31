"""The operations of curation, one model each, shared by the API, the forms and the log."""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from categories.kinds import VOCABULARIES
from categories.paths import clean_name
from memories.records import MAX_PROJECT, Fraction, Slug100, Timestamp, slug_name, unstorable
from memories.records import Text as Description
from memories.timestamps import parse_moment
from web.validation import refuse, shown

Kind = Literal["category", "concept", "entity", "tag"]
Linked = Literal["category", "concept", "entity"]

MAX_NAMES = 1_000
# Terms that one merge ends.
MOST_TERMS = 100


def _storable(text: str) -> str:
    if reason := unstorable(text):
        raise refuse(reason.removeprefix("text: "))
    return text


def _author_name(text: str) -> str:
    if not (name := clean_name(_storable(text))):
        raise refuse("is empty; write a name")
    return name


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Text = Annotated[str, Field(max_length=2_000), AfterValidator(_storable)]
Name = Annotated[str, Field(min_length=1, max_length=600), AfterValidator(_storable)]
TermName = Annotated[
    str,
    BeforeValidator(_as_text),
    Field(
        min_length=1,
        max_length=1_600,
        description="`#id`, or a name, path or alias; an entity as `type:name` if its name is ambiguous.",
    ),
    AfterValidator(_storable),
]
MemoryIds = Annotated[list[Annotated[int, Field(ge=1, lt=2**63)]], Field(max_length=10_000)]
Query = Annotated[
    str,
    Field(max_length=8_000, description="A query string as the explorer has it, such as `tag=db&since=30d`."),
    AfterValidator(_storable),
]

Reason = Annotated[str, Field(max_length=1_000), AfterValidator(_storable)]


class Operation(BaseModel):
    """The arguments of every operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verb: ClassVar[str]
    scope: ClassVar[str] = "curate"
    dry_run: bool = Field(False, description="Only tell what would happen.")
    token: Annotated[str, Field(max_length=100)] = Field(
        "", description="The token of a plan: exactly that plan is executed; if it has changed, nothing is done."
    )

    def arguments(self) -> dict[str, Any]:
        """The arguments for the log."""
        return self.model_dump(mode="json", exclude={"dry_run", "token"}, exclude_defaults=True)


class Create(Operation):
    """Make a category, a concept or an entity."""

    verb = "create"
    kind: Linked
    name: TermName = Field(description="Its name; of a category its path, whose missing parents are made too.")
    type: Slug100 = Field("", description="Of a concept or an entity, such as `pattern` or `library`.")
    description: Description = ""
    aliases: Annotated[list[Name], Field(max_length=MAX_NAMES)] = []
    weight: Fraction = Field(None, description="Of a concept: how important it is, from 0 to 1, such as 0.85.")
    broader: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = Field([], description="Of a concept.")
    narrower: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = Field([], description="Of a concept.")
    related: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = Field(
        [], description="Of a concept or a category."
    )
    memories: MemoryIds = Field([], description="Memories to link to it.")

    @model_validator(mode="after")
    def _fits_the_kind(self) -> "Create":
        _refuse_fields(self, self.kind, {**_FIELDS_OF_KINDS, **_RELATIONS_OF_KINDS})
        return self


class Edit(Operation):
    """Correct the description, the type or the weight of a term. A field that is not given stays as it is."""

    verb = "edit"
    kind: Linked
    term: TermName
    type: Slug100 = Field("", description="Of a concept or an entity.")
    description: Description = ""
    weight: Fraction = Field(None, description="Of a concept: how important it is, from 0 to 1; null for none.")

    @model_validator(mode="after")
    def _fits_the_kind(self) -> "Edit":
        _refuse_fields(self, self.kind, _FIELDS_OF_KINDS)
        if not self.given():
            raise refuse("description, type, weight: give what to change")
        return self

    def given(self) -> dict[str, Any]:
        """The new values, by the columns of the term."""
        columns = {"type": f"{self.kind}_type", "description": "description", "weight": "weight"}
        return {columns[name]: getattr(self, name) for name in columns if name in self.model_fields_set}

    def arguments(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"dry_run", "token"}, exclude_unset=True)


_FIELDS_OF_KINDS = {"type": ("concept", "entity"), "weight": ("concept",)}
_RELATIONS_OF_KINDS = {"broader": ("concept",), "narrower": ("concept",), "related": ("concept", "category")}


def _refuse_fields(operation: Operation, kind: str, kinds: Mapping[str, Collection[str]]) -> None:
    """Refuse the fields given that terms of a kind do not have."""
    for name, having in kinds.items():
        if name in operation.model_fields_set and kind not in having:
            raise refuse(f"{name}: a term of the kind {kind} has none: it is for {' and '.join(having)}")


class Merge(Operation):
    """Merge one term, or several, into another of their kind."""

    verb = "merge"
    kind: Kind
    source: TermName = Field("", description="The term that ends.")
    sources: Annotated[list[TermName], Field(max_length=MOST_TERMS)] = Field(
        [], description="Several terms that end, instead of one: one change, with one undo."
    )
    target: TermName = Field("", description="The term that stays.")
    into_parents: bool = Field(
        False, description="Of categories, instead of a target: each goes into the category above it."
    )

    @model_validator(mode="after")
    def _names_what_ends_and_what_stays(self) -> "Merge":
        if bool(self.source) == bool(self.sources):
            raise refuse("source, sources: name the term that ends as source, or several as sources")
        if bool(self.target) == self.into_parents:
            raise refuse("target, into_parents: name the term that stays as target, or take the category above each")
        if self.into_parents and self.kind != "category":
            raise refuse("into_parents: only categories have one above them")
        return self


class Rename(Operation):
    """Give a term another name."""

    verb = "rename"
    kind: Kind
    term: TermName
    name: Name


class Move(Operation):
    """Hang a category under another parent; at the root where none is named."""

    verb = "move"
    category: TermName
    parent: Annotated[str, BeforeValidator(_as_text), AfterValidator(_storable), Field(max_length=1_600)] = Field(
        "", description="The new parent; empty for the root."
    )


class Alias(Operation):
    """Change the other names that a term is known by."""

    verb = "alias"
    kind: Kind
    term: TermName
    add: Annotated[list[Name], Field(max_length=MAX_NAMES)] = []
    remove: Annotated[list[Name], Field(max_length=MAX_NAMES)] = Field(
        [], description="Aliases, or former paths of a category."
    )

    @model_validator(mode="after")
    def _changes_something(self) -> "Alias":
        if not (self.add or self.remove):
            raise refuse("add, remove: name an alias to add or to remove")
        return self


class Split(Operation):
    """Make a new term, and link some of the memories of another one to it instead."""

    verb = "split"
    kind: Kind
    term: TermName
    name: Name
    query: Query = ""
    memories: MemoryIds = []

    @model_validator(mode="after")
    def _chooses(self) -> "Split":
        if bool(self.query) == bool(self.memories):
            raise refuse("query, memories: choose the memories either by a query or by their ids")
        return self


class Relate(Operation):
    """Say how two terms of a kind are related, or take it back."""

    verb = "relate"
    kind: Linked
    term: TermName
    how: Name = Field(
        description="`related` for categories; `broader`, `narrower` or `related` for concepts: the other is broader"
        " than the term; the type of the relationship for entities."
    )
    other: TermName
    remove: bool = False
    fact: Text = Field("", description="For a relationship of entities: the fact, in a sentence.")
    confidence: Fraction = Field(None, description="For a relationship of entities: from 0 to 1.")
    valid_from: Timestamp = Field(None, description="For a relationship of entities: since when it holds.")
    valid_to: Timestamp = Field(None, description="For a relationship of entities: until when it held.")
    evidence: MemoryIds = Field([], description="For a relationship of entities: the supporting memories.")

    @model_validator(mode="after")
    def _fits_the_kind(self) -> "Relate":
        known = sorted(column.removesuffix("_ids") for column in VOCABULARIES[self.kind].relations)
        if known and self.how not in known:
            choices = ", ".join(known)
            raise refuse(f"how: “{self.how[:40]}” is not a relation of the kind {self.kind}: write {choices}")
        if self.kind != "entity" and (given := [name for name in _OF_RELATIONSHIPS if name in self.model_fields_set]):
            raise refuse(f"{', '.join(given)}: only relationships of entities have these")
        if self.valid_from and self.valid_to and self.valid_from > self.valid_to:
            raise refuse("valid_to: is before valid_from")
        return self

    def stated(self) -> dict[str, Any]:
        """The values given for a relationship of entities, by column, as the database writes them in JSON."""
        columns = {name: name for name in _OF_RELATIONSHIPS} | {"evidence": "evidence_ids"}
        values = {columns[name]: getattr(self, name) for name in columns if name in self.model_fields_set}
        return {column: _as_stored(value) for column, value in values.items()}


_OF_RELATIONSHIPS = ("fact", "confidence", "valid_from", "valid_to", "evidence")


def _as_stored(value: Any) -> Any:
    match value:
        case datetime():
            text = value.astimezone(UTC).isoformat().removesuffix("+00:00")
            return (text.rstrip("0") if "." in text else text) + "+00:00"
        case list():
            return sorted(set(value))
        case str():
            return value.strip()
    return value


class Forget(Operation):
    """Delete all memories that match a query. They can be restored together, by its undo, or one by one."""

    verb = "forget"
    scope = "write"
    query: Query = Field(
        description="A query string as on the explore page. As there, it finds active and proposed memories by default."
    )
    reason: Reason = Field("", description="Why, for the memories and the audit trail.")

    @model_validator(mode="after")
    def _is_narrowed(self) -> "Forget":
        if not self.query.strip("? "):
            raise refuse("query: is empty, and would delete all memories: give a text or a filter")
        return self


# In place of a date: none.
NO_DATE = "none"
_SHIFT = re.compile(
    r"(?P<sign>[-+−–]?) ?(?P<count>\d{1,6}) ?"
    r"(?P<unit>min(?:ute)?|h(?:ou)?r?|d(?:ay)?|w(?:ee)?k?|mo(?:nth)?|y(?:ea)?r?)s?"
)
_UNITS = {"mi": "minutes", "h": "hours", "d": "days", "w": "weeks", "mo": "months", "y": "years"}


def _validity(value: Any) -> Any:
    is_none = isinstance(value, str) and value.strip().lower() == NO_DATE
    return NO_DATE if is_none else parse_moment(value)


def _shift(text: str) -> str:
    """A shift of dates in one spelling, such as `+3 days`."""
    if not text.strip():
        return ""
    match = _SHIFT.fullmatch(text.strip().lower())
    if match is None:
        raise refuse(f"{shown(text)} is not a shift: write one such as +3 days, -2 hours or +1 year")
    sign = match["sign"] or "+"
    unit = next(unit for begin, unit in _UNITS.items() if match["unit"].startswith(begin))
    return f"{'+' if sign == '+' else '-'}{int(match['count'])} {unit}"


Authors = Annotated[
    list[Annotated[str, Field(max_length=200), AfterValidator(_author_name)]], Field(max_length=MAX_NAMES)
]
Validity = Annotated[datetime | Literal["none"] | None, BeforeValidator(_validity)]


class Retag(Operation):
    """Change many memories: their tags, categories, concepts, entities and state, type, project, date, authors and
    validity; or merge duplicates into one.
    """

    verb = "retag"
    scope = "write"
    query: Query | None = Field(
        None, description="All that match this query string, as on the explore page; empty means all memories."
    )
    memories: MemoryIds = Field([], description="These memories, instead of a query.")
    add_tags: Annotated[list[Name], Field(max_length=MAX_NAMES)] = []
    remove_tags: Annotated[list[Name], Field(max_length=MAX_NAMES)] = []
    set_category: Annotated[str, Field(max_length=1_600), AfterValidator(_storable)] = Field(
        "", description="Put them in this category only."
    )
    add_categories: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = []
    remove_categories: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = []
    add_concepts: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = []
    remove_concepts: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = []
    add_entities: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = []
    remove_entities: Annotated[list[TermName], Field(max_length=MAX_NAMES)] = []
    set_state: Literal["active", "archived"] | None = Field(
        None, description="`archived` archives them; `active` restores archived and deleted ones."
    )
    set_type: Slug100 = Field("", description="Give them this type.")
    set_project: Annotated[str, Field(max_length=MAX_PROJECT), AfterValidator(slug_name)] = Field(
        "", description="Move them to this project, which must be there and writable."
    )
    set_date: Timestamp = Field(None, description="Give them this date.")
    shift_date: Annotated[str, Field(max_length=30), AfterValidator(_shift)] = Field(
        "", description="Move their dates by this much, such as `+3 days`, `-2 hours` or `+1 year`."
    )
    set_authors: Authors = Field([], description="Let these be their only authors.")
    add_authors: Authors = []
    remove_authors: Authors = Field(
        [], description="With `add_authors`, those take the place of the ones that are removed."
    )
    set_valid_from: Validity = Field(None, description="Since when they are valid; `none` for no date.")
    set_valid_to: Validity = Field(None, description="Until when they are valid; `none` for no date.")
    merge_into: Annotated[int, Field(ge=1, lt=2**63)] | None = Field(
        None,
        description="Of duplicates in one project: the memory that supersedes the others, and gets their tags,"
        " categories, concepts and entities.",
    )
    reason: Reason = Field("", description="Why, for a change of the state.")

    @model_validator(mode="after")
    def _changes_something(self) -> "Retag":
        if (self.query is None) == (not self.memories):
            raise refuse("query, memories: choose the memories either by a query or by their ids")
        named = self.arguments().keys() - {"query", "memories", "reason"}
        if not named:
            raise refuse("add_tags: name what to add, set or remove")
        if self.set_category and (self.add_categories or self.remove_categories):
            raise refuse("set_category: cannot be combined with adding or removing categories")
        if self.set_date and self.shift_date:
            raise refuse("shift_date: cannot be combined with a date that is set")
        if self.set_authors and (self.add_authors or self.remove_authors):
            raise refuse("set_authors: cannot be combined with adding or removing authors")
        # Another spelling of the same name may take its place.
        if both := [name for name in self.remove_authors if name in self.add_authors]:
            raise refuse(f"add_authors: “{both[0]}” is both added and removed")
        if self.merge_into is not None and len(named) > 1:
            raise refuse("merge_into: cannot be combined with other changes")
        return self


def scope_of(verb: str) -> str:
    """The scope that an operation requires."""
    return next(operation.scope for operation in Operation.__subclasses__() if operation.verb == verb)
