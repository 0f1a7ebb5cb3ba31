"""The map of meaning under a query: tiles, colours, regions. Each test runs with every engine."""

from dataclasses import replace

import pytest

from access.viewer import Viewer, command_viewer
from memories.models import MapLayout, MapPlace, Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search import meaning_map
from search.area import Tile
from search.meaning_map import hits_at, map_field, map_groups, map_regions
from search.query import SearchQuery
from tests.map_corpus import move, put_on_map
from tests.search.conftest import BOTH_ENGINES, following_engine
from web.cache import clear_caches

pytestmark = BOTH_ENGINES

WHOLE = Tile()
EVERY_TILE = [Tile(1, column, row) for column in (0, 1) for row in (0, 1)]


def field(viewer, tile=WHOLE, colour="type", **query):
    return map_field(SearchQuery(**query), viewer, colour, tile)


def points(found):
    rows = found.tile
    return sorted(zip(rows.xs.tolist(), rows.ys.tolist(), rows.groups.tolist(), rows.counts.tolist(), strict=True))


@pytest.fixture
def boat(corpus):
    """A viewer of one of the two projects."""
    return Viewer(frozenset([Project.objects.get(slug="boat").pk]), frozenset(["read"]))


def test_the_points_of_a_query_are_its_matches_in_their_colours(corpus, everyone):
    found = field(everyone, project=("tea",))
    assert [group.value for group in found.groups] == ["note", "decision", "bugfix", "howto", "idea"]
    # A decision and a bugfix of the first row of six, and an idea of the second.
    assert points(found)[:3] == [(5_000, 5_000, 2, 1), (15_000, 5_000, 3, 1), (15_000, 15_000, 5, 1)]
    tea = [document for document in corpus if "tea" in document.values["project"]]
    shown = [document for document in tea if document.values["state"] & {"active", "proposed"}]
    assert found.total == len(shown)
    assert found.tile.total == sum(document.place is not None for document in shown)


def test_a_value_keeps_its_colour_under_every_query(corpus, everyone):
    groups = map_groups(SearchQuery(), everyone, "type")
    assert map_groups(SearchQuery(type=("bugfix",), text="kettle"), everyone, "type") == groups
    assert {group for *_, group, _ in points(field(everyone, type=("bugfix",)))} == {3}


def test_tiles_divide_the_matches(corpus, everyone):
    whole = field(everyone)
    parts = [field(everyone, tile) for tile in EVERY_TILE]
    assert sorted(point for part in parts for point in points(part)) == points(whole)
    assert all(part.total == whole.total for part in parts)


def test_too_many_points_become_a_grid_with_the_same_numbers(corpus, everyone, monkeypatch):
    exact = field(everyone)
    monkeypatch.setattr(meaning_map, "MAX_POINTS", 3)
    grid = field(everyone)
    assert (exact.tile.is_grid, grid.tile.is_grid) == (False, True)
    assert points(grid) == sorted((x >> 8, y >> 8, group, 1) for x, y, group, _ in points(exact))
    move(dict.fromkeys(MapPlace.objects.values_list("memory_id", flat=True), (300, 700)))
    quarter = field(everyone, Tile(1, 0, 0))
    assert grid.tile.total == sum(count for *_, count in points(quarter))
    assert {(x, y) for x, y, *_ in points(quarter)} == {(300 >> 7, 700 >> 7)}


def test_regions_are_named_by_what_is_together(corpus, everyone, monkeypatch):
    monkeypatch.setattr(meaning_map, "_MIN_MEMORIES", 2)
    rows = enumerate(Memory.objects.order_by("id"))
    move(
        {
            memory.pk: (10_000, 10_000) if "tea" in memory.tags else (50_000, 50_000 + 700 * (n % 3))
            for n, memory in rows
        }
    )
    named = {(region.key, region.label): region for region in map_regions(SearchQuery(), everyone, count_areas=True)}
    tea = next(region for region in named.values() if region.x < 20_000)
    assert (abs(tea.x - 10_000) < 1_024, abs(tea.y - 10_000) < 1_024) == (True, True)
    assert field(everyone, area=tea.area).total == tea.inside == 4
    # A region without a match under the query has no name.
    boats = {region.label for region in map_regions(SearchQuery(project=("boat",)), everyone)}
    assert boats < {region.label for region in named.values()}


def test_hidden_memories_change_no_place_name_or_number_of_a_partial_viewer(corpus, boat, everyone, monkeypatch):
    monkeypatch.setattr(meaning_map, "_MIN_MEMORIES", 1)

    def seen():
        return points(field(boat)), field(boat).total, map_regions(SearchQuery(), boat, count_areas=True)

    before = seen()
    hidden = list(Memory.objects.filter(project__slug="tea").order_by("id").values_list("id", flat=True))
    move(dict.fromkeys(hidden, (15_000, 25_000)))
    assert seen() == before
    assert before[1] == field(everyone, project=("boat",)).total
    assert hits_at(SearchQuery(), boat, 15_000, 25_000) == ()
    assert {hit.project for hit in hits_at(SearchQuery(), everyone, 15_000, 25_000)} == {"tea"}


