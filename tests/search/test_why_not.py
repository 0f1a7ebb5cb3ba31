"""Checks of a memory against a query agree with the search, through every interface."""

import random
from urllib.parse import parse_qsl

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from access.keys import make_key
from access.models import Membership
from memories.models import Chunk, Corpus, Memory, Project
from search.query import SearchQuery
from search.run import run
from search.why_not import WhyNotRequest, why_not
from tests.html import html_of
from tests.search.conftest import BOTH_ENGINES
from tests.search.queries import queries
from tests.search.test_meaning import by_meaning
from web.params import QueryError

pytestmark = BOTH_ENGINES

SLOWLY = hypothesis_settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def query_of(querystring):
    return SearchQuery.from_pairs(parse_qsl(querystring, keep_blank_values=True))


def memory(external_id):
    return Memory.objects.get(external_id=external_id)


def explained(querystring, external_id, viewer):
    return why_not(query_of(querystring), memory(external_id).pk, viewer)


def told(found):
    return {check.label: (check.asked, check.has, check.passed) for check in found.checks}


# --- filters and dates --------------------------------------------------------------------------------------------


def test_every_filter_is_told_with_what_the_memory_has(corpus, everyone):
    found = explained("tag=guests&type=decision&-author=Mio&category=kitchen&from=2025-01-01&has=agent", "t1", everyone)
    assert not found.matches
    assert told(found) == {
        "Type": ("decision", "decision", True),
        "Category": ("Kitchen", "Kitchen / Brewing", True),
        "Tag": ("guests", "tea and brewing", False),
        "Not author": ("not Mio", "Mio", False),
        "Has an agent": ("any", "none", False),
        "State": ("active or proposed, the default", "active", True),
        "Date": ("from 1 Jan 2025", "created 5 Jan 2024, 10:00 UTC", False),
    }
    assert found.verdict == "It does not match these conditions: tag, not author, has an agent and date."
    assert (found.place, found.page) == (None, None)


# --- words --------------------------------------------------------------------------------------------------------


# --- meaning ------------------------------------------------------------------------------------------------------


def test_too_far_in_meaning_is_told_with_both_numbers(embedded, everyone):
    found = explained("q=forty cups&min_similarity=0.9&mode=semantic", "t1", everyone)
    (check,) = found.missing
    assert (check.name, check.asked) == ("meaning", "a similarity of at least 0.90")
    assert float(check.has) < 0.9
    assert found.verdict == "It does not match these conditions: meaning."


def test_memory_without_a_vector_is_not_embedded_yet(embedded, everyone):
    Chunk.objects.filter(memory_id=memory("t1").pk).delete()
    Corpus.objects.update(vectors=F("vectors") + 1)
    found = explained("q=green tea&mode=semantic", "t1", everyone)
    assert [check.has for check in found.missing] == ["not embedded yet"]


def test_beyond_the_ceiling_is_told_with_the_last_that_is_taken(embedded, low_ceiling, everyone):
    query = query_of("q=tea boat dock&mode=semantic&min_similarity=0.01")
    taken = {hit.id for hit in run(query, everyone).hits}
    left_out = [why_not(query, pk, everyone) for pk in Memory.objects.values_list("pk", flat=True) if pk not in taken]
    said = [check.has for found in left_out for check in found.missing if check.name == "meaning"]
    assert len(taken) == 3
    assert any("but only the 3 nearest are considered, and the last of them has 0." in has for has in said)


def test_without_the_model_it_says_that_words_alone_were_looked_at(corpus, everyone, query_model):
    found = explained("q=green tea", "t1", everyone)
    assert found.notes == ("Search by meaning is not ready: no memory has been embedded yet. Found by words alone.",)
    assert "meaning" not in {check.name for check in found.checks}


# --- where it is --------------------------------------------------------------------------------------------------


def verdict_is_that_of_the_search(query, documents, viewer):
    hits = [hit.id for hit in run(query, viewer).hits]
    for document in documents:
        found = why_not(query, document.id, viewer)
        assert found.matches == (document.id in hits)
        assert found.matches == (not found.missing)
        assert found.place == (hits.index(document.id) + 1 if document.id in hits else None)


