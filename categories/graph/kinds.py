"""The two vocabularies that are looked at as graphs, and what is the same in both."""

from collections.abc import Iterable
from dataclasses import dataclass

from categories.names import Names
from categories.queries import Term


@dataclass(frozen=True, slots=True)
class Kind:
    """A vocabulary. `key` is what facets, parameters and addresses call one of it, `column` where memories hold it."""

    key: str
    many: str
    table: str
    type_column: str
    column: str

    def terms(self, names: Names, ids: Iterable[int]) -> dict[int, Term]:
        return names.entity_terms(ids) if self.key == "entity" else names.concept_terms(ids)


ENTITY = Kind("entity", "entities", "categories_entity", "entity_type", "entity_ids")
CONCEPT = Kind("concept", "concepts", "categories_concept", "concept_type", "concept_ids")
KINDS = {kind.key: kind for kind in (ENTITY, CONCEPT)}
