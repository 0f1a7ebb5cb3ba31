"""run() compared to the naive counter for random queries."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search.facets import FACET, FACETS, FacetKind
from search.query import SearchQuery
from search.run import run
from tests.oracle import date_counts, facet_counts, matching
from tests.search.conftest import EVERY_COUNT
from tests.search.queries import EVERYTHING, EXAMPLES, facet, queries

pytestmark = EVERY_COUNT


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_any_query_equals_the_naive_counter(corpus, everyone, data):
    query = SearchQuery.from_mapping({**data.draw(queries(corpus)), "include_facets": True, "page_size": 100})
    result = run(query, everyone, facet_limit=EVERYTHING)
    expected = matching(corpus, query)
    assert result.total == len(expected)
    assert {hit.id for hit in result.hits} == {document.id for document in expected}
    for spec in FACETS:
        values, no_value = facet_counts(corpus, query, spec.key)
        found = facet(result, spec.key)
        shown = {v.value: v.count for v in found.values if not v.excluded and v.count}
        excluded = set(query.selection(spec.key).exclude)
        assert shown == {value: n for value, n in values.items() if value not in excluded}, spec.key
        assert found.no_value == no_value, spec.key
        if spec.exclusive and not query.selection(spec.key).restricts and spec.key != "state":
            assert sum(shown.values()) + found.no_value == result.total
        for value in found.values:
            # Without an excluded state, the default states apply again.
            if value.excluded and spec.key != "state":
                back = run(query.toggle_exclusion(spec.key, value.value), everyone)
                assert back.total - result.total == value.count
    days = date_counts(corpus, query)
    assert sum(bar.all for bar in result.histogram.bars) == sum(days.values()) or query.has_dates
    sidebar = run(query, everyone)
    for spec in FACETS:
        full = {v.value: v.count for v in facet(result, spec.key).values}
        for value in facet(sidebar, spec.key).values:
            assert full.get(value.value, 0) == value.count, (spec.key, value)


@settings(max_examples=EXAMPLES // 2, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_ticking_a_value_gives_exactly_the_number_it_showed(corpus, everyone, data):
    query = SearchQuery.from_mapping({**data.draw(queries(corpus)), "include_facets": True, "facet_scope": "choices"})
    key = data.draw(st.sampled_from(sorted(FACET)))
    alone = query.model_copy(update={FACET[key].field: (), "no": tuple(k for k in query.no if k != key)})
    result = run(alone, everyone, facet_limit=EVERYTHING)
    found = facet(result, key)
    for value in found.values:
        if not (value.excluded or value.selected):
            assert run(alone.toggle(key, value.value), everyone).total == value.count
    if FACET[key].kind != FacetKind.PROJECT and not found.requires_all:
        assert run(alone.toggle_presence("no", key), everyone).total == found.no_value


def test_values_of_a_facet_are_counted_though_none_of_them_is_shown(corpus, everyone):
    # The sidebar shows two levels of categories, and the one of this memory is on the third.
    query = SearchQuery.from_mapping({"q": "brake", "subcategories": False, "include_facets": True})
    assert facet_counts(corpus, query, "category") == ({"yard/dock/crane": 1}, 0)
    assert facet(run(query, everyone), "category").distinct == 1
