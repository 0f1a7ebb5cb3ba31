"""Tables, neighbourhoods and paths: links, visibility, order and limits."""

import pytest

from access.viewer import Viewer, command_viewer
from categories.models import Concept, Entity, Relationship
from explorer.graph.labels import AroundRequest, PathRequest, TableRequest
from explorer.graph.neighbourhood import node_detail, node_neighbourhood, relationship_detail
from explorer.graph.path_page import find_path
from explorer.graph.queries import CONCEPT, ENTITY, NameAmbiguousError, NameUnknownError
from explorer.graph.table_page import node_table
from memories.models import Corpus, Memory
from memories.records import MemoryRecord
from memories.services import memory_create, memory_delete

WRITER = command_viewer()


def rows(viewer, kind=ENTITY, **asked):
    return {row.term.label: row for row in node_table(kind, TableRequest(**asked), viewer).rows}


def names(viewer, kind=ENTITY, **asked):
    return [row.term.label for row in node_table(kind, TableRequest(**asked), viewer).rows]


def around(viewer, ref, kind=ENTITY, **asked):
    return node_neighbourhood(kind, ref, AroundRequest(**asked), viewer)[0]


def linked(viewer, ref, kind=ENTITY, **asked):
    return [one.term.label for one in around(viewer, ref, kind, **asked).drawn]


def chain(viewer, begin, end, **asked):
    found = find_path(PathRequest(begin=begin, end=end, **asked), viewer)
    return [found.source.label, *(step.target.label for step in found.steps)]


def made(viewer, project, *entities, **more):
    named = [{"type": "part", "name": name} for name in entities]
    record = {"project": project, "title": "t", "content": ", ".join(entities) or "c", "entities": named, **more}
    return memory_create(record=MemoryRecord.model_validate(record), viewer=viewer)


# --- tables ------------------------------------------------------------------------------------------------------


def test_table_counts_memories_links_and_days(mill, everyone):
    found = rows(everyone)
    wheel = found["wheel"]
    # With the axle, Osk and Quill in memories, and with the sluice by a relationship.
    assert (wheel.memories, wheel.links) == (5, 4)
    first, last = Memory.objects.get(external_id="m1"), Memory.objects.get(external_id="v1")
    assert (wheel.first, wheel.last) == (first.created_at, last.created_at)
    assert set(found) == {"Brotlade", "Osk", "Quill", "axle", "hinge", "sluice", "wheel"}


def test_table_of_one_project_knows_nothing_of_the_other(mill, miller):
    found = rows(miller)
    assert set(found) == {"Brotlade", "Osk", "axle", "sluice", "wheel"}
    assert (found["wheel"].memories, found["wheel"].links) == (4, 3)
    assert (found["Brotlade"].links, found["sluice"].links) == (0, 1)
    table = node_table(ENTITY, TableRequest(), miller)
    assert (table.total, table.types) == (5, (("part", 3), ("person", 1), ("shop", 1)))


@pytest.mark.parametrize(
    ("sort", "expected"),
    [
        pytest.param("name", ["axle", "Brotlade", "Osk", "sluice", "wheel"], id="name"),
        pytest.param("-name", ["wheel", "sluice", "Osk", "Brotlade", "axle"], id="name down"),
        pytest.param("type", ["axle", "sluice", "wheel", "Osk", "Brotlade"], id="type, then name"),
        pytest.param("links", ["Brotlade", "axle", "Osk", "sluice", "wheel"], id="links"),
        pytest.param("-links", ["wheel", "axle", "Osk", "sluice", "Brotlade"], id="links down"),
        pytest.param("-memories", ["wheel", "axle", "Brotlade", "Osk", "sluice"], id="memories down"),
        pytest.param("first", ["wheel", "axle", "sluice", "Osk", "Brotlade"], id="first seen"),
        pytest.param("-last", ["Brotlade", "wheel", "Osk", "sluice", "axle"], id="last seen, the newest first"),
    ],
)
def test_table_is_sorted(mill, miller, sort, expected):
    # Their dates are those of the import, a day apart.
    for day, name in enumerate(("m1", "m2", "m3", "m4", "m5", "m6"), 1):
        Memory.objects.filter(external_id=name).update(created_at=f"2024-05-{day:02}T12:00:00Z")
    assert names(miller, sort=sort) == expected


