"""Two slices of the hand-written memories, compared by every engine."""

from datetime import date, timedelta
from urllib.parse import parse_qsl

import pytest

from access.viewer import Viewer
from memories.models import Project
from search.compare import compare, equal_periods
from search.facet_counts import log_likelihood
from search.histogram import DayCounts
from search.run import run
from search.slices import read_comparison, slice_query, with_value
from tests.search.conftest import EVERY_COUNT
from web.params import QueryError

pytestmark = EVERY_COUNT


def ask(querystring, viewer):
    return compare(read_comparison(parse_qsl(querystring, keep_blank_values=True)), viewer)


def rows(differences):
    return [(row.key, row.value, row.a, row.b) for row in differences]


@pytest.mark.parametrize(
    ("counts", "evidence"),
    [((14, 118, 58, 173), 19.0), ((29, 118, 12, 173), 17.8), ((0, 10, 5, 10), 8.6), ((5, 10, 5, 10), 0.0)],
)
def test_log_likelihood_weighs_support_and_difference(counts, evidence):
    assert round(log_likelihood(*counts), 1) == evidence


def test_projects_are_compared_by_the_values_of_their_memories(corpus, everyone):
    found = ask("by=project&least=1", everyone)
    assert (found.a.own.project, found.a.total) == (("tea",), 8)
    assert (found.b.own.project, found.b.total) == (("boat",), 6)
    assert found.left_out == ("project",)
    assert rows(found.only_a)[:3] == [("tag", "tea", 4, 0), ("author", "Mio", 3, 0), ("category", "guests", 3, 0)]
    assert ("category", "yard", 1, 5) in rows(found.differs)
    assert (found.a.superseded, found.b.superseded) == (1, 0)
    yard = next(row for row in found.differs if row.value == "yard")
    assert round(yard.lift, 2) == 6.67
    assert run(with_value(found.b.query, "category", "yard"), everyone).total == 5


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        pytest.param([0, 700, 701, 702, 703, 710], (355, 356), id="most of late"),
        pytest.param([0, 690, 701, 702, 703, 710], (11, 11), id="growth"),
        pytest.param([0, 1, 2, 3, 700], (350, 351), id="most of early"),
        pytest.param([0, 2], (1, 2), id="an odd number of days"),
        pytest.param([0, 500, 503], (252, 252), id="nothing for long"),
    ],
)
def test_periods_not_given_are_as_long_whatever_the_growth(days, expected):
    begin = date(2024, 1, 1)
    one, other = equal_periods(DayCounts.of((begin + timedelta(days=day), 1, 1) for day in days))
    assert tuple((last - first).days + 1 for first, last in (one, other)) == expected
    assert one[1] + timedelta(days=1) == other[0]
    assert all(any(first <= begin + timedelta(days=day) <= last for day in days) for first, last in (one, other))


def test_parameters_of_a_slice_take_the_place_of_the_shared_ones():
    asked = read_comparison(
        parse_qsl("q=tea&type=note&since=1y&a.from=2024-01-01&a.type=fix&b=/explore/?tag=x%26sort=title")
    )
    assert slice_query(asked.shared, asked.a).querystring() == "q=tea&type=fix&from=2024-01-01"
    assert slice_query(asked.shared, asked.b).querystring() == "q=tea&type=note&tag=x&since=1y"


def test_a_viewer_of_one_project_compares_its_memories_alone(corpus):
    tea = Viewer(frozenset([Project.objects.get(slug="tea").pk]), frozenset(["read"]))
    found = ask("by=agent&least=1", tea)
    assert (found.a.total, found.b.total) == (2, 1)
    assert {row.value for row in (*found.differs, *found.only_a, *found.only_b) if row.key == "project"} <= {"tea"}
    assert [choice[0] for choice in found.choices] == ["claude-code", "codex"]
    assert {hit.project for side in (found.a, found.b) for hit in side.typical} == {"tea"}
    hidden = ask("a.project=tea&b.project=boat", tea)
    assert (hidden.a.total, hidden.b.total) == (8, 0)
    assert hidden.only_b == hidden.b.typical == ()


def test_nothing_is_compared_without_two_slices(corpus, everyone):
    assert ask("by=search", everyone).a is None
    assert ask("by=agent&project=tea&agent=codex", everyone).b is None
    alone = ask("by=search&a.tag=tea", everyone)
    assert (alone.a.total, alone.b.total) == (4, 14)


def test_every_invalid_parameter_of_a_slice_is_named():
    with pytest.raises(QueryError) as refused:
        read_comparison(parse_qsl("by=mood&page=2&a.from=soon&b.colour=red"))
    assert {problem.parameter for problem in refused.value.problems} == {"by", "page", "a.from", "b.colour"}
