"""Whatever cannot be read or resolved of a search never finds more than was asked for, whoever asks.

The parameters are those of `SearchQuery`, so that a new filter is covered by itself.
"""

from urllib.parse import parse_qsl, urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from agent_tools.calls import ToolRefusedError, call
from agent_tools.catalogue import TOOL
from curation.memory_operations import matching_ids
from explorer.page_query import PageQuery
from search.compare import compare
from search.facets import FACET, FacetKind
from search.listings import date_histograms, facet_page, found_ids, totals
from search.matrix import MatrixRequest, matrix
from search.models import SavedView
from search.plan import UnknownExclusionError
from search.query import VIEW, Mode, SearchQuery
from search.result import FacetListing
from search.run import run
from search.saved_views import count_views, openable_views, query_of
from search.slices import CompareRequest, read_comparison
from search.timeline import TimelineRequest, timeline
from search.unified import legs
from search.unified.service import unified
from tests.html import html_of
from tests.search.conftest import EVERY_COUNT
from tests.unified_corpus import AtOnce
from web.params import MAX_VALUES, QueryError

pytestmark = EVERY_COUNT

PARAMETERS = [field.alias or name for name, field in SearchQuery.model_fields.items() if not field.exclude]
# Some of these are wrong for every parameter: not text, too long, no number, no date, no choice.
WRONG = ("a\x00b", "x" * 20_000, "☃", "-1")
NAMED = [spec.key for spec in FACET.values() if spec.kind in {FacetKind.PROJECT, FacetKind.TREE, FacetKind.IDS}]
BASE = [("tag", "tea"), ("type", "note")]


@pytest.fixture(autouse=True)
def _legs_one_by_one(monkeypatch):
    """A thread of a test that has ended would go on with its own connection."""
    monkeypatch.setattr(legs, "_threads", AtOnce())


def read(*pairs, kind=SearchQuery):
    return kind.read([*BASE, *pairs])


def refused_queries():
    """A query for each parameter that can be wrong, and one for a name that is none."""
    yield pytest.param([("tagg", "tea")], id="unknown name")
    yield pytest.param([("from", "2020"), ("from", "2024-01-01")], id="twice")
    for key in PARAMETERS:
        wrong = next(value for value in WRONG if SearchQuery.read([(key, value)])[1])
        if key not in VIEW:
            yield pytest.param([(key, wrong)], id=key)


@pytest.mark.parametrize("kind", [SearchQuery, PageQuery])
@pytest.mark.parametrize("key", [*PARAMETERS, "tagg", "utm_source"])
def test_what_is_wrong_is_refused_unless_it_is_only_shown(kind, key):
    for value in WRONG:
        query, problems = read((key, value), kind=kind)
        assert bool(problems) == bool(query.refused) or key in VIEW
        assert kind.read(query.parameters())[0].querystring() == query.querystring()
        if problems:
            with pytest.raises(QueryError):
                SearchQuery.from_pairs([(key, value)])


@pytest.mark.parametrize("pairs", list(refused_queries()))
def test_links_views_slices_and_forms_keep_what_is_refused(pairs):
    query, _ = read(*pairs)
    assert query.refused
    for changed in (
        query.toggle("author", "Ben"),
        query.with_(page=2),
        query.without("tag"),
        query.between("2024", ""),
    ):
        again = SearchQuery.read(parse_qsl(changed.querystring()))[0]
        assert again.refused
    assert PageQuery.read([*BASE, *pairs])[0].search.refused == query.refused
    assert not query.without_filters().refused


@pytest.mark.django_db
def test_nothing_matches_a_query_that_is_refused(corpus, engine, everyone):
    queries = [read(*case.values[0])[0] for case in refused_queries()]
    assert {case.id for case in refused_queries()} >= set(PARAMETERS) - VIEW
    assert {one.total for one in totals(queries, everyone)} == {0}
    for query in queries:
        assert run(query, everyone, include_facets=True).total == 0
        assert found_ids(query, everyone) == []


