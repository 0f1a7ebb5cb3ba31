"""The bars of the histogram by the values of a facet add up to the bars."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access.viewer import Viewer
from memories.models import Project
from search.query import SearchQuery
from search.run import SPLIT_KEYS, run
from tests.search.conftest import EVERY_COUNT
from tests.search.queries import queries

pytestmark = EVERY_COUNT


def divided(viewer, key, **query):
    return run(SearchQuery.from_mapping(query), viewer, include_facets=True, split=key)


def test_bars_by_project(corpus, everyone):
    result = divided(everyone, "project", bucket="year")
    assert [bar.count for bar in result.histogram.bars] == [9, 5]
    assert result.split.parts == [("Tea house", (6, 2)), ("Boat yard", (3, 3))]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_the_parts_of_any_bar_add_up_to_it_and_each_part_is_what_its_filters_give(corpus, everyone, data):
    query = SearchQuery.from_mapping(data.draw(queries(corpus)))
    key = data.draw(st.sampled_from(SPLIT_KEYS))
    result = run(query, everyone, include_facets=True, split=key)
    if result.split is None:
        assert not result.histogram.bars
        return
    rows = [counts for _, counts in result.split.parts]
    assert [sum(parts) for parts in zip(*rows, strict=True)] == [bar.count for bar in result.histogram.bars] or not rows
    for value, counts in zip(result.split.values, result.split.counts, strict=True):
        assert run(query.only(key, value.value), everyone).total == sum(counts)


def test_no_value_of_a_hidden_project_is_a_part(corpus):
    viewer = Viewer(project_ids=frozenset(Project.objects.filter(slug="boat").values_list("pk", flat=True)))
    assert [label for label, _ in divided(viewer, "project").split.parts] == ["Boat yard"]
    assert "idea" not in [label for label, _ in divided(viewer, "type").split.parts]
