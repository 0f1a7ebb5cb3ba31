"""A text that is the name of a tag, category, concept or entity also finds the memories that carry it."""

from dataclasses import replace
from urllib.parse import parse_qsl

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.viewer import command_viewer
from agent_tools.catalogue import TOOLS
from categories.models import Concept, TagAlias
from memories.models import Memory, Project
from memories.records import MemoryRecord
from memories.services import memory_create
from search.query import SearchQuery
from search.run import run
from search.why_not import why_not
from tests.html import html_of
from tests.search.conftest import BOTH_ENGINES
from tests.vectors import embed_everything
from web.cache import clear_caches

pytestmark = BOTH_ENGINES


def ask(querystring, viewer, **options):
    return run(SearchQuery.from_pairs(parse_qsl(querystring, keep_blank_values=True)), viewer, **options)


def names(result):
    """The external ids of the hits."""
    known = dict(Memory.objects.values_list("pk", "external_id"))
    return {known[hit.id] for hit in result.hits}


def listed_names(result):
    return [(term.facet, term.value, term.count) for term in result.named]


def restricted_to(project, viewer):
    return replace(viewer, project_ids=frozenset([Project.objects.get(slug=project).pk]))


@pytest.mark.parametrize("mode", ["hybrid", "keyword", "faceted"])
@pytest.mark.parametrize(
    ("text", "expected", "named"),
    [
        pytest.param("safety", {"b1", "b3", "b5"}, [("concept", "safety", 3)], id="concept"),
        pytest.param("  HOSPITALITY ", {"t7"}, [("concept", "hospitality", 1)], id="case and spaces"),
        pytest.param("Stove", {"t2"}, [("category", "kitchen/oven", 1)], id="alias of a category"),
        pytest.param("Kitchen", {"t1", "t2", "t5"}, [("category", "kitchen", 3)], id="category and what is below"),
        pytest.param("Mio", {"t1", "b3"}, [("entity", "boat:Mio", 1), ("entity", "person:Mio", 1)], id="two of a name"),
        pytest.param(
            "crane",
            {"b1", "b5", "b7"},
            [("tag", "crane", 3), ("category", "yard/dock/crane", 2), ("entity", "tool:crane", 2)],
            id="also a word",
        ),
        pytest.param("safety rules", set(), [], id="more than the name"),
    ],
)
def test_a_name_finds_what_carries_it(corpus, everyone, mode, text, expected, named):
    result = ask(f"q={text}&mode={mode}", everyone)
    assert names(result) == expected
    assert result.total == len(expected)
    assert listed_names(result) == named


@pytest.mark.parametrize(
    "querystring", ['q="safety"', "q=%2Bsafety", "q=safety&mode=semantic", "q=no-such-name", "q=safety -wet crane"]
)
def test_a_quoted_or_signed_text_and_meaning_alone_look_for_no_name(corpus, everyone, querystring):
    assert ask(querystring, everyone).named == ()


def test_a_text_that_is_a_tag_and_an_alias_names_the_tags_that_the_viewer_has(corpus, everyone):
    TagAlias.objects.create(alias="tea", tag="boat")
    clear_caches()
    boat, tea = restricted_to("boat", everyone), restricted_to("tea", everyone)
    assert listed_names(ask("q=tea&mode=keyword", everyone)) == [("tag", "tea", 4), ("tag", "boat", 3)]
    assert listed_names(ask("q=tea&mode=keyword", boat)) == [("tag", "boat", 2)]
    assert listed_names(ask("q=tea&mode=keyword", tea)) == [("tag", "tea", 4), ("tag", "boat", 1)]


def test_a_selected_facet_gives_exactly_the_number_named(corpus, everyone):
    for querystring in ("", "&subcategories=0", "&type=howto", "&-tag=kettle", "&state=superseded&state=active"):
        for text in ("Kitchen", "crane", "kettle", "maintenance", "tea", "guests"):
            for term in ask(f"q={text}{querystring}", everyone).named:
                selected = f"{term.facet}={term.value}{querystring}"
                assert ask(selected, everyone).total == term.count, (text, querystring, term)


