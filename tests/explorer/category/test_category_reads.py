"""Reads of categories, over memories with known counts."""

import json
import re

import pytest

from access.viewer import Viewer, command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from categories.details import CategoryDetails, ConceptDetails, category_merge_details, concept_merge_details
from categories.models import Category, Concept
from categories.services import Vocabulary
from explorer.categories.browser import BrowseRequest, browse
from explorer.categories.reads import category_list, category_overview, chunks_of, concepts_in, memories_of
from explorer.categories.schemas import CategoryListRequest, CategoryRequest, ConceptListRequest
from explorer.categories.visible_tree import CategoryNotFoundError, visible_tree
from memories.models import Memory
from memories.records import MemoryRecord
from memories.services import memory_create
from search.engines import select_engine
from search.query import SearchQuery
from tests.embedding import embed_all
from tests.search.conftest import BOTH_ENGINES

pytestmark = [pytest.mark.django_db, BOTH_ENGINES]


def overview(viewer, name, **asked):
    return category_overview(CategoryRequest(name=name, **asked), viewer)


def listed(viewer, **asked):
    found = category_list(CategoryListRequest(**asked), viewer)
    return {one.node.path: (one.numbers.memories, one.own, one.numbers.concepts) for one in found.listed}


def titles(found):
    return [document.title for document in found.documents]


@pytest.mark.parametrize(
    "name", ["kitchen", "KITCHEN", " Kitchen ", pytest.param("id", id="its id"), pytest.param("galley", id="an alias")]
)
def test_category_is_found_by_every_name_it_has(corpus, everyone, name):
    kitchen = Category.objects.get(path="kitchen")
    Category.objects.filter(pk=kitchen.pk).update(aliases=["Galley"])
    found = overview(everyone, str(kitchen.pk) if name == "id" else name)
    assert (found.category.node.path, found.category.names) == ("kitchen", ("Kitchen",))
    assert titles(found) == ["Descale with rm -rf vinegar"]


def test_with_children_a_memory_in_two_of_them_counts_once(corpus, everyone):
    found = overview(everyone, "kitchen", include_children=True)
    # “Kettle valve stuck” is in the oven and in brewing.
    assert (found.numbers.memories, found.own, found.with_below) == (3, 1, 3)
    assert [(child.node.name, child.numbers.memories) for child in found.children] == [("Brewing", 2), ("Oven", 1)]
    assert titles(found) == [
        "Descale with rm -rf vinegar",
        "Kettle valve stuck",
        "Brew green tea at 70 °C",
    ]
    assert [(one.name, one.document_count, one.total_document_count) for one in found.concepts] == [
        ("temperature", 2, 2),
        ("maintenance", 1, 2),
    ]


def test_without_children_it_is_the_category_alone(corpus, everyone):
    found = overview(everyone, "kitchen")
    assert (found.numbers.memories, found.numbers.concepts, found.with_below) == (1, 2, 3)
    assert (found.children, found.children_total) == ((), 0)


def test_all_descendants_are_taken_in(corpus, everyone):
    found = overview(everyone, "yard", include_children=True)
    # The crane is two levels down.
    assert found.numbers.memories == 6
    assert {document.title for document in found.documents} >= {"Crane brake slips", "Launch in five steps"}
    assert [(child.node.path, child.numbers.memories, child.own) for child in found.children] == [
        ("yard/dock", 3, 2),
        ("yard/wood", 1, 1),
    ]


def test_document_tells_what_it_is_filed_under(corpus, everyone):
    (document,) = overview(everyone, "kitchen/oven").documents
    assert document.preview.startswith("The valve of the kettle stuck at 100 °C.")
    assert document.categories == ("kitchen/brewing", "kitchen/oven")
    assert (document.project, document.source, document.chunk_count) == ("tea", "git", 0)


def test_archived_and_superseded_memories_are_not_counted(corpus, everyone):
    assert overview(everyone, "yard/dock").own == 2
    assert overview(everyone, "guests/tables").own == 1


def test_category_with_all_below_it_says_where_to_look(corpus, everyone):
    memory_create(record=MemoryRecord(content="x", categories=["Attic/Box"], project="tea"), viewer=everyone)
    assert overview(everyone, "attic").message == (
        "No memory is directly in it; its subcategories have 1: ask with include_children."
    )
    assert overview(everyone, "attic", include_children=True).message == ""


