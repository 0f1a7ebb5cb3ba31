"""The tree in the process: names without regard to case, and no walk that does not end."""

import numpy as np
import pytest

from categories.models import Category, FormerPath
from categories.names import data_revision
from categories.vocabulary_cache import CachedCategory, Tree, tree_at
from memories.storage import corpus_bump


def node(pk, path, parent=None, *, name="", aliases=()):
    return CachedCategory(
        pk, path, name or path.rpartition("/")[2], parent, path.count("/") + 1, "", tuple(aliases), ()
    )


TREE = Tree(
    [
        node(1, "backend", name="Backend", aliases=["Server side", "7"]),
        node(2, "backend/http", 1, name="HTTP"),
        node(3, "backend/straße", 1, name="Straße"),
        node(5, "frontend", name="Frontend"),
        node(6, "frontend/http", 5, name="HTTP", aliases=["web", "Backend"]),
    ],
    former={"server/calls": [2], "gone": [9]},
)


def anything(_):
    return True


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("backend/http", [2], id="slug path"),
        pytest.param("Backend / HTTP", [2], id="path as it is written"),
        pytest.param("hTTp", [2, 6], id="name that two have"),
        pytest.param("Server / Calls", [2], id="path that one had, as it is written"),
        pytest.param("gone", [], id="path of what is there no more"),
        pytest.param("STRASSE", [3], id="case beyond ASCII"),
        pytest.param("5", [5], id="id"),
        pytest.param("7", [1], id="alias that looks like an id"),
        pytest.param("server SIDE", [1], id="alias"),
        pytest.param("backend", [1], id="a path before an alias"),
        pytest.param("", [], id="nothing"),
        pytest.param("/", [], id="no name"),
        pytest.param("a/" * 40, [], id="deeper than any"),
        pytest.param("\x00\ud800", [], id="no text"),
    ],
)
def test_name_is_resolved(name, found):
    assert TREE.resolve(name, anything) == found


def test_what_may_not_be_seen_stands_in_nobodys_way():
    assert TREE.resolve("backend", {6}.__contains__) == [6]
    assert TREE.resolve("http", {6}.__contains__) == [6]
    assert TREE.resolve("server/calls", {6}.__contains__) == []


def test_path_that_one_had_comes_before_a_name_that_another_has():
    tree = Tree([node(1, "modules"), node(2, "archive/releases")], former={"releases": [1]})
    assert tree.resolve("Releases", anything) == [1]


def test_lineage_and_uppermost():
    assert [one.id for one in TREE.lineage(3)] == [1, 3]
    assert TREE.uppermost(np.array([False, True, True, False, True])) == [2, 3, 6]
    assert TREE.uppermost(np.array([True, True, False, False, True])) == [1, 6]


def test_a_ring_ends_every_walk():
    ring = Tree([node(1, "a", 3), node(2, "a/b", 1), node(3, "a/b/c", 2), node(4, "d", 4)])
    assert [one.id for one in ring.lineage(3)] == [1, 2, 3]
    assert [one.id for one in ring.lineage(4)] == [4]
    assert ring.uppermost(np.array([False, True, True, True])) == [2, 4]


@pytest.mark.django_db(transaction=True)
def test_tree_is_read_again_only_where_it_has_changed(django_assert_num_queries):
    corpus_bump()
    home = Category.objects.create(name="Home", path="home")
    assert [one.name for one in tree_at(data_revision(), None).ordered] == ["Home"]
    with django_assert_num_queries(1):
        tree = tree_at(data_revision(), None)
    corpus_bump()
    with django_assert_num_queries(3):
        assert tree_at(data_revision(), None) is tree
    home.description = "Where we live."
    home.save()
    corpus_bump()
    assert tree_at(data_revision(), None).nodes[home.pk].description == "Where we live."
    FormerPath.objects.create(path="house", category=home)
    corpus_bump()
    assert tree_at(data_revision(), None).resolve("house", anything) == [home.pk]
