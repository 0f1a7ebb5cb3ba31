"""Unified search on the explore page and in the API: the same results."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from memories.models import Memory, Project
from search.unified import legs
from tests.html import html_of
from tests.unified_corpus import AtOnce


@pytest.fixture
def caller(mill):
    raw = make_key(name="agent", scopes=["read"], every_project=True, viewer=command_viewer()).raw
    return Client(headers={"Authorization": f"Bearer {raw}"})


@pytest.fixture
def reader(mill):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


def reply(caller, query):
    response = caller.get(f"/api/search?mode=unified&{query}")
    assert response.status_code == 200, response.content
    return response.json()


def result(found, title):
    (one,) = [one for one in found["results"] if one["title"] == title]
    return one


# --- the API ------------------------------------------------------------------------------------------------------


def test_reply_has_results_of_three_kinds_beside_the_memories(caller):
    found = reply(caller, "q=wheel&page_size=100")
    assert {one["kind"] for one in found["results"]} == {"memory", "entity", "relationship"}
    assert [one["id"] for one in found["memories"]] == [
        one["id"] for one in found["results"] if one["kind"] == "memory"
    ]
    assert (found["total"], found["totals"]["memories"]) == (5, 5)
    assert (found["found"], found["pages"], found["has_more"]) == (len(found["results"]), 1, False)
    assert "facets" not in found


def test_a_result_has_common_fields_and_the_record_of_its_kind_alone(caller):
    wheel = result(reply(caller, "q=larch+spokes"), "wheel")
    common = {"kind", "id", "title", "content", "score", "legs", "why", "source", "url", "related", "folded"}
    assert set(wheel) == common | {"entity"}
    assert wheel["entity"] == {
        "id": wheel["id"],
        "name": "wheel",
        "type": "part",
        "value": "part:wheel",
        "aliases": ["waterwheel"],
        "description": "Twelve spokes of larch, built by Osk in 1904.",
        "memories": 5,
    }
    assert wheel["legs"] == {"words": 1, "meaning": 1}
    assert wheel["url"] == "http://testserver/explore/?entity=part%3Awheel"
    osk = result(reply(caller, "q=lantern+friday"), "Osk inspects wheel")
    assert (osk["relationship"]["source"]["value"], osk["relationship"]["type"]) == ("person:Osk", "inspects")
    assert osk["relationship"]["evidence"] == [Memory.objects.get(external_id="m4").pk]
    flour = result(reply(caller, "q=flour+bakery"), "Flour for the bakery")
    assert flour["memory"]["project"] == "mill"
    assert flour["url"] == flour["memory"]["url"]


def test_the_legs_are_told(caller, monkeypatch, settings):
    settings.UNIFIED_LEG_TIMEOUT_MS = 20
    monkeypatch.setattr(legs, "_threads", AtOnce("relationship meaning"))
    found = reply(caller, "q=wheel")
    assert [leg["name"] for leg in found["legs"]] == [leg.name for leg in legs.LEGS]
    assert [leg["state"] for leg in found["legs"]] == ["ok"] * 9 + ["late"]
    assert found["legs"][-1]["reason"] == "it took longer than 20 ms"
    assert "totals.relationships" in found["lower_bounds"]
    assert "Not included: relationships by meaning (it took longer than 20 ms)." in [
        w["message"] for w in found["warnings"]
    ]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        pytest.param("q=wheel&sort=newest", "sort: mode unified puts what fits best first", id="another order"),
        pytest.param("q=wheel&legs=2", "legs: is not a parameter", id="unknown"),
    ],
)
def test_what_it_does_not_take_is_an_error(caller, query, detail):
    response = caller.get(f"/api/search?mode=unified&{query}")
    assert response.status_code == 422
    assert response.json()["detail"] == detail


def test_a_key_for_one_project_is_told_of_nothing_else(mill):
    raw = make_key(
        name="one", scopes=["read"], projects=[Project.objects.get(slug="mill")], viewer=command_viewer()
    ).raw
    one = Client(headers={"Authorization": f"Bearer {raw}"})
    text = html_of(one.get("/api/search?mode=unified&q=person+or+hinges+or+guards"))
    assert "Quill" not in text
    assert "vault" not in text


# --- the page -----------------------------------------------------------------------------------------------------


def kinds(response):
    return re.findall(
        r'<article id="(?:hit|entity|relationship)-\d+".*?class="kind kind-(\w+)"', html_of(response), re.DOTALL
    )


def test_legs_that_were_left_out_are_named_on_the_page(reader, monkeypatch, settings):
    settings.UNIFIED_LEG_TIMEOUT_MS = 20
    monkeypatch.setattr(legs, "_threads", AtOnce("entity words", "entity meaning"))
    response = reader.get("/explore/?q=wheel&mode=unified")
    assert "Not included: entities by words, entities by meaning (it took longer than 20 ms)." in html_of(response)
    assert set(kinds(response)) == {"memory", "relationship"}


def test_unified_search_shows_one_total_by_kind(reader):
    page = html_of(reader.get("/explore/?q=wheel&mode=unified"))
    heading = re.search(r'<h1 id="total" tabindex="-1">\s*(\d+)\s*results?\s*<small>([^<]+)</small>', page)
    assert heading
    assert int(heading[1]) == sum(map(int, re.findall(r"\d+", heading[2])))
    assert int(heading[1]) == len(re.findall(r'<div class="result">', page))
    assert re.search(r"facets count \d+ memor", page)