def test_unknown_name_comes_with_names_like_it(corpus, everyone):
    with pytest.raises(CategoryNotFoundError) as error:
        overview(everyone, "kitchens")
    assert (str(error.value), error.value.did_you_mean) == ("Category not found: kitchens", ("kitchen",))


def test_other_projects_are_not_there(corpus, of_tea, everyone):
    assert overview(of_tea, "yard", include_children=True).numbers.memories == 1
    assert overview(of_tea, "yard", include_children=True).children == ()
    for name in ("yard/dock", "dock", str(Category.objects.get(path="yard/dock").pk), "docks"):
        with pytest.raises(CategoryNotFoundError) as error:
            overview(of_tea, name)
        assert error.value.did_you_mean == ()
    assert list(listed(of_tea)) == ["guests", "kitchen", "kitchen/brewing", "guests/tables", "kitchen/oven", "yard"]
    found = concepts_in(ConceptListRequest(name="kitchen", include_children=True), of_tea)
    # Maintenance is in a memory of the boat yard too.
    assert [(one.name, one.document_count, one.total_document_count) for one in found.concepts] == [
        ("temperature", 2, 2),
        ("maintenance", 1, 1),
    ]


def test_names_beside_a_category_are_of_the_viewers_own(corpus, of_tea, everyone):
    vocabulary = Vocabulary(everyone)
    category_merge_details(details=CategoryDetails("kitchen", related=("guests", "yard/dock")), vocabulary=vocabulary)
    concept_merge_details(
        details=ConceptDetails("temperature", related=("safety", "maintenance")), vocabulary=vocabulary
    )
    assert overview(everyone, "kitchen").category.related == ("guests", "yard/dock")
    assert overview(of_tea, "kitchen").category.related == ("guests",)
    related = {one.name: one.related_concepts for one in overview(everyone, "kitchen").concepts}
    assert related["temperature"] == ("maintenance", "safety")
    assert {one.name: one.related_concepts for one in overview(of_tea, "kitchen").concepts}["temperature"] == (
        "maintenance",
    )


def test_viewer_of_nothing_is_told_nothing(corpus):
    nobody = Viewer()
    found = category_list(CategoryListRequest(), nobody)
    assert (found.total, found.listed, found.aggregate.numbers.memories) == (0, (), 0)
    assert (found.aggregate.average_memories, found.aggregate.most, found.aggregate.least) == (0.0, None, None)


def test_chunks_tell_how_densely_concepts_stand_in_them(corpus, everyone):
    memory_create(
        record=MemoryRecord(
            content="Event sourcing keeps facts. It is not about sourcing events.",
            title="Kept",
            categories=["Backend"],
            concepts=["event sourcing", "CQRS"],
            project="tea",
        ),
        viewer=everyone,
    )
    assert overview(everyone, "backend", include_chunks=True).chunks == ()
    embed_all()
    found = overview(everyone, "backend", include_chunks=True)
    assert found.numbers.chunks == 1
    (chunk,) = found.chunks
    assert chunk.text == "Event sourcing keeps facts. It is not about sourcing events."
    # Two words of ten.
    assert (chunk.concepts, chunk.concept_density) == (("event sourcing",), 0.2)
    assert overview(everyone, "backend").chunks is None
    assert [document.chunk_count for document in found.documents] == [1]


def test_what_was_deleted_since_the_index_knew_is_not_read(corpus, everyone):
    memory = memory_create(record=MemoryRecord(content="Secret.", categories=("Backend",)), viewer=everyone)
    embed_all()
    visible = visible_tree(select_engine(everyone), everyone)
    slots = visible.counts.slots(visible.find("backend")[0].id, below=False)
    assert [chunk.text for chunk in chunks_of(visible, slots, 5)] == ["Secret."]
    Memory.objects.filter(pk=memory.pk).update(state="deleted")
    assert chunks_of(visible, slots, 5) == ()
    assert memories_of(visible, visible.counts.filing.take("id", slots)) == ()


