"""Names are kept in the process, and are never those of another moment than the page's."""

import pytest
from django.db import connection, transaction

from access.viewer import command_viewer
from categories.models import Category, Concept
from categories.names import names_at
from categories.revision import data_revision
from memories.models import Corpus
from memories.records import MemoryRecord
from memories.services import memory_create
from memories.storage import corpus_bump


@pytest.fixture
def tree(transactional_db):
    """Three levels, and a revision to keep them under."""
    Corpus.objects.get_or_create(id=1)
    home = Category.objects.create(name="Home", path="home")
    kitchen = Category.objects.create(name="Kitchen", path="home/kitchen", parent=home, depth=2)
    kettle = Category.objects.create(name="Kettle", path="home/kitchen/kettle", parent=kitchen, depth=3)
    return home, kitchen, kettle


def test_names_are_read_once_while_nothing_changes(tree, django_assert_num_queries):
    _, kitchen, kettle = tree
    assert names_at(data_revision()).category_nodes([kettle.pk])[kettle.pk].names == ("Home", "Kitchen", "Kettle")
    with django_assert_num_queries(1):
        names = names_at(data_revision())
        assert names.category_nodes([kettle.pk])[kettle.pk].path == "home/kitchen/kettle"
    with django_assert_num_queries(2):
        # One statement for the new node, one for what is above it; the known one is not asked for again.
        assert list(names.category_nodes([kettle.pk, kitchen.pk])) == [kettle.pk, kitchen.pk]


def test_what_there_is_not_is_asked_for_once(tree, django_assert_num_queries):
    names = names_at(data_revision())
    assert names.concept_terms([999]) == {}
    with django_assert_num_queries(0):
        assert names.concept_terms([999]) == {}


def test_a_change_shows_at_once(tree):
    home, _, kettle = tree
    concept = Concept.objects.create(name="heat")
    assert names_at(data_revision()).category_nodes([kettle.pk])[kettle.pk].names == ("Home", "Kitchen", "Kettle")
    assert names_at(data_revision()).concept_terms([concept.pk])[concept.pk].label == "heat"
    assert [node.path for node in names_at(data_revision()).tree(())] == ["home", "home/kitchen"]
    with transaction.atomic():
        Category.objects.filter(pk=home.pk).update(name="House")
        Concept.objects.filter(pk=concept.pk).update(name="warmth")
        Category.objects.create(name="Garden", path="garden")
        corpus_bump()
    assert names_at(data_revision()).category_nodes([kettle.pk])[kettle.pk].names == ("House", "Kitchen", "Kettle")
    assert names_at(data_revision()).concept_terms([concept.pk])[concept.pk].label == "warmth"
    assert sorted(node.path for node in names_at(data_revision()).tree(())) == ["garden", "home", "home/kitchen"]


def test_a_category_that_comes_with_a_memory_is_in_the_tree(tree):
    assert [node.path for node in names_at(data_revision()).tree(())] == ["home", "home/kitchen"]
    memory_create(record=MemoryRecord(content="Soil.", categories=["Garden"], project="p"), viewer=command_viewer())
    assert sorted(node.path for node in names_at(data_revision()).tree(())) == ["garden", "home", "home/kitchen"]


def test_what_a_transaction_has_written_is_nobody_elses(tree):
    home, _, _ = tree
    with transaction.atomic():
        Category.objects.filter(pk=home.pk).update(name="House")
        corpus_bump()
        assert names_at(data_revision()).category_nodes([home.pk])[home.pk].name == "House"
        transaction.set_rollback(True)
    with transaction.atomic():
        # The same revision as the one that was taken back, with another content.
        Category.objects.filter(pk=home.pk).update(name="Flat")
        corpus_bump()
    assert names_at(data_revision()).category_nodes([home.pk])[home.pk].name == "Flat"


def test_an_older_snapshot_keeps_its_names(tree):
    home, _, _ = tree
    names = names_at(data_revision())
    assert names.category_nodes([home.pk])[home.pk].name == "Home"
    Category.objects.filter(pk=home.pk).update(name="House")
    corpus_bump()
    assert names_at(data_revision()).category_nodes([home.pk])[home.pk].name == "House"
    assert names.category_nodes([home.pk])[home.pk].name == "Home"


def test_the_tree_opens_down_to_what_is_chosen(tree):
    home, kitchen, kettle = tree
    Category.objects.create(name="Spout", path="home/kitchen/kettle/spout", parent=kettle, depth=4)
    names = names_at(data_revision())
    assert names.ancestor_ids(names.category_nodes([kettle.pk]).values()) == {home.pk, kitchen.pk}
    drawn = names.tree({home.pk, kitchen.pk, kettle.pk})
    assert sorted(node.name for node in drawn) == ["Home", "Kettle", "Kitchen", "Spout"]
    assert {
        parent: [node.name for node in below] for parent, below in names.children([home.pk, kettle.pk]).items()
    } == {
        home.pk: ["Kitchen"],
        kettle.pk: ["Spout"],
    }


def test_without_a_revision_nothing_is_kept(tree):
    home, _, _ = tree
    Corpus.objects.all().delete()
    assert names_at(data_revision()).category_nodes([home.pk])[home.pk].name == "Home"
    Category.objects.filter(pk=home.pk).update(name="House")
    assert connection.in_atomic_block is False
    assert names_at(data_revision()).category_nodes([home.pk])[home.pk].name == "House"
