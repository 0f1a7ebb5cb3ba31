"""Tables of counts: two facets, or a facet and time, compared with the naive counter."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memories.models import Project
from search.engines import with_engine
from search.engines.base import FacetValues, Spans
from search.facets import FACETS
from search.plan import resolve_query
from search.query import SearchQuery
from tests.oracle import matching
from tests.search.conftest import BOTH_ENGINES
from tests.search.queries import EXAMPLES, queries

pytestmark = BOTH_ENGINES


def table(query, viewer, rows, columns):
    def counted(engine):
        plan = resolve_query(engine, query, viewer, datetime.now(UTC)).plan
        return engine.cross(plan, rows, columns).tolist()

    return with_engine(counted, viewer)


@pytest.mark.parametrize("seconds", [0, 1])
def test_counts_by_span_begin_at_an_edge_and_end_before_the_next(corpus, everyone, seconds):
    created = datetime(2024, 1, 5, 10, tzinfo=UTC)
    edges = (
        created - timedelta(days=1),
        created + timedelta(seconds=seconds),
        created + timedelta(hours=13, minutes=30),
    )
    found = table(SearchQuery(), everyone, FacetValues("project", (Project.objects.get(slug="tea").pk,)), Spans(edges))
    assert found == [[1, 0]] if seconds else [[0, 1]]


def test_nothing_is_counted_without_rows_or_columns(corpus, everyone):
    tags = FacetValues("tag", ("tea",))
    assert table(SearchQuery(), everyone, FacetValues("tag", ()), tags) == []
    assert table(SearchQuery(), everyone, tags, Spans((datetime.now(UTC),))) == [[]]


_TEXTS = ("type", "tag", "author", "agent", "source", "state")
_START = datetime(2023, 12, 1, tzinfo=UTC)
_EDGES = st.integers(0, 760 * 86_400).map(lambda seconds: _START + timedelta(seconds=seconds))


@settings(max_examples=EXAMPLES // 2, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_table_equals_the_naive_counter(corpus, everyone, data):
    query = SearchQuery.from_mapping(data.draw(queries(corpus)))
    key, other = (data.draw(st.sampled_from(_TEXTS)) for _ in range(2))
    values = {spec.key: sorted({v for d in corpus for v in d.values[spec.key]}) for spec in FACETS}
    found = matching(corpus, query)
    rows, columns = FacetValues(key, tuple(values[key])), FacetValues(other, tuple(values[other]))
    assert table(query, everyone, rows, columns) == [
        [sum(1 for d in found if a in d.values[key] and b in d.values[other]) for b in columns.values]
        for a in rows.values
    ]
    edges = sorted(data.draw(st.lists(_EDGES, min_size=2, max_size=9, unique=True)))
    if data.draw(st.booleans()):
        edges = [edge.replace(minute=edge.minute // 15 * 15, second=0, microsecond=0) for edge in edges]
    assert table(query, everyone, rows, Spans(tuple(edges))) == [
        [sum(1 for d in found if a in d.values[key] and start <= d.created_at < end) for start, end in pairwise(edges)]
        for a in rows.values
    ]
