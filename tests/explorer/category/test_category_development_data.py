"""Reads of categories on real records, with every number compared to plain SQL."""

import pytest
from django.core.management import call_command
from django.db import connection

from access.keys import make_key
from access.models import AuditEvent
from access.viewer import Viewer, command_viewer
from categories.models import Category
from explorer.categories.visible_tree import visible_tree
from memories.models import ImportBatch, Project
from search.engines import select_engine
from tests import development_data
from tests.html import html_of
from web.cache import clear_caches

pytestmark = [
    pytest.mark.release,
    pytest.mark.development_data,
    pytest.mark.skipif(not development_data.PATH.exists(), reason=development_data.MISSING),
]
# From links and parents only, without derived columns.
PLAIN = """
WITH RECURSIVE closure (root, id) AS (
  SELECT id, id FROM categories_category
  UNION ALL SELECT closure.root, child.id FROM closure JOIN categories_category child ON child.parent_id = closure.id
)
SELECT root, count(DISTINCT memory.id), count(DISTINCT memory.id) FILTER (WHERE closure.id = root),
       count(DISTINCT concept.concept_id)
FROM closure JOIN categories_categorylink link ON link.category_id = closure.id
JOIN memories_memory memory ON memory.id = link.memory_id AND memory.state IN ('active', 'proposed')
  AND (%(all)s OR memory.project_id = ANY(%(projects)s))
LEFT JOIN categories_conceptlink concept ON concept.memory_id = memory.id GROUP BY root"""


@pytest.fixture(scope="module")
def records(django_db_setup, django_db_blocker):
    """All records, imported once for this module and removed after it, including audit events."""
    with django_db_blocker.unblock():
        audited = set(AuditEvent.objects.values_list("pk", flat=True))
        call_command("import_memories", str(development_data.PATH), verbosity=0)
        batch = ImportBatch.objects.latest("id")
    yield
    with django_db_blocker.unblock():
        call_command("import_memories", undo=str(batch.pk), force=True, verbosity=0)
        AuditEvent.objects.exclude(pk__in=audited).delete()
        ImportBatch.objects.filter(pk=batch.pk).delete()
        clear_caches()


def plain(viewer):
    """By id: memories with descendants, memories of its own, concepts."""
    with connection.cursor() as cursor:
        cursor.execute(PLAIN, {"all": viewer.project_ids is None, "projects": sorted(viewer.project_ids or ())})
        return {row[0]: row[1:] for row in cursor.fetchall()}


@pytest.fixture
def viewers(records, db):
    cpython = Project.objects.get(slug="cpython").pk
    return [command_viewer(), Viewer(frozenset([cpython]), frozenset(["read"]))]


def test_every_number_is_that_of_plain_sql(viewers):
    for viewer in viewers:
        stated = plain(viewer)
        found = visible_tree(select_engine(viewer), viewer)
        counted = {}
        for node in found.tree.ordered:
            if (numbers := found.counts.numbers(node.id)).memories:
                counted[node.id] = (numbers.memories, found.counts.own_memories(node.id), numbers.concepts)
        assert counted == stated
        assert len(stated) > 400


@pytest.fixture
def caller(records, db, client):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw

    def get(path):
        response = client.get(path, headers={"Authorization": f"Bearer {raw}"})
        assert response.status_code == 200, html_of(response)
        return response.json()

    return get


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_examples_of_category_search(caller, depth):
    stated = plain(command_viewer())
    # The largest category of each level.
    pk = max(Category.objects.filter(depth=depth).values_list("pk", flat=True), key=lambda pk: stated.get(pk, (0,))[0])
    path = Category.objects.get(pk=pk).path
    alone = caller(f"/api/categories/{path}")
    assert alone["statistics"]["total_documents"] == stated[pk][1]
    assert len(alone["documents"]) == min(10, stated[pk][1])
    below = caller(f"/api/categories/{pk}?includeChildren=true&limit=5")
    assert below["category"]["path"] == path
    assert len(below["category"]["hierarchy"]) == depth
    assert below["statistics"]["total_documents"] == stated[pk][0]
    assert below["statistics"]["total_concepts"] == stated[pk][2]
    children = Category.objects.filter(parent=pk)
    assert below["statistics"]["total_child_categories"] == children.count()
    assert {child["id"]: child["document_count"] for child in below["statistics"]["child_categories"]}.items() <= {
        child.pk: stated.get(child.pk, (0,))[0] for child in children
    }.items()
    assert len(below["documents"]) == 5
    large = caller(f"/api/categories/{path.upper()}?includeChildren=true&includeChunks=true&limit=50")
    assert len(large["documents"]) == min(50, stated[pk][0])
    assert [document["id"] for document in large["documents"][:5]] == [one["id"] for one in below["documents"]]


def test_examples_of_list_categories(caller):
    stated = plain(command_viewer())
    top = caller("/api/categories?sortBy=popularity&limit=10")
    assert top["total_categories"] == Category.objects.count()
    assert [one["statistics"]["document_count"] for one in top["categories"]] == sorted(
        (memories for memories, *_ in stated.values()), reverse=True
    )[:10]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM memories_memory WHERE state IN ('active', 'proposed') AND category_ids <> '{}'"
        )
        assert top["aggregate_stats"]["total_documents"] == cursor.fetchone()[0]
    named = caller("/api/categories?sortBy=name&limit=50&includeHierarchy=true")
    names = [one["name"].casefold() for one in named["categories"]]
    assert names == sorted(names)
    assert all({"parent", "children", "depth"} == set(one["hierarchy"]) for one in named["categories"])
    part = caller("/api/categories?filter=asyn&sortBy=documentCount")
    assert part["total_categories"] == Category.objects.filter(name__icontains="asyn").count() > 0
    for one in part["categories"]:
        assert one["statistics"]["document_count"] == stated[one["id"]][0]


def test_examples_of_list_concepts(caller):
    stated = plain(command_viewer())
    root = max(Category.objects.filter(depth=1).values_list("pk", flat=True), key=lambda pk: stated[pk][0])
    for sort_by in ("documentCount", "name", "weight"):
        reply = caller(f"/api/categories/{root}/concepts?sortBy={sort_by}&include_children=1&limit=30")
        assert reply["statistics"]["total_documents"] == stated[root][0]
        assert reply["statistics"]["total_concepts"] == stated[root][2]
        assert len(reply["concepts"]) == min(30, stated[root][2])
