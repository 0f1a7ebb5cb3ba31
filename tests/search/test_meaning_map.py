"""The map of meaning under a query: tiles, colours, regions. Each test runs with every engine."""

import pytest

from access.viewer import Viewer
from memories.models import MapPlace, Memory, Project
from search import meaning_map
from search.area import Tile
from search.meaning_map import hits_at, map_field, map_groups, map_regions
from search.query import SearchQuery
from tests.map_corpus import move
from tests.search.conftest import BOTH_ENGINES

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
