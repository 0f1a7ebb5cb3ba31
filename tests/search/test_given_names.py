"""Errors name each parameter as the caller wrote it, through every interface."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from explorer.categories.schemas import CategoryListRequest
from search.query import ALIASES, SearchQuery
from search.result import FacetListing
from search.timeline import TimelineRequest
from tests.html import html_of
from web.params import Params, QueryError

pytestmark = pytest.mark.django_db


def every_params_class(base=Params):
    for one in base.__subclasses__():
        yield one
        yield from every_params_class(one)


CLASSES = dict.fromkeys((SearchQuery, CategoryListRequest, FacetListing, *every_params_class()))


def wrong_value(alias):
    """A value that no parameter takes."""
    return "a\x00b" if ALIASES.get(alias) != "q" else "x" * 20_000


def test_every_alias_is_named_as_it_was_given():
    for params, alias in [(one, alias) for one in CLASSES for alias in one.aliases]:
        _, problems = params.read([(alias, wrong_value(alias))])
        assert [problem.parameter for problem in problems] == [alias], params
        _, by_name = params.read([(params.aliases[alias], wrong_value(alias))])
        assert [problem.parameter for problem in by_name] == [params.aliases[alias]], params


@pytest.fixture
def doors(db):
    user = User.objects.create_user("reader", is_superuser=True)
    browser = Client()
    browser.force_login(user)
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), every_project=True).raw
    return browser, Client(headers={"Authorization": f"Bearer {raw}"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"start_date": "yesterdayish"}, "start_date: 'yesterdayish' is not a date", id="date"),
        pytest.param({"dateEnd": "soon"}, "dateEnd: 'soon' is not a date", id="camel case"),
        pytest.param({"limit": "five"}, "limit: 'five' is not a whole number", id="number"),
        pytest.param({"limit": 1_000}, "limit: 1000 is too large", id="too many"),
        pytest.param({"query": ["tea", "milk"]}, "query: is given twice with different values", id="list for a text"),
        pytest.param({"orderBy": "best"}, "orderBy: 'best' is not one of the choices", id="choice"),
        pytest.param({"match_all": "perhaps"}, "match_all: 'perhaps' is not a boolean", id="switch"),
        pytest.param({"mode": "tag", "query": "tea", "tag": "a"}, "query: mode tag takes no words", id="together"),
        pytest.param({"start_date": "7d"}, "start_date: '7d' is a time span and no date", id="span"),
    ],
)
def test_error_has_the_callers_name_through_every_door(doors, arguments, said):
    browser, caller = doors
    with pytest.raises(ToolRefusedError) as refused:
        call(TOOL["search"], arguments, command_viewer())
    assert str(refused.value).startswith(said)
    assert caller.get("/api/search", arguments).json()["detail"].startswith(said)
    page = html_of(browser.get("/explore/", arguments))
    assert said.partition(":")[0] in page


@pytest.mark.parametrize(
    ("name", "arguments", "works"),
    [
        pytest.param("search", {"start_date": "7d"}, "write since=7d", id="span"),
        pytest.param("search", {"mode": "keyword", "minSimilarity": 0.4}, "minSimilarity: mode", id="without effect"),
        pytest.param("search", {"from": "6m"}, "write since=6m", id="months"),
        pytest.param("search", {"mode": "tag", "query": "tea", "tag": "a"}, "leave query out", id="words of tags"),
        pytest.param("get_observations", {"ids": "42,10"}, "write a list, as [42, 10]", id="ids in a text"),
        pytest.param("get_observations", {"ids": "42 10 7"}, "write a list, as [42, 10, 7]", id="ids with spaces"),
        pytest.param("list_values", {"facet": "tag", "limit": "all"}, "write a number from 1 to 1,000", id="values"),
        pytest.param("search", {"query": ["a", "b"]}, "give one value, not several", id="two texts"),
    ],
)
def test_error_names_the_form_that_works(name, arguments, works):
    with pytest.raises(ToolRefusedError) as refused:
        call(TOOL[name], arguments, command_viewer())
    assert works in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"offset": 500}, "Offset 500 is past the last of 0 results.", id="a page"),
        pytest.param({"offset": 500, "limit": 7}, "Offset 500 is past the last of 0 results.", id="no page"),
        pytest.param({"page": 26}, "Page 26 is past the last page, 1.", id="by page"),
    ],
)
def test_what_is_past_the_end_is_named_as_it_was_asked_for(doors, arguments, said):
    assert said in call(TOOL["search"], arguments, command_viewer())
    warnings = doors[1].get("/api/search", arguments).json()["warnings"]
    assert [warning["message"] for warning in warnings] == [said]


def test_nothing_is_advised_that_an_agent_cannot_do():
    assert "manage.py" not in call(TOOL["similar"], {}, command_viewer())


def test_timeline_names_the_words_as_they_were_given():
    with pytest.raises(QueryError, match=r"^start_date: "):
        TimelineRequest.with_query([("anchor", "1"), ("start_date", "7d")])
