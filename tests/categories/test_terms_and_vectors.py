"""Terms and vectors of the vocabulary: written with the rows, caught up, and updated on a change."""

import numpy as np
import pytest
from django.db import connection

from access.viewer import command_viewer
from categories.details import EntityDetails, RelationshipDetails, entity_merge_details, relationship_merge_details
from categories.models import Category, Concept, Entity, EntityVector, Relationship, RelationshipVector
from categories.searched_terms import ENTITIES, terms_refresh_all
from categories.services import Vocabulary
from curation.schemas import Rename
from curation.services import curation_apply, curation_undo
from curation.text_edits import relationship_describe, term_describe
from memories.embedding.models import HASHED, HashedWords
from memories.embedding.pending import Refused
from memories.embedding.vocabulary import columns_resize, pending_rows, vocabulary_pending
from memories.embedding.worker import Worker, vocabulary_embed
from memories.models import EmbeddingModel
from memories.records import MemoryRecord
from memories.services import memory_create

pytestmark = pytest.mark.django_db


def terms(row):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT tsvector_to_array(terms) FROM {row._meta.db_table} WHERE id = %s", [row.pk])
        return set(cursor.fetchone()[0] or ())


def entity(name="Kettle", kind="tool", **details):
    return Entity.objects.get(
        pk=entity_merge_details(details=EntityDetails(kind, name, **details), vocabulary=Vocabulary(command_viewer()))
    )


def relationship(fact="It boils."):
    return Relationship.objects.get(
        pk=relationship_merge_details(
            details=RelationshipDetails(("tool", "Kettle"), "stands_on", ("tool", "Stove"), fact),
            vocabulary=Vocabulary(command_viewer()),
        )
    )


@pytest.fixture
def model():
    return EmbeddingModel.objects.create(
        id=1, name=HASHED, source=HASHED, dimensions=384, min_similarity=0.2, state="serving"
    )


def embed(model, embedder=None):
    return vocabulary_embed(model.pk, embedder or HashedWords(), stop=lambda: False, refused=Refused())


# --- terms --------------------------------------------------------------------------------------------------------


def test_an_entity_that_a_memory_brings_is_found_at_once():
    memory_create(record=MemoryRecord(content="Tea.", entities=["tool:Copper Kettle"]), viewer=command_viewer())
    assert terms(Entity.objects.get()) == {"copper", "kettl", "tool"}


def test_concepts_and_categories_that_a_memory_brings_are_found_at_once():
    record = MemoryRecord(content="Tea.", concepts=["thundering herd"], categories=["Yard/Grain store"])
    memory_create(record=record, viewer=command_viewer())
    assert terms(Concept.objects.get()) == {"thunder", "herd"}
    assert terms(Category.objects.get(path="yard/grain-store")) == {"grain", "store"}
    term_describe(term=Concept.objects.get(), description="All at once", aliases=["stampede"], viewer=command_viewer())
    assert terms(Concept.objects.get()) == {"thunder", "herd", "all", "at", "onc", "stamped"}


def test_renamed_concept_is_found_by_its_new_name_until_that_is_undone():
    memory_create(record=MemoryRecord(content="Tea.", concepts=["herd"]), viewer=command_viewer())
    rename = Rename(kind="concept", term="herd", name="flock")
    applied = curation_apply(operation=rename, viewer=command_viewer())
    assert "flock" in terms(Concept.objects.get())
    curation_undo(curation_id=applied.curation.pk, viewer=command_viewer())
    assert terms(Concept.objects.get()) == {"herd"}


def test_what_is_said_of_an_entity_is_found_at_once():
    kettle = entity(description="Boils quickly", aliases=("pot",))
    assert terms(kettle) == {"kettl", "tool", "boil", "quick", "pot"}
    term_describe(term=kettle, description="Leaks", aliases=["urn"], viewer=command_viewer())
    assert terms(kettle) == {"kettl", "tool", "leak", "urn"}


def test_a_relationship_is_found_by_its_ends_its_type_and_its_fact():
    one = relationship()
    assert terms(one) == {"kettl", "stand", "on", "stove", "it", "boil"}
    relationship_describe(relationship=one, fact="Cold", confidence=0.5, viewer=command_viewer())
    assert terms(one) == {"kettl", "stand", "on", "stove", "cold"}