def test_table_leaves_out_what_is_in_no_default_state(mill, miller):
    assert "tailrace" not in rows(miller)
    for memory in Memory.objects.filter(external_id__in=["m2", "m4"]):
        memory_delete(memory_id=memory.pk, viewer=WRITER, reason="gone")
    # The axle stays visible through a relationship with m1 as evidence. Nothing names Osk any more.
    assert {name: row.memories for name, row in rows(miller).items()} == {
        "wheel": 2, "axle": 0, "sluice": 1, "Brotlade": 1
    }  # fmt: skip


def test_nobody_sees_anything_without_a_project(mill):
    assert names(Viewer()) == []


# --- neighbourhoods ----------------------------------------------------------------------------------------------


def test_what_is_stated_comes_first_and_then_what_memories_have_in_common(mill, everyone, miller):
    # Two memories are evidence that the sluice feeds the wheel; Quill only shares memories with it.
    assert linked(everyone, "wheel") == ["sluice", "axle", "Osk", "Quill"]
    assert linked(miller, "wheel") == ["axle", "Osk", "sluice"]


def test_a_relationship_is_known_by_its_evidence_alone(mill, everyone, miller):
    (feeds,) = [tie for one in around(miller, "sluice").drawn for tie in one.edge.ties]
    assert (feeds.type, feeds.evidence) == ("feeds", 1)
    assert len(relationship_detail(feeds.id, everyone).evidence) == 2
    assert [hit.title_text for hit in relationship_detail(feeds.id, miller).evidence] == ["Sluice opened"]
    rests = Relationship.objects.get(relationship_type="rests_on")
    guards = Relationship.objects.get(relationship_type="guards")
    assert (
        relationship_detail(rests.pk, miller),
        relationship_detail(guards.pk, miller),
        relationship_detail(2**70, everyone),
    ) == (None, None, None)
    assert relationship_detail(rests.pk, everyone).evidence == ()
    assert linked(everyone, "axle") == ["wheel", "hinge"]
    assert linked(miller, "axle") == ["wheel"]


def test_profile_is_of_the_memories_that_may_be_seen(mill, everyone, miller):
    node = node_detail(ENTITY, "waterwheel", AroundRequest(), miller)
    assert (node.term.value, node.aliases) == ("part:wheel", ("waterwheel",))
    assert (node.profile.memories, node.profile.tags) == (4, (("paint", 1),))
    assert len(node.samples) == 4
    assert node_detail(ENTITY, "wheel", AroundRequest(), everyone).profile.memories == 5


def test_a_page_takes_as_many_statements_however_much_is_linked(mill, everyone, django_assert_max_num_queries):
    made(everyone, "mill", "wheel", *(f"s{n}" for n in range(80)))
    for name in ("wheel", "Brotlade", "s1"):
        for depth, expected in ((1, 25), (2, 29)):
            with django_assert_max_num_queries(expected):
                node_detail(ENTITY, name, AroundRequest(depth=depth), everyone)


def test_a_table_takes_as_many_statements_however_long_it_is(mill, everyone, django_assert_num_queries):
    for size in (1, 100):
        # A transaction that has written does not use the cache, like the first request after a change.
        with django_assert_num_queries(9):
            node_table(ENTITY, TableRequest(page_size=size), everyone)


@pytest.mark.django_db(transaction=True)
def test_what_is_kept_says_the_same_until_something_changes(mill, everyone, miller, django_assert_num_queries):
    Corpus.objects.get_or_create(id=1)
    before = [around(viewer, "wheel", depth=depth) for viewer in (everyone, miller) for depth in (1, 2)]
    for viewer in (everyone, miller):
        node_table(ENTITY, TableRequest(), viewer)
    with django_assert_num_queries(4):
        assert names(miller, sort="name") == ["axle", "Brotlade", "Osk", "sluice", "wheel"]
    assert [around(viewer, "wheel", depth=depth) for viewer in (everyone, miller) for depth in (1, 2)] == before
    made(everyone, "mill", "wheel", "cog")
    assert names(miller, search="cog") == ["cog"]
    assert "cog" in linked(miller, "wheel")