@SLOWLY
@given(data=st.data())
def test_verdict_is_that_of_the_search_for_any_query(corpus, everyone, data):
    query = SearchQuery.from_mapping({**data.draw(queries(corpus)), "page_size": 100})
    documents = data.draw(st.lists(st.sampled_from(corpus), min_size=3, max_size=3))
    verdict_is_that_of_the_search(query, documents, everyone)


@pytest.mark.parametrize("seeds", [range(n, n + 10) for n in range(0, 40, 10)], ids=str)
def test_verdict_is_that_of_the_search_for_any_query_by_meaning(embedded, everyone, seeds):
    for seed in seeds:
        query = SearchQuery.from_mapping({**by_meaning(embedded, seed), "page_size": 100})
        verdict_is_that_of_the_search(query, random.Random(seed).sample(embedded, 3), everyone)


# --- who may ask --------------------------------------------------------------------------------------------------


@pytest.fixture
def of_the_boat(corpus):
    """A user who is a member of one project."""
    user = User.objects.create_user("skipper")
    Membership.objects.create(user=user, project=Project.objects.get(slug="boat"), role=Membership.Role.READER)
    client = Client()
    client.force_login(user)
    return client


def test_memory_of_another_project_is_no_such_memory(of_the_boat):
    theirs, nowhere = memory("t1").pk, 999_999_999
    answers = [of_the_boat.get("/api/search/why-not", {"id": pk, "q": "tea"}) for pk in (theirs, nowhere)]
    assert [answer.status_code for answer in answers] == [404, 404]
    bodies = [html_of(answer).replace(str(pk), "N") for answer, pk in zip(answers, (theirs, nowhere), strict=True)]
    assert bodies[0] == bodies[1]
    pages = [of_the_boat.get("/explore/why-not/", {"id": pk, "q": "tea"}).status_code for pk in (theirs, nowhere)]
    assert pages == [404, 404]


@pytest.mark.parametrize(
    ("pairs", "problem"),
    [
        pytest.param([("q", "tea")], "id: is missing", id="none"),
        pytest.param([("id", "t1")], "id: 't1' is not the id of a memory", id="no number"),
        pytest.param([("id", "1"), ("id", "2")], "id: is given twice", id="two"),
    ],
)
def test_id_must_be_the_number_of_one_memory(pairs, problem):
    with pytest.raises(QueryError, match=problem):
        WhyNotRequest.with_query(pairs)


def test_api_answers_with_checks_and_refuses_what_it_does_not_know(corpus, everyone):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=everyone).raw
    caller = Client(headers={"Authorization": f"Bearer {raw}"})
    one = memory("t1")
    reply = caller.get(
        "/api/search/why-not", {"id": one.pk, "q": "green tea", "tag": "guests", "mode": "keyword"}
    ).json()
    assert (reply["id"], reply["title"], reply["matches"]) == (one.pk, one.title, False)
    assert reply["verdict"] == "It does not match these conditions: tag."
    assert reply["filters"] == {"q": "green tea", "mode": "keyword", "tag": ["guests"]}
    assert {
        "name": "tag",
        "label": "Tag",
        "asked": "guests",
        "has": "tea and brewing",
        "passed": False,
        "either": False,
    }
    refused = caller.get("/api/search/why-not", {"id": one.pk, "taggs": "tea"})
    assert (refused.status_code, refused.json()["error"]) == (422, "invalid_query")


# --- the page -----------------------------------------------------------------------------------------------------


@pytest.fixture
def reader(corpus):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


def test_page_says_what_keeps_a_memory_out(reader):
    one = memory("t1")
    page = reader.get("/explore/why-not/", {"id": f"#{one.pk}", "tag": "guests"})
    assert page.status_code == 200
    assert "It does not match these conditions: tag." in html_of(page)
    assert '<td class="no"><span aria-hidden="true">✗</span> no</td>' in html_of(page)
    assert f'href="/m/{one.pk}/?ctx=tag%3Dguests"' in html_of(page)
    assert '<input type="hidden" name="tag" value="guests">' in html_of(page)
