"""People and times in plain words: what is offered, to whom, and that it finds what it says."""

import json

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import AuditEvent
from access.viewer import Viewer, command_viewer
from agent_tools.calls import call
from agent_tools.catalogue import TOOL
from memories.models import Memory
from memories.records import MemoryRecord
from memories.services import memory_create
from search.plain_words import offer_filters
from search.query import SearchQuery
from search.run import run
from tests.html import html_of

pytestmark = pytest.mark.django_db


def create(title, day="2026-03-10", **fields):
    record = MemoryRecord.model_validate(
        {"content": f"{title}. It is decided.", "title": title, "created_at": f"{day}T12:00:00Z", **fields}
    )
    return memory_create(record=record, viewer=command_viewer())


@pytest.fixture
def team():
    """Memories of four people and an agent, in two projects."""
    create("Use green tea", authors=["Hannah Okafor"], project="tea")
    create("Buy a kettle", "2026-06-02", authors=["Marco Rossi"], project="tea")
    create("Old cups", "2024-05-20", authors=["Anna Schmidt", "Hannah Okafor"], project="tea")
    create("Migration to Postgres 17", "2026-05-12", authors=["Marco Rossi"], project="tea")
    create("Fewer tests", "2026-02-01", authors=["Mark Will"], agent="codex", project="tea")
    create("Salaries", "2025-09-01", authors=["Zelda Quist"], project="secret")


def offers(text, viewer=None, **fields):
    return offer_filters(SearchQuery(text=text, **fields), viewer or command_viewer())


def first_of(text, viewer=None, **fields):
    found = offers(text, viewer, **fields)
    return (dict(found[0].pairs), found[0].query.text, found[0].count) if found else None


HANNAH, MARCO = {"author": "Hannah Okafor"}, {"author": "Marco Rossi"}
MARCH = {"from": "2026-03-01", "to": "2026-03-31"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hannah Okafor March", (HANNAH | MARCH, "", 1)),
        ("hannah okafor march", (HANNAH | MARCH, "", 1)),
        ("Hannah Okafor in May", (HANNAH | {"from": "2024-05-01", "to": "2024-05-31"}, "", 1)),
        ("Marco decided in June 2026", (MARCO | {"from": "2026-06-01", "to": "2026-06-30"}, "decided", 1)),
        ("Anna", ({"author": "Anna Schmidt"}, "", 1)),
        ("schmidt", ({"author": "Anna Schmidt"}, "", 1)),
        ("tea", ({"project": "tea"}, "", 5)),
        ("anna", ({"author": "Anna Schmidt"}, "", 1)),
        ("Anna's cups", ({"author": "Anna Schmidt"}, "cups", 1)),
        ("cups by hannah okafor", (HANNAH, "cups", 1)),
        ("May 2024", ({"from": "2024-05-01", "to": "2024-05-31"}, "", 1)),
        ("kettle since June 2026", ({"from": "2026-06-01"}, "kettle", 1)),
        ("tea until March 2026", ({"to": "2026-03-31"}, "tea", 1)),
        ("before the migration to Postgres 17", ({"to": "2026-05-12"}, "", 5)),
        ("kettle after the migration to Postgres 17", ({"from": "2026-05-12"}, "kettle", 1)),
        ("codex", ({"agent": "codex"}, "", 1)),
        ("Mark", ({"author": "Mark Will"}, "", 1)),
    ],
)
def test_people_and_times_are_offered_with_what_they_find(team, text, expected):
    pairs, left, count = expected
    found = first_of(text)
    assert found is not None
    assert (found[0], found[1]) == (pairs, left)
    (offer, *_) = offers(text)
    assert offer.count == run(offer.query, command_viewer()).total
    if not left:
        assert offer.count == count


@pytest.mark.parametrize(
    "text",
    [
        "you may change the kettle",
        "may",
        "mark all cups",
        "mark",
        "will the kettle boil",
        "march through the tests",
        "the tests march on",
        "port 2024 is in use",
        "before the kettle boils",
        "codex hooks for tests",
        "marco polo crossed the sea of tests",
        '"Hannah Okafor"',
        "kettle",
        " ",
        "-",
    ],
)
def test_ordinary_words_are_offered_as_nothing(team, text):
    assert offers(text) == ()


def test_a_name_that_many_texts_have_is_a_word_and_no_name():
    create("Robot report", authors=["Kettle Robot"])
    for at in range(75):
        create(f"Kettle {at}")
    assert offers("Kettle") == ()
    assert first_of("Kettle Robot")[0] == {"author": "Kettle Robot"}


def test_a_first_name_of_two_people_is_offered_as_neither(team):
    create("Saucers", authors=["Anna Berg"])
    assert offers("Anna") == ()