def test_list_counts_what_is_below_and_what_is_right_there(corpus, everyone):
    assert listed(everyone) == {
        "yard": (6, 2, 2),
        "guests": (3, 2, 1),
        "kitchen": (3, 1, 2),
        "yard/dock": (3, 2, 2),
        "kitchen/brewing": (2, 2, 1),
        "yard/dock/crane": (2, 2, 2),
        "guests/tables": (1, 1, 1),
        "kitchen/oven": (1, 1, 0),
        "yard/wood": (1, 1, 1),
    }


@pytest.mark.parametrize(
    ("sort_by", "first"),
    [
        pytest.param("name", ["kitchen/brewing", "yard/dock/crane", "yard/dock"], id="name"),
        pytest.param("popularity", ["yard", "guests", "kitchen"], id="popularity"),
        pytest.param("document_count", ["yard", "guests", "kitchen"], id="memories"),
        pytest.param("concept_count", ["kitchen", "yard", "yard/dock"], id="concepts"),
        pytest.param("chunk_count", ["guests", "guests/tables", "kitchen"], id="chunks, of which there are none"),
    ],
)
def test_list_is_in_the_order_asked_for(corpus, everyone, sort_by, first):
    assert list(listed(everyone, sort_by=sort_by, limit=3)) == first


def test_list_is_narrowed_by_a_part_of_the_name(corpus, everyone):
    found = category_list(CategoryListRequest(filter="DO", include_hierarchy=True), everyone)
    assert [one.node.path for one in found.listed] == ["yard/dock"]
    assert (found.listed[0].parent, found.listed[0].children) == ("yard", ("yard/dock/crane",))
    assert list(listed(everyone, filter="dock/")) == ["yard/dock/crane"]
    assert listed(everyone, filter="no such name") == {}
    empty = category_list(CategoryListRequest(filter="no/such"), everyone)
    assert [one.message for one in empty.warnings] == [
        "No category has “no/such” in its path. Leave filter out to list all of them."
    ]


def test_aggregate_counts_a_memory_once(corpus, everyone):
    found = category_list(CategoryListRequest(limit=1), everyone)
    assert (found.total, len(found.listed)) == (9, 1)
    aggregate = found.aggregate
    # Three of 14 memories have no category; one is in both guests and yard.
    assert (aggregate.numbers.memories, aggregate.numbers.concepts) == (11, 4)
    assert (aggregate.average_memories, aggregate.most, aggregate.least) == (1.6, "yard", "guests/tables")
    narrowed = category_list(CategoryListRequest(filter="k"), everyone).aggregate
    # Kitchen, with what is below it, and the dock, which has as many.
    assert (narrowed.numbers.memories, narrowed.most, narrowed.least) == (6, "kitchen", "kitchen")


@pytest.mark.parametrize(
    ("sort_by", "names"),
    [
        pytest.param("document_count", ["safety", "maintenance"], id="memories"),
        pytest.param("name", ["maintenance", "safety"], id="name"),
        pytest.param("weight", ["maintenance", "safety"], id="weight, and last those without one"),
    ],
)
def test_concepts_come_in_the_order_asked_for(corpus, everyone, sort_by, names):
    Concept.objects.filter(name="maintenance").update(weight=0.4)
    found = concepts_in(ConceptListRequest(name="yard", sort_by=sort_by, include_children=True), everyone)
    assert [one.name for one in found.concepts] == names
    assert (found.numbers.memories, found.numbers.concepts, found.average) == (6, 2, 0.3)
    assert {one.name: (one.document_count, one.total_document_count, one.weight) for one in found.concepts} == {
        "safety": (3, 3, None),
        "maintenance": (1, 2, 0.4),
    }


def test_concepts_of_an_empty_category_divide_by_nothing(corpus, everyone):
    Category.objects.create(name="Cellar", path="cellar")
    found = concepts_in(ConceptListRequest(name="cellar"), everyone)
    assert (found.concepts, found.average) == ((), 0.0)
    assert found.message.startswith("No documents, chunks, or concepts found")


