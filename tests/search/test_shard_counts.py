"""Counts as a cluster makes them, in SQL that one machine understands too: they equal its own."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search.query import SearchQuery
from search.run import run
from tests.search.conftest import EVERY_COUNT
from tests.search.queries import EVERYTHING, queries
from web.cache import clear_caches

pytestmark = EVERY_COUNT


@pytest.mark.engines("postgres")
@pytest.mark.parametrize("facet_limit", [pytest.param(EVERYTHING, id="all values"), pytest.param(None, id="sidebar")])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_counts_made_on_shards_equal_those_of_one_machine(corpus, everyone, facet_limit, data):
    query = SearchQuery.from_mapping({**data.draw(queries(corpus)), "include_facets": True})
    with pytest.MonkeyPatch.context() as patch:
        counted = []
        for is_distributed in (False, True):
            patch.setattr("search.engines.is_distributed", lambda answer=is_distributed: answer)
            clear_caches()
            counted.append(run(query, everyone, facet_limit=facet_limit))
    here, there = counted
    assert (there.total, there.at_least, there.hits, there.hidden) == (
        here.total,
        here.at_least,
        here.hits,
        here.hidden,
    )
    assert there.facets == here.facets
    assert there.histogram == here.histogram
    assert (there.date_buckets, there.quick_ranges) == (here.date_buckets, here.quick_ranges)