def test_the_numbers_of_words_names_and_meaning_add_up(embedded, everyone):
    assert ask("q=safety&mode=keyword", everyone).matched_by == (
        "no memory contains “safety”, 3 carry the concept “safety”"
    )
    assert ask("q=kitchen&mode=keyword&state=superseded&state=active", everyone).matched_by == (
        "1 contains “kitchen”, 3 more carry the category “Kitchen”"
    )
    assert ask("q=crane&mode=keyword", everyone).matched_by == "3 contain “crane”"
    assert ask("q=Mio&mode=keyword", everyone).matched_by == (
        "no memory contains “Mio”, 2 carry the entity “boat:Mio” or the entity “person:Mio”"
    )
    hybrid = ask("q=maintenance&min_similarity=0", everyone)
    near = hybrid.total - 2
    assert near > 0
    assert hybrid.matched_by == (
        f"no memory contains “maintenance”, 2 carry the concept “maintenance”, {near} more close in meaning"
    )


def test_what_carries_the_name_ranks_above_what_is_only_similar_and_below_a_title(embedded, everyone):
    record = MemoryRecord(project="boat", title="Safety", content="Rules for the yard.", external_id="s1")
    memory_create(record=record, viewer=command_viewer())
    embed_everything()
    clear_caches()
    result = ask("q=safety&min_similarity=0", everyone)
    known = dict(Memory.objects.values_list("pk", "external_id"))
    order = [known[hit.id] for hit in result.hits]
    assert order[0] == "s1"
    assert set(order[1:4]) == {"b1", "b3", "b5"}
    assert len(order) > 4
    assert [bool(hit.named) for hit in result.hits[:5]] == [False, True, True, True, False]
    assert result.hits[1].named == ("the concept “safety”",)
    assert all(0 <= hit.why.relevance <= 1 for hit in result.hits)
    assert all(hit.why.relevance >= 0.5 for hit in result.hits[:4])


def test_a_name_reveals_nothing_of_other_projects(corpus, everyone):
    tea, boat = restricted_to("tea", everyone), restricted_to("boat", everyone)
    assert ask("q=safety&mode=keyword", tea).total == 0
    assert ask("q=safety", tea).named == ()
    assert listed_names(ask("q=Mio", boat)) == [("entity", "boat:Mio", 1)]
    # Only the tea house has memories about temperatures.
    Concept.objects.filter(name="temperature").update(aliases=["Maintenance"])
    clear_caches()
    assert listed_names(ask("q=maintenance", boat)) == [("concept", "maintenance", 1)]
    checked = why_not(SearchQuery(text="maintenance"), Memory.objects.get(external_id="b2").pk, boat)
    assert [check.asked for check in checked.checks if check.name == "name"] == ["carries the concept “maintenance”"]
    assert [label for _, label, _ in sorted((t.value, t.label, t.count) for t in ask("q=maintenance", tea).named)] == [
        "maintenance",
        "temperature",
    ]


def test_why_and_why_not_know_the_name(corpus, everyone):
    query = SearchQuery.from_mapping({"q": "safety", "mode": "keyword"})
    carries, other = (Memory.objects.get(external_id=name).pk for name in ("b3", "b2"))
    found = why_not(query, carries, everyone)
    assert found.matches
    assert [(c.name, c.has, c.passed, c.either) for c in found.checks if c.either] == [
        ("words", "contains none of them", False, True),
        ("name", "carries it", True, True),
    ]
    missed = why_not(query, other, everyone)
    assert not missed.matches
    assert missed.verdict == "It does not match these conditions: words and name."


def test_every_interface_says_which_terms_a_text_names(corpus, everyone):
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    page = html_of(browser.get("/explore/", {"q": "safety", "type": "howto"}))
    assert 'href="/explore/?type=howto&amp;concept=safety"' in page
    assert 'aria-label="concept safety 1: show the memories that carry it"' in page
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), every_project=True).raw
    reply = Client(headers={"Authorization": f"Bearer {raw}"}).get("/api/search", {"q": "safety"}).json()
    assert reply["named"] == [{"facet": "concept", "value": "safety", "label": "safety", "count": 3, "selected": False}]
    (why,) = [reason for reason in reply["memories"][0]["why"]["reasons"] if reason["label"] == "Name"]
    assert why["text"] == "carries the concept “safety”"
    (search,) = [tool for tool in TOOLS if tool.name == "search"]
    assert "3 carry the concept “safety”: concept=safety" in search.run({"query": "safety"}, everyone)
