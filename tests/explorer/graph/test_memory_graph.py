"""Memories as nodes: what they link to, what links to them, what they name; for those who may see it, and bounded."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.models import Membership
from access.viewer import Viewer, command_viewer
from explorer.graph.memory_page import memory_graph
from memories.models import Memory, Project
from memories.queries import memory_details
from memories.records import MemoryChanges, MemoryRecord
from memories.services import memory_create, memory_delete, memory_update
from memories.supersession import memory_supersede
from tests.html import html_of

pytestmark = pytest.mark.django_db
EVERYTHING = command_viewer()


def create(name, **fields):
    record = {"content": f"Text of {name}.", "title": name, "id": name, "project": "tea", **fields}
    return memory_create(record=MemoryRecord.model_validate(record), viewer=EVERYTHING)


def graph(memory, viewer=EVERYTHING):
    return memory_graph(memory_details(viewer, [memory.pk])[memory.pk])


def listed(page):
    return {group.label: [item.name for item in group.items] for group in page.groups}


@pytest.fixture
def wheel(db):
    """A memory that links to two others, is linked from one, replaced another, and names an entity and a concept."""
    create("axle", entities=["tool:hammer"])
    create("belt")
    links = [{"rel": "caused-by", "target": "axle"}, "belt", "nothing"]
    memory = create("wheel", links=links, entities=["tool:hammer"], concepts=["motion"])
    create("mill", links=[{"rel": "needs", "target": "wheel"}, "axle"])
    memory_supersede(memory_id=create("old wheel").pk, by_id=memory.pk, viewer=EVERYTHING)
    return memory


def test_neighbours_of_a_memory_are_listed_by_their_links(wheel):
    page = graph(wheel)
    assert listed(page) == {
        "Replaces": ["old wheel"],
        "Caused by …": ["axle"],
        "Links to …": ["belt"],
        "… needs this": ["mill"],
        "Entities": ["hammer"],
        "Concepts": ["motion"],
    }
    assert (page.total, page.drawn) == (6, 6)
    assert [item.label for item in page.drawing.legend] == ["memory", "entity", "concept"]
    # Those that are drawn are tied among each other: the mill to the axle, which names the hammer too.
    spokes = [line for line in page.drawing.lines if line.is_spoke]
    assert (len(spokes), len(page.drawing.lines) - len(spokes)) == (6, 2)


def test_memory_without_links_says_so(db):
    page = graph(create("alone"))
    assert (page.total, page.groups, page.drawing) == (0, (), None)


def test_deleted_memories_are_no_neighbours(wheel):
    for name in ("axle", "mill", "old wheel"):
        memory_delete(memory_id=Memory.objects.get(external_id=name).pk, viewer=EVERYTHING, reason="")
    assert listed(graph(wheel)) == {"Links to …": ["belt"], "Entities": ["hammer"], "Concepts": ["motion"]}


def test_neighbours_of_other_projects_are_shown_to_those_who_see_them(wheel):
    boat = Project.objects.create(slug="boat", name="boat")
    for name in ("axle", "mill"):
        memory = Memory.objects.get(external_id=name)
        memory_update(memory_id=memory.pk, changes=MemoryChanges(project="boat"), viewer=EVERYTHING)
    tea = Project.objects.get(slug="tea")
    assert {"Caused by …", "… needs this"} <= listed(graph(wheel)).keys()
    for projects, has in (({tea.pk}, False), ({tea.pk, boat.pk}, True)):
        seen = listed(graph(wheel, Viewer(frozenset(projects), frozenset({"read"}), frozenset())))
        assert ("Caused by …" in seen, "… needs this" in seen) == (has, has)


def signed_in(slug):
    user = User.objects.create_user(slug)
    Membership.objects.create(user=user, project=Project.objects.get(slug=slug), role="reader")
    client = Client()
    client.force_login(user)
    return client


def test_page_is_for_those_who_may_read_the_memory(wheel):
    Project.objects.create(slug="boat", name="boat")
    address = f"/graph/memory/{wheel.pk}/"
    assert signed_in("boat").get(address).status_code == 404
    reader = signed_in("tea")
    page = html_of(reader.get(address))
    axle = Memory.objects.get(external_id="axle").pk
    assert f'<a class="link" href="/graph/memory/{axle}/">axle</a>' in page
    assert f'href="/m/{wheel.pk}/"' in page
    assert f'href="{address}"' in html_of(reader.get(f"/m/{wheel.pk}/"))


def test_drawing_and_statements_stay_bounded(db, django_assert_max_num_queries):
    many = [create(f"n{number}") for number in range(70)]
    entities, concepts = [f"tool:t{number}" for number in range(30)], [f"c{number}" for number in range(30)]
    hub = create("hub", links=[f"n{number}" for number in range(70)], entities=entities, concepts=concepts)
    for one in many[:60]:
        memory_update(memory_id=one.pk, changes=MemoryChanges(links=["hub"], entities=["tool:t1"]), viewer=EVERYTHING)
    with django_assert_max_num_queries(20):
        page = graph(hub)
    assert (page.total, page.drawn) == (130, 20)
    kinds = [node.colour for node in page.drawing.nodes if not node.is_middle]
    assert (kinds.count(1), kinds.count(2)) == (12, 8)
    assert max(len(group.items) for group in page.groups) == 60
    assert not next(group for group in page.groups if group.label == "Links to …").is_all