@pytest.mark.django_db
def test_no_reader_of_queries_widens_one_that_is_refused(corpus, engine, everyone):
    query, _ = read(("since", "soon"))
    asked = read_comparison([("by", "project")])
    assert [one.count for one in facet_page(query, "type", FacetListing(), everyone).facet.values] == [0]
    assert sum(bar.all for bar in date_histograms([query], everyone)[0].bars) == 0
    assert not matrix(query, MatrixRequest(rows="type", columns="tag"), everyone).total
    assert timeline(TimelineRequest(), query.with_(text="tea"), everyone).anchor is None
    assert unified(query.with_(text="tea", mode=Mode.UNIFIED), everyone).found == 0
    assert matching_ids(query, everyone) == []
    assert compare(type(asked)(CompareRequest(by="project"), query), everyone).choices == ()


@pytest.mark.parametrize("key", list(FACET))
@pytest.mark.parametrize("sign", ["", "-"])
@pytest.mark.parametrize("every", [False, True], ids=["any", "all"])
def test_a_choice_too_many_is_refused_and_the_others_stay(key, sign, every):
    chosen = [(f"{sign}{key}", str(number)) for number in range(MAX_VALUES + 1)]
    pairs = [*chosen, *([(f"{key}.all", "1")] if every and FACET[key].may_require_all else [])]
    query, problems = SearchQuery.read(pairs)
    assert [problem.parameter for problem in problems] == [f"{sign}{key}"]
    kept = query.selection(key).exclude if sign else query.selection(key).include
    assert set(kept) == {value for _, value in chosen[:-1]}
    may_leave_out = not sign and not query.selection(key).require_all
    assert query.refused == (() if may_leave_out else (chosen[-1],))
    with pytest.raises(QueryError):
        SearchQuery.from_pairs(pairs)


@pytest.fixture
def doors(corpus, everyone):
    """A client with a key, and a signed-in browser."""
    raw = make_key(name="agent", scopes=["read"], viewer=everyone, every_project=True).raw
    browser = Client()
    browser.force_login(User.objects.create_superuser("reader"))
    return Client(headers={"Authorization": f"Bearer {raw}"}), browser


@pytest.mark.django_db
@pytest.mark.parametrize("key", [*NAMED, "state"])
def test_the_exclusion_of_an_unknown_name_is_an_error(doors, everyone, key):
    caller, browser = doors
    query = SearchQuery.from_mapping({f"-{key}": "no-such-name"})
    for ask in (run, found_ids, unified):
        with pytest.raises(UnknownExclusionError, match="no-such-name"):
            ask(query, everyone)
    assert totals([query], everyone)[0].total == 0
    for door in ("search", "export", "facets"):
        reply = caller.get(f"/api/{door}?{query.querystring()}")
        assert (reply.status_code, reply.json()["error"]) == (422, "unknown_name")
    with pytest.raises(ToolRefusedError, match="no-such-name"):
        call(TOOL["search"], {f"exclude_{key}": "no-such-name"}, everyone)
    for text in ("", "&q=tea+cups"):
        page = browser.get(f"/explore/?{query.querystring()}{text}", follow=True)
        assert "Nothing matches, because this is not understood" in html_of(page)
        assert "no-such-name" in html_of(page)
    assert browser.get(f"/explore/matrix/?{query.querystring()}").status_code == 422


@pytest.mark.django_db
def test_a_saved_view_that_cannot_be_read_finds_nothing(corpus, everyone):
    owner = User.objects.create_superuser("reader")
    for number, stored in enumerate(("tag=tea&colour=red", "tag=tea&since=soon", "-entity=nobody")):
        SavedView.objects.create(owner=owner, name=f"view {number}", slug=f"v{number}", query=stored)
    views = openable_views(everyone)
    assert [one.total for one in count_views(views, everyone).values()] == [0, 0, 0]
    assert query_of(views[0].view).refused == (("colour", "red"),)


@pytest.mark.django_db
def test_page_refuses_the_choice_that_was_ticked_last(corpus):
    browser = Client()
    browser.force_login(User.objects.create_superuser("reader"))
    before = [("tag", f"t{number:03}") for number in range(MAX_VALUES)] + [("tag", "tea")]
    ticked, first = before[1:], before[0]
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver/explore/?{urlencode(ticked)}"}
    reply = browser.get(f"/explore/?{urlencode([first, *ticked])}", headers=headers)
    assert reply.status_code == 422
    assert parse_qsl(reply["HX-Push-Url" if "HX-Push-Url" in reply else "HX-Replace-Url"].partition("?")[2]) == ticked
    assert "has too many values" in html_of(reply)
