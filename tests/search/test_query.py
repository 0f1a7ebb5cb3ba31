from datetime import UTC, datetime, timedelta
from typing import get_args
from urllib.parse import parse_qsl
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.explore.timeline_api import ViewRequest
from search.facets import FACETS
from search.matrix import Axis
from search.query import ALIASES, Mode, SearchQuery, Sort
from search.timeline import TimelineRequest
from text.formatting import since_span, span_label
from web.params import QueryError


def parse(querystring):
    return SearchQuery.from_pairs(parse_qsl(querystring, keep_blank_values=True))


def problems(querystring):
    with pytest.raises(QueryError) as caught:
        parse(querystring)
    return caught.value.problems


def test_canonical_form_sorts_values_and_drops_defaults():
    query = parse("page=1&tag=b&tag=a&tag=b&q=tea&mode=hybrid&type=")
    assert query.querystring() == "q=tea&tag=a&tag=b"


def test_span_has_minutes_beside_months():
    assert since_span("10min") == timedelta(minutes=10)
    assert since_span("10m") == timedelta(days=300)
    assert (span_label("1min"), span_label("10min"), span_label("10m")) == (
        "last minute",
        "last 10 minutes",
        "last 10 months",
    )


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_alias_means_its_canonical_name(alias):
    day = dict.fromkeys(("from", "to", "-recalled_since"), "2026-01-01")
    value = {**day, "sort": "oldest", "page_size": "5", "tz": "UTC"}.get(ALIASES[alias], "1")
    assert parse(f"{alias}={value}") == parse(f"{ALIASES[alias]}={value}")


@pytest.mark.parametrize(
    ("querystring", "parameter", "words"),
    [
        pytest.param("tagg=a", "tagg", "is not a parameter", id="unknown"),
        pytest.param("from=2026-13-01", "from", "is not a date", id="date"),
        pytest.param("to=yesterday", "to", "is not a date", id="word for a date"),
        pytest.param("since=3q", "since", "neither a time span", id="since"),
        pytest.param("page=0", "page", "too small", id="page 0"),
        pytest.param("page=two", "page", "not a whole number", id="page word"),
        pytest.param("page=99999999999999999999", "page", "too large", id="page huge"),
        pytest.param("page_size=1000", "page_size", "too large", id="page size"),
        pytest.param("mode=magic", "mode", "not one of the choices", id="mode"),
        pytest.param("sort=best", "sort", "not one of the choices", id="sort"),
        pytest.param("tz=Mars", "tz", "not a time zone", id="zone"),
        pytest.param("include_facets=maybe", "include_facets", "not a boolean (1 or 0)", id="switch"),
        pytest.param("q=" + "x" * 10_240, "q", "characters long", id="10 kB"),
        pytest.param("q=%00", "q", "not text", id="NUL"),
        pytest.param("tag=a%00b", "tag", "not text", id="NUL in a value"),
        pytest.param("has=colour", "has", "not a facet", id="has"),
        pytest.param("page=1&page=2", "page", "given twice", id="twice"),
        pytest.param("mode=tag&tag=a&q=tea", "q", "takes no words", id="words in tag mode"),
        pytest.param("mode=tag", "tag", "at least one tag", id="tag mode without tags"),
        pytest.param("offset=7&limit=5&page=2", "offset", "together with page", id="offset"),
        pytest.param("offset=-1", "offset", "too small", id="offset below 0"),
    ],
)
def test_problem_names_the_parameter(querystring, parameter, words):
    (problem,) = problems(querystring)
    assert problem.parameter == parameter
    assert words in problem.message


def test_unknown_parameter_suggests_the_near_one():
    (problem,) = problems("catgory=x")
    assert "category" in problem.did_you_mean


def test_every_problem_is_reported_at_once():
    assert {p.parameter for p in problems("page=0&sort=x&nope=1")} == {"page", "sort", "nope"}


def test_reading_goes_on_with_what_can_be_read():
    query, found = SearchQuery.read([("tag", "a"), ("page", "x"), ("has", "colour")])
    assert query.tag == ("a",)
    assert query.has == ()
    assert len(found) == 2


def test_offset_and_limit_are_a_page():
    query = parse("offset=40&limit=20")
    assert (query.page, query.page_size, query.begin) == (3, 20, 40)
    assert query.querystring() == "page=3&page_size=20"


def test_offset_within_a_page_is_counted_before_the_pages_and_goes_with_the_filters():
    query = parse("offset=7&limit=5")
    assert (query.page, query.begin, query.replace(page=3).begin) == (1, 7, 17)
    assert query.toggle("tag", "a").begin == 0


