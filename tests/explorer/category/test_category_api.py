"""The API of categories: shapes of replies, and errors."""

from urllib.parse import quote

import pytest

from categories.models import Category
from memories.models import Memory

pytestmark = pytest.mark.django_db


def found(caller, path, status=200):
    response = caller.get(path)
    assert response.status_code == status, response.text
    return response.json()


def test_category_has_the_shape_of_the_specification(corpus, caller):
    reply = found(caller, "/api/categories/kitchen?includeChildren=true&includeChunks=true&limit=2")
    kitchen = Category.objects.get(path="kitchen")
    assert reply["category"] == {
        "id": kitchen.pk,
        "name": "Kitchen",
        "path": "kitchen",
        "description": "",
        "hierarchy": ["Kitchen"],
        "aliases": [],
        "related_categories": [],
    }
    brewing, oven = (Category.objects.get(path=path).pk for path in ("kitchen/brewing", "kitchen/oven"))
    assert reply["statistics"] == {
        "total_documents": 3,
        "total_chunks": 0,
        "total_concepts": 2,
        "own_documents": 1,
        "documents_with_children": 3,
        "total_child_categories": 2,
        "child_categories": [
            {
                "id": brewing,
                "name": "Brewing",
                "path": "kitchen/brewing",
                "document_count": 2,
                "own_document_count": 2,
                "chunk_count": 0,
                "concept_count": 1,
            },
            {
                "id": oven,
                "name": "Oven",
                "path": "kitchen/oven",
                "document_count": 1,
                "own_document_count": 1,
                "chunk_count": 0,
                "concept_count": 0,
            },
        ],
    }
    newest = Memory.objects.get(external_id="t5")
    assert reply["documents"][0] == {
        "id": newest.pk,
        "source": "agent-session",
        "title": "Descale with rm -rf vinegar",
        "preview": "Run descale --full, never rm -rf the water. Set foo_bar in asyncio.run(main()), then rest.",
        "project": "tea",
        "memory_type": "howto",
        "state": "active",
        "created_at": "2025-06-01T12:00:00Z",
        "concepts": ["maintenance", "temperature"],
        "categories": ["kitchen"],
        "chunk_count": 0,
        "url": f"http://testserver/m/{newest.pk}/",
    }
    assert len(reply["documents"]) == 2
    assert [(one["name"], one["document_count"], one["category"]) for one in reply["concepts"]] == [
        ("temperature", 2, "Kitchen"),
        ("maintenance", 1, "Kitchen"),
    ]
    assert set(reply["concepts"][0]) == {
        *("id", "name", "type", "category", "weight", "document_count", "chunk_count", "related_concepts")
    }
    assert reply["chunks"] == []
    assert [warning["parameter"] for warning in reply["warnings"]] == ["chunks"]
    assert "message" not in reply


def test_list_has_the_shape_of_the_specification(corpus, caller):
    reply = found(caller, "/api/categories?sortBy=documentCount&limit=2")
    assert (reply["total_categories"], reply["returned_categories"]) == (9, 2)
    assert [category["path"] for category in reply["categories"]] == ["yard", "guests"]
    yard = reply["categories"][0]
    assert set(yard) == {"id", "name", "path", "description", "statistics", "aliases", "related_categories"}
    assert yard["statistics"] == {
        "document_count": 6,
        "own_document_count": 2,
        "chunk_count": 0,
        "concept_count": 2,
    }
    assert reply["aggregate_stats"] == {
        "total_documents": 11,
        "total_chunks": 0,
        "total_concepts": 4,
        "average_docs_per_category": 1.6,
        "average_chunks_per_category": 0.0,
        "most_popular_category": "yard",
        "least_popular_category": "guests/tables",
    }


def test_concepts_have_the_shape_of_the_specification(corpus, caller):
    reply = found(caller, "/api/categories/yard/concepts?include_children=1&sort_by=name&limit=1")
    assert reply["statistics"] == {
        "total_documents": 6,
        "total_concepts": 2,
        "average_concepts_per_document": 0.3,
    }
    (concept,) = reply["concepts"]
    assert {key: value for key, value in concept.items() if key != "id"} == {
        "name": "maintenance",
        "type": "",
        "document_count": 1,
        "total_document_count": 2,
        "chunk_count": 0,
        "weight": None,
        "related_concepts": [],
    }


@pytest.mark.parametrize("ref", ["%00", quote("\n"), "%ED%A0%80", "a" * 5000, "9" * 60, quote("a/" * 200)])
def test_hostile_name_is_not_found(corpus, caller, ref):
    assert found(caller, f"/api/categories/{ref}", 404)["error"] == "not_found"


def test_a_key_that_may_not_read_is_refused(db, client):
    assert client.get("/api/categories").status_code == 401


@pytest.mark.parametrize(
    "path", ["/api/categories?x=1", "/api/categories/kitchen?sort_by=name", "/api/categories?limit=x"]
)
def test_what_cannot_be_read_is_refused_by_name(corpus, caller, path):
    reply = found(caller, path, 422)
    assert reply["error"] == "invalid_query"
    assert path.rpartition("?")[2].partition("=")[0] in reply["detail"]
