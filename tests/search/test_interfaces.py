"""Page, API and run() give the same memories, total and counts to the same viewer."""

import re
from html import unescape
from urllib.parse import parse_qsl

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access.keys import make_key
from access.models import Membership
from access.viewer import command_viewer, viewer_of_user
from memories.models import Project
from search.facets import FACET
from search.query import SearchQuery
from search.run import run
from tests.html import html_of
from tests.search.conftest import BOTH_ENGINES

pytestmark = BOTH_ENGINES

ROW = re.compile(
    r'<input type="checkbox" id="[^"]+" form="explore-form" name="([^"]+)" value="([^"]*)"[^>]*>'
    r'.*?<span class="count"[^>]*>([\d,]*)</span>',
    re.DOTALL,
)
BAR = re.compile(r'data-bar [^>]*?data-first="([^"]*)"[^>]*? data-count="([\d,]+)"')

# Totals for a viewer of all projects, and for a member of the tea house.
QUERIES = [
    pytest.param("", 14, 8, id="nothing asked"),
    pytest.param("q=tea", 6, 5, id="words"),
    pytest.param("q=%22green+tea%22+or+crane&sort=newest", 4, 1, id="phrase or word"),
    pytest.param("tag=tea&tag=guests", 4, 4, id="any of the tags"),
    pytest.param("tag=tea&tag=guests&tag.all=1", 2, 2, id="all of the tags"),
    pytest.param("-tag=hardware&-tag=crane", 10, 7, id="exclusions"),
    pytest.param("category=kitchen", 3, 3, id="category with what is below"),
    pytest.param("category=stove&category=yard&subcategories=0", 3, 2, id="alias, and no subcategories"),
    pytest.param("entity=kettle&entity=person:Ada", 4, 2, id="entities by name and type"),
    pytest.param("no=agent&has=concept", 4, 2, id="presence"),
    pytest.param("no=author&author=Ben", 9, 6, id="value or none"),
    pytest.param("state=archived&state=superseded", 2, 1, id="states"),
    pytest.param("from=2024-01-01&to=2024-02-29&type=note&type=bugfix", 5, 3, id="dates and types"),
    pytest.param("as_of=2024-06-01", 9, 6, id="as of a date"),
    pytest.param("project=tea&q=sugar+guests&author=Mio", 1, 1, id="words and facets"),
    pytest.param("sort=title&page_size=3&page=2", 14, 8, id="second page"),
    pytest.param("tag=no-such-tag", 0, 0, id="unknown value"),
]


@pytest.fixture(params=["everyone", "member"])
def doors(request, corpus):
    """A signed-in browser, a client with a key, and the viewer of both."""
    restricted = request.param == "member"
    user = User.objects.create_user("reader", is_superuser=not restricted)
    tea = Project.objects.get(slug="tea")
    if restricted:
        Membership.objects.create(user=user, project=tea)
    named = {"projects": [tea]} if restricted else {"every_project": True}
    raw = make_key(name="agent", scopes=["read"], viewer=command_viewer(), **named).raw
    browser = Client()
    browser.force_login(user)
    return browser, Client(headers={"Authorization": f"Bearer {raw}"}), viewer_of_user(user), restricted


def shown_counts(text):
    """Counts of the sidebar by (facet, value); None for memories without a value."""
    counts = {}
    for name, value, count in ROW.findall(text):
        if name == "has":
            continue
        key = (unescape(value), None) if name == "no" else (name.removeprefix("-"), unescape(value))
        assert key not in counts
        counts[key] = int(count.replace(",", ""))
    return counts


@pytest.mark.parametrize(("querystring", "of_all", "of_tea"), QUERIES)
def test_every_door_gives_the_same_memories_and_counts(doors, querystring, of_all, of_tea):
    browser, caller, viewer, restricted = doors
    query = SearchQuery.from_pairs([*parse_qsl(querystring), ("include_facets", "1")])
    result = run(query, viewer)
    reply = caller.get(f"/api/search?{query.querystring()}").json()
    # A closed panel has no rows.
    opened = {"X-Open": " ".join(f"facet-{key}" for key in FACET)}
    address = f"/explore/?{query.with_(include_facets=False, page=query.page).querystring()}"
    page = browser.get(address, headers=opened)
    assert page.status_code == 200

    total = re.search(r'<h1 id="total"[^>]*>([\d,]+) ', html_of(page))[1]
    assert int(total) == reply["total"] == result.total == (of_tea if restricted else of_all)
    ids = [int(pk) for pk in re.findall(r'<article id="hit-(\d+)"', html_of(page))]
    assert ids == [memory["id"] for memory in reply["memories"]] == [hit.id for hit in result.hits]

    counts = shown_counts(html_of(page))
    assert {key for key, _ in counts} == {facet.key for facet in result.facets if facet.values or facet.no_value}
    by_run = {(facet.key, v.value): v.count for facet in result.facets for v in facet.values}
    by_run |= {(facet.key, None): facet.no_value for facet in result.facets}
    # The page may collapse levels of the tree, so it shows a subset.
    assert counts == {key: by_run[key] for key in counts}
    for (key, value), count in counts.items():
        name = FACET[key].api_name
        of_api = reply["no_value"][name] if value is None else reply["facets"][name].get(value, 0)
        assert (key, value, of_api) == (key, value, count)

    bars = [(first, int(count.replace(",", ""))) for first, count in BAR.findall(html_of(page))]
    assert bars == [(bar["first"][:16], bar["all"]) for bar in reply["facets"]["histogram"]["bars"]]
    assert bars == [(bar.first[:16], bar.all) for bar in result.histogram.bars]


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
def test_every_interface_names_what_a_dash_excludes_and_offers_it_as_words(doors, mode):
    browser, agent, *_ = doors
    said, asked = "Memories with “valve” are left out", {"q": "kettle -valve", "mode": mode}
    page = unescape(html_of(browser.get("/explore/", asked, follow=True)))
    assert said in page
    assert ">kettle valve</a>" in page
    (warning,) = [one for one in agent.get("/api/search", asked).json()["warnings"] if said in one["message"]]
    assert (warning["parameter"], warning["did_you_mean"]) == ("q", ["kettle valve"])
