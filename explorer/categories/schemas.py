"""Replies of the API about categories. A document is a memory."""

from datetime import datetime

from pydantic import BaseModel, Field

from explorer.explore.timeline_api import QueryWarning


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