# --- names -------------------------------------------------------------------------------------------------------


def test_names_of_another_project_are_unknown_and_never_meant(mill, everyone, miller):
    for name in ("Quill", "person:Quill", "hinge", str(Entity.objects.get(name="Quill").pk)):
        with pytest.raises(NameUnknownError) as unknown:
            node_detail(ENTITY, name, AroundRequest(), miller)
        assert unknown.value.did_you_mean == ()
    with pytest.raises(NameUnknownError) as unknown:
        node_detail(ENTITY, "hinges", AroundRequest(), everyone)
    assert unknown.value.did_you_mean == ("part:hinge",)
    with pytest.raises(NameUnknownError) as unknown:
        node_detail(ENTITY, "sluic", AroundRequest(), miller)
    assert unknown.value.did_you_mean == ("part:sluice",)


def test_a_name_that_several_have_is_asked_back(mill, everyone):
    made(everyone, "mill", entities=[{"type": "game", "name": "Wheel"}])
    with pytest.raises(NameAmbiguousError) as several:
        node_detail(ENTITY, "WHEEL", AroundRequest(), everyone)
    assert sorted(term.value for term in several.value.choices) == ["game:Wheel", "part:wheel"]
    assert node_detail(ENTITY, "part:WHEEL", AroundRequest(), everyone).term.value == "part:wheel"


def test_what_only_archived_memories_name_has_a_page_without_numbers(mill, miller):
    node = node_detail(ENTITY, "part:tailrace", AroundRequest(), miller)
    assert (node.profile.memories, node.samples, node.around.total) == (0, (), 0)


# --- chains ------------------------------------------------------------------------------------------------------


def test_chain_is_the_shortest_and_borne_out(mill, everyone, miller):
    assert chain(everyone, "sluice", "Osk") == ["sluice", "wheel", "Osk"]
    found = find_path(PathRequest(begin="person:Osk", end="sluice"), miller)
    assert [[record.type for record in step.relationships] for step in found.steps] == [["inspects"], ["feeds"]]
    assert [[memory.title for memory in step.memories] for step in found.steps] == [
        ["Wheel inspected"], ["Sluice opened"]
    ]  # fmt: skip


def test_no_chain_leads_through_what_another_project_knows(mill, everyone, miller):
    assert chain(everyone, "Brotlade", "sluice") == ["Brotlade", "Quill", "sluice"]
    for together in (False, True):
        found = find_path(PathRequest(begin="Brotlade", end="sluice", together=together), miller)
        assert found.steps == ()
        assert found.reason.endswith("leads from Brotlade to sluice within 6 steps.")


def test_memories_in_common_are_links_where_that_is_asked_for(mill, everyone):
    made(everyone, "mill", entities=[{"type": "part", "name": "axle"}, {"type": "shop", "name": "Brotlade"}])
    assert chain(everyone, "Brotlade", "wheel") == ["Brotlade", "Quill", "sluice", "wheel"]
    found = find_path(PathRequest(begin="Brotlade", end="wheel", together=True), everyone)
    assert len(found.steps) == 2
    assert all(step.memories for step in found.steps)


def test_concept_relations_need_both_ends(concepts, miller):
    assert Concept.objects.get(name="secrecy").pk not in {
        end for one in around(miller, "power", CONCEPT).lines for end in (one.source, one.target)
    }


def test_concepts_are_broader_narrower_and_together(concepts, everyone, miller):
    found = around(everyone, "water", CONCEPT)
    assert [(one.term.label, one.edge.memories) for one in found.drawn] == [("power", 1), ("flow", 1)]
    assert linked(everyone, "power", CONCEPT) == ["water", "secrecy"]
    assert linked(miller, "power", CONCEPT) == ["water"]


def test_steps_of_a_chain_by_relationships_count_the_visible_memories_that_name_both(mill, everyone, miller):
    made(everyone, "vault", entities=[{"type": "person", "name": "Osk"}, {"type": "part", "name": "wheel"}])
    by = {viewer: find_path(PathRequest(begin="person:Osk", end="sluice"), viewer) for viewer in (everyone, miller)}
    assert [step.edge.memories for step in by[everyone].steps] == [2, 0]
    assert [step.edge.memories for step in by[miller].steps] == [1, 0]
