"""The pages of entities and concepts without scripts, and the same reads in the API."""

import re

import pytest

from categories.models import Entity, Relationship
from explorer.links import node_url
from tests.html import html_of


def page(client, address, status=200):
    response = client.get(address)
    assert response.status_code == status, address
    assert not re.search(r"<[^>]+ (?:style|on\w+)=", html_of(response))
    return html_of(response)


def reply(client, address, status=200):
    response = client.get(f"/api/{address}")
    assert response.status_code == status, response.content
    return response.json()


# --- pages -------------------------------------------------------------------------------------------------------


def test_page_of_a_node_says_in_words_what_is_drawn(reader):
    text = page(reader, "/graph/entity/part:wheel/")
    assert "Twelve spokes of larch" in text
    assert "also named waterwheel" in text
    assert text.count('<a class="dot ') == 4
    assert re.findall(r"<h3>(.*?) <small>", text) == [
        "… feeds wheel", "wheel turns …", "… inspects wheel", "Mentioned in the same memories"
    ]  # fmt: skip
    feeds = Relationship.objects.get(relationship_type="feeds")
    assert f'href="/graph/relationship/{feeds.pk}/" aria-label="sluice feeds wheel: 2 supporting memories"' in text
    assert 'href="/explore/?entity=part%3Awheel"' in text
    assert '<form class="chain-form"' in text


def test_node_of_another_project_is_nowhere(neighbour):
    assert "Quill" not in page(neighbour, "/graph/entity/part:wheel/?depth=2")
    assert "hinge" not in page(neighbour, "/graph/?search=ing")
    text = page(neighbour, "/graph/entity/part:hinge/", 404)
    assert "Did you mean" not in text
    guards = Relationship.objects.get(relationship_type="guards")
    page(neighbour, f"/graph/relationship/{guards.pk}/", 404)
    assert "Did you mean" in page(neighbour, "/graph/entity/part:whel/", 404)


def test_relationship_has_its_evidence(reader, neighbour):
    feeds = Relationship.objects.get(relationship_type="feeds")
    text = page(reader, f"/graph/relationship/{feeds.pk}/")
    for told in ("The sluice feeds the wheel.", "20% confidence", "Sluice opened", "The combination", "2 memories"):
        assert told in text
    assert "The combination" not in page(neighbour, f"/graph/relationship/{feeds.pk}/")


@pytest.mark.parametrize("name", ["a/../b", "x//y", ".", "1/", "100%?#", "C:\\x", "ünï cöde", "2024", " é"])
def test_every_name_has_an_address_that_leads_to_it(mill, reader, name):
    entity = Entity.objects.create(name=name, entity_type="odd")
    text = page(reader, node_url("entity", entity.pk, str(entity)))
    assert 'href="/explore/?entity=odd%3A' in text


def test_stranger_is_asked_to_sign_in(client, db):
    for address in ("/graph/", "/graph/entity/x/", "/graph/relationship/1/", "/graph/path/"):
        assert client.get(address).status_code == 302


# --- the API -----------------------------------------------------------------------------------------------------


def test_api_lists_what_the_page_lists(caller, mill_caller):
    found = reply(caller, "entities?sort=name&page_size=2")
    assert [row["value"] for row in found["entities"]] == ["part:axle", "shop:Brotlade"]
    assert (found["total"], found["pages"], found["has_more"]) == (7, 4, True)
    assert reply(mill_caller, "entities")["total"] == 5
    assert reply(caller, "concepts")["concepts"] == []


def test_api_tells_of_a_node_and_of_what_is_around_it(caller, mill_caller):
    wheel = reply(caller, "entities/waterwheel")
    assert (wheel["value"], wheel["memories"], wheel["neighbours"]) == ("part:wheel", 5, 4)
    found = reply(caller, "entities/part:wheel/neighbourhood?min=2")
    assert [(node["name"], node["level"]) for node in found["nodes"]] == [("sluice", 1)]
    (tie,) = found["nodes"][0]["ties"]
    assert (tie["type"], tie["evidence"], tie["confidence"]) == ("feeds", 2, 0.2)
    (edge,) = found["edges"]
    assert edge["types"] == ["feeds"]
    assert {row["name"] for row in reply(mill_caller, "entities/wheel/neighbourhood")["nodes"]} == {
        "axle", "sluice", "Osk"
    }  # fmt: skip


def test_api_finds_a_chain_and_a_relationship(caller, mill_caller):
    found = reply(caller, "entities/path?from=sluice&to=Osk")
    assert (found["found"], [step["target"]["name"] for step in found["steps"]]) == (True, ["wheel", "Osk"])
    assert found["steps"][1]["evidence"][0]["title"] == "Wheel inspected"
    assert reply(mill_caller, "entities/path?from=Brotlade&to=sluice")["found"] is False
    number = found["steps"][0]["ties"][0]["relationship"]
    assert reply(caller, f"relationships/{number}")["evidence_count"] == 2
    assert reply(mill_caller, f"relationships/{number}")["evidence_count"] == 1


def test_concepts_have_pages_too(concepts, reader):
    assert "4 concepts" in page(reader, "/graph/concepts/")
    text = page(reader, "/graph/concept/water/")
    assert re.findall(r"<h3>(.*?) <small>", text) == ["Broader", "Narrower"]