@pytest.mark.parametrize(
    ("path", "count"),
    [
        pytest.param("Cellar", 1, id="one memory"),
        pytest.param("Cellar/Wine & cheese", 2, id="two, and a name to be escaped"),
        pytest.param("Keller/Größe", 1, id="letters beyond ASCII"),
    ],
)
def test_category_without_concepts_says_so_and_names_the_next_call(corpus, everyone, caller, path, count):
    for n in range(count):
        record = MemoryRecord(content=f"Shelf {n}.", project="tea", categories=[path], tags=["shelf"])
        memory_create(record=record, viewer=command_viewer())
    found = concepts_in(ConceptListRequest(name=path), everyone)
    assert found.concepts == ()
    assert found.message.startswith(f"None of its {count} memor")
    tool, facet, category, sort = re.search(r"(\w+)\(facet=(\w+), category=(\S+), sort=(\w+)\)", found.message).groups()
    arguments = {"facet": facet, "category": category, "sort": sort, "format": "json"}
    reply = json.loads(call(TOOL[tool], arguments, command_viewer()))
    assert [value["value"] for value in reply["values"]] == ["shelf"]
    address = found.message.rpartition(" ")[2].removesuffix(".")
    assert [value["value"] for value in caller.get(address).json()["values"]] == ["shelf"]


# --- limits, pages and chunks that are missing --------------------------------------------------------------------


def test_children_obey_the_limit_and_all_are_counted(corpus, everyone):
    found = overview(everyone, "kitchen", include_children=True, limit=1)
    assert ([child.node.name for child in found.children], found.children_total) == (["Brewing"], 2)


def test_pages_of_the_list_hold_every_category_once(corpus, everyone):
    every = category_list(CategoryListRequest(sort_by="name", limit=200), everyone)
    assert not every.has_more
    pages = [
        category_list(CategoryListRequest(sort_by="name", limit=4, page=page), everyone)
        for page in range(1, -(-every.total // 4) + 1)
    ]
    assert [one.node.path for page in pages for one in page.listed] == [one.node.path for one in every.listed]
    assert [page.has_more for page in pages] == [True] * (len(pages) - 1) + [False]
    skipped = category_list(CategoryListRequest(sort_by="name", limit=2, offset=3), everyone)
    assert [one.node.path for one in skipped.listed] == [one.node.path for one in every.listed[3:5]]


def test_order_by_weight_says_that_concepts_have_none(corpus, everyone):
    def asked(**more):
        found = concepts_in(ConceptListRequest(name="yard", include_children=True, sort_by="weight", **more), everyone)
        return [one.message for one in found.warnings if one.parameter == "sort_by"]

    none = "None of these concepts has a weight: those without one follow by their number of memories."
    assert asked() == [none]
    Concept.objects.filter(name="maintenance").update(weight=0.4)
    assert asked() == [none.replace("None of", "Not every one of")]
    Concept.objects.update(weight=0.5)
    assert asked() == []


def test_numbers_of_chunks_say_that_they_are_short(corpus, everyone):
    def notices(found):
        return [one.message for one in found.warnings if one.parameter == "chunks"]

    embed_all()
    asked = CategoryRequest(name="kitchen", include_children=True)
    assert notices(category_overview(asked, everyone)) == []
    memory_create(
        record=MemoryRecord(content="The lid is lost.", project="tea", categories=["Kitchen"]), viewer=everyone
    )
    short = "have been split into chunks so far: the numbers of chunks are short."
    assert notices(category_overview(asked, everyone)) == [f"75 % of these memories {short}"]
    assert notices(concepts_in(ConceptListRequest(name="kitchen", include_children=True), everyone)) == [
        f"75 % of these memories {short}"
    ]
    assert notices(category_list(CategoryListRequest(), everyone))[0].endswith(short)
    assert notices(browse("kitchen", BrowseRequest(), SearchQuery(), everyone)) == [f"75 % of these memories {short}"]
    assert notices(browse("kitchen", BrowseRequest(), SearchQuery(tag=("kettle",)), everyone)) == []
    assert notices(category_overview(CategoryRequest(name="yard", include_children=True), everyone)) == []


def test_category_with_concepts_has_no_message(corpus, everyone):
    found = concepts_in(ConceptListRequest(name="yard", include_children=True), everyone)
    assert found.concepts
    assert not found.message


def test_limit_is_of_each_kind(corpus, everyone):
    found = overview(everyone, "yard", include_children=True, limit=2)
    assert titles(found) == ["Serve tea on the boat", "Launch in five steps"]
    assert len(found.concepts) == 2
    assert found.numbers.memories == 6