def test_what_was_written_past_the_services_is_caught_up_with():
    Entity.objects.create(name="Ladle", entity_type="tool")
    kettle = entity()
    Entity.objects.filter(pk=kettle.pk).update(description="Dented")
    assert terms_refresh_all() == 2
    assert terms(kettle) == {"kettl", "tool", "dent"}
    assert terms_refresh_all() == 0


# --- vectors ------------------------------------------------------------------------------------------------------


def test_everything_waits_until_it_is_embedded(model):
    relationship()
    assert vocabulary_pending(model.pk) == 3
    assert embed(model) == 3
    assert (EntityVector.objects.count(), RelationshipVector.objects.count()) == (2, 1)
    assert vocabulary_pending(model.pk) == 0
    assert embed(model) == 0


def test_the_vector_is_of_the_text_in_words(model):
    entity(description="Boils quickly", aliases=("pot",))
    relationship()
    assert pending_rows(ENTITIES, model.pk, limit=1)[0].text == "Kettle (tool), pot\nBoils quickly"
    embed(model)
    (stored,) = RelationshipVector.objects.all()
    expected = HashedWords().encode_query("Kettle stands on Stove\nIt boils.")
    assert np.allclose(stored.embedding, expected, atol=1e-3)


def test_what_changes_waits_again_and_nothing_else(model):
    one = relationship()
    embed(model)
    relationship_describe(relationship=one, fact="Cold", confidence=None, viewer=command_viewer())
    assert vocabulary_pending(model.pk) == 1
    assert embed(model) == 1


def test_another_model_embeds_all_anew_and_the_old_vectors_stay(model):
    entity()
    embed(model)
    other = EmbeddingModel.objects.create(
        id=2, name="other", source="other", dimensions=384, min_similarity=0.2, state="building"
    )
    assert vocabulary_pending(other.pk) == 1
    embed(other)
    assert sorted(EntityVector.objects.values_list("model_id", flat=True)) == [1, 2]


def test_a_vector_goes_with_what_it_is_of(model):
    one = relationship()
    embed(model)
    one.delete()
    Entity.objects.all().delete()
    assert (EntityVector.objects.count(), RelationshipVector.objects.count()) == (0, 0)


def test_a_text_that_cannot_be_embedded_holds_up_no_other(model, caplog):
    class Picky(HashedWords):
        def encode(self, texts):
            if any("Stove" in text for text in texts):
                raise ValueError("too hot")
            return super().encode(texts)

    entity("Stove")
    entity("Kettle")
    refused = Refused()
    for _ in range(2):
        vocabulary_embed(model.pk, Picky(), stop=lambda: False, refused=refused)
    assert [one.entity.name for one in EntityVector.objects.select_related("entity")] == ["Kettle"]
    assert "too hot" in caplog.text
    assert vocabulary_pending(model.pk) == 1


@pytest.mark.parametrize("when", ["before the vector is stored", "after it"])
@pytest.mark.django_db(transaction=True)
def test_row_that_is_deleted_while_it_is_embedded_gets_no_vector(model, when):
    kettle, stove = entity("Kettle"), entity("Stove")
    other = connection.copy()

    class Interrupted(HashedWords):
        def encode(self, texts):
            if not other.connection:
                other.set_autocommit(False)
                with other.cursor() as cursor:
                    cursor.execute("DELETE FROM categories_entity WHERE id = %s", [kettle.pk])
                if when == "before the vector is stored":
                    other.commit()
            return super().encode(texts)

    try:
        assert embed(model, Interrupted()) == 1
        other.commit()
    finally:
        other.close()
    assert [one.entity_id for one in EntityVector.objects.all()] == [stove.pk]
    assert vocabulary_pending(model.pk) == 0


def test_vectors_of_another_width_need_other_columns(model):
    entity()
    embed(model)
    columns_resize(8)
    assert EntityVector.objects.count() == 0
    assert vocabulary_embed(model.pk, HashedWords(8), stop=lambda: False, refused=Refused()) == 1
    columns_resize(384)


@pytest.mark.django_db(transaction=True)
def test_the_worker_embeds_the_vocabulary_after_the_memories():
    memory_create(record=MemoryRecord(content="Tea.", entities=["tool:Kettle"]), viewer=command_viewer())
    Entity.objects.create(name="Ladle", entity_type="tool")
    worker = Worker(HASHED)
    model = worker.once()
    assert (worker.progress.memories, worker.vocabulary) == (1, 2)
    assert vocabulary_pending(model.pk) == 0
    assert terms(Entity.objects.get(name="Ladle")) == {"ladl", "tool"}
    worker.once()
    assert worker.vocabulary == 2
