"""Areas of the map of meaning: a filter that every engine understands, exact to the outline."""

import numpy as np
import pytest

from access.viewer import Viewer
from memories.meaning_map import Embedded, layout_store, places_write
from memories.models import MapLayout, Memory, Project
from search.area import MOST, check_area
from search.facets import STATES
from search.query import SearchQuery
from search.run import run
from search.why_not import why_not
from tests.search.conftest import EVERY_COUNT

pytestmark = EVERY_COUNT

# Around the first two places of the first row; the last corner is no place.
FIRST_TWO = "1_0.0_20000.0_20000.9000_0.9000"


def ask(viewer, area, **more):
    return run(SearchQuery(area=area, include_facets=True, **more), viewer)


def ids_of(result):
    return sorted(hit.id for hit in result.hits)


def test_area_is_a_filter_with_exact_counts(corpus, everyone):
    result = ask(everyone, FIRST_TWO)
    assert ids_of(result) == sorted(document.id for document in corpus)[:2]
    assert result.total == 2
    assert {value.label: value.count for value in next(f for f in result.facets if f.key == "tag").values} == {
        "brewing": 1,
        "hardware": 1,
        "kettle": 1,
        "tea": 1,
    }
    assert sum(bar.count for bar in result.histogram.bars) == 2


def test_a_memory_without_a_place_is_in_no_area(corpus, everyone):
    every = ask(
        everyone,
        f"1_0.0_{MOST}.0_{MOST}.{MOST}_0.{MOST}",
        page_size=100,
        state=STATES,
    )
    assert every.total == sum(document.place is not None for document in corpus)
    assert sorted(document.id for document in corpus)[6] not in ids_of(every)


def test_area_of_an_earlier_map_matches_nothing_and_says_so(corpus, everyone):
    result = ask(everyone, FIRST_TWO.replace("1_", "9_", 1))
    assert result.total == 0
    assert [warning.message for warning in result.warnings if warning.parameter == "area"] == [
        "The area belongs to a map of meaning that has been drawn again since. Nothing can match: mark it again."
    ]
    assert [(one.key, one.label) for one in result.relaxations] == [("area", "the area of the map")]


def test_a_place_that_moves_or_a_new_map_is_seen_by_the_next_search(corpus, everyone):
    first, second = sorted(document.id for document in corpus)[:2]
    assert ids_of(ask(everyone, FIRST_TWO)) == [first, second]
    moved = Embedded(np.array([first], np.int64), (Memory.objects.get(pk=first).content_hash,))
    places_write(MapLayout.objects.get(), moved, np.array([[60_000, 60_000]]))
    assert ids_of(ask(everyone, FIRST_TWO)) == [second]
    layout_store(model_id=1, memories=1, anchors=moved, points=np.array([[100, 100]]))
    assert ids_of(ask(everyone, FIRST_TWO.replace("1_", "2_", 1))) == [first]


def test_area_gives_a_viewer_of_one_project_its_memories_alone(corpus, everyone):
    boat = Viewer(frozenset([Project.objects.get(slug="boat").pk]), frozenset(["read"]))
    everywhere = f"1_0.0_{MOST}.0_{MOST}.{MOST}_0.{MOST}"
    found = ask(boat, everywhere, page_size=100)
    assert found.total == ask(everyone, everywhere, project=("boat",)).total > 0
    assert {hit.project for hit in found.hits} == {"boat"}


def test_why_not_names_the_area(corpus, everyone):
    third = sorted(document.id for document in corpus)[2]
    verdict = why_not(SearchQuery(area=FIRST_TWO), third, everyone)
    assert [check.label for check in verdict.missing] == ["Area of the map"]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("12", "is not an area"),
        ("1_1.2_3.4", "is not an area"),
        ("1_1.2_3.4_5.x", "is not an area"),
        ("1_1.2_3.4_70000.6", "has a corner outside of the map"),
        ("1" + "_1.2" * 101, "has 101 corners: give at most 100"),
    ],
)
def test_malformed_area_is_explained(value, said):
    with pytest.raises(ValueError, match=said):
        check_area(value)
