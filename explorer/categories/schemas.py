"""Requests and replies of the API about categories. A document is a memory."""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field

from explorer.explore.timeline_api import QueryWarning
from search.result import SearchWarning
from text.formatting import legible
from web.params import MAX_PAGE, Params, Required, Value
from web.validation import Problem


class CategoryHead(BaseModel):
    """Identification of a category."""

    id: int
    name: str
    path: str = Field(description="The slug path, which every filter and every address takes.")
    description: str


class CategoryAbout(CategoryHead):
    """A category with its description."""

    hierarchy: list[str] = Field(description="The names from the root down, its own last.")
    aliases: list[str]
    related_categories: list[str] = Field(description="Slug paths.")


class ChildCategory(BaseModel):
    """A child category. Counts include its descendants."""

    id: int
    name: str
    path: str
    document_count: int
    own_document_count: int
    chunk_count: int
    concept_count: int


class CategoryStatistics(BaseModel):
    """Totals of the category, with descendants if requested. Everything counts once."""

    total_documents: int
    total_chunks: int
    total_concepts: int
    own_documents: int = Field(description="Directly in it, regardless of the query.")
    documents_with_children: int = Field(description="In it or its subcategories, regardless of the query.")
    total_child_categories: int = Field(description="Number of children; 0 without include_children.")
    child_categories: list[ChildCategory] = Field(description="Largest first, at most `limit`.")


class CategoryDocument(BaseModel):
    """A memory of the category."""

    id: int
    source: str = Field(description="The address of the original, or its source; empty if unknown.")
    title: str
    preview: str
    project: str
    memory_type: str
    state: str
    created_at: datetime
    concepts: list[str]
    categories: list[str] = Field(description="Slug paths.")
    chunk_count: int = Field(description="0 until it is embedded.")
    url: str = Field(description="The page of the memory.")


class CategoryConcept(BaseModel):
    """A concept of memories in the category."""

    id: int
    name: str
    type: str
    category: str = Field(description="The name of the requested category.")
    weight: float | None = Field(description="Its weight; null if unknown.")
    document_count: int = Field(description="Memories of the category that have it.")
    chunk_count: int = Field(description="The chunks of these.")
    related_concepts: list[str] = Field(description="At most three.")


class CategoryChunk(BaseModel):
    """A chunk of a memory of the category."""

    id: str = Field(description="The memory's id and the place of the chunk in it, as in 412/0.")
    document: int = Field(description="The memory.")
    text: str
    source: str
    concepts: list[str] = Field(description="Those concepts of the memory that the chunk names.")
    concept_density: float = Field(description="The share of its words that belong to these names, 0 to 1.")


class CategoryReply(BaseModel):
    """A category with its newest memories and most frequent concepts."""

    category: CategoryAbout
    statistics: CategoryStatistics
    documents: list[CategoryDocument]
    concepts: list[CategoryConcept]
    chunks: list[CategoryChunk] | None = Field(
        None, description="Those of the newest memories that have any; only with include_chunks."
    )
    has_more: bool = Field(description="Whether further pages have memories.")
    message: str | None = Field(None, description="Why there are no results, if there are none.")
    warnings: list[QueryWarning]
    took_ms: float


class ListedStatistics(BaseModel):
    """Totals of a category with its descendants."""

    document_count: int = Field(description="In it or its subcategories.")
    own_document_count: int = Field(description="Directly in it.")
    chunk_count: int
    concept_count: int


class ListedHierarchy(BaseModel):
    """Position of a category in the tree."""

    parent: str | None = Field(description="Its path; null for a root.")
    children: list[str] = Field(description="Their paths, by name.")
    depth: int = Field(description="0 for a root.")


class ListedCategory(CategoryHead):
    """A category of the list."""

    statistics: ListedStatistics
    hierarchy: ListedHierarchy | None = Field(None, description="With include_hierarchy alone.")
    aliases: list[str]
    related_categories: list[str] = Field(description="Slug paths.")


class AggregateStats(BaseModel):
    """Totals over all categories that match the filter. A memory in several of them counts once."""

    total_documents: int
    total_chunks: int
    total_concepts: int
    average_docs_per_category: float = Field(description="The mean of own_document_count; 0 if there is no category.")
    average_chunks_per_category: float
    most_popular_category: str | None = Field(description="Its path; null if there is no category.")
    least_popular_category: str | None


class CategoryListReply(BaseModel):
    """Categories in the requested order."""

    total_categories: int = Field(description="Number of categories that match the filter.")
    returned_categories: int
    has_more: bool = Field(description="Whether the next `page` has any.")
    categories: list[ListedCategory]
    aggregate_stats: AggregateStats
    warnings: list[QueryWarning]
    took_ms: float


class ConceptStatistics(BaseModel):
    total_documents: int
    total_concepts: int
    average_concepts_per_document: float = Field(description="Distinct concepts for each memory; 0 without any.")


class ConceptInCategory(BaseModel):
    """A concept of the list."""

    id: int
    name: str
    type: str
    document_count: int = Field(description="Memories of the category that have it.")
    total_document_count: int = Field(description="Memories that have it, in any category.")
    chunk_count: int
    weight: float | None = Field(description="Its weight; null if unknown.")
    related_concepts: list[str] = Field(description="At most three.")


class ConceptListReply(BaseModel):
    """The concepts of the memories in a category."""

    category: CategoryHead
    statistics: ConceptStatistics
    concepts: list[ConceptInCategory]
    message: str | None = Field(None, description="Why there are no results, if there are none.")
    warnings: list[QueryWarning]
    took_ms: float


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
