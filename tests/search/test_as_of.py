"""Memories as they were valid at a date, found and counted by every engine."""

from urllib.parse import parse_qsl

from access.viewer import Viewer, command_viewer
from memories.models import Memory, Project
from memories.services import memory_archive, memory_restore
from search.query import SearchQuery
from search.run import run
from search.why_not import why_not
from tests.search.conftest import BOTH_ENGINES

pytestmark = BOTH_ENGINES


def ask(querystring, viewer):
    return run(SearchQuery.from_pairs(parse_qsl(querystring)), viewer)


def titles(querystring, viewer):
    return sorted(hit.title_text for hit in ask(querystring, viewer).hits)


def test_a_superseded_memory_is_valid_until_its_successor_was_created(corpus, everyone):
    guests = "category=guests/tables&as_of="
    assert titles(f"{guests}2024-04-30", everyone) == []
    assert titles(f"{guests}2024-05-01", everyone) == ["No sugar on the tables"]
    assert titles(f"{guests}2024-10-31", everyone) == ["No sugar on the tables"]
    assert titles(f"{guests}2024-11-01", everyone) == ["Sugar on every table"]
    assert titles(f"{guests}2024-11-01T12:00Z", everyone) == ["Sugar on every table"]
    assert titles(f"{guests}2024-11-01T11:59Z", everyone) == ["No sugar on the tables"]
    assert titles("category=guests/tables", everyone) == ["Sugar on every table"]


def test_counts_and_the_hidden_are_those_of_the_date(corpus, everyone):
    result = ask("as_of=2024-06-01&include_facets=1", everyone)
    states = next(facet for facet in result.facets if facet.key == "state")
    assert result.total == 9
    counts = {value.value: value.count for value in states.values if value.count}
    # The old plan of the dock was archived when it was imported.
    assert counts == {"active": 7, "superseded": 1, "archived": 1}
    assert result.hidden == 0
    assert ask("as_of=2024-06-01&state=active", everyone).total == 7


def test_archiving_ends_it_and_restoring_does_away_with_the_end(corpus, everyone):
    cups = Memory.objects.get(external_id="t4")
    memory_archive(memory_id=cups.pk, viewer=everyone)
    assert titles("q=cups&mode=keyword", everyone) == []
    assert titles("q=cups&mode=keyword&as_of=2024-12-31", everyone) == ["Cups"]
    assert titles("q=cups&mode=keyword&as_of=2999-12-31", everyone) == []
    memory_restore(memory_id=cups.pk, viewer=everyone)
    assert titles("q=cups&mode=keyword&as_of=2999-12-31", everyone) == ["Cups"]


def test_a_viewer_of_one_project_sees_what_was_valid_there(corpus):
    tea = Viewer(frozenset([Project.objects.get(slug="tea").pk]), frozenset(["read"]))
    assert ask("as_of=2024-06-01", tea).total == 6
    assert ask("as_of=2024-06-01&project=boat", tea).total == 0


def test_what_was_not_valid_is_explained_and_relaxed(corpus, everyone):
    later = Memory.objects.get(external_id="t7")
    verdict = why_not(SearchQuery(as_of="2024-06-01"), later.pk, command_viewer())
    assert [(check.name, check.has, check.passed) for check in verdict.checks if check.name == "as_of"] == [
        ("as_of", "not valid then", False)
    ]
    result = ask("tag=wood&as_of=2024-06-01", everyone)
    assert ("as_of", "the date of validity", 1) in [(one.key, one.label, one.count) for one in result.relaxations]
