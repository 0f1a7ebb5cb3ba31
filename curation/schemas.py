"""The operations of curation, one model each, shared by the API, the forms and the log."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from categories.kinds import VOCABULARIES
from memories.records import unstorable
from web.validation import refuse

Kind = Literal["category", "concept", "entity", "tag"]
Linked = Literal["category", "concept", "entity"]

MAX_NAMES = 1_000


def _storable(text: str) -> str:
    if reason := unstorable(text):
        raise refuse(reason.removeprefix("text: "))
    return text


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


class Operation(BaseModel):
    """The arguments of every operation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verb: ClassVar[str]
    dry_run: bool = Field(False, description="Only tell what would happen.")
    token: Annotated[str, Field(max_length=100)] = Field(
        "", description="The token of a plan: exactly that plan is executed; if it has changed, nothing is done."
    )

    def arguments(self) -> dict[str, Any]:
        """The arguments for the log."""
        return self.model_dump(mode="json", exclude={"dry_run", "token"}, exclude_defaults=True)


class Merge(Operation):
    """Merge one term into another of its kind."""

    verb = "merge"
    kind: Kind
    source: TermName
    target: TermName


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
    evidence: MemoryIds = Field([], description="For a relationship of entities: the supporting memories.")

    @model_validator(mode="after")
    def _fits_the_kind(self) -> "Relate":
        known = sorted(column.removesuffix("_ids") for column in VOCABULARIES[self.kind].relations)
        if known and self.how not in known:
            choices = ", ".join(known)
            raise refuse(f"how: “{self.how[:40]}” is not a relation of the kind {self.kind}: write {choices}")
        if self.kind != "entity" and (self.fact or self.evidence):
            raise refuse("fact, evidence: only relationships of entities have these")
        return self


class Retag(Operation):
    """Change the tags, categories, concepts or entities of all memories that match a query."""

    verb = "retag"
    query: Query = Field(description="A query string as on the explore page; empty means all memories.")
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

    @model_validator(mode="after")
    def _changes_something(self) -> "Retag":
        named = self.arguments().keys() - {"query"}
        if not named:
            raise refuse("add_tags: name what to add, set or remove")
        if self.set_category and (self.add_categories or self.remove_categories):
            raise refuse("set_category: cannot be combined with adding or removing categories")
        return self