def test_a_memory_is_found_among_others_of_its_place_that_the_viewer_may_not_see(corpus, boat, monkeypatch):
    own = Memory.objects.filter(project__slug="boat", state="active").order_by("id").values_list("id", flat=True)[0]
    newer = Memory.objects.filter(project__slug="tea", id__gt=own).values_list("id", flat=True)
    move(dict.fromkeys([own, *newer], (20_000, 20_000)))
    monkeypatch.setattr(meaning_map, "_CONSIDERED", 1)
    assert len(newer) == 1
    assert [hit.id for hit in hits_at(SearchQuery(), boat, 20_000, 20_000)] == [own]


def test_without_a_map_there_is_nothing(db, engine, everyone):
    assert map_field(SearchQuery(), everyone, "type", Tile()) is None
    assert map_regions(SearchQuery(), everyone) == ()
    assert hits_at(SearchQuery(), everyone, 1, 1) == ()


TOPICS = {
    "Kettle {n}": "The kettle whistles on the stove, because water boils in the kettle when it is hot. Number {n}.",
    "Segel {n}": "Das Segel wird nicht gesetzt, wenn der Wind zu stark für das Segel und den Mast ist. Nummer {n}.",
    "茶室 {n}": "茶室は静かです。{n} 茶室で茶を飲む。",
}


@pytest.fixture
def three_crowds(db, engine, index):
    """Three crowds of memories without tags, categories and entities, in three languages, and one hidden among them."""
    corners = [(8_000, 8_000), (55_000, 8_000), (30_000, 55_000)]
    places = {}
    for (title, text), (x, y) in zip(TOPICS.items(), corners, strict=True):
        for n in range(15):
            record = MemoryRecord(title=title.format(n=n), content=text.format(n=n), project="mixed")
            places[memory_create(record=record, viewer=command_viewer()).pk] = (x + 60 * n, y + 40 * n)
    put_on_map()
    move(places)
    if engine != "postgres":
        following_engine()
    return places


def test_crowds_without_any_value_are_named_by_their_own_words(three_crowds, everyone):
    regions = map_regions(SearchQuery(), everyone, count_areas=True)
    assert [(one.key, one.value, one.count, one.inside) for one in regions] == [("", "", 15, 15)] * 3
    names = {(one.x < 40_000, one.y < 40_000): one.label for one in regions}
    assert names[True, True].split(", ")[0] in {"kettle", "Kettle"}
    assert names[False, True].split(", ")[0] == "Segel"
    assert "茶室" in names[True, False]
    empty = {"the", "when", "because", "das", "nicht", "wird", "wenn", "für"}
    assert not empty & {word.lower() for name in names.values() for word in name.split(", ")}
    assert field(everyone, area=regions[0].area).total == 15
    # Under a query they have the same names, and the number of its matches.
    (found,) = map_regions(SearchQuery(text="whistles", mode="keyword"), everyone)
    assert (found.label, found.count) == (names[True, True], 15)


def test_a_crowd_with_a_name_by_a_value_gets_no_other(three_crowds, everyone, engine):
    Memory.objects.filter(title__startswith="Kettle").update(tags=["boiling"])
    if engine != "postgres":
        following_engine()
    named = {(one.key, one.label.split(", ")[0].lower()) for one in map_regions(SearchQuery(), everyone)}
    assert ("tag", "boiling") in named
    assert ("", "kettle") not in named
    assert len(named) == 3


def test_words_of_hidden_memories_name_no_place(three_crowds, everyone, engine):
    viewer = replace(everyone, project_ids=frozenset(Project.objects.values_list("pk", flat=True)))
    before = map_regions(SearchQuery(), viewer, count_areas=True)
    places = {}
    for n in range(40):
        record = MemoryRecord(title=f"Secret {n}", content=f"The secret plan {n} of the kettle.", project="vault")
        places[memory_create(record=record, viewer=command_viewer()).pk] = (8_000 + n, 8_000)
    for model in (MapPlace, MapLayout):
        model.objects.all().delete()
    put_on_map()
    move({**three_crowds, **places})
    if engine != "postgres":
        following_engine()
    clear_caches()
    after = map_regions(SearchQuery(), viewer, count_areas=True)
    assert [(one.label, one.count) for one in after] == [(one.label, one.count) for one in before]
    assert "secret" in " ".join(one.label.lower() for one in map_regions(SearchQuery(), everyone))
