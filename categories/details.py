"""Merge the details of imported records into categories, concepts, entities and relationships.

Existing values are never overwritten. Changed values go to the audit trail, unless the same import made the row.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from access.viewer import audit
from categories.kinds import VOCABULARIES
from categories.models import Category, Concept, Entity, Relationship
from categories.paths import slug_of
from categories.searched_terms import CATEGORIES, CONCEPTS, ENTITIES, RELATIONSHIPS, terms_refresh
from categories.services import ConceptKey, EntityKey, Vocabulary, categories_ensure, concepts_ensure, entities_ensure
from categories.texts import stored_alias_projects, stored_description_projects

TextProjects = Mapping[str, Sequence[int]]
"""The projects of texts that are not public, by the text; an empty one stands for the description."""


@dataclass(frozen=True, slots=True)
class CategoryDetails:
    """Details of a category."""

    path: str
    name: str = ""
    description: str = ""
    aliases: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    text_projects: TextProjects = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ConceptDetails:
    """Details of a concept."""

    name: str
    concept_type: str = ""
    description: str = ""
    aliases: tuple[str, ...] = ()
    broader: tuple[str, ...] = ()
    narrower: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    weight: float | None = None
    text_projects: TextProjects = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntityDetails:
    """Details of an entity."""

    entity_type: str
    name: str
    description: str = ""
    aliases: tuple[str, ...] = ()
    text_projects: TextProjects = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RelationshipDetails:
    """Details of a relationship."""

    source: EntityKey
    relationship_type: str
    target: EntityKey
    fact: str = ""
    confidence: float | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    evidence_ids: tuple[int, ...] = ()


Described = Category | Concept | Entity | Relationship
_INVERSE = VOCABULARIES["concept"].relations


def category_merge_details(*, details: CategoryDetails, vocabulary: Vocabulary) -> int:
    """Merge details into a category, made if missing. Returns its id."""
    categories_ensure(paths=[details.path, *details.related], vocabulary=vocabulary)
    category_id = vocabulary.categories[slug_of(details.path)][-1]
    category = Category.objects.get(pk=category_id)
    related = {vocabulary.categories[slug_of(path)][-1] for path in details.related} - {category_id}
    changes: dict[str, object] = {
        **_joined_texts(category, details),
        "related_ids": _joined_ids(category.related_ids, related),
    }
    if details.name and category.batch_id is not None and category.batch_id == vocabulary.batch_id:
        changes["name"] = details.name
    _change(category, changes, vocabulary)
    terms_refresh(CATEGORIES, [category_id])
    for other in Category.objects.filter(pk__in=related):
        _change(other, {"related_ids": _joined_ids(other.related_ids, {category_id})}, vocabulary)
    return category_id


def concept_merge_details(*, details: ConceptDetails, vocabulary: Vocabulary) -> int:
    """Merge details into a concept, made if missing, and its inverse links into the others. Returns its id."""
    concepts_ensure(
        concepts=[
            ConceptKey(details.name, details.concept_type),
            *(ConceptKey(name) for name in (*details.broader, *details.narrower, *details.related)),
        ],
        vocabulary=vocabulary,
    )
    concept_id = vocabulary.concepts[details.name]
    concept = Concept.objects.get(pk=concept_id)
    linked = {
        column: {vocabulary.concepts[name] for name in getattr(details, column.removesuffix("_ids"))} - {concept_id}
        for column in _INVERSE
    }
    changes: dict[str, object] = {
        "concept_type": concept.concept_type or details.concept_type,
        **_joined_texts(concept, details),
        "weight": details.weight if concept.weight is None else concept.weight,
        **{column: _joined_ids(getattr(concept, column), ids) for column, ids in linked.items()},
    }
    _change(concept, changes, vocabulary)
    terms_refresh(CONCEPTS, [concept_id])
    for other in Concept.objects.filter(pk__in=set().union(*linked.values())):
        back = {_INVERSE[column] for column, ids in linked.items() if other.pk in ids}
        _change(other, {column: _joined_ids(getattr(other, column), {concept_id}) for column in back}, vocabulary)
    return concept_id


def entity_merge_details(*, details: EntityDetails, vocabulary: Vocabulary) -> int:
    """Merge details into an entity, made if missing. Returns its id."""
    key = (details.entity_type, details.name)
    entities_ensure(entities=[key], vocabulary=vocabulary)
    entity = Entity.objects.get(pk=vocabulary.entities[key])
    _change(entity, _joined_texts(entity, details), vocabulary)
    terms_refresh(ENTITIES, [entity.pk])
    return entity.pk


def relationship_merge_details(*, details: RelationshipDetails, vocabulary: Vocabulary) -> int:
    """Make a relationship or merge details into an existing one. Returns its id."""
    entities_ensure(entities=[details.source, details.target], vocabulary=vocabulary)
    relationship, made = Relationship.objects.get_or_create(
        source_id=vocabulary.entities[details.source],
        relationship_type=details.relationship_type,
        target_id=vocabulary.entities[details.target],
        defaults={
            "fact": details.fact,
            "confidence": details.confidence,
            "valid_from": details.valid_from,
            "valid_to": details.valid_to,
            "evidence_ids": sorted(set(details.evidence_ids)),
            "batch_id": vocabulary.batch_id,
        },
    )
    if made:
        vocabulary.count("relationships", 1)
        terms_refresh(RELATIONSHIPS, [relationship.pk])
        return relationship.pk
    changes: dict[str, object] = {
        "fact": relationship.fact or details.fact,
        "confidence": details.confidence if relationship.confidence is None else relationship.confidence,
        "valid_from": relationship.valid_from or details.valid_from,
        "valid_to": relationship.valid_to or details.valid_to,
        "evidence_ids": _joined_ids(relationship.evidence_ids, details.evidence_ids),
    }
    _change(relationship, changes, vocabulary)
    terms_refresh(RELATIONSHIPS, [relationship.pk])
    return relationship.pk


def _joined_texts(
    term: Category | Concept | Entity, details: CategoryDetails | ConceptDetails | EntityDetails
) -> dict[str, object]:
    """The description and the aliases with those of the details, and the projects in which they hold."""
    columns = ("aliases", "description", "alias_projects", "description_projects")
    before = {name: getattr(term, name) for name in columns}
    aliases = joined_aliases(term.name, term.aliases, details.aliases)
    description = term.description or details.description
    held = details.text_projects
    return {
        "description": description,
        "aliases": aliases,
        "alias_projects": stored_alias_projects(before, aliases, held.get),
        "description_projects": stored_description_projects(before, description, lambda _: held.get("")),
    }


def joined_aliases(name: str, known: Sequence[str], more: Sequence[str]) -> list[str]:
    """Old and new aliases, each once ignoring case, without the name itself."""
    seen = {name.lower()}
    joined: list[str] = []
    for alias in (*known, *more):
        if alias.lower() not in seen:
            seen.add(alias.lower())
            joined.append(alias)
    return joined


def _joined_ids(known: Sequence[int], more: Iterable[int]) -> list[int]:
    return sorted({*known, *more})


def _change(row: Described, changes: dict[str, object], vocabulary: Vocabulary) -> None:
    """Save changed values, with an audit event unless the same import made the row."""
    before = {name: getattr(row, name) for name, value in changes.items() if getattr(row, name) != value}
    if not before:
        return
    after = {name: changes[name] for name in before}
    for name, value in after.items():
        setattr(row, name, value)
    row.save(update_fields=list(after))
    if vocabulary.batch_id is None or row.batch_id != vocabulary.batch_id:
        audit(
            vocabulary.viewer,
            f"{row._meta.model_name}_enrich",
            row,
            before=_as_json(before),
            after=_as_json(after),
            batch_id=vocabulary.batch_id,
        )


def _as_json(values: dict[str, object]) -> dict[str, object]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
