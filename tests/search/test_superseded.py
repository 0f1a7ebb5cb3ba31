"""Superseded memories, where a search includes them, come after those that superseded them."""

from urllib.parse import parse_qsl

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access.viewer import Viewer
from memories.models import Memory, Project
from search.query import SearchQuery
from search.run import run
from search.unified import legs
from search.unified.service import unified
from tests.search.conftest import BOTH_ENGINES
from tests.unified_corpus import AtOnce

pytestmark = BOTH_ENGINES

OLD, NEW = "No sugar on the tables", "Sugar on every table"
BOTH = "q=sugar superseded winter&state=active&state=superseded"


def query_of(querystring):
    return SearchQuery.from_pairs(parse_qsl(querystring))


def hits(querystring, viewer):
    return {hit.title_text: hit.why for hit in run(query_of(querystring), viewer).hits}


@pytest.mark.parametrize("mode", ["keyword", "hybrid", "semantic", "faceted"])
def test_it_follows_its_successor_in_every_mode_and_says_so(embedded, everyone, mode):
    query = f"{BOTH}&mode={mode}" + ("" if mode == "keyword" else "&min_similarity=0")
    found = hits(query, everyone)
    order = list(found)
    assert order.index(OLD) == order.index(NEW) + 1
    assert found[OLD].moved_below == Memory.objects.get(title=NEW).pk
    assert found[NEW].moved_below is None


def test_unified_search_has_it_after_its_successor(embedded, everyone, monkeypatch):
    monkeypatch.setattr(legs, "_threads", AtOnce())
    found = unified(query_of(f"{BOTH}&mode=unified&page_size=100"), everyone)
    order = [hit.memory.title_text for hit in found.hits if hit.memory]
    assert order.index(OLD) > order.index(NEW)


def test_a_viewer_of_the_project_has_the_same_order_and_others_see_neither(embedded, everyone):
    tea, boat = (
        Viewer(frozenset([Project.objects.get(slug=slug).pk]), frozenset(["read"])) for slug in ("tea", "boat")
    )
    assert list(hits(f"{BOTH}&mode=keyword&project=tea", everyone)) == list(hits(f"{BOTH}&mode=keyword", tea))
    assert not {OLD, NEW} & hits(f"{BOTH}&mode=hybrid", boat).keys()


def test_a_search_of_the_usual_states_reads_no_successors(embedded, everyone):
    read = "superseded_by_id IS NOT NULL"
    for querystring, expected in (("q=sugar", False), (BOTH, True)):
        with CaptureQueriesContext(connection) as seen:
            hits(querystring, everyone)
        assert any(read in statement["sql"] for statement in seen.captured_queries) is expected
