"""The small charts of tables: exact numbers, and none of what the viewer may not see."""

from access.viewer import Viewer
from categories.models import Category
from memories.models import Project
from search.engines import with_engine
from search.listings import trends
from search.query import SearchQuery
from search.run import run
from tests.search.conftest import BOTH_ENGINES

pytestmark = BOTH_ENGINES


def counted(query, key, values, viewer):
    return with_engine(lambda engine: trends(engine, query, key, values, viewer), viewer)


def test_periods_cover_all_memories_and_add_up(corpus, everyone):
    found = counted(SearchQuery(), "tag", ["tea", "kettle"], everyone)
    assert (found.periods[0].label, found.periods[-1].label) == ("Jan 2024", "Jul 2025")
    assert {value: sum(counts) for value, counts in found.counts} == {"tea": 4, "kettle": 2}
    kettle = dict(zip((bar.label for bar in found.periods), found.by_value()["kettle"], strict=True))
    assert {label: count for label, count in kettle.items() if count} == {"Jan 2024": 1, "Jun 2025": 1}


def test_each_number_is_that_of_its_slice(corpus, everyone):
    query = SearchQuery(project=("tea",))
    kitchen = Category.objects.get(path="kitchen").pk
    found = counted(query, "category", [kitchen], everyone)
    for bar, count in zip(found.periods, found.by_value()[kitchen], strict=True):
        assert run(query.only("category", "kitchen").between(bar.first, bar.last), everyone).total == count


def test_hidden_memories_are_not_counted(corpus):
    viewer = Viewer(project_ids=frozenset(Project.objects.filter(slug="boat").values_list("pk", flat=True)))
    found = counted(SearchQuery(), "tag", ["tea", "boat"], viewer)
    assert {value: sum(counts) for value, counts in found.counts} == {"tea": 0, "boat": 2}


def test_there_is_no_chart_of_nothing(corpus, everyone):
    assert counted(SearchQuery(), "tag", [], everyone).periods == ()
    assert counted(SearchQuery(project=("none",)), "tag", ["tea"], everyone).periods == ()
