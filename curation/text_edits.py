"""What curators say about the vocabulary: descriptions, aliases, the text of a fact. Names and places stay.

What is said here takes the place of what stood; imports only add to it, by the `enrich` services.
"""

from collections.abc import Collection, Iterable
from typing import Any

from django.db import transaction
from django.db.models import Model, Q, QuerySet
from django.db.models.functions import Lower

from access.audit import audit
from access.viewer import Viewer
from categories.models import Category, Concept, Entity, Relationship
from categories.paths import clean_name
from categories.searched_terms import ENTITIES, RELATIONSHIPS, terms_refresh
from categories.services import vocabulary_lock_shared
from curation.queries import OTHERS_USE_IT, are_used_by_others
from memories.records import unstorable
from memories.storage import corpus_bump

MAX_ALIAS = 500
MAX_ALIASES = 1_000


class EditRefusedError(ValueError):
    """An edit that cannot be made. `field` is what it is about."""

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        super().__init__(message)


@transaction.atomic
def category_describe(*, category: Category, description: str, aliases: Iterable[str], viewer: Viewer) -> Category:
    """Say what a category is, and by what other names it is known. Several may share one: paths tell them apart."""
    _refuse_others(viewer, "category", [category.pk])
    names = clean_aliases(aliases, category.name)
    _edit(category, {"description": _text(description, "description"), "aliases": names}, viewer)
    return category


@transaction.atomic
def concept_describe(*, concept: Concept, description: str, aliases: Iterable[str], viewer: Viewer) -> Concept:
    """Say what a concept is, and by what other names it is known."""
    _refuse_others(viewer, "concept", [concept.pk])
    names = clean_aliases(aliases, concept.name)
    refuse_taken(names, Concept.objects.exclude(pk=concept.pk))
    _edit(concept, {"description": _text(description, "description"), "aliases": names}, viewer)
    return concept


@transaction.atomic
def entity_describe(*, entity: Entity, description: str, aliases: Iterable[str], viewer: Viewer) -> Entity:
    """Say what an entity is, and by what other names it is known. The same name may stand for another type of thing."""
    _refuse_others(viewer, "entity", [entity.pk])
    names = clean_aliases(aliases, entity.name)
    refuse_taken(names, Entity.objects.filter(entity_type=entity.entity_type).exclude(pk=entity.pk))
    _edit(entity, {"description": _text(description, "description"), "aliases": names}, viewer)
    terms_refresh(ENTITIES, [entity.pk])
    return entity


@transaction.atomic
def relationship_describe(
    *, relationship: Relationship, fact: str, confidence: float | None, viewer: Viewer
) -> Relationship:
    """Say in words what holds between two entities, and how sure that is."""
    _refuse_others(viewer, "entity", [relationship.source_id, relationship.target_id])
    if confidence is not None and not 0 <= confidence <= 1:
        raise EditRefusedError("Confidence is a number from 0 to 1.", "confidence")
    _edit(relationship, {"fact": _text(fact, "fact"), "confidence": confidence}, viewer)
    terms_refresh(RELATIONSHIPS, [relationship.pk])
    return relationship


def _refuse_others(viewer: Viewer, kind: str, ids: Collection[int]) -> None:
    """Whoever may not curate the terms. From here on, no curation that is under way changes them."""
    if "curate" not in viewer.scopes:
        raise EditRefusedError("Only curators can edit the vocabulary.")
    vocabulary_lock_shared()
    if are_used_by_others(kind, ids, viewer):
        raise EditRefusedError(OTHERS_USE_IT)


def _edit(row: Model, values: dict[str, Any], viewer: Viewer) -> None:
    # By its id alone, which is the only way a distributed Postgres locks a row.
    stored = type(row)._default_manager.select_for_update().get(pk=row.pk)
    before = {name: getattr(stored, name) for name in values}
    for name, value in values.items():
        setattr(row, name, value)
    if before == values:
        return
    row.save(update_fields=list(values))
    audit(viewer, f"{row._meta.model_name}_describe", row, before=before, after=values)
    corpus_bump()


def _text(text: str, field: str) -> str:
    if reason := unstorable(text):
        raise EditRefusedError(reason.removeprefix("text: "), field)
    return text.strip()


def clean_aliases(aliases: Iterable[str], name: str) -> list[str]:
    """Aliases as they are stored: one line each, each once whatever its case, and never the name itself."""
    kept: dict[str, str] = {}
    for alias in aliases:
        line = clean_name(_text(alias, "aliases"))
        if len(line) > MAX_ALIAS:
            reason = f"An alias has up to {MAX_ALIAS} characters; “{line[:40]}…” has {len(line)}."
            raise EditRefusedError(reason, "aliases")
        if line and line.lower() != name.lower():
            kept.setdefault(line.lower(), line)
    if len(kept) > MAX_ALIASES:
        raise EditRefusedError(f"Give at most {MAX_ALIASES:,} aliases.", "aliases")
    return list(kept.values())


def refuse_taken(aliases: list[str], others: QuerySet[Any]) -> None:
    """An alias that is another's name would never be reached: names are looked up first."""
    lowered = [alias.lower() for alias in aliases]
    named = others.annotate(lower=Lower("name")).filter(Q(lower__in=lowered)).first() if lowered else None
    if named is not None:
        raise EditRefusedError(f"“{named.name}” is already the name of {named} (#{named.pk}).", "aliases")
