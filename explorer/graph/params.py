"""The parameters of the graph's pages and API. Knows nothing of the database."""

from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from web.params import MAX_PAGE, MAX_VALUES, Params, Required, Text, Value, sorted_values

# The value of `rel` for links by a shared memory; other links are named by their type.
SAME_MEMORY = "same-memory"
MOST_STEPS = 8

Names = Annotated[tuple[Annotated[Text, Field(max_length=200)], ...], BeforeValidator(sorted_values)]
_END = Required("write type:name, a name or an id")


class TableSort(StrEnum):
    """A column of the table, ascending; with a minus descending."""

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


class TableRequest(Params):
    """Which entities or concepts a table lists, and their order."""

    search: Text = Field("", max_length=200, description="A part of a name or of an alias.")
    type: Names = Field((), max_length=MAX_VALUES, description="A type; repeat it for any of several.")
    sort: TableSort = Field(TableSort.MEMORIES_DOWN, description="A column; with a minus in descending order.")
    page: int = Field(1, ge=1, le=MAX_PAGE)
    page_size: int = Field(50, ge=1, le=200)


class AroundRequest(Params):
    """Which part of a neighbourhood is shown."""

    depth: int = Field(1, ge=1, le=2, description="2: also the neighbours of the strongest neighbours.")
    rel: Names = Field(
        (),
        max_length=MAX_VALUES,
        description=f"A type of relationship, or `{SAME_MEMORY}`: linked because a memory mentions both.",
    )
    least: int = Field(0, ge=0, le=1_000_000, alias="min", description="Minimum number of supporting memories.")


class PathRequest(Params):
    """The two ends of a path and its greatest length. The page of the first end has a form for the others."""

    begin: Annotated[Value, _END] = Field("", alias="from", description="`type:name`, name, alias or id of an entity.")
    end: Annotated[Value, _END] = Field("", alias="to", description="`type:name`, name, alias or id of another one.")
    steps: int = Field(6, ge=1, le=MOST_STEPS, description="Maximum number of links.")
    together: bool = Field(False, description="Whether entities mentioned in the same memory are linked too.")
