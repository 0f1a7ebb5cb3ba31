"""The links of a page are put together from what they share; each must be the address of the changed query."""

from urllib.parse import parse_qsl

import pytest

from explorer.links import QueryLinks, explore_url, memory_url, narrowed, values_url
from explorer.page_query import PageQuery

QUERIES = [
    "",
    "q=50%25+%26+more&page=3",
    "tag=clock&tag=sync&tag.all=1&-type=fix&sort=oldest",
    "type=fix&-tag=clock&from=2024-01-01&to=2024-02-01&view=table&column=tag",
    "no=tag&has=type&category=a%2Fb&subcategories=0&page_size=50",
    "project=x&since=7d&as_of=2024-05-01&bucket=day&split=type&v=3",
]
VALUES = ["clock", "fix", "a/b", "é & ü?", "50% off", "x", "100 % +"]


@pytest.mark.parametrize("querystring", QUERIES)
def test_links_are_the_addresses_of_the_changed_queries(querystring):
    query, problems = PageQuery.read(parse_qsl(querystring))
    assert not problems
    links = QueryLinks(query)
    for key in ("tag", "type", "category", "project", "author"):
        for value in VALUES:
            assert links.narrowed(key, value) == explore_url(narrowed(query, key, value))
            assert links.toggled(key, value) == explore_url(query.toggle(key, value))
            assert links.without(key, value) == explore_url(query.toggle_exclusion(key, value))
            assert links.only(key, value) == explore_url(query.only(key, value))
        assert links.values(key) == values_url(key, query)
        assert links.values(key, parent="a & b") == values_url(key, query, {"parent": "a & b"})
    assert links.memory(1234567) == memory_url(1234567, query)
    for first, last in (("2019-01-01", "2019-12-31"), ("2019-01-01T05:00:00+02:00", "2019-01-01T05:59:59")):
        assert links.between(first, last) == explore_url(query.between(first, last))
