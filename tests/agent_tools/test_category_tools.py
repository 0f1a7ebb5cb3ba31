"""The category tools as an agent calls them."""

import json

import pytest

from access.models import ApiKey
from access.viewer import command_viewer, viewer_of_key
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from memories.records import MemoryRecord
from memories.services import memory_create
from tests.agent_tools.conftest import key_for
from text.formatting import estimated_tokens

pytestmark = pytest.mark.django_db


def ask(name, viewer=None, **arguments):
    return json.loads(call(TOOL[name], {"format": "json", **arguments}, viewer or command_viewer()))


def test_categories_are_listed_in_the_spelling_of_the_specification(ids):
    reply = ask("list_categories", sortBy="documentCount", limit=2, includeHierarchy=True)
    assert (reply["total_categories"], reply["returned_categories"]) == (9, 2)
    assert reply["aggregate_stats"]["total_documents"] == 11
    rows = [(row["path"], row["document_count"], row["depth"]) for row in reply["categories"]]
    assert rows == [("yard", 6, 0), ("guests", 3, 0)]
    assert reply["categories"][0]["children"] == ["yard/dock", "yard/wood"]


def test_category_is_searched_by_any_name_with_its_children(ids):
    reply = ask("category_search", category="STOVE")
    assert reply["category"]["hierarchy"] == ["Kitchen", "Oven"]
    assert [row["id"] for row in reply["documents"]] == [ids["t2"]]
    reply = ask("category_search", category="kitchen", includeChildren=True, includeChunks=True)
    assert (reply["statistics"]["total_documents"], reply["statistics"]["total_child_categories"]) == (3, 2)
    assert [row["path"] for row in reply["child_categories"]] == ["kitchen/brewing", "kitchen/oven"]
    assert [row["name"] for row in reply["concepts"]] == ["temperature", "maintenance"]
    assert reply["chunks"] == []


def test_concepts_of_a_category_are_listed(ids):
    reply = ask("list_concepts_in_category", category="yard", include_children=True, sort_by="name")
    assert reply["statistics"] == {
        "total_documents": 6,
        "total_concepts": 2,
        "average_concepts_per_document": 0.3,
    }
    assert [(row["name"], row["document_count"], row["total_document_count"]) for row in reply["concepts"]] == [
        ("maintenance", 1, 2),
        ("safety", 3, 3),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        pytest.param(
            "category_search",
            {"category": "kitchn"},
            "Category not found: kitchn. Did you mean kitchen? Try using list_categories to see available categories.",
            id="unknown category",
        ),
        pytest.param(
            "list_concepts_in_category",
            {},
            "category: is missing. write the name, slug path, alias or id of a category",
            id="no category",
        ),
        pytest.param(
            "list_categories",
            {"sort_by": "size"},
            "sort_by: 'size' is not one of the choices. write one of popularity, name, document_count, chunk_count,"
            " concept_count",
            id="unknown order",
        ),
        pytest.param(
            "category_search",
            {"category": "kitchen", "children": True},
            "children: is not a parameter. Did you mean include_children? category_search takes: category,"
            " include_children, include_chunks, page, limit, format, max_tokens.",
            id="unknown argument",
        ),
    ],
)
def test_mistake_is_told_with_what_to_do(ids, name, arguments, said):
    with pytest.raises(ToolRefusedError) as error:
        call(TOOL[name], arguments, command_viewer())
    assert str(error.value) == said


def test_other_projects_are_not_there(ids):
    key_for("tea")
    viewer = viewer_of_key(ApiKey.objects.latest("id"))
    assert [row["path"] for row in ask("list_categories", viewer, filter="dock")["categories"]] == []
    with pytest.raises(ToolRefusedError, match=r"^Category not found: dock\. Try"):
        ask("category_search", viewer, category="dock")


def test_budget_keeps_memories_before_concepts_before_chunks(ids):
    for n in range(60):
        record = MemoryRecord(
            content=f"Rope number {n} is kept in the loft.", categories=["Loft"], concepts=[f"knot {n}"], project="boat"
        )
        memory_create(record=record, viewer=command_viewer())
    text = call(TOOL["category_search"], {"category": "loft", "limit": 100, "max_tokens": 800}, command_viewer())
    assert estimated_tokens(text) <= 800
    assert "60 of 60 concepts" in text
    assert text.startswith("category:")
    assert "of 60 documents" in text.split("left_out")[1].splitlines()[0]


def test_limit_out_of_bounds_is_told(ids):
    reply = ask("category_search", category="kitchen", limit=500)
    assert reply["warnings"][:1] == ["limit 500 is out of bounds: 100 is used (1 to 100)."]