def test_toggle_adds_and_takes_away_and_returns_to_page_one():
    query = parse("tag=a&page=4")
    assert query.toggle("tag", "b").querystring() == "tag=a&tag=b"
    assert query.toggle("tag", "a").querystring() == ""


def test_excluding_an_included_value_moves_it():
    assert parse("tag=a").toggle_exclusion("tag", "a").querystring() == "-tag=a"
    assert parse("-tag=a").toggle("tag", "a").querystring() == "tag=a"


def test_without_filters_keeps_text_and_view():
    query = parse("q=tea&tag=a&-type=b&has=entity&no=agent&from=2026-01-01&sort=oldest&subcategories=0")
    assert query.without_filters().querystring() == "q=tea&sort=oldest"


def test_days_are_those_of_the_zone_and_both_ends_are_included():
    start, end = parse("from=2026-03-29&to=2026-03-29").period(ZoneInfo("Europe/Berlin"), datetime.now(UTC))
    assert (start, end) == (datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC))


def test_an_hour_includes_its_last_minute():
    start, end = parse("from=2026-01-01T10:00-03:00&to=2026-01-01T10:59-03:00").period(UTC, datetime.now(UTC))
    assert end - start == timedelta(hours=1)


def test_the_last_day_there_is_has_no_end():
    assert parse("to=9999-12-31").period(ZoneInfo("America/New_York"), datetime.now(UTC))[1] is None


def test_a_span_narrows_explicit_dates():
    now = datetime(2026, 6, 1, tzinfo=UTC)
    assert parse("since=7d").period(UTC, now) == (now - timedelta(days=7), now)
    assert parse("since=7d&from=2020-01-01").period(UTC, now) == (now - timedelta(days=7), now)
    assert parse("since=7d&from=2026-05-30").period(UTC, now) == (datetime(2026, 5, 30, tzinfo=UTC), now)
    begin, end = parse("since=7d&to=2026-01-01").period(UTC, now)
    assert begin > end


def test_relevance_without_words_is_newest():
    assert parse("sort=relevance").order == Sort.NEWEST
    assert parse("q=tea").order == Sort.RELEVANCE


def test_named_arguments_read_like_a_query_string():
    query = SearchQuery.from_mapping({"query": "tea", "tags": ["b", "a"], "match_all": True, "agent": None})
    assert query == parse("q=tea&tag=a&tag=b&tag.all=1")


def test_openapi_lists_every_parameter_by_a_name_that_any_language_allows():
    listed = {parameter["name"] for parameter in SearchQuery.openapi_parameters()}
    assert {"q", "exclude_tag", "from", "match_all_tags", "match_all_concepts", "include_facets"} <= listed
    assert all(name.isidentifier() for name in listed)
    assert parse("exclude_tag=a&match_all_entities=1") == parse("-tag=a&entity.all=1")


values = st.lists(st.text(alphabet="abc/ +#é", min_size=1, max_size=6), max_size=3)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **{spec.key: values for spec in FACETS},
            **{f"-{spec.key}": values for spec in FACETS},
            "q": st.text(alphabet='ab "-+', max_size=12),
            "mode": st.sampled_from([Mode.KEYWORD, Mode.FACETED]),
            "sort": st.sampled_from(list(Sort)),
            "page": st.integers(1, 50),
            "tag.all": st.booleans(),
            "subcategories": st.booleans(),
            "from": st.dates().map(str),
        },
    )
)
def test_writing_and_reading_a_query_gives_it_back(arguments):
    query = SearchQuery.from_mapping(arguments)
    assert parse(query.querystring()) == query


def test_what_is_given_twice_is_left_out():
    query, found = SearchQuery.read([("q", "tea"), ("q", "milk"), ("tag", "a")])
    assert (query.text, query.tag) == ("", ("a",))
    assert [problem.parameter for problem in found] == ["q"]


@pytest.mark.parametrize(
    ("request_class", "taken", "refused"),
    [
        pytest.param(ViewRequest, {"view", "page", "sort"}, {"anchor"}, id="search"),
        pytest.param(TimelineRequest, {"anchor", "depth_before", "tag"}, {"page", "sort"}, id="timeline"),
    ],
)
def test_unknown_name_is_answered_with_the_parameters_of_this_operation(request_class, taken, refused):
    with pytest.raises(QueryError) as error:
        request_class.with_query([("q", "tea"), ("vieww", "index")])
    (problem,) = error.value.problems
    listed = set(problem.suggestion.removeprefix("the parameters are ").split(", "))
    assert taken <= listed
    assert not refused & listed
    assert problem.did_you_mean[:1] == (("view",) if request_class is ViewRequest else ())


def test_every_facet_may_be_the_rows_or_columns_of_a_table():
    assert set(get_args(Axis)) == {spec.key for spec in FACETS}
