"""Tables of counts of two facets, or of a facet over time: every cell is the number of memories behind its link."""

from itertools import cycle, product

import pytest

from access.viewer import Viewer
from memories.models import Project
from search.matrix import MatrixRequest, matrix
from search.query import SearchQuery
from search.run import run
from tests.search.conftest import EVERY_COUNT
from web.params import QueryError

pytestmark = EVERY_COUNT


def table(querystring, viewer, **request):
    query = SearchQuery.from_pairs([tuple(part.split("=", 1)) for part in querystring.split("&") if part])
    return matrix(query, MatrixRequest(**request), viewer)


def _lines(found):
    return zip(found.rows, found.cells, strict=True)


def test_periods_are_those_of_the_dates_extended_to_whole_ones(corpus, everyone):
    found = table("from=2024-01-20&to=2024-03-10&bucket=month", everyone, rows="project", columns="date")
    assert [column.label for column in found.columns] == ["Jan 2024", "Feb 2024", "Mar 2024"]
    assert {row.label: cells for row, cells in _lines(found)} == {"Tea house": (3, 1, 1), "Boat yard": (0, 2, 0)}
    assert (found.base.date_from, found.base.date_to, found.total) == ("2024-01-01", "2024-03-31", 7)


def test_periods_get_wider_until_they_are_few_enough(corpus, everyone):
    found = table("bucket=day", everyone, rows="project", columns="date", column_limit=10)
    assert (found.periods.interval, found.periods.coarsened_from) == ("quarter", "day")
    assert len(found.columns) <= 10


_QUERIES = (
    "",
    "q=tea",
    "q=the*+-kettle",
    "q=guests&mode=keyword",
    "type=note&type=decision",
    "-tag=kettle",
    "tag=tea&tag=guests&tag.all=1",
    "category=Kitchen&subcategories=0",
    "state=superseded&state=active",
    "has=entity&project=boat",
    "no=category",
    "from=2024-01-05&to=2024-12-31",
    "as_of=2024-05-01",
    "updated_since=600d&-project=tea",
    "area=1_0.0_40000.0_40000.65535_0.65535",
    "q=kettle&concept=safety&facet_scope=results",
)


def test_every_cell_is_the_total_of_its_query(corpus, everyone):
    facets = ("tag", "category", "entity", "state", "project", "author")
    tables = cycle(product(facets, ("type", "concept", "date", "source")))
    # 48 steps over 24 tables: every table meets two queries, every query three tables.
    for querystring, (rows, columns) in zip(_QUERIES * 3, tables, strict=False):
        found = table(querystring, everyone, rows=rows, columns=columns, row_limit=3, column_limit=3)
        for row, cells in _lines(found):
            assert run(row.choose(found.base), everyone).total == row.count, querystring
            for column, count in zip(found.columns, cells, strict=True):
                cell = run(found.cell_query(row, column), everyone)
                assert cell.total == count, (querystring, row, column)


def test_nothing_of_a_hidden_project_is_counted_or_named(corpus):
    viewer = Viewer(project_ids=frozenset(Project.objects.filter(slug="tea").values_list("pk", flat=True)))
    found = table("", viewer, rows="entity", columns="project")
    assert [column.label for column in found.columns] == ["Tea house"]
    assert {row.value: row.count for row in found.rows} == {"tool:kettle": 2, "person:Mio": 1}
    by_tag = table("", viewer, rows="tag", columns="date")
    assert by_tag.total == 8
    assert {"crane", "dock", "wood"}.isdisjoint(row.value for row in by_tag.rows)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("rows=type&columns=type", "type against itself"),
        ("rows=tag&columns=type&parent=Kitchen", "is for categories"),
        ("rows=tag&columns=type&bucket=month", "is for periods"),
        ("columns=type", "is missing"),
        ("rows=colour&columns=type", "'colour'"),
        ("rows=tag&sort=newest", "has no effect on a table of counts"),
    ],
)
def test_what_makes_no_table_is_refused_by_name(asked, message):
    with pytest.raises(QueryError, match=message):
        MatrixRequest.with_query([tuple(part.split("=")) for part in asked.split("&")])
