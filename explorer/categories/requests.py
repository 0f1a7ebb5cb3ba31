"""The parameters of the operations on categories. Knows nothing of the database.

A limit out of bounds is brought into them with a warning; every other invalid parameter is an error that names it.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from search.result import SearchWarning
from text.formatting import legible
from web.params import MAX_PAGE, Params, Required, Value
from web.validation import Problem

CategorySort = Literal["popularity", "name", "document_count", "chunk_count", "concept_count"]
ConceptSort = Literal["document_count", "name", "weight"]
CATEGORY_SORTS: tuple[CategorySort, ...] = get_args(CategorySort)
CONCEPT_SORTS: tuple[ConceptSort, ...] = get_args(ConceptSort)

_INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def _snake_case(value: object) -> object:
    """A choice in snake case, for `documentCount`."""
    return _INNER_CAPITAL.sub("_", value).lower() if isinstance(value, str) else value


def _limit_description(things: str, most: int) -> str:
    return f"{things}, 1 to {most}; what is out of these bounds is brought into them, with a warning."


Name = Annotated[Value, Required("write the name, slug path, alias or id of a category")]
Below = Annotated[bool, Field(description="Include all subcategories (also `includeChildren`).")]
_SORT = "What comes first: the most memories, or whatever is named (also `sortBy`)."


class _Limited(Params):
    """Parameters with a limit. `requested_limit` is the number that was asked for, and `limit` the one in effect."""

    aliases = {
        "includeChildren": "include_children",
        "subcategories": "include_children",
        "includeChunks": "include_chunks",
        "includeHierarchy": "include_hierarchy",
        "sortBy": "sort_by",
        "orderBy": "sort_by",
        "sort": "sort_by",
    }
    most: ClassVar[int] = 200

    if TYPE_CHECKING:  # each class declares it among its own fields, whose order is that of the documentation
        requested_limit: int

    @property
    def limit(self) -> int:
        return min(max(self.requested_limit, 1), self.most)

    @property
    def notices(self) -> tuple[SearchWarning, ...]:
        if self.limit == self.requested_limit:
            return ()
        asked = legible(str(self.requested_limit))
        text = f"limit {asked} is out of bounds: {self.limit} is used (1 to {self.most})."
        return (SearchWarning(text, "limit"),)


class CategoryRequest(_Limited):
    """A category, and which of its contents are wanted."""

    most = 100

    name: Name = Field("", alias="category")
    include_children: Below = False
    include_chunks: bool = Field(
        False, description="With chunks, their texts and their density (also `includeChunks`)."
    )
    requested_limit: int = Field(10, alias="limit", description=_limit_description("Maximum number of each", 100))
    page: int = Field(1, ge=1, le=MAX_PAGE, description="Page of the memories; each has `limit`.")

    @property
    def begin(self) -> int:
        return (self.page - 1) * self.limit


class CategoryListRequest(_Limited):
    """Which categories are listed, and their order."""

    sort_by: Annotated[CategorySort, BeforeValidator(_snake_case)] = Field("popularity", description=_SORT)
    requested_limit: int = Field(50, alias="limit", description=_limit_description("Maximum number of categories", 200))
    include_hierarchy: bool = Field(
        False, description="With the parent and the children of each (also `includeHierarchy`)."
    )
    filter: Value = Field("", description="Part of a name.")
    page: int = Field(1, ge=1, le=MAX_PAGE, description="Page number; each has `limit` categories.")
    offset: int = Field(0, ge=0, description="Skip this many categories, in place of `page`.")

    @property
    def begin(self) -> int:
        return self.offset or (self.page - 1) * self.limit

    def conflicts(self) -> Iterator[Problem]:
        if self.page > 1 and self.offset:
            yield Problem("offset", "is given together with page", "give one of the two")


class ConceptListRequest(_Limited):
    """The category whose concepts are listed, and their order."""

    name: Name = Field("", alias="category")
    sort_by: Annotated[ConceptSort, BeforeValidator(_snake_case)] = Field("document_count", description=_SORT)
    requested_limit: int = Field(50, alias="limit", description=_limit_description("Maximum number of concepts", 200))
    include_children: Below = False
