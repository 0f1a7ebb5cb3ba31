"""Imports merge details into the vocabulary: they fill gaps and overwrite nothing."""

import pytest

from access.models import AuditEvent
from access.viewer import command_viewer
from categories.details import (
    CategoryDetails,
    ConceptDetails,
    EntityDetails,
    RelationshipDetails,
    category_merge_details,
    concept_merge_details,
    entity_merge_details,
    relationship_merge_details,
)
from categories.models import Category, Concept, Entity, Relationship
from categories.services import Vocabulary

pytestmark = pytest.mark.django_db


@pytest.fixture
def vocabulary():
    return Vocabulary(command_viewer())


def test_category_keeps_its_description_and_gains_aliases(vocabulary):
    Category.objects.create(name="Kitchen", path="kitchen", description="Where we cook.", aliases=["Galley"])
    category_merge_details(
        details=CategoryDetails("kitchen", description="Other.", aliases=("galley", "Küche")), vocabulary=vocabulary
    )
    kitchen = Category.objects.get()
    assert (kitchen.description, kitchen.aliases) == ("Where we cook.", ["Galley", "Küche"])
    event = AuditEvent.objects.get()
    assert (event.verb, event.before) == ("category_enrich", {"aliases": ["Galley"]})


def test_concept_is_filled_where_it_was_empty(vocabulary):
    Concept.objects.create(name="heat", aliases=["warmth"], weight=0.5)
    details = ConceptDetails("Heat", "physics", "How warm it is.", ("hotness",), broader=("energy",), weight=0.9)
    concept_merge_details(details=details, vocabulary=vocabulary)
    heat, energy = Concept.objects.get(name="heat"), Concept.objects.get(name="energy")
    assert (heat.concept_type, heat.description, heat.weight) == ("physics", "How warm it is.", 0.5)
    assert heat.aliases == ["warmth", "hotness"]
    assert (heat.broader_ids, energy.narrower_ids) == ([energy.pk], [heat.pk])


def test_entity_and_relationship_keep_what_was_said_of_them(vocabulary):
    mio = Entity.objects.create(name="Mio", entity_type="person", description="The cook.")
    pot = Entity.objects.create(name="pot", entity_type="tool")
    Relationship.objects.create(source=mio, relationship_type="uses", target=pot, fact="Daily.", evidence_ids=[3])
    entity_merge_details(details=EntityDetails("person", "mio", "Other.", ("Miyo",)), vocabulary=vocabulary)
    said = RelationshipDetails(("person", "Mio"), "uses", ("tool", "pot"), "Weekly.", 0.7, evidence_ids=(1,))
    relationship_merge_details(details=said, vocabulary=vocabulary)
    mio.refresh_from_db()
    known = Relationship.objects.get()
    assert (mio.description, mio.aliases) == ("The cook.", ["Miyo"])
    assert (known.fact, known.confidence, known.evidence_ids) == ("Daily.", 0.7, [1, 3])


def test_what_adds_nothing_is_no_event(vocabulary):
    Category.objects.create(name="Kitchen", path="kitchen", description="Where we cook.")
    category_merge_details(details=CategoryDetails("kitchen", description="Other."), vocabulary=vocabulary)
    assert not AuditEvent.objects.exists()