def test_parts_are_offered_together_and_each_alone(team):
    create("Cold brew", "2026-03-11", authors=["Marco Rossi"], project="tea")
    assert [one.label for one in offers("tea March 2026 by Hannah Okafor")] == ["March 2026 · author: Hannah Okafor"]
    create("Tea of Hannah Okafor", "2026-03-12", authors=["Hannah Okafor"], project="tea")
    assert [one.label for one in offers("tea March 2026 by Hannah Okafor")] == [
        "March 2026 · author: Hannah Okafor",
        "March 2026",
    ]


def test_a_filter_that_is_chosen_already_is_not_offered_again(team):
    assert offers("Anna", author=("Hannah Okafor",)) == ()
    assert offers("May 2024", date_from="2024-01-01") == ()


def test_people_of_projects_that_a_viewer_does_not_see_are_not_offered(team):
    tea = Memory.objects.get(title="Use green tea").project_id
    reader = Viewer(frozenset({tea}), frozenset({"read"}))
    assert first_of("Zelda Quist")[0] == {"author": "Zelda Quist"}
    assert offers("Zelda Quist", reader) == offers("Zelda", reader) == ()
    assert offers("after Salaries of all", reader) == ()
    assert offers("September", reader) == ()
    assert first_of("Hannah Okafor", reader)[2] == 2


def test_the_page_offers_where_nothing_is_found_and_says_the_key(team):
    owner = Client()
    owner.force_login(User.objects.create_superuser("ann"))
    page = html_of(owner.get("/explore/?q=Zelda+Quist&mode=keyword"))
    assert "Nothing matches" in page
    assert "data-offer href=" in page
    assert "1 memory has the author with that name" in page
    # Once is enough.
    assert "author: Zelda Quist (1)" not in page
    page = html_of(owner.get("/explore/?q=Hannah+Okafor+March&mode=keyword"))
    assert "author: Hannah Okafor · March 2026 (1)" in page
    assert page.count("Alt+Enter") == 1
    assert "Alt+Enter" in page
    assert "data-offer" not in html_of(owner.get("/explore/?q=kettle"))


def test_the_api_names_what_it_understood(team):
    made = make_key(name="codex", scopes=["read"], every_project=True, viewer=command_viewer())
    client = Client(headers={"Authorization": f"Bearer {made.raw}"})
    (understood, *_) = client.get("/api/search?q=Marco+decided+in+June+2026&view=index").json()["understood"]
    assert understood["filters"] == MARCO | {"from": "2026-06-01", "to": "2026-06-30"}
    assert (understood["text"], understood["label"]) == ("decided", "author: Marco Rossi · June 2026")
    again = client.get(f"/api/search?{understood['query']}").json()
    assert (again["total"], again["understood"]) == (understood["count"], [])


def test_the_tool_names_what_it_understood(team):
    reply = json.loads(
        call(
            TOOL["search"],
            {"query": "Hannah Okafor March", "format": "json"},
            Viewer(None, frozenset({"read"}), door=AuditEvent.Door.MCP),
        )
    )
    assert reply["understood"][0] == (
        'author: Hannah Okafor · March 2026 (1): search(author=["Hannah Okafor"], from="2026-03-01", to="2026-03-31")'
    )


@pytest.mark.parametrize(
    ("text", "together"),
    [
        ("Hannah Okafor Marco Rossi", None),
        ("2024-05 June 2026", None),
        ("Hannah Okafor Hannah Okafor", None),
        ("Hannah Okafor 2024-05", {"author": "Hannah Okafor", "from": "2024-05-01", "to": "2024-05-31"}),
        ("since 2024-05 until 2026-03", {"from": "2024-05-01", "to": "2026-03-31"}),
    ],
)
def test_what_cannot_be_chosen_at_once_is_not_offered_together(team, text, together):
    found = offers(text)
    assert [dict(one.pairs) for one in found if "·" in one.label] == ([together] if together else [])
    for one in found:
        assert len(dict(one.pairs)) == len(one.pairs)
        assert run(SearchQuery.from_pairs([("q", one.query.text), *one.pairs]), command_viewer()).total == one.count


def test_the_name_of_a_project_is_offered_to_who_sees_it(team):
    tea = Memory.objects.filter(project__slug="tea").values_list("project_id", flat=True)[0]
    reader = Viewer(project_ids=frozenset([tea]), scopes=frozenset({"read"}))
    assert first_of("secret") == ({"project": "secret"}, "", 1)
    assert first_of("secret", reader) is None
    assert first_of("quist", reader) is None


def test_a_project_is_known_by_its_words(team):
    create("Open at nine", project="tea-house of kyoto")
    for text in ("tea house of Kyoto", "tea-house-of-kyoto"):
        assert first_of(text) == ({"project": "tea-house-of-kyoto"}, "", 1)
