"""The registry of the vocabularies: the tables and columns of categories, concepts and entities, declared once."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from categories.models import Category, CategoryLink, Concept, ConceptLink, Entity, EntityLink
from categories.queries import (
    CategoryNode,
    Term,
    category_nodes,
    concept_terms,
    entity_terms,
    resolve_categories,
    resolve_concepts,
    resolve_entities,
)
from categories.texts import Projects

VocabularyRow = CategoryNode | Term


@dataclass(frozen=True, slots=True)
class VocabularyKind:
    """A vocabulary: its model, its links to memories, and the columns of a memory that repeat these links."""

    name: str
    plural: str
    model: type[Category | Concept | Entity]
    link: type[CategoryLink | ConceptLink | EntityLink]
    label_column: str
    """The column that identifies a row to people."""
    memory_column: str
    """The array of linked ids on a memory."""
    memory_path_column: str
    """The array of linked ids with their ancestors; `memory_column` where there is no hierarchy."""
    terms: Callable[[Collection[int]], Mapping[int, VocabularyRow]]
    """The rows of ids, by id."""
    resolve: Callable[[Collection[str], Projects], Mapping[str, tuple[CategoryNode, ...] | tuple[Term, ...]]]
    """The rows that each name refers to, for a viewer of some projects."""
    relations: Mapping[str, str] = field(default_factory=dict)
    """Columns with the ids of related rows, each with the column of the inverse relation."""

    @property
    def table(self) -> str:
        return self.model._meta.db_table

    @property
    def link_table(self) -> str:
        return self.link._meta.db_table

    @property
    def link_column(self) -> str:
        """The column of the link table that refers to a row of this vocabulary."""
        return f"{self.name}_id"

    def labels(self, ids: Collection[int]) -> dict[int, str]:
        """Labels by id, as filters and addresses have them."""
        return {pk: term.value for pk, term in self.terms(ids).items()}


VOCABULARIES = {
    kind.name: kind
    for kind in (
        VocabularyKind(
            name="category",
            plural="categories",
            model=Category,
            link=CategoryLink,
            label_column="path",
            memory_column="category_ids",
            memory_path_column="category_path_ids",
            terms=category_nodes,
            resolve=resolve_categories,
            relations={"related_ids": "related_ids"},
        ),
        VocabularyKind(
            name="concept",
            plural="concepts",
            model=Concept,
            link=ConceptLink,
            label_column="name",
            memory_column="concept_ids",
            memory_path_column="concept_ids",
            terms=concept_terms,
            resolve=resolve_concepts,
            relations={"related_ids": "related_ids", "broader_ids": "narrower_ids", "narrower_ids": "broader_ids"},
        ),
        VocabularyKind(
            name="entity",
            plural="entities",
            model=Entity,
            link=EntityLink,
            label_column="name",
            memory_column="entity_ids",
            memory_path_column="entity_ids",
            terms=entity_terms,
            resolve=resolve_entities,
        ),
    )
}
TERM_KINDS = (*VOCABULARIES, "tag")
"""Everything that curation can rename or merge: the vocabularies, and tags, which have no table of their own."""
