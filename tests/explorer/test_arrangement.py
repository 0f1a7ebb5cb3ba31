"""The order of the facets beside the results, and which are open, closed or hidden."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from explorer.page_query import USUAL, Arrangement, Place
from search.facets import FACET
from tests.html import html_of

PAGE = "/explore/facets/"
PLACES = {key: place.value for key, place in USUAL.places.items()}


@pytest.fixture
def reader(corpus):
    client = Client()
    client.force_login(User.objects.create_superuser("reader"))
    return client


def shown(response):
    """The facets on a page of results, in their order: whether each is open."""
    found = re.findall(r'<details id="facet-(\w+)" class="facet[^"]*"([^>]*)>', html_of(response))
    return {key: " open" in attributes for key, attributes in found}


def test_arrangement_comes_back_as_it_was_stored():
    arranged = Arrangement.of([("tag", "open"), ("author", "hidden"), ("type", "closed")])
    assert list(arranged.places)[:4] == ["tag", "author", "type", "project"]
    assert Arrangement.read(arranged.stored) == arranged
    assert set(arranged.places) == set(FACET)


@pytest.mark.parametrize("stored", ["", "nothing", "tag-wide.colour-open", "-.-", "tag"])
def test_what_is_unknown_in_a_cookie_is_left_out(stored):
    assert Arrangement.read(stored) == USUAL
    assert Arrangement.read(stored).stored == ""


def test_facets_move_by_one_and_stop_at_the_ends():
    keys = list(FACET)
    assert list(USUAL.moved(keys[1], -1).places)[:2] == [keys[1], keys[0]]
    assert list(USUAL.moved(keys[0], 1).places)[:2] == [keys[1], keys[0]]
    assert USUAL.moved(keys[0], -1) == USUAL
    assert list(USUAL.moved(keys[-1], 1).places) == keys


def test_sidebar_follows_the_arrangement(reader):
    assert list(shown(reader.get("/explore/"))) == list(FACET)
    sent = {**PLACES, "type": "hidden", "tag": "closed", "state": "open", "next": "/explore/?q=tea"}
    response = reader.post(PAGE, sent)
    assert (response.status_code, response["Location"]) == (302, "/explore/?q=tea")
    page = reader.get("/explore/")
    assert "type" not in shown(page)
    assert shown(page)["state"]
    assert not shown(page)["tag"]
    assert "(1 hidden)" in html_of(page)


def test_hidden_facet_appears_while_one_of_its_values_is_chosen(reader):
    reader.post(PAGE, {**PLACES, "tag": "hidden"})
    assert "tag" not in shown(reader.get("/explore/"))
    chosen = reader.get("/explore/?tag=tea")
    assert shown(chosen)["tag"]
    assert "hidden)" not in html_of(chosen)


def test_move_keeps_the_choices_and_comes_back_to_the_button(reader):
    response = reader.post(PAGE, {**PLACES, "author": "hidden", "move": "tag up", "next": "/explore/?q=tea"})
    assert response["Location"] == "/explore/facets/?next=%2Fexplore%2F%3Fq%3Dtea#tag-up"
    keys = list(shown(reader.get("/explore/")))
    assert keys.index("tag") == list(FACET).index("tag") - 1
    assert "author" not in keys
    assert re.search(r'id="tag-up"', html_of(reader.get(PAGE)))


def test_usual_arrangement_is_one_button_away(reader):
    reader.post(PAGE, {**PLACES, "tag": "hidden"})
    reader.post(PAGE, {"usual": "1"})
    assert list(shown(reader.get("/explore/"))) == list(FACET)


def test_choice_that_does_not_exist_is_refused_and_nothing_is_stored(reader):
    response = reader.post(PAGE, {**PLACES, "tag": "upside-down"})
    assert response.status_code == 422
    assert "upside-down is not one of the available choices" in html_of(response)
    assert list(shown(reader.get("/explore/"))) == list(FACET)
    assert Place.HIDDEN.value in html_of(reader.get(PAGE))


def test_every_facet_is_explained_where_it_stands(reader):
    explore, arrange = html_of(reader.get("/explore/")), html_of(reader.get(PAGE))
    for key, spec in FACET.items():
        text = spec.help_text
        assert f'<summary title="{text}">{spec.label} ' in explore
        assert text in arrange
        assert text in html_of(reader.get(f"/facets/{key}/"))
